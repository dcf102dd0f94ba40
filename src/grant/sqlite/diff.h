/*
 * Diff of two SQLite databases as lines of text: header numbers that programs use and the schema,
 * then added and removed rows per table, up to a limit. A table that exists only once or has
 * another definition is shown with all rows. Repeated rows are counted.
 *
 * The databases are in memory. The second is hostile: only our statements read it, without views,
 * triggers, virtual tables or functions of its choice.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

enum {
    DIFF_ROWS_SHOWN = 100,
    DIFF_VALUE_SHOWN = 200,
    DIFF_TABLES_MAX = 1000,
    DIFF_COLUMNS_MAX = 999 /* SQLite sorts by at most 2000 terms; each column needs two */
};

/*
 * Writes the diff to `ret`; it is empty if the databases are equal. Takes the bytes of both
 * buffers. sound: fails if any part of the second database is damaged.
 */
int sqlite_diff(struct buf *before, struct buf *after, bool sound, struct buf *ret,
                struct err *err);
