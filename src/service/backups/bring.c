/*
 * Takes a backup that another daemon made: the tar that export.c writes. All of it may be hostile.
 * Every name and size is checked, and every file must have the hash that names it. The backup gets
 * a new id, and a directory that no other backup uses, so it can neither replace nor delete files
 * of one. Its packs are read only by carrel-image, in its jail, when a machine is made of them.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/hex.h"
#include "base/image_id.h"
#include "base/limits.h"
#include "base/log.h"
#include "service/backups/inner.h"
#include "service/fields.h"
#include "service/rights.h"

enum { BRING_PIECE = 1 << 20, TAINT_MAX = 200 };

/* Limits of the machine. */
static const struct {
    const char *name;
    json_int_t most;
} amounts[] = {{"mem", LIMIT_MEM_MAX},
               {"cpus", LIMIT_CPU_MAX_MILLI},
               {"pids", 1 << 22},
               {"disk", LIMIT_DISK_MAX}};

struct backup_bring {
    struct backup_job job;
    struct backup_row row;
    struct backup_intake in;
    struct disk_hold hold;
    uint8_t *piece; /* bytes for the worker thread */
    size_t len;
    bool began, works, last, complete, cancelled;
    struct backup_events events;
};

static void bring_free(struct backup_bring *b) {
    quota_release(b->job.service, &b->hold);
    backup_intake_done(&b->in);
    backup_row_done(&b->row);
    free(b->piece);
    free(b);
}

/* ---- the description ---- */

static int bring_refuse(struct err *err, const char *why) {
    err_set(err, ERR_INVALID, "the copy of the backup %s", why);
    return err_remedy(err, "check it with: carrel backup verify DIR");
}

static bool take_amounts(const json_t *from, json_t *to) {
    for (size_t i = 0; i < sizeof(amounts) / sizeof(*amounts); i++) {
        json_t *n = json_object_get(from, amounts[i].name);
        if (!json_is_integer(n) || json_integer_value(n) < 0 ||
            json_integer_value(n) > amounts[i].most || json_object_set(to, amounts[i].name, n) < 0)
            return false;
    }
    return true;
}

static bool is_plain(const char *text, size_t most) {
    size_t n = text ? strlen(text) : most + 1;
    for (size_t i = 0; i < n && n <= most; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            return false;
    return n <= most;
}

/* What restoring reads from the details: nothing else is taken over. */
static json_t *bring_details(const json_t *from) {
    const char *kind = json_string_value(json_object_get(from, "kind")),
               *image = json_string_value(json_object_get(from, "image")),
               *taint = json_string_value(json_object_get(from, "taint"));
    json_t *config = json_object_get(from, "config"), *host = json_object_get(from, BACKUP_HOST);
    const char *state = json_string_value(host);
    if (!kind || (strcmp(kind, "box") != 0 && strcmp(kind, "vm") != 0) ||
        !is_plain(image, IMAGE_NAME_SIZE) || !is_plain(taint, TAINT_MAX) ||
        !json_is_object(config) ||
        (host && (!state ||
                  (*state && !(strlen(state) == SHA256_HEX - 1 && hex_is(state, SHA256_HEX - 1))))))
        return NULL;
    json_t *to = json_pack("{s:s, s:s, s:s, s:O}", "kind", kind, "image", image, "taint", taint,
                           "config", config);
    if (to && !take_amounts(from, to)) {
        json_decref(to);
        return NULL;
    }
    if (to && host)
        json_object_set(to, BACKUP_HOST, host);
    return to;
}

static json_t *bring_parse(const struct buf *text, struct err *err) {
    const char *newline = text->len ? memchr(text->data, '\n', text->len) : NULL;
    size_t n = newline ? (size_t)(newline - text->data) : 0;
    char hash[SHA256_HEX];
    sha256_hex(text->data ? text->data : "", n, hash);
    json_t *json =
        newline && text->len == n + 1 + SHA256_HEX && memcmp(newline + 1, hash, SHA256_HEX - 1) == 0
            ? json_loadb(text->data, n, JSON_REJECT_DUPLICATES, NULL)
            : NULL;
    if (!json)
        bring_refuse(err, "has no description, or a damaged one");
    return json;
}

static int bring_describe(struct backup_bring *b, struct err *err) {
    json_t *json DEFER(json_decrefp) = bring_parse(&b->in.text, err);
    if (!json)
        return -1;
    const char *name = json_string_value(json_object_get(json, "name")),
               *manifest = json_string_value(json_object_get(json, "manifest"));
    json_int_t form = json_integer_value(json_object_get(json, "carrel")),
               at = json_integer_value(json_object_get(json, "created_ms"));
    if (form != BACKUP_FORM) {
        err_set(err, ERR_UNSUPPORTED, "the copy of the backup has an unknown form");
        return err_remedy(err,
                          "restore it with the version of Carrel that made it, or a newer one");
    }
    json_t *details DEFER(json_decrefp) = bring_details(json_object_get(json, "details"));
    if (!details || !name || (*name && !machine_name_ok(name)) || !manifest ||
        strcmp(manifest, b->in.manifest) != 0 || at <= 0 || at > wall_ms() + 86400000)
        return bring_refuse(err, "has a description that does not fit its files");
    snprintf(b->row.name, sizeof(b->row.name), "%s", name);
    snprintf(b->row.manifest, sizeof(b->row.manifest), "%s", manifest);
    b->row.created_ms = at;
    b->row.details = json_dumps(details, JSON_COMPACT);
    return b->row.details ? 0 : err_set(err, ERR_LIMIT, "out of memory");
}

/* ---- on a worker thread ---- */

static int bring_files(struct backup_bring *b, struct err *err) {
    struct service *s = b->job.service;
    b->began = true;
    return backup_dir_make(s, b->row.machine, err) < 0 ||
                   (b->in.dir = backup_dir_open(s, b->row.machine, err)) < 0 ||
                   (b->in.packs = backup_packs_open(b->in.dir, err)) < 0
               ? -1
               : backup_mark(b->in.dir, b->row.id, err);
}

static int bring_complete(struct backup_bring *b, struct err *err) {
    struct buf text DEFER(buf_done) = BUF(MANIFEST_MAX + 1);
    struct manifest_entry e;
    struct manifest m;
    if (!b->in.ended)
        return bring_refuse(err, "ends early");
    if (bring_describe(b, err) < 0 || backup_manifest(b->in.dir, &b->row, &text, &m, err) < 0 ||
        backup_packs_exist(b->in.packs, &m, err) < 0)
        return -1;
    for (struct bytes left = m.entries; manifest_next(&left, &e);)
        b->row.bytes += e.size;
    b->row.entries = m.entry_count;
    b->row.written = b->in.written;
    return backup_sync(&b->in, err);
}

static void bring_run(void *arg) {
    struct backup_bring *b = arg;
    struct err err;
    if ((!b->began && bring_files(b, &err) < 0) ||
        backup_intake_feed(&b->in, b->piece, b->len, &err) < 0 ||
        (b->last && bring_complete(b, &err) < 0))
        backup_job_fail(&b->job, &err);
    b->len = 0;
}

static void bring_tidy(void *arg) {
    struct backup_bring *b = arg;
    struct backup_list keep = {.rows = &b->row, .count = !b->job.failed};
    struct err err;
    if (b->began && backup_clean(b->job.service, b->row.machine, &keep, &err) < 0)
        log_line(LOG_WARN, "service", "delete what a copy of a backup does not need: %s machine=%s",
                 err.text, b->row.machine);
}

/* ---- on the loop ---- */

static void bring_over(void *arg) {
    struct backup_bring *b = arg;
    struct buf text DEFER(buf_done) = BUF(8192);
    struct jot j = JOT(&text);
    backup_put(&j, &b->row);
    backup_job_over(&b->job, text.data);
    if (!b->cancelled)
        b->events.ended(b->events.arg, b->job.failed ? NULL : text.data,
                        b->job.failed ? &b->job.err : NULL);
    bring_free(b);
}

static void bring_end(struct backup_bring *b) {
    struct service *s = b->job.service;
    struct err err;
    if (b->cancelled && err_set(&err, ERR_GONE, "the client disconnected") < 0)
        backup_job_fail(&b->job, &err);
    if (!b->job.failed &&
        (store_backup_add(s->store, &b->row, &err) < 0 || store_flush(s->store, &err) < 0))
        backup_job_fail(&b->job, &err);
    b->works = true;
    loop_work(s->loop, bring_tidy, bring_over, b);
}

static void bring_ran(void *arg) {
    struct backup_bring *b = arg;
    b->works = false;
    if (b->job.failed || b->cancelled || b->last)
        bring_end(b);
    else
        b->events.room(b->events.arg);
}

size_t backup_bring_feed(struct backup_bring *b, const void *bytes, size_t n, bool last) {
    if (b->works || b->last)
        return 0;
    size_t takes = n < BRING_PIECE ? n : BRING_PIECE;
    b->last = last && takes == n;
    if (!takes && !b->last)
        return 0;
    if (takes)
        memcpy(b->piece, bytes, takes);
    b->len = takes;
    b->works = true;
    loop_work(b->job.service->loop, bring_run, bring_ran, b);
    return takes;
}

void backup_bring_cancel(struct backup_bring *b) {
    b->cancelled = true;
    if (!b->works)
        bring_end(b);
}

struct backup_bring *service_backup_import(struct service *s, const struct caller *who,
                                           const struct backup_events *events, struct err *err) {
    struct backup_bring *b = xnew(struct backup_bring);
    *b = (struct backup_bring){.job = {.service = s, .who = *who, .verb = "backup.import"},
                               .in = {.dir = -1, .packs = -1, .fd = -1, .is_copy = true},
                               .events = *events};
    b->in.text = BUF(BACKUP_TEXT_MAX);
    snprintf(b->row.id, sizeof(b->row.id), "%s", id_new('k').text);
    snprintf(b->row.machine, sizeof(b->row.machine), "%s", id_new('m').text);
    memcpy(b->row.owner, who->owner, sizeof(b->row.owner));
    memcpy(b->row.token, who->token, sizeof(b->row.token));
    memcpy(b->in.id, b->row.id, sizeof(b->in.id));
    memcpy(b->job.machine, b->row.machine, sizeof(b->job.machine));
    b->hold.who = &b->job.who;
    if (allow(who, SCOPE_RUN, err) == 0 && store_admit(s->store, STORE_USES, err) == 0 &&
        quota_hold(s, &b->hold, err) == 0 && backup_job_begin(&b->job, NULL, err) == 0) {
        b->in.most = b->hold.bytes;
        b->piece = xmalloc(BRING_PIECE);
        return b;
    }
    bring_free(b);
    return NULL;
}
