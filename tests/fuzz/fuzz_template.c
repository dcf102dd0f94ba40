/*
 * Property: whatever calls were fixed, a call that matches one says nothing that was not fixed but
 * numbers, flags and texts of at most SHAPE_TEXT_MAX bytes without control characters.
 *
 * The input is two lines of JSON: {"calls":[...]} and the arguments of a call.
 */
#include "operator/template.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "operator/shape.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool any_tool(void *arg, const char *name) {
    (void)arg;
    return *name;
}

static void is_small(const json_t *value) {
    assert(!json_is_object(value) && !json_is_array(value) && !json_is_null(value));
    assert(json_string_length(value) <= SHAPE_TEXT_MAX);
}

static void compare(const json_t *fixed, const json_t *given) {
    if (json_equal(fixed, given))
        return;
    if (json_is_array(fixed)) {
        assert(json_array_size(fixed) == json_array_size(given) && json_array_size(fixed));
        for (size_t i = 0; i < json_array_size(fixed); i++)
            if (!json_equal(json_array_get(fixed, i), json_array_get(given, i)))
                is_small(json_array_get(given, i));
        assert(json_equal(json_array_get(fixed, 0), json_array_get(given, 0)));
        return;
    }
    assert(json_object_get(fixed, "hole"));
    is_small(given);
}

static void match(const json_t *call, json_t *arguments) {
    const char *tool = json_string_value(json_object_get(call, "tool")), *name;
    json_t *fixed = json_object_get(call, "arguments"), *value;
    struct err err = {0};
    if (template_match(call, tool, arguments, &err) < 0) {
        assert(err.text[0]);
        return;
    }
    assert(json_object_size(fixed) == json_object_size(arguments));
    json_object_foreach(fixed, name, value) {
        compare(value, json_object_get(arguments, name));
    }
    assert(json_equal(json_object_get(fixed, "cmd"), json_object_get(arguments, "cmd")) ||
           !json_object_get(fixed, "cmd"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *bytes = (const char *)data, *line = memchr(data, '\n', size);
    struct err err = {0};
    size_t i;
    json_t *call;
    if (!line || size > 1 << 16)
        return 0;
    json_t *fixed = json_loadb(bytes, (size_t)(line - bytes), 0, NULL);
    json_t *arguments = json_loadb(line + 1, size - (size_t)(line + 1 - bytes), 0, NULL);
    json_t *calls = json_object_get(fixed, "calls");
    if (templates_check(calls, true, any_tool, NULL, &err) < 0) {
        assert(err.text[0]);
    } else {
        json_array_foreach(calls, i, call) {
            match(call, arguments);
        }
    }
    json_decref(fixed);
    json_decref(arguments);
    return 0;
}
