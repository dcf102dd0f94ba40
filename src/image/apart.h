/*
 * To unpack there are two processes. One reads the archive, which may take it over. The other never
 * sees a byte of the archive: it hears the reader over a pipe of their own, waits for its end, and
 * alone can name what has become of the tree. Only it holds the pipe of the reports.
 *
 * A reader can say how far it is, why it failed, and the configuration of the image.
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
