/* Descriptions for models: arguments and results of the tools of the desktop. */
#include "tools/tables_inner.h"

#define X_FIELD                                                                         \
    {                                                                                   \
        "x", FIELD_NUMBER, AT(desktop_tool_input, in.x),                                \
            "pixels from the left edge of the screenshot", .required = true,            \
                                                           .max = DESKTOP_WIDTH_MAX - 1 \
    }
#define Y_FIELD                                                                           \
    {                                                                                     \
        "y", FIELD_NUMBER, AT(desktop_tool_input, in.y),                                  \
            "pixels from the upper edge of the screenshot", .required = true,             \
                                                            .max = DESKTOP_HEIGHT_MAX - 1 \
    }
#define HOLD_FIELD                                                          \
    {                                                                       \
        "hold", FIELD_TEXT, AT(desktop_tool_input, in.hold),                \
            "keys to hold down meanwhile, such as shift", .max = NAME_BYTES \
    }

static const struct field screenshot_input[] = {MACHINE_FIELD};
const struct schema desktop_screenshot_schema =
    SCHEMA("screenshot_input", struct desktop_tool_input, screenshot_input);

static const struct field click_input[] = {
    MACHINE_FIELD,
    X_FIELD,
    Y_FIELD,
    {"button", FIELD_TEXT, AT(desktop_tool_input, in.button), "default left",
     .choices = desktop_buttons},
    {"count", FIELD_NUMBER, AT(desktop_tool_input, in.count), "2 is a double click (default 1)",
     .min = 1, .max = DESKTOP_CLICKS_MAX},
    HOLD_FIELD,
    {"to_x", FIELD_NUMBER, AT(desktop_tool_input, in.to_x), "drag to this point",
     .max = DESKTOP_WIDTH_MAX - 1},
    {"to_y", FIELD_NUMBER, AT(desktop_tool_input, in.to_y), "drag to this point",
     .max = DESKTOP_HEIGHT_MAX - 1},
};
const struct schema desktop_click_schema =
    SCHEMA("click_input", struct desktop_tool_input, click_input);

static const struct field move_input[] = {MACHINE_FIELD, X_FIELD, Y_FIELD};
const struct schema desktop_move_schema =
    SCHEMA("move_input", struct desktop_tool_input, move_input);

static const struct field scroll_input[] = {
    MACHINE_FIELD,
    X_FIELD,
    Y_FIELD,
    {"direction", FIELD_TEXT, AT(desktop_tool_input, in.direction), "default down",
     .choices = desktop_directions},
    {"amount", FIELD_NUMBER, AT(desktop_tool_input, in.amount), "steps of the wheel (default 3)",
     .min = 1, .max = DESKTOP_SCROLL_MAX},
    HOLD_FIELD,
};
const struct schema desktop_scroll_schema =
    SCHEMA("scroll_input", struct desktop_tool_input, scroll_input);

static const struct field type_input[] = {
    MACHINE_FIELD,
    {"text", FIELD_TEXT, AT(desktop_tool_input, in.text), NULL, .required = true,
     .max = DESKTOP_TEXT_MAX},
};
const struct schema desktop_type_schema =
    SCHEMA("type_input", struct desktop_tool_input, type_input);

static const struct field key_input[] = {
    MACHINE_FIELD,
    {"keys", FIELD_TEXT, AT(desktop_tool_input, in.text), "such as ctrl+s or Return",
     .required = true, .max = DESKTOP_TEXT_MAX},
};
const struct schema desktop_key_schema = SCHEMA("key_input", struct desktop_tool_input, key_input);

static const struct field desktop_output[] = {
    {"machine", SHOW_TEXT, AT(desktop_output, machine), NULL, .required = true},
    {"width", SHOW_NUMBER, AT(desktop_output, width), "width of the screen in pixels",
     .required = true},
    {"height", SHOW_NUMBER, AT(desktop_output, height), "height of the screen in pixels",
     .required = true},
    {"display", SHOW_TEXT, AT(desktop_output, display), "DISPLAY for programs", .required = true},
};
const struct schema desktop_output_schema =
    SCHEMA("desktop_output", struct desktop_output, desktop_output);
