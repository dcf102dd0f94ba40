#include "io/sse_read.h"

#include <string.h>

#include "io/http_inner.h"

void sse_reader_init(struct sse_reader *r, size_t record_max) {
    *r = (struct sse_reader){.line = BUF(record_max + 16), .data = BUF(record_max)};
}

void sse_reader_done(struct sse_reader *r) {
    buf_done(&r->line);
    buf_done(&r->data);
}

static void next_record(struct sse_reader *r) {
    http_roll_back(&r->data, 0);
    r->name[0] = '\0';
    r->has_data = r->given = false;
}

static bool add_data(struct sse_reader *r, const char *value, size_t n) {
    if (r->has_data && !buf_add(&r->data, "\n", 1))
        return false;
    r->has_data = true;
    return buf_add(&r->data, value, n);
}

static void set_name(struct sse_reader *r, const char *value, size_t n) {
    if (n >= SSE_NAME_SIZE)
        n = SSE_NAME_SIZE - 1;
    memcpy(r->name, value, n);
    r->name[n] = '\0';
}

static bool sse_read_named(const char *line, size_t n, const char *name) {
    return n == strlen(name) && memcmp(line, name, n) == 0;
}

/* Takes a line "field: value", "field:value" or "field". */
static bool take_field(struct sse_reader *r, const char *line, size_t n) {
    const char *colon = memchr(line, ':', n);
    size_t name_n = colon ? (size_t)(colon - line) : n;
    const char *value = colon ? colon + 1 : line + n;
    size_t value_n = (size_t)(line + n - value);
    if (value_n > 0 && value[0] == ' ') {
        value++;
        value_n--;
    }
    if (sse_read_named(line, name_n, "data"))
        return add_data(r, value, value_n);
    if (sse_read_named(line, name_n, "event"))
        set_name(r, value, value_n);
    return true;
}

/* Takes a line. 1: it ended a record. */
static int take_line(struct sse_reader *r) {
    const char *line = r->line.data ? r->line.data : "";
    size_t n = r->line.len;
    if (!r->started && n >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0) {
        line += 3;
        n -= 3;
    }
    r->started = true;
    bool fits = n == 0 || take_field(r, line, n);
    http_roll_back(&r->line, 0);
    if (!fits)
        return -1;
    if (n > 0)
        return 0;
    if (r->has_data) {
        r->given = true;
        return 1;
    }
    next_record(r);
    return 0;
}

static size_t line_length(const char *bytes, size_t n) {
    size_t i = 0;
    while (i < n && bytes[i] != '\n' && bytes[i] != '\r')
        i++;
    return i;
}

int sse_read(struct sse_reader *r, const char *bytes, size_t n, size_t *used) {
    *used = 0;
    if (r->given)
        next_record(r);
    while (*used < n) {
        if (r->after_cr && bytes[*used] == '\n') {
            r->after_cr = false;
            ++*used;
            continue;
        }
        r->after_cr = false;
        size_t part = line_length(bytes + *used, n - *used);
        if (!buf_add(&r->line, bytes + *used, part))
            return -1;
        *used += part;
        if (*used == n)
            return 0;
        r->after_cr = bytes[(*used)++] == '\r';
        int got = take_line(r);
        if (got != 0)
            return got;
    }
    return 0;
}

int sse_read_end(struct sse_reader *r) {
    if (r->given)
        next_record(r);
    if (r->line.len > 0 && take_line(r) < 0)
        return -1;
    r->given = r->has_data;
    return r->has_data ? 1 : 0;
}
