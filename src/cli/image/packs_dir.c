#include "cli/image/packs_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fs/beneath.h"
#include "base/hex.h"

#define MARK "carrel-packs"
#define ASIDE "incomplete" /* name of the file that is being written */

enum { NAME_SIZE = 300, HASH_DIGITS = 64 };

/* ---- export ---- */

static bool is_hashed(const char *path, const char *folder) {
    size_t n = strlen(folder);
    return strncmp(path, folder, n) == 0 && path[n] == '/' && hex_is(path + n + 1, HASH_DIGITS);
}

/* The name that a file of the archive gets. -1: the archive may not contain it. */
static int packs_dir_place(const struct layout_reader *r, char ret[NAME_SIZE]) {
    const struct packs_dir *p = (const struct packs_dir *)r; /* `layout` is its first member */
    const char *path = r->entry->path;
    bool is_image = strcmp(path, "image.json") == 0;
    snprintf(ret, NAME_SIZE, "%s%s%s", is_image ? "images/" : "", is_image ? p->name : path,
             is_image ? ".json" : "");
    return r->entry->kind == TAR_FILE && (is_image || strcmp(path, MARK) == 0 ||
                                          is_hashed(path, "packs") || is_hashed(path, "manifests"))
               ? 0
               : -1;
}

/* A file that its hash names is there already if it has the same size. */
static int packs_dir_begin(struct layout_reader *r, struct err *err) {
    char name[NAME_SIZE];
    struct stat st;
    if (packs_dir_place(r, name) < 0)
        return err_set(err, ERR_INVALID,
                       "the image archive contains '%.120s', which is not part of packs",
                       r->entry->path);
    if (strncmp(name, "images/", 7) != 0 && fstatat(r->dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(st.st_mode) && (uint64_t)st.st_size == r->entry->size)
        return 0;
    r->file = openat(r->dir, ASIDE, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    return r->file < 0 ? err_sys(err, "cannot write '%s' of the packs", name) : 0;
}

static int packs_dir_sync(int dir, const char *folder, struct err *err) {
    int fd DEFER_CLOSE = openat(dir, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 || fsync(fd) < 0
               ? err_sys(err, "cannot write directory '%s' of the packs", folder)
               : 0;
}

/* An image is named after all its packs are on the disk. */
static int packs_dir_end(struct layout_reader *r, struct err *err) {
    char name[NAME_SIZE];
    packs_dir_place(r, name);
    bool is_image = strncmp(name, "images/", 7) == 0;
    if (is_image &&
        (packs_dir_sync(r->dir, "packs", err) < 0 || packs_dir_sync(r->dir, "manifests", err) < 0))
        return -1;
    return fsync(r->file) < 0 || renameat(r->dir, ASIDE, r->dir, name) < 0
               ? err_sys(err, "cannot write '%s' of the packs", name)
               : 0;
}

static int packs_dir_make(int dir, const char *path, struct err *err) {
    static const char *const folders[] = {"packs", "manifests", "images"};
    for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++)
        if (mkdirat(dir, folders[i], 0755) < 0 && errno != EEXIST)
            return err_sys(err, "cannot create directory '%s/%s'", path, folders[i]);
    return 0;
}

int packs_dir_open(struct packs_dir *p, const char *path, const char *name, struct err *err) {
    static const struct layout_kind kind = {
        .what = "packs", .begin = packs_dir_begin, .end = packs_dir_end};
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return err_sys(err, "cannot create directory '%s'", path);
    int dir DEFER_CLOSE = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return err_sys(err, "cannot open directory '%s'", path);
    if (!layout_is_empty(dir) && faccessat(dir, "packs", F_OK, 0) < 0) {
        err_set(err, ERR_EXISTS, "directory '%s' has files, but no packs", path);
        return err_remedy(err, "use a new directory, or one that has packs");
    }
    if (packs_dir_make(dir, path, err) < 0)
        return -1;
    p->name = name;
    layout_start(&p->layout, &kind, TAKE_FD(dir));
    return 0;
}

int packs_dir_finish(struct packs_dir *p, struct err *err) {
    return layout_finish(&p->layout, err) < 0 || packs_dir_sync(p->layout.dir, "images", err) < 0 ||
                   packs_dir_sync(p->layout.dir, ".", err) < 0
               ? -1
               : 0;
}

void packs_dir_done(struct packs_dir *p) {
    if (p->layout.dir >= 0)
        unlinkat(p->layout.dir, ASIDE, 0);
    layout_done(&p->layout);
}

/* ---- import ---- */

struct packs_sending {
    int dir;
    layout_write_fn *write;
    void *arg;
    json_t *sent; /* paths of hashed files, as members; layers may share them */
};

static int packs_dir_send_one(const struct packs_sending *s, const char *path, const char *as,
                              struct err *err) {
    return layout_send_file(s->dir, path, as, "packs", s->write, s->arg, err);
}

/* hash: as the image names it, which may be anything. */
static int packs_dir_send_hashed(const struct packs_sending *s, const char *folder,
                                 const json_t *hash, struct err *err) {
    const char *hex = json_string_value(hash);
    char path[NAME_SIZE];
    if (!hex || !hex_is(hex, HASH_DIGITS))
        return err_set(err, ERR_INVALID, "the image in the directory of packs is damaged");
    snprintf(path, sizeof(path), "%s/%s", folder, hex);
    if (json_object_get(s->sent, path))
        return 0;
    json_object_set_new(s->sent, path, json_true());
    return packs_dir_send_one(s, path, path, err);
}

static int packs_dir_send_layers(const struct packs_sending *s, const json_t *image,
                                 struct err *err) {
    const json_t *layers = json_object_get(image, "layers");
    json_t *layer, *pack;
    size_t i, k;
    json_array_foreach(layers, i, layer) {
        if (packs_dir_send_hashed(s, "manifests", json_object_get(layer, "manifest"), err) < 0)
            return -1;
        json_array_foreach(json_object_get(layer, "packs"), k, pack) {
            if (packs_dir_send_hashed(s, "packs", pack, err) < 0)
                return -1;
        }
    }
    return 0;
}

static json_t *packs_dir_image(int dir, const char *path, struct err *err) {
    int fd DEFER_CLOSE = beneath_open_file(dir, path, err);
    json_t *json = fd < 0 ? NULL : json_loadfd(fd, JSON_REJECT_DUPLICATES, NULL);
    if (fd >= 0 && !json)
        err_set(err, ERR_INVALID, "file '%s' of the packs is damaged", path);
    return json;
}

int packs_dir_send(const char *path, const char *name, layout_write_fn *write_fn, void *arg,
                   struct err *err) {
    char image_path[NAME_SIZE];
    int dir DEFER_CLOSE = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    json_t *sent DEFER(json_decrefp) = json_object();
    const struct packs_sending s = {dir, write_fn, arg, sent};
    if (dir < 0)
        return err_sys(err, "cannot open directory '%s'", path);
    snprintf(image_path, sizeof(image_path), "images/%s.json", name);
    if (strchr(name, '/') || faccessat(dir, image_path, F_OK, 0) < 0) {
        err_set(err, ERR_NOT_FOUND, "image '%s' does not exist in directory '%s'", name, path);
        return err_remedy(err, "see: ls %s/images", path);
    }
    json_t *image DEFER(json_decrefp) = packs_dir_image(dir, image_path, err);
    if (!image || packs_dir_send_one(&s, MARK, MARK, err) < 0 ||
        packs_dir_send_one(&s, image_path, "image.json", err) < 0 ||
        packs_dir_send_layers(&s, image, err) < 0)
        return -1;
    return layout_send_end(write_fn, arg, err);
}
