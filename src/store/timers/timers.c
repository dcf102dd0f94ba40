#include "store/timers/timers.h"

#include "store/store.h"

#define AT(m) offsetof(struct timer_row, m)
#define TEXT(m) #m, COL_TEXT, AT(m), sizeof(((struct timer_row *)0)->m)
#define NAME(m) #m, COL_NAME, AT(m), sizeof(((struct timer_row *)0)->m)
static const struct column timer_columns[] = {
    {TEXT(id)},
    {TEXT(machine)},
    {TEXT(owner)},
    {NAME(token)},
    {"argv", COL_HEAP, AT(argv), 0},
    {TEXT(user)},
    {"every_ms", COL_U64, AT(every_ms), 0},
    {"next_ms", COL_I64, AT(next_ms), 0},
    {"due_ms", COL_I64, AT(due_ms), 0},
    {"created_ms", COL_I64, AT(created_ms), 0},
    {"last_ms", COL_I64, AT(last_ms), 0},
    {NAME(last_exec)},
    {"runs", COL_U64, AT(runs), 0},
    {"missed", COL_U64, AT(missed), 0},
    {"error", COL_HEAP, AT(error), 0},
    {NAME(task)},
};
const struct table timer_table = {"timers", sizeof(struct timer_row), timer_columns,
                                  sizeof(timer_columns) / sizeof(*timer_columns)};

void timer_row_done(struct timer_row *row) {
    free(row->argv);
    free(row->error);
    *row = (struct timer_row){0};
}

void timer_list_done(struct timer_list *list) {
    rows_free(&timer_table, list->rows, list->count);
    *list = (struct timer_list){0};
}

int store_timer_put(struct store *s, const struct timer_row *row, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_TIMER_PUT, err) < 0 || query_bind(&q, &timer_table, row, err) < 0)
        return -1;
    return query_run(&q, NULL, err);
}

int store_timer_list(struct store *s, const char *owner, const char *machine, const char *id,
                     struct timer_list *ret, struct err *err) {
    QUERY;
    *ret = (struct timer_list){0};
    if (query_start(&q, s, STMT_TIMER_LIST, err) < 0)
        return -1;
    query_text(&q, 1, owner);
    query_text(&q, 2, machine);
    query_text(&q, 3, id);
    query_u64(&q, 4, STORE_TIMERS_MAX);
    return query_all(&q, &timer_table, (void **)&ret->rows, &ret->count, err);
}

int store_timer_due(struct store *s, int64_t now_ms, bool begun, struct timer_list *ret,
                    struct err *err) {
    QUERY;
    *ret = (struct timer_list){0};
    if (query_start(&q, s, STMT_TIMER_DUE, err) < 0)
        return -1;
    query_u64(&q, 1, (uint64_t)now_ms);
    query_u64(&q, 2, begun);
    return query_all(&q, &timer_table, (void **)&ret->rows, &ret->count, err);
}

int store_timer_next(struct store *s, int64_t *ret_ms, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_TIMER_NEXT, err) < 0)
        return -1;
    int r = query_step(&q, err);
    if (r < 0)
        return -1;
    *ret_ms = r ? sqlite3_column_int64(q.stmt, 0) : 0;
    return 0;
}

int store_timer_remove(struct store *s, const char *id, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_TIMER_REMOVE, err) < 0)
        return -1;
    query_text(&q, 1, id);
    return query_run(&q, NULL, err);
}
