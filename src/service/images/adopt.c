/*
 * Makes an image of a finished tree: write, sync, rename, then acknowledge. Everything that the
 * image needs is on disk before it has its id, because an acknowledged image must survive a power
 * failure. A worker thread does this; it touches nothing of the service but the files of the tree.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/dir.h"
#include "gate/preset.h"
#include "service/image_disk.h"
#include "service/images/inner.h"
#include "service/images/jobs_inner.h"
#include "service/images/layered.h"
#include "service/taint.h"

enum { SYNC_MAX = 64 }; /* a layer with more entries is synced with its whole filesystem */

struct image_adoption {
    struct image_job *job;
    int images;               /* directory of all images */
    char staging[ID_SIZE];    /* name of the tree in it */
    char id[IMAGE_ID_SIZE];   /* its id */
    char *json;               /* content of image.json */
    struct image_below below; /* images below it */
    int merged, presets;      /* files of the machine, and preset files of the image below */
    bool imported;            /* a layer of an archive, not of a machine */
    bool lent;                /* it uses the host's /usr */
    uint64_t claimed;         /* disk space that the worker process reported */
    uint64_t beneath;         /* disk space of the images below */
    bool beneath_known;
    uint64_t room; /* rest of the disk quota; 0: no quota */
    /* results */
    uint64_t disk;
    bool renamed; /* false after success: the image existed already */
    struct err err;
    int result;
};

static void adoption_free(struct image_adoption *a) {
    close_fd(&a->images);
    close_fd(&a->merged);
    close_fd(&a->presets);
    free(a->json);
    free(a);
}

/* ---- disk space ---- */

/* Measures an image of an earlier version, whose size is in no record. */
static int measure_layer(int images, const char *id, uint64_t *sum) {
    char path[IMAGE_ID_SIZE + 16];
    struct stat st;
    uint64_t bytes = 0;
    snprintf(path, sizeof(path), "%s/root.erofs", id);
    if (fstatat(images, path, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        *sum += (uint64_t)st.st_blocks * 512;
        return 0;
    }
    snprintf(path, sizeof(path), "%s/root", id);
    int dir DEFER_CLOSE = dir_open(images, path);
    int r = dir < 0 ? dir : image_disk(dir, 0, &bytes);
    *sum += bytes;
    return r;
}

/* The worker process checks the size too, but a malicious archive may control it. */
static int check_room(struct image_adoption *a, int tree) {
    int r = image_disk(tree, 0, &a->disk);
    for (size_t i = 0; r == 0 && !a->beneath_known && i < a->below.count; i++)
        r = measure_layer(a->images, a->below.ids[i], &a->beneath);
    if (r < 0)
        return err_num(&a->err, r, "cannot measure the image");
    a->disk = (a->disk > a->claimed ? a->disk : a->claimed) + a->beneath;
    return a->room && a->disk > a->room
               ? err_set(&a->err, ERR_LIMIT, "the image is larger than the rest of the disk quota")
               : 0;
}

/* ---- files beside the tree ---- */

static int put_text(int dir, const char *name, const char *text) {
    int fd DEFER_CLOSE = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int r = fd < 0 ? -errno : write_all(fd, text, strlen(text));
    return r < 0 ? r : fsync(fd) < 0 ? -errno : 0;
}

static int put_records(const struct image_adoption *a, int tree) {
    char text[IMAGE_BELOW_SIZE];
    image_below_print(&a->below, text);
    int r = put_text(tree, "image.json", a->json);
    if (r == 0 && a->below.count)
        r = put_text(tree, "below", text);
    if (r == 0 && a->lent)
        r = put_text(tree, IMAGE_LENT, "");
    if (r == 0 && unlinkat(tree, "spool", AT_REMOVEDIR) < 0)
        r = -errno;
    return r;
}

/* The same for a layer that was imported, whose merged files are mounted nowhere. */
static int put_layer_presets(const struct image_adoption *a, int tree) {
    int layer DEFER_CLOSE = dir_open(tree, "root");
    if (layer < 0 || a->presets < 0)
        return layer < 0 ? layer : -ENOENT;
    if (!preset_layer_differs(a->presets, layer))
        return 0;
    if (mkdirat(tree, "presets", 0700) < 0)
        return -errno;
    int kept DEFER_CLOSE = dir_open(tree, "presets");
    int r = kept < 0 ? kept : preset_keep_layer(a->presets, layer, kept);
    return r < 0 ? r : syncfs(tree) < 0 ? -errno : 0;
}

/* Keeps the files that presets are read from, unless they are those of the image below. */
static int put_presets(const struct image_adoption *a, int tree) {
    uint8_t now[SHA256_BYTES], before[SHA256_BYTES];
    if (a->imported && a->below.count)
        return put_layer_presets(a, tree);
    if (a->merged < 0)
        return 0;
    preset_digest(a->merged, now);
    preset_digest(a->presets, before);
    if (a->presets >= 0 && memcmp(now, before, sizeof(now)) == 0)
        return 0;
    if (mkdirat(tree, "presets", 0700) < 0)
        return -errno;
    int kept DEFER_CLOSE = dir_open(tree, "presets");
    int r = kept < 0 ? kept : preset_keep(a->merged, kept);
    return r < 0 ? r : syncfs(tree) < 0 ? -errno : 0;
}

/* ---- sync ---- */

static int sync_dir(int dir, unsigned *left);

/* -ENOTSUP: the entry cannot be synced by itself. */
static int sync_entry(int dir, const char *name, unsigned *left) {
    struct stat st;
    if (!*left || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -ENOTSUP;
    --*left;
    int fd DEFER_CLOSE = S_ISDIR(st.st_mode) || S_ISREG(st.st_mode)
                             ? openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
                             : -1;
    if (fd < 0)
        return -ENOTSUP;
    return S_ISDIR(st.st_mode) ? sync_dir(fd, left) : fsync(fd) < 0 ? -errno : 0;
}

static int sync_dir(int dir, unsigned *left) {
    DIR *d DEFER(dir_close) = dir_list(dir, ".");
    int r = d ? 0 : -ENOTSUP;
    for (struct dirent *e; r == 0 && (e = readdir(d));)
        r = is_dots(e->d_name) ? 0 : sync_entry(dirfd(d), e->d_name, left);
    return r < 0 ? r : fsync(dir) < 0 ? -errno : 0;
}

/*
 * Syncs the tree. A small layer is synced file by file: syncing the filesystem would also write
 * what other programs have changed there.
 */
static int sync_tree(const struct image_adoption *a, int tree) {
    unsigned left = SYNC_MAX;
    int r = a->below.count ? sync_dir(tree, &left) : -ENOTSUP;
    if (r == -ENOTSUP)
        r = syncfs(tree) < 0 ? -errno : 0;
    return r;
}

static int adopt_rename(struct image_adoption *a) {
    struct stat st;
    if (fstatat(a->images, a->id, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return 0;
    if (renameat(a->images, a->staging, a->images, a->id) < 0)
        return errno == EEXIST || errno == ENOTEMPTY ? 0 : -errno;
    a->renamed = true;
    return fsync(a->images) < 0 ? -errno : 0;
}

/* Runs on a worker thread. */
static void adopt_work(void *arg) {
    struct image_adoption *a = arg;
    int tree DEFER_CLOSE = dir_open(a->images, a->staging);
    a->result = tree < 0 ? err_num(&a->err, tree, "cannot open the directory of a new image")
                         : check_room(a, tree);
    if (a->result < 0)
        return;
    int r = put_presets(a, tree);
    if (r == 0)
        r = put_records(a, tree);
    if (r == 0)
        r = sync_tree(a, tree);
    if (r == 0)
        r = adopt_rename(a);
    a->result = r < 0 ? err_num(&a->err, r, "cannot write the image to the disk") : 0;
}

/* ---- on the loop ---- */

/* Gives the image its name. A layer below the image has none. */
static int adopt_name(struct image_job *j, struct err *err) {
    if (j->layered && image_layered_goes_on(j->layered))
        return 0;
    if (!j->row.name[0])
        snprintf(j->row.name, sizeof(j->row.name), "image-%.12s", j->row.id + 2);
    j->row.created_ms = wall_ms();
    if ((!j->live || taint_image(j->live, j->row.owner, j->row.id, err) == 0) &&
        image_name(j->service, &j->row, err) == 0)
        return 0;
    return -1;
}

static void adopt_done(void *arg) {
    struct image_adoption *a = arg;
    struct image_job *j = a->job;
    struct err err = a->err;
    int r = a->result;
    if (r == 0 && j->cancelled)
        r = err_set(&err, ERR_GONE, "the client disconnected before the image operation ended");
    if (r == 0 && j->has_failed) {
        err = j->failed;
        r = -1;
    }
    if (a->renamed)
        j->staging[0] = '\0';
    if (r == 0) {
        snprintf(j->row.id, sizeof(j->row.id), "%s", a->id);
        j->row.disk_bytes = a->disk;
        r = adopt_name(j, &err);
    }
    j->adopting[0] = '\0';
    if (r < 0)
        image_release(j->service, a->id);
    adoption_free(a);
    image_job_finish(j, r < 0 ? &err : NULL);
}

/*
 * A layer that changes nothing, with the configuration of the image below, is that image. Returns
 * true if so.
 */
static bool adopt_is_base(struct image_job *j, const json_t *config) {
    json_t *record = json_is_true(json_object_get(j->unpacked.last, "same"))
                         ? image_record(j->service, j->below.ids[0])
                         : NULL;
    bool same =
        record && json_equal(json_object_get(record, "image"), json_object_get(config, "image"));
    json_decref(record);
    return same;
}

static int adopt_base(struct image_job *j, const struct image_sizes *sizes, struct err *err) {
    snprintf(j->row.id, sizeof(j->row.id), "%s", j->below.ids[0]);
    j->row.bytes = sizes->bytes;
    j->row.entries = sizes->entries;
    j->row.disk_bytes = sizes->disk;
    return adopt_name(j, err);
}

static int adopt_begin(struct image_job *j, struct err *err) {
    const json_t *last = j->unpacked.last;
    const char *id = json_string_value(json_object_get(last, "id"));
    json_int_t bytes = json_integer_value(json_object_get(last, "bytes"));
    json_int_t entries = json_integer_value(json_object_get(last, "entries"));
    json_int_t disk = json_integer_value(json_object_get(last, "disk"));
    json_t *config = json_object_get(last, "config");
    struct image_sizes below = {.known = true};
    if (!id || !image_id_valid(id) || !json_is_object(config) || bytes < 0 || entries < 0 ||
        disk < 0)
        return err_set(err, ERR_INTERNAL,
                       "the image worker (carrel-image) returned an invalid result");
    if (j->below.count)
        image_sizes_of(j->service, j->below.ids[0], &below);
    if (j->below.count && below.known && adopt_is_base(j, config))
        return adopt_base(j, &below, err) < 0 ? -1 : 1;
    j->row.bytes = (uint64_t)bytes + below.bytes;
    j->row.entries = (uint64_t)entries + below.entries;
    struct image_adoption *a = xnew(struct image_adoption);
    *a = (struct image_adoption){.job = j,
                                 .images = images_open(j->service),
                                 .below = j->below,
                                 .merged = TAKE_FD(j->merged),
                                 .presets = -1,
                                 .imported = j->layered != NULL,
                                 .lent = j->lent,
                                 .claimed = (uint64_t)disk,
                                 .beneath = below.disk,
                                 .beneath_known = below.known,
                                 .room = j->hold.bytes};
    snprintf(a->staging, sizeof(a->staging), "%s", j->staging);
    snprintf(a->id, sizeof(a->id), "%s", id);
    snprintf(j->adopting, sizeof(j->adopting), "%s", id);
    if (j->below.count)
        a->presets = image_open_presets(j->service, j->below.ids[0]);
    image_sizes_put(config, &(struct image_sizes){.bytes = j->row.bytes,
                                                  .entries = j->row.entries,
                                                  .disk = a->claimed + a->beneath});
    if (j->layer[0])
        json_object_set_new(config, "layer", json_string(j->layer));
    a->json = json_dumps(config, JSON_COMPACT);
    loop_work(j->service->loop, adopt_work, adopt_done, a);
    return 0;
}

void image_job_adopt(struct image_job *j) {
    struct err err;
    int r = adopt_begin(j, &err);
    if (r != 0)
        image_job_finish(j, r < 0 ? &err : NULL);
}
