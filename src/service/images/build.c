/*
 * Builds as jobs: their start, uploads, cancellation and end. A build is a row of the store and,
 * until it ends, a struct build. build_steps.c runs its steps.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/log.h"
#include "service/images/build_inner.h"

static const char *const build_states[BUILD_STATES] = {
    [BUILD_UPLOADING] = "uploading", [BUILD_RUNNING] = "running",     [BUILD_DONE] = "done",
    [BUILD_FAILED] = "failed",       [BUILD_CANCELLED] = "cancelled",
};

const struct build_step *build_step_of(const struct build *b) {
    const struct build_step *steps = b->request.steps.v;
    return b->at < b->request.steps.count ? &steps[b->at] : NULL;
}

static const char *text_or_null(const char *text) {
    return text && *text ? text : NULL;
}

static void build_row_view(const struct build_row *row, struct build_view *ret) {
    *ret = (struct build_view){
        .id = row->id,
        .owner = row->owner,
        .name = text_or_null(row->name),
        .state = build_states[row->state],
        .step = row->step,
        .steps = row->steps,
        .made = row->made,
        .cached = row->cached,
        .started_ms = (uint64_t)row->started_ms,
        .ended_ms = (uint64_t)row->ended_ms,
        .image = text_or_null(row->image),
        .code = text_or_null(row->code),
        .error = text_or_null(row->error),
        .remedy = text_or_null(row->remedy),
    };
}

struct build *build_live(struct service *s, const char *id) {
    struct build *b = s->images->builds;
    while (b && strcmp(b->row.id, id) != 0)
        b = b->next;
    return b;
}

static void build_any_view(struct service *s, const struct build_row *row, struct build_view *ret) {
    const struct build *b = build_live(s, row->id);
    build_row_view(b ? &b->row : row, ret);
    const struct build_step *step = b ? build_step_of(b) : NULL;
    ret->what = step && b->row.step ? step->what : NULL;
}

/* ---- memory ---- */

static void archives_done(struct build *b) {
    for (size_t i = 0; i < b->archive_count; i++)
        close_fd(&b->archives[i].fd);
    free(b->archives);
    b->archives = NULL;
    b->archive_count = 0;
}

/* The service stops: the next daemon finds the row and says that the build was interrupted. */
void builds_release(struct service *s) {
    for (struct build *b = s->images->builds; b; b = b->next) {
        b->released = true;
        build_exec_release(b);
        loop_timer_free(TAKE(b->timer));
        loop_call_cancel(s->loop, &b->call);
    }
}

static void build_free(struct build *b) {
    for (struct build_log_reader *r = b->readers, *next; r; r = next) {
        next = r->next;
        r->at = NULL;
    }
    build_exec_release(b);
    build_copying_done(&b->copying);
    loop_timer_free(b->timer);
    loop_call_cancel(b->service->loop, &b->call);
    archives_done(b);
    json_decref(b->rules);
    schema_done(&build_request_schema, &b->request);
    json_decref(b->recipe);
    build_row_done(&b->row);
    buf_done(&b->tail);
    close_fd(&b->log);
    free(b);
}

void builds_free(struct service_images *i) {
    while (i->builds) {
        struct build *b = i->builds;
        i->builds = b->next;
        build_free(b);
    }
}

size_t builds_count(const struct service *s) {
    size_t n = 0;
    for (const struct build *b = s->images->builds; b; b = b->next)
        n++;
    return n;
}

/* ---- the end ---- */

static void build_save(struct build *b) {
    struct err err;
    if (store_build_put(b->service->store, &b->row, &err) < 0)
        log_line(LOG_WARN, "service", "save build '%s': %s", b->row.id, err.text);
}

/* Deletes the oldest ended builds of an owner. */
static void builds_prune(struct service *s, const char *owner) {
    struct build_list list DEFER(build_list_done) = {0};
    struct err err;
    size_t ended = 0;
    if (store_build_list(s->store, owner, &list, &err) < 0)
        return;
    for (size_t i = 0; i < list.count; i++) {
        ended += list.rows[i].ended_ms != 0;
        if (!list.rows[i].ended_ms || ended <= BUILDS_KEPT_MAX)
            continue;
        if (store_build_delete(s->store, list.rows[i].id, &err) == 0)
            build_log_delete(s, list.rows[i].id);
    }
}

static void build_note(struct build *b, const struct err *err) {
    struct journal_record what = {.verb = "image.build", .reason = b->row.id};
    note_result(b->service, &b->who, &what, b->intent, err);
}

static void build_tell_end(struct build *b) {
    struct buf text DEFER(buf_done) = BUF(4096);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_string(&j, "build", b->row.id);
    jot_string(&j, "state", build_states[b->row.state]);
    jot_end(&j, '}');
    event_tell(b->service, b->row.owner, NULL, "image.build", j.failed ? NULL : text.data);
}

/* The machine is gone. */
static void build_ended(struct build *b) {
    struct service *s = b->service;
    struct build **at = &s->images->builds;
    const struct err *err = b->has_failed ? &b->failed : NULL;
    b->row.state = b->cancelled ? BUILD_CANCELLED : err ? BUILD_FAILED : BUILD_DONE;
    b->row.ended_ms = wall_ms();
    if (err) {
        b->row.code = xstrdup(err_code_name(err->code));
        b->row.error = xstrdup(err->text);
        b->row.remedy = xstrdup(err->remedy);
        b->row.image[0] = '\0';
    }
    build_save(b);
    build_note(b, err);
    build_tell_end(b);
    while (*at != b)
        at = &(*at)->next;
    *at = b->next;
    while (b->readers) { /* readers leave the list before they are told, because they may go */
        struct build_log_reader *r = b->readers;
        b->readers = r->next;
        if (r->next)
            r->next->at = &b->readers;
        r->at = NULL;
        r->ended = true;
        r->changed(r->arg);
    }
    builds_prune(s, b->row.owner);
    build_free(b);
}

static void build_cleared(void *arg, const struct machine_view *view, const struct err *err) {
    struct build *b = arg;
    (void)view;
    if (err && err->code != ERR_NOT_FOUND && err->code != ERR_GONE)
        log_line(LOG_WARN, "service", "delete the machine of build '%s': %s", b->row.id, err->text);
    if (!b->released)
        build_ended(b);
}

static void build_clear(struct build *b) {
    if (!b->machine[0]) {
        build_ended(b);
        return;
    }
    service_destroy(b->service, &b->who, b->machine, build_cleared, b);
}

static void build_named(void *arg, const struct image_view *view, const struct err *err) {
    struct build *b = arg;
    (void)view;
    if (err) {
        b->failed = *err;
        b->has_failed = true;
    }
    build_clear(b);
}

void build_finish(struct build *b) {
    b->ending = true;
    if (strcmp(b->image, "host") != 0)
        snprintf(b->row.image, sizeof(b->row.image), "%s", b->image);
    if (b->row.name[0])
        service_image_tag(b->service, &b->who, b->image, b->row.name, build_named, b);
    else
        build_clear(b);
}

/* ---- progress ---- */

static void build_continue(void *arg) {
    struct build *b = arg;
    struct err err;
    if (b->cancelled) {
        err_set(&err, ERR_GONE, "the build was cancelled");
        build_fail(b, &err);
        return;
    }
    b->then(b);
}

void build_go(struct build *b, build_then_fn *then) {
    b->then = then;
    loop_defer(b->service->loop, &b->call);
}

void build_begin(struct build *b, build_then_fn *then) {
    b->then = then;
    b->busy = true;
}

void build_did(struct build *b, const struct err *err) {
    if (b->released)
        return;
    b->busy = false;
    if (err && !b->cancelled)
        build_fail(b, err);
    else
        loop_defer(b->service->loop, &b->call);
}

void build_fail(struct build *b, const struct err *err) {
    const struct build_step *step = build_step_of(b);
    if (b->ending)
        return;
    b->ending = b->has_failed = true;
    b->failed = *err;
    if (!b->cancelled && step && step->place)
        err_wrap(&b->failed, "%.100s", step->place);
    build_log_tail(b);
    build_clear(b);
}

/* ---- start ---- */

static int builds_check_room(const struct service *s, const struct caller *who, struct err *err) {
    size_t all = 0, own = 0;
    for (const struct build *b = s->images->builds; b; b = b->next) {
        all++;
        own += strcmp(b->who.owner, who->owner) == 0;
    }
    if (own < BUILDS_OWNER_MAX && all < BUILDS_HOST_MAX)
        return 0;
    if (own >= BUILDS_OWNER_MAX)
        err_set(err, ERR_BUSY, "owner '%s' has %zu image builds in progress (at most %d)",
                who->owner, own, BUILDS_OWNER_MAX);
    else
        err_set(err, ERR_BUSY, "this host has %zu image builds in progress (at most %d)", all,
                BUILDS_HOST_MAX);
    return err_remedy(err, "try again when one has ended; see carrel image builds");
}

static int build_authorise(const struct build *b, struct err *err) {
    const struct build_step *steps = b->request.steps.v;
    if (allow(&b->who, SCOPE_RUN, err) < 0)
        return -1;
    for (size_t i = 0; i < b->request.steps.count; i++)
        if (steps[i].net.count && !b->net_allowed && authorise(&b->who, RIGHT_BUILD_NET, err) < 0)
            return -1;
    return b->request.local.count ? authorise(&b->who, RIGHT_BUILD_LOCAL, err) : 0;
}

static int step_check(const struct build_step *step, size_t number, size_t *archives,
                      struct err *err) {
    unsigned acts = (step->command != NULL) + (step->argv.count > 0) + step->archive.is;
    if (acts > 1 || (!step->make && (acts || step->dirs.count)))
        return err_set(err, ERR_INVALID,
                       "step %zu must have one of 'command', 'argv' and 'archive', with 'make'",
                       number);
    if (!step->archive.is)
        return 0;
    if (step->archive.value != *archives)
        return err_set(err, ERR_INVALID, "step %zu must have the archive number %zu", number,
                       *archives);
    (*archives)++;
    if (!step->to || step->to[0] != '/' || strlen(step->to) + 1 >= BUILD_PATH_SIZE || !step->key)
        return err_set(err, ERR_INVALID,
                       "step %zu needs 'key', and an absolute path in 'to' of less than %d bytes",
                       number, BUILD_PATH_SIZE - 1);
    return 0;
}

static int build_check(struct build *b, struct err *err) {
    const struct build_step *steps = b->request.steps.v;
    const char *name = b->request.name;
    size_t archives = 0;
    if (name && image_name_check(name, err) < 0)
        return -1;
    for (size_t i = 0; i < b->request.steps.count; i++)
        if (step_check(&steps[i], i + 1, &archives, err) < 0)
            return -1;
    b->archives = archives ? reallocarray(NULL, archives, sizeof(*b->archives)) : NULL;
    if (archives && !b->archives)
        return err_set(err, ERR_LIMIT, "out of memory");
    b->archive_count = archives;
    for (size_t i = 0; i < archives; i++)
        b->archives[i] = (struct build_archive){.fd = -1};
    return 0;
}

static int build_find_base(struct build *b, struct err *err) {
    struct image_row row;
    if (strcmp(b->request.base, "host") == 0) {
        snprintf(b->image, sizeof(b->image), "host");
        return 0;
    }
    if (image_find(b->service, &b->who, b->request.base, &row, err) < 0)
        return -1;
    memcpy(b->image, row.id, sizeof(b->image));
    return 0;
}

static int build_record(struct build *b, struct err *err) {
    struct journal_record what = {.verb = "image.build", .reason = b->row.id};
    snprintf(b->row.id, sizeof(b->row.id), "%s", id_new('b').text);
    snprintf(b->row.owner, sizeof(b->row.owner), "%s", b->who.owner);
    snprintf(b->row.token, sizeof(b->row.token), "%s", b->who.token);
    snprintf(b->row.name, sizeof(b->row.name), "%s", b->request.name ? b->request.name : "");
    b->row.state = b->archive_count ? BUILD_UPLOADING : BUILD_RUNNING;
    b->row.steps = (uint32_t)b->request.steps.count;
    b->row.started_ms = wall_ms();
    if (note_intent(b->service, &b->who, &what, &b->intent, err) < 0)
        return -1;
    int r = build_log_create(b, err);
    if (r == 0 && (r = store_build_put(b->service->store, &b->row, err)) < 0)
        build_log_delete(b->service, b->row.id);
    if (r < 0)
        build_note(b, err);
    return r;
}

static void upload_late(void *arg) {
    struct build *b = arg;
    struct err err;
    err_set(&err, ERR_TIMEOUT, "the files of the build did not arrive within %d minutes",
            BUILD_UPLOAD_MS / 60000);
    b->at = b->request.steps.count; /* no step has begun */
    build_fail(b, &err);
}

void build_uploaded(struct build *b) {
    loop_timer_free(TAKE(b->timer));
    b->row.state = BUILD_RUNNING;
    build_go(b, build_start_steps);
}

int service_build_start(struct service *s, const struct caller *who, json_t *recipe,
                        bool net_allowed, service_build_fn *done, void *arg, struct err *err) {
    struct build_view view;
    struct build *b = xnew(struct build);
    *b = (struct build){.service = s,
                        .who = *who,
                        .recipe = json_incref(recipe),
                        .net_allowed = net_allowed,
                        .log = -1,
                        .tail = BUF(2 * BUILD_TAIL)};
    b->call = (struct loop_call){.fn = build_continue, .arg = b};
    if (schema_read(&build_request_schema, recipe, &b->request, err) < 0 ||
        build_authorise(b, err) < 0 || builds_check_room(s, who, err) < 0 ||
        build_check(b, err) < 0 || build_find_base(b, err) < 0 || build_record(b, err) < 0) {
        build_free(b);
        return -1;
    }
    b->next = s->images->builds;
    s->images->builds = b;
    if (b->archive_count) {
        b->timer = loop_timer_new(s->loop, upload_late, b);
        loop_timer_start(b->timer, BUILD_UPLOAD_MS, 0);
    } else {
        build_uploaded(b);
    }
    build_any_view(s, &b->row, &view);
    done(arg, &view);
    return 0;
}

/* ---- list, show, cancel ---- */

int build_find(struct service *s, const struct caller *who, const char *id, struct build_row *ret,
               struct err *err) {
    bool admin = who->scopes & SCOPE_ADMIN;
    return store_build_find(s->store, admin ? NULL : who->owner, id, ret, err);
}

int service_build_list(struct service *s, const struct caller *who, bool all_owners,
                       service_row_fn *row, void *arg, struct err *err) {
    struct build_list list DEFER(build_list_done) = {0};
    if (allow(who, SCOPE_READ, err) < 0 ||
        (all_owners && authorise(who, RIGHT_LIST_ALL, err) < 0) ||
        store_build_list(s->store, all_owners ? NULL : who->owner, &list, err) < 0)
        return -1;
    for (size_t i = 0; i < list.count; i++) {
        struct build_view view;
        build_any_view(s, &list.rows[i], &view);
        row(arg, &view);
    }
    return 0;
}

int service_build_show(struct service *s, const struct caller *who, const char *id,
                       service_build_fn *done, void *arg, struct err *err) {
    struct build_row row DEFER(build_row_done) = {.state = 0};
    struct build_view view;
    if (allow(who, SCOPE_READ, err) < 0 || build_find(s, who, id, &row, err) < 0)
        return -1;
    build_any_view(s, &row, &view);
    done(arg, &view);
    return 0;
}

static void build_dropped(void *arg, const struct machine_view *view, const struct err *err) {
    (void)arg, (void)view, (void)err; /* build_clear() deletes what is left */
}

/* Ends what is in progress: the machine goes, and with it every operation on it. */
static void build_cancel(struct build *b) {
    if (b->cancelled || b->ending)
        return;
    b->cancelled = true;
    if (b->machine[0] && b->busy)
        service_destroy(b->service, &b->who, b->machine, build_dropped, NULL);
    if (!b->busy)
        build_go(b, b->then);
}

int service_build_cancel(struct service *s, const struct caller *who, const char *id,
                         service_build_fn *done, void *arg, struct err *err) {
    struct build_row row DEFER(build_row_done) = {.state = 0};
    struct journal_record what = {.verb = "image.build.cancel", .reason = row.id};
    struct build_view view;
    uint64_t intent;
    if (allow(who, SCOPE_RUN, err) < 0 || build_find(s, who, id, &row, err) < 0 ||
        note_intent(s, who, &what, &intent, err) < 0)
        return -1;
    struct build *b = build_live(s, row.id);
    if (b)
        build_cancel(b);
    note_result(s, who, &what, intent, NULL);
    build_any_view(s, &row, &view);
    done(arg, &view);
    return 0;
}

/* ---- start of the daemon ---- */

void builds_sweep(struct service *s) {
    struct err err;
    if (store_builds_lose(s->store, wall_ms(), "the daemon restarted before the build ended",
                          &err) < 0)
        log_line(LOG_WARN, "service", "end builds of the daemon before: %s", err.text);
    build_logs_sweep(s);
}
