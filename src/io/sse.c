#include "io/sse.h"

#include <string.h>

#include "io/http_inner.h"

/* Appends "name: value"; the value has one line. */
static bool put_line(struct buf *b, const char *name, const char *value, size_t n) {
    return buf_add(b, name, strlen(name)) && buf_add(b, ": ", 2) && buf_add(b, value, n) &&
           buf_add(b, "\n", 1);
}

static bool put_name(struct buf *b, const char *name, const char *value) {
    if (!value)
        return true;
    return !strpbrk(value, "\r\n") && put_line(b, name, value, strlen(value));
}

/* CR LF, CR and LF each end a line, and the client joins the lines with LF. */
static bool put_data(struct buf *b, const char *data, size_t n) {
    for (size_t at = 0;;) {
        size_t end = at;
        while (end < n && data[end] != '\n' && data[end] != '\r')
            end++;
        if (!put_line(b, "data", data + at, end - at))
            return false;
        if (end == n)
            return true;
        at = end + 1;
        if (data[end] == '\r' && at < n && data[at] == '\n')
            at++;
    }
}

static bool put_event(struct buf *b, const struct sse_event *e) {
    if (!put_name(b, "id", e->id) || !put_name(b, "event", e->name))
        return false;
    if (e->retry_ms && !buf_addf(b, "retry: %u\n", e->retry_ms))
        return false;
    return (!e->data || put_data(b, e->data, e->n)) && buf_add(b, "\n", 1);
}

bool sse_put(struct buf *b, const struct sse_event *event) {
    size_t before = b->len;
    if (put_event(b, event))
        return true;
    http_roll_back(b, before);
    return false;
}

bool sse_put_comment(struct buf *b, const char *text) {
    size_t before = b->len;
    if (put_name(b, "", text) && buf_add(b, "\n", 1))
        return true;
    http_roll_back(b, before);
    return false;
}
