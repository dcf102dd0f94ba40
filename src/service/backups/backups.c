#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/log.h"
#include "service/backups/inner.h"
#include "service/rights.h"
#include "service/steps/barrier.h"

enum { BACKUPS_JSON_MAX = 4 << 20 };

struct service_backups *service_backups_new(void) {
    return xnew(struct service_backups);
}

void service_backups_free(struct service *s) {
    free(s->backups);
}

/* ---- jobs ---- */

int backup_job_begin(struct backup_job *j, const char *detail, struct err *err) {
    struct service_backups *all = j->service->backups;
    size_t count = 0;
    for (const struct backup_job *o = all->jobs; o; o = o->next, count++)
        if (strcmp(o->machine, j->machine) == 0) {
            err_set(err, ERR_BUSY, "another operation on the backups of machine '%s' is running",
                    j->machine);
            return err_remedy(err, "try again when it has ended");
        }
    if (count >= BACKUP_JOBS_MAX) {
        err_set(err, ERR_BUSY, "%zu operations on backups are running, the most on this host",
                count);
        return err_remedy(err, "try again when one of them has ended");
    }
    const struct journal_record what = {.verb = j->verb, .machine = j->machine, .detail = detail};
    if (note_intent(j->service, &j->who, &what, &j->intent, err) < 0)
        return -1;
    j->next = all->jobs;
    all->jobs = j;
    return 0;
}

void backup_job_over(struct backup_job *j, const char *detail) {
    const struct journal_record what = {.verb = j->verb, .machine = j->machine, .detail = detail};
    struct backup_job **at = &j->service->backups->jobs;
    while (*at != j)
        at = &(*at)->next;
    *at = j->next;
    note_result(j->service, &j->who, &what, j->intent, j->failed ? &j->err : NULL);
}

void backup_job_fail(struct backup_job *j, const struct err *err) {
    if (!j->failed)
        j->err = *err;
    j->failed = true;
}

void backups_machine_ends(struct live *l) {
    for (struct backup_job *j = l->service->backups->jobs; j; j = j->next)
        if (strcmp(j->machine, l->row.id) == 0)
            j->cancelled = true;
}

/* ---- rows ---- */

void backup_put(struct jot *j, const struct backup_row *row) {
    jot_object(j, NULL);
    jot_string(j, "id", row->id);
    jot_string(j, "machine", row->machine);
    if (row->name[0])
        jot_string(j, "name", row->name);
    jot_i64(j, "created_ms", row->created_ms);
    jot_u64(j, "files", row->entries);
    jot_u64(j, "bytes", row->bytes);
    jot_u64(j, "written_bytes", row->written);
    jot_end(j, '}');
}

int backup_find(struct service *s, const struct caller *who, const char *id, struct backup_row *ret,
                struct err *err) {
    struct backup_list found DEFER(backup_list_done) = {0};
    bool is_id = id_valid(id, strlen(id), 'k');
    if (is_id && store_backup_list(s->store, NULL, NULL, id, &found, err) < 0)
        return -1;
    if (!found.count || !may_see(who, found.rows[0].owner)) {
        err_set(err, ERR_NOT_FOUND, "backup '%.60s' does not exist", id);
        return err_remedy(err, "list backups with `carrel backup ls`");
    }
    *ret = found.rows[0];
    found.rows[0].details = NULL;
    return 0;
}

/* True for the id of the machine, and for its name when the backup was made. */
static bool backup_is_of(const struct backup_row *row, const char *machine) {
    return !machine || strcmp(row->machine, machine) == 0 || strcmp(row->name, machine) == 0;
}

void service_backup_list(struct service *s, const struct caller *who, const char *machine,
                         service_net_fn *done, void *arg) {
    struct buf text DEFER(buf_done) = BUF(BACKUPS_JSON_MAX);
    struct jot j = JOT(&text);
    struct backup_list list DEFER(backup_list_done) = {0};
    struct err err;
    if (allow(who, SCOPE_READ, &err) < 0 ||
        store_backup_list(s->store, who->owner, NULL, NULL, &list, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    jot_object(&j, NULL);
    jot_array(&j, "backups");
    for (size_t i = 0; i < list.count; i++)
        if (backup_is_of(&list.rows[i], machine))
            backup_put(&j, &list.rows[i]);
    jot_end(&j, ']');
    jot_end(&j, '}');
    if (j.failed)
        err_set(&err, ERR_LIMIT, "the list of backups is too long");
    done(arg, j.failed ? NULL : text.data, j.failed ? &err : NULL);
}

int64_t service_backup_last(struct service *s, const char *machine_id) {
    int64_t at = 0;
    struct err err;
    if (store_backup_last(s->store, machine_id, &at, &err) < 0)
        log_line(LOG_ERROR, "service", "find the newest backup: %s machine=%s", err.text,
                 machine_id);
    return at;
}

/* ---- verify ---- */

struct verifying {
    struct backup_job job;
    struct backup_row row;
    uint64_t packs, bytes;
    service_net_fn *done;
    void *arg;
};

static void verify_run(void *arg) {
    struct verifying *v = arg;
    struct buf text DEFER(buf_done) = BUF(MANIFEST_MAX + 1);
    struct manifest m;
    struct err err;
    int dir DEFER_CLOSE = backup_dir_open(v->job.service, v->row.machine, &err);
    int packs DEFER_CLOSE = dir < 0 ? -1 : backup_packs_open(dir, &err);
    int r = packs < 0 ? -1 : backup_manifest(dir, &v->row, &text, &m, &err);
    for (; r == 0 && v->packs < m.pack_count; v->packs++)
        r = backup_pack_check(packs, &m, (uint32_t)v->packs, &v->bytes, &err);
    if (r < 0)
        backup_job_fail(&v->job, &err);
}

static void verify_done(void *arg) {
    struct verifying *v = arg;
    struct buf text DEFER(buf_done) = BUF(4096);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_string(&j, "id", v->row.id);
    jot_u64(&j, "packs", v->packs);
    jot_u64(&j, "bytes", v->bytes);
    jot_end(&j, '}');
    backup_job_over(&v->job, text.data);
    if (v->job.failed)
        v->done(v->arg, NULL, &v->job.err);
    else
        v->done(v->arg, text.data, NULL);
    backup_row_done(&v->row);
    free(v);
}

void service_backup_verify(struct service *s, const struct caller *who, const char *id,
                           service_net_fn *done, void *arg) {
    struct verifying *v = xnew(struct verifying);
    struct err err;
    *v = (struct verifying){
        .job = {.service = s, .who = *who, .verb = "backup.verify"}, .done = done, .arg = arg};
    if (allow(who, SCOPE_READ, &err) == 0 && backup_find(s, who, id, &v->row, &err) == 0) {
        memcpy(v->job.machine, v->row.machine, sizeof(v->job.machine));
        if (backup_job_begin(&v->job, NULL, &err) == 0) {
            loop_work(s->loop, verify_run, verify_done, v);
            return;
        }
    }
    done(arg, NULL, &err);
    backup_row_done(&v->row);
    free(v);
}

/* ---- forget and prune ---- */

struct forgetting {
    struct backup_job job;
    struct backup_list keep;
    uint64_t count;
    service_net_fn *done;
    void *arg;
};

static void forget_free(struct forgetting *f) {
    backup_list_done(&f->keep);
    free(f);
}

/* The rows are gone. What is left of the files is deleted by the next daemon or the next forget. */
static void forget_run(void *arg) {
    struct forgetting *f = arg;
    struct err err;
    if (f->count && backup_clean(f->job.service, f->job.machine, &f->keep, &err) < 0)
        log_line(LOG_WARN, "service", "delete files of forgotten backups: %s machine=%s", err.text,
                 f->job.machine);
}

static void forget_done(void *arg) {
    struct forgetting *f = arg;
    struct buf text DEFER(buf_done) = BUF(256);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_u64(&j, "forgotten", f->count);
    jot_end(&j, '}');
    backup_job_over(&f->job, text.data);
    f->done(f->arg, f->job.failed ? NULL : text.data, f->job.failed ? &f->job.err : NULL);
    forget_free(f);
}

/* Removes the rows of all backups after the newest `keep`, or of the one with this id. */
static int forget_rows(struct forgetting *f, const char *id, uint64_t keep, struct err *err) {
    struct store *store = f->job.service->store;
    size_t kept = 0;
    for (size_t i = 0; i < f->keep.count; i++) {
        struct backup_row *row = &f->keep.rows[i];
        if (id ? strcmp(row->id, id) != 0 : i < keep) {
            struct backup_row swap = f->keep.rows[kept];
            f->keep.rows[kept++] = *row;
            *row = swap;
        } else if (store_backup_remove(store, row->id, err) < 0) {
            return -1;
        }
    }
    f->count = f->keep.count - kept;
    for (size_t i = kept; i < f->keep.count; i++)
        backup_row_done(&f->keep.rows[i]);
    f->keep.count = kept;
    return store_flush(store, err);
}

/* `done` is called in any case. machine: an id; id NULL: keeps the newest backups. */
static void forget_begin(struct service *s, const struct caller *who, const char *verb,
                         const char *machine, const char *id, uint64_t keep, service_net_fn *done,
                         void *arg) {
    struct forgetting *f = xnew(struct forgetting);
    struct err err;
    *f = (struct forgetting){
        .job = {.service = s, .who = *who, .verb = verb}, .done = done, .arg = arg};
    snprintf(f->job.machine, sizeof(f->job.machine), "%s", machine);
    if (backup_job_begin(&f->job, NULL, &err) < 0) {
        done(arg, NULL, &err);
        forget_free(f);
        return;
    }
    if (store_backup_list(s->store, NULL, machine, NULL, &f->keep, &err) < 0 ||
        forget_rows(f, id, keep, &err) < 0) {
        backup_job_fail(&f->job, &err);
        forget_done(f);
        return;
    }
    loop_work(s->loop, forget_run, forget_done, f);
}

void service_backup_forget(struct service *s, const struct caller *who, const char *id,
                           service_net_fn *done, void *arg) {
    struct backup_row row DEFER(backup_row_done) = {.details = NULL};
    struct err err;
    if (allow(who, SCOPE_RUN, &err) < 0 || backup_find(s, who, id, &row, &err) < 0)
        done(arg, NULL, &err);
    else
        forget_begin(s, who, "backup.forget", row.machine, row.id, 0, done, arg);
}

void service_backup_prune(struct service *s, const struct caller *who, const char *machine,
                          const struct backup_prune_request *r, service_net_fn *done, void *arg) {
    struct backup_list list DEFER(backup_list_done) = {0};
    struct err err;
    if (allow(who, SCOPE_RUN, &err) < 0 ||
        store_backup_list(s->store, who->owner, NULL, NULL, &list, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    size_t i = 0;
    while (i < list.count && !backup_is_of(&list.rows[i], machine))
        i++;
    if (i == list.count) {
        err_set(&err, ERR_NOT_FOUND, "machine '%.60s' has no backups", machine);
        done(arg, NULL, &err);
        return;
    }
    forget_begin(s, who, "backup.prune", list.rows[i].machine, NULL, r->keep.value, done, arg);
}
