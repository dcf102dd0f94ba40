/*
 * The log of a command's output: memory that the guest writes and the host reads.
 *
 * A log holds two streams, stdout (0) and stderr (1; empty for a terminal). Of each
 * it keeps the first `head` bytes and the last `tail` bytes; the bytes between are
 * left out, and the reader reports their number. The writer never waits, and the log never grows.
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
 *   of the last OUTLOG_TURNS turns the log records the offset where it ended. That is
 *   the order in which the guest read the two pipes: exact for a program that lets
 *   some time pass between them, else approximate. Only 2>&1 gives an exact order.
 *
 * Reading while it is written
 *   Before the writer fills a part of the tail it raises `claimed` to the end of that
 *   part, and after that `produced`. A reader copies first and then reads `claimed`
 *   again: bytes that may have been overwritten meanwhile count as left out.
 *
 * A reader does not trust the numbers in a log: each is read once, cut to what
 * the capacities allow, and can at worst make the reader report other bytes of the same
 * log. Code that maps a log first checks that its size cannot change: see io/outlog_fd.h.
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
#define OUTLOG_AREA_MAX (1u << 30) /* largest head or tail */

/* Bytes kept of each stream. */
struct outlog_caps {
    uint64_t head[2];
    uint64_t tail[2];
};

/* 64 MiB per command. CAPS_ONE is for a terminal and for 2>&1, where stderr is empty. */
#define OUTLOG_CAPS_TWO ((struct outlog_caps){{24u << 20, 8u << 20}, {24u << 20, 8u << 20}})
#define OUTLOG_CAPS_ONE ((struct outlog_caps){{32u << 20, 0}, {32u << 20, OUTLOG_TAIL_MIN}})

/* The start of a log. The numbers after the capacities change while output is written. */
struct outlog_page {
    uint32_t magic;
    uint32_t version;
    struct outlog_caps caps;
    struct {
        uint64_t claimed;  /* bytes from this offset on were not written yet; >= produced */
        uint64_t produced; /* bytes the command has written */
        uint64_t lost;     /* how many of these could not be stored; a reader gets any bytes */
        uint64_t ended;    /* 1: the stream has ended */
    } stream[2];
    uint64_t turns; /* number of turns that have ended */
};

/* The size of a log with these capacities; 0: they are out of bounds. */
uint64_t outlog_bytes(const struct outlog_caps *caps);

/* Formats zeroed memory of outlog_bytes(caps) bytes as an empty log. */
void outlog_format(void *map, const struct outlog_caps *caps);

/* A log to read: mapped memory, or with map NULL the file fd, read with pread. Owns nothing. */
struct outlog {
    uint8_t *map;
    int fd;
    struct outlog_caps caps;
};

/* 0, or -1: the bytes are not a log, or one of another version. The caller still owns map or fd. */
int outlog_open(struct outlog *ret, void *map, int fd, uint64_t bytes);

/* How many bytes a writer that waits for its reader may be ahead of that reader. */
uint64_t outlog_window(const struct outlog_caps *caps, int stream);

/* The position in the log of byte `offset` of a stream. */
uint64_t outlog_position(const struct outlog_caps *caps, int stream, uint64_t offset);

/* The present numbers of a log; byte counts are at most INT64_MAX. */
struct outlog_page outlog_page_of(const struct outlog *l);

/* Writing: a log has one writer, which uses its own numbers and not those in the log. */

struct outlog_writer {
    struct outlog log;
    uint64_t produced[2];
    uint64_t lost[2];
    uint64_t turns;
    bool ended[2];
};

/* Starts to write an empty log. 0, or -1 as outlog_open(), or if the log is not empty. */
int outlog_write(struct outlog_writer *ret, void *map, uint64_t bytes);

/*
 * Goes on writing a log that another writer left. 0, or -1 as outlog_open(). Streams that have
 * ended are open again: that writer never used them, or was killed.
 */
int outlog_continue(struct outlog_writer *ret, void *map, uint64_t bytes);

/*
 * Reserves room for up to max more bytes of a stream, in one or two pieces. The caller fills them
 * at once and reports with outlog_commit() how many bytes it wrote (0 is allowed).
 */
int outlog_claim(struct outlog_writer *w, int stream, size_t max, struct iovec ret[2]);
void outlog_commit(struct outlog_writer *w, int stream, size_t n);

/*
 * Finds the n bytes of a stream that start at `from`, in one or two pieces. They must be bytes that
 * were produced and are still kept.
 */
int outlog_find(const struct outlog_writer *w, int stream, uint64_t from, size_t n,
                struct iovec ret[2]);

/* There was no memory for n bytes of output: counts them as produced and lost. */
void outlog_lose(struct outlog_writer *w, int stream, size_t n);

/* outlog_claim() and outlog_commit() in one call: copies bytes into the log. */
void outlog_put(struct outlog_writer *w, int stream, const void *bytes, size_t n);
void outlog_end(struct outlog_writer *w, int stream);

/* Reading. */

/* The present extent of a stream. */
struct outlog_extent {
    uint64_t produced; /* at most INT64_MAX */
    uint64_t lost;     /* how many of these bytes the writer had no memory for; mostly 0 */
    bool ended;
};
struct outlog_extent outlog_extent(const struct outlog *l, int stream);

struct outlog_piece {
    int stream;
    uint64_t left_out; /* bytes before this piece that were not kept */
    uint64_t offset;   /* offset of the first byte in its stream */
    size_t n;          /* 0: there are no more bytes now */
};

/* Copies up to max bytes of one stream from `offset` on. May copy fewer than the log holds. */
struct outlog_piece outlog_read(const struct outlog *l, int stream, uint64_t offset, void *to,
                                size_t max);

/* The position of a reader in both streams; zeroed: the start. outlog_next() updates `turn`. */
struct outlog_cursor {
    uint64_t at[2];
    uint64_t turn;
};

/*
 * Copies the next piece of either stream, in the order of the turns, and moves the cursor past it.
 * n and left_out are both 0 if there is no new output.
 */
struct outlog_piece outlog_next(const struct outlog *l, struct outlog_cursor *c, void *to,
                                size_t max);

/*
 * Passes on output up to the offsets `to`, at most `pieces` times. False: there is more. For a
 * thread that others wait for: the writer may be faster than the reader.
 */
typedef void outlog_bytes_fn(void *arg, const void *bytes, size_t n);
bool outlog_read_to(const struct outlog *l, struct outlog_cursor *c, const uint64_t to[2],
                    unsigned pieces, outlog_bytes_fn *put, void *arg);

/* True if both streams have ended and the cursor is at their end. */
bool outlog_is_over(const struct outlog *l, const struct outlog_cursor *c);
