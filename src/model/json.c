#include "model/json.h"

#include <string.h>

#include "base/defer.h"

const char *json_member(const json_t *object, const char *name) {
    const json_t *value = json_object_get(object, name);
    const char *text = json_string_value(value);
    return text && strlen(text) == json_string_length(value) ? text : NULL;
}

const char *json_member_or(const json_t *object, const char *name, const char *otherwise) {
    const char *text = json_member(object, name);
    return text ? text : otherwise;
}

bool json_member_is(const json_t *object, const char *name, const char *value) {
    const char *text = json_member(object, name);
    return text && strcmp(text, value) == 0;
}

uint64_t json_count(const json_t *object, const char *name) {
    const json_int_t most = (json_int_t)1 << 40;
    json_int_t n = json_integer_value(json_object_get(object, name));
    if (n < 0)
        return 0;
    return (uint64_t)(n < most ? n : most);
}

char *json_text(struct arena *a, const json_t *value, size_t *ret_n) {
    char *text DEFER_FREE = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    const char *shown = text ? text : "null";
    if (ret_n)
        *ret_n = strlen(shown);
    return arena_copy(a, shown, strlen(shown));
}
