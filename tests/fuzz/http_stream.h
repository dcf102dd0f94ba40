/*
 * A stream of HTTP messages read the way a server reads it, for the two fuzz targets.
 *
 * What was seen is summed up in a hash: method or status, fields, data, refusals. Two ways to cut
 * the same bytes must give the same hash. The first byte of the input seeds the cuts.
 */
#pragma once

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "io/http.h"
#include "io/http_uri.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seen {
    uint64_t hash;
    size_t messages;
};

static inline void see(struct seen *s, const void *bytes, size_t n) {
    const uint8_t *p = bytes;
    for (size_t i = 0; i < n; i++)
        s->hash = (s->hash ^ p[i]) * 0x100000001b3ull;
}

static inline void see_text(struct seen *s, struct http_text t) {
    see(s, &t.n, sizeof(t.n));
    see(s, t.s, t.n);
}

static inline void see_head(struct seen *s, const struct http_head *h) {
    int numbers[] = {h->minor,   h->status,     h->framing,         h->form,
                     h->upgrade, h->keep_alive, h->expect_continue, h->query.s != NULL};
    see(s, numbers, sizeof(numbers));
    see(s, &h->length, sizeof(h->length));
    const struct http_text texts[] = {h->method, h->target, h->authority,
                                      h->path,   h->query,  h->reason};
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        see_text(s, texts[i]);
    for (size_t i = 0; i < h->count; i++) {
        see_text(s, h->fields[i].name);
        see_text(s, h->fields[i].value);
    }
}

/* Written again, the head must read the same, and must not take a byte of what follows. */
static inline void check_again(enum http_kind kind, const struct http_head *h) {
    struct buf b DEFER(buf_done) = BUF(1 << 16);
    struct http_head again;
    struct http_parser p;
    struct seen one = {1, 0}, two = {1, 0};
    assert(http_put_head(&b, h));
    http_parse_begin(&p, kind, &HTTP_LIMITS_DEFAULT, &again);
    int r = http_parse(&p, b.data, b.len);
    assert(r == 1 && p.used == b.len);
    see_head(&one, h);
    see_head(&two, &again);
    assert(one.hash == two.hash);
}

static inline void check_uri(const struct http_head *h) {
    char to[256];
    size_t n = 0;
    struct http_text rest = h->path, part, key, value;
    while (http_path_next(&rest, &part))
        if (http_decode_segment(part, to, sizeof(to), &n) == 0)
            assert(n <= part.n && !memchr(to, '/', n) && to[n] == '\0' && strlen(to) == n);
    for (rest = h->query; http_query_next(&rest, &key, &value);)
        if (http_decode_query(key, to, sizeof(to), &n) == 0)
            assert(n <= key.n && strlen(to) == n);
    http_query_get(h->query, "offset", to, sizeof(to), &n);
}

/* Bytes become visible `step` at a time (0: steps from a generator). */
struct source {
    const char *bytes;
    size_t n, shown, step;
    uint32_t random;
};

static inline bool show_more(struct source *in) {
    if (in->shown == in->n)
        return false;
    in->random = in->random * 1664525 + 1013904223;
    size_t step = in->step ? in->step : 1 + (in->random >> 16) % 40;
    in->shown = in->n - in->shown < step ? in->n : in->shown + step;
    return true;
}

/* 1 the body ended, 0 the bytes did, -1 refused. */
static inline int read_body(struct source *in, size_t *at, const struct http_head *h,
                            struct seen *s) {
    struct http_body b;
    http_body_begin(&b, h);
    for (;;) {
        size_t used;
        struct http_text piece;
        int r = http_body_next(&b, in->bytes + *at, in->shown - *at, &used, &piece);
        if (r < 0) {
            see(s, b.refusal.why, strlen(b.refusal.why));
            return -1;
        }
        assert(used <= in->shown - *at && piece.n <= used);
        see(s, piece.s, piece.n);
        *at += used;
        if (r)
            return 1;
        if (*at == in->shown && !show_more(in)) {
            see(s, "cut", http_body_at_close(&b));
            return 0;
        }
    }
}

static inline struct seen read_stream(enum http_kind kind, struct source in) {
    struct seen s = {0xcbf29ce484222325ull, 0};
    struct http_limits limits = {.line_max = 256, .head_max = 1024, .fields_max = 16};
    for (size_t at = 0;;) {
        struct http_head h;
        struct http_parser p;
        http_parse_begin(&p, kind, &limits, &h);
        int r;
        while ((r = http_parse(&p, in.bytes + at, in.shown - at)) == 0 && show_more(&in))
            ;
        if (r < 0) {
            see(&s, &p.refusal.status, sizeof(int));
            see(&s, p.refusal.why, strlen(p.refusal.why));
        }
        if (r <= 0)
            return s;
        assert(p.used <= limits.head_max && p.used <= in.shown - at);
        assert(!(h.framing == HTTP_UNTIL_CLOSE && kind == HTTP_REQUEST));
        see_head(&s, &h);
        check_again(kind, &h);
        check_uri(&h);
        s.messages++;
        at += p.used;
        if (read_body(&in, &at, &h, &s) <= 0)
            return s;
    }
}

static inline int http_stream_check(enum http_kind kind, const uint8_t *data, size_t size) {
    if (size == 0 || size > 1 << 14)
        return 0;
    struct source in = {(const char *)data + 1, size - 1, 0, size, data[0]};
    struct seen whole = read_stream(kind, in);
    in.step = 0;
    struct seen cut = read_stream(kind, in);
    in.step = 1;
    struct seen bytewise = read_stream(kind, in);
    assert(whole.hash == cut.hash && whole.messages == cut.messages);
    assert(whole.hash == bytewise.hash && whole.messages == bytewise.messages);
    return 0;
}
