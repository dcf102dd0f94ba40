/*
 * Deletes the intermediate images of builds, and counts the bytes that become free: a layer may
 * have another name, or be below an image that stays.
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "base/fs/dir.h"
#include "base/log.h"
#include "service/images/images.h"
#include "service/images/inner.h"
#include "service/rights.h"

struct stored {
    char id[IMAGE_ID_SIZE];
    struct image_below below;
    uint64_t bytes; /* of its own layer */
    bool is_needed, is_used, was_used;
};

struct stored_list {
    struct stored *v;
    size_t count, size;
};

static void stored_done(struct stored_list *list) {
    free(list->v);
}

static uint64_t stored_bytes(struct service *s, const struct stored *i) {
    struct image_sizes all, below = {.bytes = 0};
    image_sizes_of(s, i->id, &all);
    if (i->below.count)
        image_sizes_of(s, i->below.ids[0], &below);
    return all.bytes > below.bytes ? all.bytes - below.bytes : 0;
}

static int stored_add(struct service *s, struct stored_list *list, int images, const char *id) {
    if (list->count == list->size) {
        size_t size = list->size ? 2 * list->size : 64;
        struct stored *more = reallocarray(list->v, size, sizeof(*more));
        if (!more)
            return -1;
        list->v = more;
        list->size = size;
    }
    struct stored *i = &list->v[list->count];
    *i = (struct stored){.is_used = false};
    memcpy(i->id, id, IMAGE_ID_SIZE);
    if (image_below_read(images, id, &i->below) < 0)
        return -1;
    i->bytes = stored_bytes(s, i);
    list->count++;
    return 0;
}

/* Lists all images on disk. -1: not all of them are known; then no image below another is deleted.
 */
static int stored_load(struct service *s, struct stored_list *ret) {
    int images DEFER_CLOSE = images_open(s);
    DIR *d DEFER(dir_close) = images < 0 ? NULL : dir_list(images, ".");
    for (struct dirent *e; d && (e = readdir(d));)
        if (image_id_valid(e->d_name) && stored_add(s, ret, images, e->d_name) < 0)
            return -1;
    return d ? 0 : -1;
}

static bool stored_is_needed(struct service *s, const char *id) {
    uint64_t uses = 1;
    struct err err;
    if (store_image_uses(s->store, id, &uses, &err) < 0)
        log_line(LOG_WARN, "service", "count the uses of an image: %s id=%s", err.text, id);
    return uses || image_job_needs(s, id);
}

/* An image is used if it is needed itself, or is below one that is. */
static void stored_mark_used(struct service *s, struct stored_list *list) {
    for (size_t i = 0; i < list->count; i++) {
        struct stored *at = &list->v[i];
        at->is_needed = at->is_used = stored_is_needed(s, at->id);
    }
    for (size_t i = 0; i < list->count; i++) {
        if (!list->v[i].is_needed)
            continue;
        for (size_t k = 0; k < list->count; k++)
            list->v[k].is_used |= image_below_has(&list->v[i].below, list->v[k].id);
    }
}

static void stored_remember_use(struct stored_list *list) {
    for (size_t i = 0; i < list->count; i++)
        list->v[i].was_used = list->v[i].is_used;
}

static uint64_t stored_freed(const struct stored_list *list) {
    uint64_t sum = 0;
    for (size_t i = 0; i < list->count; i++)
        sum += list->v[i].was_used && !list->v[i].is_used ? list->v[i].bytes : 0;
    return sum;
}

static int prune_rows(struct service *s, const struct image_list *list, uint64_t *ret_count,
                      struct err *err) {
    uint64_t machines = 0;
    for (size_t i = 0; i < list->count; i++) {
        const struct image_row *row = &list->rows[i];
        if (!image_is_step(row->name))
            continue;
        if (store_image_machines(s->store, row->owner, row->id, &machines, err) < 0)
            return -1;
        if (machines)
            continue;
        if (image_remove_row(s, row, err) < 0)
            return -1;
        ++*ret_count;
    }
    return 0;
}

int service_image_prune(struct service *s, const struct caller *who, uint64_t *ret_count,
                        uint64_t *ret_bytes, struct err *err) {
    struct image_list list DEFER(image_list_done) = {0};
    struct stored_list stored DEFER(stored_done) = {0};
    struct journal_record what = {.verb = "image.prune"};
    uint64_t intent;
    *ret_count = *ret_bytes = 0;
    if (allow(who, SCOPE_RUN, err) < 0 || note_intent(s, who, &what, &intent, err) < 0)
        return -1;
    /* The sizes are read first: a deleted image may be gone at once. */
    bool known = stored_load(s, &stored) == 0;
    stored_mark_used(s, &stored);
    stored_remember_use(&stored);
    int r = store_image_list(s->store, who->owner, &list, err);
    if (r == 0)
        r = prune_rows(s, &list, ret_count, err);
    stored_mark_used(s, &stored);
    *ret_bytes = known ? stored_freed(&stored) : 0;
    note_result(s, who, &what, intent, r < 0 ? err : NULL);
    return r;
}
