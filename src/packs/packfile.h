/*
 * The format of a pack: many chunks in one file of 4 to 16 MiB, which its SHA-256 names.
 * docs/internals/packs.md has it byte by byte. Pure: bytes in, bytes out.
 *
 * A pack consists of frames. A frame is one zstd frame of whole chunks, at most 1 MiB together.
 * Frames are independent of each other, so that threads can compress them, and a reader needs only
 * the frame of the chunk that it wants.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "base/sha256.h"
#include "packs/cut.h"

enum {
    PACKFILE_MAX = 16 << 20,      /* bytes of a pack */
    PACKFILE_FULL = 8 << 20,      /* a pack of this size gets no more frames */
    PACKFILE_FRAME_MAX = 1 << 20, /* bytes of the chunks in a frame */
    PACKFILE_FRAMES_MAX = 4096,
    PACKFILE_CHUNKS_MAX = 1 << 17,
};

struct packfile_chunk {
    uint8_t hash[SHA256_BYTES]; /* of the contents, uncompressed */
    uint32_t size;
};

/* ---- writing ---- */

/* Chunks that will be one frame. */
struct packfile_frame {
    struct packfile_chunk *chunks;
    uint32_t count, room;
    struct buf raw, stored; /* their contents; the zstd frame */
};

struct packfile_frame packfile_frame_begin(void);
void packfile_frame_done(struct packfile_frame *f);
bool packfile_frame_has_room(const struct packfile_frame *f, size_t size);
/* Adds a chunk of 1 to CUT_MAX bytes, for which the frame has room. hash: of the chunk. */
int packfile_frame_add(struct packfile_frame *f, const void *bytes, size_t n,
                       const uint8_t hash[SHA256_BYTES], struct err *err);
/* Fills f->stored and frees f->raw. Threads may compress different frames at the same time. Equal
 * chunks give equal bytes, if the version of libzstd is the same. */
int packfile_frame_compress(struct packfile_frame *f, struct err *err);

/* A pack that is being made. */
struct packfile_maker {
    struct buf frame_table, chunk_table, frames;
    uint32_t frame_count, chunk_count;
};

struct packfile_maker packfile_begin(void);
void packfile_done(struct packfile_maker *m);
/* True if the pack must end before this compressed frame. A pack always has room for one. */
bool packfile_is_full(const struct packfile_maker *m, const struct packfile_frame *next);
int packfile_add(struct packfile_maker *m, const struct packfile_frame *f, struct err *err);
/* Writes the pack and empties the maker. At least one frame must have been added. */
int packfile_end(struct packfile_maker *m, struct buf *ret, struct err *err);

/* ---- reading ---- */

/* A pack in memory, whose tables are correct. */
struct packfile {
    const uint8_t *frame_table, *chunk_table, *frames;
    uint32_t frame_count, chunk_count;
};

/* One frame: its bytes, and the number and total size of its chunks. */
struct packfile_part {
    const uint8_t *stored;
    uint32_t stored_size, raw_size;
    uint32_t first, count; /* chunks */
    uint32_t number;       /* frames up to this one */
};

/* Checks everything but the contents of frames. The result points into `bytes`. */
int packfile_read(const void *bytes, size_t n, struct packfile *ret, struct err *err);
void packfile_chunk_at(const struct packfile *p, uint32_t i, struct packfile_chunk *ret);
/* Frames in order: start with a part of zeros. False after the last one. */
bool packfile_next(const struct packfile *p, struct packfile_part *part);
/* Decompresses a frame to `raw`, which has PACKFILE_FRAME_MAX bytes, and checks its chunks. */
int packfile_open(const struct packfile *p, const struct packfile_part *part, uint8_t *raw,
                  struct err *err);
