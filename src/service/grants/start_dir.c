/*
 * The start directory of a machine: commands without a working directory of their own start there.
 *
 * It is the first directory, or else the first repository, that the machine was created with. Its
 * grant has "start" in its detail, so that a new daemon and forks know it. If the grant is revoked,
 * commands start in the home directory again.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/log.h"
#include "service/grants/inner.h"

static struct grant_row *first_of_kind(struct grant_plan *p, const char *kind) {
    for (size_t i = 0; i < p->count; i++)
        if (strcmp(p->rows[i].kind, kind) == 0)
            return &p->rows[i];
    return NULL;
}

void grant_plan_mark_start(struct grant_plan *p) {
    struct grant_row *row = first_of_kind(p, "dir");
    if (!row)
        row = first_of_kind(p, "repo");
    if (!row)
        return;
    json_t *detail = row->detail ? json_loads(row->detail, 0, NULL) : json_object();
    if (detail && json_object_set_new(detail, "start", json_true()) == 0) {
        free(row->detail);
        row->detail = json_dumps(detail, JSON_COMPACT);
    }
    json_decref(detail);
}

static bool is_start(const struct grant_row *row) {
    json_t *detail = row->detail ? json_loads(row->detail, 0, NULL) : NULL;
    bool is = json_is_true(json_object_get(detail, "start"));
    json_decref(detail);
    return is;
}

void grants_restore_start(struct live *l) {
    struct grant_list list DEFER(grant_list_done) = {0};
    struct err err;
    if (store_grant_list(l->service->store, l->row.id, NULL, &list, &err) < 0) {
        log_line(LOG_ERROR, "service", "find the start directory of a machine: %s id=%s", err.text,
                 l->row.id);
        return;
    }
    free(l->cwd);
    l->cwd = NULL;
    for (size_t i = 0; i < list.count && !l->cwd; i++)
        if (is_start(&list.rows[i]))
            l->cwd = xstrdup(list.rows[i].place);
}
