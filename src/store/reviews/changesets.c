#include "store/reviews/changesets.h"

#include <string.h>

#include "store/store.h"

enum { FORGET_MAX = 1000 };

#define AT(m) offsetof(struct changeset_row, m)
#define TEXT(m) #m, COL_TEXT, AT(m), sizeof(((struct changeset_row *)0)->m)
static const struct column changeset_columns[] = {
    {"number", COL_U64, AT(number), 0},
    {TEXT(id)},
    {TEXT(owner)},
    {TEXT(machine)},
    {"subject", COL_HEAP, AT(subject), 0},
    {TEXT(sha256)},
    {"state", COL_ENUM, AT(state), CHANGESET_STATES - 1},
    {TEXT(instead)},
    {"created_ms", COL_I64, AT(created_ms), 0},
    {"changed_ms", COL_I64, AT(changed_ms), 0},
    {"words", COL_JSON, AT(words), 0},
};
const struct table changeset_table = {"changesets", sizeof(struct changeset_row), changeset_columns,
                                      sizeof(changeset_columns) / sizeof(*changeset_columns)};

static const char *const state_names[] = {NULL,     "pending",    "returned", "shipped",
                                          "undone", "superseded", "dropped"};
static const struct names states = {"state of a change set", state_names, CHANGESET_STATES};

const char *changeset_state_name(enum changeset_state state) {
    return names_get(&states, (int)state);
}

int changeset_state_parse(const char *text, enum changeset_state *ret, struct err *err) {
    int value;
    if (names_parse(&states, text, &value, err) < 0)
        return -1;
    *ret = (enum changeset_state)value;
    return 0;
}

void changeset_row_done(struct changeset_row *row) {
    row_done(&changeset_table, row);
}

void changeset_rows_done(struct changeset_rows *list) {
    rows_free(&changeset_table, list->rows, list->count);
    *list = (struct changeset_rows){0};
}

static bool is_open(enum changeset_state state) {
    return state == CHANGESET_PENDING || state == CHANGESET_RETURNED;
}

/* ---- reading ---- */

int store_changeset_find(struct store *s, const char *id, struct changeset_row *ret,
                         struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_CHANGESET_FIND, err) < 0)
        return -1;
    query_text(&q, 1, id);
    return query_one(&q, &changeset_table, ret, "change set", id, err);
}

int store_changeset_list(struct store *s, const struct changeset_filter *filter,
                         struct changeset_rows *ret, struct err *err) {
    QUERY;
    *ret = (struct changeset_rows){0};
    enum statement which = filter->machine ? STMT_CHANGESET_LIST_MACHINE
                           : filter->owner ? STMT_CHANGESET_LIST_OWNER
                                           : STMT_CHANGESET_LIST;
    if (query_start(&q, s, which, err) < 0)
        return -1;
    query_u64(&q, 1, filter->states);
    query_u64(&q, 2, filter->before ? filter->before : STORE_NUMBER_MAX);
    query_u64(&q, 3, page_limit(filter->limit));
    if (filter->owner)
        query_text(&q, 4, filter->owner);
    if (filter->machine)
        query_text(&q, 5, filter->machine);
    return query_all(&q, &changeset_table, (void **)&ret->rows, &ret->count, err);
}

int store_changeset_count(struct store *s, uint64_t *ret, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_CHANGESET_COUNT, err) < 0 || query_step(&q, err) < 0)
        return -1;
    *ret = (uint64_t)sqlite3_column_int64(q.stmt, 0);
    return 0;
}

/* ---- writing ---- */

/* Finds the last change set of the same subject that was not superseded. *ret_state 0: none. */
static int find_last(struct store *s, const struct changeset_row *row, struct changeset_row *ret,
                     struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_CHANGESET_LAST, err) < 0)
        return -1;
    query_text(&q, 1, row->machine);
    query_text(&q, 2, row->subject);
    int found = query_step(&q, err);
    return found <= 0 ? found : query_read(&q, &changeset_table, ret, err) < 0 ? -1 : 1;
}

/* Sets state and `instead` of one row. */
static int row_set(struct store *s, const char *id, enum changeset_state state, const char *instead,
                   int64_t now_ms, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_CHANGESET_SET, err) < 0)
        return -1;
    query_text(&q, 1, id);
    query_u64(&q, 2, state);
    query_text(&q, 3, instead);
    query_i64(&q, 4, now_ms);
    return query_run(&q, NULL, err);
}

static int row_add(struct store *s, const struct changeset_row *row, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_CHANGESET_NUMBER, err) < 0 || query_step(&q, err) < 0)
        return -1;
    struct changeset_row with_number = *row;
    with_number.number = (uint64_t)sqlite3_column_int64(q.stmt, 0);
    query_done(&q);
    if (query_start(&q, s, STMT_CHANGESET_ADD, err) < 0 ||
        query_bind(&q, &changeset_table, &with_number, err) < 0)
        return -1;
    return query_run(&q, NULL, err);
}

static int add_after(struct store *s, const struct changeset_row *row, struct err *err) {
    struct changeset_row last DEFER(changeset_row_done) = {0}, added = *row;
    int found = find_last(s, row, &last, err);
    if (found < 0)
        return -1;
    bool same = found && !is_open(last.state) && strcmp(last.sha256, row->sha256) == 0;
    added.state = same ? CHANGESET_SUPERSEDED : CHANGESET_PENDING;
    memcpy(added.instead, same ? last.id : (char[ID_SIZE]){0}, ID_SIZE);
    if (found && is_open(last.state) &&
        row_set(s, last.id, CHANGESET_SUPERSEDED, row->id, row->created_ms, err) < 0)
        return -1;
    return row_add(s, &added, err);
}

static int decide(struct store *s, const char *id, enum changeset_state state, int64_t now_ms,
                  struct err *err) {
    struct changeset_row row DEFER(changeset_row_done) = {0}, last DEFER(changeset_row_done) = {0};
    if (store_changeset_find(s, id, &row, err) < 0)
        return err->code == ERR_NOT_FOUND ? 0 : -1;
    if (row_set(s, id, state, "", now_ms, err) < 0)
        return -1;
    int found = state == CHANGESET_DROPPED ? 0 : find_last(s, &row, &last, err);
    if (found <= 0 || !is_open(last.state) || strcmp(last.sha256, row.sha256) != 0)
        return found < 0 ? -1 : 0;
    return row_set(s, last.id, CHANGESET_SUPERSEDED, id, now_ms, err);
}

/* Makes the writes that ended with `status` one transaction, unless the caller has begun one. */
static int end_writes(struct store *s, bool begun, int status, struct err *err) {
    if (begun && status < 0)
        store_rollback(s);
    return begun && status == 0 ? store_commit(s, err) : status;
}

int store_changeset_add(struct store *s, const struct changeset_row *row, struct err *err) {
    bool begun = !store_in_transaction(s);
    if (begun && store_begin(s, err) < 0)
        return -1;
    return end_writes(s, begun, add_after(s, row, err), err);
}

int store_changeset_decide(struct store *s, const char *id, enum changeset_state state,
                           int64_t now_ms, struct err *err) {
    bool begun = !store_in_transaction(s);
    if (begun && store_begin(s, err) < 0)
        return -1;
    return end_writes(s, begun, decide(s, id, state, now_ms, err), err);
}

int store_changesets_return(struct store *s, const char *machine, int64_t now_ms, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_CHANGESETS_RETURN, err) < 0)
        return -1;
    query_text(&q, 1, machine);
    query_i64(&q, 2, now_ms);
    return query_run(&q, NULL, err);
}

int store_changesets_forget(struct store *s, int64_t before_ms, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_CHANGESETS_FORGET, err) < 0)
        return -1;
    query_i64(&q, 1, before_ms);
    query_u64(&q, 2, FORGET_MAX);
    return query_run(&q, NULL, err);
}
