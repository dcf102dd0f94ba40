/*
 * Images above images: which image a new layer is above, what an image with everything below it
 * takes, and whether an image is needed by one above it. Below all is the host for some of them.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fs/dir.h"
#include "base/layers.h"
#include "base/log.h"
#include "service/images/inner.h"
#include "service/images/jobs_inner.h"
#include "service/images/layered.h"
#include "store/compact.h"

enum { STATE_PIECE = 64 << 10 };

int image_below_of(const struct service *s, const char *id, struct image_below *ret) {
    int images DEFER_CLOSE = images_open(s);
    *ret = (struct image_below){.count = 0};
    return images < 0 ? images : image_below_read(images, id, ret);
}

bool image_uses_host(const struct service *s, const char *image) {
    int images DEFER_CLOSE = images_open(s);
    return strcmp(image, "host") == 0 || (images >= 0 && image_is_lent(images, image));
}

void image_host_state(char ret[SHA256_HEX]) {
    static const char *const lists[] = {"/var/lib/dpkg/status", "/usr/lib/os-release"};
    char *piece DEFER_FREE = xmalloc(STATE_PIECE);
    int fd DEFER_CLOSE = -1;
    struct sha256 sum;
    ssize_t n;
    for (size_t i = 0; fd < 0 && i < sizeof(lists) / sizeof(*lists); i++)
        fd = open(lists[i], O_RDONLY | O_CLOEXEC);
    sha256_init(&sum);
    do {
        n = fd < 0 ? -1 : read(fd, piece, STATE_PIECE);
        sha256_add(&sum, piece, n > 0 ? (size_t)n : 0);
    } while (n > 0 || (n < 0 && fd >= 0 && errno == EINTR));
    ret[0] = '\0';
    if (n == 0)
        sha256_end_hex(&sum, ret);
}

/* ---- use ---- */

bool image_job_needs(const struct service *s, const char *id) {
    for (const struct image_job *j = s->images->jobs; j; j = j->next)
        if (image_below_has(&j->below, id) || strcmp(j->adopting, id) == 0 ||
            (j->layered && strcmp(image_layered_found(j->layered), id) == 0))
            return true;
    return false;
}

bool image_job_has_tree(const struct service *s, const char *name) {
    for (const struct image_job *j = s->images->jobs; j; j = j->next)
        if (strcmp(j->staging, name) == 0)
            return true;
    return false;
}

bool image_is_below(const struct service *s, const char *id) {
    int images DEFER_CLOSE = images_open(s);
    DIR *d DEFER(dir_close) = images < 0 ? NULL : dir_list(images, ".");
    if (!d || image_job_needs(s, id))
        return true; /* an image in doubt is not deleted */
    for (struct dirent *e; (e = readdir(d));) {
        struct image_below below;
        if (!image_id_valid(e->d_name))
            continue;
        int r = image_below_read(images, e->d_name, &below);
        if (r < 0)
            log_line(LOG_WARN, "service", "read the list of layers of an image: %s id=%s",
                     strerror(-r), e->d_name);
        if (r < 0 || image_below_has(&below, id))
            return true;
    }
    return false;
}

/* ---- sizes ---- */

static uint64_t size_in(const json_t *sizes, const char *name) {
    json_int_t n = json_integer_value(json_object_get(sizes, name));
    return n > 0 ? (uint64_t)n : 0;
}

void image_sizes_put(json_t *record, const struct image_sizes *sizes) {
    json_object_set_new(record, "sizes",
                        json_pack("{s:I,s:I,s:I}", "bytes", (json_int_t)sizes->bytes, "entries",
                                  (json_int_t)sizes->entries, "disk", (json_int_t)sizes->disk));
}

void image_sizes_of(struct service *s, const char *id, struct image_sizes *ret) {
    struct image_row row;
    struct err err;
    *ret = (struct image_sizes){.known = true};
    if (store_image_find(s->store, NULL, id, &row, &err) == 0) {
        ret->bytes = row.bytes;
        ret->entries = row.entries;
        ret->disk = row.disk_bytes;
        return;
    }
    json_t *record = image_record(s, id);
    const json_t *sizes = json_object_get(record, "sizes");
    ret->known = sizes != NULL;
    ret->bytes = size_in(sizes, "bytes");
    ret->entries = size_in(sizes, "entries");
    ret->disk = size_in(sizes, "disk");
    json_decref(record);
}

/* ---- the image that a layer is above ---- */

/*
 * Returns how many layers a stack has above another stack, or -1 if it is not above that stack.
 */
static int layers_above(const struct layers *stack, const struct layers *lower) {
    if (lower->count > stack->count)
        return -1;
    size_t above = stack->count - lower->count;
    for (size_t i = 0; i < lower->count; i++)
        if (stack->v[above + i].number != lower->v[i].number ||
            strcmp(stack->v[above + i].machine, lower->v[i].machine) != 0)
            return -1;
    return (int)above;
}

static size_t layers_above_text(const struct layers *stack, const char *lower) {
    struct layers *below DEFER_FREE = malloc(sizeof(*below));
    struct err err;
    int n = below && layers_parse(lower, below, &err) == 0 ? layers_above(stack, below) : -1;
    return n < 0 ? stack->count : (size_t)n;
}

size_t images_layers_above(const struct live *l, const struct layers *stack) {
    size_t least = stack->count;
    if (l->image && l->image->made[0])
        least = layers_above_text(stack, l->image->made_stack);
    for (const struct image_job *j = l->service->images->jobs; j; j = j->next) {
        size_t n = j->live == l && j->stack ? layers_above_text(stack, j->stack) : stack->count;
        least = n < least ? n : least;
    }
    return least;
}

/* The last image made of this machine, if the machine has only added layers since. */
static bool choose_made(struct image_job *j, const struct layers *stack) {
    const struct live_image *image = j->live->image;
    struct layers *made DEFER_FREE = malloc(sizeof(*made));
    struct image_below below;
    struct err err;
    uint64_t uses = 0;
    if (!image->made[0] || !made || layers_parse(image->made_stack, made, &err) < 0)
        return false;
    int above = layers_above(stack, made);
    if (above < 0 || store_image_uses(j->service->store, image->made, &uses, &err) < 0 || !uses ||
        !image_is_whole(j->service, image->made) ||
        image_below_of(j->service, image->made, &below) < 0 || below.count >= IMAGE_BELOW_MAX)
        return false;
    j->draw_layers = (size_t)above;
    j->below.count = 1 + below.count;
    memcpy(j->below.ids[0], image->made, IMAGE_ID_SIZE);
    memcpy(j->below.ids[1], below.ids, below.count * IMAGE_ID_SIZE);
    return true;
}

int image_job_choose_base(struct image_job *j, struct err *err) {
    const char *id = j->live->row.image;
    struct layers *stack DEFER_FREE = malloc(sizeof(*stack));
    struct image_below below;
    j->below.count = 0;
    if (!j->live->image || !image_id_valid(id) || image_uses_host(j->service, id))
        return 0;
    if (!stack)
        return err_set(err, ERR_LIMIT, "out of memory");
    if (layers_parse(j->stack ? j->stack : "", stack, err) < 0)
        return -1;
    if (choose_made(j, stack))
        return 0;
    int r = image_below_of(j->service, id, &below);
    if (r < 0)
        return err_num(err, r, "cannot read the list of layers of image '%.14s'", id);
    j->draw_layers = stack->count;
    if (below.count >= IMAGE_BELOW_MAX) { /* weld: build on the lowest image */
        j->below.count = 1;
        memcpy(j->below.ids[0], below.ids[below.count - 1], IMAGE_ID_SIZE);
        return 0;
    }
    j->below.count = 1 + below.count;
    memcpy(j->below.ids[0], id, IMAGE_ID_SIZE);
    memcpy(j->below.ids[1], below.ids, below.count * IMAGE_ID_SIZE);
    return 0;
}

static void replace_merged(char **stack, const struct layers *run, uint32_t into) {
    struct layers *now DEFER_FREE = malloc(sizeof(*now));
    char text[LAYERS_TEXT_SIZE], *copy;
    struct err err;
    if (!*stack || !now || layers_parse(*stack, now, &err) < 0 ||
        !compact_apply(now, run, run->v[0].machine, into) ||
        !layers_print(now, text, sizeof(text)) || !(copy = strdup(text)))
        return;
    free(*stack);
    *stack = copy;
}

void images_merged(struct live *l, const struct layers *run, uint32_t into) {
    if (l->image)
        replace_merged(&l->image->made_stack, run, into);
    for (struct image_job *j = l->service->images->jobs; j; j = j->next)
        if (j->live == l)
            replace_merged(&j->stack, run, into);
}

void images_machine_ends(struct live *l) {
    struct err err;
    err_set(&err, ERR_GONE, "machine '%s' ended before its image was complete", l->row.id);
    for (struct image_job *j = l->service->images->jobs; j; j = j->next)
        if (j->live == l && j->reads.stack)
            image_job_fail(j, &err);
}

void image_job_remember(struct image_job *j) {
    struct live_image *image = j->live ? j->live->image : NULL;
    if (!image)
        return;
    free(image->made_stack);
    image->made_stack = strdup(j->stack ? j->stack : "");
    snprintf(image->made, sizeof(image->made), "%s", image->made_stack ? j->row.id : "");
}
