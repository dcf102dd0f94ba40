/* The daemon as a whole: events, status, metrics and tokens. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/bodies.h"
#include "api/inner.h"
#include "api/metrics.h"
#include "api/route.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "io/sse.h"
#include "service/events.h"
#include "service/grants/grants.h"
#include "service/host.h"
#include "service/images/images.h"
#include "service/models/models.h"
#include "service/net/net.h"
#include "service/tokens.h"
#include "service/tool_counts.h"
#include "service/volumes/volumes.h"

void api_health(struct call *c) {
    call_text(c, 200, "text/plain", "ok\n", 3);
}

/* ---- events ---- */

enum { EVENTS_PAGE = 100, HEARTBEAT_MS = 10000 };

struct watching {
    struct call *call;
    struct event_watch watch;
    struct events_request request;
    bool follow;
    struct loop_timer *heartbeat;
};

static void watching_free(struct watching *w) {
    service_events_unwatch(&w->watch);
    loop_timer_free(w->heartbeat);
    free(w);
}

static bool send_event(struct call *c, const struct event_row *e) {
    struct buf text DEFER(buf_done) = BUF(EVENT_JSON_MAX);
    struct buf out DEFER(buf_done) = BUF(2 * EVENT_JSON_MAX);
    char id[24];
    snprintf(id, sizeof(id), "%" PRId64, e->id);
    if (!event_json(e, &text))
        return true;
    const struct sse_event event = {.id = id, .name = e->type, .data = text.data, .n = text.len};
    return !sse_put(&out, &event) || call_write(c, out.data, out.len);
}

static void events_go_on(struct watching *w) {
    struct call *c = w->call;
    for (;;) {
        struct event_list list DEFER(event_list_done) = {0};
        struct err err;
        if (service_events(c->service, &c->who, &w->request, &list, &err) < 0) {
            watching_free(w);
            call_error(c, &err);
            return;
        }
        for (size_t i = 0; i < list.count; i++) {
            w->request.after = list.rows[i].id;
            if (!send_event(c, &list.rows[i]))
                return; /* on_drain continues */
        }
        if (list.count == EVENTS_PAGE)
            continue;
        if (w->follow)
            return;
        watching_free(w);
        call_end(c);
        return;
    }
}

static void events_changed(void *arg) {
    struct watching *w = arg;
    if (!call_is_full(w->call))
        events_go_on(w);
}

/* Tells a client that hears no events that its connection is there. */
static void events_beat(void *arg) {
    struct watching *w = arg;
    if (!call_is_full(w->call))
        call_write(w->call, ":\n\n", 3);
}

static void events_drained(struct call *c) {
    events_go_on(c->user);
}

static void events_gone(struct call *c) {
    watching_free(c->user);
    call_end(c);
}

/* Finds the last event that the client saw. Without one, the stream starts with new events. */
static int last_seen(struct call *c, bool follow, int64_t *ret, struct err *err) {
    uint64_t after = follow ? (uint64_t)service_events_last(c->service) : 0;
    if (call_stream_start(c, "after", &after, err) < 0)
        return -1;
    *ret = (int64_t)after;
    return 0;
}

void api_events(struct call *c) {
    bool follow = !call_query(c, "follow") || call_flag(c, "follow");
    int64_t after = 0;
    struct err err;
    if (last_seen(c, follow, &after, &err) < 0) {
        call_error(c, &err);
        return;
    }
    struct watching *w = xnew(struct watching);
    *w = (struct watching){
        .call = c,
        .watch = {.changed = events_changed, .arg = w},
        .request = {.after = after,
                    .machine = call_query(c, "machine"),
                    .type = call_query(c, "type"),
                    .limit = EVENTS_PAGE},
        .follow = follow,
    };
    c->user = w;
    c->on_gone = events_gone;
    c->on_drain = events_drained;
    call_begin(c, 200, "text/event-stream", NULL);
    call_write(c, ": carrel\n\n", 10);
    service_events_watch(c->service, &w->watch);
    w->heartbeat = loop_timer_new(api_loop(c->api), events_beat, w);
    loop_timer_start(w->heartbeat, HEARTBEAT_MS, HEARTBEAT_MS);
    events_go_on(w);
}

/* ---- status and metrics ---- */

/* Counters of the spawner that include machines of all owners. */
static const char *const box_counts[] = {"boxes", "alive",    "created", "fallbacks",
                                         "pool",  "networks", "cgroups"};

/* Returns the status of the spawner without data of other owners. The caller frees it. */
static char *box_status(struct call *c, const char *text) {
    json_t *box = json_loads(text, 0, NULL), *machines = json_object_get(box, "machines");
    bool all = service_sees_all(&c->who);
    for (size_t i = 0; !all && i < sizeof(box_counts) / sizeof(*box_counts); i++)
        json_object_del(box, box_counts[i]);
    for (size_t i = json_array_size(machines); i-- > 0;) {
        const char *id = json_string_value(json_object_get(json_array_get(machines, i), "id"));
        if (!id || !service_may_tell(c->service, &c->who, id))
            json_array_remove(machines, i);
    }
    char *kept = json_dumps(box, JSON_COMPACT);
    json_decref(box);
    return kept;
}

void host_put_room(struct jot *j, const struct room_view *v) {
    jot_object(j, "store");
    if (v->home)
        jot_string(j, "home", v->home);
    jot_u64(j, "free_bytes", v->room.free_bytes);
    jot_u64(j, "total_bytes", v->room.total_bytes);
    jot_u64(j, "used_percent", v->room.used_percent);
    jot_bool(j, "full", v->room.full);
    if (v->remedy)
        jot_string(j, "remedy", v->remedy);
    jot_end(j, '}');
}

static void status_came(void *arg, const char *json, const struct err *err) {
    struct call *c = arg;
    char *box DEFER_FREE = json ? box_status(c, json) : NULL;
    struct buf text DEFER(buf_done) = BUF(CALL_BODY_MAX);
    struct jot j = JOT(&text);
    struct service_counts n;
    struct room_view room;
    service_count(c->service, &c->who, &n);
    service_room(c->service, &c->who, &room);
    jot_object(&j, NULL);
    jot_string(&j, "version", CARREL_VERSION);
    jot_i64(&j, "pid", getpid());
    jot_u64(&j, "commands", n.commands);
    jot_object(&j, "machines");
    for (int i = MACHINE_CREATING; i <= MACHINE_ENDED; i++)
        jot_u64(&j, machine_state_name((enum machine_state)i), n.machines[i]);
    jot_end(&j, '}');
    host_put_room(&j, &room);
    if (service_sees_all(&c->who))
        tool_counts_put(service_tool_counts(c->service), &j, "tools");
    if (*service_vm_kernel(c->service))
        jot_string(&j, "vm_kernel", service_vm_kernel(c->service));
    if (box)
        jot_raw(&j, "box", box);
    else
        jot_string(&j, "box_error", err ? err->text : "invalid reply from the spawner");
    jot_end(&j, '}');
    call_json(c, 200, &j, &text);
}

void api_status(struct call *c) {
    service_host_status(c->service, status_came, c);
}

/* Writes the counters of the daemon and of the spawner as one metric. A counter restarts at 0 with
 * its process. */
static void write_fallbacks(struct buf *out, const json_t *spawners,
                            const struct service_counts *n) {
    static const char name[] = "carrel_fallbacks_total";
    const char *key;
    json_t *count;
    metrics_head(out, name, "counter",
                 "Operations that used a fallback instead of the usual mechanism");
    for (int i = 0; i < FELL_COUNT; i++)
        metrics_line(out, name, "what", fallback_name((enum fallback)i), n->fallbacks[i]);
    json_object_foreach((json_t *)spawners, key, count) {
        metrics_line(out, name, "what", key, (uint64_t)json_integer_value(count));
    }
}

/* Writes which mechanism this host uses for each feature. `carrel doctor` explains them. */
static void write_ways(struct buf *out, const json_t *box) {
    static const char *const parts[] = {"cgroup", "disk", "images", "layers", "network"};
    metrics_head(out, "carrel_way", "gauge", "Mechanism that this host uses for each feature");
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        const char *way = json_string_value(json_object_get(box, parts[i]));
        if (way && !buf_addf(out, "carrel_way{part=\"%s\",way=\"%s\"} 1\n", parts[i], way))
            return;
    }
}

static void box_metrics(struct buf *out, const char *json, const struct service_counts *n) {
    json_t *root = json_loads(json ? json : "{}", 0, NULL);
    write_fallbacks(out, json_object_get(root, "fallbacks"), n);
    write_ways(out, root);
    const json_t *pool = json_object_get(root, "pool");
    metrics_head(out, "carrel_pool_ready", "gauge",
                 "Boxes ready in the pool for new machines of image host");
    metrics_line(out, "carrel_pool_ready", NULL, NULL,
                 (uint64_t)json_integer_value(json_object_get(pool, "ready")));
    metrics_head(out, "carrel_pool_ready_of_images", "gauge",
                 "Boxes ready in the pool for new machines of other images");
    metrics_line(out, "carrel_pool_ready_of_images", NULL, NULL,
                 (uint64_t)json_integer_value(json_object_get(pool, "ready_of_images")));
    metrics_head(out, "carrel_unenforced", "gauge", "Limits that this host cannot enforce");
    size_t i;
    json_t *name;
    json_array_foreach(json_object_get(root, "unenforced"), i, name) {
        if (json_is_string(name))
            metrics_line(out, "carrel_unenforced", "limit", json_string_value(name), 1);
    }
    json_decref(root);
}

static void write_gate(struct call *c, struct buf *out) {
    struct gate_stats g;
    service_net_stats(c->service, &g);
    metrics_head(out, "carrel_gate_connections", "gauge", "Open connections of machines");
    metrics_line(out, "carrel_gate_connections", NULL, NULL, g.open);
    metrics_head(out, "carrel_gate_crossings_total", "counter",
                 "Connections and requests of machines at the network gate");
    metrics_line(out, "carrel_gate_crossings_total", "outcome", "allowed", g.allowed);
    metrics_line(out, "carrel_gate_crossings_total", "outcome", "denied", g.denied);
    metrics_line(out, "carrel_gate_crossings_total", "outcome", "too_many", g.overflows);
    metrics_line(out, "carrel_gate_crossings_total", "outcome", "refused", g.refused);
    metrics_head(out, "carrel_gate_bytes_total", "counter",
                 "Bytes through the network gate, sent and received by machines");
    metrics_line(out, "carrel_gate_bytes_total", "way", "sent", g.sent);
    metrics_line(out, "carrel_gate_bytes_total", "way", "received", g.received);
    metrics_head(out, "carrel_gate_lookups_total", "counter", "DNS lookups of machines");
    metrics_line(out, "carrel_gate_lookups_total", NULL, NULL, g.lookups);
}

static const struct {
    const char *name, *help;
    size_t offset;
} fates[] = {
    {"carrel_grants_added_total", "Grants added since the daemon started",
     offsetof(struct grant_counts, added)},
    {"carrel_grants_revoked_total", "Grants revoked", offsetof(struct grant_counts, revoked)},
    {"carrel_grants_expired_total", "Grants that expired", offsetof(struct grant_counts, expired)},
};

struct fate_line {
    struct buf *out;
    const char *name;
    size_t offset;
};

static void put_fate(void *arg, const struct grant_counts *c) {
    const struct fate_line *l = arg;
    uint64_t n;
    memcpy(&n, (const char *)c + l->offset, sizeof(n));
    metrics_line(l->out, l->name, "kind", c->kind, n);
}

static void write_grants(struct call *c, struct buf *out) {
    struct fate_line line = {out, "carrel_grants", offsetof(struct grant_counts, live)};
    struct database_counts n;
    metrics_head(out, line.name, "gauge", "Grants of machines that have not ended");
    service_each_grant_kind(c->service, put_fate, &line);
    for (size_t i = 0; i < sizeof(fates) / sizeof(*fates); i++) {
        line = (struct fate_line){out, fates[i].name, fates[i].offset};
        metrics_head(out, line.name, "counter", fates[i].help);
        service_each_grant_kind(c->service, put_fate, &line);
    }
    service_database_counts(c->service, &n);
    metrics_head(out, "carrel_databases", "gauge",
                 "Granted databases on PostgreSQL servers of owners");
    metrics_line(out, "carrel_databases", "state", "live", n.live);
    metrics_line(out, "carrel_databases", "state", "to_drop", n.to_drop);
}

static void write_volumes(struct call *c, struct buf *out) {
    struct volume_counts n;
    service_volume_counts(c->service, &n);
    metrics_head(out, "carrel_volumes", "gauge", "Volumes and their snapshots");
    metrics_line(out, "carrel_volumes", NULL, NULL, n.count);
    metrics_head(out, "carrel_volumes_bytes", "gauge", "Sum of the limits of all volumes");
    metrics_line(out, "carrel_volumes_bytes", NULL, NULL, n.bytes);
}

static void write_models(struct call *c, struct buf *out) {
    struct model_stats n;
    service_model_stats(c->service, &n);
    metrics_head(out, "carrel_model_calls_total", "counter", "Requests to models");
    metrics_line(out, "carrel_model_calls_total", "outcome", "made", n.calls);
    metrics_line(out, "carrel_model_calls_total", "outcome", "refused", n.refused);
    metrics_head(out, "carrel_model_tokens_total", "counter", "Tokens that providers counted");
    metrics_line(out, "carrel_model_tokens_total", "way", "in", n.in);
    metrics_line(out, "carrel_model_tokens_total", "way", "out", n.out);
    metrics_head(out, "carrel_model_micro_total", "counter",
                 "Cost of models, in millionths of the price unit");
    metrics_line(out, "carrel_model_micro_total", NULL, NULL, n.micro);
}

static const struct {
    const char *name, *help;
    size_t offset;
} tool_metrics[] = {
    {"carrel_tool_calls_total", "Calls of each tool", offsetof(struct tool_count, calls)},
    {"carrel_tool_failures_total", "Calls that ended with an error",
     offsetof(struct tool_count, failed)},
    {"carrel_tool_fallbacks_total", "Calls that did not work in the usual way",
     offsetof(struct tool_count, fallbacks)},
    {"carrel_tool_milliseconds_total", "Time of the calls, with their waits",
     offsetof(struct tool_count, wall_ms)},
};

static void write_tools(const struct call *c, struct buf *out) {
    const struct tool_counts *n = service_tool_counts(c->service);
    for (size_t i = 0; i < sizeof(tool_metrics) / sizeof(*tool_metrics); i++) {
        metrics_head(out, tool_metrics[i].name, "counter", tool_metrics[i].help);
        for (size_t k = 0; k < n->count; k++) {
            uint64_t number;
            memcpy(&number, (const char *)&n->v[k] + tool_metrics[i].offset, sizeof(number));
            metrics_line(out, tool_metrics[i].name, "tool", n->v[k].name, number);
        }
    }
}

static void disk_line(void *arg, const char *machine, uint64_t bytes, uint64_t steps) {
    (void)steps;
    metrics_line(arg, "carrel_machine_disk_bytes", "machine", machine, bytes);
}

static void steps_line(void *arg, const char *machine, uint64_t bytes, uint64_t steps) {
    (void)bytes;
    metrics_line(arg, "carrel_machine_steps", "machine", machine, steps);
}

static void write_disks(const struct call *c, struct buf *out) {
    metrics_head(out, "carrel_machine_disk_bytes", "gauge",
                 "Disk space of a machine: files and steps");
    service_each_disk(c->service, &c->who, disk_line, out);
    metrics_head(out, "carrel_machine_steps", "gauge", "Steps (restore points) of a machine");
    service_each_disk(c->service, &c->who, steps_line, out);
}

static void write_images(struct call *c, struct buf *out) {
    struct image_stats n;
    service_image_stats(c->service, &n);
    metrics_head(out, "carrel_images", "gauge", "Names of images, and distinct images");
    metrics_line(out, "carrel_images", "of", "names", n.names);
    metrics_line(out, "carrel_images", "of", "trees", n.trees);
    metrics_head(out, "carrel_images_bytes", "gauge", "Bytes in the files of images");
    metrics_line(out, "carrel_images_bytes", NULL, NULL, n.bytes);
    metrics_head(out, "carrel_image_work_total", "counter", "Images imported and exported");
    for (int i = 0; i < IMAGE_WORKS; i++)
        metrics_line(out, "carrel_image_work_total", "work", image_work_name((enum image_work)i),
                     n.made[i]);
    metrics_head(out, "carrel_image_failures_total", "counter", "Imports and exports that failed");
    for (int i = 0; i < IMAGE_WORKS; i++)
        metrics_line(out, "carrel_image_failures_total", "work",
                     image_work_name((enum image_work)i), n.failed[i]);
    metrics_head(out, "carrel_image_build_instructions_total", "counter",
                 "Recipe instructions of image builds");
    metrics_line(out, "carrel_image_build_instructions_total", "way", "made", n.steps_made);
    metrics_line(out, "carrel_image_build_instructions_total", "way", "cached", n.steps_cached);
}

/* Writes metrics of the machines that the caller may see. */
static void write_machines(const struct call *c, const struct service_counts *n, struct buf *out) {
    metrics_head(out, "carrel_machines", "gauge", "Machines by state");
    for (int i = MACHINE_CREATING; i < MACHINE_ENDED; i++)
        metrics_line(out, "carrel_machines", "state", machine_state_name((enum machine_state)i),
                     n->machines[i]);
    metrics_head(out, "carrel_commands", "gauge", "Running commands");
    metrics_line(out, "carrel_commands", NULL, NULL, n->commands);
    write_disks(c, out);
}

static void write_store(const struct service_counts *n, struct buf *out) {
    metrics_head(out, "carrel_store_commits_total", "counter",
                 "Transactions of the store's database");
    metrics_line(out, "carrel_store_commits_total", NULL, NULL, n->store.commits);
    metrics_head(out, "carrel_store_flushes_total", "counter",
                 "Flushes of the store's database, each for one or more transactions");
    metrics_line(out, "carrel_store_flushes_total", NULL, NULL, n->store.flushes);
    metrics_head(out, "carrel_store_wal_bytes", "gauge",
                 "Size of the write-ahead log of the store's database");
    metrics_line(out, "carrel_store_wal_bytes", NULL, NULL, n->store.wal_bytes);
    metrics_head(out, "carrel_store_free_bytes", "gauge", "Free space on the disk of the store");
    metrics_line(out, "carrel_store_free_bytes", NULL, NULL, n->room.free_bytes);
    metrics_head(out, "carrel_store_full", "gauge",
                 "1 while the disk is full and only requests that free space are served");
    metrics_line(out, "carrel_store_full", NULL, NULL, n->room.full);
    metrics_head(out, "carrel_journal_records_total", "counter", "Records of the journal");
    metrics_line(out, "carrel_journal_records_total", NULL, NULL, n->store.journal_seq);
}

/* Writes metrics that include all owners. */
static void write_host(struct call *c, const struct service_counts *n, const char *json,
                       struct buf *out) {
    write_gate(c, out);
    write_grants(c, out);
    write_volumes(c, out);
    write_models(c, out);
    write_images(c, out);
    write_tools(c, out);
    write_store(n, out);
    metrics_head(out, "carrel_limits_hit_total", "counter", "Times that a limit was reached");
    for (int i = 0; i < HIT_COUNT; i++)
        metrics_line(out, "carrel_limits_hit_total", "limit", limit_hit_name((enum limit_hit)i),
                     n->hits[i]);
    box_metrics(out, json, n);
    metrics_write(api_metrics_of(c->api), out);
}

static void metrics_came(void *arg, const char *json, const struct err *err) {
    struct call *c = arg;
    struct buf out DEFER(buf_done) = BUF(CALL_BODY_MAX);
    struct service_counts n;
    (void)err;
    service_count(c->service, &c->who, &n);
    write_machines(c, &n, &out);
    if (service_sees_all(&c->who))
        write_host(c, &n, json, &out);
    call_text(c, 200, "text/plain; version=0.0.4", out.data, out.len);
}

void api_metrics(struct call *c) {
    service_host_status(c->service, metrics_came, c);
}

/* ---- tokens ---- */

static void view_token(const struct token_row *row, const char *secret, struct token_view *ret) {
    *ret = (struct token_view){
        .id = row->id,
        .owner = row->owner,
        .note = row->note[0] ? row->note : NULL,
        .secret = secret,
        .created_ms = (uint64_t)row->created_ms,
        .used_ms = (uint64_t)row->used_ms,
        .revoked_ms = (uint64_t)row->revoked_ms,
        .machines = row->quota.machines,
        .cpus = row->quota.cpu_milli,
        .mem = row->quota.mem_bytes,
        .disk = row->quota.disk_bytes,
        .max_ttl_ms = row->quota.lifetime_ms,
    };
    scopes_text(row->scopes, ret->scopes);
}

static void token_made(void *arg, const struct token_row *row, const char *secret,
                       const struct err *err) {
    struct call *c = arg;
    struct token_view view;
    if (err) {
        call_error(c, err);
        return;
    }
    view_token(row, secret, &view);
    call_view(c, 201, &token_schema, &view);
}

void api_token_new(struct call *c) {
    service_token_new(c->service, &c->who, c->request, token_made, c);
}

void api_token_list(struct call *c) {
    struct token_list list DEFER(token_list_done) = {0};
    struct buf text DEFER(buf_done) = BUF(CALL_BODY_MAX);
    struct jot j = JOT(&text);
    struct err err;
    if (service_token_list(c->service, &c->who, &list, &err) < 0) {
        call_error(c, &err);
        return;
    }
    jot_object(&j, NULL);
    jot_array(&j, "tokens");
    for (size_t i = 0; i < list.count; i++) {
        struct token_view view;
        view_token(&list.rows[i], NULL, &view);
        schema_write(&token_schema, &j, NULL, &view);
    }
    jot_end(&j, ']');
    jot_end(&j, '}');
    call_json(c, 200, &j, &text);
}

static void token_revoked(void *arg, const struct err *err) {
    if (err)
        call_error(arg, err);
    else
        call_done(arg);
}

void api_token_revoke(struct call *c) {
    service_token_revoke(c->service, &c->who, c->params[0], token_revoked, c);
}
