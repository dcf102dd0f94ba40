/*
 * carrel ship for databases: a change set is one file, which replaces the owner's file.
 *
 * The content tells whether the owner's database is still the granted one. Its times do not,
 * because opening a database changes them. A database that is open is refused, because SQLite would
 * apply its log to the new file.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/sha256.h"
#include "cli/ship/db.h"
#include "cli/ship/ship.h"
#include "cli/table.h"

enum { PATH_SIZE = 8192, NAME_SIZE = 300, MAGIC = 8, INDEX_LOCK = 128 };

static bool is_file(const struct ship *s) {
    return strcmp(client_text(s->set, "kind"), "sqlite") == 0;
}

static const char *name_of(const struct ship *s) {
    const char *home = client_text(s->set, "home"), *slash = strrchr(home, '/');
    return slash ? slash + 1 : home;
}

/* Opens a file beside the database, such as its log; -1: absent. */
static int open_beside(const struct ship *s, const char *ending) {
    char name[NAME_SIZE];
    snprintf(name, sizeof(name), "%.250s%s", name_of(s), ending);
    return openat(s->dir, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

/* A log with a zeroed header is empty. */
static bool has_log(const struct ship *s, const char *ending) {
    static const char zeros[MAGIC];
    char bytes[MAGIC] = {0};
    int fd DEFER_CLOSE = open_beside(s, ending);
    return fd >= 0 && read(fd, bytes, sizeof(bytes)) > 0 && memcmp(bytes, zeros, MAGIC) != 0;
}

/* In WAL mode, each process that has the database open locks byte INDEX_LOCK of its -shm file. */
static bool is_held(const struct ship *s) {
    struct flock lock = {.l_type = F_WRLCK, .l_start = INDEX_LOCK, .l_len = 1};
    int fd DEFER_CLOSE = open_beside(s, "-shm");
    return fd >= 0 && fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

static bool is_open(const struct ship *s) {
    return is_held(s) || has_log(s, "-wal") || has_log(s, "-journal");
}

/* ---- the owner's database ---- */

static bool hash_copy(const char *path, char ret[SHA256_HEX]) {
    struct err unreadable;
    struct stat st;
    int fd DEFER_CLOSE = db_copy(path, &unreadable);
    if (fd < 0 || fstat(fd, &st) < 0 || !st.st_size)
        return false;
    void *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED)
        return false;
    sha256_hex(bytes, (size_t)st.st_size, ret);
    munmap(bytes, (size_t)st.st_size);
    return true;
}

/* True if the file is the granted database, or the one that was last shipped or restored. */
static bool is_known(const struct ship *s, const char *path, const struct stat *st) {
    const struct baseline_file *was = baseline_find(&s->base, name_of(s));
    char hash[SHA256_HEX];
    return (was && baseline_same(was, st)) ||
           (hash_copy(path, hash) && strcmp(hash, client_text(s->set, "base_sha256")) == 0);
}

/* Replaces the baseline by one that has only the database file, or no file if the state of the
 * database file is unknown. */
static int take_side(struct ship *s, struct err *err) {
    struct buf text DEFER(buf_done) = BUF(65536);
    struct baseline side = {.count = 0};
    char path[PATH_SIZE];
    struct stat dir, file = {.st_ino = 1};
    snprintf(path, sizeof(path), "%s/%s", s->target, name_of(s));
    if (fstat(s->dir, &dir) < 0)
        return err_sys(err, "cannot read the state of directory '%s'", s->target);
    bool there = fstatat(s->dir, name_of(s), &file, AT_SYMLINK_NOFOLLOW) == 0;
    bool was = strcmp(path, client_text(s->set, "home")) == 0;
    bool put = baseline_put(&text, ".", &dir);
    if (there ? is_known(s, path, &file) : was)
        put = put && baseline_put(&text, name_of(s), &file);
    if (!put)
        return err_set(err, ERR_LIMIT, "the file name of the database is too long");
    if (baseline_read(text.data, text.len, &side, err) < 0)
        return -1;
    baseline_done(&s->base);
    s->base = side;
    return 0;
}

/* ---- called by ship ---- */

int ship_db_prepare(struct ship *s, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "GET", .target = target};
    if (!is_file(s) && strcmp(client_text(s->set, "kind"), "postgres") != 0)
        return 0;
    if (client_target(target, err, "/v1/changesets/%s/database", client_text(s->set, "id")) < 0 ||
        client_call_again(s->client, &r, &s->database, err) < 0)
        return -1;
    return is_file(s) && s->dir >= 0 ? take_side(s, err) : 0;
}

void ship_db_judge(struct ship *s) {
    if (!s->database || !is_file(s))
        return;
    bool same = json_is_true(json_object_get(s->database, "same"));
    for (size_t i = 0; i < s->parcel.count; i++) {
        struct parcel_item *item = &s->parcel.items[i];
        if (same) {
            item->change = '=';
            item->refused = NULL;
        } else if (!item->refused && item->change == 'M' && is_open(s)) {
            item->refused = "another process has your file open, or its log is not empty";
        }
    }
}

int ship_db_check(const struct ship *s, struct err *err) {
    if (!is_file(s) || !is_open(s))
        return 0;
    err_set(err, ERR_BUSY, "database '%s/%s' is open in another process, or its log is not empty",
            s->target, name_of(s));
    return err_remedy(err, "close the database in the other process and try again");
}
