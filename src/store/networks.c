#include "store/networks.h"

#include <string.h>

#include "store/store.h"

static int get_text(struct store *s, enum statement id, const char *machine, char **ret,
                    struct err *err) {
    QUERY;
    *ret = NULL;
    if (query_start(&q, s, id, err) < 0)
        return -1;
    query_text(&q, 1, machine);
    int r = query_step(&q, err);
    const char *text = r > 0 ? (const char *)sqlite3_column_text(q.stmt, 0) : NULL;
    if (!text || !*text)
        return r < 0 ? -1 : 0;
    *ret = strdup(text);
    return *ret ? 0
                : err_set(err, ERR_LIMIT,
                          "cannot read the network state of a machine: out of memory");
}

int store_network_get(struct store *s, const char *machine, char **ret, struct err *err) {
    return get_text(s, STMT_NETWORK_GET, machine, ret, err);
}

int store_network_get_authority(struct store *s, const char *machine, char **ret, struct err *err) {
    return get_text(s, STMT_NETWORK_AUTHORITY_GET, machine, ret, err);
}

int store_network_set_authority(struct store *s, const char *machine, const char *pem,
                                struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_NETWORK_AUTHORITY_SET, err) < 0)
        return -1;
    query_text(&q, 1, machine);
    query_text(&q, 2, pem);
    return query_run(&q, NULL, err);
}

int store_network_set(struct store *s, const char *machine, const char *json, struct err *err) {
    QUERY;
    if (strlen(json) > STORE_JSON_MAX)
        return err_set(err, ERR_LIMIT, "the network policy is larger than %d MiB",
                       STORE_JSON_MAX >> 20);
    if (query_start(&q, s, STMT_NETWORK_SET, err) < 0)
        return -1;
    query_text(&q, 1, machine);
    query_text(&q, 2, json);
    return query_run(&q, NULL, err);
}

int store_network_name_put(struct store *s, const char *machine, uint32_t number, const char *name,
                           struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_NETWORK_NAME_PUT, err) < 0)
        return -1;
    query_text(&q, 1, machine);
    query_u64(&q, 2, number);
    query_text(&q, 3, name);
    return query_run(&q, NULL, err);
}

int store_network_names(struct store *s, const char *machine, store_name_fn *fn, void *arg,
                        struct err *err) {
    QUERY;
    int r;
    if (query_start(&q, s, STMT_NETWORK_NAMES, err) < 0)
        return -1;
    query_text(&q, 1, machine);
    while ((r = query_step(&q, err)) == 1) {
        int64_t number = sqlite3_column_int64(q.stmt, 0);
        if (number >= 0 && number <= UINT32_MAX)
            fn(arg, (uint32_t)number, (const char *)sqlite3_column_text(q.stmt, 1));
    }
    return r;
}

#define P(m) #m, COL_TEXT, offsetof(struct pending_row, m), sizeof(((struct pending_row *)0)->m)
static const struct column pending_columns[] = {
    {P(id)},
    {P(machine)},
    {P(host)},
    {"port", COL_U64, offsetof(struct pending_row, port), 0},
    {P(protocol)},
    {P(method)},
    {"path", COL_HEAP, offsetof(struct pending_row, path), 0},
    {"rule", COL_U64, offsetof(struct pending_row, rule), 0},
    {"since_ms", COL_I64, offsetof(struct pending_row, since_ms), 0},
    {"until_ms", COL_I64, offsetof(struct pending_row, until_ms), 0},
    {"approved", COL_U64, offsetof(struct pending_row, approved), 0},
};
const struct table pending_table = {"pendings", sizeof(struct pending_row), pending_columns,
                                    sizeof(pending_columns) / sizeof(*pending_columns)};

int store_pending_put(struct store *s, const struct pending_row *row, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_PENDING_PUT, err) < 0 ||
        query_bind(&q, &pending_table, row, err) < 0)
        return -1;
    return query_run(&q, NULL, err);
}

int store_pending_remove(struct store *s, const char *id, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_PENDING_REMOVE, err) < 0)
        return -1;
    query_text(&q, 1, id);
    return query_run(&q, NULL, err);
}

int store_pending_list(struct store *s, const char *machine, store_pending_fn *fn, void *arg,
                       struct err *err) {
    QUERY;
    void *rows;
    size_t count;
    if (query_start(&q, s, STMT_PENDING_LIST, err) < 0)
        return -1;
    query_text(&q, 1, machine);
    query_u64(&q, 2, STORE_PAGE_MAX);
    if (query_all(&q, &pending_table, &rows, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        fn(arg, (struct pending_row *)rows + i);
    rows_free(&pending_table, rows, count);
    return 0;
}

int store_exposure_put(struct store *s, const char *machine, uint64_t port,
                       const uint8_t hash[SHA256_BYTES], struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_EXPOSURE_PUT, err) < 0)
        return -1;
    query_text(&q, 1, machine);
    query_u64(&q, 2, port);
    query_blob(&q, 3, hash, SHA256_BYTES);
    return query_run(&q, NULL, err);
}

int store_exposure_remove(struct store *s, const char *machine, uint64_t port, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_EXPOSURE_REMOVE, err) < 0)
        return -1;
    query_text(&q, 1, machine);
    query_u64(&q, 2, port);
    return query_run(&q, NULL, err);
}

int store_exposures(struct store *s, const char *machine, store_exposure_fn *fn, void *arg,
                    struct err *err) {
    QUERY;
    int r;
    if (query_start(&q, s, STMT_EXPOSURES, err) < 0)
        return -1;
    query_text(&q, 1, machine);
    while ((r = query_step(&q, err)) == 1)
        if (sqlite3_column_bytes(q.stmt, 1) == SHA256_BYTES)
            fn(arg, (uint64_t)sqlite3_column_int64(q.stmt, 0), sqlite3_column_blob(q.stmt, 1));
    return r;
}
