/*
 * Unpacks an archive with two processes. The reader parses the archive, which may take it over. The
 * supervisor never sees a byte of the archive: it reads progress, errors and the configuration from
 * the reader over a pipe, waits for its end, and alone decides the id of the tree. Only the
 * supervisor holds the pipe to the daemon.
 */
#pragma once

#include "base/buf.h"
#include "image/report.h"

/* In the reader: 0 is the archive, "/" the image's directory. *ret: the configuration, JSON. */
typedef int apart_fn(void *arg, struct report *report, struct buf *ret, struct err *err);

/*
 * Both enter the jail of `dir`, this process for good. *ret is not trusted; and after success there
 * is nothing in the directory but root/ and spool/.
 */
int apart_read(int dir, struct report *report, apart_fn *fn, void *arg, struct buf *ret,
               struct err *err);
