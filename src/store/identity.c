/*
 * The id of a store. It is written once, and stays in the database when the database is moved or
 * restored.
 */
#include <string.h>

#include "store/store.h"

static int read_id(struct store *s, char ret[ID_SIZE], struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_META_GET, err) < 0)
        return -1;
    query_text(&q, 1, "store");
    int got = query_step(&q, err);
    if (got <= 0)
        return got;
    const char *text = (const char *)sqlite3_column_text(q.stmt, 0);
    if (!text || !id_valid(text, strlen(text), 's')) {
        err_set(err, ERR_INVALID, "the id of the store is damaged");
        return err_remedy(err, "restore carrel.db from a backup");
    }
    memcpy(ret, text, ID_SIZE);
    return 1;
}

int store_identity_open(struct store *s, struct err *err) {
    QUERY;
    int got = read_id(s, s->id, err);
    if (got != 0)
        return got < 0 ? -1 : 0;
    struct id fresh = id_new('s');
    if (query_start(&q, s, STMT_META_ADD, err) < 0)
        return -1;
    query_text(&q, 1, "store");
    query_text(&q, 2, fresh.text);
    if (query_run(&q, NULL, err) < 0)
        return -1;
    memcpy(s->id, fresh.text, sizeof(s->id));
    return 0;
}

const char *store_id(const struct store *s) {
    return s->id;
}
