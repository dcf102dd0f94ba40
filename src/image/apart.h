/*
 * Unpacks an archive with two processes. The reader parses the archive; a hostile archive may take
 * the reader over. The supervisor never sees a byte of the archive. It reads progress, errors and
 * the configuration from the reader over a pipe and waits until the reader exits. Only the
 * supervisor computes the id of the tree and holds the pipe to the daemon.
 */
#pragma once

#include "base/buf.h"
#include "image/report.h"

/*
 * Runs in the reader: descriptor 0 is the archive, "/" is the directory of the image. *ret receives
 * the configuration of the image as JSON. APART_FD_READ_BELOW, if it is open, has the files of the
 * image that a layer is above, to read.
 */
enum { APART_FD_READ_BELOW = 5 };
typedef int apart_fn(void *arg, struct report *report, struct buf *ret, struct err *err);

/*
 * Forks the reader, which calls `fn`. Both processes enter the jail of `dir`, and the caller cannot
 * leave it again. The reader wrote *ret, so do not trust it. After success `dir` contains only
 * root/ and spool/. The caller keeps descriptor APART_FD_BELOW, if it is open: the files of the
 * image that a layer is above. The mount is read-only and has nothing else, so the reader gets it
 * too. The caller also keeps the descriptors up to `last`, which are locks; the reader does not.
 */
enum { APART_FD_BELOW = 7 };
int apart_read(int dir, int last, struct report *report, apart_fn *fn, void *arg, struct buf *ret,
               struct err *err);
