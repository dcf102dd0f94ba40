/* Names of templates, and templates as clients see them. */
#include "api/e2b/templates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"

enum { REF_MAX = 255, MIB = 1 << 20, TEMPLATES_MAX = 10000 };

/* ---- names ---- */

int template_image_name(const char *name, const char *tag, char ret[TEMPLATE_NAME_SIZE],
                        struct err *err) {
    bool is_default = strcmp(tag, TEMPLATE_DEFAULT_TAG) == 0;
    int n = snprintf(ret, TEMPLATE_NAME_SIZE, "%s%s%s", name, is_default ? "" : ":",
                     is_default ? "" : tag);
    bool whole = n > 0 && n < TEMPLATE_NAME_SIZE && *tag && !strchr(tag, ':');
    if (whole && image_name_ok(ret) && strncmp(ret, "build:", 6) != 0)
        return 0;
    err_set(err, ERR_INVALID, "'%.60s' with the tag '%.60s' is not a valid name of a template",
            name, tag);
    return err_remedy(err, "use letters, digits, '.', '_' and '-', %d at most",
                      TEMPLATE_NAME_SIZE - 1);
}

int template_ref_read(const char *text, struct template_ref *ret, struct err *err) {
    size_t n = strcspn(text, ":");
    const char *tag = text[n] ? text + n + 1 : TEMPLATE_DEFAULT_TAG;
    char image[TEMPLATE_NAME_SIZE];
    snprintf(ret->name, sizeof(ret->name), "%.*s", n < sizeof(ret->name) ? (int)n : 0, text);
    snprintf(ret->tag, sizeof(ret->tag), "%s", strlen(tag) < sizeof(ret->tag) ? tag : "");
    return template_image_name(ret->name, ret->tag, image, err);
}

/* ---- images ---- */

void template_found_done(struct template_found *f) {
    json_decref(f->config);
    *f = (struct template_found){.config = NULL};
}

static void found_came(void *arg, const struct image_view *view, const struct err *err) {
    struct template_found *f = arg;
    if (err)
        return;
    f->config = json_loads(view->config, 0, NULL);
    f->is_template = template_start_read(f->config, &f->start);
}

static bool found_named(struct e2b_call *c, const char *name, struct template_found *ret) {
    struct err none;
    if (!*name || strlen(name) >= sizeof(ret->image) || strncmp(name, "build:", 6) == 0 ||
        service_image_show(c->service, &c->who, name, found_came, ret, &none) < 0)
        return false;
    snprintf(ret->image, sizeof(ret->image), "%s", name);
    return true;
}

/*
 * As it stands; NAME:default as NAME; and a reference to a registry by its last part, which is the
 * name that `carrel image pull` gives an image.
 */
static bool found_like(struct e2b_call *c, const char *text, struct template_found *ret) {
    const char *slash = strrchr(text, '/'), *name = slash ? slash + 1 : text;
    size_t n = strcspn(name, ":");
    const char *tag = name[n] ? name + n + 1 : "";
    char *plain DEFER_FREE = xstrndup(name, n), *latest DEFER_FREE = xformat("%s:latest", plain);
    bool is_usual = strcmp(tag, TEMPLATE_DEFAULT_TAG) == 0 || strcmp(tag, "latest") == 0;
    return found_named(c, name, ret) || (is_usual && found_named(c, plain, ret)) ||
           (!*tag && found_named(c, latest, ret));
}

int template_find(struct e2b_call *c, const char *text, struct template_found *ret,
                  struct err *err) {
    static const char *const usual[] = {"base", "code-interpreter-v1", "e2bdev/base",
                                        "e2bdev/code-interpreter"};
    *ret = (struct template_found){.config = NULL};
    if (found_like(c, text, ret))
        return 0;
    for (size_t i = 0; i < sizeof(usual) / sizeof(*usual); i++) {
        size_t n = strlen(usual[i]);
        if (strncmp(text, usual[i], n) == 0 &&
            (!text[n] || strcmp(text + n, ":latest") == 0 || strcmp(text + n, ":default") == 0)) {
            const char *image = service_conf(c->service)->e2b_image;
            if (!found_named(c, image, ret))
                snprintf(ret->image, sizeof(ret->image), "%s", image);
            return 0;
        }
    }
    err_set(err, ERR_NOT_FOUND, "template '%.80s' not found", text);
    return err_remedy(err, "a template is an image of this name: see carrel image ls");
}

/* ---- lists ---- */

/* One name of an image that a client built. */
struct row {
    char name[TEMPLATE_NAME_SIZE], tag[TEMPLATE_NAME_SIZE];
    char uuid[TEMPLATE_UUID_SIZE];
    uint64_t created_ms, bytes, machines, cpus, mem_mb;
};

struct listing {
    const struct e2b_templates *templates;
    const char *only; /* the rows of one template; NULL: all */
    struct row *rows;
    size_t count;
};

static void listing_done(struct listing *l) {
    free(l->rows);
}

static void listing_add(void *arg, const void *view) {
    struct listing *l = arg;
    const struct image_view *v = view;
    struct template_start start;
    struct template_ref ref;
    struct err none;
    json_t *config DEFER(json_decrefp) = json_loads(v->config, 0, NULL);
    if (l->count == TEMPLATES_MAX || template_ref_read(v->name, &ref, &none) < 0 ||
        !template_start_read(config, &start) || (l->only && strcmp(ref.name, l->only) != 0))
        return;
    l->rows = xrealloc(l->rows, l->count + 1, sizeof(*l->rows));
    struct row *row = &l->rows[l->count++];
    *row = (struct row){.created_ms = v->created_ms,
                        .bytes = v->bytes,
                        .machines = v->machines,
                        .cpus = start.cpus,
                        .mem_mb = start.mem_mb};
    memcpy(row->name, ref.name, sizeof(row->name));
    memcpy(row->tag, ref.tag, sizeof(row->tag));
    e2b_build_uuid(l->templates, v->id, row->uuid);
}

/* By name; the rows of one template newest first. */
static int row_compare(const void *a, const void *b) {
    const struct row *x = a, *y = b;
    int by_name = strcmp(x->name, y->name);
    if (by_name)
        return by_name;
    return x->created_ms < y->created_ms ? 1 : x->created_ms > y->created_ms ? -1 : 0;
}

static int listing_read(struct e2b_call *c, const char *only, struct listing *ret,
                        struct err *err) {
    *ret = (struct listing){.templates = c->templates, .only = only};
    if (service_image_list(c->service, &c->who, false, listing_add, ret, err) < 0)
        return -1;
    if (ret->count)
        qsort(ret->rows, ret->count, sizeof(*ret->rows), row_compare);
    if (only && !ret->count)
        return err_set(err, ERR_NOT_FOUND, "template '%.60s' not found", only);
    return 0;
}

static uint64_t row_cpus(const struct row *row) {
    const struct e2b_sandbox unlimited = {.cpu_milli = 0};
    return row->cpus ? row->cpus : e2b_cores(&unlimited);
}

static void put_names(struct jot *j, const char *name) {
    jot_string(j, "templateID", name);
    jot_bool(j, "public", false);
    for (int i = 0; i < 2; i++) {
        jot_array(j, i ? "names" : "aliases");
        jot_string(j, NULL, name);
        jot_end(j, ']');
    }
}

/* rows: of one template. */
static void put_times(struct jot *j, const struct row *rows, size_t count) {
    uint64_t machines = 0;
    for (size_t i = 0; i < count; i++)
        machines += rows[i].machines;
    e2b_put_time(j, "createdAt", rows[count - 1].created_ms);
    e2b_put_time(j, "updatedAt", rows[0].created_ms);
    jot_null(j, "lastSpawnedAt");
    jot_u64(j, "spawnCount", machines);
}

static void put_template(struct jot *j, const struct row *rows, size_t count) {
    jot_object(j, NULL);
    put_names(j, rows->name);
    put_times(j, rows, count);
    jot_string(j, "buildID", rows->uuid);
    jot_string(j, "buildStatus", "ready");
    jot_u64(j, "buildCount", count);
    jot_u64(j, "cpuCount", row_cpus(rows));
    jot_u64(j, "memoryMB", rows->mem_mb);
    jot_u64(j, "diskSizeMB", rows->bytes / MIB);
    jot_string(j, "envdVersion", E2B_ENVD_VERSION);
    jot_null(j, "createdBy");
    jot_end(j, '}');
}

void e2b_templates_list(struct e2b_call *c) {
    struct buf text DEFER(buf_done) = BUF(E2B_ANSWER_MAX);
    struct listing l DEFER(listing_done) = {.rows = NULL};
    struct jot j = JOT(&text);
    struct err err;
    if (listing_read(c, NULL, &l, &err) < 0) {
        e2b_error(c, &err);
        return;
    }
    jot_array(&j, NULL);
    for (size_t i = 0, n; i < l.count; i += n) {
        for (n = 1; i + n < l.count && strcmp(l.rows[i].name, l.rows[i + n].name) == 0;)
            n++;
        put_template(&j, &l.rows[i], n);
    }
    jot_end(&j, ']');
    e2b_answer(c, 200, &text, NULL);
}

/* The rows of the template that the path names. */
static int listing_of_param(struct e2b_call *c, struct template_ref *ref, struct listing *ret,
                            struct err *err) {
    return template_ref_read(c->param, ref, err) < 0 ? -1 : listing_read(c, ref->name, ret, err);
}

static void put_build(struct jot *j, const struct row *row) {
    jot_object(j, NULL);
    jot_string(j, "buildID", row->uuid);
    jot_string(j, "status", "ready");
    e2b_put_time(j, "createdAt", row->created_ms);
    e2b_put_time(j, "updatedAt", row->created_ms);
    e2b_put_time(j, "finishedAt", row->created_ms);
    jot_u64(j, "cpuCount", row_cpus(row));
    jot_u64(j, "memoryMB", row->mem_mb);
    jot_u64(j, "diskSizeMB", row->bytes / MIB);
    jot_string(j, "envdVersion", E2B_ENVD_VERSION);
    jot_end(j, '}');
}

void e2b_template_show(struct e2b_call *c) {
    struct buf text DEFER(buf_done) = BUF(E2B_ANSWER_MAX);
    struct listing l DEFER(listing_done) = {.rows = NULL};
    struct jot j = JOT(&text);
    struct template_ref ref;
    struct err err;
    if (listing_of_param(c, &ref, &l, &err) < 0) {
        e2b_error(c, &err);
        return;
    }
    jot_object(&j, NULL);
    put_names(&j, ref.name);
    put_times(&j, l.rows, l.count);
    jot_array(&j, "builds");
    for (size_t i = 0; i < l.count; i++)
        put_build(&j, &l.rows[i]);
    jot_end(&j, ']');
    jot_end(&j, '}');
    e2b_answer(c, 200, &text, NULL);
}

void e2b_tags_list(struct e2b_call *c) {
    struct buf text DEFER(buf_done) = BUF(E2B_ANSWER_MAX);
    struct listing l DEFER(listing_done) = {.rows = NULL};
    struct jot j = JOT(&text);
    struct template_ref ref;
    struct err err;
    if (listing_of_param(c, &ref, &l, &err) < 0) {
        e2b_error(c, &err);
        return;
    }
    jot_array(&j, NULL);
    for (size_t i = 0; i < l.count; i++) {
        jot_object(&j, NULL);
        jot_string(&j, "tag", l.rows[i].tag);
        jot_string(&j, "buildID", l.rows[i].uuid);
        e2b_put_time(&j, "createdAt", l.rows[i].created_ms);
        jot_end(&j, '}');
    }
    jot_end(&j, ']');
    e2b_answer(c, 200, &text, NULL);
}

/* ---- alias and delete ---- */

/* A template exists if a sandbox can start from it, or from one of its tags. */
void e2b_template_alias(struct e2b_call *c) {
    struct buf text DEFER(buf_done) = BUF(4096);
    struct template_found found DEFER(template_found_done) = {.config = NULL};
    struct listing l DEFER(listing_done) = {.rows = NULL};
    struct jot j = JOT(&text);
    struct template_ref ref;
    struct err err;
    if (template_find(c, c->param, &found, &err) < 0 &&
        (strchr(c->param, ':') || listing_of_param(c, &ref, &l, &err) < 0)) {
        e2b_error(c, &err);
        return;
    }
    jot_object(&j, NULL);
    jot_string(&j, "templateID", c->param);
    jot_bool(&j, "public", false);
    jot_end(&j, '}');
    e2b_answer(c, 200, &text, NULL);
}

static void template_removed(void *arg, const struct image_view *view, const struct err *err) {
    struct err *failed = arg;
    (void)view;
    if (err)
        *failed = *err;
}

/* All tags of the template; service_image_remove() answers at once. */
void e2b_template_delete(struct e2b_call *c) {
    struct listing l DEFER(listing_done) = {.rows = NULL};
    struct template_ref ref;
    struct err err = {0}, failed = {0};
    if (c->sandbox.id[0]) {
        e2b_snapshot_delete(c);
        return;
    }
    if (listing_of_param(c, &ref, &l, &err) < 0) {
        e2b_error(c, &err);
        return;
    }
    for (size_t i = 0; i < l.count; i++) {
        char name[TEMPLATE_NAME_SIZE];
        if (template_image_name(l.rows[i].name, l.rows[i].tag, name, &failed) == 0)
            service_image_remove(c->service, &c->who, name, template_removed, &failed);
    }
    if (failed.text[0])
        e2b_error(c, &failed);
    else
        e2b_done(c);
}
