/*
 * What `carrel ship` printed for an order, made to fit into the answer to the page. Lines stay
 * whole: a page that gets half a line gets broken JSON.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

enum {
    OUTPUT_READ_MAX = 64 << 20, /* of one `carrel ship` */
    OUTPUT_SENT_MAX = 4 << 20,  /* ORDER_OUTPUT_MAX of the daemon */
};

/*
 * Reviews are JSON, an object on each line. The last reviews lose their diffs until all fit, and
 * say so by `diff_left_out`. Fails if the lists of files alone do not fit.
 */
int output_fit_reviews(const struct buf *output, size_t max, struct buf *ret, struct err *err);

/* Drops the first lines, since the receipt is at the end, and says so. */
int output_fit_text(const struct buf *output, size_t max, struct buf *ret, struct err *err);
