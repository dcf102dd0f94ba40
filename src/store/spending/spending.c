#include "store/spending/spending.h"

#include <string.h>

#include "base/alloc.h"
#include "store/store.h"

enum { DAY_MS = 86400 * 1000 };

#define AT(m) offsetof(struct spending_row, m)
static const struct column spending_columns[] = {
    {"key", COL_TEXT, AT(key), SPENDING_KEY_SIZE},
    {"calls", COL_U64, AT(calls), 0},
    {"tokens", COL_U64, AT(cost.tokens), 0},
    {"micro", COL_U64, AT(cost.micro), 0},
    {"fresh", COL_U64, AT(parts.in), 0},
    {"cache_read", COL_U64, AT(parts.cache_read), 0},
    {"cache_write", COL_U64, AT(parts.cache_write), 0},
    {"written", COL_U64, AT(parts.out), 0},
};
const struct table spending_table = {"spending", sizeof(struct spending_row), spending_columns,
                                     sizeof(spending_columns) / sizeof(*spending_columns)};

static int spending_drop_old(struct store *s, int64_t day, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_SPENDING_DROP, err) < 0)
        return -1;
    query_i64(&q, 1, day - SPENDING_DAYS);
    return query_run(&q, NULL, err);
}

int spending_add(struct store *s, const char *account, const char *model, int64_t when_ms,
                 const struct cost *cost, const struct cost_parts *parts, struct err *err) {
    QUERY;
    const struct cost_parts none = {0}, *p = parts ? parts : &none;
    const uint64_t numbers[] = {cost->tokens,  cost->micro,    p->in,
                                p->cache_read, p->cache_write, p->out};
    int64_t day = when_ms / DAY_MS;
    if (!cost->tokens && !cost->micro)
        return 0;
    if (spending_drop_old(s, day, err) < 0 || query_start(&q, s, STMT_SPENDING_ADD, err) < 0)
        return -1;
    query_text(&q, 1, account);
    query_i64(&q, 2, day);
    query_text(&q, 3, model);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        query_u64(&q, 4 + (int)i, account_at_most(numbers[i]));
    return query_run(&q, NULL, err);
}

int store_spending(struct store *s, const char *owner, enum spending_by by, int64_t since,
                   struct spending_row **ret, size_t *ret_count, struct err *err) {
    static const enum statement statements[SPENDING_BYS] = {
        STMT_SPENDING_BY_DAY, STMT_SPENDING_BY_MODEL, STMT_SPENDING_BY_MACHINE,
        STMT_SPENDING_BY_OWNER};
    QUERY;
    if (query_start(&q, s, statements[by], err) < 0)
        return -1;
    query_text(&q, 1, owner);
    query_i64(&q, 2, since);
    query_u64(&q, 3, SPENDING_ROWS_MAX);
    return query_all(&q, &spending_table, (void **)ret, ret_count, err);
}
