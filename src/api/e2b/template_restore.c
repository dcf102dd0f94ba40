/*
 * Builds of an earlier daemon. Those that the service knows are found again by the label in the log
 * that it keeps for each build; one that was running is an error then, because builds end with the
 * daemon. Of the others, which wait or did not begin, there are drafts. Without these a client that
 * polls would be told that its build never was.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/e2b/template_inner.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/hex.h"

enum { LABEL_MAX = 4096, BUILDS_LOOKED_AT = 64, DRAFT_MAX = 200 << 10 };

/* ---- builds that the service knows ---- */

int template_label(struct template_build *b, struct err *err) {
    json_t *label DEFER(json_decrefp) =
        json_pack("{s:s, s:s, s:I, s:[]}", "template", b->id, "name", b->name, "steps",
                  (json_int_t)b->plan.steps, "tags");
    for (size_t i = 0; i < b->tag_count; i++)
        json_array_append_new(json_object_get(label, "tags"), json_string(b->tags[i]));
    if (service_build_label(b->of->service, &b->who, b->build, label, err) < 0)
        return -1;
    b->labelled = true;
    service_draft_drop(b->of->service, b->id);
    return 0;
}

struct ended_build {
    char id[ID_SIZE];
};

struct ended_builds {
    struct ended_build v[BUILDS_LOOKED_AT]; /* the newest */
    size_t count;
};

static void ended_add(void *arg, const void *row) {
    struct ended_builds *all = arg;
    const struct build_view *view = row;
    if (view->ended_ms && all->count < BUILDS_LOOKED_AT)
        snprintf(all->v[all->count++].id, ID_SIZE, "%s", view->id);
}

/* The label in the first line of a log; NULL: the build is not one of a client. */
static json_t *label_read(int log) {
    char text[LABEL_MAX];
    ssize_t n = pread(log, text, sizeof(text), 0);
    const char *end = n > 0 ? memchr(text, '\n', (size_t)n) : NULL;
    json_t *line = end ? json_loadb(text, (size_t)(end - text), 0, NULL) : NULL;
    json_t *label = json_incref(json_object_get(line, "label"));
    json_decref(line);
    return label;
}

static bool label_is(const json_t *label, const char *id, const char *name) {
    const char *own = json_string_value(json_object_get(label, "template"));
    const char *of = json_string_value(json_object_get(label, "name"));
    return own && of && strcmp(own, id) == 0 && strcmp(of, name) == 0;
}

static void tag_came(void *arg, const struct image_view *view, const struct err *err) {
    (void)arg, (void)view, (void)err;
}

/* The daemon may have ended after the build, and before it gave the image all names. */
static int has_tags(const struct template_build *b, struct err *err) {
    char name[TEMPLATE_NAME_SIZE];
    for (size_t i = 0; i < b->tag_count; i++)
        if (template_image_name(b->name, b->tags[i], name, err) < 0 ||
            service_image_show(b->of->service, &b->who, name, tag_came, NULL, err) < 0) {
            err_set(err, ERR_NOT_FOUND, "the template has no tag '%.60s'", b->tags[i]);
            return err_remedy(err, "it was removed, or the daemon ended before it gave the tag");
        }
    return 0;
}

static void restored_came(void *arg, const struct build_view *view) {
    struct template_build *b = arg;
    struct err err;
    b->log.at_ms = view->ended_ms;
    template_log_read(b);
    if (view->image && has_tags(b, &err) < 0) {
        template_build_fail(b, "finalize", &err);
    } else {
        b->tag_count = 0; /* it has them, and some may name newer images */
        template_build_came(b, view);
    }
    b->ended_ms = view->ended_ms;
}

/* Takes over the reader. */
static struct template_build *restore_one(struct e2b_call *c, const char *id, const char *name,
                                          const json_t *label, struct build_log_reader *reader) {
    struct template_build *b = template_build_new(c->templates, &c->who);
    const json_t *tag;
    struct err err;
    size_t i;
    snprintf(b->id, sizeof(b->id), "%s", c->param2);
    snprintf(b->name, sizeof(b->name), "%s", name);
    snprintf(b->build, sizeof(b->build), "%s", id);
    json_array_foreach(json_object_get(label, "tags"), i, tag) {
        if (b->tag_count < TAGS_MAX)
            snprintf(b->tags[b->tag_count++], TEMPLATE_NAME_SIZE, "%s",
                     json_is_string(tag) ? json_string_value(tag) : "");
    }
    b->plan.steps = (size_t)json_integer_value(json_object_get(label, "steps"));
    b->reader = *reader;
    reader->fd = -1;
    b->state = TEMPLATE_BUILDING;
    b->labelled = true;
    if (service_build_show(c->service, &c->who, id, restored_came, b, &err) < 0)
        template_build_fail(b, "base", &err);
    b->next = c->templates->builds;
    c->templates->builds = b;
    return b;
}

struct template_build *template_restore(struct e2b_call *c, const char *name) {
    struct ended_builds all = {.count = 0};
    struct template_build *found = NULL;
    struct err err;
    if (service_build_list(c->service, &c->who, false, ended_add, &all, &err) < 0)
        return NULL;
    for (size_t i = 0; i < all.count && !found; i++) {
        struct build_log_reader reader = {.fd = -1};
        if (service_build_log(c->service, &c->who, all.v[i].id, &reader, &err) < 0)
            continue;
        json_t *label DEFER(json_decrefp) = label_read(reader.fd);
        if (label_is(label, c->param2, name))
            found = restore_one(c, all.v[i].id, name, label, &reader);
        if (reader.fd >= 0)
            build_log_close(&reader);
    }
    return found;
}

/* ---- drafts ---- */

static const char *const state_names[] = {
    [TEMPLATE_WAITING] = "waiting",
    [TEMPLATE_BUILDING] = "started",
    [TEMPLATE_READY] = "",
    [TEMPLATE_ERROR] = "error",
};

static void put_files(struct jot *j, const struct template_build *b) {
    jot_array(j, "files");
    for (const struct template_file *f = b->files; f; f = f->next) {
        jot_object(j, NULL);
        jot_string(j, "hash", f->hash);
        jot_string(j, "upload", f->upload);
        jot_i64(j, "size", f->fd < 0 ? -1 : (int64_t)f->size);
        jot_end(j, '}');
    }
    jot_end(j, ']');
}

static void put_draft(struct jot *j, const struct template_build *b) {
    jot_object(j, NULL);
    jot_string(j, "state", state_names[b->state]);
    jot_string(j, "owner", b->who.owner);
    jot_string(j, "name", b->name);
    jot_u64(j, "cpus", b->cpus);
    jot_u64(j, "mem_mb", b->mem_mb);
    jot_u64(j, "asked_ms", (uint64_t)wall_ms() - (monotonic_ms() - b->asked_ms));
    jot_u64(j, "ended_ms", b->ended_ms);
    jot_array(j, "tags");
    for (size_t i = 0; i < b->tag_count; i++)
        jot_string(j, NULL, b->tags[i]);
    jot_end(j, ']');
    put_files(j, b);
    if (b->reason)
        jot_string(j, "reason", b->reason);
    jot_string(j, "step", b->reason_step);
    jot_end(j, '}');
}

void template_draft_keep(struct template_build *b) {
    struct buf text DEFER(buf_done) = BUF(DRAFT_MAX);
    struct jot j = JOT(&text);
    put_draft(&j, b);
    if (b->state == TEMPLATE_ERROR)
        service_draft_drop(b->of->service, b->id); /* its files */
    if (!j.failed)
        service_draft_put(b->of->service, b->id, text.data, text.len);
}

static bool text_read(const json_t *of, const char *name, char *ret, size_t size) {
    const char *text = json_string_value(json_object_get(of, name));
    if (!text || strlen(text) >= size)
        return false;
    memcpy(ret, text, strlen(text) + 1);
    return true;
}

static uint64_t number_read(const json_t *of, const char *name) {
    json_int_t n = json_integer_value(json_object_get(of, name));
    return n > 0 ? (uint64_t)n : 0;
}

/* After a crash of the host a file may be shorter than it was: then it was never sent. */
static void file_open(const struct template_build *b, struct template_file *f, json_int_t size) {
    struct stat st;
    if (size < 0)
        return;
    f->fd = service_draft_open(b->of->service, b->id, f->hash);
    if (f->fd >= 0 && (fstat(f->fd, &st) < 0 || st.st_size != size))
        close_fd(&f->fd);
    if (f->fd < 0)
        f->fd = -1;
    else
        f->size = (uint64_t)size;
}

static void files_read(struct template_build *b, const json_t *files) {
    const json_t *row;
    size_t i;
    json_array_foreach(files, i, row) {
        struct template_file *f = xnew(struct template_file);
        f->fd = -1;
        f->next = b->files;
        b->files = f;
        if (!text_read(row, "hash", f->hash, sizeof(f->hash)) ||
            !hex_is(f->hash, TEMPLATE_HASH_SIZE - 1) ||
            !text_read(row, "upload", f->upload, sizeof(f->upload)) || i == FILES_MAX) {
            b->files = f->next;
            free(f);
            return;
        }
        file_open(b, f, json_integer_value(json_object_get(row, "size")));
    }
}

static void tags_read(struct template_build *b, const json_t *tags) {
    for (size_t i = 0; i < json_array_size(tags) && i < TAGS_MAX; i++) {
        const char *tag = json_string_value(json_array_get(tags, i));
        snprintf(b->tags[b->tag_count++], TEMPLATE_NAME_SIZE, "%s", tag ? tag : "");
    }
}

/* A build that was started has ended with the daemon. */
static void draft_ended(struct template_build *b, const json_t *draft, bool has_failed) {
    const char *reason = json_string_value(json_object_get(draft, "reason"));
    b->state = TEMPLATE_ERROR;
    b->ended_ms = has_failed ? number_read(draft, "ended_ms") : (uint64_t)wall_ms();
    b->log.at_ms = b->ended_ms;
    b->reason = xstrdup(has_failed && reason ? reason
                                             : "the daemon restarted before the build ended; start "
                                               "the build again");
    if (!has_failed || !text_read(draft, "step", b->reason_step, sizeof(b->reason_step)))
        snprintf(b->reason_step, sizeof(b->reason_step), "base");
    template_log_add(&b->log, b->reason_step, true, b->reason, strlen(b->reason));
}

static bool draft_read(struct template_build *b, const json_t *draft) {
    const char *state = json_string_value(json_object_get(draft, "state"));
    uint64_t now_ms = monotonic_ms(), wall = (uint64_t)wall_ms();
    uint64_t asked_ms = number_read(draft, "asked_ms");
    uint64_t age_ms = wall > asked_ms ? wall - asked_ms : 0;
    if (!state || !text_read(draft, "owner", b->who.owner, sizeof(b->who.owner)) ||
        !text_read(draft, "name", b->name, sizeof(b->name)))
        return false;
    b->cpus = number_read(draft, "cpus");
    b->mem_mb = number_read(draft, "mem_mb");
    b->asked_ms = now_ms - (age_ms < now_ms ? age_ms : now_ms);
    tags_read(b, json_object_get(draft, "tags"));
    if (strcmp(state, state_names[TEMPLATE_WAITING]) != 0) {
        draft_ended(b, draft, strcmp(state, state_names[TEMPLATE_ERROR]) == 0);
        return true;
    }
    files_read(b, json_object_get(draft, "files"));
    return b->tag_count && age_ms < BUILD_WAIT_MS;
}

/* The newest first, as clients asked for them. */
static bool draft_came(void *arg, const char *name, const json_t *draft) {
    struct e2b_templates *t = arg;
    const struct caller nobody = {.scopes = SCOPE_READ | SCOPE_RUN, .client = "e2b"};
    struct template_build *b = template_build_new(t, &nobody), **at = &t->builds;
    bool is_id = strlen(name) == TEMPLATE_UUID_SIZE - 1;
    snprintf(b->id, sizeof(b->id), "%s", is_id ? name : "");
    if (!is_id || !draft_read(b, draft)) {
        template_build_unref(b);
        return false;
    }
    while (*at && (*at)->asked_ms > b->asked_ms)
        at = &(*at)->next;
    b->next = *at;
    *at = b;
    return true;
}

void template_drafts_load(struct e2b_templates *t) {
    service_drafts_load(t->service, draft_came, t);
    for (struct template_build *b = t->builds; b; b = b->next)
        if (b->state == TEMPLATE_ERROR)
            template_draft_keep(b); /* the files of one that was cut go */
}
