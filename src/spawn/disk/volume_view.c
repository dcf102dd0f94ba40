/* Opens the files of a volume as they were, and as they are now, for a comparison on the host. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fs/dir.h"
#include "spawn/disk/layers_inner.h"
#include "spawn/disk/overlays.h"
#include "spawn/disk/rootfs.h"
#include "spawn/disk/volume.h"
#include "spawn/make/mounts.h"
#include "spawn/spawner.h"

/*
 * Mounts the changes of a box in a volume over the volume, read-only. The user ids are as on both
 * disks, which have the same ids for the same users.
 */
static int cow_view(struct spawner *s, const struct box *box, unsigned number, int volume) {
    struct stack stack = STACK_NONE;
    char name[16];
    rootfs_grant_name(name, number);
    int r = layers_clone_disk(s, box, 0, &stack.disks[0], 1);
    if (r == 0)
        r = layers_prepare_disk(s, &stack, 0, false);
    int upper DEFER_CLOSE = r < 0 ? -1 : dir_open_path(stack.disks[0], name);
    const int lowers[] = {upper, volume};
    if (r == 0)
        r = upper < 0 ? upper
                      : overlay_on(&s->maker, 0, &(struct lower_list){lowers, 2, 1, 1},
                                   &(struct upper_place){.fs = -1}, true);
    layers_stack_clear(s, &stack);
    return r;
}

int volume_view(struct spawner *s, struct plan_message *m, const struct fd_message *in, int ret[2],
                struct err *err) {
    struct stat st;
    unsigned number;
    const struct box *box = layers_live_box(s, m->plan.id, err);
    bool cow = sscanf(m->text, "cow %u", &number) == 1 && number < PLAN_MAX_GRANTS;
    if (!box)
        return -1;
    if (in->nfds != (cow ? 1 : 2))
        return err_set(err, ERR_INVALID, "the daemon's request about a volume is malformed");
    int before DEFER_CLOSE = volume_lower(&s->maker, in->fds[0], -1, &st, err);
    if (before < 0)
        return -1;
    int after DEFER_CLOSE =
        cow ? cow_view(s, box, number, before) : volume_lower(&s->maker, in->fds[1], -1, &st, err);
    if (after < 0)
        return cow ? err_num(err, after, "cannot open the changes of machine '%s' in a volume",
                             box->id)
                   : -1;
    int r = mount_shelve(before);
    if (r == 0)
        r = mount_shelve(after);
    if (r < 0)
        return err_num(err, r, "cannot make a view of a volume read-only");
    m->type = PLAN_VIEW_IS;
    ret[0] = TAKE_FD(before);
    ret[1] = TAKE_FD(after);
    return 0;
}
