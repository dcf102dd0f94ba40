/*
 * The log of a command's output: memory that the guest writes and the host reads.
 *
 * A log holds two streams, stdout (0) and stderr (1; empty for a terminal). Of each
 * it keeps the first `head` bytes and the last `tail` bytes; what falls between is
 * left out, and the reader says how much. The writer never waits and never grows.
 *
 * Layout, in the host's byte order
 *   0                 struct outlog_page
 *   4 KiB             the turns: OUTLOG_TURNS numbers of 64 bits
 *   OUTLOG_DATA       head of stdout, tail of stdout, head of stderr, tail of stderr
 *   Byte x of a stream lies at head[x] while x < head, else at tail[(x - head) % tail].
 *   Nothing is ever stored for bytes that were not produced, so the file is sparse.
 *
 * Order between the streams
 *   Output comes in turns: turn 0 is of stdout, turn 1 of stderr, and so on. For each
 *   of the last OUTLOG_TURNS turns the log says where in its stream it ended. That is
 *   the order in which the guest read the two pipes: exact for a program that lets
 *   some time pass between them, else near. 2>&1 is the only way to an exact order.
 *
 * Reading while it is written
 *   Before the writer fills a part of the tail it raises `claimed` to the end of that
 *   part; only afterwards `produced`. A reader copies first and then looks at `claimed`
 *   again: what could have been overwritten meanwhile it counts as left out.
 *
 * Everything in a log is hostile to its reader: each number is read once, cut to what
 * the capacities allow, and can at worst make the reader report other bytes of the same
 * log. Whoever maps one makes sure that it cannot change its size: see io/outlog_fd.h.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define OUTLOG_MAGIC 0x474c5243u /* "CRLG" */
#define OUTLOG_VERSION 1u
#define OUTLOG_PAGE 4096u
#define OUTLOG_TURNS 4096u
#define OUTLOG_DATA (OUTLOG_PAGE + 8u * OUTLOG_TURNS)
#define OUTLOG_TAIL_MIN 4096u
#define OUTLOG_WINDOW_MAX (1u << 20)
#define OUTLOG_AREA_MAX (1u << 30) /* of one head or tail */

/* Bytes kept of each stream. */
struct outlog_caps {
    uint64_t head[2];
    uint64_t tail[2];
};

/* 64 MiB a command in all; the second for a terminal and for 2>&1. */
#define OUTLOG_CAPS_TWO ((struct outlog_caps){{24u << 20, 8u << 20}, {24u << 20, 8u << 20}})
#define OUTLOG_CAPS_ONE ((struct outlog_caps){{32u << 20, 0}, {32u << 20, OUTLOG_TAIL_MIN}})

/* The start of the file. Numbers after the capacities change while it is written. */
struct outlog_page {
    uint32_t magic;
    uint32_t version;
    struct outlog_caps caps;
    struct {
        uint64_t claimed;  /* nothing from here on was touched yet; >= produced */
        uint64_t produced; /* bytes the command has written */
        uint64_t lost;     /* of these so many could not be stored, and read as anything */
        uint64_t ended;    /* 1: that was all */
    } stream[2];
    uint64_t turns; /* how many have ended */
};

/* How big a log with these capacities is; 0: they are out of bounds. */
uint64_t outlog_bytes(const struct outlog_caps *caps);

/* Makes a log of zeroed memory of that many bytes. */
void outlog_format(void *map, const struct outlog_caps *caps);

/* A log that can be read: mapped, or with map NULL the file fd, through pread. A plain value. */
struct outlog {
    uint8_t *map;
    int fd;
    struct outlog_caps caps;
};

/* 0, or -1: these bytes are no log, or one of another version. map or fd stays the caller's. */
int outlog_open(struct outlog *ret, void *map, int fd, uint64_t bytes);

/* How far a writer that waits for its reader may be ahead of it. */
uint64_t outlog_window(const struct outlog_caps *caps, int stream);

/* Where byte `offset` of a stream lies in the log. */
uint64_t outlog_position(const struct outlog_caps *caps, int stream, uint64_t offset);

/* All its numbers as of now; those that stand for byte counts are at most INT64_MAX. */
struct outlog_page outlog_page_of(const struct outlog *l);

/* Writing: one writer, which trusts its own numbers and not those in the log. */

struct outlog_writer {
    struct outlog log;
    uint64_t produced[2];
    uint64_t lost[2];
    uint64_t turns;
    bool ended[2];
};

/* A writer of a fresh log. 0, or -1 as above; logs that are not empty are refused too. */
int outlog_write(struct outlog_writer *ret, void *map, uint64_t bytes);

/*
 * Room for up to max further bytes of a stream, in one or two pieces that the caller
 * fills at once; then outlog_commit() says how many it filled (0 is fine).
 */
int outlog_claim(struct outlog_writer *w, int stream, size_t max, struct iovec ret[2]);
void outlog_commit(struct outlog_writer *w, int stream, size_t n);

/* The memory could not be had: n bytes went elsewhere. They count, and are said to be lost. */
void outlog_lose(struct outlog_writer *w, int stream, size_t n);

/* The two above with a copy, for bytes that came in a frame. */
void outlog_put(struct outlog_writer *w, int stream, const void *bytes, size_t n);
void outlog_end(struct outlog_writer *w, int stream);

/* Reading. */

/* What there is of a stream, as of now. */
struct outlog_extent {
    uint64_t produced; /* at most INT64_MAX */
    uint64_t lost;     /* the writer had no memory for so many of them; nearly always 0 */
    bool ended;
};
struct outlog_extent outlog_extent(const struct outlog *l, int stream);

struct outlog_piece {
    int stream;
    uint64_t left_out; /* bytes that are not kept, right before this piece */
    uint64_t offset;   /* of its first byte, in its stream */
    size_t n;          /* 0: nothing more is there (yet) */
};

/* Copies up to max bytes of one stream from `offset` on. A piece may be shorter than what is there.
 */
struct outlog_piece outlog_read(const struct outlog *l, int stream, uint64_t offset, void *to,
                                size_t max);

/* A reader's place in both streams; zeroed: at the start. `turn` finds itself from `at`. */
struct outlog_cursor {
    uint64_t at[2];
    uint64_t turn;
};

/*
 * The next piece of either stream in the order of the turns, and moves the cursor
 * past it. n and left_out are both 0 when there is nothing new.
 */
struct outlog_piece outlog_next(const struct outlog *l, struct outlog_cursor *c, void *to,
                                size_t max);

/* Nothing follows behind the cursor, now or later. */
bool outlog_is_over(const struct outlog *l, const struct outlog_cursor *c);
