/*
 * Converts a transcript to an agent trajectory (ATIF v1.4), a format that other tools read. The
 * trajectory has one step for the task, one for each turn of the model with its calls and results,
 * and one for each note. Pure.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

/* bytes: complete transcript lines, as stored. */
int run_export(const char *bytes, size_t n, struct buf *to, struct err *err);
