#include "cli/deliver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/jot.h"
#include "base/sha256.h"

enum { LIST_MAX = 64 << 20, NAME_SIZE = 64 };

static void free_json(json_t **json) {
    json_decref(*json);
}

static void stage_name(const char *id, char ret[NAME_SIZE]) {
    snprintf(ret, NAME_SIZE, ".carrel-ship-%s", id);
}

static int open_stage(int dir, const char *id, bool make, struct err *err) {
    char name[NAME_SIZE];
    stage_name(id, name);
    if (make && mkdirat(dir, name, 0700) < 0 && errno != EEXIST)
        return err_sys(err, "make '%s'", name);
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0)
        return fd;
    if (errno == ENOENT)
        return err_set(err, ERR_NOT_FOUND, "'%s' was not shipped here", id);
    return err_sys(err, "open '%s'", name);
}

long delivery_hash(const struct parcel *p, char ret[PARCEL_HEX]) {
    struct sha256 s;
    uint8_t hash[SHA256_BYTES];
    long count = 0;
    sha256_init(&s);
    for (size_t i = 0; i < p->count; i++) {
        const struct parcel_item *item = &p->items[i];
        char head[PARCEL_HEX + 4];
        if (!item->wanted)
            continue;
        int n = snprintf(head, sizeof(head), "%c %s ", item->change, item->sha256);
        sha256_add(&s, head, (size_t)n);
        sha256_add(&s, item->path, strlen(item->path));
        sha256_add(&s, "\n", 1);
        count++;
    }
    sha256_end(&s, hash);
    for (size_t i = 0; i < sizeof(hash); i++)
        snprintf(ret + 2 * i, 3, "%02x", hash[i]);
    return count;
}

/* ---- staging ---- */

/* What root writes belongs to whoever has the directory. */
static int give(int fd, int parent, struct err *err) {
    struct stat st;
    if (geteuid() != 0 || fstat(parent, &st) < 0)
        return 0;
    return fchown(fd, st.st_uid, st.st_gid) < 0 ? err_sys(err, "hand over a file") : 0;
}

static int stage_file(int dir, int stage, const char *name, const struct parcel_item *i,
                      struct err *err) {
    int fd DEFER_CLOSE =
        openat(stage, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    int status = fd < 0 ? -errno : write_all(fd, i->bytes, i->n);
    if (status < 0)
        return err_num(err, status, "stage '%s'", i->path);
    if (give(fd, dir, err) < 0)
        return -1;
    if (fchmod(fd, i->mode & 0100 ? 0755 : 0644) < 0 || fsync(fd) < 0)
        return err_sys(err, "stage '%s'", i->path);
    return 0;
}

static int stage_item(int dir, int stage, size_t n, const struct parcel_item *i, struct err *err) {
    char name[NAME_SIZE];
    snprintf(name, sizeof(name), "%zu.new", n);
    if (i->change == 'D' || i->kind == TAR_DIR)
        return 0;
    if (i->kind == TAR_FILE)
        return stage_file(dir, stage, name, i, err);
    unlinkat(stage, name, 0);
    return symlinkat(i->target, stage, name) < 0 ? err_sys(err, "stage '%s'", i->path) : 0;
}

static const char *kind_word(const struct parcel_item *i) {
    return i->kind == TAR_DIR ? "directory" : i->kind == TAR_SYMLINK ? "symlink" : "file";
}

/* The receipt, which also says how to take it back. */
static int write_list(const struct delivery *d, const struct parcel *p, int stage,
                      struct err *err) {
    struct buf text DEFER(buf_done) = BUF(LIST_MAX);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_string(&j, "changeset", d->id);
    jot_string(&j, "machine", d->machine);
    jot_string(&j, "archive_sha256", d->archive);
    jot_string(&j, "files_sha256", d->files_sha256);
    jot_u64(&j, "approver_uid", getuid());
    jot_u64(&j, "journal_record", (uint64_t)d->record);
    jot_array(&j, "files");
    for (size_t i = 0; i < p->count; i++) {
        const struct parcel_item *item = &p->items[i];
        if (!item->wanted)
            continue;
        jot_object(&j, NULL);
        jot_u64(&j, "n", i);
        jot_string(&j, "path", item->path);
        jot_string(&j, "kind", kind_word(item));
        jot_bytes(&j, "change", &item->change, 1);
        jot_string(&j, "sha256", item->sha256);
        jot_end(&j, '}');
    }
    jot_end(&j, ']');
    jot_end(&j, '}');
    if (j.failed)
        return err_set(err, ERR_LIMIT, "the receipt is too long");
    int fd DEFER_CLOSE =
        openat(stage, "receipt.part", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || write_all(fd, text.data, text.len) < 0 || fsync(fd) < 0 ||
        renameat(stage, "receipt.part", stage, "receipt.json") < 0 || fsync(stage) < 0)
        return err_sys(err, "write the receipt");
    return 0;
}

/* ---- taking its place ---- */

/* Directories above a path, one by one; none of them through a link. */
static int make_parents(int dir, const char *path, struct err *err) {
    char part[TAR_NAME_MAX + 1];
    for (const char *at = path; (at = strchr(at, '/')); at++) {
        const char *name;
        snprintf(part, sizeof(part), "%.*s", (int)(at - path), path);
        int parent DEFER_CLOSE = parcel_parent(dir, part, &name);
        if (parent < 0)
            return err_num(err, parent, "directory '%s'", part);
        if (mkdirat(parent, name, 0755) < 0) {
            if (errno != EEXIST)
                return err_sys(err, "make directory '%s'", part);
            continue;
        }
        int made DEFER_CLOSE =
            openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (made >= 0 && give(made, dir, err) < 0)
            return -1;
    }
    return 0;
}

/* What is there now stays under another name, once. */
static int keep_old(int stage, size_t n, int parent, const char *name, struct err *err) {
    char old[NAME_SIZE];
    snprintf(old, sizeof(old), "%zu.old", n);
    if (linkat(parent, name, stage, old, 0) == 0 || errno == EEXIST || errno == ENOENT)
        return 0;
    return err_sys(err, "keep what '%s' was", name);
}

static int place_dir(int dir, const struct parcel_item *i, int parent, const char *name,
                     struct err *err) {
    if (mkdirat(parent, name, 0755) < 0)
        return errno == EEXIST ? 0 : err_sys(err, "make directory '%s'", i->path);
    int made DEFER_CLOSE = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return made >= 0 ? give(made, dir, err) : 0;
}

static int place(const struct delivery *d, int stage, size_t n, const struct parcel_item *i,
                 struct err *err) {
    const char *name;
    char new[NAME_SIZE];
    snprintf(new, sizeof(new), "%zu.new", n);
    if (i->change != 'D' && make_parents(d->dir, i->path, err) < 0)
        return -1;
    int parent DEFER_CLOSE = parcel_parent(d->dir, i->path, &name);
    if (parent < 0)
        return err_num(err, parent, "directory of '%s'", i->path);
    if (i->kind == TAR_DIR)
        return place_dir(d->dir, i, parent, name, err);
    if (i->change != 'A' && keep_old(stage, n, parent, name, err) < 0)
        return -1;
    int status = i->change == 'D' ? unlinkat(parent, name, 0) : renameat(stage, new, parent, name);
    return status < 0 ? err_sys(err, "put '%s' in its place", i->path) : 0;
}

long deliver(const struct delivery *d, const struct parcel *p, struct err *err) {
    int stage DEFER_CLOSE = open_stage(d->dir, d->id, true, err);
    long count = 0;
    if (stage < 0)
        return -1;
    for (size_t i = 0; i < p->count; i++)
        if (p->items[i].wanted && stage_item(d->dir, stage, i, &p->items[i], err) < 0)
            return -1;
    if (write_list(d, p, stage, err) < 0)
        return -1;
    for (size_t i = 0; i < p->count; i++) {
        if (!p->items[i].wanted)
            continue;
        if (place(d, stage, i, &p->items[i], err) < 0)
            return -1;
        count++;
    }
    return fsync(d->dir) < 0 ? err_sys(err, "flush the directory") : count;
}

/* ---- the way back ---- */

static const char *text_in(const json_t *object, const char *name) {
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

/* 1: it is as it was before. 0: somebody has changed it since, and it stays. */
static int undo_one(int dir, int stage, const json_t *file, struct err *err) {
    char old[NAME_SIZE], now[PARCEL_HEX] = "";
    const char *path = text_in(file, "path"), *name, *change = text_in(file, "change");
    snprintf(old, sizeof(old), "%lld.old",
             (long long)json_integer_value(json_object_get(file, "n")));
    int parent DEFER_CLOSE = parcel_parent(dir, path, &name);
    bool there = parent >= 0 && parcel_hash(dir, path, now);
    if (strcmp(text_in(file, "kind"), "directory") == 0) {
        if (parent >= 0)
            unlinkat(parent, name, AT_REMOVEDIR); /* if it is empty again */
        return 1;
    }
    if (change[0] == 'D' ? there : !there || strcmp(now, text_in(file, "sha256")) != 0)
        return 0;
    if (parent < 0)
        return err_num(err, parent, "directory of '%s'", path);
    int status = change[0] == 'A' ? unlinkat(parent, name, 0) : renameat(stage, old, parent, name);
    return status < 0 ? err_sys(err, "put '%s' back", path) : 1;
}

long deliver_undo(int dir, const char *id, long *ret_kept, char files_sha256[PARCEL_HEX],
                  struct err *err) {
    char stage_path[NAME_SIZE];
    long count = 0;
    int stage DEFER_CLOSE = open_stage(dir, id, false, err);
    if (stage < 0)
        return -1;
    int fd DEFER_CLOSE = openat(stage, "receipt.json", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    json_t *list DEFER(free_json) = fd < 0 ? NULL : json_loadfd(fd, 0, NULL);
    const json_t *files = json_object_get(list, "files");
    if (!json_is_array(files))
        return err_set(err, ERR_INVALID, "there is no receipt of '%s' here", id);
    snprintf(files_sha256, PARCEL_HEX, "%s", text_in(list, "files_sha256"));
    *ret_kept = 0;
    for (size_t i = json_array_size(files); i > 0; i--) { /* files before their directories */
        int done = undo_one(dir, stage, json_array_get(files, i - 1), err);
        if (done < 0)
            return -1;
        count += done;
        *ret_kept += !done;
    }
    stage_name(id, stage_path);
    if (!*ret_kept && renameat(stage, "receipt.json", stage, "undone.json") < 0)
        return err_sys(err, "note what was taken back");
    return count;
}
