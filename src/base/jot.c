#include "base/jot.h"

#include <inttypes.h>

#include "base/err.h"

static void jot_put(struct jot *j, const char *bytes, size_t len) {
    if (!j->failed && !buf_add(j->out, bytes, len))
        j->failed = true;
}

/* Bytes that are not UTF-8 become U+FFFD, one each, so the output is always valid JSON. */
static size_t utf8_len(const unsigned char *s, size_t n) {
    static const struct {
        unsigned char mask, lead;
        size_t len;
        uint32_t min;
    } forms[] = {{0x80, 0x00, 1, 0},
                 {0xe0, 0xc0, 2, 0x80},
                 {0xf0, 0xe0, 3, 0x800},
                 {0xf8, 0xf0, 4, 0x10000}};
    for (size_t f = 0; f < 4; f++) {
        if ((s[0] & forms[f].mask) != forms[f].lead)
            continue;
        if (forms[f].len > n)
            return 0;
        uint32_t cp = s[0] & (unsigned char)~forms[f].mask;
        for (size_t i = 1; i < forms[f].len; i++) {
            if ((s[i] & 0xc0) != 0x80)
                return 0;
            cp = cp << 6 | (s[i] & 0x3f);
        }
        bool surrogate = cp >= 0xd800 && cp < 0xe000;
        return cp < forms[f].min || cp > 0x10ffff || surrogate ? 0 : forms[f].len;
    }
    return 0;
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

/* Bytes that stand for themselves, and are most of all texts: they are copied together. */
static size_t plain_len(const unsigned char *s, size_t len) {
    size_t n = 0;
    while (n < len && s[n] >= ' ' && s[n] < 127 && s[n] != '"' && s[n] != '\\')
        n++;
    return n;
}

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
        size_t n = utf8_len(s + i, len - i);
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
