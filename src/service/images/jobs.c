/*
 * Import and export of images. Each worker (a process carrel-image) has a pipe for the archive and
 * one for its report. A tree becomes an image only if every worker reported success.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "service/images/inner.h"
#include "service/images/jobs_inner.h"
#include "service/images/layered.h"

enum {
    WORDS_MAX = 256 << 10, /* maximum bytes in a line of a worker's report */
    PIECE = 128 << 10,
    PROGRESS_MS = 1000,
    PIPE_BYTES = 1 << 20,
};

static void hearing_close(struct hearing *h) {
    loop_watch_free(h->watch);
    h->watch = NULL;
    close_fd(&h->fd);
}

void image_job_close_archive(struct image_job *j) {
    loop_watch_free(j->archive_watch);
    j->archive_watch = NULL;
    close_fd(&j->archive);
}

void image_job_free(struct image_job *j) {
    struct image_job **at = &j->service->images->jobs;
    while (*at != j)
        at = &(*at)->next;
    *at = j->next;
    layers_release(j->service, &j->reads);
    if (j->below.count) /* its last name or machine may have gone meanwhile */
        image_release(j->service, j->below.ids[0]);
    close_fd(&j->merged);
    quota_release(j->service, &j->hold);
    loop_call_cancel(j->service->loop, &j->later);
    image_job_close_archive(j);
    hearing_close(&j->unpacked);
    hearing_close(&j->drawn);
    buf_done(&j->unpacked.text);
    buf_done(&j->drawn.text);
    json_decref(j->unpacked.last);
    json_decref(j->drawn.last);
    close_fd(&j->worker_fds[0]);
    close_fd(&j->worker_fds[1]);
    if (j->live)
        live_unref(j->live);
    free(j->stack);
    image_layered_free(j->layered);
    free(j);
}

void image_job_reset(struct image_job *j) {
    json_decref(j->unpacked.last);
    j->unpacked.last = NULL;
    buf_drop(&j->unpacked.text, j->unpacked.text.len);
    j->staging[0] = '\0';
    j->over = false;
}

static void job_count(struct image_job *j, const struct err *err) {
    struct image_stats *n = &j->service->images->stats;
    (err ? n->failed : n->made)[j->work]++;
    n->steps_made += !err && image_is_step(j->row.name);
}

static void job_note(struct image_job *j, const struct err *err) {
    struct journal_record what = {.verb = j->verb, .reason = j->row.name};
    note_result(j->service, &j->who, &what, j->intent, err);
}

static void job_end(struct image_job *j, const struct image_view *view, const struct err *err) {
    job_note(j, err);
    job_count(j, err);
    if (!j->cancelled)
        j->events.ended(j->events.arg, view, err);
    image_job_free(j);
}

/* ---- the end of a job ---- */

static int outcome(const struct hearing *h, struct err *err) {
    const json_t *e = json_object_get(h->last, "error");
    if (e) {
        const char *code = json_string_value(json_object_get(e, "code"));
        const char *message = json_string_value(json_object_get(e, "message"));
        const char *remedy = json_string_value(json_object_get(e, "remedy"));
        err_set(err, err_code_named(code ? code : ""), "%s",
                message ? message : "the image worker (carrel-image) failed and gave no reason");
        return remedy && *remedy ? err_remedy(err, "%s", remedy) : -1;
    }
    return h->last ? 0
                   : err_set(err, ERR_INTERNAL,
                             "the image worker (carrel-image) ended without a result");
}

void image_job_finish(struct image_job *j, const struct err *err) {
    struct image_view view;
    char *config DEFER_FREE = NULL;
    if (j->staging[0])
        image_wipe(j->service, j->staging);
    if (!err && j->layered && image_layered_goes_on(j->layered)) {
        image_layered_next(j->layered);
        return;
    }
    if (!err) {
        image_job_remember(j);
        image_view_of(j->service, &j->row, &config, &view);
    }
    job_end(j, err ? NULL : &view, err);
}

/* An import of several layers is between two of them, or has not verified the one at hand. */
static bool job_is_held(const struct image_job *j) {
    struct err ignored;
    return j->layered && !j->has_failed &&
           (!j->staging[0] || (j->unverified && outcome(&j->unpacked, &ignored) == 0));
}

static void job_settle(struct image_job *j) {
    struct err err = j->failed;
    bool in = j->staging[0];
    if (j->over || j->asking || j->unpacked.fd >= 0 || j->drawn.fd >= 0 ||
        (!in && j->archive >= 0 && !j->has_failed) || job_is_held(j))
        return;
    j->over = true;
    bool well = !j->has_failed && outcome(&j->unpacked, &err) == 0 &&
                (!j->live || outcome(&j->drawn, &err) == 0);
    if (j->cancelled && in)
        well = false;
    if (well && in) {
        image_job_adopt(j);
        return;
    }
    if (in)
        image_wipe(j->service, j->staging);
    job_end(j, NULL, well ? NULL : &err);
}

static void settle_later(void *arg) {
    job_settle(arg);
}

void image_job_fail(struct image_job *j, const struct err *err) {
    if (!j->has_failed)
        j->failed = *err;
    j->has_failed = true;
    image_job_close_archive(j);
    hearing_close(&j->unpacked);
    hearing_close(&j->drawn);
    loop_defer(j->service->loop, &j->later);
}

/* ---- reports of workers ---- */

/* Sends a progress event, at most one per PROGRESS_MS. */
static void tell_progress(struct image_job *j, const json_t *word) {
    struct buf text DEFER(buf_done) = BUF(4096);
    struct jot t = JOT(&text);
    uint64_t now = loop_now_ms(j->service->loop);
    const json_t *entries = json_object_get(word, "entries"),
                 *bytes = json_object_get(word, "bytes");
    if (now - j->told_ms < PROGRESS_MS || !json_is_integer(entries) || !json_is_integer(bytes))
        return;
    j->told_ms = now;
    jot_object(&t, NULL);
    jot_string(&t, "work", image_work_name(j->work));
    jot_string(&t, "name", j->row.name);
    jot_i64(&t, "entries", json_integer_value(entries));
    jot_i64(&t, "bytes", json_integer_value(bytes));
    jot_end(&t, '}');
    if (!t.failed)
        event_tell(j->service, j->who.owner, NULL, "image.progress", text.data);
}

static void hear_line(struct hearing *h, const char *line, size_t n) {
    json_t *word = json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL);
    bool last = json_object_get(word, "id") || json_object_get(word, "error") ||
                json_object_get(word, "done");
    if (!last) {
        tell_progress(h->job, word);
        json_decref(word);
        return;
    }
    /* Keep the first error of the worker: later errors are its consequences. */
    if (json_object_get(h->last, "error")) {
        json_decref(word);
        return;
    }
    json_decref(h->last);
    h->last = word;
}

static void hear_lines(struct hearing *h) {
    char *newline;
    while (h->text.len && (newline = memchr(h->text.data, '\n', h->text.len))) {
        size_t n = (size_t)(newline - h->text.data);
        hear_line(h, h->text.data, n);
        buf_drop(&h->text, n + 1);
    }
}

static void jobs_hear(void *arg, unsigned events) {
    struct hearing *h = arg;
    struct image_job *j = h->job;
    char piece[16 << 10];
    ssize_t n = read(h->fd, piece, sizeof(piece));
    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0 && buf_add(&h->text, piece, (size_t)n)) {
        hear_lines(h);
        return;
    }
    hearing_close(h);
    job_settle(j);
}

int image_hearing_open(struct image_job *j, struct hearing *h, struct err *err) {
    return loop_watch_new(j->service->loop, h->fd, LOOP_READ, jobs_hear, h, &h->watch, err);
}

/* ---- the start of a job ---- */

static int jobs_check_room(const struct service *s, const struct caller *who, struct err *err) {
    size_t all = 0, own = 0;
    for (const struct image_job *j = s->images->jobs; j; j = j->next) {
        all++;
        own += strcmp(j->who.owner, who->owner) == 0;
    }
    if (own < IMAGE_JOBS_OWNER_MAX && all < IMAGE_JOBS_HOST_MAX)
        return 0;
    if (own >= IMAGE_JOBS_OWNER_MAX)
        err_set(err, ERR_BUSY, "owner '%s' has %zu image operations in progress (at most %d)",
                who->owner, own, IMAGE_JOBS_OWNER_MAX);
    else
        err_set(err, ERR_BUSY, "this host has %zu image operations in progress (at most %d)", all,
                IMAGE_JOBS_HOST_MAX);
    return err_remedy(err, "try again when one of them has ended");
}

struct image_job *image_job_new(struct service *s, const struct caller *who, enum image_work work,
                                const struct image_events *events, struct err *err) {
    static const char *const verbs[IMAGE_WORKS] = {[IMAGE_IMPORT] = "image.import",
                                                   [IMAGE_EXPORT] = "image.export",
                                                   [IMAGE_SNAP] = "image.snap"};
    if (jobs_check_room(s, who, err) < 0)
        return NULL;
    struct image_job *j = xnew(struct image_job);
    *j = (struct image_job){.service = s,
                            .who = *who,
                            .events = *events,
                            .work = work,
                            .verb = verbs[work],
                            .told_ms = loop_now_ms(s->loop),
                            .archive = -1,
                            .merged = -1,
                            .next = s->images->jobs,
                            .worker_fds = {-1, -1},
                            .unpacked = {.fd = -1, .text = BUF(WORDS_MAX)},
                            .drawn = {.fd = -1, .text = BUF(WORDS_MAX)}};
    j->unpacked.job = j->drawn.job = j;
    j->later = (struct loop_call){.fn = settle_later, .arg = j};
    s->images->jobs = j;
    return j;
}

/* Creates the pipes; the worker's ends block. `in`: the daemon writes the archive. */
static int job_pipes(struct image_job *j, bool in, struct err *err) {
    int archive[2], report[2];
    if (pipe2(archive, O_CLOEXEC) < 0)
        return err_sys(err, "cannot create a pipe for the image worker");
    fcntl(archive[0], F_SETPIPE_SZ, PIPE_BYTES); /* optional: a larger pipe causes fewer wake-ups */
    j->archive = archive[in];
    j->worker_fds[0] = archive[!in];
    if (pipe2(report, O_CLOEXEC) < 0)
        return err_sys(err, "cannot create a pipe for the image worker");
    j->unpacked.fd = report[0];
    j->worker_fds[1] = report[1];
    return image_hearing_open(j, &j->unpacked, err);
}

void image_job_begun(void *arg, const struct err *err) {
    struct image_job *j = arg;
    j->asking--;
    close_fd(&j->worker_fds[0]);
    close_fd(&j->worker_fds[1]);
    if (err)
        image_job_fail(j, err);
    else
        loop_defer(j->service->loop, &j->later);
}

static int job_intent(struct image_job *j, struct err *err) {
    struct journal_record what = {.verb = j->verb, .reason = j->row.name};
    return note_intent(j->service, &j->who, &what, &j->intent, err);
}

int image_job_fill_row(struct image_job *j, const char *name, const char *origin, struct err *err) {
    if (name && image_name_check(name, err) < 0)
        return -1;
    snprintf(j->row.owner, sizeof(j->row.owner), "%s", j->who.owner);
    snprintf(j->row.name, sizeof(j->row.name), "%s", name ? name : "");
    snprintf(j->row.origin, sizeof(j->row.origin), "%s", origin);
    snprintf(j->row.token, sizeof(j->row.token), "%s", j->who.token);
    snprintf(j->staging, sizeof(j->staging), "%s", id_new('n').text);
    return 0;
}

/* ---- import ---- */

static void archive_room(void *arg, unsigned events) {
    struct image_job *j = arg;
    (void)events;
    loop_watch_set(j->archive_watch, 0);
    if (j->layered)
        image_layered_room(j->layered);
    if (!j->cancelled)
        j->events.room(j->events.arg);
}

/* The layers below count as well, also while this one is unpacked. */
static uint64_t worker_room(struct image_job *j) {
    struct image_sizes below = {.known = true};
    if (j->layered && j->below.count)
        image_sizes_of(j->service, j->below.ids[0], &below);
    return below.known && below.disk < j->hold.bytes ? j->hold.bytes - below.disk : j->hold.bytes;
}

int image_job_start_worker(struct image_job *j, struct err *err) {
    struct service *s = j->service;
    if (job_pipes(j, true, err) < 0 ||
        loop_watch_new(s->loop, j->archive, 0, archive_room, j, &j->archive_watch, err) < 0)
        return -1;
    j->asking++;
    const char *below = j->lent ? "host" : j->below.count ? j->below.ids[0] : NULL;
    const struct machine_unpack what = {
        .name = j->staging, .disk_bytes = worker_room(j), .below = below};
    s->driver->unpack(s->host, &what, j->worker_fds[0], j->worker_fds[1], image_job_begun, j);
    return 0;
}

static int job_begin(struct image_job *j, struct err *err) {
    j->hold.who = &j->who;
    return quota_hold(j->service, &j->hold, err) < 0 ? -1 : job_intent(j, err);
}

int image_job_begin_unpack(struct image_job *j, struct err *err) {
    return job_begin(j, err) < 0 ? -1 : image_job_start_worker(j, err);
}

/* Each layer starts a worker when it arrives. */
static int begin_layered(struct image_job *j, struct err *err) {
    j->staging[0] = '\0';
    j->layered = image_layered_new(j);
    return job_begin(j, err);
}

struct image_job *service_image_import(struct service *s, const struct caller *who,
                                       const char *name, enum image_above above,
                                       const struct image_events *events, struct err *err) {
    if (allow(who, SCOPE_RUN, err) < 0)
        return NULL;
    struct image_job *j = image_job_new(s, who, IMAGE_IMPORT, events, err);
    if (!j)
        return NULL;
    j->lent = above == IMAGE_ABOVE_HOST;
    if (image_job_fill_row(j, name, "import", err) == 0 &&
        (above == IMAGE_ABOVE_LAYERS ? begin_layered(j, err) : image_job_begin_unpack(j, err)) == 0)
        return j;
    image_job_free(j);
    return NULL;
}

size_t image_feed(struct image_job *j, const void *bytes, size_t count, bool last) {
    size_t done = 0;
    if (j->layered)
        return image_layered_feed(j->layered, bytes, count, last);
    while (j->archive >= 0 && done < count) {
        ssize_t n = write(j->archive, (const char *)bytes + done, count - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            loop_watch_set(j->archive_watch, LOOP_WRITE);
            return done;
        }
        if (n < 0) { /* the worker stopped reading: its report says why */
            image_job_close_archive(j);
            return count;
        }
        done += (size_t)n;
    }
    if (last)
        image_job_close_archive(j);
    return count;
}

/* ---- export ---- */

static void archive_data(void *arg, unsigned events) {
    struct image_job *j = arg;
    char *piece DEFER_FREE = malloc(PIECE);
    ssize_t n = piece ? read(j->archive, piece, PIECE) : 0;
    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0) {
        if (!j->cancelled)
            j->events.data(j->events.arg, piece, (size_t)n);
        return;
    }
    image_job_close_archive(j);
    job_settle(j);
}

struct image_job *service_image_export(struct service *s, const struct caller *who, const char *ref,
                                       const char *form, const struct image_events *events,
                                       struct err *err) {
    struct image_row row;
    if (allow(who, SCOPE_READ, err) < 0 || image_find(s, who, ref, &row, err) < 0)
        return NULL;
    struct image_job *j = image_job_new(s, who, IMAGE_EXPORT, events, err);
    if (!j)
        return NULL;
    j->row = row;
    if (job_intent(j, err) < 0 || job_pipes(j, false, err) < 0 ||
        loop_watch_new(s->loop, j->archive, LOOP_READ, archive_data, j, &j->archive_watch, err) <
            0) {
        image_job_free(j);
        return NULL;
    }
    j->asking++;
    s->driver->pack(s->host, form, row.id, j->worker_fds[0], j->worker_fds[1], image_job_begun, j);
    return j;
}

void image_hold(struct image_job *j, bool held) {
    if (j->archive_watch)
        loop_watch_set(j->archive_watch, held ? 0 : LOOP_READ);
}

void image_cancel(struct image_job *j) {
    struct err err;
    j->cancelled = true;
    err_set(&err, ERR_GONE, "the client disconnected before the image operation ended");
    if (!j->over)
        image_job_fail(j, &err);
}
