/*
 * Dumps of interpreters: a warm image (cell/warm.h) as a file that a worker maps and continues.
 *
 * The file has the validated, translated module and the memory of the interpreter, with pointers
 * (wasm/dump.h). So it is trusted, and only Carrel may write it. It belongs to one build of this
 * program, and to one program file and one image, which it knows by their sizes and times.
 */
#pragma once

#include <sys/stat.h>

#include "base/buf.h"
#include "base/err.h"
#include "cell/log.h"
#include "cell/warm.h"
#include "wasm/dump.h"

/* An interpreter that is mapped. */
struct dump {
    struct wasm_mapped mapped;
    uint8_t *wasi; /* its state of WASI, as host_wasi_save() writes it; owned */
    size_t wasi_size;
};

/* The files that a dump is made of, and the limits of the program. */
struct dump_for {
    const char *warm_head; /* that of warm_head(), WARM_HEAD_SIZE bytes */
    const struct stat *program, *image;
    uint64_t pages;
};

/*
 * Maps a dump. false: the file is damaged or cut off, belongs to other files or to
 * another build, or is too large for the limits. Then nothing else has happened.
 */
bool dump_open(int fd, const struct dump_for *f, struct dump *ret);
void dump_done(struct dump *f);

/*
 * Makes a dump of a program and its warm image, in a jail, and writes it to `out`.
 * `head` is that of warm_head().
 */
int dump_make(int program, int image, int out, const char head[WARM_HEAD_SIZE], struct err *err);

/*
 * The same with paths, for the folder of interpreters. dump_open_path() takes only a file that
 * nobody but this user and root can write.
 */
bool dump_open_path(const char *path, const char *program, const char *image,
                    const char head[WARM_HEAD_SIZE], uint64_t pages, struct dump *ret);
int dump_make_path(const char *path, const char *program, const char *image,
                   const char head[WARM_HEAD_SIZE], struct err *err);

/* The program under this name (base/cell_dump.h). It ends with the daemon. */
int dump_main(int argc, char **argv);
