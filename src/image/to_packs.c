#include "image/to_packs.h"

#include <archive.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/hex.h"
#include "base/jot.h"
#include "base/map.h"
#include "image/squeeze.h"
#include "packs/manifest.h"

enum { WINDOW = 2 * CUT_MAX, DOCUMENT_MAX = 1 << 20 };

/* A number that a text leads to: of a chunk by its hash, of a file with several names by a path. */
struct numbered {
    uint32_t number;
    char key[];
};

/* One layer on its way into packs. */
struct to_packs {
    struct pack *pack;
    struct archive *to;
    struct jot *document; /* image.json */
    struct map *written;  /* names of files that the archive has; layers may share them */
    struct squeeze *squeeze;
    struct cut cut;
    struct map chunks, files;
    uint32_t chunk_count, entry_count;
    struct packfile_frame frame;
    struct packfile_maker maker;
    struct manifest_maker manifest;
    struct buf numbers, attributes; /* of the current file */
    uint32_t attribute_count;
    uint8_t *window; /* contents that are not cut yet */
};

static void numbered_free(struct map *m) {
    struct numbered *n;
    for (size_t at = 0; (n = map_next(m, &at));)
        free(n);
    map_done(m);
}

static void numbered_put(struct map *m, const char *key, uint32_t number) {
    size_t size = strlen(key) + 1;
    struct numbered *n = xmalloc(sizeof(*n) + size);
    n->number = number;
    memcpy(n->key, key, size);
    map_put(m, n->key, n);
}

static void to_packs_done(struct to_packs *t) {
    squeeze_free(&t->squeeze);
    numbered_free(&t->chunks);
    numbered_free(&t->files);
    packfile_frame_done(&t->frame);
    packfile_done(&t->maker);
    manifest_done(&t->manifest);
    buf_done(&t->numbers);
    buf_done(&t->attributes);
    free(t->window);
}

/* ---- output ---- */

/* Writes a file that its hash names, once. */
static int put_hashed(struct to_packs *t, const char *folder, const struct buf *bytes,
                      uint8_t ret[SHA256_BYTES], struct err *err) {
    struct sha256 sum;
    char name[32 + SHA256_HEX], hex[SHA256_HEX];
    sha256_init(&sum);
    sha256_add(&sum, bytes->data, bytes->len);
    sha256_end(&sum, ret);
    hex_put(ret, SHA256_BYTES, hex);
    snprintf(name, sizeof(name), "%s/%s", folder, hex);
    if (map_get(t->written, name))
        return 0;
    numbered_put(t->written, name, 0);
    return pack_put_text(t->to, name, bytes, err);
}

static int end_pack(struct to_packs *t, struct err *err) {
    struct buf bytes DEFER(buf_done) = BUF(PACKFILE_MAX + 1);
    uint8_t hash[SHA256_BYTES];
    char hex[SHA256_HEX];
    uint32_t chunks = t->maker.chunk_count;
    if (packfile_end(&t->maker, &bytes, err) < 0 || put_hashed(t, "packs", &bytes, hash, err) < 0)
        return -1;
    hex_put(hash, SHA256_BYTES, hex);
    jot_string(t->document, NULL, hex);
    return manifest_add_pack(&t->manifest, hash, chunks, err);
}

/* A squeeze_fn. */
static int take_frame(void *arg, const struct packfile_frame *f, struct err *err) {
    struct to_packs *t = arg;
    if (packfile_is_full(&t->maker, f) && end_pack(t, err) < 0)
        return -1;
    return packfile_add(&t->maker, f, err);
}

/* ---- contents ---- */

static int put_chunk(struct to_packs *t, const uint8_t *bytes, size_t n, struct err *err) {
    struct sha256 sum;
    uint8_t hash[SHA256_BYTES];
    char hex[SHA256_HEX];
    sha256_init(&sum);
    sha256_add(&sum, bytes, n);
    sha256_end(&sum, hash);
    hex_put(hash, SHA256_BYTES, hex);
    const struct numbered *known = map_get(&t->chunks, hex);
    uint32_t number = known ? known->number : t->chunk_count;
    if (!bytes_put_number(&t->numbers, number, 4))
        return err_set(err, ERR_LIMIT, "out of memory");
    if (known)
        return 0;
    numbered_put(&t->chunks, hex, t->chunk_count++);
    if (!packfile_frame_has_room(&t->frame, n) && squeeze_put(t->squeeze, &t->frame, err) < 0)
        return -1;
    return packfile_frame_add(&t->frame, bytes, n, hash, err);
}

/* Fills the window from the file. Returns the number of bytes in it, or -1. */
static ssize_t fill_window(struct to_packs *t, const struct walk_entry *e, size_t has,
                           uint64_t *left, struct err *err) {
    while (*left && has < WINDOW) {
        size_t room = WINDOW - has;
        ssize_t n = read(e->fd, t->window + has, *left < room ? (size_t)*left : room);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? err_sys(err, "cannot read file '/%.120s'", e->path)
                         : err_set(err, ERR_BUSY, "file '/%.120s' changed while it was read",
                                   e->path);
        has += (size_t)n;
        *left -= (uint64_t)n;
    }
    return (ssize_t)has;
}

static int put_chunks(struct to_packs *t, const struct walk_entry *e, struct err *err) {
    uint64_t left = e->size;
    size_t has = 0;
    do {
        ssize_t n = fill_window(t, e, has, &left, err);
        size_t at = 0, len;
        if (n < 0)
            return -1;
        /* cut_next() needs the end of the file, or as much as the largest chunk. */
        for (has = (size_t)n; has > at && (!left || has - at >= CUT_MAX); at += len) {
            len = cut_next(&t->cut, t->window + at, has - at);
            if (put_chunk(t, t->window + at, len, err) < 0)
                return -1;
            t->pack->bytes += len;
        }
        memmove(t->window, t->window + at, has - at);
        has -= at;
        report_progress(t->pack->report, t->pack->entries, t->pack->bytes);
    } while (left || has);
    return 0;
}

/* ---- entries ---- */

static int take_attribute(void *arg, const char *name, const void *value, size_t size,
                          struct err *err) {
    struct to_packs *t = arg;
    const struct manifest_attribute a = {name, strlen(name), value, size};
    t->attribute_count++;
    return manifest_put_attribute(&t->attributes, &a, err);
}

static unsigned depth_of(const char *path) {
    unsigned depth = *path != '\0';
    for (; *path; path++)
        depth += *path == '/';
    return depth;
}

static enum manifest_type type_of(const struct walk_entry *e) {
    return S_ISDIR(e->mode)   ? MANIFEST_DIR
           : e->twin          ? MANIFEST_HARDLINK
           : S_ISREG(e->mode) ? MANIFEST_FILE
           : S_ISLNK(e->mode) ? MANIFEST_SYMLINK
           : S_ISCHR(e->mode) ? MANIFEST_WHITEOUT
                              : MANIFEST_PIPE;
}

static int describe_file(struct to_packs *t, const struct walk_entry *e, struct manifest_entry *ret,
                         struct err *err) {
    buf_drop(&t->numbers, t->numbers.len);
    buf_drop(&t->attributes, t->attributes.len);
    t->attribute_count = 0;
    if (image_attributes(e, take_attribute, t, err) < 0 || put_chunks(t, e, err) < 0)
        return -1;
    ret->size = e->size;
    ret->chunks = (const uint8_t *)t->numbers.data;
    ret->chunk_count = (uint32_t)(t->numbers.len / 4);
    ret->attribute_count = t->attribute_count;
    ret->attributes =
        (struct bytes){.at = (const uint8_t *)t->attributes.data, .left = t->attributes.len};
    if (e->linked)
        numbered_put(&t->files, e->path, t->entry_count);
    return 0;
}

/* A walk_fn. */
static int put_manifest_entry(void *arg, const struct walk_entry *e, struct err *err) {
    struct to_packs *t = arg;
    const char *name = image_path_last(e->path);
    struct manifest_entry to = {.type = type_of(e),
                                .depth = depth_of(e->path),
                                .name = name,
                                .name_len = strlen(name),
                                .mode = e->mode & 07777,
                                .uid = e->uid,
                                .gid = e->gid,
                                .mtime = e->mtime,
                                .target = e->target,
                                .target_len = e->target ? strlen(e->target) : 0};
    if (to.type == MANIFEST_FILE && describe_file(t, e, &to, err) < 0)
        return -1;
    const struct numbered *twin = e->twin ? map_get(&t->files, e->twin) : NULL;
    if (e->twin && !twin)
        return err_set(err, ERR_BUSY, "file '/%.120s' changed while it was read", e->path);
    to.twin = twin ? twin->number : 0;
    t->pack->entries++;
    t->entry_count++;
    return manifest_add(&t->manifest, &to, err);
}

/* ---- layers ---- */

static int end_layer(struct to_packs *t, struct err *err) {
    struct buf text DEFER(buf_done) = BUF(MANIFEST_MAX + 1);
    uint8_t hash[SHA256_BYTES];
    char hex[SHA256_HEX];
    if ((t->frame.count && squeeze_put(t->squeeze, &t->frame, err) < 0) ||
        squeeze_end(t->squeeze, err) < 0 || (t->maker.frame_count && end_pack(t, err) < 0))
        return -1;
    jot_end(t->document, ']');
    if (manifest_end(&t->manifest, &text, err) < 0 ||
        put_hashed(t, "manifests", &text, hash, err) < 0)
        return -1;
    hex_put(hash, SHA256_BYTES, hex);
    jot_string(t->document, "manifest", hex);
    return 0;
}

static int put_layer(struct pack *p, size_t i, struct archive *to, struct jot *document,
                     struct map *written, struct err *err) {
    struct to_packs t DEFER(to_packs_done) = {.pack = p,
                                              .to = to,
                                              .document = document,
                                              .written = written,
                                              .frame = packfile_frame_begin(),
                                              .maker = packfile_begin(),
                                              .manifest = manifest_begin(),
                                              .numbers = BUF(MANIFEST_MAX),
                                              .attributes = BUF(MANIFEST_MAX)};
    const struct walk w = {.root = p->layer_count ? p->layers[i] : p->root,
                           .usr = -1,
                           .ids = p->ids,
                           .fn = put_manifest_entry,
                           .arg = &t,
                           .whiteouts = i > 0};
    cut_init(&t.cut);
    t.window = malloc(WINDOW);
    t.squeeze = squeeze_new(p->threads ? p->threads : 1, take_frame, &t, err);
    if (!t.window)
        return err_set(err, ERR_LIMIT, "out of memory");
    if (!t.squeeze)
        return -1;
    jot_object(document, NULL);
    jot_array(document, "packs");
    if (image_walk(&w, err) < 0 || end_layer(&t, err) < 0)
        return -1;
    jot_end(document, '}');
    return 0;
}

static int put_mark(struct archive *to, struct err *err) {
    struct buf mark DEFER(buf_done) = BUF(16);
    if (!buf_addf(&mark, "%s", PACKS_VERSION))
        return err_set(err, ERR_LIMIT, "out of memory");
    return pack_put_text(to, PACKS_MARK, &mark, err);
}

int image_to_packs(struct pack *p, struct err *err) {
    struct archive *a DEFER(pack_writer_free) = pack_writer_open(p, err);
    struct buf text DEFER(buf_done) = BUF(DOCUMENT_MAX),
                    own DEFER(buf_done) = BUF(CONFIG_BYTES_MAX + 1);
    struct map written DEFER(numbered_free) = {0};
    struct jot j = JOT(&text);
    if (!a || put_mark(a, err) < 0 || image_config_print(p->config, &own, err) < 0)
        return -1;
    jot_object(&j, NULL);
    jot_array(&j, "layers");
    for (size_t i = 0; i < (p->layer_count ? p->layer_count : 1); i++)
        if (put_layer(p, i, a, &j, &written, err) < 0)
            return -1;
    jot_end(&j, ']');
    jot_raw(&j, "image", own.data);
    jot_end(&j, '}');
    if (j.failed)
        return err_set(err, ERR_LIMIT, "the image has too many packs");
    return pack_put_text(a, PACKS_IMAGE, &text, err) < 0 ? -1 : pack_writer_close(a, err);
}
