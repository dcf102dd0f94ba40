#include "spawn/disk/layers.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/dir.h"
#include "base/log.h"
#include "spawn/disk/layers_inner.h"
#include "spawn/disk/saved.h"
#include "spawn/disk/usr.h"
#include "spawn/inside.h"
#include "spawn/make/making.h"
#include "spawn/make/mountinfo.h"
#include "spawn/make/mounts.h"
#include "spawn/spawner.h"

enum { TABLE_SIZE = 1 << 18, CARRIED_MAX = 64, LEFT_MS = 50 };

/* ---- paths in a box's mount namespace ---- */

static int open_here(const char *path) {
    return dir_open_path(AT_FDCWD, path);
}

static char other_side(char side) {
    return side == 'b' ? 'a' : 'b';
}

static bool is_mounted(const char *path) {
    struct stat here, top;
    return stat(path, &here) == 0 && stat("/", &top) == 0 && here.st_dev != top.st_dev;
}

/* ---- disks ---- */

struct box *layers_live_box(struct spawner *s, const char *id, struct err *err) {
    struct box *box = box_find(s, id);
    if (box && !box->dead && !box->ending)
        return box;
    if (box)
        err_set(err, ERR_GONE, "machine '%s' is ending", id);
    else
        box_missing(s, id, err);
    return NULL;
}

/* Returns the index in box->disks of the disk that belongs to the machine, or -1. */
static int disk_of(const struct box *box, const char *machine) {
    if (strcmp(box->id, machine) == 0)
        return 0;
    for (size_t i = 0; i < box->disk_count; i++)
        if (strcmp(box->disks[i].id, machine) == 0)
            return (int)i + 1;
    return -1;
}

static int no_such_disk(struct err *err, const char *machine) {
    return err_set(err, ERR_NOT_FOUND, "the disk of machine '%s' does not exist any more", machine);
}

/*
 * Finds a box that holds the disk of the machine. The machine's own box is preferred, because the
 * box of a forked machine, which uses the disk too, may still be starting.
 */
struct box *layers_holder(struct spawner *s, const char *machine, int *ret_disk) {
    struct box *own = box_find(s, machine);
    if (own && !own->dead && !own->ending) {
        *ret_disk = 0;
        return own;
    }
    for (struct box *b = s->list; b; b = b->next)
        if (!b->dead && !b->ending && (*ret_disk = disk_of(b, machine)) >= 0)
            return b;
    return NULL;
}

static int clone_held(int disk) {
    char path[16];
    snprintf(path, sizeof(path), "/held/%d", disk);
    /* -ENOTCONN: the disk is not mounted yet */
    return is_mounted(path) ? mount_clone(AT_FDCWD, path) : -ENOTCONN;
}

/* Creates `copies` detached, read-only mounts of a disk that a box holds. */
int layers_clone_disk(struct spawner *s, const struct box *box, int disk, int *ret, int copies) {
    int r = box_go_in(s, box);
    if (r < 0)
        return r;
    int made = 0;
    for (; made < copies && (ret[made] = clone_held(disk)) >= 0; made++)
        ;
    if (made < copies)
        r = ret[made];
    box_go_out(s);
    while (r < 0 && made > 0)
        close(ret[--made]);
    return r;
}

/*
 * Like layers_clone_disk(), for a disk given by name: the id of a machine, or the id of a disk of
 * saved layers.
 */
int layers_clone_named(struct spawner *s, const char *name, int *ret, int copies, struct err *err) {
    int disk = 0, r = -ENOENT;
    if (saved_is_name(name)) {
        r = saved_clone(s, name, ret, copies);
    } else {
        const struct box *holder = layers_holder(s, name, &disk);
        r = holder ? layers_clone_disk(s, holder, disk, ret, copies) : -ENOENT;
    }
    return r == -ENOENT ? no_such_disk(err, name)
           : r < 0      ? err_num(err, r, "cannot open the disk of machine '%s'", name)
                        : 0;
}

int layers_own_disk(struct spawner *s, const struct box *box) {
    int disk DEFER_CLOSE = -1;
    int r = layers_clone_disk(s, box, 0, &disk, 1);
    if (r == 0)
        r = mount_writable(disk);
    return r < 0 ? r : TAKE_FD(disk);
}

int layers_own_meta(struct spawner *s, const struct box *box) {
    int r = box_go_in(s, box);
    int dir DEFER_CLOSE =
        r < 0 ? r : mount_clone(AT_FDCWD, is_mounted("/held/m") ? "/held/m" : "/held/0/m");
    if (r == 0)
        box_go_out(s);
    r = dir < 0 ? dir : mount_writable(dir);
    return r < 0 ? r : TAKE_FD(dir);
}

int layers_disk(struct spawner *s, const char *name, struct err *err) {
    int disk;
    return layers_clone_named(s, name, &disk, 1, err) < 0 ? -1 : disk;
}

int layers_open_userns(const struct spawner *s, const struct box *box) {
    char path[32];
    snprintf(path, sizeof(path), "%d/ns/user", (int)box->pid);
    int fd = openat(s->proc, path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* Closes everything that the stack opened. */
void layers_stack_clear(struct spawner *s, struct stack *stack) {
    for (int i = 0; i < DISKS; i++) {
        char name[16];
        snprintf(name, sizeof(name), "disk%d", i);
        if (stack->disks[i] >= 0)
            bench_clear(&s->maker, name);
        left_add(&s->maker.left, TAKE_FD(stack->disks[i]));
    }
    close_fd(&stack->userns);
}

/*
 * Prepares a new mount of a disk for overlays: sets its user id map, and makes it writable if
 * `writable`.
 */
int layers_prepare_disk(struct spawner *s, const struct stack *stack, int i, bool writable) {
    char name[16];
    int r = 0;
    snprintf(name, sizeof(name), "disk%d", i);
    if (writable)
        r = mount_writable(stack->disks[i]);
    if (r == 0 && stack->userns >= 0 && !s->rootless)
        r = mount_idmap(stack->disks[i], stack->userns);
    return r < 0 ? r : bench_put(&s->maker, stack->disks[i], name);
}

/* ---- stacks of layers ---- */

static int resolve(const struct box *box, const struct layers *layers, struct stack *ret,
                   struct err *err) {
    for (size_t i = 0; i < layers->count; i++) {
        int disk = disk_of(box, layers->v[i].machine);
        if (disk < 0)
            return no_such_disk(err, layers->v[i].machine);
        ret->layers[i].disk = (unsigned)disk;
        ret->layers[i].number = layers->v[i].number;
    }
    ret->count = layers->count;
    return 0;
}

/* Opens the image that the box was created from, which may be older than the present one. */
int layers_open_image(struct spawner *s, const struct box *box, struct image *old,
                      const struct image **ret, struct err *err) {
    *ret = &s->image;
    if (strcmp(box->image_key, s->image.key) == 0)
        return 0;
    if (sealed_image(s, box->image_key, old, err) < 0)
        return -1;
    *ret = old;
    return 0;
}

static int open_stack(struct spawner *s, const struct box *box, struct stack *stack,
                      struct err *err) {
    bool used[DISKS] = {true};
    for (size_t i = 0; i < stack->count; i++)
        used[stack->layers[i].disk] = true;
    stack->owner = slots_first(&s->maker.slots, box->slot);
    stack->userns = layers_open_userns(s, box);
    int r = stack->userns < 0 ? stack->userns : box_go_in(s, box);
    if (r < 0)
        return err_num(err, r, "cannot enter machine '%s'", box->id);
    for (int i = 0; i < DISKS; i++)
        if (used[i] && r == 0 && (stack->disks[i] = clone_held(i)) < 0)
            r = stack->disks[i];
    box_go_out(s);
    for (int i = 0; i < DISKS && r == 0; i++)
        if (used[i])
            r = layers_prepare_disk(s, stack, i, i == 0);
    return r < 0 ? err_num(err, r, "cannot open the disks of machine '%s'", box->id) : 0;
}

void layers_image_closep(struct image *image) {
    image_close(image);
}

/* ---- switch to a new root ---- */

/* Paths of the mounts below the old root, which move to the new root. */
struct carried {
    size_t count;
    char *paths[CARRIED_MAX];
};

static void carried_free(struct carried *c) {
    while (c->count)
        free(c->paths[--c->count]);
}

static int carried_add(struct carried *c, const char *path) {
    if (c->count == CARRIED_MAX || !(c->paths[c->count] = strdup(path)))
        return -ENOBUFS;
    c->count++;
    return 0;
}

/*
 * Reads the guest's mount table: all mounts on its root or /usr, except /usr itself. keeps_usr:
 * /usr comes first, and the mounts on it come with it.
 */
static int list_carried(const struct spawner *s, const struct box *box, bool keeps_usr,
                        struct carried *ret) {
    char path[32], *text DEFER_FREE = malloc(TABLE_SIZE);
    static struct mount_line line;
    unsigned root = 0, usr = 0;
    snprintf(path, sizeof(path), "%d/mountinfo", (int)box->pid);
    ssize_t n = text ? read_file_at(s->proc, path, text, TABLE_SIZE) : -ENOMEM;
    if (n < 0 || n >= TABLE_SIZE - 1)
        return n < 0 ? (int)n : -EFBIG;
    for (const char *at = text; mountinfo_next(&at, &line);)
        if (strcmp(line.path, "/") == 0)
            root = line.id;
    for (const char *at = text; mountinfo_next(&at, &line);) /* an older mount may come first */
        if (strcmp(line.path, "/usr") == 0 && line.parent == root)
            usr = line.id;
    int r = keeps_usr ? carried_add(ret, "usr") : 0;
    for (const char *at = text; r == 0 && mountinfo_next(&at, &line);)
        if ((line.parent == root || (line.parent == usr && !keeps_usr)) && line.id != usr &&
            line.id != root)
            r = carried_add(ret, line.path + 1);
    return r;
}

/* Checks that every mount point exists in the new root before any mount is moved. */
static int check_places(int root, const struct carried *c, struct err *err) {
    for (size_t i = 0; i < c->count; i++) {
        int at DEFER_CLOSE = mount_point(root, c->paths[i]);
        if (at < 0)
            return err_num(err, at, "cannot open mount point '/%s' in the new root", c->paths[i]);
    }
    return 0;
}

static int carry_one(int from, int to, const char *path) {
    int mount DEFER_CLOSE = mount_point(from, path);
    return mount < 0 ? mount : mount_attach(mount, to, path);
}

/* Moves the mounts to the new root. *ret: number of moved mounts, also on failure. */
static int carry(int from, int to, const struct carried *c, size_t *ret) {
    for (*ret = 0; *ret < c->count; (*ret)++) {
        int r = carry_one(from, to, c->paths[*ret]);
        if (r < 0)
            return r;
    }
    return 0;
}

/*
 * Makes the root and /usr read-only, so that no process of the box can write to them. -EBUSY: a
 * process has a file open for writing.
 */
static int root_close(int root, int usr) {
    int r = mount_read_only(root);
    if (r == 0 && usr >= 0 && (r = mount_read_only(usr)) < 0)
        mount_writable(root);
    return r;
}

static int root_close_failed(struct err *err, int r, const struct box *box) {
    if (r != -EBUSY)
        return err_num(err, r, "cannot make the root of machine '%s' read-only", box->id);
    return err_set(err, ERR_BUSY, "a process in machine '%s' has a file open for writing", box->id);
}

static void root_reopen(int root, int usr) {
    mount_writable(root);
    if (usr >= 0)
        mount_writable(usr);
}

/* Undoes a switch to a new root: moves the mounts back and makes the old root writable again. */
static void return_to(const struct box *box, int old, int usr, int fresh, const struct carried *c,
                      size_t moved, const struct stack *keeps) {
    while (moved > 0) {
        int r = carry_one(fresh, old, c->paths[--moved]);
        if (r < 0)
            log_line(LOG_ERROR, "spawn", "move the mount '/%s' back to the old root: %s id=%s",
                     c->paths[moved], strerror(-r), box->id);
    }
    if (keeps) {
        act_as(keeps->owner);
        usr_return_upper(keeps->disks[0], box->layer, keeps->upper);
        act_as(0);
    }
    root_reopen(old, usr);
}

/* True if /usr of the box is mounted on this root. */
static bool has_usr_on(const struct box *box, int root) {
    struct stat top, usr;
    return box_has_usr(box) && fstat(root, &top) == 0 &&
           fstatat(root, "usr", &usr, AT_SYMLINK_NOFOLLOW) == 0 && usr.st_dev != top.st_dev;
}

/* After root_close(): gives the upper of a /usr that stays to the new layer. */
static int hand_usr_on(const struct box *box, const struct stack *keeps, int root, int usr) {
    int r = keeps ? usr_move_upper(box, keeps) : 0;
    if (r < 0)
        root_reopen(root, usr);
    return r;
}

/*
 * Runs in the box's namespace, after the new root was attached: makes the old root read-only and
 * moves its mounts. layers_detach_old() detaches it later. `keeps`: the stack of the new root, to
 * which /usr moves; NULL: the new root has its own. After a failure the old root is in use as
 * before.
 */
static int leave_root(struct spawner *s, struct box *box, int fresh, const struct carried *c,
                      const struct stack *keeps, struct err *err) {
    int old DEFER_CLOSE = open_here(box_side_path(box->side));
    bool has_usr = old >= 0 && has_usr_on(box, old);
    int usr = has_usr ? mount_point(old, "usr") : -1;
    size_t moved = 0;
    int r = old < 0 ? old : has_usr && usr < 0 ? usr : root_close(old, usr);
    if (r == 0)
        r = hand_usr_on(box, keeps, old, usr);
    if (r < 0) {
        left_add(&s->maker.left, usr);
        return root_close_failed(err, r, box);
    }
    if ((r = carry(old, fresh, c, &moved)) < 0)
        err_num(err, r, "cannot move the mounts of machine '%s' to the new root", box->id);
    if (r < 0)
        return_to(box, old, usr, fresh, c, moved, keeps);
    else if (keeps)
        mount_writable(usr);
    left_add(&s->maker.left, usr);
    if (r < 0)
        return -1;
    close_fd(&box->old_root);
    box->old_root = TAKE_FD(old);
    box->left_ms = boot_ms();
    s->roots_left = true;
    return 0;
}

/* Detaches the root on the side that the box does not use, which it has left before. */
static void detach_other(const struct box *box) {
    const char *path = box_side_path(other_side(box->side));
    if (is_mounted(path) && umount2(path, MNT_DETACH) < 0)
        log_line(LOG_ERROR, "spawn", "detach the old root of a machine: %s id=%s", strerror(errno),
                 box->id);
}

void layers_detach_old(struct spawner *s, const struct box *box) {
    if (box_go_in(s, box) < 0)
        return; /* the box has ended */
    detach_other(box);
    box_go_out(s);
}

static int enter_root(const struct box *box, int root, int usr) {
    detach_other(box); /* a spawner that was killed may have left it */
    int r = move_mount(root, "", AT_FDCWD, box_side_path(other_side(box->side)),
                       MOVE_MOUNT_F_EMPTY_PATH) < 0
                ? -errno
                : 0;
    return r < 0 || usr < 0 ? r : mount_attach(usr, root, "usr");
}

static int swap_roots(struct spawner *s, struct box *box, int root, int usr,
                      const struct carried *c, const struct stack *stack, struct err *err) {
    int r = box_go_in(s, box);
    if (r < 0)
        return err_num(err, r, "cannot enter machine '%s'", box->id);
    if ((r = enter_root(box, root, usr)) < 0)
        err_num(err, r, "cannot attach the new root of machine '%s'", box->id);
    else
        r = check_places(root, c, err) < 0
                ? -1
                : leave_root(s, box, root, c, stack->keeps_usr ? stack : NULL, err);
    if (r < 0)
        umount2(box_side_path(other_side(box->side)), MNT_DETACH);
    box_go_out(s);
    return r < 0 ? -1 : 0;
}

static void switched(struct box *box) {
    box->layer = box->next_layer;
    box->next_layer = 0;
    box->side = other_side(box->side);
}

/*
 * Switches the box to a new root. Writes the intended switch to the box's record before, and the
 * result afterwards.
 */
static int do_switch(struct spawner *s, struct box *box, const struct plan_message *to,
                     const struct stack *stack, int root, int usr, struct err *err) {
    uint32_t layer = (uint32_t)to->layer, left = box->layer;
    struct carried carried DEFER(carried_free) = {.count = 0};
    int r = list_carried(s, box, stack->keeps_usr, &carried);
    if (r < 0)
        return err_num(err, r, "cannot read the mounts of machine '%s'", box->id);
    if (making_keep_stack(s, box, layer, to->plan.stack, err) < 0)
        return -1;
    box->next_layer = layer;
    if (making_amend(s, box, box->id, err) < 0) {
        box->next_layer = 0;
        return -1;
    }
    r = swap_roots(s, box, root, usr, &carried, stack, err);
    if (r == 0) {
        switched(box);
        usr_remember(box, stack);
    }
    box->next_layer = 0;
    struct err late;
    if (making_amend(s, box, box->id, &late) < 0)
        log_line(LOG_ERROR, "spawn", "%s", late.text);
    making_drop_stack(s, box, r == 0 ? left : layer);
    return r;
}

static int open_root(struct spawner *s, const struct box *box) {
    int r = box_go_in(s, box);
    if (r < 0)
        return r;
    int fd = open_here(box_side_path(box->side));
    box_go_out(s);
    return fd;
}

static int drifted(struct err *err, const struct box *box) {
    err_set(err, ERR_UNSUPPORTED, "the host's packages changed since machine '%s' was created",
            box->id);
    return err_remedy(
        err, "use --drifted to restore the machine's files over the present /usr of the host");
}

static int freeze(struct spawner *s, struct box *box, struct plan_message *m, struct stack *stack,
                  int *ret_root, struct err *err) {
    struct image old DEFER(layers_image_closep) = IMAGE_NONE;
    struct layers layers;
    if ((m->changed & ROOT_UNDRIFTED) && box->drifted)
        return drifted(err, box);
    if (layers_parse(m->plan.stack, &layers, err) < 0 || resolve(box, &layers, stack, err) < 0 ||
        layers_open_image(s, box, &old, &stack->image, err) < 0 ||
        open_stack(s, box, stack, err) < 0)
        return -1;
    bool only_if_changed = m->changed & ROOT_IF_CHANGED;
    m->changed = layer_is_empty(stack->disks[0], box->layer) != 1;
    if (only_if_changed && !m->changed)
        return 0;
    int root DEFER_CLOSE = -1, usr DEFER_CLOSE = -1;
    stack->upper = (uint32_t)m->layer;
    usr_survey(box, stack);
    stack->keeps_usr = usr_may_stay(box, stack);
    if (stack_new_upper(stack, err) < 0 || stack_mount(&s->maker, stack, &root, &usr, err) < 0 ||
        do_switch(s, box, m, stack, root, usr, err) < 0)
        return -1;
    *ret_root = TAKE_FD(root);
    return 0;
}

int layers_root(struct spawner *s, struct plan_message *m, int *ret_root, struct err *err) {
    struct stack stack = STACK_NONE;
    struct box *box = layers_live_box(s, m->plan.id, err);
    *ret_root = -1;
    if (!box)
        return -1;
    if (m->layer < box->layer)
        return err_set(err, ERR_INVALID, "layer number %" PRIu64 " of machine '%s' is already used",
                       m->layer, box->id);
    int r = 0;
    if (m->layer == box->layer) {
        m->changed = 1;
        if ((*ret_root = open_root(s, box)) < 0)
            r = err_num(err, *ret_root, "cannot open the root of machine '%s'", box->id);
    } else {
        r = freeze(s, box, m, &stack, ret_root, err);
        layers_stack_clear(s, &stack);
    }
    m->type = PLAN_ROOT_IS;
    return r;
}

/* ---- recovery and cleanup ---- */

/*
 * True if the new root and its /usr are both mounted. A spawner that was killed between the two
 * mounts leaves only the root. If /usr moved from the old root, its upper was moved before.
 */
static bool is_whole(const struct box *box, int root) {
    return !box_has_usr(box) || has_usr_on(box, root);
}

/* A /usr that moved is read-only until the switch is complete. */
static void reopen_usr(const struct box *box, int root) {
    int usr DEFER_CLOSE = box_has_usr(box) ? mount_point(root, "usr") : -1;
    if (usr >= 0)
        mount_writable(usr);
}

/*
 * Finishes an interrupted switch, in the box's namespace. is_left: the old root is already
 * detached, and only the record is missing.
 */
static int finish_switch(struct spawner *s, struct box *box, const struct carried *c, bool is_left,
                         struct err *err) {
    const char *path = box_side_path(other_side(box->side));
    int fresh DEFER_CLOSE = is_mounted(path) ? open_here(path) : -1;
    if (fresh < 0)
        return -1;
    if (!is_left && (!is_whole(box, fresh) || leave_root(s, box, fresh, c, NULL, err) < 0))
        return -1;
    reopen_usr(box, fresh);
    return 0;
}

static void undo_switch(struct box *box, int disk) {
    if (disk >= 0)
        usr_return_upper(disk, box->layer, box->next_layer);
    int old DEFER_CLOSE = open_here(box_side_path(box->side));
    int usr DEFER_CLOSE = old < 0 || !box_has_usr(box) ? -1 : mount_point(old, "usr");
    mount_writable(old);
    if (usr >= 0)
        mount_writable(usr);
    umount2(box_side_path(other_side(box->side)), MNT_DETACH);
    box->next_layer = 0;
}

void layers_recover(struct spawner *s, struct box *box) {
    struct err err = {.text = ""};
    struct carried carried DEFER(carried_free) = {.count = 0};
    if (!box->next_layer || box->dead)
        return;
    int disk DEFER_CLOSE = layers_own_disk(s, box);
    int r = list_carried(s, box, false, &carried);
    if (r == 0)
        r = box_go_in(s, box);
    if (r < 0) {
        log_line(LOG_ERROR, "spawn",
                 "read the mounts of a machine after an unfinished switch of its root id=%s",
                 box->id);
        return;
    }
    bool is_left = !is_mounted(box_side_path(box->side));
    if (finish_switch(s, box, &carried, is_left, &err) == 0) {
        switched(box);
        detach_other(box);
    } else {
        undo_switch(box, disk);
    }
    box_go_out(s);
    if (making_amend(s, box, box->id, &err) < 0 || err.text[0])
        log_line(LOG_WARN, "spawn", "%s", err.text);
}

bool layers_untidy(const struct spawner *s) {
    return s->roots_left;
}

/* Closes old roots after LEFT_MS. By then the guest has usually left the old root. */
void layers_tidy(struct spawner *s, struct undertaker *u) {
    uint64_t now = boot_ms();
    s->roots_left = false;
    for (struct box *b = s->list; b; b = b->next) {
        if (b->old_root >= 0 && now - b->left_ms >= LEFT_MS && undertaker_close_for(u, b->old_root))
            close_fd(&b->old_root);
        s->roots_left |= b->old_root >= 0;
    }
}
