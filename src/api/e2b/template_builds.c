/*
 * Builds of templates. A client asks for a build, sends the files that its steps copy, starts it,
 * and polls. The service learns of the build when it starts: until then it is in memory, and in a
 * draft for the next daemon. What clients poll for after its end is in memory, and in its log.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "api/e2b/template_context.h"
#include "api/e2b/template_inner.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/hex.h"

enum { FEED_PIECE = 64 << 10, CPUS_MAX = 1024, MEM_MAX_MB = 16 << 20, NAME_MAX_BYTES = 255 };

/* ---- memory ---- */

struct e2b_templates *e2b_templates_new(struct loop *loop, struct service *service) {
    struct e2b_templates *t = xnew(struct e2b_templates);
    *t = (struct e2b_templates){.loop = loop, .service = service};
    template_drafts_load(t);
    return t;
}

struct template_build *template_build_ref(struct template_build *b) {
    b->refs++;
    return b;
}

static void archives_close(struct template_build *b) {
    for (size_t i = 0; i < TEMPLATE_STEPS_MAX; i++)
        close_fd(&b->archives[i]);
}

void template_build_unref(struct template_build *b) {
    if (--b->refs)
        return;
    archives_close(b);
    template_files_free(b);
    template_plan_done(&b->plan);
    template_log_done(&b->log);
    buf_done(&b->rest);
    free(b->reason);
    free(b);
}

/* The service may go on with the build, but nobody here follows it any more. */
static void build_leave(struct template_build *b) {
    if (b->upload)
        build_upload_cancel(TAKE(b->upload));
    if (b->reader.fd >= 0)
        build_log_close(&b->reader);
    b->reader.fd = -1;
    b->of = NULL;
    template_build_unref(b);
}

void e2b_templates_free(struct e2b_templates *t) {
    while (t->builds) {
        struct template_build *b = t->builds;
        t->builds = b->next;
        build_leave(b);
    }
    free(t);
}

static void build_forget(struct template_build *b) {
    service_draft_drop(b->of->service, b->id);
    build_leave(b);
}

static bool build_is_over(const struct template_build *b) {
    return b->state == TEMPLATE_READY || b->state == TEMPLATE_ERROR;
}

/* Forgets builds that were never started, and the oldest ones of the owner that have ended. */
static void builds_forget(struct e2b_templates *t, const struct caller *who) {
    uint64_t now_ms = monotonic_ms();
    size_t ended = 0;
    for (struct template_build **at = &t->builds, *b; (b = *at);) {
        bool late =
            b->state == TEMPLATE_WAITING && b->refs == 1 && now_ms - b->asked_ms > BUILD_WAIT_MS;
        bool is_ended = build_is_over(b) && strcmp(b->who.owner, who->owner) == 0;
        ended += is_ended;
        if (late || (is_ended && ended > BUILDS_SHOWN_MAX)) {
            *at = b->next;
            build_forget(b);
        } else {
            at = &b->next;
        }
    }
}

/* ---- ids ---- */

static void uuid_put(uint8_t bytes[16], char ret[TEMPLATE_UUID_SIZE]) {
    char hex[33];
    bytes[6] = (uint8_t)(bytes[6] & 0x0f) | 0x40;
    bytes[8] = (uint8_t)(bytes[8] & 0x3f) | 0x80;
    hex_put(bytes, 16, hex);
    snprintf(ret, TEMPLATE_UUID_SIZE, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16,
             hex + 20);
}

void template_image_uuid(const char *image, char ret[TEMPLATE_UUID_SIZE]) {
    struct sha256 s;
    uint8_t hash[SHA256_BYTES];
    sha256_init(&s);
    sha256_add(&s, image, strlen(image));
    sha256_end(&s, hash);
    uuid_put(hash, ret);
}

void e2b_build_uuid(const struct e2b_templates *t, const char *image,
                    char ret[TEMPLATE_UUID_SIZE]) {
    for (const struct template_build *b = t->builds; b; b = b->next)
        if (b->state == TEMPLATE_READY && strcmp(b->image, image) == 0) {
            memcpy(ret, b->id, TEMPLATE_UUID_SIZE);
            return;
        }
    template_image_uuid(image, ret);
}

/* ---- the request for a build ---- */

struct build_body {
    const char *name, *alias;
    struct texts tags;
    struct given cpus, mem_mb;
};

#define AT(member) offsetof(struct build_body, member)
static const struct field build_fields[] = {
    {"name", FIELD_TEXT, AT(name), "name of the template", .max = NAME_MAX_BYTES},
    {"alias", FIELD_TEXT, AT(alias), "the same", .max = NAME_MAX_BYTES},
    {"tags", FIELD_TEXTS, AT(tags), "tags", .max = TAGS_MAX},
    {"cpuCount", FIELD_NUMBER, AT(cpus), "processors", .min = 1, .max = CPUS_MAX},
    {"memoryMB", FIELD_NUMBER, AT(mem_mb), "memory", .min = 128, .max = MEM_MAX_MB},
};
#undef AT
const struct schema e2b_build_schema = SCHEMA("E2bBuild", struct build_body, build_fields);

static int tag_add(struct template_build *b, const char *tag, struct err *err) {
    char image[TEMPLATE_NAME_SIZE];
    for (size_t i = 0; i < b->tag_count; i++)
        if (strcmp(b->tags[i], tag) == 0)
            return 0;
    if (b->tag_count == TAGS_MAX)
        return err_set(err, ERR_LIMIT, "there are more than %d tags", TAGS_MAX);
    if (template_image_name(b->name, tag, image, err) < 0)
        return -1;
    snprintf(b->tags[b->tag_count++], TEMPLATE_NAME_SIZE, "%s", tag);
    return 0;
}

static int build_read(struct template_build *b, const struct build_body *r, struct err *err) {
    struct template_ref ref;
    const char *name = r->name ? r->name : r->alias;
    if (!name || !*name)
        return err_set(err, ERR_INVALID, "field 'name' is required");
    if (template_ref_read(name, &ref, err) < 0)
        return -1;
    snprintf(b->name, sizeof(b->name), "%s", ref.name);
    if (strchr(name, ':') && tag_add(b, ref.tag, err) < 0)
        return -1;
    for (size_t i = 0; i < r->tags.count; i++)
        if (tag_add(b, r->tags.v[i], err) < 0)
            return -1;
    b->cpus = r->cpus.value;
    b->mem_mb = r->mem_mb.value;
    return b->tag_count ? 0 : tag_add(b, TEMPLATE_DEFAULT_TAG, err);
}

/* The oldest build of the owner that waits makes room for a new one. */
static void builds_make_room(struct e2b_templates *t, const struct caller *who) {
    struct template_build **oldest = NULL, *b;
    size_t waiting = 0;
    for (struct template_build **at = &t->builds; (b = *at); at = &b->next)
        if (b->state == TEMPLATE_WAITING && strcmp(b->who.owner, who->owner) == 0) {
            waiting++;
            oldest = at;
        }
    if (waiting < BUILDS_WAITING_MAX)
        return;
    b = *oldest;
    *oldest = b->next;
    build_forget(b);
}

static void build_asked(struct e2b_call *c, const struct template_build *b) {
    struct buf text DEFER(buf_done) = BUF(64 << 10);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_string(&j, "templateID", b->name);
    jot_string(&j, "buildID", b->id);
    jot_bool(&j, "public", false);
    for (int i = 0; i < 2; i++) {
        jot_array(&j, i ? "names" : "aliases");
        jot_string(&j, NULL, b->name);
        jot_end(&j, ']');
    }
    jot_array(&j, "tags");
    for (size_t i = 0; i < b->tag_count; i++)
        jot_string(&j, NULL, b->tags[i]);
    jot_end(&j, ']');
    jot_end(&j, '}');
    e2b_answer(c, 202, &text, NULL);
}

struct template_build *template_build_new(struct e2b_templates *t, const struct caller *who) {
    struct template_build *b = xnew(struct template_build);
    *b = (struct template_build){.of = t,
                                 .refs = 1,
                                 .who = *who,
                                 .asked_ms = monotonic_ms(),
                                 .reader = {.fd = -1},
                                 .rest = BUF(1 << 20),
                                 .log = {.line = BUF(2 << 20)}};
    for (size_t i = 0; i < TEMPLATE_STEPS_MAX; i++)
        b->archives[i] = -1;
    return b;
}

static int build_names_free(const struct template_build *b, struct err *err) {
    char image[TEMPLATE_NAME_SIZE];
    for (size_t i = 0; i < b->tag_count; i++)
        if (template_image_name(b->name, b->tags[i], image, err) < 0 ||
            template_name_free(b->of->service, &b->who, image, err) < 0)
            return -1;
    return 0;
}

void e2b_build_request(struct e2b_call *c) {
    struct e2b_templates *t = c->templates;
    struct template_build *b = template_build_new(t, &c->who);
    uint8_t random[16];
    struct err err;
    builds_forget(t, &c->who);
    if (build_read(b, c->request, &err) < 0 || build_names_free(b, &err) < 0) {
        template_build_unref(b);
        e2b_error(c, &err);
        return;
    }
    if (getrandom(random, sizeof(random), 0) != sizeof(random))
        abort();
    builds_make_room(t, &c->who);
    uuid_put(random, b->id);
    b->next = t->builds;
    t->builds = b;
    template_draft_keep(b);
    build_asked(c, b);
}

/* ---- the end ---- */

static void build_settle(struct template_build *b, enum template_state state) {
    b->state = state;
    b->ended_ms = (uint64_t)wall_ms();
    archives_close(b);
    template_files_free(b);
    if (b->reader.fd >= 0)
        build_log_close(&b->reader);
    b->reader.fd = -1;
    if (!b->labelled)
        template_draft_keep(b);
}

/* output: the last lines of the step, each with a line feed before it. */
static void template_fail_with(struct template_build *b, const char *step, const struct err *err,
                               const char *output) {
    struct buf text DEFER(buf_done) = BUF(8192);
    bool has = err->remedy[0];
    if (build_is_over(b))
        return;
    free(b->reason);
    b->reason = buf_addf(&text, "%s%s%s%s", err->text, has ? ": " : "", err->remedy, output)
                    ? buf_take(&text)
                    : xstrdup(err->text);
    snprintf(b->reason_step, sizeof(b->reason_step), "%s", step);
    template_log_add(&b->log, step, true, b->reason, strlen(b->reason));
    build_settle(b, TEMPLATE_ERROR);
}

void template_build_fail(struct template_build *b, const char *step, const struct err *err) {
    template_fail_with(b, step, err, "");
}

static void build_tagged(void *arg, const struct image_view *view, const struct err *err) {
    struct template_build *b = arg;
    (void)view;
    if (err)
        template_build_fail(b, "finalize", err);
}

/* The image exists: it gets the names of the template. service_image_tag() answers at once. */
static void build_name(struct template_build *b) {
    struct err err;
    for (size_t i = 0; i < b->tag_count && !build_is_over(b); i++) {
        char name[TEMPLATE_NAME_SIZE];
        if (template_image_name(b->name, b->tags[i], name, &err) < 0 ||
            template_name_free(b->of->service, &b->who, name, &err) < 0)
            template_build_fail(b, "finalize", &err);
        else
            service_image_tag(b->of->service, &b->who, b->image, name, build_tagged, b);
    }
    if (build_is_over(b))
        return;
    static const char done[] = "Build finished";
    template_log_add(&b->log, "finalize", false, done, sizeof(done) - 1);
    build_settle(b, TEMPLATE_READY);
}

static bool sees_no_host(const struct template_build *b) {
    return strcmp(service_conf(b->of->service)->e2b_internet, "allow") != 0;
}

/* Whether a program says in its last lines that it did not reach a host, and builds reach none. */
static bool missed_a_host(const struct template_build *b, const char *output) {
    static const char *const words[] = {
        "resolve",     "resolution",      "connect",   "network",     "ENOTFOUND", "EAI_AGAIN",
        "unreachable", "name or service", "timed out", "getaddrinfo", "proxy",     "internet"};
    for (size_t i = 0; i < sizeof(words) / sizeof(*words) && sees_no_host(b); i++)
        if (strcasestr(output, words[i]))
            return true;
    return false;
}

void template_build_came(void *arg, const struct build_view *view) {
    struct template_build *b = arg;
    char step[TEMPLATE_STEP_SIZE];
    struct err err;
    if (view->image && strcmp(view->state, "done") == 0) {
        snprintf(b->image, sizeof(b->image), "%s", view->image);
        build_name(b);
        return;
    }
    template_step_name(&b->plan, view->step, step);
    struct buf output DEFER(buf_done) = BUF(4096);
    template_log_tail(&b->log, step, &output);
    err_set(&err, ERR_INVALID, "%s", view->error ? view->error : "the build was cancelled");
    if (missed_a_host(b, output.len ? output.data : ""))
        err_remedy(&err, "builds reach no host unless carrel.conf has internet = allow in its "
                         "section [e2b]");
    template_fail_with(b, step, &err, output.len ? output.data : "");
}

static void build_changed(void *arg) {
    struct template_build *b = arg;
    struct err err;
    template_log_read(b);
    if (b->reader.ended &&
        service_build_show(b->of->service, &b->who, b->build, template_build_came, b, &err) < 0)
        template_build_fail(b, "base", &err);
}

/* ---- files for the service ---- */

static void archives_send(struct template_build *b);

static void build_dropped(void *arg, const struct build_view *view) {
    (void)arg, (void)view;
}

/* The service waits for files that do not come. */
static void archives_fail(struct template_build *b, const struct err *err) {
    struct err ignored; /* the build has ended by itself */
    template_build_fail(b, "base", err);
    (void)service_build_cancel(b->of->service, &b->who, b->build, build_dropped, NULL, &ignored);
}

static void archive_room(void *arg) {
    archives_send(arg);
}

static void archive_sent(void *arg, const struct err *err) {
    struct template_build *b = arg;
    b->upload = NULL;
    if (err) {
        archives_fail(b, err);
        return;
    }
    close_fd(&b->archives[b->archive++]);
    b->sent = 0;
    archives_send(b);
}

static int archive_open(struct template_build *b, struct err *err) {
    const struct build_upload_events events = {
        .arg = b, .room = archive_room, .ended = archive_sent};
    if (!b->upload)
        b->upload =
            service_build_upload(b->of->service, &b->who, b->build, b->archive, &events, err);
    return b->upload ? 0 : -1;
}

/* Sends the rest of the present archive, as far as there is room. */
static void archives_send(struct template_build *b) {
    char *piece DEFER_FREE = xmalloc(FEED_PIECE);
    struct err err;
    int r = 0;
    if (b->archive == b->plan.copy_count)
        return;
    if (archive_open(b, &err) < 0) {
        archives_fail(b, &err);
        return;
    }
    while (r == 0) {
        ssize_t n = pread(b->archives[b->archive], piece, FEED_PIECE, (off_t)b->sent);
        if (n <= 0) {
            build_upload_finish(b->upload);
            return;
        }
        b->sent += (uint64_t)n;
        r = build_upload_add(b->upload, piece, (size_t)n, &err);
    }
    if (r < 0) {
        build_upload_cancel(TAKE(b->upload));
        archives_fail(b, &err);
    }
}

static void build_begun(void *arg, const struct build_view *view) {
    struct template_build *b = arg;
    snprintf(b->build, sizeof(b->build), "%s", view->id);
}

static void build_begin(struct template_build *b) {
    struct service *s = b->of->service;
    struct err err;
    char name[TEMPLATE_NAME_SIZE];
    b->reader = (struct build_log_reader){.changed = build_changed, .arg = b, .fd = -1};
    /* The service gives the first name, so that no build is done without one. */
    if (template_image_name(b->name, b->tags[0], name, &err) == 0)
        json_object_set_new(b->plan.recipe, "name", json_string(name));
    if (build_names_free(b, &err) < 0 ||
        service_build_start(s, &b->who, b->plan.recipe, true, build_begun, b, &err) < 0 ||
        template_label(b, &err) < 0 ||
        service_build_log(s, &b->who, b->build, &b->reader, &err) < 0)
        template_build_fail(b, "base", &err);
    else
        archives_send(b);
}

/* ---- the worker ---- */

/* The destination of a copy of a directory or a link, which are unpacked into a directory. */
static void copy_place(struct template_plan *p, size_t i, enum context_kind kind) {
    const char *to = p->copies[i].to, *slash = strrchr(to, '/');
    size_t n = strlen(to);
    if (kind == CONTEXT_DIR || (kind == CONTEXT_LINK && to[n - 1] == '/')) {
        char *dir DEFER_FREE = xstrdup(to);
        template_copy_into(p, i, dir);
    } else if (kind == CONTEXT_LINK) {
        char *dir DEFER_FREE = slash == to ? xstrdup("/") : xstrndup(to, (size_t)(slash - to));
        template_copy_into(p, i, dir);
    }
}

static int copy_prepare(struct template_build *b, size_t i, uint64_t *left, struct err *err) {
    const struct template_copy *copy = &b->plan.copies[i];
    const struct template_file *file = template_file_find(b, copy->hash);
    const char *slash = strrchr(copy->to, '/');
    const struct context_request r = {.in = file->fd,
                                      .out = b->archives[i],
                                      .source = copy->source,
                                      .name = slash[1] ? slash + 1 : NULL,
                                      .mode = copy->mode,
                                      .bytes_left = left};
    enum context_kind kind;
    if (context_write(&r, &kind, err) < 0)
        return -1;
    copy_place(&b->plan, i, kind);
    return 0;
}

/*
 * Runs on a worker thread. The loop does not touch the plan and the files meanwhile. One limit is
 * for all copies, because many steps may copy the same small archive of large files.
 */
static void build_prepare(void *arg) {
    struct template_build *b = arg;
    uint64_t left = BUILD_FILES_MAX;
    for (size_t i = 0; i < b->plan.copy_count && !b->prepare_failed; i++)
        if (copy_prepare(b, i, &left, &b->prepared) < 0) {
            b->prepare_failed = true;
            template_step_name(&b->plan, b->plan.copies[i].step + 1, b->prepared_step);
        }
}

static void build_prepared(void *arg) {
    struct template_build *b = arg;
    if (b->of && b->prepare_failed)
        template_build_fail(b, b->prepared_step, &b->prepared);
    else if (b->of)
        build_begin(b);
    template_build_unref(b);
}

/* ---- the start ---- */

struct start_body {
    const char *image, *template, *start, *ready;
    const json_t *steps, *registry;
    bool force;
};

#define AT(member) offsetof(struct start_body, member)
static const struct field start_fields[] = {
    {"fromImage", FIELD_TEXT, AT(image), "image to start from", .max = NAME_MAX_BYTES},
    {"fromTemplate", FIELD_TEXT, AT(template), "template to start from", .max = NAME_MAX_BYTES},
    {"fromImageRegistry", FIELD_JSON, AT(registry), "credentials of a registry"},
    {"startCmd", FIELD_TEXT, AT(start), "start command", .max = 64 << 10},
    {"readyCmd", FIELD_TEXT, AT(ready), "ready command", .max = 64 << 10},
    {"steps", FIELD_JSON, AT(steps), "steps"},
    {"force", FIELD_FLAG, AT(force), "without a cache"},
};
#undef AT
const struct schema e2b_build_start_schema =
    SCHEMA("E2bBuildStart", struct start_body, start_fields);

struct template_build *template_build_of(struct e2b_call *c, struct err *err) {
    struct template_ref ref;
    if (template_ref_read(c->param, &ref, err) < 0)
        return NULL;
    for (struct template_build *b = c->templates->builds; b; b = b->next)
        if (strcmp(b->id, c->param2) == 0 && strcmp(b->who.owner, c->who.owner) == 0 &&
            strcmp(b->name, ref.name) == 0)
            return b;
    struct template_build *before = template_restore(c, ref.name);
    if (before)
        return before;
    err_set(err, ERR_NOT_FOUND, "build '%.40s' of template '%.60s' not found", c->param2, c->param);
    return NULL;
}

static int start_base(struct e2b_call *c, struct template_found *ret, struct err *err) {
    const struct start_body *r = c->request;
    const char *what = r->template ? r->template : r->image ? r->image : "e2bdev/base";
    if (r->image && r->template)
        return err_set(err, ERR_INVALID, "a template starts from one image or template");
    if (json_object_size(r->registry))
        return err_set(err, ERR_INVALID, "field 'fromImageRegistry' is not supported");
    if (template_find(c, what, ret, err) == 0)
        return 0;
    if (err->code == ERR_NOT_FOUND && r->image)
        err_remedy(err, "images are not fetched for a build; use: carrel image pull %.200s",
                   r->image);
    return -1;
}

static int start_plan(struct e2b_call *c, struct template_build *b, struct err *err) {
    const struct start_body *r = c->request;
    struct template_found found DEFER(template_found_done) = {.config = NULL};
    if (start_base(c, &found, err) < 0)
        return -1;
    const struct template_base base = {.what = r->template ? r->template
                                               : r->image  ? r->image
                                                           : found.image,
                                       .image = found.image,
                                       .is_template = r->template && found.is_template,
                                       .config = found.config};
    const struct template_request request = {.steps = r->steps,
                                             .force = r->force,
                                             .start = r->start,
                                             .ready = r->ready,
                                             .cpus = b->cpus,
                                             .mem_mb = b->mem_mb,
                                             .net = !sees_no_host(b)};
    return template_plan_make(&base, &request, &b->plan, err);
}

static int start_files(struct template_build *b, struct err *err) {
    for (size_t i = 0; i < b->plan.copy_count; i++) {
        const struct template_file *file = template_file_find(b, b->plan.copies[i].hash);
        if (!file || file->fd < 0)
            return err_set(err, ERR_INVALID, "the files of '%.100s' were not sent",
                           b->plan.copies[i].source);
        b->archives[i] = service_build_spool(b->of->service, &b->who, err);
        if (b->archives[i] < 0)
            return -1;
    }
    return 0;
}

/* Their files are unpacked before the service counts the builds. A refused one still waits. */
static int start_room(const struct template_build *of, struct err *err) {
    size_t own = 0;
    for (const struct template_build *b = of->of->builds; b; b = b->next)
        own += b->state == TEMPLATE_BUILDING && strcmp(b->who.owner, of->who.owner) == 0;
    if (own < BUILDS_OWNER_MAX)
        return 0;
    err_set(err, ERR_LIMIT, "%zu builds of the owner run", own);
    return err_remedy(err, "wait until one of them has ended");
}

/* A build that cannot be started has ended: what was sent for it is deleted. */
void e2b_build_start(struct e2b_call *c) {
    struct err err;
    struct template_build *b = template_build_of(c, &err);
    if (b && b->state != TEMPLATE_WAITING) {
        err_set(&err, ERR_INVALID, "build '%s' was started before", b->id);
        b = NULL;
    } else if (b && start_room(b, &err) < 0) {
        b = NULL;
    } else if (b && (start_plan(c, b, &err) < 0 || start_files(b, &err) < 0)) {
        template_build_fail(b, "base", &err);
        b = NULL;
    }
    if (!b) {
        e2b_error(c, &err);
        return;
    }
    b->who = c->who; /* of a draft only the owner is known */
    b->state = TEMPLATE_BUILDING;
    template_draft_keep(b);
    loop_work(b->of->loop, build_prepare, build_prepared, template_build_ref(b));
    e2b_accepted(c);
}
