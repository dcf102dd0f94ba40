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
    json_t *label DEFER(json_decrefp) = json_pack("{s:s, s:s, s:I}", "template", b->id, "name",
                                                  b->name, "steps", (json_int_t)b->plan.steps);
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

static void restored_came(void *arg, const struct build_view *view) {
    struct template_build *b = arg;
    b->log.at_ms = view->ended_ms;
    template_log_read(b);
    template_build_came(b, view);
    b->ended_ms = view->ended_ms;
}

/* Takes over the reader. */
static struct template_build *restore_one(struct e2b_call *c, const char *id, const char *name,
                                          const json_t *label, struct build_log_reader *reader) {
    struct template_build *b = template_build_new(c->templates, &c->who);
    struct err err;
    snprintf(b->id, sizeof(b->id), "%s", c->param2);
    snprintf(b->name, sizeof(b->name), "%s", name);
    snprintf(b->build, sizeof(b->build), "%s", id);
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
