#include "spawn/disk/saved.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/dir.h"
#include "spawn/disk/btrfs.h"
#include "spawn/disk/duplicate.h"
#include "spawn/disk/layers.h"
#include "spawn/disk/tree.h"
#include "spawn/disk/upkeep.h"
#include "spawn/disk/wipe.h"
#include "spawn/make/mounts.h"
#include "spawn/spawner.h"
#include "spawn/undertaker.h"

bool saved_is_name(const char *name) {
    return id_valid(name, strlen(name), 'd');
}

/*
 * Opens the directory `saved` of the store. Saved layers contain setuid files of boxes, so no other
 * user may enter the directory.
 */
static int open_saved(const struct spawner *s, bool make) {
    if (make && mkdirat(s->maker.store, "saved", 0700) < 0 && errno != EEXIST)
        return -errno;
    return dir_open(s->maker.store, "saved");
}

static int open_disk(const struct spawner *s, const char *name, bool make) {
    int all DEFER_CLOSE = open_saved(s, make);
    if (all < 0)
        return all;
    if (make && mkdirat(all, name, 0700) < 0 && errno != EEXIST)
        return -errno;
    return dir_open(all, name);
}

int saved_open(const struct spawner *s, const char *name) {
    return open_disk(s, name, false);
}

int saved_clone(const struct spawner *s, const char *name, int *ret, int copies) {
    int dir DEFER_CLOSE = open_disk(s, name, false), made = 0, r = dir < 0 ? dir : 0;
    for (; r == 0 && made < copies; made++)
        if ((ret[made] = mount_clone(dir, "")) < 0 || (r = mount_shelve(ret[made])) < 0)
            break;
    if (r == 0 && made < copies)
        r = ret[made];
    else if (r < 0 && dir >= 0)
        close(ret[made]);
    while (r < 0 && made > 0)
        close(ret[--made]);
    return r;
}

/* ---- host packages below saved layers ---- */

static const char base_name[] = "base", base_beside[] = "base.new";

/*
 * Records the version of the host's packages beside the saved layers, before the first layer is
 * synced.
 */
static int note_base(const struct spawner *s, const struct box *box, int disk) {
    char old[IMAGE_ID_SIZE] = "";
    const char *base = box->drifted ? "drifted" : box->lent ? s->image.key : box->image_key;
    if (!box_has_usr(box) ||
        (read_file_at(disk, base_name, old, sizeof(old)) > 0 && strcmp(old, base) == 0))
        return 0;
    int r = tree_file(disk, base_beside, base, 0600, 0, 0);
    return r < 0 ? r : renameat(disk, base_beside, disk, base_name) < 0 ? -errno : 0;
}

bool saved_drifted(const struct spawner *s, const char *stack) {
    struct layers layers;
    struct err err;
    if (layers_parse(stack, &layers, &err) < 0)
        return false;
    for (size_t i = 0; i < layers.count; i++) {
        char base[IMAGE_ID_SIZE] = "";
        int disk DEFER_CLOSE =
            saved_is_name(layers.v[i].machine) ? saved_open(s, layers.v[i].machine) : -1;
        if (disk >= 0 && read_file_at(disk, base_name, base, sizeof(base)) > 0 &&
            strcmp(base, s->image.key) != 0)
            return true;
    }
    return false;
}

/* ---- SAVE ---- */

static int busy(struct err *err, const struct box *box) {
    return err_set(err, ERR_BUSY, "layers of machine '%s' are still being copied", box->id);
}

static int begin_copy(struct spawner *s, struct box *box, const struct layer *from, int disk,
                      uint32_t into, struct undertaker *u, struct err *err) {
    int source DEFER_CLOSE = layers_disk(s, from->machine, err);
    if (source < 0)
        return -1;
    const struct duplicate_plan plan = {.from = from->number, .into = into, .durable = true};
    if (undertaker_duplicate(u, box->id, CHORE_SAVE, source, disk, &plan))
        box->chores[CHORE_SAVE].number = into;
    return busy(err, box);
}

int saved_copy(struct spawner *s, const struct plan_message *m, struct undertaker *u,
               struct err *err) {
    struct layers from;
    struct box *box = layers_live_box(s, m->plan.id, err);
    if (!box || layers_parse(m->plan.stack, &from, err) < 0)
        return -1;
    if (from.count != 1 || !saved_is_name(m->text) || m->layer < 1 || m->layer > LAYER_NUMBER_MAX)
        return err_set(err, ERR_INVALID,
                       "the daemon's request to save a layer is malformed: it must name one layer "
                       "and the directory of saved layers to copy it to");
    uint32_t into = (uint32_t)m->layer;
    int disk DEFER_CLOSE = open_disk(s, m->text, true);
    int there = disk < 0 ? disk : note_base(s, box, disk);
    if (there == 0)
        there = duplicate_done(disk, into);
    if (there < 0)
        return err_num(err, there, "cannot save layers of machine '%s'", box->id);
    if (there)
        return 0;
    if (chore_ask(box, CHORE_SAVE, into, "save layers of", err) < 0)
        return -1;
    return begin_copy(s, box, from.v, disk, into, u, err);
}

/* ---- COPY ---- */

/* Value of chore_state.number and .done while the disk is only synced, in preparation of a copy. */
enum { SETTLING = CHORE_SYNC_ONLY };

/*
 * Syncs the disk before a snapshot, while the machine still runs. The snapshot itself syncs while
 * the machine is frozen, and then has little left to write.
 */
static int upper_settle(struct box *box, int disk, struct undertaker *u, struct err *err) {
    struct chore_state *c = &box->chores[CHORE_COPY];
    if (!btrfs_is(disk))
        return err_set(err, ERR_UNSUPPORTED,
                       "the disk of machine '%s' is not btrfs, so it cannot be copied without "
                       "copying every file",
                       box->id);
    if (c->done == SETTLING) {
        c->done = 0;
        return 0;
    }
    if (chore_ask(box, CHORE_COPY, SETTLING, "sync the disk of", err) < 0)
        return -1;
    if (undertaker_settle(u, box->id, disk))
        c->number = SETTLING;
    return busy(err, box);
}

/* True if nothing was written between the last copy of the upper and the last sync. */
static bool upper_is_same(const struct box *box) {
    const struct chore_state *c = &box->chores[CHORE_COPY];
    return c->copied && c->copied == c->synced;
}

static int begin_upper(struct box *box, int disk, uint32_t into, struct undertaker *u,
                       struct err *err) {
    const struct duplicate_plan plan = {
        .from = box->layer, .into = into, .snapshot = btrfs_is(disk)};
    box->chores[CHORE_COPY].copied = 0;
    if (undertaker_duplicate(u, box->id, CHORE_COPY, disk, disk, &plan))
        box->chores[CHORE_COPY].number = into;
    return busy(err, box);
}

/*
 * Returns how the copy was made. If an earlier spawner made it, this is derived from the kind of
 * disk.
 */
static const char *way_of(const struct box *box, int disk, uint32_t layer) {
    const struct chore_state *c = &box->chores[CHORE_COPY];
    return duplicate_way_name(c->done == layer ? c->way
                              : btrfs_is(disk) ? DUPLICATE_BTRFS
                                               : DUPLICATE_COPY);
}

static int copy_upper(struct box *box, int disk, struct plan_message *m, struct undertaker *u,
                      struct err *err) {
    uint32_t into = (uint32_t)m->layer;
    int r = m->layer <= box->layer || m->layer > LAYER_NUMBER_MAX ? -EINVAL : mount_writable(disk);
    int there = r < 0 ? r : duplicate_done(disk, into);
    if (there < 0)
        return err_num(err, there, "cannot copy the files of machine '%s'", box->id);
    if (there) {
        m->type = PLAN_TEXT;
        snprintf(m->text, sizeof(m->text), "%s", way_of(box, disk, into));
        return 0;
    }
    if (chore_ask(box, CHORE_COPY, into, "copy the files of", err) < 0)
        return -1;
    return begin_upper(box, disk, into, u, err);
}

int upper_copy(struct spawner *s, struct plan_message *m, struct undertaker *u, struct err *err) {
    struct box *box = layers_live_box(s, m->plan.id, err);
    int disk DEFER_CLOSE = box ? layers_disk(s, box->id, err) : -1;
    if (disk < 0)
        return -1;
    if (m->layer)
        return copy_upper(box, disk, m, u, err);
    if (upper_settle(box, disk, u, err) < 0)
        return -1;
    m->type = PLAN_TEXT;
    snprintf(m->text, sizeof(m->text), "%s",
             upper_is_same(box) ? "same" : duplicate_way_name(DUPLICATE_BTRFS));
    return 0;
}

/* ---- SHED (delete saved layers) ---- */

static int remove_disk(struct spawner *s, const char *name, struct undertaker *u) {
    int all DEFER_CLOSE = open_saved(s, false);
    if (all < 0)
        return all == -ENOENT ? 0 : all;
    int r = trash_put(all, name, id_new('t').text);
    if (r < 0 && r != -ENOENT)
        return r;
    /*
     * If the undertaker (the process that deletes files) is busy or dies, the next request deletes
     * the rest.
     */
    undertaker_wipe(u, all);
    return 0;
}

/* True if layers are being saved or merged: these unfinished layers must not be deleted. */
static bool is_written(const struct spawner *s) {
    for (const struct box *b = s->list; b; b = b->next)
        if (b->chores[CHORE_SAVE].number || b->chores[CHORE_MERGE].number)
            return true;
    return false;
}

int saved_shed(struct spawner *s, const struct plan_message *m, struct undertaker *u,
               struct err *err) {
    char name[ID_SIZE];
    const char *list = m->text + strcspn(m->text, " ");
    snprintf(name, sizeof(name), "%.*s", (int)(list - m->text), m->text);
    if (!saved_is_name(name) || (size_t)(list - m->text) >= sizeof(name))
        return err_set(err, ERR_INVALID,
                       "the daemon's request to delete saved layers is malformed: '%.40s' is not "
                       "an id of saved layers",
                       m->text);
    if (!*list) {
        int r = remove_disk(s, name, u);
        return r < 0 ? err_num(err, r, "cannot delete directory '%s' of saved layers", name) : 0;
    }
    int disk DEFER_CLOSE = open_disk(s, name, false);
    if (disk < 0)
        return disk == -ENOENT
                   ? 0
                   : err_num(err, disk, "cannot open directory '%s' of saved layers", name);
    const struct shed plan = {.keep = list + 1, .halves = !is_written(s)};
    return upkeep_shed(disk, &plan, u, err);
}
