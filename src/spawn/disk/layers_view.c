/* Opens the layers of machines for reading, outside their boxes. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/dir.h"
#include "spawn/disk/layers.h"
#include "spawn/disk/layers_inner.h"
#include "spawn/make/mounts.h"
#include "spawn/spawner.h"

/* Opens the layers read-only and without an id map, so user ids are as stored on disk. */
static int open_view(struct spawner *s, const struct layers *layers, struct stack *stack,
                     struct err *err) {
    const char *names[LAYERS_DISKS_MAX];
    size_t count = 0;
    if (layers_list_disks(layers, names, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        if (layers_clone_named(s, names[i], &stack->disks[i + 1], 1, err) < 0)
            return -1;
        int r = layers_prepare_disk(s, stack, (int)i + 1, false);
        if (r < 0)
            return err_num(err, r, "cannot open the disk of machine '%s'", names[i]);
    }
    for (size_t i = 0; i < layers->count; i++) {
        unsigned disk = 1;
        while (strcmp(names[disk - 1], layers->v[i].machine) != 0)
            disk++;
        stack->layers[i].disk = disk;
        stack->layers[i].number = layers->v[i].number;
    }
    stack->count = layers->count;
    return 0;
}

/* Opens the first `wanted` layers of a stack, of which a box or saved_clone() holds the disks. */
static int open_uppers(const struct stack *stack, size_t wanted, struct layers_changes *ret) {
    for (size_t i = 0; i < wanted; i++) {
        char name[24];
        snprintf(name, sizeof(name), "%" PRIu32 "/u", stack->layers[i].number);
        int fd = dir_open(stack->disks[stack->layers[i].disk], name);
        if (fd < 0)
            return fd;
        ret->uppers[ret->count++] = fd;
    }
    return 0;
}

/* Opens the layers of the machine's image that are above the image `base`. */
static int open_image_uppers(struct spawner *s, const struct box *box, const struct image *image,
                             const char *base, struct layers_changes *ret) {
    struct image_below below;
    int r = image_below_read(s->store, box->image_key, &below);
    if (r < 0 || !image_below_has(&below, base))
        return r;
    for (size_t i = 0; i < image->over_count; i++) {
        if (i > 0 && strcmp(below.ids[i - 1], base) == 0)
            return 0;
        int mount DEFER_CLOSE = mount_clone(image->over[i], "");
        r = mount < 0 ? mount : mount_shelve(mount);
        int fd = r < 0 ? r : dir_open(mount, ".");
        if (fd < 0)
            return fd;
        ret->uppers[ret->count++] = fd;
    }
    return 0;
}

/* Opens a directory through a mount of its own, so that ".." leads nowhere. */
static int open_apart(int dir) {
    int mount DEFER_CLOSE = mount_clone(dir, "");
    int r = mount < 0 ? mount : mount_shelve(mount);
    return r < 0 ? r : dir_open(mount, ".");
}

/* Opens the directories that the /usr of a stack consists of. */
static int open_usr(const struct stack *stack, struct layers_usr *ret) {
    int r = ret->base = open_apart(stack->image->usr);
    for (size_t i = 0; r >= 0 && i < stack->count; i++) {
        char name[24];
        snprintf(name, sizeof(name), "%" PRIu32 "/U", stack->layers[i].number);
        r = dir_open(stack->disks[stack->layers[i].disk], name);
        if (r >= 0)
            ret->uppers[ret->count++] = r;
    }
    if (r >= 0 && stack->image->usr_over >= 0 && (r = open_apart(stack->image->usr_over)) >= 0)
        ret->uppers[ret->count++] = r;
    return r < 0 ? r : 0;
}

static void usr_close(struct layers_usr *u) {
    while (u->count)
        close(u->uppers[--u->count]);
    close_fd(&u->base);
}

/* changes: also opens the layers that differ from the image `m->text`; or NULL. usr: see layers.h.
 */
static int view_stack(struct spawner *s, const struct box *box, const struct plan_message *m,
                      const char *text, struct layers_changes *changes, struct layers_usr *usr,
                      int ret_dirs[2], struct err *err) {
    struct image old DEFER(layers_image_closep) = IMAGE_NONE;
    struct stack stack = STACK_NONE;
    struct layers layers;
    int r = layers_parse(text, &layers, err);
    if (r == 0 && changes && m->layer > layers.count)
        r = err_set(err, ERR_INVALID,
                    "the daemon's request is malformed: the stack of machine '%s' has only %zu "
                    "layers",
                    box->id, layers.count);
    if (r == 0)
        r = layers_open_image(s, box, &old, &stack.image, err);
    if (r == 0)
        r = open_view(s, &layers, &stack, err);
    if (r == 0)
        r = stack_mount(&s->maker, &stack, &ret_dirs[0], &ret_dirs[1], err);
    if (r == 0 && changes) {
        r = open_uppers(&stack, (size_t)m->layer, changes);
        if (r == 0)
            r = open_image_uppers(s, box, stack.image, m->text, changes);
        if (r < 0)
            err_num(err, r, "cannot open the layers of machine '%s'", box->id);
    }
    if (r == 0 && usr && box_has_usr(box) && (r = open_usr(&stack, usr)) < 0)
        err_num(err, r, "cannot open the layers of /usr of machine '%s'", box->id);
    layers_stack_clear(s, &stack);
    if (r < 0) {
        if (usr)
            usr_close(usr);
        return -1;
    }
    mount_shelve(ret_dirs[0]);
    if (ret_dirs[1] >= 0)
        mount_shelve(ret_dirs[1]);
    return 0;
}

int layers_open_view(struct spawner *s, const char *machine, const char *stack, int ret_dirs[2],
                     struct layers_usr *ret_usr, struct err *err) {
    struct box *box = layers_live_box(s, machine, err);
    return box ? view_stack(s, box, NULL, stack, NULL, ret_usr, ret_dirs, err) : -1;
}

static void changes_close(struct layers_changes *c) {
    while (c->count)
        close(c->uppers[--c->count]);
    close_fd(&c->root);
}

int layers_open_changes(struct spawner *s, const struct plan_message *m, struct layers_changes *ret,
                        struct err *err) {
    const struct box *box = layers_live_box(s, m->plan.id, err);
    int dirs[2] = {-1, -1};
    *ret = (struct layers_changes){.root = -1};
    if (!box)
        return -1;
    if (box_has_usr(box))
        return err_set(err, ERR_UNSUPPORTED, "machine '%s' has no image that a layer can be above",
                       box->id);
    int r = view_stack(s, box, m, m->plan.stack, ret, NULL, dirs, err);
    ret->root = dirs[0];
    if (r < 0)
        changes_close(ret);
    return r;
}

/* Opens the box's own disk and, if rootless, its user namespace. Returns their number, or -1. */
static int view_disk(struct spawner *s, const struct box *box, int ret[2], struct err *err) {
    int r = layers_clone_disk(s, box, 0, ret, 1);
    if (r == 0 && s->rootless)
        r = ret[1] = layers_open_userns(s, box);
    if (r >= 0)
        return ret[1] < 0 ? 1 : 2;
    close_fd(&ret[0]);
    return err_num(err, r, "cannot open the disk of machine '%s'", box->id);
}

int layers_view(struct spawner *s, struct plan_message *m, int ret_dirs[2], struct err *err) {
    struct box *box = layers_live_box(s, m->plan.id, err);
    if (!box)
        return -1;
    bool disk = m->type == PLAN_DISK;
    ret_dirs[0] = ret_dirs[1] = -1;
    m->type = PLAN_VIEW_IS;
    if (disk && m->text[0])
        return layers_clone_named(s, m->text, ret_dirs, 1, err) < 0 ? -1 : 1;
    if (disk)
        return view_disk(s, box, ret_dirs, err);
    if (view_stack(s, box, NULL, m->plan.stack, NULL, NULL, ret_dirs, err) < 0)
        return -1;
    /* The root contains /usr, so there is no second directory: return an empty one. */
    if (ret_dirs[1] < 0)
        ret_dirs[1] = openat(s->maker.workshop, "empty", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return ret_dirs[1] < 0 ? 1 : 2;
}

/* Opens the changes in copy-on-write grants through the id map of the box. */
int layers_uppers(struct spawner *s, const struct box *box, char ret_numbers[PLAN_TEXT_SIZE],
                  struct verb_fds *ret, struct err *err) {
    int disk DEFER_CLOSE = -1, userns DEFER_CLOSE = layers_open_userns(s, box);
    int r = userns < 0 ? userns : layers_clone_disk(s, box, 0, &disk, 1);
    if (r == 0 && !s->rootless)
        r = mount_idmap(disk, userns);
    if (r < 0)
        return err_num(err, r, "cannot open the disk of machine '%s'", box->id);
    ret_numbers[0] = '\0';
    for (unsigned i = 0; i < PLAN_MAX_GRANTS; i++) {
        char name[16];
        rootfs_grant_name(name, i);
        int fd = dir_open(disk, name);
        if (fd < 0 && errno != ENOENT)
            return err_sys(err, "cannot open the changes in granted directories of machine '%s'",
                           box->id);
        if (fd < 0)
            continue;
        ret->v[ret->count++] = fd;
        size_t len = strlen(ret_numbers);
        snprintf(ret_numbers + len, PLAN_TEXT_SIZE - len, "%s%u", len ? " " : "", i);
    }
    return 0;
}
