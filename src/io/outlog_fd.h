/*
 * Logs of output as descriptors (format: base/wire/outlog.h).
 *
 * A log that a guest writes is a memfd sealed against growing and shrinking. That is
 * the only kind of file whose size the kernel fixes even for one who may write to it: a
 * guest that was taken over can fill its own log with lies and nothing more, and no
 * mapping of it can ever fault. Nor does writing wait for a disk, which would hold up
 * all commands of that machine. It costs memory for what was really printed, at most
 * its capacity. It lives as long as guest or host hold it: a new daemon gets it from
 * the guest with MSG_LOG_OPEN. What shall outlive the machine is kept in a plain file
 * that only the host can open: outlog_keep().
 */
#pragma once

#include "base/err.h"
#include "base/wire/outlog.h"

struct outlog_fd {
    int fd;
    uint64_t bytes;
    struct outlog log; /* mapped */
};

/* struct outlog_fd log DEFER(outlog_fd_close) = OUTLOG_FD_NONE; */
#define OUTLOG_FD_NONE ((struct outlog_fd){.fd = -1})

/* A new, empty log, to be passed with an EXEC under MSG_EXEC_LOG. */
int outlog_fd_make(struct outlog_fd *ret, const struct outlog_caps *caps, struct err *err);

/* Takes over a descriptor that a guest sent, if it is a log and sealed. Else it is closed. */
int outlog_fd_adopt(struct outlog_fd *ret, int fd, struct err *err);
void outlog_fd_close(struct outlog_fd *l);

/* How much of a log is in its file already. Zeroed: nothing. */
struct outlog_kept {
    uint64_t produced[2];
    uint64_t claimed[2]; /* beyond produced + tail: bytes of the tail that came too fast to keep */
};

/* Do both streams in this file have their end? Then nothing is ever added to it. */
bool outlog_is_whole(int file);

/*
 * Brings the file up to date with the log: copies what is new since `done`, the numbers
 * last. The file is sparse and reads as the log did. It is on the disk when this returns
 * 0, which waits for that; calls for one file follow each other. One that failed is
 * repeated with the same `done`, and writes everything since then again. A file that is
 * whole stays as it is, whatever the log says by now.
 */
int outlog_keep(const struct outlog *l, int file, struct outlog_kept *done, struct err *err);

/* Opens such a file for reading; it is read with pread and stays the caller's. */
int outlog_open_kept(struct outlog *ret, int file, struct err *err);

/* How much such a file holds, to go on keeping after a restart. */
struct outlog_kept outlog_kept_of(const struct outlog *kept);

/*
 * Gives back the memory of what is in the file. Only of the heads: the tails are still
 * being written. From then on what was kept is read from the file.
 */
void outlog_fd_release(struct outlog_fd *l, const struct outlog_kept *done);
