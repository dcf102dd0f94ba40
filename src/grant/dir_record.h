/*
 * Records the content of a granted directory (base/fs/baseline.h). When changes are shipped back,
 * this tells the owner's changes from those of the machine.
 */
#pragma once

#include "base/err.h"

/*
 * Writes all files and links below dir to `to`, without following links. Files that are too deep or
 * beyond BASELINE_FILES_MAX are omitted, which is recorded. Blocks.
 */
int dir_record(int dir, int to, struct err *err);
