/* Schemas of desktops. */
#include "api/body_fields.h"
#include "service/desktop/desktop.h"

static const struct field desktop_request[] = {
    {"width", FIELD_NUMBER, AT(struct desktop_request, width),
     "width in pixels of a desktop that does not run yet (default 1280)", .min = DESKTOP_SIDE_MIN,
     .max = DESKTOP_WIDTH_MAX},
    {"height", FIELD_NUMBER, AT(struct desktop_request, height),
     "height in pixels of a desktop that does not run yet (default 800)", .min = DESKTOP_SIDE_MIN,
     .max = DESKTOP_HEIGHT_MAX},
};
const struct schema desktop_request_schema =
    SCHEMA("DesktopRequest", struct desktop_request, desktop_request);

#define COORDINATE(member, text) \
    { #member, FIELD_NUMBER, AT(struct desktop_input, member), text, .max = DESKTOP_WIDTH_MAX - 1 }

static const struct field desktop_input[] = {
    {"action", FIELD_TEXT, AT(struct desktop_input, action), NULL, .required = true,
     .choices = desktop_actions},
    COORDINATE(x, "click, move, scroll: pixels from the left edge of the screenshot"),
    COORDINATE(y, "click, move, scroll: pixels from its upper edge"),
    COORDINATE(to_x, "click: drag to this point"),
    COORDINATE(to_y, "click: drag to this point"),
    {"button", FIELD_TEXT, AT(struct desktop_input, button), "click (default left)",
     .choices = desktop_buttons},
    {"count", FIELD_NUMBER, AT(struct desktop_input, count), "click: 2 is a double click", .min = 1,
     .max = DESKTOP_CLICKS_MAX},
    {"direction", FIELD_TEXT, AT(struct desktop_input, direction), "scroll (default down)",
     .choices = desktop_directions},
    {"amount", FIELD_NUMBER, AT(struct desktop_input, amount),
     "scroll: steps of the wheel (default 3)", .min = 1, .max = DESKTOP_SCROLL_MAX},
    {"text", FIELD_TEXT, AT(struct desktop_input, text),
     "type: the text; key: keys such as ctrl+s or Return, several separated by spaces",
     .max = DESKTOP_TEXT_MAX},
    {"hold", FIELD_TEXT, AT(struct desktop_input, hold),
     "click, scroll: keys that are held down meanwhile, such as shift", .max = KIND_MAX * 2},
};
const struct schema desktop_input_schema =
    SCHEMA("DesktopInput", struct desktop_input, desktop_input);

static const struct field desktop_view[] = {
    {"width", SHOW_NUMBER, AT(struct desktop_view, width), "width in pixels", .required = true},
    {"height", SHOW_NUMBER, AT(struct desktop_view, height), "height in pixels", .required = true},
    {"display", SHOW_TEXT, AT(struct desktop_view, display),
     "DISPLAY of the programs that use the desktop", .required = true},
};
const struct schema desktop_schema = SCHEMA("Desktop", struct desktop_view, desktop_view);
