#include "image/pack.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/jot.h"
#include "image/oci.h"
#include "image/to_packs.h"
#include "image/unpack.h"

enum { PIECE = 128 << 10, BLOCK = 10240 };

void pack_writer_free(struct archive **a) {
    if (*a)
        archive_write_free(*a);
}

static void entry_free(struct archive_entry **e) {
    if (*e)
        archive_entry_free(*e);
}

static int pack_failed(struct archive *a, struct err *err) {
    const char *why = archive_error_string(a);
    return err_set(err, ERR_INTERNAL, "cannot write the image archive: %.160s",
                   why ? why : "unknown error");
}

/* ---- output ---- */

static la_ssize_t to_fd(struct archive *a, void *arg, const void *bytes, size_t n) {
    const struct pack *p = arg;
    int r = write_all(p->out, bytes, n);
    if (r == 0)
        return (la_ssize_t)n;
    archive_set_error(a, -r, "%s", strerror(-r));
    return -1;
}

/* Computes the digest and size of a layer. Also writes the layer if `outer` is set. */
struct oci_layer {
    struct sha256 sum;   /* of the layer as it is stored */
    struct sha256 plain; /* of its tar */
    uint64_t size;
    struct archive *zstd;  /* compresses the layer; NULL: it is stored as it is */
    struct archive *outer; /* the OCI layout that contains the layer; NULL: do not write */
};

static la_ssize_t to_layer(struct archive *a, void *arg, const void *bytes, size_t n) {
    struct oci_layer *l = arg;
    sha256_add(&l->sum, bytes, n);
    l->size += n;
    if (!l->outer || archive_write_data(l->outer, bytes, n) == (la_ssize_t)n)
        return (la_ssize_t)n;
    archive_set_error(a, EIO, "the layer cannot be written to the OCI layout");
    return -1;
}

static struct archive *pack_writer_new(void) {
    struct archive *a = archive_write_new();
    if (!a)
        return NULL;
    archive_write_set_format_pax_restricted(a);
    archive_write_set_bytes_per_block(a, BLOCK);
    archive_write_set_bytes_in_last_block(a, BLOCK);
    return a;
}

struct archive *pack_writer_open(struct pack *p, struct err *err) {
    struct archive *a DEFER(pack_writer_free) = pack_writer_new();
    if (!a)
        err_set(err, ERR_LIMIT, "out of memory");
    else if (archive_write_open(a, p, NULL, to_fd, NULL) != ARCHIVE_OK)
        pack_failed(a, err);
    else
        return TAKE(a);
    return NULL;
}

int pack_writer_close(struct archive *a, struct err *err) {
    return archive_write_close(a) == ARCHIVE_OK ? 0 : pack_failed(a, err);
}

/* ---- tree ---- */

static int pack_put_head(struct archive *to, const char *name, uint64_t size, struct err *err) {
    struct archive_entry *e DEFER(entry_free) = archive_entry_new();
    if (!e)
        return err_set(err, ERR_LIMIT, "out of memory");
    archive_entry_copy_pathname(e, name);
    archive_entry_set_mode(e, AE_IFREG | 0644);
    archive_entry_set_size(e, (la_int64_t)size);
    archive_entry_set_mtime(e, 0, 0);
    return archive_write_header(to, e) == ARCHIVE_OK ? 0 : pack_failed(to, err);
}

struct filling {
    struct pack *pack;
    struct archive *to;
    struct archive_entry *entry;
    char *piece;
};

static int put_attribute(void *arg, const char *name, const void *value, size_t size,
                         struct err *err) {
    struct filling *f = arg;
    (void)err;
    archive_entry_xattr_add_entry(f->entry, name, value, size);
    return 0;
}

static int put_contents(struct filling *f, const struct walk_entry *e, struct err *err) {
    for (uint64_t left = e->size; left > 0;) {
        ssize_t n = read(e->fd, f->piece, left < PIECE ? (size_t)left : PIECE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? err_sys(err, "cannot read file '/%.120s'", e->path)
                         : err_set(err, ERR_BUSY, "file '/%.120s' changed while it was read",
                                   e->path);
        if (archive_write_data(f->to, f->piece, (size_t)n) != n)
            return pack_failed(f->to, err);
        left -= (uint64_t)n;
        f->pack->bytes += (uint64_t)n;
        report_progress(f->pack->report, f->pack->entries, f->pack->bytes);
    }
    return 0;
}

/* A whiteout is an empty file "dir/.wh.NAME", as in OCI layers. */
static int put_whiteout(struct filling *f, const struct walk_entry *e, struct err *err) {
    char name[IMAGE_PATH_SIZE + 8];
    const char *last = image_path_last(e->path);
    snprintf(name, sizeof(name), "%.*s" IMAGE_WHITEOUT "%s", (int)(last - e->path), e->path, last);
    f->pack->entries++;
    return pack_put_head(f->to, name, 0, err);
}

static int put_entry(void *arg, const struct walk_entry *e, struct err *err) {
    struct filling *f = arg;
    if (S_ISCHR(e->mode))
        return put_whiteout(f, e, err);
    struct archive_entry *to = archive_entry_clear(f->entry);
    f->pack->entries++;
    archive_entry_copy_pathname(to, *e->path ? e->path : "./");
    archive_entry_set_mode(to, e->mode);
    archive_entry_set_uid(to, e->uid);
    archive_entry_set_gid(to, e->gid);
    archive_entry_set_mtime(to, e->mtime, 0);
    if (S_ISREG(e->mode) && !e->twin)
        archive_entry_set_size(to, (la_int64_t)e->size);
    if (e->twin)
        archive_entry_copy_hardlink(to, e->twin);
    if (e->target)
        archive_entry_copy_symlink(to, e->target);
    if (image_attributes(e, put_attribute, f, err) < 0)
        return -1;
    int r = archive_write_header(f->to, to);
    if (r != ARCHIVE_OK && r != ARCHIVE_WARN)
        return pack_failed(f->to, err);
    return e->fd < 0 ? 0 : put_contents(f, e, err);
}

/* is_upper: the tree is a layer above others, whose whiteouts are packed too. */
static int put_tree(struct pack *p, int root, bool is_upper, struct archive *to, struct err *err) {
    struct archive_entry *entry DEFER(entry_free) = archive_entry_new();
    char *piece DEFER_FREE = malloc(PIECE);
    struct filling f = {p, to, entry, piece};
    const struct walk w = {.root = root,
                           .usr = p->usr,
                           .ids = p->ids,
                           .fn = put_entry,
                           .arg = &f,
                           .whiteouts = is_upper,
                           .over = p->over};
    if (!entry || !piece)
        return err_set(err, ERR_LIMIT, "out of memory");
    return image_walk(&w, err);
}

int pack_put_text(struct archive *to, const char *name, const struct buf *text, struct err *err) {
    if (pack_put_head(to, name, text->len, err) < 0)
        return -1;
    return archive_write_data(to, text->data, text->len) == (la_ssize_t)text->len
               ? 0
               : pack_failed(to, err);
}

/*
 * No padding after a zstd frame: a reader would take it for another frame. zstd splits its input in
 * the same places for every number of threads except 0, so this always asks for at least one.
 */
static int pack_compress(const struct pack *p, struct archive *a, struct err *err) {
    char threads[16];
    snprintf(threads, sizeof(threads), "%u", p->threads ? p->threads : 1);
    return archive_write_add_filter_zstd(a) != ARCHIVE_OK ||
                   archive_write_set_filter_option(a, "zstd", "threads", threads) != ARCHIVE_OK ||
                   archive_write_set_bytes_in_last_block(a, 1) != ARCHIVE_OK
               ? pack_failed(a, err)
               : 0;
}

static int pack_tar(struct pack *p, bool packed, struct err *err) {
    struct archive *a DEFER(pack_writer_free) = pack_writer_new();
    struct buf config DEFER(buf_done) = BUF(CONFIG_BYTES_MAX + 1);
    if (!a)
        return err_set(err, ERR_LIMIT, "out of memory");
    if (packed && pack_compress(p, a, err) < 0)
        return -1;
    if (archive_write_open(a, p, NULL, to_fd, NULL) != ARCHIVE_OK)
        return pack_failed(a, err);
    if (p->config && (image_config_print(p->config, &config, err) < 0 ||
                      pack_put_text(a, IMAGE_CONFIG_NAME, &config, err) < 0))
        return -1;
    if (put_tree(p, p->root, false, a, err) < 0)
        return -1;
    return pack_writer_close(a, err);
}

/* ---- OCI layout ---- */

/* The tar of a layer: hashes it, and passes it on to be compressed or stored. */
static la_ssize_t to_plain(struct archive *a, void *arg, const void *bytes, size_t n) {
    struct oci_layer *l = arg;
    sha256_add(&l->plain, bytes, n);
    if (!l->zstd)
        return to_layer(a, arg, bytes, n);
    if (archive_write_data(l->zstd, bytes, n) == (la_ssize_t)n)
        return (la_ssize_t)n;
    archive_set_error(a, EIO, "the layer cannot be compressed");
    return -1;
}

/* Opens a writer of one file that is compressed and passed to to_layer(). */
static struct archive *zstd_open(struct pack *p, struct oci_layer *l, struct err *err) {
    struct archive *z DEFER(pack_writer_free) = archive_write_new();
    struct archive_entry *e DEFER(entry_free) = archive_entry_new();
    if (!z || !e || archive_write_set_format_raw(z) != ARCHIVE_OK) {
        err_set(err, ERR_LIMIT, "out of memory");
        return NULL;
    }
    archive_entry_set_filetype(e, AE_IFREG);
    if (pack_compress(p, z, err) < 0)
        return NULL;
    if (archive_write_open(z, l, NULL, to_layer, NULL) != ARCHIVE_OK ||
        archive_write_header(z, e) != ARCHIVE_OK) {
        pack_failed(z, err);
        return NULL;
    }
    return TAKE(z);
}

/* Packs layer `i`. outer NULL: only computes its digests and size. */
static int pack_layer(struct pack *p, size_t i, struct archive *outer, struct oci_layer *ret,
                      struct err *err) {
    struct archive *z DEFER(pack_writer_free) = NULL;
    struct archive *a DEFER(pack_writer_free) = pack_writer_new();
    int root = p->layer_count ? p->layers[i] : p->root;
    *ret = (struct oci_layer){.outer = outer};
    sha256_init(&ret->sum);
    sha256_init(&ret->plain);
    if (!a)
        return err_set(err, ERR_LIMIT, "out of memory");
    if (p->zstd && !(z = zstd_open(p, ret, err)))
        return -1;
    ret->zstd = z;
    if (archive_write_open(a, ret, NULL, to_plain, NULL) != ARCHIVE_OK)
        return pack_failed(a, err);
    if (put_tree(p, root, i > 0, a, err) < 0)
        return -1;
    if (archive_write_close(a) != ARCHIVE_OK)
        return pack_failed(a, err);
    return z && archive_write_close(z) != ARCHIVE_OK ? pack_failed(z, err) : 0;
}

#define MEDIA "application/vnd.oci.image."

struct blob {
    char digest[OCI_DIGEST_SIZE];
    char plain[OCI_DIGEST_SIZE]; /* of a layer: digest of its tar */
    uint64_t size;
};

/* Layers of an OCI image, lowest first. */
struct blobs {
    struct blob v[IMAGE_LAYERS_MAX];
    size_t count;
};

static void put_list(struct jot *j, const char *name, const struct config_texts *t) {
    if (!t->count)
        return;
    jot_array(j, name);
    for (size_t i = 0; i < t->count; i++)
        jot_string(j, NULL, t->v[i]);
    jot_end(j, ']');
}

static void print_config(const struct image_config *c, const struct blobs *layers, struct jot *j) {
    jot_object(j, NULL);
    jot_string(j, "architecture", c->arch ? c->arch : image_arch());
    jot_object(j, "config");
    put_list(j, "Cmd", &c->command);
    put_list(j, "Entrypoint", &c->entrypoint);
    put_list(j, "Env", &c->env);
    if (c->user)
        jot_string(j, "User", c->user);
    if (c->workdir)
        jot_string(j, "WorkingDir", c->workdir);
    jot_end(j, '}');
    jot_string(j, "os", "linux");
    jot_object(j, "rootfs");
    jot_array(j, "diff_ids");
    for (size_t i = 0; i < layers->count; i++)
        jot_string(j, NULL, layers->v[i].plain);
    jot_end(j, ']');
    jot_string(j, "type", "layers");
    jot_end(j, '}');
    jot_end(j, '}');
}

static struct blob blob_of(const struct buf *text) {
    struct sha256 sum;
    uint8_t hash[SHA256_BYTES];
    struct blob b = {.size = text->len};
    sha256_init(&sum);
    sha256_add(&sum, text->data, text->len);
    sha256_end(&sum, hash);
    oci_digest_of(hash, b.digest);
    return b;
}

static void put_descriptor(struct jot *j, const char *name, const char *type, const struct blob *b,
                           const char *arch) {
    jot_object(j, name);
    jot_string(j, "mediaType", type);
    jot_string(j, "digest", b->digest);
    jot_u64(j, "size", b->size);
    if (arch) {
        jot_object(j, "platform");
        jot_string(j, "architecture", arch);
        jot_string(j, "os", "linux");
        jot_end(j, '}');
    }
    jot_end(j, '}');
}

static void print_manifest(const struct blob *config, const struct blobs *layers, bool zstd,
                           struct jot *j) {
    const char *type = zstd ? MEDIA "layer.v1.tar+zstd" : MEDIA "layer.v1.tar";
    jot_object(j, NULL);
    jot_u64(j, "schemaVersion", 2);
    jot_string(j, "mediaType", MEDIA "manifest.v1+json");
    put_descriptor(j, "config", MEDIA "config.v1+json", config, NULL);
    jot_array(j, "layers");
    for (size_t i = 0; i < layers->count; i++)
        put_descriptor(j, NULL, type, &layers->v[i], NULL);
    jot_end(j, ']');
    jot_end(j, '}');
}

static void print_index(const struct blob *manifest, const char *arch, struct jot *j) {
    jot_object(j, NULL);
    jot_u64(j, "schemaVersion", 2);
    jot_string(j, "mediaType", MEDIA "index.v1+json");
    jot_array(j, "manifests");
    put_descriptor(j, NULL, MEDIA "manifest.v1+json", manifest, arch);
    jot_end(j, ']');
    jot_end(j, '}');
}

static void blob_name(const struct blob *b, char ret[OCI_DIGEST_SIZE + 16]) {
    snprintf(ret, OCI_DIGEST_SIZE + 16, "blobs/sha256/%s", b->digest + strlen("sha256:"));
}

struct documents {
    struct buf layout, config, manifest, index;
    struct blob config_blob, manifest_blob;
};

static void documents_done(struct documents *d) {
    buf_done(&d->layout);
    buf_done(&d->config);
    buf_done(&d->manifest);
    buf_done(&d->index);
}

static int write_documents(const struct pack *p, const struct blobs *layers, struct documents *d,
                           struct err *err) {
    const struct image_config *c = p->config;
    struct jot j = JOT(&d->config), m = JOT(&d->manifest), i = JOT(&d->index);
    const char *arch = c->arch ? c->arch : image_arch();
    print_config(c, layers, &j);
    d->config_blob = blob_of(&d->config);
    print_manifest(&d->config_blob, layers, p->zstd, &m);
    d->manifest_blob = blob_of(&d->manifest);
    print_index(&d->manifest_blob, arch, &i);
    bool fits = buf_addf(&d->layout, "{\"imageLayoutVersion\":\"1.0.0\"}");
    return !fits || j.failed || m.failed || i.failed
               ? err_set(err, ERR_LIMIT, "the image's configuration is too large")
               : 0;
}

static int put_blob(struct archive *to, const struct blob *b, const struct buf *text,
                    struct err *err) {
    char name[OCI_DIGEST_SIZE + 16];
    blob_name(b, name);
    return pack_put_text(to, name, text, err);
}

/* True if an earlier layer is the same: an archive has each blob once. */
static bool is_packed(const struct blobs *layers, size_t i) {
    for (size_t k = 0; k < i; k++)
        if (strcmp(layers->v[k].digest, layers->v[i].digest) == 0)
            return true;
    return false;
}

static int measure_layers(struct pack *p, struct blobs *ret, struct err *err) {
    size_t count = p->layer_count ? p->layer_count : 1;
    for (size_t i = 0; i < count; i++) {
        struct oci_layer counted;
        uint8_t hash[SHA256_BYTES];
        if (pack_layer(p, i, NULL, &counted, err) < 0)
            return -1;
        sha256_end(&counted.sum, hash);
        oci_digest_of(hash, ret->v[i].digest);
        sha256_end(&counted.plain, hash);
        oci_digest_of(hash, ret->v[i].plain);
        ret->v[i].size = counted.size;
    }
    ret->count = count;
    return 0;
}

static int put_layers(struct pack *p, const struct blobs *layers, struct archive *to,
                      struct err *err) {
    for (size_t i = 0; i < layers->count; i++) {
        struct oci_layer written;
        char name[OCI_DIGEST_SIZE + 16];
        blob_name(&layers->v[i], name);
        if (!is_packed(layers, i) && (pack_put_head(to, name, layers->v[i].size, err) < 0 ||
                                      pack_layer(p, i, to, &written, err) < 0))
            return -1;
    }
    return 0;
}

/* The name of a layer is its hash, so each is packed twice: first to hash, then to write. */
static int pack_oci(struct pack *p, struct err *err) {
    struct archive *a DEFER(pack_writer_free) = pack_writer_new();
    struct documents d DEFER(documents_done) = {BUF(256), BUF(1 << 20), BUF(16384), BUF(4096)};
    struct blobs layers = {.count = 0};
    if (!a)
        return err_set(err, ERR_LIMIT, "out of memory");
    if (measure_layers(p, &layers, err) < 0 || write_documents(p, &layers, &d, err) < 0)
        return -1;
    if (archive_write_open(a, p, NULL, to_fd, NULL) != ARCHIVE_OK)
        return pack_failed(a, err);
    if (pack_put_text(a, "oci-layout", &d.layout, err) < 0 ||
        pack_put_text(a, "index.json", &d.index, err) < 0 ||
        put_blob(a, &d.manifest_blob, &d.manifest, err) < 0 ||
        put_blob(a, &d.config_blob, &d.config, err) < 0 || put_layers(p, &layers, a, err) < 0)
        return -1;
    return archive_write_close(a) == ARCHIVE_OK ? 0 : pack_failed(a, err);
}

int image_pack(struct pack *p, enum pack_form form, struct err *err) {
    switch (form) {
    case PACK_OCI:
    case PACK_OCI_ZST:
        p->zstd = form == PACK_OCI_ZST;
        return pack_oci(p, err);
    case PACK_PACKS:
        return image_to_packs(p, err);
    default:
        return pack_tar(p, form == PACK_TAR_ZST, err);
    }
}
