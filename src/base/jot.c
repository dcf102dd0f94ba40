#include "base/jot.h"

#include <inttypes.h>

#include "base/err.h"
#include "base/utf8.h"

static void jot_put(struct jot *j, const char *bytes, size_t len) {
    if (!j->failed && !buf_add(j->out, bytes, len))
        j->failed = true;
}

static void put_control(struct jot *j, unsigned char c) {
    static const char letters[][2] = {{'\n', 'n'}, {'\t', 't'}, {'\r', 'r'}};
    char escape[8];
    for (size_t i = 0; i < sizeof(letters) / sizeof(*letters); i++)
        if (c == letters[i][0]) {
            jot_put(j, (char[]){'\\', letters[i][1]}, 2);
            return;
        }
    snprintf(escape, sizeof(escape), "\\u%04x", c);
    jot_put(j, escape, 6);
}

/* Counts the bytes that need no escape, to copy them at once: most texts have only such bytes. */
static size_t plain_len(const unsigned char *s, size_t len) {
    size_t n = 0;
    while (n < len && s[n] >= ' ' && s[n] < 127 && s[n] != '"' && s[n] != '\\')
        n++;
    return n;
}

/* Bytes that are not UTF-8 become U+FFFD, one each, so the output is always valid JSON. */
static void quoted(struct jot *j, const char *text, size_t len) {
    const unsigned char *s = (const unsigned char *)text;
    jot_put(j, "\"", 1);
    for (size_t i = 0; i < len;) {
        size_t plain = plain_len(s + i, len - i);
        if (plain > 0) {
            jot_put(j, text + i, plain);
            i += plain;
            continue;
        }
        uint32_t c;
        size_t n = utf8_decode(s + i, len - i, &c);
        if (n == 0) {
            jot_put(j, "\\ufffd", 6);
            i++;
        } else if (n == 1 && (s[i] == '"' || s[i] == '\\')) {
            jot_put(j, (char[]){'\\', (char)s[i]}, 2);
            i++;
        } else if (n == 1 && (s[i] < ' ' || s[i] == 127)) {
            put_control(j, s[i++]);
        } else {
            jot_put(j, text + i, n);
            i += n;
        }
    }
    jot_put(j, "\"", 1);
}

static void lead(struct jot *j, const char *name) {
    if (j->comma)
        jot_put(j, ",", 1);
    if (name) {
        quoted(j, name, strlen(name));
        jot_put(j, ":", 1);
    }
    j->comma = true;
}

static void open_bracket(struct jot *j, const char *name, const char *bracket) {
    lead(j, name);
    jot_put(j, bracket, 1);
    j->comma = false;
}

void jot_object(struct jot *j, const char *name) {
    open_bracket(j, name, "{");
}

void jot_array(struct jot *j, const char *name) {
    open_bracket(j, name, "[");
}

void jot_end(struct jot *j, char bracket) {
    jot_put(j, &bracket, 1);
    j->comma = true;
}

void jot_bytes(struct jot *j, const char *name, const char *value, size_t len) {
    lead(j, name);
    quoted(j, value, len);
}

void jot_string(struct jot *j, const char *name, const char *value) {
    jot_bytes(j, name, value, strlen(value));
}

void jot_u64(struct jot *j, const char *name, uint64_t value) {
    char text[24];
    int n = snprintf(text, sizeof(text), "%" PRIu64, value);
    lead(j, name);
    jot_put(j, text, (size_t)n);
}

void jot_i64(struct jot *j, const char *name, int64_t value) {
    if (value >= 0)
        return jot_u64(j, name, (uint64_t)value);
    char text[24];
    int n = snprintf(text, sizeof(text), "%" PRId64, value);
    lead(j, name);
    jot_put(j, text, (size_t)n);
}

void jot_bool(struct jot *j, const char *name, bool value) {
    lead(j, name);
    jot_put(j, value ? "true" : "false", value ? 4 : 5);
}

void jot_null(struct jot *j, const char *name) {
    lead(j, name);
    jot_put(j, "null", 4);
}

void jot_raw(struct jot *j, const char *name, const char *json) {
    lead(j, name);
    jot_put(j, json, strlen(json));
}
