/* A log of output, and the file that keeps it. */
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include "io/outlog_fd.h"
#include "tests/unit/scratch.h"
#include "tests/unit/unit.h"

struct keeping {
    struct scratch dir;
    char path[128]; /* of the file */
    int file;
    struct outlog_fd log;
    struct outlog_writer writer;
    struct outlog_kept done;
    struct outlog kept; /* read from the file */
};

static inline struct keeping keeping_of(const struct outlog_caps *caps) {
    struct keeping k = {.dir = scratch_new(), .log = OUTLOG_FD_NONE};
    struct err why;
    assert_int_equal(outlog_fd_make(&k.log, caps, &why), 0);
    assert_int_equal(outlog_write(&k.writer, k.log.log.map, k.log.bytes), 0);
    k.file = open(scratch_file(&k.dir, "kept", k.path), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(k.file >= 0);
    return k;
}

static inline void keeping_done(struct keeping *k) {
    close(k->file);
    outlog_fd_close(&k->log);
    scratch_done(&k->dir);
}

static inline void keeping_keep(struct keeping *k) {
    struct err why;
    assert_int_equal(outlog_keep(&k->log.log, k->file, &k->done, &why), 0);
}

static inline void keeping_read(struct keeping *k) {
    struct err why;
    assert_int_equal(outlog_open_kept(&k->kept, k->file, &why), 0);
}
