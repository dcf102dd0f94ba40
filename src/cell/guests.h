/*
 * Interpreters that run scripts: `carrel cell run x.py` runs program python with x.py.
 *
 * The interpreters are WASI programs in the folder of scripts/cell-guests. An interpreter gets a
 * copy of the script, in a read-only directory of its own, and not the directory of the script.
 * Without a grant of "/", this is an empty directory.
 */
#pragma once

#include "base/err.h"
#include "cell/options.h"
#include "cell/warm.h"

enum { GUEST_PATH_MAX = 4096, GUEST_WORDS_MAX = 1024 };

/* A script that is about to run. All fields belong to the functions below. */
struct script_run {
    struct cell_options options;        /* those of the command line, for the interpreter */
    char program[GUEST_PATH_MAX];       /* path of the interpreter */
    char warm[GUEST_PATH_MAX];          /* path of its warm image (cell/warm.h) */
    char dump[GUEST_PATH_MAX];          /* path of its dump (cell/dump.h) */
    const struct warm_program *image;   /* can be used, if there is one for the seed; or NULL */
    char head[WARM_HEAD_SIZE];          /* bytes that it starts with */
    int script_word;                    /* the script among the words */
    char directory[GUEST_PATH_MAX];     /* a temporary one, with the two below; or empty */
    char script[GUEST_PATH_MAX];        /* the directory of the copy */
    char root[GUEST_PATH_MAX];          /* an empty directory */
    char copy[GUEST_PATH_MAX];          /* path of the copy */
    char name[GUEST_PATH_MAX];          /* path of the script in the cell */
    const char *words[GUEST_WORDS_MAX]; /* arguments of the interpreter */
};

/* True if the verb runs a file whose ending belongs to an interpreter. */
bool script_has_guest(const struct cell_options *o);
/*
 * Finds the interpreter and copies the script. script_close() deletes the copy, also after a
 * failure; so does a signal that ends this process.
 */
int script_open(const struct cell_options *o, struct script_run *ret, struct err *err);
/* The same for `cell warm NAME`: an interpreter and its driver, and no script. */
int script_open_warm(const struct cell_options *o, struct script_run *ret, struct err *err);
void script_close(struct script_run *g);
