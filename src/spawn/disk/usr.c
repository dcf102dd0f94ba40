#include "spawn/disk/usr.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "spawn/make/mounts.h"
#include "spawn/spawner.h"

enum { PART_SIZE = 24 };

static bool is_same_layer(const struct stack_layer *a, const struct stack_layer *b) {
    return a->disk == b->disk && a->number == b->number;
}

static const struct stack_layer *usr_known(const struct box *box, const struct stack_layer *layer) {
    for (size_t i = 0; i < box->shown_count; i++)
        if (is_same_layer(&box->shown[i], layer))
            return &box->shown[i];
    return NULL;
}

/* Closed layers never change, so each one is looked at once. */
void usr_survey(const struct box *box, struct stack *stack) {
    for (size_t i = 0; i < stack->count; i++) {
        struct stack_layer *layer = &stack->layers[i];
        const struct stack_layer *known = usr_known(box, layer);
        layer->usr_is_bare =
            known ? known->usr_is_bare
                  : layer_usr_is_empty(stack->disks[layer->disk], layer->number) == 1;
    }
}

static size_t next_in_usr(const struct stack_layer *list, size_t count, size_t at) {
    while (at < count && list[at].usr_is_bare)
        at++;
    return at;
}

/* True if both lists have the same layers that change something in /usr. */
static bool show_same_usr(const struct stack_layer *a, size_t a_count, const struct stack_layer *b,
                          size_t b_count) {
    size_t i = next_in_usr(a, a_count, 0), k = next_in_usr(b, b_count, 0);
    while (i < a_count && k < b_count && is_same_layer(&a[i], &b[k])) {
        i = next_in_usr(a, a_count, i + 1);
        k = next_in_usr(b, b_count, k + 1);
    }
    return i == a_count && k == b_count;
}

bool usr_may_stay(const struct box *box, const struct stack *stack) {
    const struct stack_layer *top = stack->layers;
    return stack->image->usr >= 0 && box->shown_is_known && !box->drifted && stack->count &&
           top->disk == 0 && top->number == box->layer && top->usr_is_bare &&
           show_same_usr(box->shown, box->shown_count, top + 1, stack->count - 1);
}

void usr_remember(struct box *box, const struct stack *stack) {
    for (size_t i = 0; i < stack->count; i++)
        box->shown[i] = stack->layers[i];
    box->shown_count = stack->count;
    box->shown_is_known = true;
}

static void usr_part(char ret[PART_SIZE], uint32_t number, char part) {
    snprintf(ret, PART_SIZE, "%" PRIu32 "/%c", number, part);
}

static int move_part(int disk, uint32_t from, uint32_t to, char part) {
    char old[PART_SIZE], new[PART_SIZE];
    usr_part(old, from, part);
    usr_part(new, to, part);
    return renameat(disk, old, disk, new) < 0 ? -errno : 0;
}

static bool is_missing(int disk, uint32_t number, char part) {
    char name[PART_SIZE];
    struct stat st;
    usr_part(name, number, part);
    return fstatat(disk, name, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}

/*
 * usr_move_upper() moves U, then W, and creates U last. So if it did not come to its end, one of
 * them is missing in the layer that it took them from, and W is missing if it did. The empty
 * directories that are in the way are replaced.
 */
void usr_return_upper(int disk, uint32_t from, uint32_t to) {
    bool no_work = is_missing(disk, from, 'W');
    if (no_work || is_missing(disk, from, 'U'))
        move_part(disk, to, from, 'U');
    if (no_work)
        move_part(disk, to, from, 'W');
}

int usr_move_upper(const struct box *box, const struct stack *stack) {
    int disk = stack->disks[0], empty = layer_usr_is_empty(disk, box->layer);
    if (empty != 1)
        return empty < 0 ? empty : -EBUSY;
    act_as(stack->owner);
    int r = move_part(disk, box->layer, stack->upper, 'U');
    if (r == 0)
        r = move_part(disk, box->layer, stack->upper, 'W');
    if (r == 0)
        r = layer_twin(disk, stack->upper, box->layer, 'U', stack->owner);
    if (r < 0)
        usr_return_upper(disk, box->layer, stack->upper);
    act_as(0);
    return r;
}
