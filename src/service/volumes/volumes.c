#include "service/volumes/volumes.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/amount.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/limits.h"
#include "base/log.h"
#include "service/rights.h"
#include "service/volumes/inner.h"

enum { VOLUMES_JSON_MAX = 1 << 20, VOLUME_PLAIN_MAX = 64 };

/* ---- volumes as JSON ---- */

static void put_uses(struct jot *j, const struct grant_list *uses, const char *name) {
    jot_array(j, "machines");
    for (size_t i = 0; i < uses->count; i++) {
        const struct grant_row *row = &uses->rows[i];
        if (strcmp(row->what, name) != 0 || volume_use_is_door(row))
            continue;
        jot_object(j, NULL);
        jot_string(j, "machine", row->machine);
        jot_string(j, "at", row->place);
        jot_string(j, "mode", row->mode);
        jot_end(j, '}');
    }
    jot_end(j, ']');
}

/* Space on the disk of the store: a volume takes only what was written to it. */
static uint64_t volume_used(const struct service *s, const char *id) {
    char dir[VOLUME_PATH_SIZE], path[VOLUME_PATH_SIZE + 8];
    struct stat st;
    volume_path(s, "", id, dir);
    snprintf(path, sizeof(path), "%s/disk", dir);
    return lstat(path, &st) == 0 ? (uint64_t)st.st_blocks * 512 : 0;
}

static void put_volume(struct jot *j, const struct service *s, const struct volume_row *row,
                       const struct grant_list *uses) {
    jot_object(j, NULL);
    jot_string(j, "name", row->name);
    jot_string(j, "id", row->id);
    jot_u64(j, "size", row->bytes);
    jot_u64(j, "used_bytes", volume_used(s, row->id));
    jot_i64(j, "created_ms", row->created_ms);
    if (row->origin[0])
        jot_string(j, "from", row->origin);
    put_uses(j, uses, row->name);
    jot_end(j, '}');
}

void volume_answer(struct service *s, const char *owner, const char *name, service_net_fn *done,
                   void *arg) {
    struct buf text DEFER(buf_done) = BUF(VOLUMES_JSON_MAX);
    struct jot j = JOT(&text);
    struct grant_list uses DEFER(grant_list_done) = {0};
    struct volume_row row;
    struct err err;
    if (store_volume_find(s->store, owner, name, &row, &err) < 0 ||
        store_volume_uses(s->store, owner, name, &uses, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    put_volume(&j, s, &row, &uses);
    done(arg, text.data, NULL);
}

void service_volume_list(struct service *s, const struct caller *who, service_net_fn *done,
                         void *arg) {
    struct buf text DEFER(buf_done) = BUF(VOLUMES_JSON_MAX);
    struct jot j = JOT(&text);
    struct volume_list list DEFER(volume_list_done) = {0};
    struct grant_list uses DEFER(grant_list_done) = {0};
    struct err err;
    if (allow(who, SCOPE_READ, &err) < 0 ||
        store_volume_list(s->store, who->owner, &list, &err) < 0 ||
        store_volume_uses(s->store, who->owner, NULL, &uses, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    jot_object(&j, NULL);
    jot_array(&j, "volumes");
    for (size_t i = 0; i < list.count; i++)
        put_volume(&j, s, &list.rows[i], &uses);
    jot_end(&j, ']');
    jot_end(&j, '}');
    if (!j.failed) {
        done(arg, text.data, NULL);
        return;
    }
    err_set(&err, ERR_LIMIT, "the list of volumes is too long");
    done(arg, NULL, &err);
}

void service_volume_show(struct service *s, const struct caller *who, const char *name,
                         service_net_fn *done, void *arg) {
    struct err err;
    if (allow(who, SCOPE_READ, &err) < 0)
        done(arg, NULL, &err);
    else
        volume_answer(s, who->owner, name, done, arg);
}

void service_volume_counts(struct service *s, struct volume_counts *ret) {
    struct err err;
    *ret = (struct volume_counts){0};
    if (store_volume_totals(s->store, &ret->count, &ret->bytes, &err) < 0)
        log_line(LOG_ERROR, "service", "count volumes: %s", err.text);
}

/* ---- changes ---- */

static int volume_name_check(const char *name, const char *of, struct err *err) {
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t n = strlen(name);
    if (n && n <= VOLUME_PLAIN_MAX && name[0] != '.' && name[0] != '-' &&
        strspn(name, allowed) == n)
        return 0;
    err_set(err, ERR_INVALID, "'%.70s' is not a valid name of a %s", name, of);
    return err_remedy(err, "use at most %d letters, digits, '.', '_' and '-'", VOLUME_PLAIN_MAX);
}

/* Refuses a name that is taken, and a volume too many. Volumes that are being made count. */
static int volume_may_add(struct service *s, const struct volume_row *row, struct err *err) {
    struct volume_list list DEFER(volume_list_done) = {0};
    if (store_volume_list(s->store, row->owner, &list, err) < 0)
        return -1;
    size_t count = list.count;
    bool taken = false;
    for (size_t i = 0; i < list.count; i++)
        taken |= strcmp(list.rows[i].name, row->name) == 0;
    for (const struct volume_job *j = s->volumes->jobs; j; j = j->next)
        if (!j->removes && strcmp(j->row.owner, row->owner) == 0) {
            taken |= strcmp(j->row.name, row->name) == 0;
            count++;
        }
    if (taken)
        return err_set(err, ERR_EXISTS, "volume '%s' already exists", row->name);
    if (count < STORE_VOLUMES_MAX)
        return 0;
    err_set(err, ERR_LIMIT, "an owner can have at most %d volumes and snapshots",
            STORE_VOLUMES_MAX);
    return err_remedy(err, "delete one: carrel volume rm NAME");
}

/* Finds a volume that no machine has: its file does not change while it is copied or deleted. */
static int volume_find_free(struct service *s, const struct caller *who, const char *name,
                            const char *verb, struct volume_row *ret, struct err *err) {
    struct grant_list uses DEFER(grant_list_done) = {0};
    if (store_volume_find(s->store, who->owner, name, ret, err) < 0 ||
        volume_is_idle(s, ret->id, name, err) < 0 ||
        store_volume_uses(s->store, who->owner, name, &uses, err) < 0)
        return -1;
    size_t at = 0;
    while (at < uses.count && volume_use_is_door(&uses.rows[at]))
        at++;
    if (at == uses.count)
        return 0;
    err_set(err, ERR_BUSY, "cannot %s volume '%s': machine '%s' has it (%s)", verb, name,
            uses.rows[at].machine, uses.rows[at].mode);
    return err_remedy(err, "detach it: carrel grant revoke %s %s; or delete the machine",
                      uses.rows[at].machine, uses.rows[at].id);
}

static struct volume_job volume_job_of(const struct caller *who, const char *verb,
                                       service_net_fn *done, void *arg) {
    struct volume_job j = {.who = *who, .verb = verb, .done = done, .arg = arg};
    snprintf(j.row.id, sizeof(j.row.id), "%s", id_new('v').text);
    snprintf(j.row.owner, sizeof(j.row.owner), "%s", who->owner);
    snprintf(j.row.token, sizeof(j.row.token), "%s", who->token);
    j.row.created_ms = wall_ms();
    return j;
}

static int volume_size_check(uint64_t bytes, struct err *err) {
    const struct limit_range range = {"the size of a volume", AMOUNT_BYTES, bytes, LIMIT_VOLUME_MIN,
                                      LIMIT_VOLUME_MAX};
    return ranges_check(&range, 1, err);
}

/* The job of a copy: the same size, and the name of its source. */
static void volume_copies(struct volume_job *j) {
    j->row.bytes = j->source.bytes;
    snprintf(j->row.origin, sizeof(j->row.origin), "%s", j->source.name);
}

static int volume_plan_create(struct service *s, const struct caller *who,
                              const struct volume_request *r, struct volume_job *j,
                              struct err *err) {
    if (volume_name_check(r->name, "volume", err) < 0)
        return -1;
    snprintf(j->row.name, sizeof(j->row.name), "%s", r->name);
    if (r->from && r->size.is)
        return err_set(err, ERR_INVALID, "a copy has the size of its source: leave out the size");
    j->row.bytes = r->size.is ? r->size.value : LIMIT_DISK;
    if (r->from) {
        if (volume_find_free(s, who, r->from, "copy", &j->source, err) < 0)
            return -1;
        volume_copies(j);
    }
    return volume_size_check(j->row.bytes, err) < 0 ? -1 : volume_may_add(s, &j->row, err);
}

void service_volume_create(struct service *s, const struct caller *who,
                           const struct volume_request *r, service_net_fn *done, void *arg) {
    struct volume_job j = volume_job_of(who, "volume.create", done, arg);
    struct err err;
    if (authorise(who, RIGHT_VOLUME, &err) < 0 || volume_plan_create(s, who, r, &j, &err) < 0 ||
        volume_job_begin(s, &j, &err) < 0)
        done(arg, NULL, &err);
}

/* Names a snapshot by the present time (UTC), such as 20260131-235959. */
static void volume_time_name(char ret[32]) {
    time_t now = (time_t)(wall_ms() / 1000);
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(ret, 32, "%Y%m%d-%H%M%S", &tm);
}

static int volume_plan_snap(struct service *s, const struct caller *who, const char *name,
                            const struct volume_snap_request *r, struct volume_job *j,
                            struct err *err) {
    char now[32];
    volume_time_name(now);
    const char *snap = r->name ? r->name : now;
    if (strchr(name, '@'))
        return err_set(err, ERR_INVALID, "'%.130s' is a snapshot, and has no snapshots", name);
    if (volume_name_check(snap, "snapshot", err) < 0 ||
        volume_find_free(s, who, name, "copy", &j->source, err) < 0)
        return -1;
    volume_copies(j);
    snprintf(j->row.name, sizeof(j->row.name), "%.64s@%.64s", name, snap);
    return volume_may_add(s, &j->row, err);
}

void service_volume_snap(struct service *s, const struct caller *who, const char *name,
                         const struct volume_snap_request *r, service_net_fn *done, void *arg) {
    struct volume_job j = volume_job_of(who, "volume.snap", done, arg);
    struct err err;
    if (authorise(who, RIGHT_VOLUME, &err) < 0 || volume_plan_snap(s, who, name, r, &j, &err) < 0 ||
        volume_job_begin(s, &j, &err) < 0)
        done(arg, NULL, &err);
}

/* Snapshots are named after their volume, so they are deleted first. */
static int volume_has_no_snaps(struct service *s, const struct volume_row *row, struct err *err) {
    struct volume_list list DEFER(volume_list_done) = {0};
    size_t n = strlen(row->name);
    if (store_volume_list(s->store, row->owner, &list, err) < 0)
        return -1;
    for (size_t i = 0; i < list.count; i++) {
        const char *name = list.rows[i].name;
        if (strncmp(name, row->name, n) != 0 || name[n] != '@')
            continue;
        err_set(err, ERR_BUSY, "cannot delete volume '%s': it has the snapshot '%s'", row->name,
                name);
        return err_remedy(err, "delete the snapshot first: carrel volume rm %s", name);
    }
    return 0;
}

void service_volume_remove(struct service *s, const struct caller *who, const char *name,
                           service_net_fn *done, void *arg) {
    struct volume_job j = {
        .who = *who, .verb = "volume.remove", .removes = true, .done = done, .arg = arg};
    struct err err;
    if (authorise(who, RIGHT_VOLUME, &err) < 0 ||
        volume_find_free(s, who, name, "delete", &j.row, &err) < 0 ||
        volume_has_no_snaps(s, &j.row, &err) < 0 || volume_job_begin(s, &j, &err) < 0)
        done(arg, NULL, &err);
}
