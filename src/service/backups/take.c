/*
 * Makes a backup: takes a step, lets carrel-image read its files, and stores what it sends. The
 * files are synced before the row of the backup is written, so a crash leaves either a whole backup
 * or files without a row, which the next daemon deletes (backups_sweep()).
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/log.h"
#include "service/backups/inner.h"
#include "service/cells.h"
#include "service/images/live.h"
#include "service/rights.h"
#include "service/taint.h"

enum {
    FEED_PIECE = 1 << 20,
    FEED_MOST = 32 << 20, /* bytes that one job of a worker thread takes */
    PIPE_BYTES = 1 << 20,
    REPORT_MAX = 256 << 10,
    REPORT_WAIT_MS = 60000, /* the worker has ended its stream: its report follows at once */
    PROGRESS_MS = 1000,
};

struct taking {
    struct backup_job job;
    struct live *live;
    struct backup_row row;
    struct backup_list older; /* backups of the machine, newest first */
    json_t *details;          /* of the row */
    struct layers_hold reads;
    struct disk_hold hold;
    char *stack;
    int record, archive[2], report[2];
    struct loop_watch *watch;
    struct backup_intake in;
    struct buf words; /* reports of the worker */
    json_t *result;   /* the last of them; or NULL */
    uint64_t told_ms, entries, bytes;
    bool at_end;
    service_net_fn *done;
    void *arg;
};

/* ---- end ---- */

static void take_free(struct taking *t) {
    loop_watch_free(t->watch);
    layers_release(t->job.service, &t->reads);
    quota_release(t->job.service, &t->hold);
    backup_intake_done(&t->in);
    for (int i = 0; i < 2; i++) {
        close_fd(&t->archive[i]);
        close_fd(&t->report[i]);
    }
    close_fd(&t->record);
    buf_done(&t->words);
    json_decref(t->result);
    json_decref(t->details);
    backup_row_done(&t->row);
    backup_list_done(&t->older);
    if (t->live)
        live_unref(t->live);
    free(t->stack);
    free(t);
}

static void take_over(void *arg) {
    struct taking *t = arg;
    struct buf text DEFER(buf_done) = BUF(8192);
    struct jot j = JOT(&text);
    backup_put(&j, &t->row);
    backup_job_over(&t->job, text.data);
    if (!t->job.failed)
        event_tell(t->job.service, t->row.owner, t->row.machine, "backup.created", text.data);
    t->done(t->arg, t->job.failed ? NULL : text.data, t->job.failed ? &t->job.err : NULL);
    take_free(t);
}

/* Deletes the files of a backup that failed, and the mark of one that is complete. */
static void take_tidy(void *arg) {
    struct taking *t = arg;
    struct err err;
    if (t->job.failed && backup_clean(t->job.service, t->job.machine, &t->older, &err) < 0)
        log_line(LOG_WARN, "service", "delete a failed backup: %s machine=%s", err.text,
                 t->job.machine);
    if (!t->job.failed)
        backup_unmark(t->in.dir, t->row.id);
}

static void take_end(struct taking *t) {
    layers_release(t->job.service, &t->reads);
    loop_work(t->job.service->loop, take_tidy, take_over, t);
}

static void take_fail(struct taking *t, const struct err *err) {
    backup_job_fail(&t->job, err);
    loop_watch_free(t->watch);
    t->watch = NULL;
    for (int i = 0; i < 2; i++) { /* the worker ends when it writes again */
        close_fd(&t->archive[i]);
        close_fd(&t->report[i]);
    }
    take_end(t);
}

/* ---- the worker's stream ---- */

static void take_word(struct taking *t, const char *line, size_t n) {
    json_t *word = json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL);
    const json_t *entries = json_object_get(word, "entries"),
                 *bytes = json_object_get(word, "bytes");
    if (json_is_integer(entries) && json_is_integer(bytes)) {
        t->entries = (uint64_t)json_integer_value(entries);
        t->bytes = (uint64_t)json_integer_value(bytes);
    }
    bool last = json_object_get(word, "error") || json_object_get(word, "done");
    if (last && !t->result)
        t->result = json_incref(word);
    json_decref(word);
}

/* Reads reports. wait_ms: until the worker closes the pipe. */
static void take_reports(struct taking *t, int wait_ms) {
    char piece[4096], *newline;
    struct pollfd p = {.fd = t->report[0], .events = POLLIN};
    while (poll(&p, 1, wait_ms) > 0) {
        ssize_t n = read(t->report[0], piece, sizeof(piece));
        if (n <= 0 || !buf_add(&t->words, piece, (size_t)n))
            return;
        while (t->words.len && (newline = memchr(t->words.data, '\n', t->words.len))) {
            size_t len = (size_t)(newline - t->words.data);
            take_word(t, t->words.data, len);
            buf_drop(&t->words, len + 1);
        }
    }
}

/* Runs on a worker thread. */
static void take_feed(void *arg) {
    struct taking *t = arg;
    uint8_t *piece DEFER_FREE = xmalloc(FEED_PIECE);
    struct err err;
    take_reports(t, 0);
    for (size_t sum = 0; sum < FEED_MOST && !t->job.failed;) {
        ssize_t n = read(t->archive[0], piece, FEED_PIECE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        t->at_end = n <= 0;
        if (n <= 0)
            return;
        sum += (size_t)n;
        if (backup_intake_feed(&t->in, piece, (size_t)n, &err) < 0)
            backup_job_fail(&t->job, &err);
    }
}

static int take_outcome(const struct taking *t, struct err *err) {
    const json_t *e = json_object_get(t->result, "error");
    const char *message = json_string_value(json_object_get(e, "message"));
    const char *code = json_string_value(json_object_get(e, "code"));
    if (e)
        return err_set(err, err_code_named(code ? code : ""), "%s",
                       message ? message : "carrel-image gave no reason");
    return t->result ? 0
                     : err_set(err, ERR_INTERNAL,
                               "the worker that reads the files (carrel-image) ended early");
}

static uint64_t take_number(const struct taking *t, const char *name) {
    json_int_t n = json_integer_value(json_object_get(t->result, name));
    return n > 0 ? (uint64_t)n : 0;
}

/* Runs on a worker thread: all files must be there, with names that survive a power failure. */
static int take_check(struct taking *t, struct err *err) {
    struct buf text DEFER(buf_done) = BUF(MANIFEST_MAX + 1);
    struct manifest m;
    const char *manifest = json_string_value(json_object_get(t->result, "manifest"));
    if (take_outcome(t, err) < 0)
        return -1;
    if (!t->in.ended || !t->in.has_record || !manifest || strcmp(manifest, t->in.manifest) != 0)
        return err_set(err, ERR_INTERNAL, "carrel-image sent an incomplete backup");
    snprintf(t->row.manifest, sizeof(t->row.manifest), "%s", manifest);
    t->row.entries = take_number(t, "entries");
    t->row.bytes = take_number(t, "bytes");
    t->row.written = t->in.written;
    t->row.created_ms = wall_ms();
    if (backup_manifest(t->in.dir, &t->row, &text, &m, err) < 0 ||
        backup_packs_exist(t->in.packs, &m, err) < 0)
        return -1;
    return backup_sync(&t->in, err);
}

static void take_check_run(void *arg) {
    struct taking *t = arg;
    struct err err;
    take_reports(t, REPORT_WAIT_MS);
    if (take_check(t, &err) < 0)
        backup_job_fail(&t->job, &err);
}

static bool take_stands(struct taking *t, struct err *err) {
    return !t->job.cancelled ||
           err_set(err, ERR_GONE, "machine '%s' ended before its backup was complete",
                   t->job.machine) == 0;
}

static void take_checked(void *arg) {
    struct taking *t = arg;
    struct service *s = t->job.service;
    struct err err;
    if (!t->job.failed && (!take_stands(t, &err) || store_backup_add(s->store, &t->row, &err) < 0 ||
                           store_flush(s->store, &err) < 0))
        backup_job_fail(&t->job, &err);
    take_end(t);
}

static void take_tell(struct taking *t) {
    struct buf text DEFER(buf_done) = BUF(512);
    struct jot j = JOT(&text);
    uint64_t now = loop_now_ms(t->job.service->loop);
    if (now - t->told_ms < PROGRESS_MS)
        return;
    t->told_ms = now;
    jot_object(&j, NULL);
    jot_u64(&j, "entries", t->entries);
    jot_u64(&j, "bytes", t->bytes);
    jot_end(&j, '}');
    event_tell(t->job.service, t->row.owner, t->row.machine, "backup.progress", text.data);
}

static void take_fed(void *arg) {
    struct taking *t = arg;
    struct err err;
    if (t->job.failed || !take_stands(t, &err)) {
        take_fail(t, t->job.failed ? &t->job.err : &err);
        return;
    }
    take_tell(t);
    if (!t->at_end) {
        loop_watch_set(t->watch, LOOP_READ);
        return;
    }
    loop_watch_free(t->watch);
    t->watch = NULL;
    loop_work(t->job.service->loop, take_check_run, take_checked, t);
}

static void take_readable(void *arg, unsigned events) {
    struct taking *t = arg;
    (void)events;
    loop_watch_set(t->watch, 0);
    loop_work(t->job.service->loop, take_feed, take_fed, t);
}

/* ---- start ---- */

static void take_begun(void *arg, const struct err *err) {
    struct taking *t = arg;
    struct err why;
    close_fd(&t->archive[1]);
    close_fd(&t->report[1]);
    close_fd(&t->record);
    if (err)
        take_fail(t, err);
    else if (loop_watch_new(t->job.service->loop, t->archive[0], LOOP_READ, take_readable, t,
                            &t->watch, &why) < 0)
        take_fail(t, &why);
}

/* The record of the newest backup, if all packs of that backup still exist. */
static int take_open_record(struct taking *t) {
    struct buf text DEFER(buf_done) = BUF(MANIFEST_MAX + 1);
    char name[ID_SIZE + 16];
    struct manifest m;
    struct err ignored;
    if (!t->older.count || backup_manifest(t->in.dir, &t->older.rows[0], &text, &m, &ignored) < 0 ||
        backup_packs_exist(t->in.packs, &m, &ignored) < 0)
        return -1;
    snprintf(name, sizeof(name), "%s" BACKUP_KNOWN, t->older.rows[0].id);
    return openat(t->in.dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
}

static int take_files(struct taking *t, struct err *err) {
    if (backup_dir_make(t->job.service, t->job.machine, err) < 0 ||
        (t->in.dir = backup_dir_open(t->job.service, t->job.machine, err)) < 0 ||
        (t->in.packs = backup_packs_open(t->in.dir, err)) < 0 ||
        backup_mark(t->in.dir, t->row.id, err) < 0)
        return -1;
    t->record = take_open_record(t);
    if (t->record < 0)
        t->record = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (t->record < 0 || pipe2(t->archive, O_CLOEXEC) < 0 || pipe2(t->report, O_CLOEXEC) < 0)
        return err_sys(err, "cannot create the files of a backup");
    fcntl(t->archive[0], F_SETPIPE_SZ, PIPE_BYTES); /* optional: fewer wake-ups */
    return 0;
}

/* A machine that uses the host's /usr needs one with the same packages. */
static int take_note(struct taking *t, struct err *err) {
    const char *image = json_string_value(json_object_get(t->details, "image"));
    char host[SHA256_HEX];
    if (image_uses_host(t->job.service, image)) {
        image_host_state(host);
        json_object_set_new(t->details, BACKUP_HOST, json_string(host));
    }
    t->row.details = json_dumps(t->details, JSON_COMPACT);
    return t->row.details ? 0 : err_set(err, ERR_INTERNAL, "cannot describe the machine");
}

static void take_prepare(void *arg) {
    struct taking *t = arg;
    struct err err;
    if (take_note(t, &err) < 0 || take_files(t, &err) < 0)
        backup_job_fail(&t->job, &err);
}

static void take_prepared(void *arg) {
    struct taking *t = arg;
    struct live *l = t->live;
    struct err err;
    if (!t->job.failed && (!l->machine || l->ending)) {
        live_state_error(l, &err);
        backup_job_fail(&t->job, &err);
    }
    if (t->job.failed) {
        take_end(t);
        return;
    }
    const struct machine_draw what = {.stack = t->stack, .record = t->record};
    l->service->driver->draw(l->machine, &what, t->archive[1], t->report[1], take_begun, t);
}

static int take_hold(struct taking *t, const char *id, struct err *err) {
    struct step_row step DEFER(step_row_done) = {.stack = NULL};
    if (store_step_find(t->job.service->store, t->job.machine, id, &step, err) < 0)
        return -1;
    if (!step.has_point)
        return step_point_error(t->live, &step, err);
    layers_hold(t->job.service, &t->reads, step.stack);
    t->stack = xstrdup(step.stack ? step.stack : "");
    return 0;
}

static void take_step(void *arg, const struct step_row *row, const struct err *failed) {
    struct taking *t = arg;
    struct err err;
    if (failed)
        err = *failed;
    else if (take_hold(t, row->id, &err) == 0) {
        loop_work(t->job.service->loop, take_prepare, take_prepared, t);
        return;
    }
    backup_job_fail(&t->job, &err);
    take_over(t);
}

/* What a machine with these files needs besides: kind, limits, configuration, taint. */
static int take_describe(struct taking *t, struct err *err) {
    const struct machine_row *m = &t->live->row;
    json_t *config DEFER(json_decrefp) = live_image_text(t->live);
    t->details = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:s, s:O}", "kind", m->kind, "image",
                           m->image, "mem", (json_int_t)m->mem_bytes, "cpus",
                           (json_int_t)m->cpu_milli, "pids", (json_int_t)m->pids, "disk",
                           (json_int_t)m->disk_bytes, "taint", taint_of(t->live), "config", config);
    return t->details ? 0 : err_set(err, ERR_INTERNAL, "cannot describe the machine");
}

static int take_fill(struct taking *t, struct err *err) {
    const struct live *l = t->live;
    struct backup_row *row = &t->row;
    struct service *s = t->job.service;
    snprintf(row->id, sizeof(row->id), "%s", id_new('k').text);
    memcpy(row->owner, l->row.owner, sizeof(row->owner));
    memcpy(row->token, t->job.who.token, sizeof(row->token));
    memcpy(row->machine, l->row.id, sizeof(row->machine));
    memcpy(row->name, l->row.name, sizeof(row->name));
    memcpy(t->in.id, row->id, sizeof(t->in.id));
    memcpy(t->job.machine, row->machine, sizeof(t->job.machine));
    if (store_admit(s->store, STORE_USES, err) < 0 || take_describe(t, err) < 0 ||
        store_backup_list(s->store, NULL, row->machine, NULL, &t->older, err) < 0)
        return -1;
    if (t->older.count >= BACKUPS_MAX) {
        err_set(err, ERR_LIMIT, "machine '%s' has %d backups, the most that a machine can have",
                row->machine, BACKUPS_MAX);
        return err_remedy(err, "delete old ones: carrel backup prune %s --keep 30", row->machine);
    }
    t->hold.who = &t->job.who;
    if (quota_hold(s, &t->hold, err) < 0)
        return -1;
    t->in.most = t->hold.bytes;
    return 0;
}

void service_backup_take(struct service *s, const struct caller *who, const char *machine,
                         service_net_fn *done, void *arg) {
    struct taking *t = xnew(struct taking);
    struct err err;
    *t = (struct taking){.job = {.service = s, .who = *who, .verb = "backup.take"},
                         .record = -1,
                         .archive = {-1, -1},
                         .report = {-1, -1},
                         .in = {.dir = -1, .packs = -1, .fd = -1},
                         .words = BUF(REPORT_MAX),
                         .told_ms = loop_now_ms(s->loop),
                         .done = done,
                         .arg = arg};
    struct live *l =
        allow(who, SCOPE_RUN, &err) < 0 ? NULL : live_find(s, who, machine, LIVE_ANY, &err);
    if (l) {
        t->live = l;
        live_ref(l);
    }
    if (!l || cell_refuse(l, "backups", &err) < 0 || take_fill(t, &err) < 0 ||
        backup_job_begin(&t->job, NULL, &err) < 0) {
        done(arg, NULL, &err);
        take_free(t);
        return;
    }
    const struct step_cause cause = {.kind = STEP_SNAP, .what = "backup", .status = -1};
    steps_take(l, &cause, take_step, t);
}
