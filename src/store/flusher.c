#include "store/flusher.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/defer.h"
#include "store/connection.h"
#include "store/store.h"

/*
 * This file relies on three facts about SQLite's write-ahead log. A commit with synchronous=NORMAL
 * only writes; it is durable once any thread has synced the log file. A checkpoint copies the log
 * into the database while others write. Once all is copied, the next writer starts the log from its
 * beginning again, and that one commit waits for the disk. So the next writer must be this thread.
 */
enum {
    /* commits in this time share a sync; a power cut loses at most twice this time */
    GATHER_MS = 100,
    QUIET_PAGES = 512,     /* 1 MiB of log: copy it to the database when nobody writes */
    BUSY_PAGES = 4096,     /* 8 MiB of log: copy it even while somebody writes */
    RESTART_PAGES = 32768, /* 64 MiB of log, the maximum: writers wait until all of it is copied */
    OWN_LOCK_MS = 10 * 1000,
    OTHERS_LOCK_MS = 1000,
    LOCKED_OUT_MS = 5,
};

struct flusher {
    pthread_t thread;
    sqlite3 *db; /* the thread's own connection to the database */
    sqlite3_stmt *mark;
    struct journal *journal;
    int wal_fd;
    uint32_t copied_pages; /* pages in the write-ahead log at the last checkpoint */

    atomic_bool dirty;
    atomic_bool failed;
    atomic_bool writes; /* the thread has the lock of the database, or waits for it */
    atomic_uint wal_pages;
    atomic_ullong flushes;
    atomic_ullong checkpoints;

    /* Used only by the thread of the event loop. */
    uint64_t waits_since_ms;
    bool locked_out; /* the last wait for the database lock ended without it */

    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;
    struct err error; /* why the flush failed */
};

/* ---- Syncing ---- */

void flusher_fail(struct flusher *f, const struct err *why) {
    pthread_mutex_lock(&f->lock);
    if (!atomic_load(&f->failed)) {
        f->error = *why;
        atomic_store(&f->failed, true);
    }
    pthread_mutex_unlock(&f->lock);
}

int flusher_check(struct flusher *f, struct err *err) {
    if (!atomic_load_explicit(&f->failed, memory_order_relaxed))
        return 0;
    struct err why;
    pthread_mutex_lock(&f->lock);
    why = f->error;
    pthread_mutex_unlock(&f->lock);
    if (err)
        *err = why;
    err_wrap(err, "writes to the store are refused because the disk failed");
    return err_remedy(err, "check the disk of CARREL_HOME, then restart the daemon");
}

int flusher_flush(struct flusher *f, struct err *err) {
    struct err why;
    if (flusher_check(f, err) < 0)
        return -1;
    if (journal_sync(f->journal, &why) < 0 ||
        (fdatasync(f->wal_fd) < 0 && err_sys(&why, "cannot sync the database") < 0)) {
        flusher_fail(f, &why);
        return flusher_check(f, err);
    }
    atomic_fetch_add(&f->flushes, 1);
    return 0;
}

/* ---- The write-ahead log ---- */

/*
 * Writes the mark: the head (hash) of the journal that is durable now. With it a journal that was
 * rolled back is noticed. This is also the first write after a complete checkpoint. The statement
 * increments a counter, because SQLite writes nothing if no value changes.
 */
static void write_mark(struct flusher *f) {
    struct journal_head head;
    char text[JOURNAL_HEAD_TEXT];
    journal_synced(f->journal, &head);
    journal_head_text(&head, text);
    sqlite3_bind_text(f->mark, 1, text, -1, SQLITE_STATIC);
    atomic_store(&f->writes, true);
    (void)sqlite3_step(f->mark);
    sqlite3_reset(f->mark);
    atomic_store(&f->writes, false);
}

/*
 * Copies a long write-ahead log into the database. A failure is harmless: the next round tries
 * again.
 */
static void checkpoint(struct flusher *f) {
    uint32_t pages = atomic_load(&f->wal_pages);
    uint32_t enough = atomic_load(&f->dirty) ? BUSY_PAGES : QUIET_PAGES;
    int in_log = 0, copied = 0;
    if (pages < f->copied_pages)
        f->copied_pages = 0;
    if (pages < f->copied_pages + enough)
        return;
    int mode = pages < RESTART_PAGES ? SQLITE_CHECKPOINT_PASSIVE : SQLITE_CHECKPOINT_RESTART;
    atomic_store(&f->writes, mode == SQLITE_CHECKPOINT_RESTART);
    int rc = sqlite3_wal_checkpoint_v2(f->db, NULL, mode, &in_log, &copied);
    atomic_store(&f->writes, false);
    if (rc != SQLITE_OK)
        return;
    f->copied_pages = pages;
    if (in_log != copied)
        return;
    atomic_fetch_add(&f->checkpoints, 1);
    write_mark(f);
}

static int on_commit(void *arg, sqlite3 *db, const char *name, int pages) {
    struct flusher *f = arg;
    (void)db, (void)name;
    atomic_store(&f->wal_pages, (uint32_t)pages);
    atomic_store(&f->dirty, true);
    return SQLITE_OK;
}

/* ---- Waiting for the lock of the database ---- */

/*
 * The event loop answers nobody while it waits here. So it waits for another program up to a second
 * once, and then only 5 ms at a time until a commit succeeds.
 */
static int wait_for_lock(void *arg, int tries) {
    struct flusher *f = arg;
    uint64_t now = monotonic_ms();
    if (tries == 0)
        f->waits_since_ms = now;
    uint64_t most = atomic_load(&f->writes) ? OWN_LOCK_MS
                    : f->locked_out         ? LOCKED_OUT_MS
                                            : OTHERS_LOCK_MS;
    if (now - f->waits_since_ms >= most) {
        f->locked_out = true;
        return 0;
    }
    nanosleep(&(struct timespec){.tv_nsec = 100 * 1000l}, NULL);
    return 1;
}

void flusher_keep_waits_short(struct flusher *f, sqlite3 *db) {
    sqlite3_busy_handler(db, wait_for_lock, f);
}

/* ---- The thread ---- */

/* Waits for a write, then GATHER_MS more, so that writes share a sync. False: stop the thread. */
static bool wait_for_work(struct flusher *f) {
    struct timespec until;
    pthread_mutex_lock(&f->lock);
    while (!f->stop && !atomic_load(&f->dirty))
        pthread_cond_wait(&f->wake, &f->lock);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += GATHER_MS * 1000000l;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    while (!f->stop && pthread_cond_timedwait(&f->wake, &f->lock, &until) != ETIMEDOUT)
        ;
    bool stop = f->stop;
    pthread_mutex_unlock(&f->lock);
    return !stop;
}

static void *flusher_run(void *arg) {
    struct flusher *f = arg;
    while (wait_for_work(f)) {
        atomic_store(&f->dirty, false);
        if (flusher_flush(f, NULL) == 0)
            checkpoint(f);
    }
    return NULL;
}

void flusher_touch(struct flusher *f, uint32_t wal_pages) {
    if (wal_pages) {
        atomic_store_explicit(&f->wal_pages, wal_pages, memory_order_relaxed);
        f->locked_out = false;
    }
    if (atomic_load_explicit(&f->dirty, memory_order_relaxed) || atomic_exchange(&f->dirty, true))
        return;
    pthread_mutex_lock(&f->lock);
    pthread_cond_signal(&f->wake);
    pthread_mutex_unlock(&f->lock);
}

void flusher_stats(struct flusher *f, struct flusher_stats *ret) {
    *ret = (struct flusher_stats){
        .flushes = atomic_load(&f->flushes),
        .checkpoints = atomic_load(&f->checkpoints),
        .wal_pages = atomic_load(&f->wal_pages),
    };
}

static void flusher_free(struct flusher *f) {
    sqlite3_finalize(f->mark);
    sqlite3_close(f->db);
    close_fd(&f->wal_fd);
    pthread_cond_destroy(&f->wake);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

void flusher_stop(struct flusher *f) {
    if (!f)
        return;
    pthread_mutex_lock(&f->lock);
    f->stop = true;
    pthread_cond_signal(&f->wake);
    pthread_mutex_unlock(&f->lock);
    pthread_join(f->thread, NULL);
    if (flusher_flush(f, NULL) == 0)
        write_mark(f);
    flusher_free(f);
}

static int open_log(struct flusher *f, const char *path, struct err *err) {
    char wal[4096];
    snprintf(wal, sizeof(wal), "%s-wal", path);
    f->wal_fd = open(wal, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (f->wal_fd < 0)
        return err_sys(err, "cannot open the write-ahead log '%s'", wal);
    int rc =
        sqlite3_prepare_v3(f->db,
                           "INSERT INTO meta(name, value) VALUES('journal', ?1), ('marks', '1')"
                           " ON CONFLICT(name) DO UPDATE SET value = iif(name = 'journal',"
                           " excluded.value, CAST(CAST(meta.value AS INTEGER) + 1 AS TEXT))",
                           -1, SQLITE_PREPARE_PERSISTENT, &f->mark, NULL);
    return rc == SQLITE_OK ? 0 : err_sqlite(err, f->db, rc, "cannot prepare an SQL statement");
}

static int start_thread(struct flusher *f, struct err *err) {
    sigset_t all, before;
    sigfillset(&all);
    /* The event loop handles all signals, so the new thread blocks them. */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&f->thread, NULL, flusher_run, f);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc == 0 ? 0 : err_num(err, -rc, "cannot start the thread that syncs the store");
}

int flusher_start(const char *path, struct journal *journal, struct flusher **ret,
                  struct err *err) {
    struct flusher *f = calloc(1, sizeof(*f));
    pthread_condattr_t attr;
    if (!f)
        return err_set(err, ERR_LIMIT, "cannot open the store: out of memory");
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->wake, &attr);
    pthread_condattr_destroy(&attr);
    f->journal = journal;
    f->wal_fd = -1;
    if (connection_open(path, &f->db, err) < 0 || open_log(f, path, err) < 0)
        goto failed;
    sqlite3_wal_hook(f->db, on_commit, f);
    /* Write and sync the mark here, so that not even the loop's first commit waits for the disk. */
    write_mark(f);
    if (flusher_flush(f, err) < 0 || start_thread(f, err) < 0)
        goto failed;
    *ret = f;
    return 0;
failed:
    flusher_free(f);
    return -1;
}
