/*
 * Doors: machines through which a front end reaches the files of a volume. The guest of a door has
 * the volume as its root, so no path and no symbolic link leads out of it. Nothing else runs there.
 *
 * A door writes beside the machine that has the volume: all mounts share one filesystem. It ends
 * with the daemon, and when nobody used it for a moment.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/hex.h"
#include "base/log.h"
#include "service/files.h"
#include "service/volumes/inner.h"
#include "store/secrets.h"

enum { DOOR_LINGER_MS = 5000, DOORS_PER_OWNER = 8 };
#define DOOR_PLACE "/volume"

struct door_wait {
    struct door_wait *next;
    volume_door_fn *done;
    void *arg;
};

struct volume_door {
    struct volume_door *next; /* in service_volumes.doors */
    struct service *service;
    struct caller who;
    char volume[ID_SIZE], machine[ID_SIZE];
    bool open, shut; /* shut: it ends once it is open */
    unsigned users;
    struct door_wait *waits; /* until it is open */
    struct loop_timer *timer;
};

/* ---- the end ---- */

static void door_unlink(struct volume_door *d) {
    struct volume_door **at = &d->service->volumes->doors;
    while (*at != d)
        at = &(*at)->next;
    *at = d->next;
}

static void door_free(struct volume_door *d) {
    for (struct door_wait *w = d->waits, *next; w; w = next) {
        next = w->next;
        free(w);
    }
    loop_timer_free(d->timer);
    free(d);
}

static void door_gone(void *arg, const struct machine_view *view, const struct err *err) {
    (void)arg, (void)view;
    if (err && err->code != ERR_NOT_FOUND && err->code != ERR_GONE)
        log_line(LOG_WARN, "service", "end the machine that served a volume: %s", err->text);
}

static void door_end(void *arg) {
    struct volume_door *d = arg;
    door_unlink(d);
    if (d->machine[0])
        service_destroy(d->service, &d->who, d->machine, door_gone, NULL);
    door_free(d);
}

void volume_doors_free(struct service_volumes *v) {
    while (v->doors) {
        struct volume_door *d = v->doors;
        v->doors = d->next;
        door_free(d);
    }
}

void volume_doors_shut(struct service *s, const char *id) {
    for (struct volume_door *d = s->volumes->doors, *next; d; d = next) {
        next = d->next;
        d->shut |= strcmp(d->volume, id) == 0;
        if (d->shut && d->open)
            door_end(d);
    }
}

/* ---- the beginning ---- */

/* Those who wait are told one after the other: each may leave, and end the door, at once. */
static void door_tell(struct volume_door *d, const struct err *err) {
    struct door_wait *waits = TAKE(d->waits);
    char machine[ID_SIZE];
    snprintf(machine, sizeof(machine), "%s", d->machine);
    for (struct door_wait *w = waits; w; w = w->next)
        d->users++;
    if (err)
        door_end(d);
    for (struct door_wait *next; waits; waits = next) {
        next = waits->next;
        waits->done(waits->arg, err ? NULL : machine, err);
        free(waits);
    }
}

static void door_rooted(void *arg, const struct frame *frame, const struct err *err) {
    struct volume_door *d = arg;
    struct err shut;
    (void)frame;
    if (!err && d->shut) {
        err_set(&shut, ERR_BUSY, "the volume is being copied or deleted");
        err = &shut;
    }
    d->open = !err;
    door_tell(d, err);
}

static void door_made(void *arg, const struct machine_view *view, const struct err *err) {
    static const struct msg_path root = {
        .uid = MSG_ID_NONE, .gid = MSG_ID_NONE, .path = {DOOR_PLACE, sizeof(DOOR_PLACE) - 1}};
    struct volume_door *d = arg;
    if (err) {
        door_tell(d, err);
        return;
    }
    snprintf(d->machine, sizeof(d->machine), "%s", view->id);
    service_file(d->service, &d->who, d->machine, MSG_FILE_ROOT, &root, NULL, door_rooted, d);
}

static void door_make(struct volume_door *d, const char *name) {
    const char *metadata[] = {"carrel.volume", name};
    struct volume_use_request use = {.name = name, .at = DOOR_PLACE, .mode = "rw", .door = true};
    const struct machine_request r = {.kind = "box",
                                      .steps = "manual",
                                      .metadata = {.v = metadata, .count = 2},
                                      .volumes = {.v = &use, .count = 1},
                                      .ephemeral = true};
    uint8_t hash[SHA256_BYTES] = {0};
    service_create(d->service, &d->who, &r, hash, NULL, 0, door_made, d);
}

/* A door whose machine was deleted, or has ended by itself, is of no use any more. */
static bool door_serves(const struct volume_door *d) {
    const struct live *l = d->open ? map_get(&d->service->machines, d->machine) : NULL;
    return l ? l->row.state == MACHINE_RUNNING : !d->open;
}

static struct volume_door *door_find(struct service *s, const char *volume) {
    for (struct volume_door *d = s->volumes->doors; d; d = d->next) {
        if (strcmp(d->volume, volume) != 0 || d->shut)
            continue;
        if (door_serves(d))
            return d;
        door_end(d);
        return NULL;
    }
    return NULL;
}

/* Refuses another door if the owner has as many as it may have. One that nobody uses makes room. */
static int door_room(struct service *s, const struct caller *who, struct err *err) {
    struct volume_door *unused = NULL;
    size_t own = 0;
    for (struct volume_door *d = s->volumes->doors; d; d = d->next) {
        bool is_own = strcmp(d->who.owner, who->owner) == 0;
        own += is_own;
        unused = is_own && d->open && !d->users ? d : unused;
    }
    if (own < DOORS_PER_OWNER)
        return 0;
    if (unused) {
        door_end(unused);
        return 0;
    }
    return err_set(err, ERR_LIMIT, "files of %d volumes are in use, which is the limit of an owner",
                   DOORS_PER_OWNER);
}

void service_volume_enter(struct service *s, const struct caller *who, const char *name,
                          volume_door_fn *done, void *arg) {
    struct volume_row row;
    struct err err;
    if (allow(who, SCOPE_RUN, &err) < 0 ||
        store_volume_find(s->store, who->owner, name, &row, &err) < 0 ||
        volume_is_idle(s, row.id, name, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    struct volume_door *d = door_find(s, row.id);
    if (d && d->open) {
        d->users++;
        loop_timer_stop(d->timer);
        done(arg, d->machine, NULL);
        return;
    }
    bool is_new = !d;
    if (is_new && door_room(s, who, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    struct door_wait *w = xnew(struct door_wait);
    if (is_new) {
        d = xnew(struct volume_door);
        *d = (struct volume_door){.service = s, .who = *who, .next = s->volumes->doors};
        d->who.has_volumes = true;
        snprintf(d->volume, sizeof(d->volume), "%s", row.id);
        d->timer = loop_timer_new(s->loop, door_end, d);
        s->volumes->doors = d;
    }
    *w = (struct door_wait){d->waits, done, arg};
    d->waits = w;
    if (is_new)
        door_make(d, name);
}

void service_volume_leave(struct service *s, const char *machine) {
    for (struct volume_door *d = s->volumes ? s->volumes->doors : NULL; d; d = d->next)
        if (strcmp(d->machine, machine) == 0 && d->users && --d->users == 0)
            loop_timer_start(d->timer, DOOR_LINGER_MS, 0);
}

bool volume_serves(const struct service *s, const char *machine) {
    for (const struct volume_door *d = s->volumes ? s->volumes->doors : NULL; d; d = d->next)
        if (strcmp(d->machine, machine) == 0)
            return true;
    return false;
}

bool volume_served(const struct service *s, const char *machine) {
    struct grant_list uses DEFER(grant_list_done) = {0};
    struct err err;
    return store_grant_list(s->store, machine, "volume", &uses, &err) == 0 && uses.count == 1 &&
           volume_use_is_door(&uses.rows[0]);
}

bool volume_use_is_door(const struct grant_row *row) {
    json_t *detail = row->detail ? json_loads(row->detail, 0, NULL) : NULL;
    bool is = json_is_true(json_object_get(detail, "door"));
    json_decref(detail);
    return is;
}

/* ---- tokens ---- */

static int volume_token_of(struct service *s, const char *id, char ret[MACHINE_TOKEN_SIZE],
                           struct err *err) {
    uint8_t hash[SHA256_BYTES];
    if (store_keyed_hash(s->store, "volume-files", id, hash, err) < 0)
        return -1;
    hex_put(hash, sizeof(hash), ret);
    return 0;
}

int service_volume_token(struct service *s, const struct caller *who, const char *id,
                         char ret[MACHINE_TOKEN_SIZE], struct err *err) {
    struct volume_row row;
    if (allow(who, SCOPE_RUN, err) < 0 || store_volume_by_id(s->store, id, &row, err) < 0)
        return -1;
    if (strcmp(row.owner, who->owner) != 0)
        return err_set(err, ERR_NOT_FOUND, "volume '%.20s' does not exist", id);
    return volume_token_of(s, id, ret, err);
}

int service_caller_by_volume_token(struct service *s, const char *id, const char *token, size_t len,
                                   const char *client, struct caller *ret,
                                   char ret_name[VOLUME_NAME_MAX + 1], struct err *err) {
    char wanted[MACHINE_TOKEN_SIZE];
    struct volume_row row;
    if (volume_token_of(s, id, wanted, err) < 0)
        return -1;
    if (!machine_token_is(wanted, token, len))
        return err_set(err, ERR_DENIED, "the token of the volume is missing or wrong");
    if (store_volume_by_id(s->store, id, &row, err) < 0)
        return -1;
    *ret = (struct caller){.scopes = SCOPE_READ | SCOPE_RUN, .has_volumes = true};
    snprintf(ret->owner, sizeof(ret->owner), "%s", row.owner);
    snprintf(ret->client, sizeof(ret->client), "%s", client);
    snprintf(ret_name, VOLUME_NAME_MAX + 1, "%s", row.name);
    return 0;
}
