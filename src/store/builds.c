#include "store/builds.h"

#include "store/store.h"

#define AT(m) offsetof(struct build_row, m)
#define TEXT(m) #m, COL_TEXT, AT(m), sizeof(((struct build_row *)0)->m)
#define HEAP(m) #m, COL_HEAP, AT(m), 0
static const struct column build_columns[] = {
    {TEXT(id)},
    {TEXT(owner)},
    {TEXT(token)},
    {TEXT(name)},
    {"state", COL_ENUM, AT(state), BUILD_STATES - 1},
    {"step", COL_U32, AT(step), 0},
    {"steps", COL_U32, AT(steps), 0},
    {"made", COL_U32, AT(made), 0},
    {"cached", COL_U32, AT(cached), 0},
    {"started_ms", COL_I64, AT(started_ms), 0},
    {"ended_ms", COL_I64, AT(ended_ms), 0},
    {TEXT(image)},
    {HEAP(code)},
    {HEAP(error)},
    {HEAP(remedy)},
};
const struct table build_table = {"builds", sizeof(struct build_row), build_columns,
                                  sizeof(build_columns) / sizeof(*build_columns)};

void build_row_done(struct build_row *row) {
    row_done(&build_table, row);
}

void build_list_done(struct build_list *list) {
    rows_free(&build_table, list->rows, list->count);
    *list = (struct build_list){0};
}

int store_build_put(struct store *s, const struct build_row *row, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_BUILD_PUT, err) < 0 || query_bind(&q, &build_table, row, err) < 0)
        return -1;
    return query_run(&q, NULL, err);
}

static int builds_query(struct store *s, const char *owner, const char *id, struct build_list *ret,
                        struct err *err) {
    QUERY;
    *ret = (struct build_list){0};
    if (query_start(&q, s, STMT_BUILD_LIST, err) < 0)
        return -1;
    query_text(&q, 1, owner);
    query_text(&q, 2, id);
    query_u64(&q, 3, STORE_PAGE_MAX);
    return query_all(&q, &build_table, (void **)&ret->rows, &ret->count, err);
}

int store_build_find(struct store *s, const char *owner, const char *id, struct build_row *ret,
                     struct err *err) {
    struct build_list found;
    if (builds_query(s, owner, id, &found, err) < 0)
        return -1;
    if (!found.count) {
        build_list_done(&found);
        err_set(err, ERR_NOT_FOUND, "build '%.60s' does not exist", id);
        return err_remedy(err, "list builds with `carrel image builds`");
    }
    *ret = found.rows[0];
    found.rows[0] = (struct build_row){0};
    build_list_done(&found);
    return 0;
}

int store_build_list(struct store *s, const char *owner, struct build_list *ret, struct err *err) {
    return builds_query(s, owner, NULL, ret, err);
}

int store_build_delete(struct store *s, const char *id, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_BUILD_DELETE, err) < 0)
        return -1;
    query_text(&q, 1, id);
    return query_run(&q, NULL, err);
}

int store_builds_lose(struct store *s, int64_t now_ms, const char *error, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_BUILDS_LOSE, err) < 0)
        return -1;
    query_u64(&q, 1, (uint64_t)now_ms);
    query_text(&q, 2, error);
    query_u64(&q, 3, BUILD_FAILED);
    query_u64(&q, 4, BUILD_RUNNING);
    return query_run(&q, NULL, err);
}
