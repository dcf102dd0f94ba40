/*
 * Synced before acknowledged: this program has its own write(), pwrite64(), fdatasync(), fsync()
 * and openat(), which the libraries find first. They keep a list of files that were written and not
 * synced. Only what the first thread writes is noted: the store's own thread syncs whenever it
 * likes.
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/outlog.h"
#include "io/outlog_fd.h"
#include "store/events.h"
#include "store/owners.h"
#include "tests/unit/scratch.h"

enum { FILES = 64 };

static struct {
    pthread_mutex_t lock;
    ino_t dirty[FILES];
    size_t count;
    ino_t page_of;   /* the file under test */
    bool page_early; /* its last write at offset 0 came while others were not synced */
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER};

static size_t dirty_at(ino_t file) {
    size_t i = 0;
    while (i < seen.count && seen.dirty[i] != file)
        i++;
    return i;
}

static bool is_dirty(ino_t file) {
    pthread_mutex_lock(&seen.lock);
    bool found = dirty_at(file) < seen.count;
    pthread_mutex_unlock(&seen.lock);
    return found;
}

static void note_dirty(int fd, bool page) {
    struct stat st;
    if (syscall(SYS_gettid) != getpid() || fstat(fd, &st) < 0 ||
        !(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)))
        return;
    pthread_mutex_lock(&seen.lock);
    if (page && st.st_ino == seen.page_of)
        seen.page_early = dirty_at(st.st_ino) < seen.count;
    if (dirty_at(st.st_ino) == seen.count && seen.count < FILES)
        seen.dirty[seen.count++] = st.st_ino;
    pthread_mutex_unlock(&seen.lock);
}

static void note_synced(int fd) {
    struct stat st;
    if (fstat(fd, &st) < 0)
        return;
    pthread_mutex_lock(&seen.lock);
    size_t i = dirty_at(st.st_ino);
    if (i < seen.count)
        seen.dirty[i] = seen.dirty[--seen.count];
    pthread_mutex_unlock(&seen.lock);
}

ssize_t write(int fd, const void *bytes, size_t len) {
    note_dirty(fd, false);
    return syscall(SYS_write, fd, bytes, len);
}

ssize_t pwrite64(int fd, const void *bytes, size_t len, off64_t at) {
    note_dirty(fd, at == 0);
    return syscall(SYS_pwrite64, fd, bytes, len, at);
}

int openat64(int dir, const char *path, int flags, ...) {
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;
    va_end(list);
    struct stat st;
    bool makes = (flags & O_CREAT) && fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW) < 0;
    int fd = (int)syscall(SYS_openat, dir, path, flags, mode);
    if (fd >= 0 && makes && dir != AT_FDCWD)
        note_dirty(dir, false);
    return fd;
}

/* Before the sync: what is written meanwhile may not be in it. */
int fdatasync(int fd) {
    note_synced(fd);
    return (int)syscall(SYS_fdatasync, fd);
}

int fsync(int fd) {
    note_synced(fd);
    return (int)syscall(SYS_fsync, fd);
}

static ino_t inode_of(const char *path) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_ino;
}

/* ---- the store ---- */

static void a_flush_leaves_nothing_of_the_database_unsynced(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store_options options = {.home = dir.path};
    struct owner_row owner = {.name = "ann", .uid = 1000};
    struct store *s;
    char wal[128];
    assert_int_equal(store_open(&options, &s, NULL), 0);
    ino_t log = inode_of(scratch_file(&dir, "carrel.db-wal", wal));
    for (int i = 0; i < 20; i++) {
        assert_int_equal(store_owner_put(s, &owner, NULL), 0);
        assert_int_equal(store_flush(s, NULL), 0);
        assert_false(is_dirty(log));
    }
    store_close(s);
}

/* Segments of a few records each: those that ended are synced too, and so is their folder. */
static void a_flush_leaves_nothing_of_the_journal_unsynced(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store_options options = {.home = dir.path, .journal = {.segment_bytes = 600}};
    struct journal_record record = {.kind = JOURNAL_NOTE, .verb = "test"};
    struct store *s;
    char path[128], name[48];
    assert_int_equal(store_open(&options, &s, NULL), 0);
    ino_t folder = inode_of(scratch_file(&dir, "journal", path));
    for (int i = 1; i < 40; i++) {
        assert_int_equal(store_log(s, &record, NULL, NULL), 0);
        if (i % 5)
            continue;
        assert_int_equal(store_flush(s, NULL), 0);
        assert_false(is_dirty(folder));
        for (int segment = 1; segment < 100; segment++) {
            snprintf(name, sizeof(name), "journal/%08d.log", segment);
            if (access(scratch_file(&dir, name, path), F_OK) == 0)
                assert_false(is_dirty(inode_of(path)));
        }
    }
    assert_int_equal(access(scratch_file(&dir, "journal/00000005.log", path), F_OK), 0);
    store_close(s);
}

/* The control: a write is noted, and is not synced by itself. */
static void a_write_is_noted(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    char path[128];
    int fd DEFER_CLOSE = open(scratch_file(&dir, "file", path), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, "x", 1), 1);
    assert_true(is_dirty(inode_of(path)));
    assert_int_equal(fdatasync(fd), 0);
    assert_false(is_dirty(inode_of(path)));
}

/* ---- kept output ---- */

static void output_is_synced_before_the_numbers_that_promise_it(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct outlog_fd log DEFER(outlog_fd_close) = OUTLOG_FD_NONE;
    const struct outlog_caps caps = {{1 << 20, 1 << 16}, {1 << 20, 1 << 16}};
    struct outlog_kept done = {0};
    char path[128], text[5000];
    struct err err;
    memset(text, 'x', sizeof(text));
    assert_int_equal(outlog_fd_make(&log, &caps, &err), 0);
    struct outlog_writer writer;
    assert_int_equal(outlog_write(&writer, log.log.map, log.bytes), 0);
    int file DEFER_CLOSE =
        open(scratch_file(&dir, "kept", path), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    for (int round = 1; round < 4; round++) {
        outlog_put(&writer, 0, text, sizeof(text));
        seen.page_of = inode_of(path);
        seen.page_early = true;
        assert_int_equal(outlog_keep(&log.log, file, &done, &err), 0);
        assert_int_equal(done.produced[0], round * sizeof(text));
        assert_false(is_dirty(inode_of(path)));
        assert_false(seen.page_early);
    }
}

UNIT_MAIN(cmocka_unit_test(a_write_is_noted),
          cmocka_unit_test(a_flush_leaves_nothing_of_the_database_unsynced),
          cmocka_unit_test(a_flush_leaves_nothing_of_the_journal_unsynced),
          cmocka_unit_test(output_is_synced_before_the_numbers_that_promise_it))
