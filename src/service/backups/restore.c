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
#include "service/rights.h"
#include "store/images.h"
#include "store/taints.h"

enum { PIECE = 1 << 20, FEED_BUF = 2 * PIECE };

/* The files of the archive, in their order. Numbers from MARK + 1 on are packs. */
enum { SEND_MARK, SEND_MANIFEST, SEND_IMAGE, SEND_PACKS };

#define DRIFTED                                                                                   \
    "the backup was made of a machine that uses this host's /usr (image host), and the packages " \
    "of the host are not the same as then: programs may be missing or have other versions"

struct restoring {
    struct backup_job job;
    struct backup_row row;
    char *name; /* of the new machine, or NULL */
    json_t *details;
    int dir, packs;
    struct buf text; /* of the manifest */
    struct manifest manifest;
    uint32_t at;   /* the next file to send */
    int fd;        /* the pack that is being sent; -1: none */
    uint64_t left; /* bytes of it */
    char *image_json;
    struct buf out; /* bytes of the archive that the import has not taken */
    size_t sent;    /* of `out` */
    bool at_end, reads, import_over;
    bool drifted; /* the host has other packages than when the backup was made */
    struct image_job *import;
    char image[IMAGE_ID_SIZE], image_name[IMAGE_NAME_SIZE];
    service_machine_fn *done;
    void *arg;
};

static void restore_free(struct restoring *r) {
    close_fd(&r->fd);
    close_fd(&r->dir);
    close_fd(&r->packs);
    buf_done(&r->text);
    buf_done(&r->out);
    json_decref(r->details);
    backup_row_done(&r->row);
    free(r->image_json);
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

static int put_head(struct restoring *r, const char *name, uint64_t size, struct err *err) {
    struct tar_entry *e DEFER_FREE = xnew(struct tar_entry);
    uint8_t head[TAR_HEAD_MAX];
    *e = (struct tar_entry){.kind = TAR_FILE, .mode = 0644, .size = size};
    snprintf(e->path, sizeof(e->path), "%s", name);
    return buf_add(&r->out, head, tar_put(head, e)) ? 0 : err_set(err, ERR_LIMIT, "out of memory");
}

static int put_padding(struct restoring *r, uint64_t size, struct err *err) {
    static const uint8_t zeros[2 * TAR_BLOCK];
    return buf_add(&r->out, zeros, tar_padding(size)) ? 0
                                                      : err_set(err, ERR_LIMIT, "out of memory");
}

static int put_text(struct restoring *r, const char *name, const void *text, size_t n,
                    struct err *err) {
    return put_head(r, name, n, err) < 0 || !buf_add(&r->out, text, n) || put_padding(r, n, err) < 0
               ? err_set(err, ERR_LIMIT, "out of memory")
               : 0;
}

static int begin_pack(struct restoring *r, uint32_t i, struct err *err) {
    char hash[SHA256_HEX], name[SHA256_HEX + 16];
    struct stat st;
    r->fd = backup_pack_open(r->packs, &r->manifest, i, hash, err);
    if (r->fd < 0)
        return -1;
    if (fstat(r->fd, &st) < 0 || st.st_size <= 0 || st.st_size > PACKFILE_MAX)
        return err_set(err, ERR_INVALID, "pack '%s' of the backup is damaged", hash);
    snprintf(name, sizeof(name), "packs/%s", hash);
    r->left = (uint64_t)st.st_size;
    return put_head(r, name, r->left, err);
}

static int put_pack(struct restoring *r, struct err *err) {
    char *piece DEFER_FREE = xmalloc(PIECE);
    ssize_t n = read(r->fd, piece, r->left < PIECE ? (size_t)r->left : PIECE);
    if (n <= 0)
        return n < 0 && errno == EINTR ? 0 : err_sys(err, "cannot read a pack of the backup");
    if (!buf_add(&r->out, piece, (size_t)n))
        return err_set(err, ERR_LIMIT, "out of memory");
    r->left -= (uint64_t)n;
    if (r->left)
        return 0;
    struct stat st;
    int size = fstat(r->fd, &st);
    close_fd(&r->fd);
    return size < 0 ? err_sys(err, "cannot read a pack of the backup")
                    : put_padding(r, (uint64_t)st.st_size, err);
}

static int put_next(struct restoring *r, struct err *err) {
    static const uint8_t zeros[2 * TAR_BLOCK];
    char name[SHA256_HEX + 16];
    if (r->fd >= 0)
        return put_pack(r, err);
    uint32_t at = r->at++;
    switch (at) {
    case SEND_MARK:
        return put_text(r, "carrel-packs", "1\n", 2, err);
    case SEND_MANIFEST:
        snprintf(name, sizeof(name), "manifests/%s", r->row.manifest);
        return put_text(r, name, r->text.data, r->text.len, err);
    case SEND_IMAGE:
        return put_text(r, "image.json", r->image_json, strlen(r->image_json), err);
    default:
        if (at - SEND_PACKS < r->manifest.pack_count)
            return begin_pack(r, at - SEND_PACKS, err);
        r->at_end = true;
        return buf_add(&r->out, zeros, sizeof(zeros)) ? 0
                                                      : err_set(err, ERR_LIMIT, "out of memory");
    }
}

static void restore_read(void *arg) {
    struct restoring *r = arg;
    struct err err;
    while (!r->at_end && r->out.len < PIECE && !r->job.failed)
        if (put_next(r, &err) < 0)
            backup_job_fail(&r->job, &err);
}

/* NULL: the backup has all files of /usr. */
static const char *restore_host(const struct restoring *r) {
    return json_string_value(json_object_get(r->details, BACKUP_HOST));
}

static int restore_files(struct restoring *r, struct err *err) {
    json_t *json DEFER(json_decrefp) =
        json_pack("{s:[{s:s, s:[]}], s:O}", "layers", "manifest", r->row.manifest, "packs", "image",
                  json_object_get(r->details, "config"));
    r->dir = backup_dir_open(r->job.service, r->row.machine, err);
    r->packs = r->dir < 0 ? -1 : backup_packs_open(r->dir, err);
    if (r->packs < 0 || backup_manifest(r->dir, &r->row, &r->text, &r->manifest, err) < 0 ||
        backup_packs_exist(r->packs, &r->manifest, err) < 0)
        return -1;
    r->image_json = json ? json_dumps(json, JSON_COMPACT) : NULL;
    return r->image_json ? 0 : err_set(err, ERR_INTERNAL, "the record of the backup is damaged");
}

static void restore_open(void *arg) {
    struct restoring *r = arg;
    const char *then = restore_host(r);
    char now[SHA256_HEX];
    struct err err;
    if (then) {
        backup_host_state(now);
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
    if (r->reads || !r->import)
        return;
    r->sent += image_feed(r->import, r->out.data ? r->out.data + r->sent : "", r->out.len - r->sent,
                          r->at_end);
    if (r->sent < r->out.len || r->at_end)
        return;
    buf_drop(&r->out, r->out.len);
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
                            .dir = -1,
                            .packs = -1,
                            .fd = -1,
                            .text = BUF(MANIFEST_MAX + 1),
                            .out = BUF(MANIFEST_MAX + FEED_BUF),
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
