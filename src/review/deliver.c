#include "review/deliver.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/dir.h"
#include "base/jot.h"
#include "base/sha256.h"

enum { LIST_MAX = 64 << 20, NAME_SIZE = 96 };
#define FIRST_RECEIPT "receipt.json"
#define DONE_ENDING ".done"

static const char *text_in(const json_t *object, const char *name) {
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

static void stage_name(const char *id, char ret[NAME_SIZE]) {
    snprintf(ret, NAME_SIZE, ".carrel-ship-%s", id);
}

/* Writes the name of a file in the stage (staging directory). Deliveries of the same change set
 * share a stage, so the record is part of the name. */
static void part_name(long long record, long long n, const char *ending, char ret[NAME_SIZE]) {
    snprintf(ret, NAME_SIZE, "%lld.%lld.%s", record, n, ending);
}

/* Hides the stage from git: the owner may run `git add -A` while the stage is there. May be
 * repeated after an interruption. */
static int hide_stage(int stage, struct err *err) {
    static const char everything[] = "*\n";
    int fd DEFER_CLOSE =
        openat(stage, ".gitignore", O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    int status = fd < 0 ? -errno : write_all(fd, everything, sizeof(everything) - 1);
    if (status == 0 && fsync(fd) < 0)
        status = -errno;
    return status < 0 ? err_num(err, status, "cannot write '.gitignore' of the staging directory")
                      : 0;
}

static int open_stage(int dir, const char *id, bool make, struct err *err) {
    char name[NAME_SIZE];
    stage_name(id, name);
    if (make && mkdirat(dir, name, 0700) < 0 && errno != EEXIST)
        return err_sys(err, "cannot create staging directory '%s'", name);
    int fd DEFER_CLOSE = dir_open(dir, name);
    if (fd >= 0)
        return make && hide_stage(fd, err) < 0 ? -1 : TAKE_FD(fd);
    if (errno == ENOENT)
        return err_set(err, ERR_NOT_FOUND, "change set '%s' was not shipped to this directory", id);
    return err_sys(err, "cannot open staging directory '%s'", name);
}

long delivery_hash(const struct parcel *p, char ret[SHA256_HEX]) {
    struct sha256 s;
    long count = 0;
    sha256_init(&s);
    for (size_t i = 0; i < p->count; i++) {
        const struct parcel_item *item = &p->items[i];
        char head[SHA256_HEX + 4];
        if (!item->wanted)
            continue;
        int n = snprintf(head, sizeof(head), "%c %s ", item->change, item->sha256);
        sha256_add(&s, head, (size_t)n);
        sha256_add(&s, item->path, strlen(item->path));
        sha256_add(&s, "\n", 1);
        count++;
    }
    sha256_end_hex(&s, ret);
    return count;
}

/* ---- staging ---- */

/* Files that root writes belong to the owner of the directory. */
static int give(int fd, int parent, struct err *err) {
    struct stat st;
    if (geteuid() != 0 || fstat(parent, &st) < 0)
        return 0;
    return fchown(fd, st.st_uid, st.st_gid) < 0
               ? err_sys(err, "cannot change the owner of a shipped file")
               : 0;
}

/* An existing file keeps its mode, except for the executable bits. */
static mode_t mode_for(int dir, const struct parcel_item *i) {
    const char *name;
    struct stat st;
    int parent DEFER_CLOSE = parcel_parent(dir, i->path, &name);
    bool there =
        parent >= 0 && fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
    mode_t mode = there ? st.st_mode & 0666 : 0644;
    return i->mode & 0100 ? mode | (mode & 0444) >> 2 : mode;
}

static int stage_file(int dir, int stage, const char *name, const struct parcel_item *i,
                      struct err *err) {
    int fd DEFER_CLOSE =
        openat(stage, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    int status = fd < 0 ? -errno : write_all(fd, i->bytes, i->n);
    if (status < 0)
        return err_num(err, status, "cannot copy file '%s' to the staging directory", i->path);
    if (give(fd, dir, err) < 0)
        return -1;
    if (fchmod(fd, mode_for(dir, i)) < 0 || fsync(fd) < 0)
        return err_sys(err, "cannot copy file '%s' to the staging directory", i->path);
    return 0;
}

static int stage_item(const struct delivery *d, int stage, size_t n, const struct parcel_item *i,
                      struct err *err) {
    char name[NAME_SIZE];
    part_name(d->record, (long long)n, "new", name);
    if (i->change == 'D' || i->kind == TAR_DIR)
        return 0;
    if (i->kind == TAR_FILE)
        return stage_file(d->dir, stage, name, i, err);
    unlinkat(stage, name, 0);
    return symlinkat(i->target, stage, name) < 0
               ? err_sys(err, "cannot copy file '%s' to the staging directory", i->path)
               : 0;
}

static const char *kind_word(const struct parcel_item *i) {
    return i->kind == TAR_DIR ? "directory" : i->kind == TAR_SYMLINK ? "symlink" : "file";
}

/* Writes the receipt (the list of shipped files). deliver_finish() and deliver_undo() read it, so
 * it is on the disk first. */
static int write_list(const struct delivery *d, const struct parcel *p, int stage, const char *name,
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
        if (item->change == 'M')
            jot_string(&j, "before_sha256", item->before);
        if (item->step)
            jot_u64(&j, "step", item->step);
        jot_end(&j, '}');
    }
    jot_end(&j, ']');
    jot_end(&j, '}');
    if (j.failed)
        return err_set(err, ERR_LIMIT,
                       "the receipt (list of shipped files) is too long: ship fewer files at once");
    int fd DEFER_CLOSE =
        openat(stage, "receipt.part", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || write_all(fd, text.data, text.len) < 0 || fsync(fd) < 0 ||
        renameat(stage, "receipt.part", stage, name) < 0 || fsync(stage) < 0)
        return err_sys(err, "cannot write the receipt (list of shipped files)");
    return 0;
}

/* ---- flush to disk ---- */

/* Flushes the directory of a path, if it exists. parcel_parent() gives an O_PATH descriptor, which
 * fsync() refuses, so the directory is opened again. */
static int sync_names(int dir, const char *path, struct err *err) {
    const char *name;
    int parent DEFER_CLOSE = parcel_parent(dir, path, &name);
    int fd DEFER_CLOSE = parent < 0 ? -1 : dir_open(parent, ".");
    if (parent < 0)
        return 0;
    return fd < 0 || fsync(fd) < 0
               ? err_sys(err, "cannot flush the directory of file '%s' to disk", path)
               : 0;
}

/* Flushes all directories between dir and the path, the innermost first. */
static int sync_above(int dir, const char *path, struct err *err) {
    char part[TAR_NAME_MAX + 1];
    snprintf(part, sizeof(part), "%s", path);
    for (char *slash; (slash = strrchr(part, '/')); *slash = '\0')
        if (sync_names(dir, part, err) < 0)
            return -1;
    return 0;
}

static bool is_beside(const char *a, const char *b) {
    const char *end = strrchr(a, '/');
    size_t n = end ? (size_t)(end - a) + 1 : 0;
    return strncmp(a, b, n) == 0 && !strchr(b + n, '/');
}

/* Flushes the directories of all files of a receipt, each once for files that follow one another;
 * then the stage, which has the previous versions, and dir, which has the stage. */
static int sync_places(int dir, int stage, const json_t *receipt, struct err *err) {
    const json_t *file;
    const char *before = NULL;
    size_t i;
    json_array_foreach(json_object_get(receipt, "files"), i, file) {
        const char *path = text_in(file, "path");
        if (!(before && is_beside(before, path)) && sync_above(dir, path, err) < 0)
            return -1;
        before = path;
    }
    return fsync(stage) < 0 || fsync(dir) < 0
               ? err_sys(err, "cannot flush the target directory to disk")
               : 0;
}

/* ---- put files in their place ---- */

/* A file of the owner is replaced or removed only after it has a name in the stage. A file that the
 * owner changed after the review stays: LEFT. */
enum { PLACED, LEFT };

static bool is_in_the_way(int status) {
    return status == -ENOTDIR || status == -ELOOP || status == -EXDEV;
}

static bool has_no_flags(void) {
    return errno == EINVAL || errno == ENOSYS;
}

static bool is_same(int a_dir, const char *a_name, int b_dir, const char *b_name) {
    struct stat a, b;
    return fstatat(a_dir, a_name, &a, AT_SYMLINK_NOFOLLOW) == 0 &&
           fstatat(b_dir, b_name, &b, AT_SYMLINK_NOFOLLOW) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* Renames without replacing: EEXIST if the name is taken. Filesystems without RENAME_NOREPLACE get
 * a hard link instead, and those without hard links a check just before the rename. */
static int move_new(int from, const char *name, int to, const char *to_name) {
    struct stat st;
    if (renameat2(from, name, to, to_name, RENAME_NOREPLACE) == 0)
        return 0;
    if (!has_no_flags())
        return -1;
    if (linkat(from, name, to, to_name, 0) == 0)
        return unlinkat(from, name, 0);
    if (errno != EPERM && errno != EOPNOTSUPP)
        return -1;
    if (fstatat(to, to_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        errno = EEXIST;
    return errno == ENOENT ? renameat(from, name, to, to_name) : -1;
}

/* Creates the missing directories above a path, following no link. */
static int make_parents(int dir, const char *path, struct err *err) {
    char part[TAR_NAME_MAX + 1];
    for (const char *at = path; (at = strchr(at, '/')); at++) {
        const char *name;
        snprintf(part, sizeof(part), "%.*s", (int)(at - path), path);
        int parent DEFER_CLOSE = parcel_parent(dir, part, &name);
        if (is_in_the_way(parent))
            return LEFT;
        if (parent < 0)
            return err_num(err, parent, "cannot open directory '%s'", part);
        if (mkdirat(parent, name, 0755) < 0) {
            if (errno != EEXIST)
                return err_sys(err, "cannot create directory '%s'", part);
            continue;
        }
        int made DEFER_CLOSE = dir_open(parent, name);
        if (made >= 0 && give(made, dir, err) < 0)
            return -1;
    }
    return PLACED;
}

/* A file of a receipt. */
struct row {
    const char *path, *kind, *sha256, *before;
    char change;
    long long n, record;
};

static struct row row_of(const json_t *receipt, const json_t *file) {
    return (struct row){.path = text_in(file, "path"),
                        .kind = text_in(file, "kind"),
                        .sha256 = text_in(file, "sha256"),
                        .before = text_in(file, "before_sha256"),
                        .change = text_in(file, "change")[0],
                        .n = json_integer_value(json_object_get(file, "n")),
                        .record = json_integer_value(json_object_get(receipt, "journal_record"))};
}

static bool is_dir(const struct row *r) {
    return strcmp(r->kind, "directory") == 0;
}

/* The place of a row's file. In the stage, `new` is the file to deliver and `old` the previous
 * version. */
struct spot {
    int dir, stage, parent;
    const char *name;
    char new[NAME_SIZE], old[NAME_SIZE];
};

static bool holds(const struct spot *s, const struct row *r, const char *sha256) {
    char hash[SHA256_HEX] = "";
    return parcel_hash(s->dir, r->path, hash) && strcmp(hash, sha256) == 0;
}

static int place_dir(const struct spot *s, const struct row *r, struct err *err) {
    struct stat st;
    if (mkdirat(s->parent, s->name, 0755) < 0) {
        if (errno != EEXIST)
            return err_sys(err, "cannot create directory '%s'", r->path);
        bool there = fstatat(s->parent, s->name, &st, AT_SYMLINK_NOFOLLOW) == 0;
        return there && !S_ISDIR(st.st_mode) ? LEFT : PLACED;
    }
    int made DEFER_CLOSE = dir_open(s->parent, s->name);
    return made >= 0 ? give(made, s->dir, err) : PLACED;
}

static int place_added(const struct spot *s, const struct row *r, struct err *err) {
    if (move_new(s->stage, s->new, s->parent, s->name) == 0)
        return PLACED;
    if (errno != EEXIST)
        return err_sys(err, "cannot move file '%s' to its place", r->path);
    if (!holds(s, r, r->sha256))
        return LEFT;
    unlinkat(s->stage, s->new, 0);
    return PLACED;
}

/* The new and the previous version are exchanged in one step: whatever the owner saved up to that
 * moment is in the stage afterwards. */
static int place_modified(const struct spot *s, const struct row *r, struct err *err) {
    /* an earlier delivery was interrupted just after the exchange */
    if (is_same(s->stage, s->new, s->stage, s->old))
        return unlinkat(s->stage, s->new, 0) < 0
                   ? err_sys(err, "cannot clear the staging directory")
                   : PLACED;
    if (!holds(s, r, r->before) && !holds(s, r, r->sha256))
        return LEFT;
    if (linkat(s->parent, s->name, s->stage, s->old, 0) < 0) {
        if (errno == ENOENT)
            return LEFT;
        if (errno != EEXIST)
            return err_sys(err, "cannot keep the previous version of file '%s'", r->path);
        if (!is_same(s->parent, s->name, s->stage, s->old))
            return holds(s, r, r->sha256) ? PLACED : LEFT;
    }
    int status = renameat2(s->stage, s->new, s->parent, s->name, RENAME_EXCHANGE);
    if (status < 0 && has_no_flags())
        status = renameat(s->stage, s->new, s->parent, s->name);
    else if (status == 0)
        status = is_same(s->stage, s->new, s->stage, s->old)
                     ? unlinkat(s->stage, s->new, 0)
                     : renameat(s->stage, s->new, s->stage, s->old);
    return status < 0 ? err_sys(err, "cannot move file '%s' to its place", r->path) : PLACED;
}

static int place_removed(const struct spot *s, const struct row *r, struct err *err) {
    if (!holds(s, r, r->sha256))
        return LEFT;
    if (move_new(s->parent, s->name, s->stage, s->old) == 0 || errno == ENOENT)
        return PLACED;
    if (errno == EEXIST && !is_same(s->parent, s->name, s->stage, s->old))
        return LEFT;
    if (errno != EEXIST || unlinkat(s->parent, s->name, 0) < 0)
        return err_sys(err, "cannot remove file '%s'", r->path);
    return PLACED;
}

static int place_at(const struct spot *s, const struct row *r, struct err *err) {
    struct stat st;
    if (is_dir(r))
        return place_dir(s, r, err);
    if (r->change != 'D' && fstatat(s->stage, s->new, &st, AT_SYMLINK_NOFOLLOW) < 0 &&
        errno == ENOENT)
        return PLACED; /* an earlier attempt moved it */
    if (fstatat(s->parent, s->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return r->change == 'D' ? PLACED : r->change == 'M' ? LEFT : place_added(s, r, err);
    if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
        return LEFT;
    return r->change == 'D'   ? place_removed(s, r, err)
           : r->change == 'M' ? place_modified(s, r, err)
                              : place_added(s, r, err);
}

/* Puts one file of a receipt in its place. Returns PLACED, LEFT or -1. May be repeated after an
 * interruption. */
static int place(int dir, int stage, const struct row *r, struct err *err) {
    struct spot s = {.dir = dir, .stage = stage};
    part_name(r->record, r->n, "new", s.new);
    part_name(r->record, r->n, "old", s.old);
    int status = r->change != 'D' ? make_parents(dir, r->path, err) : PLACED;
    if (status != PLACED)
        return status;
    int parent DEFER_CLOSE = parcel_parent(dir, r->path, &s.name);
    if (is_in_the_way(parent))
        return LEFT;
    if (parent == -ENOENT && r->change == 'D')
        return PLACED;
    if (parent < 0)
        return err_num(err, parent, "cannot open the directory of file '%s'", r->path);
    s.parent = parent;
    return place_at(&s, r, err);
}

static json_t *read_receipt(int stage, const char *name) {
    int fd DEFER_CLOSE = openat(stage, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? NULL : json_loadfd(fd, 0, NULL);
}

/* ---- receipts of a stage ---- */

static bool is_receipt(const char *name) {
    size_t n = strlen(name);
    return strncmp(name, "receipt", 7) == 0 && n > 5 && strcmp(name + n - 5, ".json") == 0;
}

static bool is_done(int stage, const char *name) {
    char done[NAME_SIZE * 4];
    struct stat st;
    snprintf(done, sizeof(done), "%s" DONE_ENDING, name);
    return fstatat(stage, done, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

typedef int receipt_fn(int stage, const char *name, json_t *receipt, void *arg, struct err *err);

/* Calls fn for each receipt, in any order. */
static int each_receipt(int stage, receipt_fn *fn, void *arg, struct err *err) {
    DIR *d DEFER(dir_close) = dir_list(stage, ".");
    if (!d)
        return err_sys(err, "cannot read the staging directory");
    for (struct dirent *e; (e = readdir(d));) {
        if (!is_receipt(e->d_name))
            continue;
        json_t *receipt DEFER(json_decrefp) = read_receipt(stage, e->d_name);
        if (!json_is_array(json_object_get(receipt, "files")))
            return err_set(err, ERR_INVALID,
                           "file '%s' is not a valid receipt (list of shipped files)", e->d_name);
        if (fn(stage, e->d_name, receipt, arg, err) < 0)
            return -1;
    }
    return 0;
}

/* Adds the current state of a file to the baseline. If the buffer is full, the file is missing in
 * the baseline. It then counts as changed by the owner and is refused later, which is safe. */
static void note_now(int dir, const char *path, struct buf *now) {
    const char *name;
    struct stat st;
    int parent DEFER_CLOSE = parcel_parent(dir, path, &name);
    bool there = parent >= 0 && fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    (void)baseline_put(now, path, there ? &st : NULL);
}

/* Adds the delivered files to the baseline, except those that changed since. */
static void note_delivered(int dir, const json_t *receipt, struct buf *now) {
    const json_t *file;
    size_t i;
    json_array_foreach(json_object_get(receipt, "files"), i, file) {
        struct row r = row_of(receipt, file);
        char hash[SHA256_HEX] = "";
        bool there = !is_dir(&r) && parcel_hash(dir, r.path, hash);
        if (!is_dir(&r) && (r.change == 'D' ? !there : strcmp(hash, r.sha256) == 0))
            note_now(dir, r.path, now);
    }
}

struct finishing {
    int dir;
    deliver_fn *done;
    deliver_left_fn *left;
    void *arg;
    long count;
};

static void tell_left(const struct finishing *f, int stage, const struct row *r) {
    char name[NAME_SIZE];
    struct stat st;
    part_name(r->record, r->n, "new", name);
    bool kept = fstatat(stage, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    f->left(f->arg, r->path, kept ? name : NULL);
}

/* Returns the number of files that are LEFT, or -1. */
static long place_all(const struct finishing *f, int stage, const json_t *receipt,
                      struct err *err) {
    const json_t *file;
    size_t i;
    long left = 0;
    json_array_foreach(json_object_get(receipt, "files"), i, file) {
        struct row r = row_of(receipt, file);
        int status = place(f->dir, stage, &r, err);
        if (status < 0)
            return -1;
        if (status == LEFT)
            tell_left(f, stage, &r);
        left += status == LEFT;
    }
    return sync_places(f->dir, stage, receipt, err) < 0 ? -1 : left;
}

static int finish_one(int stage, const char *name, json_t *receipt, void *arg, struct err *err) {
    struct finishing *f = arg;
    char mark[NAME_SIZE * 4];
    struct buf now DEFER(buf_done) = BUF(DELIVER_NOW_MAX);
    if (is_done(stage, name))
        return 0;
    long left = place_all(f, stage, receipt, err);
    if (left < 0)
        return -1;
    note_delivered(f->dir, receipt, &now);
    const struct delivered what = {
        .record = json_integer_value(json_object_get(receipt, "journal_record")),
        .count = (long)json_array_size(json_object_get(receipt, "files")) - left,
        .files_sha256 = text_in(receipt, "files_sha256"),
        .now = now.data};
    if (f->done(f->arg, &what, err) < 0)
        return -1;
    snprintf(mark, sizeof(mark), "%s" DONE_ENDING, name);
    int fd DEFER_CLOSE = openat(stage, mark, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    f->count += what.count;
    return fd < 0 ? err_sys(err, "cannot mark receipt '%s' as done", name) : 0;
}

long deliver_finish(int dir, const char *id, deliver_fn *done, deliver_left_fn *left, void *arg,
                    struct err *err) {
    struct finishing f = {dir, done, left, arg, 0};
    struct err none;
    int stage DEFER_CLOSE = open_stage(dir, id, false, &none);
    if (stage < 0)
        return none.code == ERR_NOT_FOUND ? 0 : (*err = none, -1);
    return each_receipt(stage, finish_one, &f, err) < 0 ? -1 : f.count;
}

/* The first receipt has a fixed name, which scripts can rely on. */
static void receipt_name(const struct delivery *d, int stage, char ret[NAME_SIZE]) {
    struct stat st;
    bool first = fstatat(stage, FIRST_RECEIPT, &st, AT_SYMLINK_NOFOLLOW) < 0;
    snprintf(ret, NAME_SIZE, first ? FIRST_RECEIPT : "receipt-%lld.json", d->record);
}

int deliver(const struct delivery *d, const struct parcel *p, char receipt[DELIVER_NAME],
            struct err *err) {
    char name[NAME_SIZE];
    int stage DEFER_CLOSE = open_stage(d->dir, d->id, true, err);
    if (stage < 0)
        return -1;
    for (size_t i = 0; i < p->count; i++)
        if (p->items[i].wanted && stage_item(d, stage, i, &p->items[i], err) < 0)
            return -1;
    receipt_name(d, stage, name);
    snprintf(receipt, DELIVER_NAME, "%s", name);
    if (write_list(d, p, stage, name, err) < 0)
        return -1;
    return fsync(d->dir) < 0 ? err_sys(err, "cannot flush the target directory to disk") : 0;
}

/* The name comes from the content, so keeping the same version again makes no second file. */
int deliver_aside(int dir, const char *id, const struct parcel_item *i, char ret_name[DELIVER_NAME],
                  struct err *err) {
    int stage DEFER_CLOSE = open_stage(dir, id, true, err);
    snprintf(ret_name, DELIVER_NAME, "aside.%.16s", i->sha256);
    if (stage < 0 || stage_file(dir, stage, ret_name, i, err) < 0)
        return -1;
    return fsync(stage) < 0 || fsync(dir) < 0
               ? err_sys(err, "cannot flush the target directory to disk")
               : 0;
}

/* ---- undo ---- */

/* Returns 1 if the file was restored, 0 if it changed after the delivery and stays. */
static int undo_one(int dir, int stage, const struct row *r, struct err *err) {
    char old[NAME_SIZE], now[SHA256_HEX] = "";
    const char *name;
    part_name(r->record, r->n, "old", old);
    int parent DEFER_CLOSE = parcel_parent(dir, r->path, &name);
    bool there = parent >= 0 && parcel_hash(dir, r->path, now);
    if (is_dir(r)) {
        if (parent >= 0)
            unlinkat(parent, name, AT_REMOVEDIR); /* fails if it has other files */
        return 1;
    }
    if (r->change == 'D' ? there : !there || strcmp(now, r->sha256) != 0)
        return 0;
    if (parent < 0)
        return err_num(err, parent, "cannot open the directory of file '%s'", r->path);
    int status = r->change == 'A'   ? unlinkat(parent, name, 0)
                 : r->change == 'D' ? move_new(stage, old, parent, name)
                                    : renameat(stage, old, parent, name);
    if (status < 0 && r->change == 'D' && errno == EEXIST)
        return 0;
    return status < 0 ? err_sys(err, "cannot put the previous version of file '%s' back", r->path)
                      : 1;
}

struct undoing {
    int dir;
    long count, kept, receipts;
    char *files_sha256;
    struct buf *now;
};

static int undo_receipt(int stage, const char *name, json_t *receipt, void *arg, struct err *err) {
    struct undoing *u = arg;
    const json_t *files = json_object_get(receipt, "files");
    (void)name;
    u->receipts++;
    snprintf(u->files_sha256, SHA256_HEX, "%s", text_in(receipt, "files_sha256"));
    for (size_t i = json_array_size(files); i > 0; i--) { /* files before their directories */
        struct row r = row_of(receipt, json_array_get(files, i - 1));
        int done = undo_one(u->dir, stage, &r, err);
        if (done < 0)
            return -1;
        if (done && !is_dir(&r))
            note_now(u->dir, r.path, u->now);
        u->count += done;
        u->kept += !done;
    }
    return sync_places(u->dir, stage, receipt, err);
}

static int remove_stage(int dir, int stage, const char *id, struct err *err) {
    char name[NAME_SIZE];
    DIR *d DEFER(dir_close) = dir_list(stage, ".");
    for (struct dirent *e; d && (e = readdir(d));)
        unlinkat(stage, e->d_name, 0);
    stage_name(id, name);
    if (unlinkat(dir, name, AT_REMOVEDIR) < 0 || fsync(dir) < 0)
        return err_sys(err, "cannot remove staging directory '%s'", name);
    return 0;
}

long deliver_undo(int dir, const char *id, long *ret_kept, char files_sha256[SHA256_HEX],
                  struct buf *now, struct err *err) {
    struct undoing u = {.dir = dir, .files_sha256 = files_sha256, .now = now};
    int stage DEFER_CLOSE = open_stage(dir, id, false, err);
    if (stage < 0 || each_receipt(stage, undo_receipt, &u, err) < 0)
        return -1;
    *ret_kept = u.kept;
    if (!u.kept && remove_stage(dir, stage, id, err) < 0)
        return -1;
    return u.receipts
               ? u.count
               : err_set(err, ERR_INVALID,
                         "this directory has no receipt (list of shipped files) of change set '%s'",
                         id);
}
