#include "tools/clip.h"

#include <inttypes.h>
#include <string.h>

#include "base/utf8.h"

enum { PIECE = 32 << 10 };

/* Appends the bytes [from, to) of an output stream. Returns how many of them are missing. */
static uint64_t clip_gather(const struct outlog *log, int stream, uint64_t from, uint64_t to,
                            struct buf *out) {
    char piece[PIECE];
    uint64_t missing = 0;
    while (from < to) {
        size_t want = to - from < PIECE ? (size_t)(to - from) : PIECE;
        struct outlog_piece p = outlog_read(log, stream, from, piece, want);
        if (!p.n || p.offset >= to)
            return missing + (to - from);
        missing += p.left_out;
        size_t n = p.offset + p.n > to ? (size_t)(to - p.offset) : p.n;
        if (!buf_add(out, piece, n))
            return missing + (to - p.offset);
        from = p.offset + n;
    }
    return missing;
}

static void cut_tail(struct buf *out, size_t from) {
    out->len = from + utf8_end(out->data + from, out->len - from);
    out->data[out->len] = '\0';
}

/* `produced` is read once: the command may print more while this runs. */
uint64_t clip_stream(const struct outlog *log, int stream, uint64_t *from, uint64_t max,
                     struct buf *out) {
    uint64_t end = outlog_extent(log, stream).produced, start = *from;
    size_t before = out->len;
    if (start >= end)
        return 0;
    *from = end;
    if (end - start <= max) {
        uint64_t missing = clip_gather(log, stream, start, end, out);
        return missing;
    }
    uint64_t head = max / 2, tail = max - head;
    uint64_t left_out = end - start - max;
    left_out += clip_gather(log, stream, start, start + head, out);
    if (out->len > before)
        cut_tail(out, before);
    if (!buf_addf(out, "\n[... %" PRIu64 " bytes left out ...]\n", left_out))
        return left_out;
    size_t at = out->len;
    left_out += clip_gather(log, stream, end - tail, end, out);
    size_t skip = out->len > at ? utf8_begin(out->data + at, out->len - at) : 0;
    if (skip) {
        memmove(out->data + at, out->data + at + skip, out->len - at - skip + 1);
        out->len -= skip;
    }
    return left_out;
}

void clip_last_line(const struct outlog *log, int stream, char *ret, size_t size) {
    char tail[1024];
    uint64_t end = outlog_extent(log, stream).produced;
    uint64_t from = end > sizeof(tail) ? end - sizeof(tail) : 0;
    struct outlog_piece p = outlog_read(log, stream, from, tail, sizeof(tail));
    size_t n = p.n, start;
    while (n && (tail[n - 1] == '\n' || tail[n - 1] == '\r' || tail[n - 1] == ' '))
        n--;
    for (start = n; start && tail[start - 1] != '\n' && tail[start - 1] != '\r';)
        start--;
    size_t len = n - start < size - 1 ? n - start : size - 1;
    memcpy(ret, tail + start, len);
    ret[utf8_end(ret, len)] = '\0';
}
