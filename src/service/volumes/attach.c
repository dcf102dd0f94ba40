/* Volumes of machines: who may have one, and the descriptors for the spawner. */
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fs/dir.h"
#include "service/volumes/inner.h"

/* Returns the detail of a row: id of the volume, path of its directory, number in the plan. */
static char *volume_detail(const struct service *s, const char *id, size_t number, bool door) {
    char path[VOLUME_PATH_SIZE];
    volume_path(s, "", id, path);
    json_t *json =
        json_pack("{s:s, s:s, s:I}", "volume", id, "path", path, "number", (json_int_t)number);
    if (door)
        json_object_set_new(json, "door", json_true());
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    return text;
}

static int volume_mode(const char *name, const char *asked, enum plan_grant_mode *ret,
                       struct err *err) {
    bool is_snapshot = strchr(name, '@');
    const char *mode = asked ? asked : is_snapshot ? "ro" : "rw";
    if (!plan_mode_by_name(mode, ret))
        return err_set(err, ERR_INVALID, "mode '%.20s' of a volume must be ro, cow or rw", mode);
    if (*ret != PLAN_GRANT_RW || !is_snapshot)
        return 0;
    err_set(err, ERR_INVALID, "snapshot '%s' cannot be written to", name);
    return err_remedy(err, "use mode ro or cow, or copy it: carrel volume create NAME --from %s",
                      name);
}

int open_volume_dir(const struct service *s, const char *id, const char *name, struct err *err) {
    char path[VOLUME_PATH_SIZE];
    volume_path(s, "", id, path);
    int dir = dir_open(AT_FDCWD, path);
    return dir < 0 ? err_num(err, dir, "cannot open the directory of volume '%s'", name) : dir;
}

int volume_open(struct service *s, const char *owner, const struct volume_use_request *r,
                size_t number, struct plan_grant *ret, struct grant_row *row, struct err *err) {
    struct volume_row volume;
    enum plan_grant_mode mode;
    if (store_volume_find(s->store, owner, r->name, &volume, err) < 0 ||
        volume_mode(volume.name, r->mode, &mode, err) < 0 ||
        volume_is_idle(s, volume.id, volume.name, err) < 0)
        return -1;
    int dir = open_volume_dir(s, volume.id, volume.name, err);
    if (dir < 0)
        return -1;
    ret->mode = mode;
    ret->volume = true;
    row->what = xstrdup(volume.name);
    snprintf(row->mode, sizeof(row->mode), "%s", plan_mode_name(mode));
    row->detail = volume_detail(s, volume.id, number, r->door);
    return dir;
}

int volume_check(struct service *s, const char *owner, const struct grant_row *row,
                 struct err *err) {
    struct grant_list uses DEFER(grant_list_done) = {0};
    struct volume_row volume;
    if (store_volume_find(s->store, owner, row->what, &volume, err) < 0 ||
        volume_is_idle(s, volume.id, volume.name, err) < 0)
        return -1;
    if (strcmp(row->mode, "rw") != 0 || volume_use_is_door(row))
        return 0;
    if (store_volume_uses(s->store, owner, row->what, &uses, err) < 0)
        return -1;
    for (size_t i = 0; i < uses.count; i++) {
        const struct grant_row *other = &uses.rows[i];
        if (strcmp(other->mode, "rw") != 0 || volume_use_is_door(other))
            continue;
        err_set(err, ERR_BUSY, "machine '%s' writes to volume '%s', and only one machine may",
                other->machine, row->what);
        return err_remedy(err, "use mode ro or cow, or detach it: carrel grant revoke %s %s",
                          other->machine, other->id);
    }
    return 0;
}

const char *volumes_of(struct service *s, const char *machine, struct buf *text) {
    struct grant_list list DEFER(grant_list_done) = {0};
    struct jot j = JOT(text);
    struct err err;
    if (store_grant_list(s->store, machine, "volume", &list, &err) < 0 || !list.count)
        return NULL;
    jot_array(&j, NULL);
    for (size_t i = 0; i < list.count; i++) {
        jot_object(&j, NULL);
        jot_string(&j, "name", list.rows[i].what);
        jot_string(&j, "at", list.rows[i].place);
        jot_string(&j, "mode", list.rows[i].mode);
        jot_end(&j, '}');
    }
    jot_end(&j, ']');
    return j.failed ? NULL : text->data;
}

int volume_reopen(struct service *s, const char *owner, struct grant_row *row, size_t number,
                  struct plan_grant *ret, struct err *err) {
    struct volume_row volume;
    if (store_volume_find(s->store, owner, row->what, &volume, err) < 0)
        return -1;
    *ret = (struct plan_grant){.volume = true};
    snprintf(ret->path, sizeof(ret->path), "%s", row->place);
    if (!plan_mode_by_name(row->mode, &ret->mode))
        return err_set(err, ERR_INTERNAL, "the mode of volume '%s' is not known", row->what);
    bool door = volume_use_is_door(row);
    free(row->detail);
    row->detail = volume_detail(s, volume.id, number, door);
    return open_volume_dir(s, volume.id, volume.name, err);
}

/* Finds the newest snapshot of a volume. */
static int newest_snapshot(struct service *s, const char *owner, const char *name,
                           struct volume_row *ret, struct err *err) {
    struct volume_list list DEFER(volume_list_done) = {0};
    const struct volume_row *newest = NULL;
    if (store_volume_list(s->store, owner, &list, err) < 0)
        return -1;
    for (size_t i = 0; i < list.count; i++) {
        const struct volume_row *row = &list.rows[i];
        if (strchr(row->name, '@') && strcmp(row->origin, name) == 0 &&
            (!newest || row->created_ms >= newest->created_ms))
            newest = row;
    }
    if (newest) {
        *ret = *newest;
        return 0;
    }
    err_set(err, ERR_NOT_FOUND, "volume '%s' has no snapshot to compare with", name);
    return err_remedy(err, "take one before a machine gets the volume: carrel volume snap %s",
                      name);
}

/* Finds a snapshot by its name, with or without that of the volume. */
static int named_snapshot(struct service *s, const char *owner, const char *name, const char *from,
                          struct volume_row *ret, struct err *err) {
    char full[2 * STORE_VOLUME_NAME_SIZE];
    snprintf(full, sizeof(full), "%s%s%.131s", strchr(from, '@') ? "" : name,
             strchr(from, '@') ? "" : "@", from);
    if (store_volume_find(s->store, owner, full, ret, err) < 0)
        return -1;
    return strcmp(ret->origin, name) == 0
               ? 0
               : err_set(err, ERR_INVALID, "'%s' is not a snapshot of volume '%s'", full, name);
}

int volume_base(struct service *s, const char *owner, const struct grant_row *row, const char *from,
                struct volume_row *ret, struct err *err) {
    int r = 0;
    if (strcmp(row->mode, "ro") == 0) {
        err_set(err, ERR_INVALID, "machine '%s' has volume '%s' read-only: it changes nothing",
                row->machine, row->what);
        return err_remedy(err, "compare it in the machine that writes: carrel volume show %s",
                          row->what);
    }
    if (strcmp(row->mode, "rw") == 0)
        r = from ? named_snapshot(s, owner, row->what, from, ret, err)
                 : newest_snapshot(s, owner, row->what, ret, err);
    else if (from)
        r = err_set(err, ERR_INVALID,
                    "changes of mode cow are compared with the volume itself: leave out '%.60s'",
                    from);
    else
        r = store_volume_find(s->store, owner, row->what, ret, err);
    return r < 0 ? -1 : volume_is_idle(s, ret->id, ret->name, err);
}
