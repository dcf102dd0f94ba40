#include "cli/image/arrange.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/beneath.h"
#include "base/hex.h"
#include "base/native.h"
#include "base/sha256.h"

enum {
    FILES_MAX = 1024,
    DOCUMENT_MAX = 4 << 20,
    INDEX_DEPTH_MAX = 3,
    PARTS_MAX = 2 + 128, /* manifest, configuration, layers: as many as the daemon imports */
    PIECE = 256 << 10,
    BLOCKS_MAX = 1 << 20, /* headers that are read to find the files */
};

/* A file of the layout in a tar. */
struct place {
    char path[96];
    uint64_t at, size;
};

struct part {
    char path[96]; /* blobs/sha256/... */
    char from[96]; /* its file in the archive; empty: `manifest` */
    uint64_t size;
};

struct arranged {
    int fd;
    bool is_dir;
    struct place *places;
    size_t place_count;
    struct part parts[PARTS_MAX];
    size_t count;
    char *manifest; /* of a Docker archive, which has none of this form */
};

void arranged_free(struct arranged **a) {
    if (*a) {
        free((*a)->places);
        free((*a)->manifest);
    }
    free(*a);
    *a = NULL;
}

/* ---- files of the layout ---- */

/* Lists the files of the tar. False: it is not a layout. */
static bool list_places(struct arranged *a) {
    struct tar_reader *r DEFER_FREE = xnew(struct tar_reader);
    struct tar_entry *e DEFER_FREE = xnew(struct tar_entry);
    uint8_t block[TAR_BLOCK];
    uint64_t at = 0;
    a->places = xcalloc(FILES_MAX, sizeof(*a->places));
    for (unsigned i = 0; i < BLOCKS_MAX; i++) {
        if (pread(a->fd, block, sizeof(block), (off_t)at) != (ssize_t)sizeof(block))
            return false;
        at += sizeof(block);
        enum tar_step step = tar_next(r, block, e);
        if (step == TAR_END)
            return true;
        if (step == TAR_BAD)
            return false;
        if (step == TAR_MORE)
            continue;
        const char *path = strncmp(e->path, "./", 2) == 0 ? e->path + 2 : e->path;
        if (e->kind == TAR_FILE && strlen(path) < sizeof(a->places->path)) {
            if (a->place_count == FILES_MAX)
                return false;
            struct place *p = &a->places[a->place_count++];
            snprintf(p->path, sizeof(p->path), "%s", path);
            p->at = at;
            p->size = e->size;
        }
        at += e->size + tar_padding(e->size);
    }
    return false;
}

static const struct place *place_of(const struct arranged *a, const char *path) {
    for (size_t i = 0; i < a->place_count; i++)
        if (strcmp(a->places[i].path, path) == 0)
            return &a->places[i];
    return NULL;
}

/* Opens a file of the layout. *at: where it starts. -1: it is not there. */
static int open_part(const struct arranged *a, const char *path, uint64_t *at, uint64_t *size) {
    struct stat st;
    struct err ignored;
    if (!a->is_dir) {
        const struct place *p = place_of(a, path);
        *at = p ? p->at : 0;
        *size = p ? p->size : 0;
        return p ? fcntl(a->fd, F_DUPFD_CLOEXEC, 3) : -1;
    }
    int fd DEFER_CLOSE = beneath_open_file(a->fd, path, &ignored);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -1;
    *at = 0;
    *size = (uint64_t)st.st_size;
    return TAKE_FD(fd);
}

static json_t *load_document(const struct arranged *a, const char *path) {
    uint64_t at, size;
    int fd DEFER_CLOSE = open_part(a, path, &at, &size);
    char *text DEFER_FREE = fd < 0 || size > DOCUMENT_MAX ? NULL : xmalloc((size_t)size + 1);
    return text && pread(fd, text, (size_t)size, (off_t)at) == (ssize_t)size
               ? json_loadb(text, (size_t)size, JSON_REJECT_DUPLICATES, NULL)
               : NULL;
}

/* ---- the image for this processor ---- */

static const char *arrange_text(const json_t *object, const char *name) {
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

/* Adds a blob that the layout has. */
static bool add_part(struct arranged *a, const json_t *d) {
    const char *digest = arrange_text(d, "digest");
    json_int_t wanted = json_integer_value(json_object_get(d, "size"));
    struct part *p = &a->parts[a->count];
    uint64_t at;
    if (a->count == PARTS_MAX || strncmp(digest, "sha256:", 7) != 0 || !hex_is(digest + 7, 64))
        return false;
    snprintf(p->path, sizeof(p->path), "blobs/sha256/%s", digest + 7);
    memcpy(p->from, p->path, sizeof(p->from));
    int fd DEFER_CLOSE = open_part(a, p->path, &at, &p->size);
    if (fd < 0 || wanted < 0 || p->size != (uint64_t)wanted)
        return false;
    a->count++;
    return true;
}

/* The manifest for this processor, or the only one that states no processor; NULL: neither. */
static const json_t *choose_manifest(const json_t *list) {
    const json_t *silent = NULL;
    size_t i, silents = 0;
    json_t *d;
    json_array_foreach(list, i, d) {
        const json_t *platform = json_object_get(d, "platform");
        const char *arch = arrange_text(platform, "architecture"),
                   *os = arrange_text(platform, "os");
        if (strcmp(arch, NATIVE_OCI_ARCH) == 0 && (!*os || strcmp(os, "linux") == 0))
            return d;
        if (!*arch) {
            silent = d;
            silents++;
        }
    }
    return silents == 1 ? silent : NULL;
}

static bool take_manifest(struct arranged *a, const json_t *manifest) {
    const json_t *layers = json_object_get(manifest, "layers");
    size_t i;
    json_t *d;
    if (!json_array_size(layers) || !add_part(a, json_object_get(manifest, "config")))
        return false;
    json_array_foreach(layers, i, d) {
        if (!add_part(a, d))
            return false;
    }
    return true;
}

static bool find_image(struct arranged *a) {
    json_t *json DEFER(json_decrefp) = load_document(a, "index.json");
    for (int depth = 0; depth < INDEX_DEPTH_MAX; depth++) {
        const json_t *d = choose_manifest(json_object_get(json, "manifests"));
        a->count = 0;
        if (!d || !add_part(a, d))
            return false;
        json_t *next = load_document(a, a->parts[0].path);
        json_decref(json);
        json = next;
        if (!json_object_get(json, "manifests"))
            return json && take_manifest(a, json);
    }
    return false;
}

/* ---- Docker archives ---- */

static void part_name(struct part *p, const char hex[SHA256_HEX]) {
    snprintf(p->path, sizeof(p->path), "blobs/sha256/%s", hex);
}

static json_t *part_described(const struct part *p, const char *type) {
    return json_pack("{s:s, s:o, s:I}", "mediaType", type, "digest",
                     json_sprintf("sha256:%s", p->path + strlen("blobs/sha256/")), "size",
                     (json_int_t)p->size);
}

/* Adds a file of a Docker archive, named by its digest. */
static bool add_file(struct arranged *a, const char *path) {
    struct part *p = &a->parts[a->count];
    char *piece DEFER_FREE = xmalloc(PIECE), hex[SHA256_HEX];
    struct sha256 sum;
    uint64_t at;
    if (a->count == PARTS_MAX || strlen(path) >= sizeof(p->from))
        return false;
    int fd DEFER_CLOSE = open_part(a, path, &at, &p->size);
    if (fd < 0)
        return false;
    snprintf(p->from, sizeof(p->from), "%s", path);
    sha256_init(&sum);
    for (uint64_t left = p->size; left;) {
        ssize_t n = pread(fd, piece, left < PIECE ? (size_t)left : PIECE, (off_t)at);
        if (n <= 0)
            return false;
        sha256_add(&sum, piece, (size_t)n);
        at += (uint64_t)n;
        left -= (uint64_t)n;
    }
    sha256_end_hex(&sum, hex);
    part_name(p, hex);
    a->count++;
    return true;
}

/* True if the layers have the digests that the configuration lists. */
static bool layers_match(const struct arranged *a) {
    json_t *config DEFER(json_decrefp) = load_document(a, a->parts[1].from);
    const json_t *ids = json_object_get(json_object_get(config, "rootfs"), "diff_ids");
    size_t i;
    json_t *id;
    if (json_array_size(ids) != a->count - 2)
        return false;
    json_array_foreach(ids, i, id) {
        const char *text = json_string_value(id), *own = a->parts[2 + i].path;
        if (!text || strncmp(text, "sha256:", 7) != 0 ||
            strcmp(text + 7, own + strlen("blobs/sha256/")) != 0)
            return false;
    }
    return true;
}

static bool write_manifest(struct arranged *a) {
    json_t *layers = json_array();
    char hex[SHA256_HEX];
    for (size_t i = 2; i < a->count; i++)
        json_array_append_new(
            layers, part_described(&a->parts[i], "application/vnd.oci.image.layer.v1.tar"));
    json_t *manifest DEFER(json_decrefp) = json_pack(
        "{s:i, s:o, s:o}", "schemaVersion", 2, "config",
        part_described(&a->parts[1], "application/vnd.oci.image.config.v1+json"), "layers", layers);
    a->manifest = json_dumps(manifest, JSON_COMPACT);
    if (!a->manifest)
        return false;
    a->parts[0].size = strlen(a->manifest);
    sha256_hex(a->manifest, strlen(a->manifest), hex);
    part_name(&a->parts[0], hex);
    return true;
}

/* The archive of `docker save`: its one image gets a manifest of OCI. */
static bool find_docker(struct arranged *a) {
    json_t *json DEFER(json_decrefp) = load_document(a, "manifest.json");
    const json_t *image = json_array_get(json, 0), *layers = json_object_get(image, "Layers");
    size_t i;
    json_t *path;
    a->count = 1;
    if (json_array_size(json) != 1 || !json_array_size(layers) ||
        !add_file(a, arrange_text(image, "Config")))
        return false;
    json_array_foreach(layers, i, path) {
        if (!json_is_string(path) || !add_file(a, json_string_value(path)))
            return false;
    }
    return layers_match(a) && write_manifest(a);
}

/* Every layout has this file. */
static bool has_mark(const struct arranged *a) {
    uint64_t at, size;
    int fd DEFER_CLOSE = open_part(a, "oci-layout", &at, &size);
    return fd >= 0;
}

struct arranged *arrange_open(int fd, bool is_dir) {
    struct arranged *a DEFER(arranged_free) = xnew(struct arranged);
    a->fd = fd;
    a->is_dir = is_dir;
    if (!is_dir && !list_places(a))
        return NULL;
    bool found = has_mark(a) ? find_image(a) : !is_dir && find_docker(a);
    return found ? TAKE(a) : NULL;
}

/* ---- sending ---- */

uint64_t arranged_bytes(const struct arranged *a) {
    uint64_t sum = 0;
    for (size_t i = 0; i < a->count; i++)
        sum += a->parts[i].size;
    return sum;
}

static int send_head(const char *path, uint64_t size, layout_write_fn *write, void *arg,
                     struct err *err) {
    uint8_t head[TAR_HEAD_MAX];
    struct tar_entry *e DEFER_FREE = xnew(struct tar_entry);
    *e = (struct tar_entry){.kind = TAR_FILE, .mode = 0644, .size = size};
    snprintf(e->path, sizeof(e->path), "%s", path);
    return write(arg, head, tar_put(head, e), err);
}

static int send_text(const char *path, const char *text, size_t n, layout_write_fn *write,
                     void *arg, struct err *err) {
    static const uint8_t zeros[TAR_BLOCK];
    return send_head(path, n, write, arg, err) < 0 || write(arg, text, n, err) < 0
               ? -1
               : write(arg, zeros, tar_padding(n), err);
}

static int send_part(const struct arranged *a, const struct part *p, layout_write_fn *write,
                     void *arg, struct err *err) {
    uint64_t at, size;
    if (!p->from[0])
        return send_text(p->path, a->manifest, (size_t)p->size, write, arg, err);
    int fd DEFER_CLOSE = open_part(a, p->from, &at, &size);
    if (fd < 0 || size != p->size)
        return err_set(err, ERR_BUSY, "file '%s' of the archive was changed while it was read",
                       p->from);
    return send_head(p->path, size, write, arg, err) < 0
               ? -1
               : layout_send_bytes(fd, at, size, p->path, write, arg, err);
}

static int send_index(const struct arranged *a, layout_write_fn *write, void *arg,
                      struct err *err) {
    char index[400];
    int n =
        snprintf(index, sizeof(index),
                 "{\"schemaVersion\":2,\"manifests\":[{\"mediaType\":"
                 "\"application/vnd.oci.image.manifest.v1+json\",\"digest\":\"sha256:%s\","
                 "\"size\":%llu}]}",
                 a->parts[0].path + strlen("blobs/sha256/"), (unsigned long long)a->parts[0].size);
    return send_text("index.json", index, (size_t)n, write, arg, err);
}

int arranged_send(const struct arranged *a, layout_write_fn *write, void *arg, struct err *err) {
    if (send_index(a, write, arg, err) < 0)
        return -1;
    for (size_t i = 0; i < a->count; i++)
        if (send_part(a, &a->parts[i], write, arg, err) < 0)
            return -1;
    return layout_send_end(write, arg, err);
}
