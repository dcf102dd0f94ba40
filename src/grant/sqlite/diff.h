/*
 * What differs between two databases of SQLite, as lines of text: first the numbers of the head
 * that programs keep there and the schema, then for each table the rows that came and went, up to a
 * number of them; of a table that one of them has not, or in another form, all rows. Of a row that
 * is there several times it is told how often that became more or less.
 *
 * The databases are images in memory. The second is hostile: it is only ever read, by statements of
 * ours, without views, triggers, virtual tables and functions of its choice.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

enum {
    DIFF_ROWS_SHOWN = 100,
    DIFF_VALUE_SHOWN = 200,
    DIFF_TABLES_MAX = 1000,
    DIFF_COLUMNS_MAX = 999 /* SQLite sorts by 2000 terms, and each takes two */
};

/*
 * Takes both images' bytes. Empty text: nothing differs. sound: the second is refused if it is
 * damaged anywhere, also where nobody would look now.
 */
int sqlite_diff(struct buf *before, struct buf *after, bool sound, struct buf *ret,
                struct err *err);
