#include "store/events.h"

#include "store/store.h"

void event_row_done(struct event_row *row) {
    row_done(&event_table, row);
}

void event_list_done(struct event_list *list) {
    rows_free(&event_table, list->rows, list->count);
    *list = (struct event_list){0};
}

int store_event_add(struct store *s, const struct event_row *row, int64_t *ret_id,
                    struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_EVENT_ADD, err) < 0 || query_bind(&q, &event_table, row, err) < 0 ||
        query_run(&q, NULL, err) < 0)
        return -1;
    *ret_id = sqlite3_last_insert_rowid(s->db);
    return 0;
}

int store_event_list(struct store *s, int64_t after, const struct event_filter *f,
                     struct event_list *ret, struct err *err) {
    QUERY;
    void *rows;
    size_t count;
    if (query_start(&q, s, STMT_EVENT_LIST, err) < 0)
        return -1;
    query_i64(&q, 1, after);
    query_text(&q, 2, f->owner);
    query_text(&q, 3, f->machine);
    query_text(&q, 4, f->type);
    query_u64(&q, 5, page_limit(f->limit));
    if (query_all(&q, &event_table, &rows, &count, err) < 0)
        return -1;
    *ret = (struct event_list){rows, count};
    return 0;
}

int store_event_range(struct store *s, int64_t *ret_oldest, int64_t *ret_newest, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_EVENT_RANGE, err) < 0)
        return -1;
    if (query_step(&q, err) != 1)
        return -1;
    *ret_oldest = sqlite3_column_int64(q.stmt, 0);
    *ret_newest = sqlite3_column_int64(q.stmt, 1);
    return 0;
}

int store_event_trim(struct store *s, int64_t before_ms, uint64_t keep, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_EVENT_TRIM, err) < 0)
        return -1;
    query_i64(&q, 1, before_ms);
    query_u64(&q, 2, keep);
    return query_run(&q, NULL, err);
}
