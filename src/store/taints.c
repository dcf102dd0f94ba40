#include "store/taints.h"

#include "store/store.h"

int store_taint_put(struct store *s, const char *owner, const char *kind, const char *key,
                    const char *source, int64_t since_ms, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_TAINT_PUT, err) < 0)
        return -1;
    query_text(&q, 1, owner);
    query_text(&q, 2, kind);
    query_text(&q, 3, key);
    query_text(&q, 4, source);
    query_u64(&q, 5, (uint64_t)since_ms);
    return query_run(&q, NULL, err);
}

int store_taint_each(struct store *s, const char *owner, const char *kind, store_taint_fn *fn,
                     void *arg, struct err *err) {
    QUERY;
    int r;
    if (query_start(&q, s, STMT_TAINT_EACH, err) < 0)
        return -1;
    query_text(&q, 1, owner);
    query_text(&q, 2, kind);
    while ((r = query_step(&q, err)) == 1)
        fn(arg, (const char *)sqlite3_column_text(q.stmt, 0),
           (const char *)sqlite3_column_text(q.stmt, 1));
    return r;
}

int store_taint_remove(struct store *s, const char *owner, const char *kind, const char *key,
                       struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_TAINT_REMOVE, err) < 0)
        return -1;
    query_text(&q, 1, owner);
    query_text(&q, 2, kind);
    query_text(&q, 3, key);
    return query_run(&q, NULL, err);
}

int store_taint_trim(struct store *s, const char *kind, int64_t before_ms, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_TAINT_TRIM, err) < 0)
        return -1;
    query_text(&q, 1, kind);
    query_u64(&q, 2, before_ms > 0 ? (uint64_t)before_ms : 0);
    return query_run(&q, NULL, err);
}
