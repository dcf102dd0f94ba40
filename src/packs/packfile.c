#include "packs/packfile.h"

#include <assert.h>
#include <string.h>
#include <zstd.h>

#include "base/defer.h"
#include "packs/bytes.h"

/* The last byte is the version of the format. */
static const uint8_t magic[8] = {'C', 'R', 'L', 'P', 'A', 'C', 'K', 1};

enum {
    KIND_TREE = 1, /* chunks of files */
    KIND_DISK = 2, /* aligned blocks of disks: no version writes them yet */
    HEAD_SIZE = 20,
    FRAME_ROW = 8,
    CHUNK_ROW = SHA256_BYTES + 4,
    LEVEL = 3, /* of zstd: higher levels take several times as long for a few percent */
};

static int packfile_refuse(struct err *err, const char *why) {
    return err_set(err, ERR_INVALID, "the pack is damaged: %s", why);
}

static int packfile_too_large(struct err *err) {
    return err_set(err, ERR_LIMIT, "cannot write a pack of more than %d MiB", PACKFILE_MAX >> 20);
}

/* ---- frames ---- */

struct packfile_frame packfile_frame_begin(void) {
    return (struct packfile_frame){.raw = BUF(PACKFILE_FRAME_MAX + 1),
                                   .stored = BUF(ZSTD_COMPRESSBOUND(PACKFILE_FRAME_MAX) + 1)};
}

void packfile_frame_done(struct packfile_frame *f) {
    free(f->chunks);
    buf_done(&f->raw);
    buf_done(&f->stored);
}

bool packfile_frame_has_room(const struct packfile_frame *f, size_t size) {
    return f->raw.len + size <= PACKFILE_FRAME_MAX && f->count < PACKFILE_CHUNKS_MAX;
}

int packfile_frame_add(struct packfile_frame *f, const void *bytes, size_t n,
                       const uint8_t hash[SHA256_BYTES], struct err *err) {
    assert(n > 0 && n <= CUT_MAX && packfile_frame_has_room(f, n));
    if (f->count == f->room) {
        uint32_t room = f->room ? 2 * f->room : 16;
        struct packfile_chunk *more = reallocarray(f->chunks, room, sizeof(*more));
        if (!more)
            return err_set(err, ERR_LIMIT, "out of memory");
        f->chunks = more;
        f->room = room;
    }
    if (!buf_add(&f->raw, bytes, n))
        return err_set(err, ERR_LIMIT, "out of memory");
    struct packfile_chunk *c = &f->chunks[f->count++];
    memcpy(c->hash, hash, SHA256_BYTES);
    c->size = (uint32_t)n;
    return 0;
}

int packfile_frame_compress(struct packfile_frame *f, struct err *err) {
    size_t room = ZSTD_compressBound(f->raw.len);
    char *out DEFER_FREE = malloc(room);
    size_t n = out ? ZSTD_compress(out, room, f->raw.data, f->raw.len, LEVEL) : 0;
    if (!out || ZSTD_isError(n) || !buf_add(&f->stored, out, n))
        return err_set(err, ERR_LIMIT, "cannot compress a part of the pack: out of memory");
    buf_done(&f->raw);
    return 0;
}

/* ---- writing ---- */

struct packfile_maker packfile_begin(void) {
    return (struct packfile_maker){.frame_table = BUF(PACKFILE_MAX),
                                   .chunk_table = BUF(PACKFILE_MAX),
                                   .frames = BUF(PACKFILE_MAX)};
}

void packfile_done(struct packfile_maker *m) {
    buf_done(&m->frame_table);
    buf_done(&m->chunk_table);
    buf_done(&m->frames);
}

bool packfile_is_full(const struct packfile_maker *m, const struct packfile_frame *next) {
    size_t size = HEAD_SIZE + m->frame_table.len + m->chunk_table.len + m->frames.len;
    size_t with = size + FRAME_ROW + (size_t)next->count * CHUNK_ROW + next->stored.len;
    return m->frame_count &&
           (size >= PACKFILE_FULL || with > PACKFILE_MAX || m->frame_count == PACKFILE_FRAMES_MAX ||
            m->chunk_count + next->count > PACKFILE_CHUNKS_MAX);
}

int packfile_add(struct packfile_maker *m, const struct packfile_frame *f, struct err *err) {
    assert(f->count && f->stored.len && !packfile_is_full(m, f));
    bool fits = bytes_put_number(&m->frame_table, f->count, 4) &&
                bytes_put_number(&m->frame_table, f->stored.len, 4) &&
                buf_add(&m->frames, f->stored.data, f->stored.len);
    for (uint32_t i = 0; fits && i < f->count; i++)
        fits = buf_add(&m->chunk_table, f->chunks[i].hash, SHA256_BYTES) &&
               bytes_put_number(&m->chunk_table, f->chunks[i].size, 4);
    if (!fits)
        return packfile_too_large(err);
    m->frame_count++;
    m->chunk_count += f->count;
    return 0;
}

int packfile_end(struct packfile_maker *m, struct buf *ret, struct err *err) {
    assert(m->frame_count);
    bool fits = buf_add(ret, magic, sizeof(magic)) && bytes_put_number(ret, KIND_TREE, 4) &&
                bytes_put_number(ret, m->frame_count, 4) &&
                bytes_put_number(ret, m->chunk_count, 4) &&
                buf_add(ret, m->frame_table.data, m->frame_table.len) &&
                buf_add(ret, m->chunk_table.data, m->chunk_table.len) &&
                buf_add(ret, m->frames.data, m->frames.len);
    packfile_done(m);
    *m = packfile_begin();
    return fits ? 0 : packfile_too_large(err);
}

/* ---- reading ---- */

static int packfile_read_head(struct bytes *b, struct packfile *p, struct err *err) {
    const uint8_t *start = bytes_take(b, sizeof(magic));
    if (!start || memcmp(start, magic, sizeof(magic) - 1) != 0)
        return err_set(err, ERR_INVALID, "the file is not a pack");
    if (start[7] != magic[7])
        return err_set(err, ERR_UNSUPPORTED,
                       "the pack has version %d, but only version %d is known", start[7], magic[7]);
    uint64_t kind = bytes_take_number(b, 4);
    p->frame_count = (uint32_t)bytes_take_number(b, 4);
    p->chunk_count = (uint32_t)bytes_take_number(b, 4);
    if (b->failed)
        return packfile_refuse(err, "its header is cut off");
    if (kind != KIND_TREE)
        return err_set(err, kind == KIND_DISK ? ERR_UNSUPPORTED : ERR_INVALID,
                       kind == KIND_DISK ? "packs of disks are not supported"
                                         : "the pack is damaged: its kind is unknown");
    if (!p->frame_count || p->frame_count > PACKFILE_FRAMES_MAX || !p->chunk_count ||
        p->chunk_count > PACKFILE_CHUNKS_MAX)
        return packfile_refuse(err, "its number of frames or chunks is out of range");
    return 0;
}

void packfile_chunk_at(const struct packfile *p, uint32_t i, struct packfile_chunk *ret) {
    const uint8_t *row = p->chunk_table + (size_t)i * CHUNK_ROW;
    assert(i < p->chunk_count);
    memcpy(ret->hash, row, SHA256_BYTES);
    ret->size = (uint32_t)bytes_number(row + SHA256_BYTES, 4);
}

bool packfile_next(const struct packfile *p, struct packfile_part *part) {
    if (part->number == p->frame_count)
        return false;
    const uint8_t *row = p->frame_table + (size_t)part->number * FRAME_ROW;
    *part = (struct packfile_part){.stored =
                                       part->number ? part->stored + part->stored_size : p->frames,
                                   .stored_size = (uint32_t)bytes_number(row + 4, 4),
                                   .first = part->first + part->count,
                                   .count = (uint32_t)bytes_number(row, 4),
                                   .number = part->number + 1};
    for (uint32_t i = 0; i < part->count; i++) {
        struct packfile_chunk c;
        packfile_chunk_at(p, part->first + i, &c);
        part->raw_size += c.size;
    }
    return true;
}

/* Checks that the frames have all chunks and all bytes, and that each chunk has a possible size. */
static int packfile_check_frames(const struct packfile *p, size_t left, struct err *err) {
    uint64_t chunks = 0;
    for (uint32_t i = 0; i < p->frame_count; i++) {
        const uint8_t *row = p->frame_table + (size_t)i * FRAME_ROW;
        uint64_t count = bytes_number(row, 4), stored = bytes_number(row + 4, 4), raw = 0;
        if (!count || count > p->chunk_count - chunks)
            return packfile_refuse(err, "a frame has an impossible number of chunks");
        for (uint64_t k = chunks; k < chunks + count; k++) {
            struct packfile_chunk c;
            packfile_chunk_at(p, (uint32_t)k, &c);
            if (!c.size || c.size > CUT_MAX)
                return packfile_refuse(err, "the size of a chunk is out of range");
            raw += c.size;
        }
        if (raw > PACKFILE_FRAME_MAX)
            return packfile_refuse(err, "a frame is too large");
        if (!stored || stored > left)
            return packfile_refuse(err, "a frame is cut off");
        chunks += count;
        left -= stored;
    }
    return chunks != p->chunk_count ? packfile_refuse(err, "a chunk is in no frame")
           : left                   ? packfile_refuse(err, "bytes follow the last frame")
                                    : 0;
}

int packfile_read(const void *bytes, size_t n, struct packfile *ret, struct err *err) {
    struct bytes b = {.at = bytes, .left = n};
    struct packfile p = {.frame_count = 0};
    if (n > PACKFILE_MAX)
        return err_set(err, ERR_LIMIT, "the pack is larger than %d MiB", PACKFILE_MAX >> 20);
    if (packfile_read_head(&b, &p, err) < 0)
        return -1;
    p.frame_table = bytes_take(&b, (size_t)p.frame_count * FRAME_ROW);
    p.chunk_table = bytes_take(&b, (size_t)p.chunk_count * CHUNK_ROW);
    p.frames = b.at;
    if (b.failed)
        return packfile_refuse(err, "a table is cut off");
    if (packfile_check_frames(&p, b.left, err) < 0)
        return -1;
    *ret = p;
    return 0;
}

/*
 * The sizes are compared before ZSTD_decompress(), which also accepts several frames in a row, and
 * skips frames that contain no data.
 */
int packfile_open(const struct packfile *p, const struct packfile_part *part, uint8_t *raw,
                  struct err *err) {
    if (ZSTD_findFrameCompressedSize(part->stored, part->stored_size) != part->stored_size ||
        ZSTD_getFrameContentSize(part->stored, part->stored_size) != part->raw_size)
        return packfile_refuse(err, "a frame does not have the size that its table says");
    if (ZSTD_decompress(raw, part->raw_size, part->stored, part->stored_size) != part->raw_size)
        return packfile_refuse(err, "a frame cannot be decompressed");
    for (uint32_t i = 0; i < part->count; i++) {
        struct packfile_chunk c;
        struct sha256 sum;
        uint8_t hash[SHA256_BYTES];
        packfile_chunk_at(p, part->first + i, &c);
        sha256_init(&sum);
        sha256_add(&sum, raw, c.size);
        sha256_end(&sum, hash);
        if (memcmp(hash, c.hash, sizeof(hash)) != 0)
            return packfile_refuse(err, "a chunk does not match its hash");
        raw += c.size;
    }
    return 0;
}
