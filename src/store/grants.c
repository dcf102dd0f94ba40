#include "store/grants.h"

#include "store/machines.h"
#include "store/store.h"

#define TEXT(m) #m, COL_TEXT, offsetof(struct grant_row, m), sizeof(((struct grant_row *)0)->m)
#define HEAP(m) #m, COL_HEAP, offsetof(struct grant_row, m), 0
#define TIME(m) #m, COL_I64, offsetof(struct grant_row, m), 0
static const struct column grant_columns[] = {
    {TEXT(id)},
    {TEXT(machine)},
    {TEXT(kind)},
    {HEAP(what)},
    {HEAP(place)},
    {TEXT(mode)},
    {"detail", COL_JSON, offsetof(struct grant_row, detail), 0},
    {TIME(created_ms)},
    {TIME(expires_ms)},
};
const struct table grant_table = {"grants", sizeof(struct grant_row), grant_columns,
                                  sizeof(grant_columns) / sizeof(*grant_columns)};

void grant_row_done(struct grant_row *row) {
    row_done(&grant_table, row);
}

void grant_list_done(struct grant_list *list) {
    rows_free(&grant_table, list->rows, list->count);
    *list = (struct grant_list){0};
}

int store_grant_put(struct store *s, const struct grant_row *row, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_GRANT_PUT, err) < 0 || query_bind(&q, &grant_table, row, err) < 0)
        return -1;
    return query_run(&q, NULL, err);
}

int store_grant_list(struct store *s, const char *machine, const char *kind, struct grant_list *ret,
                     struct err *err) {
    QUERY;
    void *rows;
    size_t count;
    if (query_start(&q, s, STMT_GRANT_LIST, err) < 0)
        return -1;
    query_text(&q, 1, machine);
    query_text(&q, 2, kind);
    query_u64(&q, 3, STORE_PAGE_MAX);
    if (query_all(&q, &grant_table, &rows, &count, err) < 0)
        return -1;
    *ret = (struct grant_list){rows, count};
    return 0;
}

int store_grant_get(struct store *s, const char *machine, const char *id, struct grant_row *ret,
                    struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_GRANT_GET, err) < 0)
        return -1;
    query_text(&q, 1, machine);
    query_text(&q, 2, id);
    return query_one(&q, &grant_table, ret, "grant", id, err);
}

int store_grant_remove(struct store *s, const char *id, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_GRANT_REMOVE, err) < 0)
        return -1;
    query_text(&q, 1, id);
    return query_run(&q, NULL, err);
}

int store_grant_due(struct store *s, const char *machine, int64_t *ret_ms, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_GRANT_DUE, err) < 0)
        return -1;
    query_text(&q, 1, machine);
    int r = query_step(&q, err);
    if (r < 0)
        return -1;
    *ret_ms = r ? sqlite3_column_int64(q.stmt, 0) : 0;
    return 0;
}

int store_grant_count(struct store *s, store_grant_count_fn *fn, void *arg, struct err *err) {
    QUERY;
    int r;
    if (query_start(&q, s, STMT_GRANT_KINDS, err) < 0)
        return -1;
    query_u64(&q, 1, MACHINE_ENDED);
    while ((r = query_step(&q, err)) > 0)
        fn(arg, (const char *)sqlite3_column_text(q.stmt, 0),
           (uint64_t)sqlite3_column_int64(q.stmt, 1));
    return r;
}

bool store_grant_lives(struct store *s, const char *id) {
    QUERY;
    if (query_start(&q, s, STMT_GRANT_LIVES, NULL) < 0)
        return true;
    query_text(&q, 1, id);
    query_u64(&q, 2, MACHINE_ENDED);
    return query_step(&q, NULL) != 0;
}
