/*
 * A database in memory: tables, an index, a join, grouping, updates. The library is not ours and
 * not here: sqlite.py fetches it. It gets a heap of fixed size and no files, no clock and no
 * chance, so that the module imports nothing and every engine gives the same answer.
 */
#include <string.h>

#include "kernel.h"

#include "sqlite3.h"

enum { HEAP = 8 << 20, ROWS = 400 };

static uint64_t heap[HEAP / sizeof(uint64_t)];

static int no_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out) {
    (void)vfs, (void)name, (void)file, (void)flags, (void)out;
    return SQLITE_CANTOPEN;
}

static int same_name(sqlite3_vfs *vfs, const char *name, int size, char *out) {
    (void)vfs;
    size_t n = strlen(name) + 1;
    if (n > (size_t)size)
        return SQLITE_CANTOPEN;
    memcpy(out, name, n);
    return SQLITE_OK;
}

static int no_chance(sqlite3_vfs *vfs, int size, char *out) {
    (void)vfs;
    memset(out, 7, (size_t)size);
    return size;
}

static int no_time(sqlite3_vfs *vfs, double *day) {
    (void)vfs;
    *day = 2460000.5;
    return SQLITE_OK;
}

int sqlite3_os_init(void) {
    static sqlite3_vfs nothing = {.iVersion = 1,
                                  .szOsFile = sizeof(sqlite3_file),
                                  .mxPathname = 64,
                                  .zName = "nothing",
                                  .xOpen = no_open,
                                  .xFullPathname = same_name,
                                  .xRandomness = no_chance,
                                  .xCurrentTime = no_time};
    return sqlite3_vfs_register(&nothing, 1);
}

int sqlite3_os_end(void) {
    return SQLITE_OK;
}

/* All columns of all rows, into the sum. */
static uint32_t query(sqlite3 *db, const char *sql, uint32_t sum) {
    sqlite3_stmt *q;
    if (sqlite3_prepare_v2(db, sql, -1, &q, NULL) != SQLITE_OK)
        return 0;
    while (sqlite3_step(q) == SQLITE_ROW)
        for (int i = 0; i < sqlite3_column_count(q); i++)
            for (const unsigned char *p = sqlite3_column_text(q, i); p && *p; p++)
                sum = mix(sum, *p);
    return sqlite3_finalize(q) == SQLITE_OK ? sum : 0;
}

static void fill(sqlite3 *db, uint32_t *seed) {
    sqlite3_stmt *insert;
    if (sqlite3_prepare_v2(db, "insert into person values (?, ?, ?, ?)", -1, &insert, NULL))
        return;
    for (int i = 0; i < ROWS; i++) {
        char name[12];
        for (unsigned k = 0; k < sizeof name; k++)
            name[k] = (char)('a' + next_random(seed) % 26);
        sqlite3_bind_int(insert, 1, i);
        sqlite3_bind_text(insert, 2, name, sizeof name, SQLITE_TRANSIENT);
        sqlite3_bind_int(insert, 3, (int)(next_random(seed) % 16));
        sqlite3_bind_double(insert, 4, (next_random(seed) % 10000) / 16.0);
        sqlite3_step(insert);
        sqlite3_reset(insert);
    }
    sqlite3_finalize(insert);
}

static uint32_t one_database(uint32_t *seed) {
    sqlite3 *db;
    if (sqlite3_open(":memory:", &db) != SQLITE_OK)
        return 0;
    uint32_t sum = query(db, "create table person (id integer primary key, name, town, sum)", 1);
    sum = query(db, "create table town (id integer primary key, name)", sum);
    sum = query(db, "begin", sum);
    fill(db, seed);
    sum = query(db, "commit", sum);
    sum = query(db, "create index by_name on person (name)", sum);
    sum = query(db, "insert into town select distinct town, 'town ' || town from person", sum);
    sum = query(db, "update person set sum = sum * 2 where name > 'm' and town % 3 = 1", sum);
    sum = query(db,
                "select t.name, count(*), sum(p.sum), max(p.name) from person p join town t "
                "on t.id = p.town group by t.name order by 3 desc",
                sum);
    sum = query(db, "delete from person where name like '%q%'", sum);
    sum =
        query(db, "select id, name from person where name between 'c' and 'k' order by name", sum);
    return sqlite3_close(db) == SQLITE_OK ? sum : 0;
}

KERNEL uint32_t run(uint32_t n) {
    uint32_t seed = 9, sum = 0;
    sqlite3_config(SQLITE_CONFIG_HEAP, heap, HEAP, 64);
    for (uint32_t i = 0; i < n; i++)
        sum = mix(sum, one_database(&seed));
    return sum;
}
