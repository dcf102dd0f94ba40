/*
 * Builds of an earlier daemon, found again by the label in the log that the service keeps for each
 * build. A build that was running is an error then, because builds end with the daemon.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/e2b/template_inner.h"
#include "base/alloc.h"
#include "base/defer.h"

enum { LABEL_MAX = 4096, BUILDS_LOOKED_AT = 64 };

int template_label(struct template_build *b, struct err *err) {
    json_t *label DEFER(json_decrefp) =
        json_pack("{s:s, s:s, s:I, s:[]}", "template", b->id, "name", b->name, "steps",
                  (json_int_t)b->plan.steps, "tags");
    for (size_t i = 0; i < b->tag_count; i++)
        json_array_append_new(json_object_get(label, "tags"), json_string(b->tags[i]));
    return service_build_label(b->of->service, &b->who, b->build, label, err);
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
