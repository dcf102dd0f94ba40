#include "store/backups/backups.h"

#include "store/store.h"

#define AT(m) offsetof(struct backup_row, m)
#define TEXT(m) #m, COL_TEXT, AT(m), sizeof(((struct backup_row *)0)->m)
static const struct column backup_columns[] = {
    {TEXT(id)},
    {TEXT(owner)},
    {TEXT(token)},
    {TEXT(machine)},
    {TEXT(name)},
    {"created_ms", COL_I64, AT(created_ms), 0},
    {TEXT(manifest)},
    {"entries", COL_U64, AT(entries), 0},
    {"bytes", COL_U64, AT(bytes), 0},
    {"written", COL_U64, AT(written), 0},
    {"details", COL_JSON, AT(details), 0},
};
const struct table backup_table = {"backups", sizeof(struct backup_row), backup_columns,
                                   sizeof(backup_columns) / sizeof(*backup_columns)};

void backup_row_done(struct backup_row *row) {
    row_done(&backup_table, row);
}

void backup_list_done(struct backup_list *list) {
    rows_free(&backup_table, list->rows, list->count);
    *list = (struct backup_list){0};
}

int store_backup_add(struct store *s, const struct backup_row *row, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_BACKUP_ADD, err) < 0 || query_bind(&q, &backup_table, row, err) < 0)
        return -1;
    return query_run(&q, NULL, err);
}

int store_backup_remove(struct store *s, const char *id, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_BACKUP_REMOVE, err) < 0)
        return -1;
    query_text(&q, 1, id);
    return query_run(&q, NULL, err);
}

int store_backup_list(struct store *s, const char *owner, const char *machine, const char *id,
                      struct backup_list *ret, struct err *err) {
    QUERY;
    *ret = (struct backup_list){0};
    if (query_start(&q, s, STMT_BACKUP_LIST, err) < 0)
        return -1;
    query_text(&q, 1, owner);
    query_text(&q, 2, machine);
    query_text(&q, 3, id);
    query_u64(&q, 4, STORE_PAGE_MAX);
    return query_all(&q, &backup_table, (void **)&ret->rows, &ret->count, err);
}

int store_backup_last(struct store *s, const char *machine, int64_t *ret_ms, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_BACKUP_LAST, err) < 0)
        return -1;
    query_text(&q, 1, machine);
    if (query_step(&q, err) != 1)
        return -1;
    *ret_ms = sqlite3_column_int64(q.stmt, 0);
    return 0;
}
