#include "api/e2b/metadata.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define FIELD_PREFIX "X-Metadata-"
enum { FIELD_PREFIX_LEN = sizeof(FIELD_PREFIX) - 1 };

void metadata_done(struct metadata *m) {
    for (uint32_t i = 0; i < m->count; i++)
        free(m->texts[i]);
    *m = (struct metadata){.count = 0};
}

static bool is_printable(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (s[i] < 0x20 || s[i] > 0x7e)
            return false;
    return true;
}

static bool metadata_has(const struct metadata *m, const char *key) {
    for (uint32_t i = 0; i < m->count; i += 2)
        if (strcmp(m->texts[i], key) == 0)
            return true;
    return false;
}

/* Of a field that is repeated the first value counts. */
static int metadata_add(struct metadata *m, struct http_text name, struct http_text value,
                        struct err *err) {
    if (name.n > (size_t)MSG_META_KEY_MAX || !is_printable(name.s, name.n) ||
        !is_printable(value.s, value.n))
        return err_set(err, ERR_INVALID,
                       "metadata '%.*s' must have a key of at most %d bytes and a value of "
                       "printable ASCII",
                       (int)(name.n < 60 ? name.n : 60), name.s, MSG_META_KEY_MAX);
    char *key = xstrndup(name.s, name.n);
    for (char *at = key; *at; at++)
        *at = (char)tolower((unsigned char)*at);
    if (metadata_has(m, key)) {
        free(key);
        return 0;
    }
    if (m->count == 2 * MSG_META_PAIRS) {
        free(key);
        return err_set(err, ERR_INVALID, "a file has at most %d keys of metadata", MSG_META_PAIRS);
    }
    m->texts[m->count++] = key;
    m->texts[m->count++] = xstrndup(value.s ? value.s : "", value.n);
    return 0;
}

int metadata_read(const struct http_head *head, struct metadata *ret, struct err *err) {
    size_t bytes = 0;
    for (size_t i = 0; i < head->count; i++) {
        struct http_text name = head->fields[i].name;
        if (name.n <= FIELD_PREFIX_LEN ||
            !http_text_is_like((struct http_text){name.s, FIELD_PREFIX_LEN}, FIELD_PREFIX))
            continue;
        name = (struct http_text){name.s + FIELD_PREFIX_LEN, name.n - FIELD_PREFIX_LEN};
        if (metadata_add(ret, name, head->fields[i].value, err) < 0)
            return -1;
    }
    for (uint32_t i = 0; i < ret->count; i++)
        bytes += strlen(ret->texts[i]);
    if (bytes > MSG_META_MAX)
        return err_set(err, ERR_INVALID, "the metadata of a file has more than %d bytes",
                       MSG_META_MAX);
    return 0;
}

json_t *metadata_json(const struct msg_strs *pairs) {
    json_t *object = NULL;
    const char *at = pairs->s;
    for (uint32_t i = 0; i + 1 < pairs->count && i < 2 * MSG_META_PAIRS; i += 2) {
        const char *value = at + strlen(at) + 1;
        if (*at && is_printable(at, strlen(at)) && is_printable(value, strlen(value))) {
            object = object ? object : json_object();
            json_object_set_new(object, at, json_string(value));
        }
        at = value + strlen(value) + 1;
    }
    return object;
}

void metadata_put_json(struct jot *j, const json_t *object) {
    const char *key;
    const json_t *value;
    if (!json_object_size(object))
        return;
    jot_object(j, "metadata");
    json_object_foreach((json_t *)object, key, value) {
        jot_string(j, key, json_string_value(value));
    }
    jot_end(j, '}');
}
