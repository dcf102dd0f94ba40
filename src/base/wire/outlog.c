#include "base/wire/outlog.h"

#include <string.h>
#include <unistd.h>

#define FIELD(member) ((uint64_t)offsetof(struct outlog_page, member))
#define STREAM_BYTES (FIELD(stream[1]) - FIELD(stream[0]))
#define AT_CLAIMED(i) (FIELD(stream[0].claimed) + STREAM_BYTES * (uint64_t)(i))
#define AT_PRODUCED(i) (FIELD(stream[0].produced) + STREAM_BYTES * (uint64_t)(i))
#define AT_LOST(i) (FIELD(stream[0].lost) + STREAM_BYTES * (uint64_t)(i))
#define AT_ENDED(i) (FIELD(stream[0].ended) + STREAM_BYTES * (uint64_t)(i))
#define AT_TURN(i) (OUTLOG_PAGE + 8 * ((i) % OUTLOG_TURNS))

enum { OUTLOG_PIECE = 16 << 10 };

_Static_assert(sizeof(struct outlog_page) == 112, "the layout is shared by two programs");

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* Layout of a log. */

uint64_t outlog_bytes(const struct outlog_caps *caps) {
    uint64_t n = OUTLOG_DATA;
    for (int i = 0; i < 2; i++) {
        if (caps->head[i] > OUTLOG_AREA_MAX || caps->tail[i] > OUTLOG_AREA_MAX ||
            caps->tail[i] < OUTLOG_TAIL_MIN)
            return 0;
        n += caps->head[i] + caps->tail[i];
    }
    return n;
}

static uint64_t head_at(const struct outlog_caps *caps, int stream) {
    return OUTLOG_DATA + (stream ? caps->head[0] + caps->tail[0] : 0);
}

static uint64_t tail_at(const struct outlog_caps *caps, int stream) {
    return head_at(caps, stream) + caps->head[stream];
}

uint64_t outlog_window(const struct outlog_caps *caps, int stream) {
    uint64_t quarter = caps->tail[stream] / 4;
    return quarter < OUTLOG_WINDOW_MAX ? quarter : OUTLOG_WINDOW_MAX;
}

uint64_t outlog_position(const struct outlog_caps *caps, int stream, uint64_t offset) {
    uint64_t head = caps->head[stream];
    if (offset < head)
        return head_at(caps, stream) + offset;
    return tail_at(caps, stream) + (offset - head) % caps->tail[stream];
}

void outlog_format(void *map, const struct outlog_caps *caps) {
    struct outlog_page page = {.magic = OUTLOG_MAGIC, .version = OUTLOG_VERSION, .caps = *caps};
    memcpy(map, &page, sizeof(page));
}

static bool fetch(const struct outlog *l, uint64_t at, void *to, size_t n) {
    if (l->map) {
        memcpy(to, l->map + at, n);
        return true;
    }
    while (n > 0) {
        ssize_t got = pread(l->fd, to, n, (off_t)at);
        if (got <= 0)
            return false;
        to = (uint8_t *)to + got;
        at += (uint64_t)got;
        n -= (size_t)got;
    }
    return true;
}

int outlog_open(struct outlog *ret, void *map, int fd, uint64_t bytes) {
    struct outlog l = {.map = map, .fd = fd};
    struct outlog_page page;
    if (bytes < OUTLOG_DATA || !fetch(&l, 0, &page, sizeof(page)))
        return -1;
    if (page.magic != OUTLOG_MAGIC || page.version != OUTLOG_VERSION ||
        outlog_bytes(&page.caps) != bytes)
        return -1;
    l.caps = page.caps;
    *ret = l;
    return 0;
}

/* Access to numbers that the other side reads or writes at the same time. */

static uint64_t outlog_load(const struct outlog *l, uint64_t at) {
    uint64_t v = 0;
    if (l->map)
        return __atomic_load_n((uint64_t *)(void *)(l->map + at), __ATOMIC_ACQUIRE);
    return fetch(l, at, &v, sizeof(v)) ? v : 0;
}

static void store(struct outlog_writer *w, uint64_t at, uint64_t v) {
    __atomic_store_n((uint64_t *)(void *)(w->log.map + at), v, __ATOMIC_RELEASE);
}

/* Writing. */

int outlog_write(struct outlog_writer *ret, void *map, uint64_t bytes) {
    struct outlog_writer w = {0};
    if (outlog_open(&w.log, map, -1, bytes) < 0 || outlog_load(&w.log, FIELD(turns)) != 0)
        return -1;
    for (int i = 0; i < 2; i++)
        if (outlog_load(&w.log, AT_PRODUCED(i)) != 0 || outlog_load(&w.log, AT_ENDED(i)) != 0)
            return -1;
    *ret = w;
    return 0;
}

int outlog_continue(struct outlog_writer *ret, void *map, uint64_t bytes) {
    struct outlog_writer w = {0};
    if (outlog_open(&w.log, map, -1, bytes) < 0)
        return -1;
    w.turns = least(outlog_load(&w.log, FIELD(turns)), INT64_MAX);
    for (int i = 0; i < 2; i++) {
        struct outlog_extent e = outlog_extent(&w.log, i);
        store(&w, AT_ENDED(i), 0);
        w.produced[i] = e.produced;
        w.lost[i] = e.lost;
    }
    *ret = w;
    return 0;
}

/* Adds n bytes at `at` to the list of pieces, unless n is 0. */
static int add_piece(struct iovec *v, int count, uint8_t *at, uint64_t n) {
    if (n > 0)
        v[count++] = (struct iovec){at, (size_t)n};
    return count;
}

int outlog_find(const struct outlog_writer *w, int stream, uint64_t from, size_t n,
                struct iovec ret[2]) {
    const struct outlog_caps *caps = &w->log.caps;
    uint64_t head = caps->head[stream], tail = caps->tail[stream];
    /* Bytes continue at the start of the tail after the head, and after the end of the tail. */
    uint64_t unbroken = from < head ? head - from : tail - (from - head) % tail;
    uint64_t first = least(n, unbroken);
    int count = add_piece(ret, 0, w->log.map + outlog_position(caps, stream, from), first);
    return add_piece(ret, count, w->log.map + tail_at(caps, stream), n - first);
}

int outlog_claim(struct outlog_writer *w, int stream, size_t max, struct iovec ret[2]) {
    uint64_t at = w->produced[stream], n = least(max, w->log.caps.tail[stream]);
    store(w, AT_CLAIMED(stream), at + n);
    /* A reader must see the claim before any byte that is written under it. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return outlog_find(w, stream, at, (size_t)n, ret);
}

/* The open turn belongs to stream `turns & 1`; a byte of the other stream ends it. */
static void take_turn(struct outlog_writer *w, int stream) {
    int open = (int)(w->turns & 1);
    if (open == stream)
        return;
    store(w, AT_TURN(w->turns), w->produced[open]);
    store(w, FIELD(turns), ++w->turns);
}

void outlog_commit(struct outlog_writer *w, int stream, size_t n) {
    if (n > 0) {
        take_turn(w, stream);
        w->produced[stream] += n;
        store(w, AT_PRODUCED(stream), w->produced[stream]);
    }
    store(w, AT_CLAIMED(stream), w->produced[stream]);
}

void outlog_lose(struct outlog_writer *w, int stream, size_t n) {
    w->lost[stream] += n;
    store(w, AT_LOST(stream), w->lost[stream]);
    outlog_commit(w, stream, n);
}

void outlog_put(struct outlog_writer *w, int stream, const void *bytes, size_t n) {
    const uint8_t *from = bytes;
    while (n > 0) {
        struct iovec v[2];
        size_t done = 0;
        int count = outlog_claim(w, stream, n, v);
        for (int i = 0; i < count; done += v[i++].iov_len)
            memcpy(v[i].iov_base, from + done, v[i].iov_len);
        outlog_commit(w, stream, done);
        from += done;
        n -= done;
    }
}

void outlog_end(struct outlog_writer *w, int stream) {
    w->ended[stream] = true;
    store(w, AT_ENDED(stream), 1);
}

/* Reading. */

/* `ended` is read before `produced`: once a stream has ended, `produced` is final. */
struct outlog_extent outlog_extent(const struct outlog *l, int stream) {
    bool ended = outlog_load(l, AT_ENDED(stream)) != 0;
    uint64_t produced = least(outlog_load(l, AT_PRODUCED(stream)), INT64_MAX);
    uint64_t lost = least(outlog_load(l, AT_LOST(stream)), produced);
    return (struct outlog_extent){.produced = produced, .lost = lost, .ended = ended};
}

struct outlog_page outlog_page_of(const struct outlog *l) {
    struct outlog_page page = {.magic = OUTLOG_MAGIC, .version = OUTLOG_VERSION, .caps = l->caps};
    for (int i = 0; i < 2; i++) {
        struct outlog_extent e = outlog_extent(l, i);
        page.stream[i].ended = e.ended;
        page.stream[i].produced = e.produced;
        page.stream[i].lost = e.lost;
        page.stream[i].claimed = most(e.produced, least(outlog_load(l, AT_CLAIMED(i)), INT64_MAX));
    }
    page.turns = least(outlog_load(l, FIELD(turns)), INT64_MAX);
    return page;
}

/* The first byte of the tail that no claim so far can have overwritten. */
static uint64_t oldest(const struct outlog *l, int stream, uint64_t produced) {
    uint64_t claimed = most(outlog_load(l, AT_CLAIMED(stream)), produced);
    uint64_t tail = l->caps.tail[stream];
    uint64_t first = most(l->caps.head[stream], claimed > tail ? claimed - tail : 0);
    return least(first, produced);
}

/* Drops the first n bytes: they were overwritten during the copy, or could not be read. */
static void drop_front(struct outlog_piece *p, uint64_t n, uint8_t *to) {
    n = least(n, p->n);
    p->left_out += n;
    p->offset += n;
    p->n -= (size_t)n;
    memmove(to, to + n, p->n);
}

static struct outlog_piece outlog_read_head(const struct outlog *l, int stream, uint64_t offset,
                                            void *to, uint64_t n) {
    n = least(n, l->caps.head[stream] - offset);
    struct outlog_piece p = {.stream = stream, .offset = offset, .n = (size_t)n};
    if (!fetch(l, outlog_position(&l->caps, stream, offset), to, p.n))
        drop_front(&p, p.n, to);
    return p;
}

static struct outlog_piece read_tail(const struct outlog *l, int stream, uint64_t offset, void *to,
                                     uint64_t max, uint64_t produced) {
    uint64_t head = l->caps.head[stream], tail = l->caps.tail[stream];
    uint64_t first = most(oldest(l, stream, produced), offset);
    uint64_t unbroken = tail - (first - head) % tail;
    uint64_t n = least(least(max, produced - first), unbroken);
    struct outlog_piece p = {
        .stream = stream, .left_out = first - offset, .offset = first, .n = (size_t)n};
    if (!fetch(l, outlog_position(&l->caps, stream, first), to, p.n))
        drop_front(&p, p.n, to);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    uint64_t sound = oldest(l, stream, produced);
    if (sound > p.offset)
        drop_front(&p, sound - p.offset, to);
    return p;
}

static struct outlog_piece read_until(const struct outlog *l, int stream, uint64_t offset,
                                      uint64_t end, void *to, size_t max) {
    if (offset >= end || max == 0)
        return (struct outlog_piece){.stream = stream, .offset = offset};
    if (offset < l->caps.head[stream])
        return outlog_read_head(l, stream, offset, to, least(max, end - offset));
    return read_tail(l, stream, offset, to, max, end);
}

struct outlog_piece outlog_read(const struct outlog *l, int stream, uint64_t offset, void *to,
                                size_t max) {
    return read_until(l, stream, offset, outlog_extent(l, stream).produced, to, max);
}

/*
 * Returns the stream of the first turn with bytes after the cursor, and its end in *ret_end. Turns
 * that the log has forgotten count as one turn per stream.
 */
static int turn_of(const struct outlog *l, struct outlog_cursor *c, uint64_t *ret_end) {
    uint64_t turns = outlog_load(l, FIELD(turns));
    if (turns > OUTLOG_TURNS && c->turn < turns - OUTLOG_TURNS)
        c->turn = turns - OUTLOG_TURNS;
    for (uint64_t i = 0; c->turn < turns && i < OUTLOG_TURNS; c->turn++, i++) {
        int stream = (int)(c->turn & 1);
        *ret_end = least(outlog_load(l, AT_TURN(c->turn)), outlog_extent(l, stream).produced);
        if (*ret_end > c->at[stream])
            return stream;
    }
    int stream = (int)(turns & 1);
    *ret_end = outlog_extent(l, stream).produced;
    if (*ret_end > c->at[stream])
        return stream;
    *ret_end = outlog_extent(l, !stream).produced;
    return !stream;
}

struct outlog_piece outlog_next(const struct outlog *l, struct outlog_cursor *c, void *to,
                                size_t max) {
    uint64_t end;
    int stream = turn_of(l, c, &end);
    uint64_t from = c->at[stream];
    struct outlog_piece p = read_until(l, stream, from, end, to, max);
    c->at[stream] = p.offset + p.n;
    return p;
}

bool outlog_read_to(const struct outlog *l, struct outlog_cursor *c, const uint64_t to[2],
                    unsigned pieces, outlog_bytes_fn *put, void *arg) {
    uint8_t bytes[OUTLOG_PIECE];
    for (; c->at[0] < to[0] || c->at[1] < to[1]; pieces--) {
        if (!pieces)
            return false;
        struct outlog_piece p = outlog_next(l, c, bytes, sizeof(bytes));
        if (!p.n && !p.left_out)
            break;
        put(arg, bytes, p.n);
    }
    return true;
}

bool outlog_is_over(const struct outlog *l, const struct outlog_cursor *c) {
    for (int i = 0; i < 2; i++) {
        struct outlog_extent e = outlog_extent(l, i);
        if (!e.ended || e.produced > c->at[i])
            return false;
    }
    return true;
}
