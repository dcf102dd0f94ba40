/*
 * A transcript as an agent trajectory (ATIF v1.4), which other people's tools read: one step for
 * the task, for each turn of the model with its calls and what came of them, and for each note of
 * ours. Pure.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

/* bytes: whole lines, as they are on the disk. */
int run_export(const char *bytes, size_t n, struct buf *to, struct err *err);
