/*
 * Makes a machine of a backup: sends its packs through the import of images, whose checks hold for
 * every archive, then creates a machine of the new image. The image has no name afterwards and is
 * deleted with the last machine that uses it.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/hex.h"
#include "service/backups/inner.h"
#include "service/images/images.h"
#include "service/images/live.h"
#include "service/rights.h"
#include "store/images.h"
#include "store/taints.h"

#define DRIFTED                                                                                   \
    "the backup was made of a machine that uses this host's /usr (image host), and the packages " \
    "of the host are not the same as then: programs may be missing or have other versions"

struct restoring {
    struct backup_job job;
    struct backup_row row;
    char *name; /* of the new machine, or NULL */
    json_t *details;
    struct backup_archive archive;
    size_t sent; /* of archive.out */
    bool reads, import_over;
    bool drifted; /* the host has other packages than when the backup was made */
    struct image_job *import;
    char image[IMAGE_ID_SIZE], image_name[IMAGE_NAME_SIZE];
    service_machine_fn *done;
    void *arg;
};

static void restore_free(struct restoring *r) {
    backup_archive_done(&r->archive);
    json_decref(r->details);
    backup_row_done(&r->row);
    free(r->name);
    free(r);
}

static void restore_over(struct restoring *r, const struct machine_view *view) {
    char detail[64];
    snprintf(detail, sizeof(detail), "{\"backup\":\"%s\"}", r->row.id);
    backup_job_over(&r->job, detail);
    r->done(r->arg, r->job.failed ? NULL : view, r->job.failed ? &r->job.err : NULL);
    restore_free(r);
}

/* ---- the archive; on a worker thread ---- */

static void restore_read(void *arg) {
    struct restoring *r = arg;
    struct err err;
    if (backup_archive_read(&r->archive, &err) < 0)
        backup_job_fail(&r->job, &err);
}

/* NULL: the backup has all files of /usr. */
static const char *restore_host(const struct restoring *r) {
    return json_string_value(json_object_get(r->details, BACKUP_HOST));
}

static int restore_files(struct restoring *r, struct err *err) {
    struct backup_archive *a = &r->archive;
    json_t *json DEFER(json_decrefp) =
        json_pack("{s:[{s:s, s:[]}], s:O}", "layers", "manifest", r->row.manifest, "packs", "image",
                  json_object_get(r->details, "config"));
    char *text DEFER_FREE = json ? json_dumps(json, JSON_COMPACT) : NULL;
    if (!text)
        return err_set(err, ERR_INTERNAL, "the record of the backup is damaged");
    return backup_archive_open(a, r->job.service, &r->row, err) < 0 ||
                   backup_archive_text(a, "carrel-packs", "1\n", 2, err) < 0 ||
                   backup_archive_manifest(a, err) < 0
               ? -1
               : backup_archive_text(a, "image.json", text, strlen(text), err);
}

static void restore_open(void *arg) {
    struct restoring *r = arg;
    const char *then = restore_host(r);
    char now[SHA256_HEX];
    struct err err;
    if (then) {
        image_host_state(now);
        r->drifted = strcmp(now, then) != 0;
    }
    if (restore_files(r, &err) < 0)
        backup_job_fail(&r->job, &err);
}

/* ---- the import ---- */

static void restore_create(struct restoring *r);

/* The import has ended, and no worker thread uses *r. */
static void restore_settle(struct restoring *r) {
    if (!r->import_over || r->reads)
        return;
    if (r->job.failed)
        restore_over(r, NULL);
    else
        restore_create(r);
}

static void restore_ended(void *arg, const struct image_view *view, const struct err *err) {
    struct restoring *r = arg;
    r->import = NULL;
    r->import_over = true;
    if (err)
        backup_job_fail(&r->job, err);
    if (view) {
        snprintf(r->image, sizeof(r->image), "%s", view->id);
        snprintf(r->image_name, sizeof(r->image_name), "%s", view->name);
    }
    restore_settle(r);
}

static void restore_feed(void *arg);

static void restore_was_read(void *arg) {
    struct restoring *r = arg;
    r->reads = false;
    if (r->import_over) {
        restore_settle(r);
    } else if (r->job.failed) {
        image_cancel(r->import);
        r->import = NULL;
        r->import_over = true;
        restore_settle(r);
    } else {
        restore_feed(r);
    }
}

/* The import takes bytes, or `room` is called later. */
static void restore_feed(void *arg) {
    struct restoring *r = arg;
    struct backup_archive *a = &r->archive;
    if (r->reads || !r->import)
        return;
    r->sent += image_feed(r->import, a->out.data ? a->out.data + r->sent : "", a->out.len - r->sent,
                          a->at_end);
    if (r->sent < a->out.len || a->at_end)
        return;
    buf_drop(&a->out, a->out.len);
    r->sent = 0;
    r->reads = true;
    loop_work(r->job.service->loop, restore_read, restore_was_read, r);
}

static void restore_opened(void *arg) {
    struct restoring *r = arg;
    const struct image_events events = {.arg = r, .room = restore_feed, .ended = restore_ended};
    struct err err;
    enum image_above above = restore_host(r) ? IMAGE_ABOVE_HOST : IMAGE_ABOVE_NOTHING;
    if (!r->job.failed && !(r->import = service_image_import(r->job.service, &r->job.who, NULL,
                                                             above, &events, &err)))
        backup_job_fail(&r->job, &err);
    if (r->job.failed)
        restore_over(r, NULL);
    else
        restore_feed(r);
}

/* ---- the machine ---- */

static void image_unnamed(void *arg, const struct image_view *view, const struct err *err) {
    (void)arg, (void)view, (void)err; /* a name that stays does no harm */
}

static void restore_created(void *arg, const struct machine_view *view, const struct err *err) {
    struct restoring *r = arg;
    if (err)
        backup_job_fail(&r->job, err);
    service_image_remove(r->job.service, &r->job.who, r->image_name, image_unnamed, NULL);
    if (view && r->drifted) {
        struct machine_view told = *view;
        const char *others = view->warnings ? view->warnings : "";
        char *text DEFER_FREE = xformat("%s%s" DRIFTED, others, *others ? "; " : "");
        told.warnings = text;
        restore_over(r, &told);
        return;
    }
    restore_over(r, view);
}

static uint64_t amount_of(const json_t *details, const char *name) {
    json_int_t n = json_integer_value(json_object_get(details, name));
    return n > 0 ? (uint64_t)n : 0;
}

static struct given given_if(uint64_t value) {
    return (struct given){.value = value, .is = value > 0};
}

/* Leaves out limits that were defaults: this host may be unable to enforce them. */
static struct limits_request limits_of(const struct conf *conf, const json_t *details, bool vm) {
    const struct machine_row row = {.mem_bytes = amount_of(details, "mem"),
                                    .cpu_milli = amount_of(details, "cpus"),
                                    .pids = amount_of(details, "pids"),
                                    .disk_bytes = amount_of(details, "disk")};
    const struct machine_limits wished = row_limits(conf, &row);
    return (struct limits_request){.mem = given_if(vm ? row.mem_bytes : wished.mem_bytes),
                                   .cpus = given_if(row.cpu_milli),
                                   .pids = given_if(vm ? 0 : wished.pids),
                                   .disk = given_if(vm ? row.disk_bytes : wished.disk_bytes)};
}

static void restore_create(struct restoring *r) {
    const char *taint = json_string_value(json_object_get(r->details, "taint"));
    const char *kind = json_string_value(json_object_get(r->details, "kind"));
    struct machine_request q = {.kind = kind, .image = r->image, .name = r->name};
    uint8_t hash[SHA256_BYTES] = {0};
    struct err err;
    q.limits = limits_of(r->job.service->conf, r->details, kind && strcmp(kind, "vm") == 0);
    if (taint && *taint &&
        store_taint_put(r->job.service->store, r->job.who.owner, "image", r->image, taint,
                        wall_ms(), &err) < 0) {
        restore_created(r, NULL, &err);
        return;
    }
    service_create(r->job.service, &r->job.who, &q, hash, NULL, 0, restore_created, r);
}

void service_backup_restore(struct service *s, const struct caller *who, const char *id,
                            const struct backup_restore_request *q, service_machine_fn *done,
                            void *arg) {
    struct restoring *r = xnew(struct restoring);
    struct err err;
    *r = (struct restoring){.job = {.service = s, .who = *who, .verb = "backup.restore"},
                            .name = q->as ? xstrdup(q->as) : NULL,
                            .archive = BACKUP_ARCHIVE,
                            .done = done,
                            .arg = arg};
    if (allow(who, SCOPE_RUN, &err) == 0 && backup_find(s, who, id, &r->row, &err) == 0) {
        memcpy(r->job.machine, r->row.machine, sizeof(r->job.machine));
        r->details = json_loads(r->row.details ? r->row.details : "", 0, NULL);
        if (backup_job_begin(&r->job, NULL, &err) == 0) {
            loop_work(s->loop, restore_open, restore_opened, r);
            return;
        }
    }
    done(arg, NULL, &err);
    restore_free(r);
}
