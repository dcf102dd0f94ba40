/* A folder of the test's own, removed with everything in it; in memory where that is possible,
 * because these tests sync often and are about bytes, not about disks. */
#pragma once

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct scratch {
    char path[64];
};

static inline struct scratch scratch_new(void) {
    struct scratch s = {"/dev/shm/carrel-unit-XXXXXX"};
    if (mkdtemp(s.path))
        return s;
    s = (struct scratch){"/tmp/carrel-unit-XXXXXX"};
    if (!mkdtemp(s.path))
        abort();
    return s;
}

static inline int scratch_open(const struct scratch *s) {
    int fd = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        abort();
    return fd;
}

static inline int scratch_unlink(const char *path, const struct stat *st, int type,
                                 struct FTW *at) {
    (void)st, (void)type, (void)at;
    return remove(path);
}

static inline void scratch_done(struct scratch *s) {
    nftw(s->path, scratch_unlink, 16, FTW_DEPTH | FTW_PHYS);
}

/* struct scratch dir DEFER(scratch_done) = scratch_new(); char path[...]; */
static inline const char *scratch_file(const struct scratch *s, const char *name, char ret[128]) {
    snprintf(ret, 128, "%s/%s", s->path, name);
    return ret;
}
