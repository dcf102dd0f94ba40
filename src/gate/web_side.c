/* Reads heads and pieces of bodies from one side of an HTTP relay. */
#include <errno.h>
#include <string.h>

#include "gate/web_inner.h"

int side_fill(struct side *s, struct channel *ch) {
    if (s->ended || s->n == sizeof(s->in))
        return s->ended ? -1 : 1;
    ssize_t got = channel_read(ch, s->in + s->n, sizeof(s->in) - s->n);
    if (got == -EAGAIN)
        return 0;
    if (got <= 0) {
        s->ended = true;
        return -1;
    }
    s->n += (size_t)got;
    return 1;
}

void side_consume(struct side *s, size_t n) {
    s->n -= n;
    memmove(s->in, s->in + n, s->n);
}

int side_read_head(struct side *s, struct channel *ch, enum http_kind kind, bool answers_head) {
    if (!s->parsing) {
        http_parse_begin(&s->parser, kind, &HTTP_LIMITS_DEFAULT, &s->head);
        s->parser.answers_head = answers_head;
        s->parsing = true;
    }
    for (;;) {
        int r = s->n ? http_parse(&s->parser, s->in, s->n) : 0;
        if (r != 0 || side_fill(s, ch) <= 0)
            return r;
    }
}

/* ---- bodies ---- */

bool web_put_piece(struct channel *to, struct http_text data, bool chunked) {
    char line[HTTP_CHUNK_LINE_MAX];
    if (!data.n)
        return true;
    if (!chunked)
        return channel_write(to, data.s, data.n);
    return channel_write(to, line, http_chunk_line(line, data.n)) &&
           channel_write(to, data.s, data.n) && channel_write(to, "\r\n", 2);
}

/* Writes data with matches masked. 0, or -1: a buffer is full or the channel is broken, -2: the
 * data holds a forbidden text. */
static int put_sieved(const struct sieve *v, struct channel *to, struct http_text data,
                      bool chunked, bool end) {
    struct buf out = BUF(2 * (NEEDLE_MAX + IN_SIZE));
    int found = needles_feed(v->needles, v->carry, data.s, data.n, end, &out);
    int r = found > 0 && v->forbids ? -2 : 0;
    if (r == 0 && (found < 0 || !web_put_piece(to, (struct http_text){out.data, out.len}, chunked)))
        r = -1;
    secret_wipe(&out);
    return r;
}

static int put_data(const struct sieve *v, struct channel *to, struct http_text data, bool chunked,
                    bool end) {
    if (v && v->form && override_feed(v->form, data.s, data.n))
        return -3;
    if (v && v->copy)
        cache_intake_add(v->copy, data.s, data.n);
    if (v && v->needles)
        return put_sieved(v, to, data, chunked, end);
    return web_put_piece(to, data, chunked) ? 0 : -1;
}

int side_step_body(struct side *s, struct channel *from, struct channel *to, bool chunked,
                   const struct sieve *sieve, size_t *ret_moved) {
    size_t used = 0;
    struct http_text data;
    *ret_moved = 0;
    if (channel_backlog(to) > GATE_BACKLOG)
        return 0;
    if (!s->n) {
        int r = side_fill(s, from);
        if (r < 0 && !http_body_at_close(&s->body))
            return -1;
        if (r < 0) {
            int put = put_data(sieve, to, (struct http_text){"", 0}, chunked, true);
            return put < 0 ? put : 2;
        }
        if (r == 0)
            return 0;
    }
    int r = http_body_next(&s->body, s->in, s->n, &used, &data);
    int put = r < 0 ? -1 : put_data(sieve, to, data, chunked, r > 0);
    if (put < 0)
        return put;
    *ret_moved = data.n;
    side_consume(s, used);
    return r > 0 ? 2 : 1;
}
