/* Backups that leave the daemon, and come from another one. */
#include "api/bodies.h"
#include "api/carriage.h"
#include "api/route.h"
#include "service/backups/backups.h"

static void hold_export(void *job, bool held) {
    backup_export_hold(job, held);
}

static void cancel_export(void *job) {
    backup_export_cancel(job);
}

static size_t feed_import(void *job, const void *bytes, size_t n, bool last) {
    return backup_bring_feed(job, bytes, n, last);
}

static void cancel_import(void *job) {
    backup_bring_cancel(job);
}

static const struct carriage_job exporting = {.hold = hold_export, .cancel = cancel_export};
static const struct carriage_job importing = {.feed = feed_import, .cancel = cancel_import};

static void carry_sent(void *arg, const char *json, const struct err *err) {
    (void)json;
    carriage_sent(arg, err);
}

void api_backup_export(struct call *c) {
    struct carriage *t = carriage_new(c, &exporting, "application/x-tar");
    const struct backup_events events = {.arg = t, .data = carriage_data, .ended = carry_sent};
    struct err err;
    carriage_begin(t,
                   service_backup_export(c->service, &c->who, c->params[0], call_query(c, "packs"),
                                         &events, &err),
                   &err);
}

static void carry_came(void *arg, const char *json, const struct err *err) {
    call_told(carriage_free(arg), json, err);
}

void api_backup_import(struct call *c) {
    struct carriage *t = carriage_new(c, &importing, NULL);
    const struct backup_events events = {.arg = t, .room = carriage_room, .ended = carry_came};
    struct err err;
    carriage_begin(t, service_backup_import(c->service, &c->who, &events, &err), &err);
}
