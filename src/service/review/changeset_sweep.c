/* Compares the rows of change sets with their files when the daemon starts. */
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/fs/dir.h"
#include "base/log.h"
#include "service/review/changeset_files_inner.h"
#include "service/review/changeset_rows.h"

struct found {
    char id[ID_SIZE];
    uint64_t created_ms;
};

struct sweep {
    struct service *service;
    struct found *missing; /* change sets without a row */
    size_t count;
    uint64_t files; /* number of change sets that have files, and a row now or soon */
};

static json_t *sweep_read(const struct service *s, const char *id) {
    char path[CHANGESET_PATH];
    changeset_path(s, id, CHANGESET_META, path);
    json_t *words = json_load_file(path, 0, NULL);
    if (words && json_string_value(json_object_get(words, "owner")) &&
        json_string_value(json_object_get(words, "machine")) &&
        json_string_value(json_object_get(words, "path")))
        return words;
    json_decref(words);
    return NULL;
}

static void sweep_file(struct sweep *w, const char *name) {
    struct changeset_row row DEFER(changeset_row_done) = {0};
    size_t n = strcspn(name, ".");
    struct found one = {0};
    struct err err;
    if (!id_valid(name, n, 'c') || strcmp(name + n, CHANGESET_META) != 0)
        return;
    memcpy(one.id, name, n);
    if (store_changeset_find(w->service->store, one.id, &row, &err) == 0) {
        w->files += row.state != CHANGESET_DROPPED;
        return;
    }
    if (err.code != ERR_NOT_FOUND)
        return;
    json_t *words DEFER(json_decrefp) = sweep_read(w->service, one.id);
    if (!words)
        return;
    one.created_ms = changeset_view_of(w->service, one.id, words).created_ms;
    w->missing = xrealloc(w->missing, w->count + 1, sizeof(*w->missing));
    w->missing[w->count++] = one;
    w->files++;
}

static int older_first(const void *a, const void *b) {
    const struct found *x = a, *y = b;
    return x->created_ms < y->created_ms ? -1 : x->created_ms > y->created_ms;
}

static int sweep_add(struct sweep *w, struct err *err) {
    qsort(w->missing, w->count, sizeof(*w->missing), older_first);
    for (size_t i = 0; i < w->count; i++) {
        json_t *words DEFER(json_decrefp) = sweep_read(w->service, w->missing[i].id);
        const struct changeset_view view = changeset_view_of(w->service, w->missing[i].id, words);
        if (words && changeset_row_add(w->service, &view, err) < 0)
            return -1;
    }
    return 0;
}

/* Repeats a decision of the journal. */
static int sweep_repeat(struct service *s, const struct journal_record *r, struct err *err) {
    json_t *detail DEFER(json_decrefp) = json_loads(r->detail ? r->detail : "{}", 0, NULL);
    const char *id = json_string_value(json_object_get(detail, "changeset"));
    if (r->kind != JOURNAL_RESULT)
        return 0;
    if (strcmp(r->verb, "review.return") == 0)
        return store_changesets_return(s->store, r->machine, r->time_ms, err);
    bool ship = strcmp(r->verb, "review.ship") == 0;
    if (!id || (!ship && strcmp(r->verb, "review.undo") != 0))
        return 0;
    return store_changeset_decide(s->store, id, ship ? CHANGESET_SHIPPED : CHANGESET_UNDONE,
                                  r->time_ms, err);
}

static void reader_closep(struct journal_reader **r) {
    journal_reader_close(*r);
}

static int sweep_journal(struct sweep *w, struct err *err) {
    char dir[CHANGESET_PATH];
    const struct journal_filter filter = {.verb = "review",
                                          .since_ms = (int64_t)w->missing[0].created_ms};
    struct journal_reader *reader DEFER(reader_closep) = NULL;
    const struct journal_record *record;
    const char *line;
    size_t n;
    int more;
    snprintf(dir, sizeof(dir), "%s/journal", w->service->place->home);
    more = journal_reader_open(dir, &filter, &reader, err);
    while (more >= 0 && (more = journal_reader_next(reader, &record, &line, &n, err)) > 0)
        if (sweep_repeat(w->service, record, err) < 0)
            return -1;
    if (more < 0) /* they count as pending: better than not listed */
        log_line(LOG_WARN, "service", "read what became of change sets: %s", err->text);
    return 0;
}

/* Drops rows whose files somebody deleted. */
static int sweep_rows(struct sweep *w, struct err *err) {
    struct changeset_filter filter = {.states = (1u << CHANGESET_DROPPED) - 2,
                                      .limit = STORE_PAGE_MAX};
    char path[CHANGESET_PATH];
    for (;;) {
        struct changeset_rows list DEFER(changeset_rows_done) = {0};
        if (store_changeset_list(w->service->store, &filter, &list, err) < 0)
            return -1;
        for (size_t i = 0; i < list.count; i++) {
            changeset_path(w->service, list.rows[i].id, CHANGESET_META, path);
            if (access(path, F_OK) < 0 &&
                store_changeset_decide(w->service->store, list.rows[i].id, CHANGESET_DROPPED,
                                       wall_ms(), err) < 0)
                return -1;
        }
        if (list.count < STORE_PAGE_MAX)
            return 0;
        filter.before = list.rows[list.count - 1].number;
    }
}

static int sweep_all(struct sweep *w, struct err *err) {
    uint64_t rows;
    if (w->count && (sweep_add(w, err) < 0 || sweep_journal(w, err) < 0))
        return -1;
    if (store_changeset_count(w->service->store, &rows, err) < 0)
        return -1;
    return rows > w->files ? sweep_rows(w, err) : 0;
}

void changesets_sweep(struct service *s) {
    char path[CHANGESET_PATH];
    struct sweep w = {.service = s};
    struct err err;
    changeset_path(s, "", "", path);
    DIR *dir DEFER(dir_close) = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));)
        sweep_file(&w, e->d_name);
    bool done = store_begin(s->store, &err) == 0 && sweep_all(&w, &err) == 0 &&
                store_commit(s->store, &err) == 0;
    if (!done) {
        store_rollback(s->store);
        log_line(LOG_WARN, "service", "read the change sets: %s", err.text);
    }
    free(w.missing);
}
