/* Descriptions for models: arguments and results of the tool program. */
#include "service/exec/programs.h"
#include "tools/tables_inner.h"

static const struct field program_input[] = {
    {"wat", FIELD_TEXT, AT(program_input, wat), "a module in the WebAssembly text format",
     .max = PROGRAM_TEXT_MAX},
    {"text", FIELD_TEXT, AT(program_input, text), "older name of wat", .max = PROGRAM_TEXT_MAX},
    {"python", FIELD_TEXT, AT(program_input, python),
     "a Python script instead of wat; input is its argument", .max = PROGRAM_TEXT_MAX},
    {"javascript", FIELD_TEXT, AT(program_input, javascript),
     "a JavaScript script instead of wat; input is its argument", .max = PROGRAM_TEXT_MAX},
    {"allow", FIELD_TEXTS, AT(program_input, allow),
     "capabilities of the module: log, args, result, time, random, call, kv, http, model (default: "
     "none)",
     .max = 16},
    {"machine", FIELD_TEXT, AT(program_input, machine),
     "cell machine that has these capabilities (default: your own)", .max = 255},
    {"invoke", FIELD_TEXT, AT(program_input, invoke),
     "exported function to call (default: _start or main)", .max = 200},
    {"args", FIELD_TEXTS, AT(program_input, args), "arguments of the function, written as numbers",
     .max = PROGRAM_WORDS_MAX},
    {"input", FIELD_TEXT, AT(program_input, input),
     "input that the module reads with carrel.1.args (JSON) or carrel.args_read", .max = 100000},
    {"fuel", FIELD_NUMBER, AT(program_input, fuel),
     "maximum fuel to spend, about 1 per instruction (default 100000000)", .min = 1,
     .max = PROGRAM_FUEL_MAX},
    {"memory_pages", FIELD_NUMBER, AT(program_input, memory_pages),
     "maximum memory in pages of 64 KiB (default 256)", .min = 1, .max = PROGRAM_PAGES_MAX},
};
const struct schema program_input_schema =
    SCHEMA("program_input", struct program_input, program_input);

struct value_row {
    const char *type, *value;
};
static const struct field value_row[] = {
    {"type", SHOW_TEXT, AT(value_row, type), NULL, .required = true},
    {"value", SHOW_TEXT, AT(value_row, value), NULL, .required = true},
};
static const struct schema value_row_schema = SCHEMA("value_row", struct value_row, value_row);

struct frame_row {
    const char *function, *place;
};
static const struct field frame_row[] = {
    {"function", SHOW_TEXT, AT(frame_row, function), NULL},
    {"place", SHOW_TEXT, AT(frame_row, place), "file, line and column"},
};
static const struct schema frame_row_schema = SCHEMA("frame_row", struct frame_row, frame_row);

static const struct field program_output[] = {
    {"outcome", SHOW_TEXT, AT(program_output, outcome), "one of done, trap, out_of_fuel",
     .required = true},
    {"results", SHOW_JSON, AT(program_output, results), NULL, .required = true,
     .sub = &value_row_schema},
    {"result", SHOW_JSON, AT(program_output, result), "value passed to carrel.1.result"},
    {"fuel", SHOW_NUMBER, AT(program_output, fuel), "fuel spent", .required = true},
    {"output", SHOW_TEXT, AT(program_output, output),
     "bytes passed to carrel.result, or standard output of a script"},
    {"exit_code", SHOW_JSON, AT(program_output, exit_code), "exit code of a script"},
    {"log", SHOW_TEXT, AT(program_output, log), "text passed to carrel.log"},
    {"trap", SHOW_TEXT, AT(program_output, trap), "reason of the trap"},
    {"frames", SHOW_JSON, AT(program_output, frames), "call stack of the trap",
     .sub = &frame_row_schema},
};
const struct schema program_output_schema =
    SCHEMA("program_output", struct program_output, program_output);
