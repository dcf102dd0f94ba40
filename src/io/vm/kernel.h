/*
 * Finds a kernel of the host that a vm can run: one whose modules are installed too.
 */
#pragma once

#include "base/buf.h"
#include "io/vm/modules.h"

enum { KERNEL_PATH_SIZE = 512, KERNEL_VERSION_SIZE = 128 };

struct kernel {
    char path[KERNEL_PATH_SIZE];    /* `.../vmlinuz-VERSION` */
    char modules[KERNEL_PATH_SIZE]; /* the directory of its modules */
    char version[KERNEL_VERSION_SIZE];
};

/* Takes apart the path of a kernel. Its modules are in `../lib/modules/VERSION`. Touches no file.
 */
int kernel_named(const char *path, struct kernel *ret, struct err *err);

/*
 * Chooses among the kernels in a directory: Debian's cloud flavour, which is small, comes first,
 * then the newest version. Call it with `tries` from 0 on for the next best. Fails with
 * ERR_NOT_FOUND if there are no more.
 */
int kernel_pick(const char *dir, unsigned tries, struct kernel *ret, struct err *err);

/*
 * Finds the kernel at a path, or the best one in /boot if the path is NULL or empty, and the
 * modules that a vm needs. Fails with ERR_UNSUPPORTED and a remedy if there is none.
 */
int kernel_find(const char *path, struct kernel *ret, struct modules *ret_modules, struct err *err);

/* Read a whole file, up to the limit of the buffer. A module is named by its path in `modules`. */
int kernel_read(const char *path, struct buf *to, struct err *err);
int kernel_read_module(const struct kernel *k, const char *name, struct buf *to, struct err *err);
