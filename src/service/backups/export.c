/*
 * Sends a backup to a client: its packs, its manifest, and last a description, without which the
 * copy is not complete.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/hex.h"
#include "base/parse.h"
#include "service/backups/inner.h"
#include "service/rights.h"

struct backup_export {
    struct backup_job job;
    struct backup_row row;
    struct backup_archive archive;
    char *wanted; /* numbers of packs; NULL: all */
    char *text, name[ID_SIZE + 32];
    bool reads, held, cancelled;
    struct backup_events events;
};

static void export_over(struct backup_export *x) {
    char detail[64];
    snprintf(detail, sizeof(detail), "{\"backup\":\"%s\"}", x->row.id);
    if (x->cancelled) {
        struct err err;
        err_set(&err, ERR_GONE, "the client disconnected before it had the whole backup");
        backup_job_fail(&x->job, &err);
    }
    backup_job_over(&x->job, detail);
    if (!x->cancelled)
        x->events.ended(x->events.arg, NULL, x->job.failed ? &x->job.err : NULL);
    backup_archive_done(&x->archive);
    backup_row_done(&x->row);
    free(x->wanted);
    free(x->text);
    free(x);
}

/* ---- on a worker thread ---- */

/* Reads "0-3,7" or "none", and skips all other packs. */
static int export_choose(struct backup_export *x, struct err *err) {
    if (strcmp(x->wanted, "none") == 0)
        x->wanted[0] = '\0';
    uint32_t count = x->archive.manifest.pack_count;
    x->archive.skip = xcalloc((size_t)count + 1, sizeof(bool));
    memset(x->archive.skip, true, count);
    for (char *save = NULL, *word = strtok_r(x->wanted, ",", &save); word;
         word = strtok_r(NULL, ",", &save)) {
        char *to = strchr(word, '-');
        uint64_t first, last;
        if (to)
            *to++ = '\0';
        if (parse_u64(word, 0, count, &first, NULL) < 0 ||
            parse_u64(to ? to : word, first, count, &last, NULL) < 0 || last >= count)
            return err_set(err, ERR_INVALID,
                           "parameter 'packs' must be numbers below %" PRIu32 ", such as 0-3,7",
                           count);
        memset(x->archive.skip + first, false, last - first + 1);
    }
    return 0;
}

/* The description of a copy: JSON in one line, and its hash in another. */
static int export_describe(struct backup_export *x, struct err *err) {
    const struct manifest *m = &x->archive.manifest;
    json_t *packs = json_array(), *details = json_loads(x->row.details, 0, NULL);
    char hash[SHA256_HEX];
    for (uint32_t i = 0; i < m->pack_count; i++) {
        uint8_t raw[SHA256_BYTES];
        manifest_pack(m, i, raw);
        hex_put(raw, SHA256_BYTES, hash);
        json_array_append_new(packs, json_string(hash));
    }
    json_t *all DEFER(json_decrefp) =
        json_pack("{s:i, s:s, s:s, s:I, s:I, s:I, s:s, s:o, s:o}", "carrel", BACKUP_FORM, "id",
                  x->row.id, "name", x->row.name, "created_ms", (json_int_t)x->row.created_ms,
                  "files", (json_int_t)x->row.entries, "bytes", (json_int_t)x->row.bytes,
                  "manifest", x->row.manifest, "details", details, "packs", packs);
    char *line DEFER_FREE = all ? json_dumps(all, JSON_COMPACT) : NULL;
    if (!line)
        return err_set(err, ERR_INTERNAL, "the record of the backup is damaged");
    sha256_hex(line, strlen(line), hash);
    x->text = xformat("%s\n%s\n", line, hash);
    snprintf(x->name, sizeof(x->name), BACKUP_TEXTS "%s.json", x->row.id);
    return 0;
}

static int export_prepare(struct backup_export *x, struct err *err) {
    struct backup_archive *a = &x->archive;
    if (backup_archive_open(a, x->job.service, &x->row, err) < 0 || export_describe(x, err) < 0 ||
        (x->wanted && export_choose(x, err) < 0))
        return -1;
    a->last = x->text;
    a->last_name = x->name;
    return 0;
}

static void export_read(void *arg) {
    struct backup_export *x = arg;
    struct err err;
    if ((!x->text && export_prepare(x, &err) < 0) || backup_archive_read(&x->archive, &err) < 0)
        backup_job_fail(&x->job, &err);
}

/* ---- on the loop ---- */

static void export_go_on(struct backup_export *x);

static void export_was_read(void *arg) {
    struct backup_export *x = arg;
    struct buf *out = &x->archive.out;
    if (!x->cancelled && !x->job.failed) {
        x->events.data(x->events.arg, out->data, out->len); /* may cancel */
        buf_drop(out, out->len);
    }
    x->reads = false;
    if (x->cancelled || x->job.failed || x->archive.at_end)
        export_over(x);
    else
        export_go_on(x);
}

static void export_go_on(struct backup_export *x) {
    if (x->held || x->reads)
        return;
    x->reads = true;
    loop_work(x->job.service->loop, export_read, export_was_read, x);
}

void backup_export_hold(struct backup_export *x, bool held) {
    x->held = held;
    export_go_on(x);
}

void backup_export_cancel(struct backup_export *x) {
    x->cancelled = true;
    if (!x->reads)
        export_over(x);
}

struct backup_export *service_backup_export(struct service *s, const struct caller *who,
                                            const char *id, const char *packs,
                                            const struct backup_events *events, struct err *err) {
    struct backup_export *x = xnew(struct backup_export);
    *x = (struct backup_export){.job = {.service = s, .who = *who, .verb = "backup.export"},
                                .archive = BACKUP_ARCHIVE,
                                .wanted = packs ? xstrdup(packs) : NULL,
                                .events = *events};
    if (allow(who, SCOPE_READ, err) == 0 && backup_find(s, who, id, &x->row, err) == 0) {
        memcpy(x->job.machine, x->row.machine, sizeof(x->job.machine));
        if (backup_job_begin(&x->job, NULL, err) == 0) {
            export_go_on(x);
            return x;
        }
    }
    backup_archive_done(&x->archive);
    backup_row_done(&x->row);
    free(x->wanted);
    free(x);
    return NULL;
}
