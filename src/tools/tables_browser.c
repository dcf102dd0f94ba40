/* Descriptions for models: arguments and results of the tool browser. */
#include "tools/tables_inner.h"

static const struct field browser_input[] = {
    MACHINE_FIELD,
    {"action", FIELD_TEXT, AT(browser_input, action), NULL, .required = true,
     .choices = browser_actions},
    {"url", FIELD_TEXT, AT(browser_input, url), "for open", .max = BROWSER_URL_MAX},
    {"name", FIELD_TEXT, AT(browser_input, name),
     "for click and fill: the element, by its name or 'role: name' as the text shows it",
     .max = 1000},
    {"nth", FIELD_NUMBER, AT(browser_input, nth), "which of several elements with this name",
     .min = 1, .max = 10000},
    {"text", FIELD_TEXT, AT(browser_input, text),
     "for fill: the new content, or the option to choose", .max = BROWSER_TEXT_MAX},
    {"enter", FIELD_FLAG, AT(browser_input, enter), "for fill: press Enter afterwards"},
    {"max_output", FIELD_NUMBER, AT(browser_input, max_output),
     "maximum characters of text to return (default 10000)", .min = 200, .max = BROWSER_OUTPUT_MAX},
};
const struct schema browser_input_schema =
    SCHEMA("browser_input", struct browser_input, browser_input);

static const struct field browser_output[] = {
    {"url", SHOW_TEXT, AT(browser_output, url), "address of the page"},
    {"title", SHOW_TEXT, AT(browser_output, title), NULL},
    {"text", SHOW_TEXT, AT(browser_output, text), "the visible page"},
    {"dialogs", SHOW_TEXT, AT(browser_output, dialogs), "dialogs of the page, which were closed"},
    {"left_out", SHOW_NUMBER, AT(browser_output, left_out), "characters of text that were left out",
     .required = true},
    {"whole", SHOW_FLAG, AT(browser_output, whole),
     "false: the page is so large that its end was not looked at", .required = true},
    {"loading", SHOW_FLAG, AT(browser_output, loading), "the page has not finished loading",
     .required = true},
    {"fresh", SHOW_FLAG, AT(browser_output, fresh), "the browser was started by this call",
     .required = true},
    {"machine", SHOW_TEXT, AT(browser_output, machine), NULL, .required = true},
};
const struct schema browser_output_schema =
    SCHEMA("browser_output", struct browser_output, browser_output);
