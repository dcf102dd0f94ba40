#include "operator/template.h"

#include <string.h>

#include "operator/shape.h"

static const json_t *hole_of(const json_t *value) {
    const json_t *hole = json_object_get(value, "hole");
    return json_is_object(value) && json_object_size(value) == 1 ? hole : NULL;
}

/* Anywhere below: there holes have no meaning. */
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

/* ---- what may be fixed ---- */

/* What follows these is text that a program runs. */
static bool takes_program(const json_t *word) {
    static const char *const flags[] = {"-c", "-e", "-ec", "-lc", "-exec", "--eval", "--command"};
    const char *text = json_string_value(word);
    for (size_t i = 0; text && i < sizeof(flags) / sizeof(*flags); i++)
        if (strcmp(flags[i], text) == 0)
            return true;
    return false;
}

static int check_words(const json_t *words, struct err *err) {
    const json_t *word;
    size_t i;
    json_array_foreach(words, i, word) {
        const json_t *hole = hole_of(word);
        if (!hole && !json_is_string(word))
            return err_set(err, ERR_INVALID, "'argv' holds something that is no text and no hole");
        if (!hole)
            continue;
        if (i == 0 || takes_program(json_array_get(words, i - 1)))
            return err_set(err, ERR_INVALID, "word %zu of 'argv' is a program: it cannot be a hole",
                           i);
        if (shape_check(hole, err) < 0)
            return err_wrap(err, "hole in word %zu of 'argv'", i);
    }
    return 0;
}

static int check_argument(const char *name, const json_t *value, struct err *err) {
    const json_t *hole = hole_of(value);
    if (strcmp(name, "argv") == 0 && json_is_array(value))
        return check_words(value, err);
    if (!hole)
        return has_hole(value) ? err_set(err, ERR_INVALID,
                                         "a hole is a whole argument or element of 'argv', not a "
                                         "part of '%.40s'",
                                         name)
                               : 0;
    if (strcmp(name, "cmd") == 0 || strcmp(name, "argv") == 0) {
        err_set(err, ERR_INVALID, "'%s' cannot be a hole", name);
        return err_remedy(err, "use argv, with holes for its later words");
    }
    return shape_check(hole, err) < 0 ? err_wrap(err, "hole '%.40s'", name) : 0;
}

static int check_call(const json_t *call, bool (*is_tool)(void *arg, const char *name), void *arg,
                      struct err *err) {
    const char *tool = json_string_value(json_object_get(call, "tool")), *name;
    json_t *arguments = json_object_get(call, "arguments"), *value;
    if (!tool || !json_is_object(arguments))
        return err_set(err, ERR_INVALID, "a call is {\"tool\":NAME,\"arguments\":{...}}");
    if (!is_tool(arg, tool))
        return err_set(err, ERR_INVALID, "there is no tool '%.60s'", tool);
    json_object_foreach(arguments, name, value) {
        if (check_argument(name, value, err) < 0)
            return -1;
    }
    return 0;
}

int templates_check(const json_t *list, bool (*is_tool)(void *arg, const char *name), void *arg,
                    struct err *err) {
    size_t i, n = json_array_size(list);
    const json_t *call;
    if (!n || n > TEMPLATES_MAX)
        return err_set(err, ERR_INVALID, "there must be 1 to %d calls", TEMPLATES_MAX);
    json_array_foreach(list, i, call) {
        if (check_call(call, is_tool, arg, err) < 0)
            return err_wrap(err, "call %zu", i + 1);
    }
    return 0;
}

/* ---- what matches ---- */

static int match_value(const char *name, const json_t *wanted, const json_t *given, bool is_word,
                       struct err *err) {
    const json_t *hole = hole_of(wanted);
    const char *text = json_string_value(given);
    if (!hole)
        return json_equal(wanted, given)
                   ? 0
                   : err_set(err, ERR_INVALID, "'%.40s' is not what was fixed", name);
    if (shape_fits(hole, given, err) < 0)
        return err_wrap(err, "what fills '%.40s'", name);
    if (is_word && text && text[0] == '-' && !json_object_get(hole, "enum"))
        return err_set(err, ERR_INVALID, "what fills '%.40s' looks like an option", name);
    return 0;
}

/* Numbers that stand in a word are written out: a word is a text. */
static int match_words(const json_t *wanted, const json_t *given, struct err *err) {
    size_t i, n = json_array_size(wanted);
    const json_t *word;
    if (!json_is_array(given) || json_array_size(given) != n)
        return err_set(err, ERR_INVALID, "'argv' has not the %zu words that were fixed", n);
    json_array_foreach(wanted, i, word) {
        const json_t *shape = hole_of(word), *text = json_array_get(given, i);
        json_t *number = NULL;
        if (shape && !json_object_get(shape, "enum") && !json_object_get(shape, "maxLength"))
            number = json_loads(json_string_value(text) ? json_string_value(text) : "",
                                JSON_DECODE_ANY, NULL);
        int status = match_value("argv", word, number ? number : text, !number, err);
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
        return err_set(err, ERR_INVALID, "the tool is not '%.60s'", tool);
    if (!json_is_object(arguments))
        return err_set(err, ERR_INVALID, "the arguments are no object");
    json_object_foreach((json_t *)arguments, name, value) {
        if (!json_object_get(fixed, name))
            return err_set(err, ERR_INVALID, "'%.40s' was not fixed", name);
    }
    json_object_foreach(fixed, name, value) {
        const json_t *given = json_object_get(arguments, name);
        bool words = strcmp(name, "argv") == 0 && json_is_array(value);
        if (!given)
            return err_set(err, ERR_INVALID, "'%.40s' is missing", name);
        if ((words ? match_words(value, given, err) : match_value(name, value, given, false, err)) <
            0)
            return -1;
    }
    return 0;
}
