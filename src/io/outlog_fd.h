/*
 * Logs of command output as file descriptors (format: base/wire/outlog.h).
 *
 * A log that a guest writes is a memfd sealed against growing and shrinking. That is
 * the only kind of file whose size the kernel fixes even for a process that may write to it: a
 * compromised guest can only fill its own log with wrong data, and no
 * mapping of it can fault. Writing does not wait for a disk, which would delay
 * all commands of that machine. A log uses memory for the bytes printed, at most
 * its capacity. It exists as long as guest or host hold it: a new daemon gets it from
 * the guest with MSG_LOG_OPEN. Output that must outlive the machine is saved in a regular file
 * that only the host can open: outlog_keep().
 */
#pragma once

#include "base/err.h"
#include "base/wire/outlog.h"

struct outlog_fd {
    int fd;
    uint64_t bytes;
    struct outlog log; /* the log, mapped into memory */
};

/* struct outlog_fd log DEFER(outlog_fd_close) = OUTLOG_FD_NONE; */
#define OUTLOG_FD_NONE ((struct outlog_fd){.fd = -1})

/* Creates an empty log, to be sent with MSG_EXEC and its flag MSG_EXEC_LOG. */
int outlog_fd_make(struct outlog_fd *ret, const struct outlog_caps *caps, struct err *err);

/* Takes over a descriptor from a guest if it is a sealed log. Otherwise closes it and fails. */
int outlog_fd_adopt(struct outlog_fd *ret, int fd, struct err *err);
void outlog_fd_close(struct outlog_fd *l);

/* How much of a log is already saved in its file. Zeroed: nothing. */
struct outlog_kept {
    uint64_t produced[2];
    uint64_t claimed[2]; /* as in struct outlog_page: kept tail bytes start at claimed - tail */
};

/* True if both streams in this file have ended. Then nothing is added to it any more. */
bool outlog_is_whole(int file);

/*
 * Saves the output since `done` in the file, its numbers last. The file is sparse and has the same
 * format as the log. When the function returns 0, the data is synced to disk. Do not call it twice
 * at a time for one file. After a failure call it again with the same `done`. A file whose streams
 * have both ended is not changed.
 */
int outlog_keep(const struct outlog *l, int file, struct outlog_kept *done, struct err *err);

/* Opens a saved log for reading with pread. The caller still owns the file. */
int outlog_open_kept(struct outlog *ret, int file, struct err *err);

/* Makes a log that holds what a saved log holds, and that a guest can go on with. */
int outlog_fd_restore(struct outlog_fd *ret, int file, struct outlog_kept *ret_kept,
                      struct err *err);

/* How much a saved log holds, to continue saving after a restart. */
struct outlog_kept outlog_kept_of(const struct outlog *kept);

/*
 * Frees the memory of saved output, but only that of the heads (the first bytes of each stream),
 * because the tails are still being written.
 * From then on saved output is read from the file.
 */
void outlog_fd_release(struct outlog_fd *l, const struct outlog_kept *done);
