#include "store/databases.h"

#include "store/machines.h"
#include "store/store.h"

#define TEXT(m) \
#m, COL_TEXT, offsetof(struct database_row, m), sizeof(((struct database_row *)0)->m)
#define HEAP(m) #m, COL_HEAP, offsetof(struct database_row, m), 0
static const struct column database_columns[] = {
    {TEXT(id)},      {TEXT(owner)},
    {TEXT(machine)}, {HEAP(server)},
    {TEXT(name)},    {"created_ms", COL_I64, offsetof(struct database_row, created_ms), 0},
    {HEAP(why)},
};
const struct table database_table = {"databases", sizeof(struct database_row), database_columns,
                                     sizeof(database_columns) / sizeof(*database_columns)};

void database_row_done(struct database_row *row) {
    row_done(&database_table, row);
}

void database_list_done(struct database_list *list) {
    rows_free(&database_table, list->rows, list->count);
    *list = (struct database_list){0};
}

int store_database_put(struct store *s, const struct database_row *row, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_DATABASE_PUT, err) < 0 ||
        query_bind(&q, &database_table, row, err) < 0)
        return -1;
    return query_run(&q, NULL, err);
}

int store_database_remove(struct store *s, const char *id, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_DATABASE_REMOVE, err) < 0)
        return -1;
    query_text(&q, 1, id);
    return query_run(&q, NULL, err);
}

static int databases_list(struct store *s, enum statement statement, struct database_list *ret,
                          struct err *err) {
    QUERY;
    void *rows;
    size_t count;
    if (query_start(&q, s, statement, err) < 0)
        return -1;
    query_u64(&q, 1, STORE_DATABASES_MAX);
    if (statement == STMT_DATABASE_ORPHANS)
        query_u64(&q, 2, MACHINE_ENDING);
    if (query_all(&q, &database_table, &rows, &count, err) < 0)
        return -1;
    *ret = (struct database_list){rows, count};
    return 0;
}

int store_database_list(struct store *s, struct database_list *ret, struct err *err) {
    return databases_list(s, STMT_DATABASE_LIST, ret, err);
}

int store_database_orphans(struct store *s, struct database_list *ret, struct err *err) {
    return databases_list(s, STMT_DATABASE_ORPHANS, ret, err);
}
