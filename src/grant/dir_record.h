/*
 * What a directory holds when it is handed over, written down (base/fs/baseline.h): by that its
 * owner's changes are told from the machine's when something is to come back.
 */
#pragma once

#include "base/err.h"

/*
 * All plain files and links below dir, into the file `to`; no link is followed. What is too deep or
 * beyond BASELINE_FILES_MAX is left out, and that is noted. It blocks.
 */
int dir_record(int dir, int to, struct err *err);
