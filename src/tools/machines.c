/* The tools machine_create, machine_list and machine_destroy. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "base/sha256.h"
#include "tools/requests.h"
#include "tools/tables.h"
#include "tools/toolbox.h"

enum { MIB = 1 << 20 };

struct machine_output machine_output_of(const struct machine_view *view) {
    return (struct machine_output){
        .machine = view->id,
        .name = view->name,
        .state = view->state,
        .image = view->image,
        .mem_mb = view->limits.mem / MIB,
        .disk_mb = view->limits.disk / MIB,
        .pids = view->limits.pids,
    };
}

static void machines_changed(void *arg, const struct machine_view *view, const struct err *err) {
    if (err) {
        act_fail(arg, err);
        return;
    }
    struct machine_output out = machine_output_of(view);
    act_done(arg, &out);
}

static struct given scaled(struct given g, uint64_t by) {
    return (struct given){g.value * by, g.is};
}

/* The model chooses only name, image and limits, within the token's quota; it can never add a grant
 * (something of the owner's). */
void tool_machine_create(struct act *a) {
    const struct machine_create_input *in = a->request;
    const char *meta[] = {"mcp", a->box->key};
    static const uint8_t no_hash[SHA256_BYTES];
    const struct machine_request r = {
        .image = in->image,
        .name = in->name,
        .metadata = {meta, 2},
        .limits = {.mem = scaled(in->mem_mb, MIB),
                   .disk = scaled(in->disk_mb, MIB),
                   .cpus = scaled(in->cpu_percent, 10),
                   .pids = in->pids},
        .idle = {TOOLBOX_IDLE_MS, true},
        .idle_action = "release",
        .ttl = toolbox_ttl(a->box),
    };
    service_create(act_service(a), act_who(a), &r, no_hash, NULL, 0, machines_changed, a);
}

static void machines_add_row(void *arg, const void *view) {
    struct machine_output out = machine_output_of(view);
    schema_write(&machine_output_schema, arg, NULL, &out);
}

void tool_machine_list(struct act *a) {
    struct buf text DEFER(buf_done) = BUF(MIB);
    struct jot j = JOT(&text);
    const struct list_request r = {.meta_key = "mcp", .meta_value = a->box->key, .limit = 100};
    char next[CURSOR_SIZE];
    struct err err;
    jot_array(&j, NULL);
    if (service_list(act_service(a), act_who(a), &r, machines_add_row, &j, next, &err) < 0) {
        act_fail(a, &err);
        return;
    }
    jot_end(&j, ']');
    act_done(a, &(struct machine_list_output){text.data});
}

/* Ownership is checked here: the service lets the owner's token destroy every machine. */
static void destroy_shown(void *arg, const struct machine_view *view, const struct err *err) {
    struct act *a = arg;
    char id[ID_SIZE];
    if (!toolbox_check_own(a, view, err))
        return;
    snprintf(id, sizeof(id), "%s", view->id);
    if (strcmp(id, a->box->machine) == 0) /* the next call creates a new machine */
        a->box->machine[0] = '\0';
    service_destroy(act_service(a), act_who(a), id, machines_changed, a);
}

void tool_machine_destroy(struct act *a) {
    const struct machine_destroy_input *in = a->request;
    service_show(act_service(a), act_who(a), in->machine, destroy_shown, a);
}
