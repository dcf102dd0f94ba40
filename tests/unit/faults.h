/*
 * A disk that fails: the program that includes this has its own write(), pwrite64(), ftruncate64(),
 * fdatasync() and fsync(), which the libraries find first. Only plain files are concerned.
 */
#pragma once

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
    atomic_int countdown; /* the call that takes it to 0 fails; 0: none does */
    atomic_int error;     /* with this errno */
    atomic_bool forever;  /* and so do all after it */
    atomic_bool shortly;  /* a write that fails has written half of it */
    atomic_bool syncs;    /* count syncs only, else writes only */
    atomic_int hits;
    atomic_ullong loop_syncs; /* by the first thread */
    atomic_ullong other_syncs;
} faults;

static inline void faults_set(int nth, int error, bool forever, bool shortly, bool syncs) {
    atomic_store(&faults.countdown, nth);
    atomic_store(&faults.error, error);
    atomic_store(&faults.forever, forever);
    atomic_store(&faults.shortly, shortly);
    atomic_store(&faults.syncs, syncs);
    atomic_store(&faults.hits, 0);
}

static inline bool fault_due(int fd, bool sync) {
    struct stat st;
    if (atomic_load(&faults.countdown) == 0 || sync != atomic_load(&faults.syncs) ||
        fstat(fd, &st) < 0 || !(S_ISREG(st.st_mode) || (sync && S_ISDIR(st.st_mode))))
        return false;
    if (atomic_load(&faults.countdown) == 1 && atomic_load(&faults.forever))
        return atomic_fetch_add(&faults.hits, 1) >= 0;
    if (atomic_fetch_sub(&faults.countdown, 1) != 1)
        return false;
    if (atomic_load(&faults.forever))
        atomic_store(&faults.countdown, 1);
    return atomic_fetch_add(&faults.hits, 1) >= 0;
}

static inline int fault_fail(void) {
    errno = atomic_load(&faults.error);
    return -1;
}

ssize_t write(int fd, const void *bytes, size_t len) {
    if (!fault_due(fd, false))
        return syscall(SYS_write, fd, bytes, len);
    if (atomic_load(&faults.shortly) && len > 1)
        (void)syscall(SYS_write, fd, bytes, len / 2);
    return fault_fail();
}

ssize_t pwrite64(int fd, const void *bytes, size_t len, off64_t at) {
    if (!fault_due(fd, false))
        return syscall(SYS_pwrite64, fd, bytes, len, at);
    if (atomic_load(&faults.shortly) && len > 1)
        (void)syscall(SYS_pwrite64, fd, bytes, len / 2, at);
    return fault_fail();
}

/* Fails only with the disk that stays broken. */
int ftruncate64(int fd, off64_t len) {
    if (atomic_load(&faults.forever) && atomic_load(&faults.hits) && fault_due(fd, false))
        return fault_fail();
    return (int)syscall(SYS_ftruncate, fd, len);
}

static inline int fault_sync(long call, int fd) {
    if (syscall(SYS_gettid) == getpid())
        atomic_fetch_add(&faults.loop_syncs, 1);
    else
        atomic_fetch_add(&faults.other_syncs, 1);
    return fault_due(fd, true) ? fault_fail() : (int)syscall(call, fd);
}

int fdatasync(int fd) {
    return fault_sync(SYS_fdatasync, fd);
}

int fsync(int fd) {
    return fault_sync(SYS_fsync, fd);
}
