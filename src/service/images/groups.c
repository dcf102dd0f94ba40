#include "service/images/groups.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/hex.h"
#include "base/sha256.h"

/* ---- which layers become one ---- */

bool layer_digest_ok(const char *text) {
    return strncmp(text, "sha256:", 7) == 0 && hex_is(text + 7, 64);
}

static size_t group_size(size_t count) {
    size_t size = 1;
    while ((count - 1 + size - 1) / size > IMAGE_BELOW_MAX)
        size *= 2;
    return size;
}

size_t layer_groups(size_t count) {
    size_t size = group_size(count);
    return 1 + (count - 1 + size - 1) / size;
}

size_t layer_group_end(size_t first, size_t count) {
    size_t end = first == 0 ? 1 : first + group_size(count);
    return end < count ? end : count;
}

void layer_group_key(const struct layer_blob *layers, size_t first, size_t end,
                     char ret[LAYER_DIGEST_SIZE]) {
    struct sha256 sum;
    char hex[SHA256_HEX];
    if (end - first == 1) {
        memcpy(ret, layers[first].digest, LAYER_DIGEST_SIZE);
        return;
    }
    sha256_init(&sum);
    for (size_t i = first; i < end; i++)
        sha256_add(&sum, layers[i].digest, strlen(layers[i].digest) + 1);
    sha256_end_hex(&sum, hex);
    snprintf(ret, LAYER_DIGEST_SIZE, "weld:%s", hex);
}

/* ---- groups that the owner has ---- */

enum { LAYER_KNOWNS_MAX = 4096 };

/* Files beside the tree of an image, kept in memory. */
struct layer_known {
    char id[IMAGE_ID_SIZE];
    struct stat file;              /* image.json, when it was read */
    char layer[LAYER_DIGEST_SIZE]; /* digest of the group that the image is; empty: none */
    bool is_readable;              /* `below` is known */
    struct image_below below;
};

/* True if the last layers of `chain`, from `first` on, are those of `below`. */
static bool chain_ends_with(const struct image_below *chain, size_t first,
                            const struct image_below *below) {
    bool same = chain->count - first == below->count;
    for (size_t i = 0; same && i < below->count; i++)
        same = strcmp(chain->ids[first + i], below->ids[i]) == 0;
    return same;
}

static void knowns_drop(struct map *knowns) {
    struct layer_known *k;
    for (size_t at = 0; (k = map_next(knowns, &at));)
        free(k);
    map_done(knowns);
    *knowns = (struct map){0};
}

void layer_knowns_done(struct service_images *i) {
    knowns_drop(&i->knowns);
}

static bool is_same_file(const struct stat *a, const struct stat *b) {
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* Reads what layer_known_of() keeps. An image that cannot be read has no layer. */
static void known_read(struct service *s, int images, struct layer_known *k) {
    json_t *record DEFER(json_decrefp) = image_record(s, k->id);
    const char *layer = json_string_value(json_object_get(record, "layer"));
    k->layer[0] = '\0';
    if (layer && strlen(layer) < sizeof(k->layer))
        memcpy(k->layer, layer, strlen(layer) + 1);
    k->is_readable = image_below_read(images, k->id, &k->below) == 0;
}

/*
 * Returns the digest and the layers of an image; NULL if it has no record. The files of an image
 * never change, so they are read again only if the image was deleted and made again.
 */
static const struct layer_known *layer_known_of(struct service *s, int images, const char *id) {
    char path[IMAGE_ID_SIZE + 16];
    struct map *knowns = &s->images->knowns;
    struct layer_known *k = map_get(knowns, id);
    struct stat st;
    snprintf(path, sizeof(path), "%s/image.json", id);
    if (fstatat(images, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return NULL;
    if (k && is_same_file(&k->file, &st))
        return k;
    if (!k) {
        if (knowns->count >= LAYER_KNOWNS_MAX)
            knowns_drop(knowns);
        k = xnew(struct layer_known);
        snprintf(k->id, sizeof(k->id), "%s", id);
        map_put(knowns, k->id, k);
    }
    k->file = st;
    known_read(s, images, k);
    return k;
}

static bool is_layer(struct service *s, int images, const char *id, const char *key) {
    const struct layer_known *k = layer_known_of(s, images, id);
    return k && strcmp(k->layer, key) == 0 && image_is_whole(s, id);
}

/* Looks for the group in an image: the image itself or one below it. */
static bool layer_in(struct service *s, int images, const char *id, const struct image_below *below,
                     const char *key, char ret[IMAGE_ID_SIZE]) {
    const struct layer_known *k = layer_known_of(s, images, id);
    if (!k || !k->is_readable)
        return false;
    const struct image_below chain = k->below; /* a later look may drop what is known */
    bool found = chain_ends_with(&chain, 0, below) && is_layer(s, images, id, key);
    for (size_t i = 0; !found && i < chain.count; i++) {
        id = chain.ids[i];
        found = chain_ends_with(&chain, i + 1, below) && is_layer(s, images, id, key);
    }
    if (found)
        snprintf(ret, IMAGE_ID_SIZE, "%s", id);
    return found;
}

bool layer_group_find(struct service *s, const char *owner, const struct image_below *below,
                      const char *key, char ret[IMAGE_ID_SIZE]) {
    struct image_list list DEFER(image_list_done) = {0};
    struct err err;
    if (below->count == IMAGE_BELOW_MAX) /* the configuration would be one layer too many */
        return false;
    int images DEFER_CLOSE = images_open(s);
    if (images < 0 || store_image_list(s->store, owner, &list, &err) < 0)
        return false;
    for (size_t i = 0; i < list.count; i++)
        if (layer_in(s, images, list.rows[i].id, below, key, ret))
            return true;
    return false;
}

int service_image_layers(struct service *s, const struct caller *who, const struct texts *digests,
                         uint64_t *ret, struct err *err) {
    struct layer_blob *layers DEFER_FREE = xcalloc(IMPORT_LAYERS_MAX, sizeof(*layers));
    struct image_below below = {.count = 0};
    char key[LAYER_DIGEST_SIZE], id[IMAGE_ID_SIZE];
    if (allow(who, SCOPE_RUN, err) < 0)
        return -1;
    if (digests->count == 0 || digests->count > IMPORT_LAYERS_MAX)
        return err_set(err, ERR_INVALID, "'digests' must have 1 to %d digests", IMPORT_LAYERS_MAX);
    for (size_t i = 0; i < digests->count; i++) {
        if (!layer_digest_ok(digests->v[i]))
            return err_set(err, ERR_INVALID, "'%.80s' is not a digest, such as sha256:HEX",
                           digests->v[i]);
        snprintf(layers[i].digest, LAYER_DIGEST_SIZE, "%s", digests->v[i]);
    }
    *ret = 0;
    for (size_t end; *ret < digests->count; *ret = end) {
        end = layer_group_end(*ret, digests->count);
        layer_group_key(layers, *ret, end, key);
        if (!layer_group_find(s, who->owner, &below, key, id))
            break;
        image_below_push(&below, id);
    }
    return 0;
}

void image_below_push(struct image_below *below, const char *id) {
    if (below->count && strcmp(below->ids[0], id) == 0)
        return; /* the layer changes nothing */
    memmove(below->ids[1], below->ids[0], below->count * IMAGE_ID_SIZE);
    memcpy(below->ids[0], id, IMAGE_ID_SIZE);
    below->count++;
}
