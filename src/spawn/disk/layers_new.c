/* A new box from layers of others, or of an image. */
#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "spawn/disk/layers_inner.h"
#include "spawn/make/making.h"

static int add_disk(struct spawner *s, const char *machine, int i, struct stack *stack,
                    struct rootfs *r, struct err *err) {
    int copies[2], made = layers_clone_named(s, machine, copies, 2, err);
    if (made < 0)
        return -1;
    r->held[i] = copies[0];
    stack->disks[i] = copies[1];
    made = layers_prepare_disk(s, stack, i, false);
    return made < 0 ? err_num(err, made, "cannot map user ids on the disk of machine '%s'", machine)
                    : 0;
}

/* Lists the machines whose disks a stack needs, in order of appearance. */
int layers_list_disks(const struct layers *layers, const char *ret[LAYERS_DISKS_MAX], size_t *count,
                      struct err *err) {
    for (size_t i = 0; i < layers->count; i++) {
        size_t k = 0;
        while (k < *count && strcmp(ret[k], layers->v[i].machine) != 0)
            k++;
        if (k == LAYERS_DISKS_MAX)
            return err_set(err, ERR_LIMIT, "the machine needs layers of more than %d disks",
                           LAYERS_DISKS_MAX);
        if (k == *count)
            ret[(*count)++] = layers->v[i].machine;
    }
    return 0;
}

static int restack(struct spawner *s, const struct plan *plan, struct rootfs *r,
                   struct stack *stack, struct err *err) {
    struct layers layers;
    const char *names[LAYERS_DISKS_MAX];
    size_t count = 0;
    if (layers_parse(plan->stack, &layers, err) < 0 ||
        layers_list_disks(&layers, names, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        if (add_disk(s, names[i], (int)i + 1, stack, r, err) < 0)
            return -1;
    for (size_t i = 0; i < layers.count; i++) {
        unsigned disk = 1;
        while (strcmp(names[disk - 1], layers.v[i].machine) != 0)
            disk++;
        stack->layers[i].disk = disk;
        stack->layers[i].number = layers.v[i].number;
    }
    stack->count = layers.count;
    /* the upper of the berth (prepared box) has number LAYER_FIRST */
    stack->upper = LAYER_FIRST + 1;
    int root, usr;
    if (stack_new_upper(stack, err) < 0 || stack_mount(&s->maker, stack, &root, &usr, err) < 0)
        return -1;
    close_fd(&r->root);
    close_fd(&r->usr);
    r->root = root;
    r->usr = usr;
    r->layer = stack->upper;
    return 0;
}

int layers_restack(struct spawner *s, const struct plan *plan, struct rootfs *r, struct err *err) {
    struct stack stack = rootfs_stack(&s->maker, r);
    struct image stored DEFER(layers_image_closep) = IMAGE_NONE;
    int made = 0;
    if (image_id_valid(plan->image)) {
        made = sealed_image(s, plan->image, &stored, err);
        stack.image = &stored;
    }
    if (made == 0)
        made = restack(s, plan, r, &stack, err);
    /* struct rootfs owns these descriptors: layers_stack_clear() must not close them */
    stack.disks[0] = stack.userns = -1;
    layers_stack_clear(s, &stack);
    return made < 0 ? err_wrap(err, "cannot create machine '%s' from layers", plan->id) : 0;
}

void layers_enter(struct spawner *s, struct box *box, const struct plan *plan) {
    struct layers layers;
    const char *names[LAYERS_DISKS_MAX];
    size_t count = 0;
    struct err err;
    if (layers_parse(plan->stack, &layers, &err) < 0 ||
        layers_list_disks(&layers, names, &count, &err) < 0)
        return;
    for (size_t i = 0; i < count; i++) {
        int disk = 0;
        const struct box *holder = layers_holder(s, names[i], &disk);
        snprintf(box->disks[i].id, sizeof(box->disks[i].id), "%s", names[i]);
        box->disks[i].upper = !holder     ? 0
                              : disk == 0 ? holder->upper
                                          : holder->disks[disk - 1].upper;
    }
    box->disk_count = count;
}
