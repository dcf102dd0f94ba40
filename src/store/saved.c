#include "store/saved.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/store.h"

void saved_row_done(struct saved_row *row) {
    free(row->source);
    free(row->stack);
    row->source = row->stack = NULL;
}

uint32_t saved_copy_of(const struct layer *l, const struct saved_row *row,
                       const struct layers *from, const struct layers *to) {
    if (strcmp(l->machine, row->disk) == 0)
        return l->number;
    for (size_t i = 0; i < from->count && i < to->count; i++)
        if (from->v[i].number == l->number && strcmp(from->v[i].machine, l->machine) == 0)
            return to->v[i].number;
    return 0;
}

int saved_plan(struct saved_row *row, const char *stack, struct saved_plan *ret, struct err *err) {
    struct layers from, to;
    if (layers_parse(stack, &ret->from, err) < 0 ||
        layers_parse(row->source ? row->source : "", &from, err) < 0 ||
        layers_parse(row->stack ? row->stack : "", &to, err) < 0)
        return -1;
    ret->to.count = ret->from.count;
    for (size_t i = 0; i < ret->from.count; i++) {
        uint32_t number = saved_copy_of(&ret->from.v[i], row, &from, &to);
        ret->missing[i] = number == 0;
        if (!number && row->next >= LAYER_NUMBER_MAX)
            return err_set(
                err, ERR_LIMIT,
                "too many layers (file changes) of machine '%s' were copied to the store",
                row->machine);
        snprintf(ret->to.v[i].machine, ID_SIZE, "%s", row->disk);
        ret->to.v[i].number = number ? number : row->next++;
    }
    return 0;
}

int store_saved_put(struct store *s, const struct saved_row *row, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_SAVED_PUT, err) < 0 || query_bind(&q, &saved_table, row, err) < 0)
        return -1;
    return query_run(&q, NULL, err);
}

int store_saved_get(struct store *s, const char *machine, struct saved_row *ret, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_SAVED_GET, err) < 0)
        return -1;
    query_text(&q, 1, machine);
    return query_one(&q, &saved_table, ret, "saved step of machine", machine, err);
}

/* Takes the disks out of the map that a text of the store names. */
static void take_named(struct map *disks, const char *text) {
    char id[ID_SIZE];
    for (const char *at = text; disks->count && (at = strstr(at, "d-")); at++) {
        snprintf(id, sizeof(id), "%.*s", (int)sizeof(id) - 1, at);
        map_take(disks, id);
    }
}

int store_saved_take_used(struct store *s, struct map *disks, struct err *err) {
    QUERY;
    int r;
    if (query_start(&q, s, STMT_SAVED_USED, err) < 0)
        return -1;
    while ((r = query_step(&q, err)) == 1) {
        const char *text = (const char *)sqlite3_column_text(q.stmt, 0);
        if (!text && sqlite3_column_type(q.stmt, 0) != SQLITE_NULL)
            return err_set(err, ERR_LIMIT, "out of memory");
        if (text)
            take_named(disks, text);
    }
    return r < 0 ? -1 : 0;
}

int store_step_durable(struct store *s, const char *machine, const char *step, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_STEP_DURABLE, err) < 0)
        return -1;
    query_text(&q, 1, machine);
    query_text(&q, 2, step);
    return query_run(&q, NULL, err);
}

static int lose_begun(struct store *s, const char *machine, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_STEPS_LOSE_BEGUN, err) < 0)
        return -1;
    query_text(&q, 1, machine);
    return query_run(&q, NULL, err);
}

int store_step_move(struct store *s, const char *step, const char *stack, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_STEP_MOVE, err) < 0)
        return -1;
    query_text(&q, 1, step);
    query_text(&q, 2, stack ? stack : "");
    return query_run(&q, NULL, err);
}

int store_steps_lose(struct store *s, const struct saved_row *row, const char *reason,
                     struct err *err) {
    QUERY;
    if (lose_begun(s, row->machine, err) < 0 ||
        store_step_move(s, row->step, row->stack, err) < 0 ||
        query_start(&q, s, STMT_STEPS_LOSE, err) < 0)
        return -1;
    query_text(&q, 1, row->machine);
    query_text(&q, 2, row->step);
    query_text(&q, 3, reason);
    return query_run(&q, NULL, err);
}
