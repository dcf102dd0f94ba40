#include "image/import.h"

#include <archive_entry.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"
#include "image/from_packs.h"
#include "image/merged.h"
#include "image/oci.h"
#include "image/spool.h"
#include "image/to_packs.h"

enum {
    BLOCK = 128 << 10,
    INDEX_DEPTH_MAX = 3,
    FILTERS_MAX = 2, /* one compression and the tar: more would allow decompression bombs */
};

/* result: of the function of libarchive that opened the archive. */
static int reader_opened(struct archive *a, int result, struct err *err) {
    if (result == ARCHIVE_OK) {
        if (archive_filter_count(a) <= FILTERS_MAX)
            return 0;
        err_set(err, ERR_INVALID, "the image archive is compressed more than once");
        return err_remedy(err, "compress the tar once, with gzip, xz or zstd");
    }
    const char *why = archive_error_string(a);
    err_set(err, ERR_INVALID, "unknown format of the image archive: %.160s", why ? why : "");
    return err_remedy(err, "use a tar, plain or compressed with gzip, xz or zstd");
}

static int open_reader(int fd, struct archive **ret, struct err *err) {
    struct archive *a = unpack_reader();
    *ret = a;
    return a ? reader_opened(a, archive_read_open_fd(a, fd, BLOCK), err)
             : err_set(err, ERR_LIMIT, "out of memory");
}

/* ---- layers ---- */

static int apply(struct unpack *u, int fd, bool lowest, struct err *err) {
    struct archive *a DEFER(unpack_reader_free) = NULL;
    if (!lowest) {
        struct archive *marks DEFER(unpack_reader_free) = NULL;
        if (open_reader(fd, &marks, err) < 0 || unpack_whiteouts(u, marks, err) < 0)
            return -1;
        if (lseek(fd, 0, SEEK_SET) < 0)
            return err_sys(err, "cannot read a layer of the image again");
    }
    return open_reader(fd, &a, err) < 0 ? -1 : unpack_rest(u, a, true, err);
}

static int apply_numbered(struct unpack *u, int fd, size_t i, struct err *err) {
    return apply(u, fd, i == 0, err) < 0 ? err_wrap(err, "image layer %zu", i + 1) : 0;
}

/* ---- OCI ---- */

static int find_manifest(const struct spool *s, struct buf *json, struct err *err) {
    struct oci_blob blob;
    if (spool_read(s, "index.json", OCI_JSON_MAX, json, err) < 0)
        return -1;
    for (int depth = 0; depth < INDEX_DEPTH_MAX; depth++) {
        if (oci_index_read(json->data ? json->data : "", json->len, image_arch(), &blob, err) < 0)
            return -1;
        buf_done(json);
        *json = BUF(OCI_JSON_MAX);
        if (spool_read_blob(s, &blob, json, err) < 0)
            return -1;
        if (!blob.is_index)
            return 0;
    }
    return err_set(err, ERR_LIMIT, "the image archive's OCI indexes are nested more than %d deep",
                   INDEX_DEPTH_MAX);
}

static int import_oci(const struct spool *s, struct unpack *u, struct image_config *ret,
                      struct err *err) {
    struct buf json DEFER(buf_done) = BUF(OCI_JSON_MAX);
    struct buf config DEFER(buf_done) = BUF(OCI_JSON_MAX);
    struct oci_manifest *m DEFER_FREE = calloc(1, sizeof(*m));
    if (!m)
        return err_set(err, ERR_LIMIT, "out of memory");
    if (find_manifest(s, &json, err) < 0 ||
        oci_manifest_read(json.data ? json.data : "", json.len, m, err) < 0 ||
        spool_read_blob(s, &m->config, &config, err) < 0 ||
        image_config_read_oci(config.data ? config.data : "", config.len, ret, err) < 0)
        return -1;
    for (size_t i = 0; i < m->count; i++) {
        int fd DEFER_CLOSE = spool_open_blob(s, &m->layers[i], err);
        if (fd < 0 || apply_numbered(u, fd, i, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- Docker ---- */

typedef char diff_ids[OCI_LAYERS_MAX][OCI_DIGEST_SIZE];

static int apply_docker(const struct spool *s, struct unpack *u, const struct docker_manifest *m,
                        size_t i, const char *wanted, struct err *err) {
    char found[OCI_DIGEST_SIZE];
    uint64_t size;
    int fd DEFER_CLOSE = spool_open(s, m->layers[i], err);
    if (fd < 0 || spool_hash(fd, found, &size, err) < 0)
        return -1;
    if (wanted && strcmp(found, wanted) != 0)
        return err_set(
            err, ERR_INVALID,
            "layer %zu of the image does not match its hash in the image's configuration", i + 1);
    return apply_numbered(u, fd, i, err);
}

static int import_docker(const struct spool *s, struct unpack *u, struct image_config *ret,
                         struct err *err) {
    struct buf json DEFER(buf_done) = BUF(OCI_JSON_MAX);
    struct buf config DEFER(buf_done) = BUF(OCI_JSON_MAX);
    struct docker_manifest *m DEFER_FREE = calloc(1, sizeof(*m));
    diff_ids *ids DEFER_FREE = calloc(1, sizeof(*ids));
    size_t count = 0;
    if (!m || !ids)
        return err_set(err, ERR_LIMIT, "out of memory");
    if (spool_read(s, "manifest.json", OCI_JSON_MAX, &json, err) < 0 ||
        docker_manifest_read(json.data ? json.data : "", json.len, m, err) < 0 ||
        spool_read(s, m->config, OCI_JSON_MAX, &config, err) < 0 ||
        image_config_read_oci(config.data ? config.data : "", config.len, ret, err) < 0 ||
        oci_diff_ids_read(config.data ? config.data : "", config.len, *ids, &count, err) < 0)
        return -1;
    if (count && count != m->count)
        return err_set(err, ERR_INVALID,
                       "the image's configuration lists %zu layers, but the archive has %zu", count,
                       m->count);
    for (size_t i = 0; i < m->count; i++)
        if (apply_docker(s, u, m, i, count ? (*ids)[i] : NULL, err) < 0)
            return -1;
    return 0;
}

/* ---- one layer ---- */

/* A layer inside of another archive. */
struct inner {
    struct archive *outer;
};

static la_ssize_t inner_read(struct archive *a, void *arg, const void **ret) {
    struct inner *in = arg;
    size_t n = 0;
    la_int64_t at;
    int r = archive_read_data_block(in->outer, ret, &n, &at);
    if (r == ARCHIVE_EOF)
        return 0;
    if (r == ARCHIVE_OK)
        return (la_ssize_t)n;
    const char *why = archive_error_string(in->outer);
    archive_set_error(a, EINVAL, "%s", why ? why : "the archive ends early");
    return -1;
}

static int unpack_inner(struct unpack *u, struct archive *outer, struct err *err) {
    struct archive *a DEFER(unpack_reader_free) = unpack_reader();
    struct inner in = {.outer = outer};
    if (!a)
        return err_set(err, ERR_LIMIT, "out of memory");
    return reader_opened(a, archive_read_open(a, &in, NULL, inner_read, NULL), err) < 0
               ? -1
               : unpack_rest(u, a, true, err);
}

static int read_layer_config(struct archive *a, struct archive_entry *e, struct image_config *ret,
                             struct err *err) {
    la_int64_t size = archive_entry_size(e);
    char *text DEFER_FREE = size < 0 || size > OCI_JSON_MAX ? NULL : malloc((size_t)size + 1);
    if (!text || archive_read_data(a, text, (size_t)size) != size)
        return err_set(err, ERR_INVALID, "the configuration of the layer is damaged");
    return image_config_read_oci(text, (size_t)size, ret, err);
}

/*
 * Adds a layer to those that were unpacked before, so that they become one. It is stored first:
 * its whiteouts delete what the layers before it have, and only that, wherever they are in it.
 */
static int weld_layer(struct archive *a, struct archive_entry *e, int dir, struct unpack *u,
                      struct err *err) {
    struct spool *s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(err, ERR_LIMIT, "out of memory");
    *s = (struct spool){.dir = dir, .limit = u->limits.bytes, .unpack = u, .report = u->report};
    int fd DEFER_CLOSE = spool_take(s, a, e, err) < 0 ? -1 : spool_open(s, LAYER_NAME, err);
    int r = fd < 0 ? -1 : apply(u, fd, false, err);
    spool_done(s);
    free(s);
    return r;
}

/*
 * The daemon sends the layers of an image one after the other, each to a process of its own: a tar
 * with the OCI configuration, and then the layer. Several layers become one. Without a layer only
 * the configuration is new.
 */
static int import_layer(struct archive *a, struct archive_entry *e, int dir, struct unpack *u,
                        struct image_config *ret, struct err *err) {
    int r;
    if (read_layer_config(a, e, ret, err) < 0)
        return -1;
    u->merges = u->is_layer;
    if (u->merges && merged_begin(u, err) < 0)
        return -1;
    for (bool first = true; (r = unpack_next(u, a, &e, err)) > 0; first = false) {
        if (strcmp(unpack_name(e), LAYER_NAME) != 0)
            return err_set(err, ERR_INVALID, "the archive of a layer has an unexpected entry");
        if ((first ? unpack_inner(u, a, err) : weld_layer(a, e, dir, u, err)) < 0)
            return -1;
    }
    return r;
}

/* ---- packs ---- */

static int read_packs(struct from_packs *f, struct unpack *u, bool marks, struct err *err) {
    struct archive *a DEFER(unpack_reader_free) = unpack_reader();
    if (!a)
        return err_set(err, ERR_LIMIT, "out of memory");
    if (archive_read_open(a, f, NULL, from_packs_read, NULL) != ARCHIVE_OK)
        return from_packs_failed(f, err)
                   ? -1
                   : err_set(err, ERR_INVALID, "cannot read a layer from its packs");
    int r = marks ? unpack_whiteouts(u, a, err) : unpack_rest(u, a, true, err);
    if (r < 0)
        from_packs_failed(f, err); /* its error has the cause, which libarchive would shorten */
    return r;
}

static int apply_packs(const struct spool *s, struct unpack *u, const struct packs_image *image,
                       size_t i, bool marks, struct err *err) {
    struct from_packs *f DEFER(from_packs_close) = from_packs_open(s, u, image, i, marks, err);
    return !f || read_packs(f, u, marks, err) < 0 ? err_wrap(err, "image layer %zu", i + 1) : 0;
}

static int import_packs(const struct spool *s, struct unpack *u, struct image_config *ret,
                        struct err *err) {
    struct packs_image image DEFER(packs_image_done) = {.json = NULL};
    if (packs_image_read(s, &image, ret, err) < 0)
        return -1;
    for (size_t i = 0; i < image.layers; i++)
        if ((i && apply_packs(s, u, &image, i, true, err) < 0) ||
            apply_packs(s, u, &image, i, false, err) < 0)
            return -1;
    return 0;
}

/* ---- detect the format ---- */

static bool has(const struct spool *s, const char *name) {
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->names[i], name) == 0)
            return true;
    return false;
}

/* Names that start an OCI layout or a Docker archive, not a root filesystem. */
static bool is_of_images(const char *path) {
    static const char *const names[] = {"oci-layout",   "index.json", "manifest.json",
                                        "repositories", "blobs",      PACKS_MARK};
    size_t n = strcspn(path, "/");
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strlen(names[i]) == n && strncmp(path, names[i], n) == 0)
            return true;
    size_t hex = strspn(path, "0123456789abcdef");
    return hex == 64 && (path[64] == '\0' || path[64] == '/' || strcmp(path + 64, ".json") == 0 ||
                         strcmp(path + 64, ".tar") == 0);
}

static int import_images(struct archive *a, struct archive_entry *e, int dir, struct unpack *u,
                         struct image_config *ret, struct err *err) {
    struct spool *s = calloc(1, sizeof(*s));
    int r = 1;
    if (!s)
        return err_set(err, ERR_LIMIT, "out of memory");
    *s = (struct spool){.dir = dir, .limit = u->limits.bytes, .unpack = u, .report = u->report};
    do
        r = spool_take(s, a, e, err) < 0 ? -1 : unpack_next(u, a, &e, err);
    while (r > 0);
    if (r == 0 && has(s, PACKS_MARK))
        r = import_packs(s, u, ret, err);
    else if (r == 0 && has(s, "index.json"))
        r = import_oci(s, u, ret, err);
    else if (r == 0 && has(s, "manifest.json"))
        r = import_docker(s, u, ret, err);
    else if (r == 0)
        r = err_set(err, ERR_INVALID, "the image archive has neither index.json nor manifest.json");
    spool_done(s);
    free(s);
    return r;
}

/* ---- root filesystem ---- */

static int read_own_config(struct archive *a, struct archive_entry *e, struct image_config *ret,
                           struct err *err) {
    char text[CONFIG_BYTES_MAX + 1];
    if (archive_entry_size(e) > CONFIG_BYTES_MAX)
        return err_set(err, ERR_LIMIT, "file '%s' in the image archive is larger than %d KiB",
                       IMAGE_CONFIG_NAME, CONFIG_BYTES_MAX >> 10);
    la_ssize_t n = archive_read_data(a, text, sizeof(text));
    if (n < 0 || n > CONFIG_BYTES_MAX)
        return err_set(err, ERR_INVALID, "file '%s' in the image archive is damaged",
                       IMAGE_CONFIG_NAME);
    return image_config_read(text, (size_t)n, ret, err);
}

static int import_tree(struct archive *a, struct archive_entry *e, struct unpack *u,
                       struct image_config *ret, struct err *err) {
    char path[IMAGE_PATH_SIZE];
    if (image_path(unpack_name(e), path, err) < 0)
        return -1;
    if (strcmp(path, IMAGE_CONFIG_NAME) == 0) {
        if (read_own_config(a, e, ret, err) < 0)
            return -1;
    } else if (unpack_entry(u, a, e, false, err) < 0) {
        return -1;
    }
    return unpack_rest(u, a, false, err);
}

static void entry_free(struct archive_entry **e) {
    if (*e)
        archive_entry_free(*e);
}

/* Reads the first entry of the archive. Skips "./", which does not show the format, and returns it
 * as *ret_top. */
static int first_name(struct unpack *u, struct archive *a, struct archive_entry **ret,
                      struct archive_entry **ret_top, char path[IMAGE_PATH_SIZE], struct err *err) {
    int r = unpack_next(u, a, ret, err);
    if (r <= 0)
        return r;
    if (image_path(unpack_name(*ret), path, err) < 0)
        return -1;
    if (*path)
        return 1;
    *ret_top = archive_entry_clone(*ret);
    r = unpack_next(u, a, ret, err);
    return r <= 0 ? r : image_path(unpack_name(*ret), path, err) < 0 ? -1 : 1;
}

/* An image that does not state its processor is for the processor of this host. */
static int settle_arch(struct image_config *c, struct err *err) {
    if (c->arch && strcmp(c->arch, image_arch()) != 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "the image is for processor %.40s, but this host has %s", c->arch,
                       image_arch());
    if (!c->arch && !(c->arch = strdup(image_arch())))
        return err_set(err, ERR_LIMIT, "out of memory");
    return 0;
}

int image_import(int in, int spool, struct unpack *u, struct image_config *ret, struct err *err) {
    struct archive *a DEFER(unpack_reader_free) = NULL;
    struct archive_entry *e, *top DEFER(entry_free) = NULL;
    char path[IMAGE_PATH_SIZE];
    *ret = (struct image_config){0};
    if (open_reader(in, &a, err) < 0)
        return -1;
    int r = first_name(u, a, &e, &top, path, err);
    if (r == 0) /* "./" alone is an image without files */
        r = top ? unpack_entry(u, a, top, false, err)
                : err_set(err, ERR_INVALID, "the image archive is empty");
    else if (r > 0 && strcmp(path, LAYER_MARK) == 0)
        r = import_layer(a, e, spool, u, ret, err);
    else if (r > 0 && is_of_images(path))
        r = import_images(a, e, spool, u, ret, err);
    else if (r > 0)
        r = (top && unpack_entry(u, a, top, false, err) < 0) ? -1 : import_tree(a, e, u, ret, err);
    if (r == 0)
        r = settle_arch(ret, err);
    if (r == 0)
        r = unpack_finish(u, err);
    if (r < 0)
        image_config_done(ret);
    return r;
}
