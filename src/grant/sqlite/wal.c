#include "grant/sqlite/wal.h"

#include <string.h>

enum { MAGIC = 0x377f0682, FORMAT = 3007000, PAGE_MIN = 512, PAGE_MAX = 65536 };

struct sums {
    uint32_t a, b;
};

static uint32_t big(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static uint32_t little(const uint8_t *p) {
    return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}

/* Adds pairs of 32-bit words to checksum `s`, in the byte order that the log header states. */
static struct sums sum(struct sums s, const uint8_t *p, size_t n, bool is_big) {
    for (size_t i = 0; i + 8 <= n; i += 8) {
        s.a += (is_big ? big(p + i) : little(p + i)) + s.b;
        s.b += (is_big ? big(p + i + 4) : little(p + i + 4)) + s.a;
    }
    return s;
}

static bool matches(struct sums s, const uint8_t *p) {
    return s.a == big(p) && s.b == big(p + 4);
}

struct log {
    const uint8_t *bytes;
    size_t page, frames;
    bool is_big;
    struct sums first;
};

static bool wal_read_head(const uint8_t *wal, size_t n, struct log *ret) {
    if (n < WAL_HEAD || (big(wal) & ~1u) != MAGIC || big(wal + 4) != FORMAT)
        return false;
    size_t page = big(wal + 8);
    if (page < PAGE_MIN || page > PAGE_MAX || (page & (page - 1)))
        return false;
    bool is_big = big(wal) & 1;
    struct sums s = sum((struct sums){0}, wal, 24, is_big);
    *ret = (struct log){wal, page, (n - WAL_HEAD) / (WAL_FRAME_HEAD + page), is_big, s};
    return matches(s, wal + 24);
}

static const uint8_t *frame_of(const struct log *l, size_t i) {
    return l->bytes + WAL_HEAD + i * (WAL_FRAME_HEAD + l->page);
}

/* Counts the frames of complete transactions. ret_pages: size of the database after them. */
static size_t committed(const struct log *l, uint32_t *ret_pages) {
    struct sums s = l->first;
    size_t count = 0;
    for (size_t i = 0; i < l->frames; i++) {
        const uint8_t *f = frame_of(l, i);
        s = sum(sum(s, f, 8, l->is_big), f + WAL_FRAME_HEAD, l->page, l->is_big);
        if (memcmp(f + 8, l->bytes + 16, 8) != 0 || !matches(s, f + 16) || big(f) == 0)
            break;
        if (big(f + 4)) {
            count = i + 1;
            *ret_pages = big(f + 4);
        }
    }
    return count;
}

/* Resizes the image; new bytes are zero. */
static bool resize(struct buf *image, uint64_t bytes) {
    static const char zeros[4096];
    while (image->len < bytes) {
        size_t part =
            bytes - image->len < sizeof(zeros) ? (size_t)(bytes - image->len) : sizeof(zeros);
        if (!buf_add(image, zeros, part))
            return false;
    }
    image->len = (size_t)bytes;
    return true;
}

long wal_apply(struct buf *image, const uint8_t *wal, size_t n) {
    struct log l;
    uint32_t pages = 0;
    size_t count = wal_read_head(wal, n, &l) ? committed(&l, &pages) : 0;
    if (!count)
        return 0;
    if (!resize(image, (uint64_t)pages * l.page))
        return -1;
    for (size_t i = 0; i < count; i++) {
        uint64_t at = (uint64_t)(big(frame_of(&l, i)) - 1) * l.page;
        if (at + l.page <= image->len) /* otherwise a later transaction removed the page */
            memcpy(image->data + at, frame_of(&l, i) + WAL_FRAME_HEAD, l.page);
    }
    return (long)count;
}

bool wal_settle(struct buf *image) {
    if (image->len < SQLITE_HEAD)
        return false;
    image->data[SQLITE_FORM] = image->data[SQLITE_FORM + 1] = 1;
    return true;
}
