#include "operator/template.h"

#include <string.h>

#include "operator/shape.h"

enum { NUMBER_WORD_MAX = 24 };

static const json_t *hole_of(const json_t *value) {
    const json_t *hole = json_object_get(value, "hole");
    return json_is_object(value) && json_object_size(value) == 1 ? hole : NULL;
}

/* True if the value, or a part of it at any depth, is a hole (filled in later). */
static bool has_hole(const json_t *value) {
    const char *name;
    json_t *item;
    size_t i;
    if (hole_of(value))
        return true;
    json_object_foreach((json_t *)value, name, item) {
        if (has_hole(item))
            return true;
    }
    json_array_foreach(value, i, item) {
        if (has_hole(item))
            return true;
    }
    return false;
}

/* ---- arguments that may be holes ---- */

/*
 * Every argument that may be a hole (a value that is filled in later). HOLE_CLOSED: its schema is
 * an enum, a number with bounds or a boolean, so the author of the call limits its values.
 * HOLE_OPEN: the value may be free text. An argument without a row is never a hole.
 */
enum hole_kind { HOLE_NONE, HOLE_CLOSED, HOLE_OPEN };
static const struct {
    const char *tool, *argument;
    enum hole_kind kind;
} places[] = {
    {"exec", "cwd", HOLE_CLOSED},           {"exec", "stdin", HOLE_OPEN}, /* see check_stdin() */
    {"exec", "timeout_ms", HOLE_CLOSED},    {"exec", "yield_ms", HOLE_CLOSED},
    {"exec", "max_output", HOLE_CLOSED},    {"install", "cwd", HOLE_CLOSED},
    {"read", "path", HOLE_CLOSED},          {"read", "from_line", HOLE_CLOSED},
    {"read", "lines", HOLE_CLOSED},         {"write", "path", HOLE_CLOSED},
    {"write", "content", HOLE_OPEN}, /* see check_after_write() */
    {"search", "pattern", HOLE_OPEN},       {"search", "path", HOLE_CLOSED},
    {"search", "glob", HOLE_CLOSED},        {"search", "max", HOLE_CLOSED},
    {"search", "ignore_case", HOLE_CLOSED}, {"fetch", "url", HOLE_CLOSED},
    {"fetch", "max_output", HOLE_CLOSED},   {"diff", "path", HOLE_CLOSED},
    {"diff", "max_output", HOLE_CLOSED},    {"diff", "brief", HOLE_CLOSED},
    {"checkpoint", "name", HOLE_CLOSED},    {"rewind", "to", HOLE_CLOSED},
};

static enum hole_kind place_kind(const char *tool, const char *argument) {
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
        if (strcmp(places[i].tool, tool) == 0 && strcmp(places[i].argument, argument) == 0)
            return places[i].kind;
    return HOLE_NONE;
}

/*
 * Programs that treat their operands and their input as data: none of their options runs or writes
 * what a later argument names. The list must not contain sort (-o), rg (--pre), find, sed, tee, or
 * a program that starts another one.
 */
static const char *const readers[] = {"basename", "cat", "cmp",   "comm", "cut",       "diff",
                                      "dirname",  "du",  "echo",  "grep", "head",      "ls",
                                      "md5sum",   "nl",  "pgrep", "seq",  "sha256sum", "stat",
                                      "tail",     "tr",  "wc"};

/* True if the program is in `readers`. A program with a path in its name, or found with another
 * PATH, may be any file. */
static bool only_reads(const json_t *arguments) {
    const char *name = json_string_value(json_array_get(json_object_get(arguments, "argv"), 0));
    if (json_object_get(arguments, "cmd") || json_object_get(arguments, "env"))
        return false;
    for (size_t i = 0; name && i < sizeof(readers) / sizeof(*readers); i++)
        if (strcmp(readers[i], name) == 0)
            return true;
    return false;
}

/* ---- checks of fixed calls ---- */

static int check_words(const json_t *arguments, struct err *err) {
    const json_t *words = json_object_get(arguments, "argv"), *word;
    size_t i;
    json_array_foreach(words, i, word) {
        const json_t *hole = hole_of(word);
        if (!hole && !json_is_string(word))
            return err_set(
                err, ERR_INVALID,
                "the elements of 'argv' must be strings or holes (values filled in later)");
        if (!hole)
            continue;
        if (i == 0)
            return err_set(err, ERR_INVALID,
                           "the first element of 'argv' is the program and cannot be a hole");
        if (shape_check(hole, err) < 0)
            return err_wrap(err, "schema of the hole (a value filled in later) in argv[%zu]", i);
        if (shape_is_closed(hole) || only_reads(arguments))
            continue;
        err_set(err, ERR_INVALID,
                "argv[%zu] needs an 'enum': this program may run or write its value", i);
        return err_remedy(
            err, "list the values in an 'enum', or use a program that only reads, such as grep");
    }
    return 0;
}

/* A shell or interpreter runs its input; a read-only program treats it as data. */
static int check_stdin(const json_t *arguments, struct err *err) {
    if (only_reads(arguments))
        return 0;
    err_set(err, ERR_INVALID,
            "argument 'stdin' needs an 'enum': the command may run what it reads");
    return err_remedy(
        err, "list the values in an 'enum', or use an 'argv' that only reads, such as grep");
}

static int check_hole(const char *tool, const json_t *arguments, const char *name,
                      const json_t *hole, struct err *err) {
    enum hole_kind kind = place_kind(tool, name);
    if (kind == HOLE_NONE) {
        err_set(err, ERR_INVALID, "argument '%.40s' cannot be a hole (a value filled in later)",
                name);
        return err_remedy(err, strcmp(tool, "exec") == 0
                                   ? "use 'argv', with holes after its first element"
                                   : "write the value of the argument into the call");
    }
    if (shape_check(hole, err) < 0)
        return err_wrap(err, "schema of the hole (a value filled in later) in argument '%.40s'",
                        name);
    if (shape_is_closed(hole))
        return 0;
    if (kind == HOLE_CLOSED)
        return err_set(err, ERR_INVALID,
                       "argument '%.40s' of tool '%.40s' needs an 'enum' with its allowed values",
                       name, tool);
    return strcmp(name, "stdin") == 0 ? check_stdin(arguments, err) : 0;
}

static int check_argument(const char *tool, const json_t *arguments, const char *name,
                          const json_t *value, struct err *err) {
    const json_t *hole = hole_of(value);
    if (hole)
        return check_hole(tool, arguments, name, hole, err);
    if (strcmp(tool, "exec") == 0 && strcmp(name, "argv") == 0 && json_is_array(value))
        return check_words(arguments, err);
    if (!has_hole(value))
        return 0;
    err_set(
        err, ERR_INVALID,
        "argument '%.40s' contains a hole (a value that is filled in later), but a hole must be "
        "the whole argument or a whole element of 'argv'",
        name);
    return err_remedy(err,
                      "write the value of the argument into the plan, or make all of it a hole");
}

static int check_call(const json_t *call, bool (*is_tool)(void *arg, const char *name), void *arg,
                      struct err *err) {
    const char *tool = json_string_value(json_object_get(call, "tool")), *name;
    json_t *arguments = json_object_get(call, "arguments"), *value;
    if (!tool || !json_is_object(arguments))
        return err_set(err, ERR_INVALID, "a tool call must be {\"tool\":NAME,\"arguments\":{...}}");
    if (!is_tool(arg, tool))
        return err_set(err, ERR_INVALID, "tool '%.60s' does not exist", tool);
    json_object_foreach(arguments, name, value) {
        if (check_argument(tool, arguments, name, value, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- free text that one call writes and another runs ---- */

static bool writes_open(const json_t *call) {
    const char *tool = json_string_value(json_object_get(call, "tool"));
    const json_t *hole = hole_of(json_object_get(json_object_get(call, "arguments"), "content"));
    return strcmp(tool, "write") == 0 && hole && !shape_is_closed(hole);
}

/* Programs find files in many ways (make, hooks, imports), so only read-only programs are safe. */
static bool may_run_files(const json_t *call) {
    static const char *const runners[] = {"exec", "install", "session", "program", "spawn"};
    const char *tool = json_string_value(json_object_get(call, "tool"));
    bool runs = false;
    for (size_t i = 0; i < sizeof(runners) / sizeof(*runners); i++)
        runs |= strcmp(runners[i], tool) == 0;
    return runs && !only_reads(json_object_get(call, "arguments"));
}

static int check_after_write(const json_t *list, bool in_order, struct err *err) {
    size_t i, k;
    const json_t *writing, *call;
    json_array_foreach(list, i, writing) {
        if (!writes_open(writing))
            continue;
        json_array_foreach(list, k, call) {
            if ((in_order && k < i) || !may_run_files(call))
                continue;
            err_set(err, ERR_INVALID,
                    "call %zu writes free text to a file, and call %zu may run that file", i + 1,
                    k + 1);
            return err_remedy(err,
                              "give 'content' of call %zu an 'enum', or make call %zu an exec "
                              "whose 'argv' only reads, such as cat",
                              i + 1, k + 1);
        }
    }
    return 0;
}

int templates_check(const json_t *list, bool in_order, bool (*is_tool)(void *arg, const char *name),
                    void *arg, struct err *err) {
    size_t i, n = json_array_size(list);
    const json_t *call;
    if (!n || n > TEMPLATES_MAX)
        return err_set(err, ERR_INVALID, "the list of tool calls must have 1 to %d calls",
                       TEMPLATES_MAX);
    json_array_foreach(list, i, call) {
        if (check_call(call, is_tool, arg, err) < 0)
            return err_wrap(err, "call %zu", i + 1);
    }
    return check_after_write(list, in_order, err);
}

/* ---- comparison with a fixed call ---- */

/* word: the element of `argv`, or NULL for another argument. */
static int match_value(const char *name, const json_t *wanted, const json_t *given,
                       const json_t *word, struct err *err) {
    const json_t *hole = hole_of(wanted);
    const char *text = json_string_value(word);
    if (!hole)
        return json_equal(wanted, given)
                   ? 0
                   : err_set(err, ERR_INVALID, "argument '%.40s' differs from the fixed call",
                             name);
    if (shape_fits(hole, given, err) < 0)
        return err_wrap(err, "argument '%.40s'", name);
    if (text && text[0] == '-' && !json_object_get(hole, "enum"))
        return err_set(err, ERR_INVALID, "the value of argument '%.40s' looks like an option",
                       name);
    return 0;
}

/* A number with unlimited digits could carry text, so its length is limited. */
static json_t *number_in_word(const json_t *word) {
    const char *text = json_string_value(word);
    size_t n = json_string_length(word);
    bool plain = text && n <= NUMBER_WORD_MAX && strcspn(text, " \t\r\n") == n;
    return plain ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
}

/* `argv` elements are strings, so a number is compared in its written form. */
static int match_words(const json_t *wanted, const json_t *given, struct err *err) {
    size_t i, n = json_array_size(wanted);
    const json_t *word;
    if (!json_is_array(given) || json_array_size(given) != n)
        return err_set(err, ERR_INVALID, "'argv' must have %zu elements, as in the fixed call", n);
    json_array_foreach(wanted, i, word) {
        const json_t *shape = hole_of(word), *text = json_array_get(given, i);
        json_t *number = NULL;
        if (shape && !json_object_get(shape, "enum") && !json_object_get(shape, "maxLength"))
            number = number_in_word(text);
        int status = match_value("argv", word, number ? number : text, text, err);
        json_decref(number);
        if (status < 0)
            return -1;
    }
    return 0;
}

int template_match(const json_t *call, const char *tool, const json_t *arguments, struct err *err) {
    json_t *fixed = json_object_get(call, "arguments"), *value;
    const char *name;
    if (strcmp(json_string_value(json_object_get(call, "tool")), tool) != 0)
        return err_set(err, ERR_INVALID, "the tool of the fixed call is not tool '%.60s'", tool);
    if (!json_is_object(arguments))
        return err_set(err, ERR_INVALID, "the arguments of the tool call are not a JSON object");
    json_object_foreach((json_t *)arguments, name, value) {
        if (!json_object_get(fixed, name))
            return err_set(err, ERR_INVALID, "argument '%.40s' is not in the fixed call", name);
    }
    json_object_foreach(fixed, name, value) {
        const json_t *given = json_object_get(arguments, name);
        bool words = strcmp(name, "argv") == 0 && json_is_array(value);
        if (!given)
            return err_set(err, ERR_INVALID,
                           "argument '%.40s' is missing, but the fixed call has it", name);
        if ((words ? match_words(value, given, err) : match_value(name, value, given, NULL, err)) <
            0)
            return -1;
    }
    return 0;
}
