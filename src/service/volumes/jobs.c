/*
 * Makes, copies and deletes volumes. The order of a new volume is: files under an unfinished name,
 * row, final name. The order of a deletion is: unfinished name, no row, no files. So after a crash
 * the row decides about every directory with an unfinished name (volumes_sweep()).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/log.h"
#include "service/taint.h"
#include "service/volumes/inner.h"
#include "store/taints.h"

enum {
    COPIES_MAX = 2, /* at the same time: copies keep the workers of the daemon busy */
    FREE_TRIES = 100,
    FREE_AGAIN_MS = 100,
};

struct service_volumes *service_volumes_new(void) {
    struct service_volumes *v = xnew(struct service_volumes);
    *v = (struct service_volumes){.jobs = NULL};
    return v;
}

/* The jobs that are left wait for an answer of the spawner, which does not come any more. */
void service_volumes_free(struct service *s) {
    while (s->volumes && s->volumes->jobs) {
        struct volume_job *j = s->volumes->jobs;
        s->volumes->jobs = j->next;
        loop_timer_free(j->again);
        free(j);
    }
    if (s->volumes)
        volume_doors_free(s->volumes);
    free(s->volumes);
}

int volume_is_idle(const struct service *s, const char *id, const char *name, struct err *err) {
    for (const struct volume_job *j = s->volumes->jobs; j; j = j->next)
        if (strcmp(j->row.id, id) == 0 || strcmp(j->source.id, id) == 0) {
            err_set(err, ERR_BUSY, "volume '%s' is being %s", name,
                    j->removes                      ? "deleted"
                    : strcmp(j->source.id, id) == 0 ? "copied"
                                                    : "made");
            return err_remedy(err, "try again later");
        }
    return 0;
}

static void volume_describe(const struct volume_job *j, struct buf *text) {
    struct jot out = JOT(text);
    jot_object(&out, NULL);
    jot_string(&out, "volume", j->row.name);
    jot_string(&out, "id", j->row.id);
    jot_u64(&out, "size", j->row.bytes);
    if (j->source.id[0])
        jot_string(&out, "from", j->source.name);
    jot_end(&out, '}');
}

static void volume_job_free(struct volume_job *j) {
    struct volume_job **at = &j->service->volumes->jobs;
    while (*at != j)
        at = &(*at)->next;
    *at = j->next;
    quota_release(j->service, &j->hold);
    loop_timer_free(j->again);
    free(j);
}

static void volume_job_end(struct volume_job *j) {
    struct service *s = j->service;
    struct buf text DEFER(buf_done) = BUF(JOURNAL_DETAIL_MAX);
    const struct err err = j->err, *failed = j->failed ? &err : NULL;
    service_net_fn *done = j->done;
    void *arg = j->arg;
    char owner[STORE_NAME_SIZE], name[STORE_VOLUME_NAME_SIZE];
    bool removes = j->removes;
    volume_describe(j, &text);
    const struct journal_record what = {.verb = j->verb, .detail = text.data};
    note_result(s, &j->who, &what, j->intent, failed);
    if (!failed)
        event_tell(s, j->row.owner, NULL, removes ? "volume.removed" : "volume.created", text.data);
    snprintf(owner, sizeof(owner), "%s", j->row.owner);
    snprintf(name, sizeof(name), "%s", j->row.name);
    volume_job_free(j);
    if (failed)
        done(arg, NULL, failed);
    else if (removes)
        done(arg, "{}", NULL);
    else
        volume_answer(s, owner, name, done, arg);
}

static void volume_job_over(void *arg) {
    volume_job_end(arg);
}

static void volume_job_fail(struct volume_job *j, const struct err *err) {
    j->failed = true;
    j->err = *err;
}

/* Runs in a job: gives the files their final name, or deletes what is left of them. */
static void volume_settle(void *arg) {
    struct volume_job *j = arg;
    const struct service *s = j->service;
    struct err err;
    const char *prefix = j->removes ? VOLUME_OLD : VOLUME_NEW;
    bool stays = j->removes != j->written;
    int r = 0;
    if (stays)
        r = volume_rename(s, j->row.id, prefix, "", &err);
    if (r == 0 && j->written)
        r = store_flush(s->store, &err); /* before the files of a deleted volume are lost */
    if (r == 0 && !stays)
        r = volume_delete(s, prefix, j->row.id, &err);
    if (r < 0 && !j->failed)
        volume_job_fail(j, &err);
}

/* The copy of a volume with untrusted data has untrusted data. */
static int volume_row_write(struct volume_job *j, struct err *err) {
    struct service *s = j->service;
    char path[VOLUME_PATH_SIZE], from[VOLUME_PATH_SIZE];
    volume_path(s, "", j->row.id, path);
    volume_path(s, "", j->source.id, from);
    if (store_begin(s->store, err) < 0)
        return -1;
    int r = j->removes ? store_volume_remove(s->store, j->row.id, err)
                       : store_volume_add(s->store, &j->row, err);
    if (r == 0 && j->removes)
        r = store_taint_remove(s->store, j->row.owner, "dir", path, err);
    else if (r == 0 && j->source.id[0])
        r = taint_copied(s, j->row.owner, from, path, err);
    if (r == 0 && store_commit(s->store, err) == 0)
        return 0;
    store_rollback(s->store);
    return -1;
}

/* The files are made, or have an unfinished name; or that failed. */
static void volume_ready(struct volume_job *j) {
    struct err err;
    if (!j->failed && volume_row_write(j, &err) < 0)
        volume_job_fail(j, &err);
    j->written = !j->failed;
    loop_work(j->service->loop, volume_settle, volume_job_over, j);
}

static void volume_worked(void *arg) {
    volume_ready(arg);
}

static void volume_hide(void *arg) {
    struct volume_job *j = arg;
    j->failed = volume_rename(j->service, j->row.id, "", VOLUME_OLD, &j->err) < 0;
}

static void volume_hidden(void *arg) {
    struct volume_job *j = arg;
    if (j->failed) /* the directory kept its name: there is nothing to undo */
        volume_job_end(j);
    else
        volume_ready(j);
}

static void volume_duplicate(void *arg) {
    struct volume_job *j = arg;
    j->failed = volume_copy(j->service, j->source.id, j->row.id, &j->err) < 0;
}

static void volume_ask(void *arg);

/*
 * The spawner has formatted the new volume, or found that the source is not mounted. The mounts of
 * a machine that has ended are closed a moment later.
 */
static void volume_asked(void *arg, const struct err *err) {
    struct volume_job *j = arg;
    if (err && err->code == ERR_BUSY && j->source.id[0] && j->tries++ < FREE_TRIES) {
        if (!j->again)
            j->again = loop_timer_new(j->service->loop, volume_ask, j);
        loop_timer_start(j->again, FREE_AGAIN_MS, 0);
        return;
    }
    if (err)
        volume_job_fail(j, err);
    if (!err && j->source.id[0])
        loop_work(j->service->loop, volume_duplicate, volume_worked, j);
    else
        volume_ready(j);
}

static void volume_ask(void *arg) {
    struct volume_job *j = arg;
    struct service *s = j->service;
    char request[96];
    if (j->source.id[0])
        snprintf(request, sizeof(request), "free %s", j->source.id);
    else
        snprintf(request, sizeof(request), "make %s %llu", j->row.id,
                 (unsigned long long)j->row.bytes);
    s->driver->volume(s->host, request, volume_asked, j);
}

static int volume_copy_may_begin(const struct service *s, struct err *err) {
    size_t count = 0;
    for (const struct volume_job *j = s->volumes->jobs; j; j = j->next)
        count += j->source.id[0] != '\0';
    if (count < COPIES_MAX)
        return 0;
    err_set(err, ERR_BUSY, "%zu volumes are being copied, which is the most at the same time",
            count);
    return err_remedy(err, "try again later");
}

int volume_job_begin(struct service *s, const struct volume_job *like, struct err *err) {
    struct buf text DEFER(buf_done) = BUF(JOURNAL_DETAIL_MAX);
    if (like->source.id[0] && volume_copy_may_begin(s, err) < 0)
        return -1;
    struct volume_job *j = xnew(struct volume_job);
    *j = *like;
    j->service = s;
    j->hold = (struct disk_hold){.who = &j->who, .bytes = j->removes ? 0 : j->row.bytes};
    volume_describe(j, &text);
    const struct journal_record what = {.verb = j->verb, .detail = text.data};
    if ((!j->removes && quota_reserve(s, &j->hold, err) < 0) ||
        note_intent(s, &j->who, &what, &j->intent, err) < 0) {
        quota_release(s, &j->hold);
        free(j);
        return -1;
    }
    j->next = s->volumes->jobs;
    s->volumes->jobs = j;
    volume_doors_shut(s, j->removes ? j->row.id : j->source.id);
    if (j->removes) {
        loop_work(s->loop, volume_hide, volume_hidden, j);
        return 0;
    }
    volume_ask(j);
    return 0;
}
