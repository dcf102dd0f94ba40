#include "store/execs.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "store/store.h"

static const char *const state_names[] = {"", "starting", "running", "exited", "unknown", "failed"};
static const struct names states = {"state", state_names, EXEC_STATE_LAST + 1};

const char *exec_state_name(enum exec_state state) {
    return names_get(&states, (int)state);
}

int exec_state_parse(const char *name, enum exec_state *ret, struct err *err) {
    int value = 0;
    if (names_parse(&states, name, &value, err) < 0)
        return -1;
    *ret = (enum exec_state)value;
    return 0;
}

void exec_row_done(struct exec_row *row) {
    row_done(&exec_table, row);
}

enum exec_end exec_row_end(const struct exec_row *row) {
    return exec_end_of(exec_state_name(row->state), row->reason);
}

void exec_row_set_end(struct exec_row *row, enum exec_end end) {
    const char *word = exec_end_word(end);
    assert(word);
    row->state = EXEC_EXITED;
    snprintf(row->reason, sizeof(row->reason), "%s", word);
}

void exec_list_done(struct exec_list *list) {
    rows_free(&exec_table, list->rows, list->count);
    *list = (struct exec_list){0};
}

/* Returns 1 and the id of the command that this idempotency key started in the machine before. */
static int started_before(struct store *s, const struct exec_row *row, char ret_existing[ID_SIZE],
                          struct err *err) {
    QUERY;
    ret_existing[0] = '\0';
    if (row->key[0] == '\0')
        return 0;
    if (query_start(&q, s, STMT_EXEC_BY_KEY, err) < 0)
        return -1;
    query_text(&q, 1, row->owner);
    query_text(&q, 2, row->machine);
    query_text(&q, 3, row->key);
    return idempotency_check(&q, row->request_hash, row->key, ret_existing, err);
}

int store_exec_last(struct store *s, const char *machine, uint32_t *ret, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_EXEC_NUMBER, err) < 0)
        return -1;
    query_text(&q, 1, machine);
    if (query_step(&q, err) != 1)
        return -1;
    int64_t last = sqlite3_column_int64(q.stmt, 0);
    if (last < 0 || last > UINT32_MAX)
        return err_set(err, ERR_INTERNAL, "the stored commands of machine '%s' are damaged",
                       machine);
    *ret = (uint32_t)last;
    return 0;
}

static int next_number(struct store *s, struct exec_row *row, struct err *err) {
    uint32_t last;
    if (row->number != 0)
        return 0;
    if (store_exec_last(s, row->machine, &last, err) < 0)
        return -1;
    if (last >= EXEC_NUMBERS_END - 1)
        return err_set(err, ERR_LIMIT,
                       "machine '%s' has run too many commands: use another machine", row->machine);
    row->number = last + 1;
    return 0;
}

int store_exec_add(struct store *s, struct exec_row *row, char ret_existing[ID_SIZE],
                   struct err *err) {
    QUERY;
    int before = started_before(s, row, ret_existing, err);
    if (before != 0)
        return before < 0 ? -1 : 0;
    if (next_number(s, row, err) < 0 || query_start(&q, s, STMT_EXEC_ADD, err) < 0 ||
        query_bind(&q, &exec_table, row, err) < 0)
        return -1;
    if (query_run(&q, NULL, err) == 0)
        return 0;
    if (err && err->code == ERR_NOT_FOUND)
        err_set(err, ERR_NOT_FOUND, "machine '%s' does not exist", row->machine);
    return -1;
}

int store_exec_get(struct store *s, const char *id, struct exec_row *ret, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_EXEC_GET, err) < 0)
        return -1;
    query_text(&q, 1, id);
    return query_one(&q, &exec_table, ret, "exec", id, err);
}

int store_exec_by_number(struct store *s, const char *machine, uint32_t number,
                         struct exec_row *ret, struct err *err) {
    QUERY;
    char which[48];
    if (query_start(&q, s, STMT_EXEC_BY_NUMBER, err) < 0)
        return -1;
    query_text(&q, 1, machine);
    query_i64(&q, 2, number);
    snprintf(which, sizeof(which), "%u of %.20s", number, machine);
    return query_one(&q, &exec_table, ret, "exec", which, err);
}

int store_exec_by_pid(struct store *s, const char *machine, uint32_t pid, struct exec_row *ret,
                      struct err *err) {
    QUERY;
    char which[48];
    if (query_start(&q, s, STMT_EXEC_BY_PID, err) < 0)
        return -1;
    query_text(&q, 1, machine);
    query_i64(&q, 2, pid);
    snprintf(which, sizeof(which), "with pid %u of %.20s", pid, machine);
    return query_one(&q, &exec_table, ret, "exec", which, err);
}

int store_exec_list(struct store *s, const struct exec_filter *f, struct exec_list *ret,
                    struct err *err) {
    QUERY;
    void *rows;
    size_t count;
    if (query_start(&q, s, STMT_EXEC_LIST, err) < 0)
        return -1;
    query_text(&q, 1, f->machine);
    query_text(&q, 2, f->owner);
    query_i64(&q, 3, f->states ? f->states : UINT32_MAX);
    query_i64(&q, 4, f->before ? f->before : INT64_MAX);
    query_u64(&q, 5, page_limit(f->limit));
    query_u64(&q, 6, f->without);
    if (query_all(&q, &exec_table, &rows, &count, err) < 0)
        return -1;
    *ret = (struct exec_list){rows, count};
    return 0;
}

int store_exec_started(struct store *s, const char *id, int64_t started_ms, uint32_t pid,
                       struct err *err) {
    QUERY;
    size_t changed;
    if (query_start(&q, s, STMT_EXEC_STARTED, err) < 0)
        return -1;
    query_text(&q, 1, id);
    query_i64(&q, 2, started_ms);
    query_i64(&q, 3, pid);
    if (query_run(&q, &changed, err) < 0)
        return -1;
    return changed ? 0 : err_set(err, ERR_NOT_FOUND, "command '%.80s' is not starting", id);
}

int store_exec_finish(struct store *s, const struct exec_row *row, struct err *err) {
    QUERY;
    size_t changed;
    if (query_start(&q, s, STMT_EXEC_FINISH, err) < 0 ||
        query_bind(&q, &exec_table, row, err) < 0 || query_run(&q, &changed, err) < 0)
        return -1;
    return changed ? 0 : err_set(err, ERR_NOT_FOUND, "command '%.80s' is not running", row->id);
}

int store_exec_store(struct store *s, const char *id, const char *stored, struct err *err) {
    QUERY;
    size_t changed;
    if (query_start(&q, s, STMT_EXEC_STORE, err) < 0)
        return -1;
    query_text(&q, 1, id);
    query_text(&q, 2, stored);
    if (query_run(&q, &changed, err) < 0)
        return -1;
    return changed ? 0 : err_set(err, ERR_NOT_FOUND, "command '%.80s' is not running", id);
}

int store_exec_trim(struct store *s, const char *machine, size_t keep, size_t piece,
                    struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_EXEC_TRIM, err) < 0)
        return -1;
    query_text(&q, 1, machine);
    query_u64(&q, 2, keep);
    query_u64(&q, 3, piece);
    return query_run(&q, NULL, err);
}

int store_exec_lose(struct store *s, const char *machine, int64_t now_ms, const char *reason,
                    size_t *ret_count, struct err *err) {
    QUERY;
    char text[STORE_REASON_SIZE];
    snprintf(text, sizeof(text), "%s", reason);
    if (query_start(&q, s, STMT_EXEC_LOSE, err) < 0)
        return -1;
    query_text(&q, 1, machine);
    query_i64(&q, 2, now_ms);
    query_text(&q, 3, text);
    return query_run(&q, ret_count, err);
}
