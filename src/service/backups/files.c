/* Directories and files of backups in the store. These functions block: call them in a job. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/dir.h"
#include "base/fs/folder.h"
#include "base/hex.h"
#include "base/log.h"
#include "base/map.h"
#include "service/backups/inner.h"

enum { PIECE = 1 << 20 };

void backup_dir_path(const struct service *s, const char *machine, char ret[BACKUP_PATH_SIZE]) {
    snprintf(ret, BACKUP_PATH_SIZE, "%s/backups%s%s", s->place->home, *machine ? "/" : "", machine);
}

int backup_dir_open(const struct service *s, const char *machine, struct err *err) {
    char path[BACKUP_PATH_SIZE];
    backup_dir_path(s, machine, path);
    int dir = dir_open(AT_FDCWD, path);
    return dir < 0 ? err_num(err, dir, "cannot open the directory of the backups of '%s'", machine)
                   : dir;
}

int backup_packs_open(int dir, struct err *err) {
    int packs = dir_open(dir, "packs");
    return packs < 0 ? err_num(err, packs, "cannot open the packs of the backups") : packs;
}

int backup_dir_make(const struct service *s, const char *machine, struct err *err) {
    char path[BACKUP_PATH_SIZE], packs[BACKUP_PATH_SIZE + 8];
    backup_dir_path(s, "", path);
    int r = folder_make(path);
    backup_dir_path(s, machine, path);
    snprintf(packs, sizeof(packs), "%s/packs", path);
    if (r == 0)
        r = folder_make(path);
    if (r == 0)
        r = folder_make(packs);
    return r < 0 ? err_num(err, r, "cannot make the directory of the backups of '%s'", machine) : 0;
}

/* ---- manifests and packs ---- */

static bool hash_is(const struct sha256 *sum, const char *name) {
    uint8_t hash[SHA256_BYTES];
    char hex[SHA256_HEX];
    struct sha256 end = *sum;
    sha256_end(&end, hash);
    hex_put(hash, SHA256_BYTES, hex);
    return strcmp(hex, name) == 0;
}

static int backup_damaged(struct err *err, const char *what, const char *name) {
    err_set(err, ERR_INVALID, "%s '%s' of the backup is damaged or missing", what, name);
    return err_remedy(err, "restore another backup (carrel backup ls), or copy the file back");
}

/* Reads a file to its end, and into `ret` if that is not NULL. */
static int read_hashed(int fd, struct sha256 *sum, struct buf *ret, uint64_t *bytes) {
    char *piece DEFER_FREE = xmalloc(PIECE);
    sha256_init(sum);
    for (;;) {
        ssize_t n = read(fd, piece, PIECE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : 0;
        sha256_add(sum, piece, (size_t)n);
        *bytes += (uint64_t)n;
        if (ret && !buf_add(ret, piece, (size_t)n))
            return -EFBIG;
    }
}

int backup_manifest(int dir, const struct backup_row *row, struct buf *text, struct manifest *ret,
                    struct err *err) {
    char name[ID_SIZE + 16];
    struct sha256 sum;
    uint64_t bytes = 0;
    snprintf(name, sizeof(name), "%s" BACKUP_MANIFEST, row->id);
    int fd DEFER_CLOSE = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || read_hashed(fd, &sum, text, &bytes) < 0 || !hash_is(&sum, row->manifest) ||
        manifest_read(text->data ? text->data : "", text->len, ret, err) < 0)
        return backup_damaged(err, "manifest", name);
    return 0;
}

int backup_pack_open(int packs, const struct manifest *m, uint32_t i, char ret_name[SHA256_HEX],
                     struct err *err) {
    uint8_t hash[SHA256_BYTES];
    manifest_pack(m, i, hash);
    hex_put(hash, SHA256_BYTES, ret_name);
    int fd = openat(packs, ret_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? backup_damaged(err, "pack", ret_name) : fd;
}

int backup_pack_check(int packs, const struct manifest *m, uint32_t i, uint64_t *bytes,
                      struct err *err) {
    char name[SHA256_HEX];
    struct sha256 sum;
    int fd DEFER_CLOSE = backup_pack_open(packs, m, i, name, err);
    if (fd < 0)
        return -1;
    int r = read_hashed(fd, &sum, NULL, bytes);
    return r < 0 || !hash_is(&sum, name) ? backup_damaged(err, "pack", name) : 0;
}

int backup_packs_exist(int packs, const struct manifest *m, struct err *err) {
    for (uint32_t i = 0; i < m->pack_count; i++) {
        char name[SHA256_HEX];
        int fd DEFER_CLOSE = backup_pack_open(packs, m, i, name, err);
        if (fd < 0)
            return -1;
    }
    return 0;
}

/* ---- deletion ---- */

/* The names of packs that backups need. */
struct needed {
    struct map names;
};

static void needed_done(struct needed *n) {
    char *name;
    for (size_t at = 0; (name = map_next(&n->names, &at));)
        free(name);
    map_done(&n->names);
}

static int needed_add(struct needed *n, int dir, const struct backup_row *row, struct err *err) {
    struct buf text DEFER(buf_done) = BUF(MANIFEST_MAX + 1);
    struct manifest m;
    if (backup_manifest(dir, row, &text, &m, err) < 0)
        return -1;
    for (uint32_t i = 0; i < m.pack_count; i++) {
        uint8_t hash[SHA256_BYTES];
        char name[SHA256_HEX];
        manifest_pack(&m, i, hash);
        hex_put(hash, SHA256_BYTES, name);
        if (!map_get(&n->names, name)) {
            char *copy = xstrdup(name);
            map_put(&n->names, copy, copy);
        }
    }
    return 0;
}

static void drop_packs(int dir, const struct needed *n) {
    struct dirent *e;
    DIR *all DEFER(dir_close) = dir_list(dir, "packs");
    while (all && (e = readdir(all)))
        if (!is_dots(e->d_name) && !map_get(&n->names, e->d_name))
            unlinkat(dirfd(all), e->d_name, 0);
}

static bool name_is_kept(const char *name, const struct backup_list *keep) {
    if (strcmp(name, "packs") == 0 || is_dots(name))
        return true;
    for (size_t i = 0; i < keep->count; i++) {
        size_t n = strlen(keep->rows[i].id);
        if (strncmp(name, keep->rows[i].id, n) == 0)
            return strcmp(name + n, BACKUP_MANIFEST) == 0 ||
                   (i == 0 && strcmp(name + n, BACKUP_KNOWN) == 0);
    }
    return false;
}

/* Also deletes the records of all but the newest backup: only the next backup needs that one. */
static void drop_files(int dir, const struct backup_list *keep) {
    struct dirent *e;
    DIR *all DEFER(dir_close) = dir_list(dir, ".");
    while (all && (e = readdir(all)))
        if (!name_is_kept(e->d_name, keep))
            unlinkat(dir, e->d_name, 0);
}

int backup_clean(const struct service *s, const char *machine, const struct backup_list *keep,
                 struct err *err) {
    struct needed needed DEFER(needed_done) = {0};
    char path[BACKUP_PATH_SIZE];
    int dir DEFER_CLOSE = backup_dir_open(s, machine, err);
    if (dir < 0)
        return -1;
    for (size_t i = 0; i < keep->count; i++)
        if (needed_add(&needed, dir, &keep->rows[i], err) < 0)
            return -1;
    drop_packs(dir, &needed);
    drop_files(dir, keep);
    backup_dir_path(s, machine, path);
    if (!keep->count && (unlinkat(dir, "packs", AT_REMOVEDIR) < 0 || rmdir(path) < 0))
        return err_sys(err, "cannot delete the directory of the backups of '%s'", machine);
    return 0;
}

/* ---- start of the daemon ---- */

static bool is_unfinished(int dir) {
    struct dirent *e;
    DIR *all DEFER(dir_close) = dir_list(dir, ".");
    while (all && (e = readdir(all))) {
        size_t n = strlen(e->d_name);
        if (n > strlen(BACKUP_UNFINISHED) &&
            strcmp(e->d_name + n - strlen(BACKUP_UNFINISHED), BACKUP_UNFINISHED) == 0)
            return true;
    }
    return false;
}

static void sweep_one(struct service *s, int backups, const char *machine) {
    struct backup_list keep DEFER(backup_list_done) = {0};
    struct err err;
    int dir DEFER_CLOSE = id_valid(machine, strlen(machine), 'm') ? dir_open(backups, machine) : -1;
    if (dir < 0 || !is_unfinished(dir))
        return;
    if (store_backup_list(s->store, NULL, machine, NULL, &keep, &err) < 0 ||
        backup_clean(s, machine, &keep, &err) < 0)
        log_line(LOG_WARN, "service", "delete an unfinished backup: %s machine=%s", err.text,
                 machine);
}

void backups_sweep(struct service *s) {
    char path[BACKUP_PATH_SIZE];
    struct dirent *e;
    backup_dir_path(s, "", path);
    DIR *all DEFER(dir_close) = dir_list(AT_FDCWD, path);
    while (all && (e = readdir(all)))
        sweep_one(s, dirfd(all), e->d_name);
}
