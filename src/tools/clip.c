#include "tools/clip.h"

#include <inttypes.h>
#include <string.h>

enum { PIECE = 32 << 10 };

/* Bytes 10xxxxxx continue a character that began before the cut. */
size_t clip_begin(const char *s, size_t n) {
    size_t skip = 0;
    while (skip < n && skip < 3 && ((unsigned char)s[skip] & 0xc0) == 0x80)
        skip++;
    return skip;
}

/* Looks back for the first byte of the last character and drops it if the cut is inside it. */
size_t clip_end(const char *s, size_t n) {
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = (unsigned char)s[n - back];
        size_t want = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
        if (want > 1)
            return want > back ? n - back : n;
        if (c < 0x80)
            return n;
    }
    return n;
}

/* Appends [from, to); returns how many of these bytes are not kept. */
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
    out->len = from + clip_end(out->data + from, out->len - from);
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
    size_t skip = out->len > at ? clip_begin(out->data + at, out->len - at) : 0;
    if (skip) {
        memmove(out->data + at, out->data + at + skip, out->len - at - skip + 1);
        out->len -= skip;
    }
    return left_out;
}

void clip_last_line(const struct outlog *log, char *ret, size_t size) {
    char tail[1024];
    uint64_t end = outlog_extent(log, 0).produced;
    int stream = 0;
    if (!end) {
        stream = 1;
        end = outlog_extent(log, 1).produced;
    }
    uint64_t from = end > sizeof(tail) ? end - sizeof(tail) : 0;
    struct outlog_piece p = outlog_read(log, stream, from, tail, sizeof(tail));
    size_t n = p.n, start;
    while (n && (tail[n - 1] == '\n' || tail[n - 1] == '\r' || tail[n - 1] == ' '))
        n--;
    for (start = n; start && tail[start - 1] != '\n' && tail[start - 1] != '\r';)
        start--;
    size_t len = n - start < size - 1 ? n - start : size - 1;
    memcpy(ret, tail + start, len);
    ret[clip_end(ret, len)] = '\0';
}
