#include "model/usage_strip.h"

#include <jansson.h>
#include <string.h>

#include "base/defer.h"

void usage_strip_done(struct usage_strip *s) {
    buf_done(&s->record);
}

static bool has_only_usage(const char *json, size_t n) {
    json_t *root DEFER(json_decrefp) = json_loadb(json, n, JSON_ALLOW_NUL, NULL);
    const json_t *choices = json_object_get(root, "choices");
    return json_is_array(choices) && json_array_size(choices) == 0 &&
           json_is_object(json_object_get(root, "usage"));
}

/* Whether the record is "data: {...}" with the usage and nothing else. */
static bool is_usage(const struct buf *record) {
    static const char lead[] = "data:";
    const char *text = record->data;
    size_t n = strcspn(text, "\r\n");
    if (strncmp(text, lead, strlen(lead)) != 0 || !strstr(text, "\"usage\""))
        return false;
    return has_only_usage(text + strlen(lead), n - strlen(lead));
}

static bool pass_record(struct usage_strip *s, struct buf *to) {
    bool ok = s->record.len == 0 || buf_add(to, s->record.data, s->record.len);
    s->record.len = 0;
    return ok;
}

static bool record_ends(struct usage_strip *s, struct buf *to) {
    bool drop = !s->is_long && s->record.len > 0 && is_usage(&s->record);
    s->is_long = false;
    if (!drop)
        return pass_record(s, to);
    s->record.len = 0;
    return true;
}

/* A record ends at an empty line. The carriage return of "\r\n" is not counted. */
static bool take_byte(struct usage_strip *s, char byte, struct buf *to) {
    if (s->is_long || !buf_add(&s->record, &byte, 1)) {
        s->is_long = true;
        if (!pass_record(s, to) || !buf_add(to, &byte, 1))
            return false;
    }
    if (byte != '\n') {
        s->line += byte != '\r';
        return true;
    }
    bool is_empty = s->line == 0;
    s->line = 0;
    return !is_empty || record_ends(s, to);
}

bool usage_strip_feed(struct usage_strip *s, const char *bytes, size_t n, struct buf *to) {
    for (size_t i = 0; i < n; i++)
        if (!take_byte(s, bytes[i], to))
            return false;
    return true;
}

bool usage_strip_end(struct usage_strip *s, struct buf *to) {
    return record_ends(s, to);
}
