#include "store/volumes/volumes.h"

#include "store/store.h"

#define AT(m) offsetof(struct volume_row, m)
#define TEXT(m) #m, COL_TEXT, AT(m), sizeof(((struct volume_row *)0)->m)
#define NAME(m) #m, COL_NAME, AT(m), sizeof(((struct volume_row *)0)->m)
static const struct column volume_columns[] = {
    {TEXT(id)},
    {TEXT(owner)},
    {NAME(token)},
    {TEXT(name)},
    {"bytes", COL_U64, AT(bytes), 0},
    {"created_ms", COL_I64, AT(created_ms), 0},
    {TEXT(origin)},
};
const struct table volume_table = {"volumes", sizeof(struct volume_row), volume_columns,
                                   sizeof(volume_columns) / sizeof(*volume_columns)};

void volume_list_done(struct volume_list *list) {
    rows_free(&volume_table, list->rows, list->count);
    *list = (struct volume_list){0};
}

int store_volume_add(struct store *s, const struct volume_row *row, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_VOLUME_ADD, err) < 0 || query_bind(&q, &volume_table, row, err) < 0)
        return -1;
    return query_run(&q, NULL, err);
}

static int volumes_query(struct store *s, const char *owner, const char *name,
                         struct volume_list *ret, struct err *err) {
    QUERY;
    *ret = (struct volume_list){0};
    if (query_start(&q, s, STMT_VOLUME_LIST, err) < 0)
        return -1;
    query_text(&q, 1, owner);
    query_text(&q, 2, name);
    query_u64(&q, 3, STORE_PAGE_MAX);
    return query_all(&q, &volume_table, (void **)&ret->rows, &ret->count, err);
}

int store_volume_find(struct store *s, const char *owner, const char *name, struct volume_row *ret,
                      struct err *err) {
    struct volume_list found DEFER(volume_list_done) = {0};
    if (volumes_query(s, owner, name, &found, err) < 0)
        return -1;
    if (!found.count) {
        err_set(err, ERR_NOT_FOUND, "volume '%.130s' does not exist", name);
        return err_remedy(err, "list volumes with `carrel volume ls`");
    }
    *ret = found.rows[0];
    return 0;
}

int store_volume_list(struct store *s, const char *owner, struct volume_list *ret,
                      struct err *err) {
    return volumes_query(s, owner, NULL, ret, err);
}

int store_volume_remove(struct store *s, const char *id, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_VOLUME_REMOVE, err) < 0)
        return -1;
    query_text(&q, 1, id);
    return query_run(&q, NULL, err);
}

int store_volume_by_id(struct store *s, const char *id, struct volume_row *ret, struct err *err) {
    struct volume_list found DEFER(volume_list_done) = {0};
    QUERY;
    if (query_start(&q, s, STMT_VOLUME_EXISTS, err) < 0)
        return -1;
    query_text(&q, 1, id);
    if (query_all(&q, &volume_table, (void **)&found.rows, &found.count, err) < 0)
        return -1;
    if (!found.count)
        return err_set(err, ERR_NOT_FOUND, "volume '%.20s' does not exist", id);
    *ret = found.rows[0];
    return 0;
}

bool store_volume_exists(struct store *s, const char *id) {
    QUERY;
    if (query_start(&q, s, STMT_VOLUME_EXISTS, NULL) < 0)
        return true;
    query_text(&q, 1, id);
    return query_step(&q, NULL) != 0;
}

int store_volume_uses(struct store *s, const char *owner, const char *name, struct grant_list *ret,
                      struct err *err) {
    QUERY;
    *ret = (struct grant_list){0};
    if (query_start(&q, s, STMT_VOLUME_USES, err) < 0)
        return -1;
    query_text(&q, 1, owner);
    query_text(&q, 2, name);
    return query_all(&q, &grant_table, (void **)&ret->rows, &ret->count, err);
}

int store_volume_totals(struct store *s, uint64_t *ret_count, uint64_t *ret_bytes,
                        struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_VOLUME_TOTALS, err) < 0 || query_step(&q, err) != 1)
        return -1;
    *ret_count = (uint64_t)sqlite3_column_int64(q.stmt, 0);
    *ret_bytes = (uint64_t)sqlite3_column_int64(q.stmt, 1);
    return 0;
}
