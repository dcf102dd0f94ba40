/* Sandboxes as JSON. Times are RFC 3339, sizes are MiB, and cores are whole. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "api/e2b/inner.h"
#include "base/log.h"
#include "service/net/expose.h"

enum { MIB = 1 << 20, FAR_MS = 1000000000, DOMAIN_MAX = 512 };

const char *const e2b_own_keys[] = {E2B_KEY_FACE, E2B_KEY_OWN, "forked_from", "forked_at", NULL};

static bool machine_read(const struct machine_view *v, const char *face, struct e2b_sandbox *ret) {
    json_t *metadata = json_loads(v->metadata ? v->metadata : "{}", 0, NULL);
    const char *own = json_string_value(json_object_get(metadata, E2B_KEY_OWN));
    json_t *noted = own ? json_loads(own, 0, NULL) : NULL;
    const char *is = json_string_value(json_object_get(metadata, E2B_KEY_FACE));
    if (!json_is_object(noted) || !is || strcmp(is, face) != 0) {
        json_decref(noted);
        json_decref(metadata);
        return false;
    }
    *ret = (struct e2b_sandbox){
        .paused = strcmp(v->state, "paused") == 0 || strcmp(v->state, "stopped") == 0,
        .created_ms = v->created_ms,
        .expires_ms = v->expires_ms,
        .cpu_milli = v->limits.cpus,
        .mem_bytes = v->limits.mem,
        .disk_bytes = v->limits.disk,
        .metadata = metadata,
        .own = noted,
        .volumes = v->volumes ? json_loads(v->volumes, 0, NULL) : NULL,
    };
    snprintf(ret->id, sizeof(ret->id), "%s", v->id);
    id_to_label(v->id, ret->label);
    snprintf(ret->state, sizeof(ret->state), "%s", v->state);
    for (size_t i = 0; e2b_own_keys[i]; i++)
        json_object_del(metadata, e2b_own_keys[i]);
    return true;
}

bool e2b_sandbox_read(const struct machine_view *v, struct e2b_sandbox *ret) {
    return machine_read(v, E2B_FACE_SANDBOX, ret);
}

bool e2b_snapshot_read(const struct machine_view *v, struct e2b_sandbox *ret) {
    return machine_read(v, E2B_FACE_SNAPSHOT, ret);
}

bool e2b_notes(const struct e2b_sandbox *b, const char *name) {
    return json_is_true(json_object_get(b->own, name));
}

const char *e2b_on_ttl(const struct e2b_sandbox *b) {
    return e2b_notes(b, "pause") ? "pause" : "destroy";
}

void e2b_sandbox_done(struct e2b_sandbox *b) {
    json_decref(b->metadata);
    json_decref(b->own);
    json_decref(b->volumes);
    *b = (struct e2b_sandbox){0};
}

void e2b_put_time(struct jot *j, const char *name, uint64_t ms) {
    char day[32], text[48];
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;
    if (!gmtime_r(&seconds, &tm) || !strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &tm))
        return;
    snprintf(text, sizeof(text), "%s.%03uZ", day, (unsigned)(ms % 1000));
    jot_string(j, name, text);
}

static void put_names(struct jot *j, const struct e2b_sandbox *b) {
    const char *template = json_string_value(json_object_get(b->own, "template"));
    jot_string(j, "sandboxID", b->label);
    jot_string(j, "templateID", template ? template : "");
    jot_string(j, "alias", template ? template : "");
    jot_string(j, "clientID", E2B_CLIENT_ID);
    jot_string(j, "envdVersion", E2B_ENVD_VERSION);
}

/* A machine without a limit of its own has all processors of the host. */
uint64_t e2b_cores(const struct e2b_sandbox *b) {
    long all = sysconf(_SC_NPROCESSORS_ONLN);
    bool is_limited = b->cpu_milli && b->cpu_milli != SHOW_UNCOUNTED;
    return is_limited ? (b->cpu_milli + 999) / 1000 : all > 0 ? (uint64_t)all : 1;
}

static void put_limits(struct jot *j, const struct e2b_sandbox *b) {
    char *metadata = json_dumps(b->metadata, JSON_COMPACT);
    e2b_put_time(j, "startedAt", b->created_ms);
    /* The field is required, and a machine may have no end. */
    e2b_put_time(j, "endAt", b->expires_ms ? b->expires_ms : b->created_ms + FAR_MS * 1000ull);
    jot_string(j, "state", b->paused ? "paused" : "running");
    jot_u64(j, "cpuCount", e2b_cores(b));
    jot_u64(j, "memoryMB", b->mem_bytes / MIB);
    jot_u64(j, "diskSizeMB", b->disk_bytes / MIB);
    jot_raw(j, "metadata", metadata ? metadata : "{}");
    e2b_put_mounts(j, b->volumes);
    free(metadata);
}

/* ---- access ---- */

int e2b_access_find(const struct e2b_call *c, const struct e2b_sandbox *b, struct e2b_access *ret,
                    struct err *err) {
    struct err why;
    *ret = (struct e2b_access){.domain = BUF(DOMAIN_MAX)};
    if (service_machine_token(c->service, &c->who, b->id, MACHINE_TOKEN_CONTROL, ret->token, err) <
            0 ||
        (e2b_notes(b, "private") &&
         service_machine_token(c->service, &c->who, b->id, MACHINE_TOKEN_TRAFFIC, ret->traffic,
                               err) < 0))
        return -1;
    if (service_expose_domain(c->service, &ret->domain, &why) < 0)
        log_line(LOG_WARN, "e2b", "serve the ports of sandboxes: %s", why.text);
    return 0;
}

void e2b_access_done(struct e2b_access *a) {
    explicit_bzero(a->token, sizeof(a->token));
    explicit_bzero(a->traffic, sizeof(a->traffic));
    buf_done(&a->domain);
}

static void put_text(struct jot *j, const char *name, const char *text) {
    if (text && *text)
        jot_string(j, name, text);
    else
        jot_null(j, name);
}

void e2b_put_sandbox(struct jot *j, const char *name, const struct e2b_sandbox *b,
                     const struct e2b_access *a) {
    jot_object(j, name);
    put_names(j, b);
    jot_string(j, "envdAccessToken", a->token);
    put_text(j, "trafficAccessToken", a->traffic);
    put_text(j, "domain", a->domain.data);
    jot_end(j, '}');
}

void e2b_put_detail(struct jot *j, const struct e2b_sandbox *b, const struct e2b_access *a) {
    jot_object(j, NULL);
    put_names(j, b);
    jot_string(j, "envdAccessToken", a->token);
    put_text(j, "domain", a->domain.data);
    put_limits(j, b);
    jot_bool(j, "allowInternetAccess", e2b_notes(b, "internet"));
    jot_object(j, "lifecycle");
    jot_string(j, "onTimeout", e2b_notes(b, "pause") ? "pause" : "kill");
    jot_bool(j, "autoResume", e2b_notes(b, "resume"));
    jot_end(j, '}');
    jot_end(j, '}');
}

void e2b_put_listed(struct jot *j, const struct e2b_sandbox *b) {
    jot_object(j, NULL);
    put_names(j, b);
    put_limits(j, b);
    jot_end(j, '}');
}
