/*
 * Records the files of a granted directory as its baseline (base/fs/baseline.h). When changes are
 * shipped back, the baseline tells the owner's changes from those of the machine.
 */
#pragma once

#include "base/err.h"

/*
 * Writes a line for each file and link below `dir` to descriptor `to`, without following links.
 * Files that are too deep or beyond BASELINE_FILES_MAX are omitted; then the last line is "cut".
 * Blocks.
 */
int dir_record(int dir, int to, struct err *err);
