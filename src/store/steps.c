#include "store/steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/store.h"

static const char *const kind_names[] = {"",     "exec",   "file", "snap",
                                         "kept", "rewind", "fork", "refresh"};
static const struct names kinds = {"kind of step", kind_names, STEP_KIND_LAST + 1};

const char *step_kind_name(enum step_kind kind) {
    return names_get(&kinds, (int)kind);
}

void step_row_done(struct step_row *row) {
    row_done(&step_table, row);
}

void step_list_done(struct step_list *list) {
    rows_free(&step_table, list->rows, list->count);
    *list = (struct step_list){0};
}

void root_row_done(struct root_row *row) {
    row_done(&root_table, row);
}

static int next_number(struct store *s, struct step_row *row, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_STEP_NUMBER, err) < 0)
        return -1;
    query_text(&q, 1, row->machine);
    if (query_step(&q, err) != 1)
        return -1;
    row->number = (uint32_t)sqlite3_column_int64(q.stmt, 0) + 1;
    return 0;
}

static int explain(const struct step_row *row, struct err *err) {
    if (err && err->code == ERR_EXISTS) {
        err_set(err, ERR_EXISTS, "machine '%s' already has a step named '%s'", row->machine,
                row->name);
        err_remedy(err, "choose another name");
    } else if (err && err->code == ERR_NOT_FOUND) {
        err_set(err, ERR_NOT_FOUND, "machine '%s' does not exist", row->machine);
    }
    return -1;
}

int store_step_add(struct store *s, struct step_row *row, struct err *err) {
    QUERY;
    if (next_number(s, row, err) < 0 || query_start(&q, s, STMT_STEP_ADD, err) < 0 ||
        query_bind(&q, &step_table, row, err) < 0)
        return -1;
    return query_run(&q, NULL, err) < 0 ? explain(row, err) : 0;
}

int store_step_update(struct store *s, const struct step_row *row, struct err *err) {
    QUERY;
    size_t changed;
    if (query_start(&q, s, STMT_STEP_UPDATE, err) < 0 || query_bind(&q, &step_table, row, err) < 0)
        return -1;
    if (query_run(&q, &changed, err) < 0)
        return explain(row, err);
    return changed ? 0 : err_set(err, ERR_NOT_FOUND, "step '%s' does not exist", row->id);
}

int store_step_find(struct store *s, const char *machine, const char *text, struct step_row *ret,
                    struct err *err) {
    QUERY;
    bool last = strcmp(text, "last") == 0;
    /* A review compares with the step after a command, which may be gone: no name replaces it. */
    bool is_id = id_valid(text, strlen(text), 's') || id_valid(text, strlen(text), 'x');
    if (query_start(&q, s, STMT_STEP_FIND, err) < 0)
        return -1;
    query_text(&q, 1, machine);
    query_text(&q, 2, text);
    query_i64(&q, 3, last);
    query_i64(&q, 4, is_id);
    int got = query_step(&q, err);
    if (got < 0)
        return -1;
    if (got == 1)
        return query_read(&q, &step_table, ret, err);
    err_set(err, ERR_NOT_FOUND, "machine '%s' has no step '%.60s'", machine, text);
    return err_remedy(err, "list its steps with: carrel steps %s", machine);
}

int store_step_point_before(struct store *s, const char *machine, uint32_t number,
                            struct step_row *ret, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_STEP_POINT, err) < 0)
        return -1;
    query_text(&q, 1, machine);
    query_i64(&q, 2, number);
    int got = query_step(&q, err);
    if (got < 0)
        return -1;
    return got == 1 ? query_read(&q, &step_table, ret, err)
                    : err_set(err, ERR_NOT_FOUND,
                              "machine '%s' has no restore point before step %u", machine, number);
}

static int read_all(struct query *q, struct step_list *ret, struct err *err) {
    void *rows;
    size_t count;
    if (query_all(q, &step_table, &rows, &count, err) < 0)
        return -1;
    *ret = (struct step_list){rows, count};
    return 0;
}

int store_step_list(struct store *s, const char *machine, uint32_t before, bool taking,
                    size_t limit, struct step_list *ret, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_STEP_LIST, err) < 0)
        return -1;
    query_text(&q, 1, machine);
    query_i64(&q, 2, before ? before : UINT32_MAX);
    query_i64(&q, 3, taking);
    query_u64(&q, 4, page_limit(limit));
    return read_all(&q, ret, err);
}

int store_step_oldest(struct store *s, const char *machine, size_t limit, struct step_list *ret,
                      struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_STEP_OLDEST, err) < 0)
        return -1;
    query_text(&q, 1, machine);
    query_u64(&q, 2, page_limit(limit));
    return read_all(&q, ret, err);
}

int store_step_count(struct store *s, const char *machine, uint64_t *ret, uint64_t *ret_bytes,
                     struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_STEP_COUNT, err) < 0)
        return -1;
    query_text(&q, 1, machine);
    if (query_step(&q, err) != 1)
        return -1;
    *ret = (uint64_t)sqlite3_column_int64(q.stmt, 0);
    *ret_bytes = (uint64_t)sqlite3_column_int64(q.stmt, 1);
    return 0;
}

int store_step_name(struct store *s, const struct step_row *row, const char *name,
                    struct err *err) {
    QUERY;
    struct step_row named = *row;
    snprintf(named.name, sizeof(named.name), "%s", name);
    if (query_start(&q, s, STMT_STEP_NAME, err) < 0)
        return -1;
    query_text(&q, 1, row->id);
    query_text(&q, 2, name);
    return query_run(&q, NULL, err) < 0 ? explain(&named, err) : 0;
}

int store_step_delete(struct store *s, const char *id, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_STEP_DELETE, err) < 0)
        return -1;
    query_text(&q, 1, id);
    return query_run(&q, NULL, err);
}

int store_root_put(struct store *s, const struct root_row *row, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_ROOT_PUT, err) < 0 || query_bind(&q, &root_table, row, err) < 0)
        return -1;
    return query_run(&q, NULL, err);
}

int store_root_get(struct store *s, const char *machine, struct root_row *ret, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_ROOT_GET, err) < 0)
        return -1;
    query_text(&q, 1, machine);
    return query_one(&q, &root_table, ret, "root of machine", machine, err);
}

static int each_stack(struct store *s, int statement, const char *machine, stack_fn *each,
                      void *arg, struct err *err) {
    QUERY;
    int got;
    if (query_start(&q, s, statement, err) < 0)
        return -1;
    query_text(&q, 1, machine);
    while ((got = query_step(&q, err)) == 1)
        each(arg, (const char *)sqlite3_column_text(q.stmt, 0));
    return got;
}

int store_stacks_with(struct store *s, const char *machine, stack_fn *each, void *arg,
                      struct err *err) {
    return each_stack(s, STMT_STACKS_WITH, machine, each, arg, err);
}

int store_stacks_of_others(struct store *s, const char *machine, stack_fn *each, void *arg,
                           struct err *err) {
    return each_stack(s, STMT_STACKS_OF_OTHERS, machine, each, arg, err);
}

int store_stacks_all(struct store *s, stack_of_fn *each, void *arg, struct err *err) {
    QUERY;
    int got;
    if (query_start(&q, s, STMT_STACKS_ALL, err) < 0)
        return -1;
    while ((got = query_step(&q, err)) == 1)
        each(arg, (const char *)sqlite3_column_text(q.stmt, 0),
             (const char *)sqlite3_column_text(q.stmt, 1));
    return got;
}
