/* Sandboxes: create. What this face cannot do is refused with the reason, never ignored. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/e2b/inner.h"
#include "api/e2b/templates.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "service/images/images.h"
#include "service/steps/steps.h"

enum {
    TIMEOUT_S = 300,
    OLD_TIMEOUT_S = 15,
    TIMEOUT_MAX_S = 3650 * 86400,
    PAIRS_MAX = 256,
    TEXT_MAX = 1024
};

struct create_request {
    const char *template;
    struct given timeout; /* seconds */
    struct texts metadata, env;
    bool auto_pause, auto_pause_memory, internet;
    const json_t *auto_resume, *network, *volumes, *mcp, *iam;
};

#define AT(member) offsetof(struct create_request, member)
static const struct field create_fields[] = {
    {"templateID", FIELD_TEXT, AT(template), "template", .max = TEXT_MAX},
    {"timeout", FIELD_NUMBER, AT(timeout), "seconds", .max = TIMEOUT_MAX_S},
    {"metadata", FIELD_MAP, AT(metadata), "metadata", .max = PAIRS_MAX},
    {"envVars", FIELD_MAP, AT(env), "environment", .max = PAIRS_MAX},
    {"autoPause", FIELD_FLAG, AT(auto_pause), "pause at the end of the timeout"},
    {"autoPauseMemory", FIELD_FLAG, AT(auto_pause_memory), "keep processes then"},
    {"autoResume", FIELD_JSON, AT(auto_resume), "resume on traffic"},
    {"allow_internet_access", FIELD_FLAG, AT(internet), "default: true"},
    {"network", FIELD_JSON, AT(network), "network rules"},
    {"volumeMounts", FIELD_JSON, AT(volumes), "volumes"},
    {"mcp", FIELD_JSON, AT(mcp), "MCP servers"},
    {"iam", FIELD_JSON, AT(iam), "identity tokens"},
};
const struct schema e2b_create_schema = SCHEMA("E2bCreate", struct create_request, create_fields);

/* A creation: what the request to the service points at. */
struct creation {
    struct e2b_call *call;
    struct machine_request request;
    struct texts metadata; /* of the client, then of the face */
    char *own;
    char source[ID_SIZE]; /* the snapshot that the sandbox starts from, or empty */
    char made[ID_SIZE];   /* the machine, once it exists */
    bool as_image;        /* E2B_AS_IMAGE */
    struct template_found template;
    struct e2b_mounts mounts;
    struct e2b_network network;
};

static void creation_free(struct creation *n) {
    free(n->metadata.v);
    free(n->own);
    template_found_done(&n->template);
    e2b_mounts_done(&n->mounts);
    free(n);
}

/* ---- what is refused ---- */

static bool is_asked(const json_t *v) {
    return json_is_array(v) ? json_array_size(v) : json_object_size(v);
}

static int check_supported(const struct create_request *r, struct err *err) {
    const struct {
        bool asked;
        const char *name;
    } fields[] = {
        {is_asked(r->mcp), "mcp"},
        {is_asked(r->iam), "iam"},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
        if (fields[i].asked)
            return err_set(err, ERR_INVALID, "field '%s' is not supported", fields[i].name);
    return 0;
}

static int plan_network(struct creation *n, const struct create_request *r, struct err *err) {
    const struct conf *conf = service_conf(n->call->service);
    bool is_off = json_is_false(json_object_get(n->call->body, "allow_internet_access"));
    if (e2b_network_read(conf, r->network, is_off, &n->network, err) < 0)
        return -1;
    n->request.allowed_net = (struct rows){n->network.rules, n->network.count};
    return 0;
}

/* ---- metadata and image ---- */

static bool is_own_key(const char *name) {
    size_t i = 0;
    while (e2b_own_keys[i] && strcmp(e2b_own_keys[i], name) != 0)
        i++;
    return e2b_own_keys[i];
}

static int plan_metadata(struct creation *n, const struct create_request *r, struct err *err) {
    const struct texts *given = &r->metadata;
    bool is_private = json_is_false(json_object_get(r->network, "allowPublicTraffic"));
    bool resumes = json_is_true(json_object_get(r->auto_resume, "enabled"));
    json_t *own DEFER(json_decrefp) = json_pack(
        "{s:s, s:b, s:b, s:b, s:b, s:b, s:I}", "template", r->template, "internet",
        n->network.has_internet, "pause", r->auto_pause, "resume", resumes, "private", is_private,
        E2B_AS_IMAGE, n->as_image, "ttl_ms", (json_int_t)n->request.ttl.value);
    n->own = own ? json_dumps(own, JSON_COMPACT) : NULL;
    if (!n->own)
        return err_set(err, ERR_INTERNAL, "out of memory");
    n->metadata.v = xcalloc(given->count + 4, sizeof(*n->metadata.v));
    for (size_t i = 0; i < given->count; i++) {
        if (i % 2 == 0 && is_own_key(given->v[i]))
            return err_set(err, ERR_INVALID, "metadata '%.40s': this key is reserved", given->v[i]);
        n->metadata.v[n->metadata.count++] = given->v[i];
    }
    const char *const more[] = {E2B_KEY_FACE, E2B_FACE_SANDBOX, E2B_KEY_OWN, n->own};
    for (size_t i = 0; i < 4; i++)
        n->metadata.v[n->metadata.count++] = more[i];
    n->request.metadata = n->metadata;
    return 0;
}

static void snapshot_came(void *arg, const struct machine_view *v, const struct err *err) {
    struct creation *n = arg;
    struct e2b_sandbox b = {0};
    if (err || strcmp(v->owner, n->call->who.owner) != 0 || !e2b_snapshot_read(v, &b))
        return;
    snprintf(n->source, sizeof(n->source), "%s", b.id);
    n->as_image = e2b_notes(&b, E2B_AS_IMAGE);
    n->request.source = n->source;
    e2b_sandbox_done(&b);
}

/* A snapshot is named by its id. True: the sandbox starts from one. */
static bool plan_snapshot(struct creation *n, const char *template) {
    char id[ID_SIZE];
    if (id_from_label(template, strlen(template), 'm', id))
        service_show(n->call->service, &n->call->who, id, snapshot_came, n);
    return n->request.source;
}

static int plan_image(struct creation *n, const struct create_request *r, struct err *err) {
    enum { MIB = 1 << 20 };
    if (plan_snapshot(n, r->template))
        return 0;
    if (template_find(n->call, r->template, &n->template, err) < 0)
        return -1;
    n->request.image = n->template.image;
    n->as_image = n->template.is_template;
    if (n->template.start.cpus)
        n->request.limits.cpus = (struct given){n->template.start.cpus * 1000, true};
    if (n->template.start.mem_mb)
        n->request.limits.mem = (struct given){n->template.start.mem_mb * MIB, true};
    return 0;
}

static int plan_volumes(struct creation *n, const struct create_request *r, struct err *err) {
    if (e2b_mounts_read(r->volumes, &n->mounts, err) < 0)
        return -1;
    if (n->mounts.count && n->request.source)
        return err_set(err, ERR_INVALID, "a sandbox that starts from a snapshot gets no volumes");
    n->request.volumes = (struct rows){n->mounts.uses, n->mounts.count};
    n->call->who.has_volumes = true;
    return 0;
}

/* ---- creation ---- */

static void creation_end(struct creation *n, const struct machine_view *v,
                         const struct err *failed) {
    struct e2b_call *c = n->call;
    struct buf text DEFER(buf_done) = BUF(E2B_ANSWER_MAX);
    struct jot j = JOT(&text);
    struct e2b_access access DEFER(e2b_access_done) = {.token = ""};
    struct err err;
    creation_free(n);
    err_set(&err, ERR_INTERNAL, "the metadata of the new machine is not that of a sandbox");
    if (failed) {
        e2b_error(c, failed);
    } else if (!e2b_sandbox_read(v, &c->sandbox) ||
               e2b_access_find(c, &c->sandbox, &access, &err) < 0) {
        e2b_error(c, &err);
    } else {
        e2b_put_sandbox(&j, NULL, &c->sandbox, &access);
        e2b_answer(c, 201, &text, NULL);
    }
}

static void sandbox_named(void *arg, const struct machine_view *v, const struct err *err) {
    struct creation *n = arg;
    if (err)
        service_destroy(n->call->service, &n->call->who, n->made, e2b_ignore, NULL);
    creation_end(n, v, err);
}

static void sandbox_shown(void *arg, const struct machine_view *v, const struct err *err) {
    creation_end(arg, v, err);
}

/* Its template's commands run. */
static void sandbox_started(void *arg) {
    struct creation *n = arg;
    service_show(n->call->service, &n->call->who, n->made, sandbox_shown, n);
}

/* The copy of a snapshot has its metadata too. It must have only what the client gave. */
static void sandbox_created(void *arg, const struct machine_view *v, const struct err *err) {
    struct creation *n = arg;
    const struct update_request r = {.metadata = n->metadata};
    const struct template_start *start = &n->template.start;
    if (err || (!n->request.source && !start->start && !start->ready)) {
        creation_end(n, v, err);
        return;
    }
    snprintf(n->made, sizeof(n->made), "%s", v->id);
    if (!n->request.source) {
        template_start_run(n->call, n->made, start, sandbox_started, n);
        return;
    }
    service_update(n->call->service, &n->call->who, n->made, &r, sandbox_named, n);
}

void e2b_create(struct e2b_call *c) {
    static const uint8_t no_hash[SHA256_BYTES];
    struct create_request *r = c->request;
    bool is_old = strncmp(c->route->path, "/v2", 3) != 0;
    uint64_t seconds = r->timeout.is ? r->timeout.value : is_old ? OLD_TIMEOUT_S : TIMEOUT_S;
    struct creation *n = xnew(struct creation);
    struct err err;
    *n = (struct creation){.call = c};
    if (!r->template)
        r->template = "base";
    n->request.ttl = (struct given){seconds ? seconds * 1000 : 1, true};
    n->request.on_ttl = r->auto_pause ? "pause" : NULL;
    n->request.env = r->env;
    if (check_supported(r, &err) < 0 || plan_network(n, r, &err) < 0 ||
        plan_image(n, r, &err) < 0 || plan_metadata(n, r, &err) < 0 ||
        plan_volumes(n, r, &err) < 0) {
        creation_free(n);
        e2b_error(c, &err);
        return;
    }
    (n->request.source ? service_create_from : service_create)(
        c->service, &c->who, &n->request, no_hash, NULL, 0, sandbox_created, n);
}
