/*
 * Flags that a reviewer should look at before taking a file from a machine: from its path, mode,
 * target and content. The rule: no I/O; the path and the content come from a machine.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/tar.h"

enum ship_flag {
    FLAG_EXECUTABLE = 1,
    FLAG_SETUID = 2,    /* the file has set-id bits, which are stripped */
    FLAG_LEAVES = 4,    /* a link out of the tree: never taken */
    FLAG_HOOK = 8,      /* git, a login or an editor runs the file by itself */
    FLAG_CI = 16,       /* a build service runs the file */
    FLAG_LOCK = 32,     /* the file decides which packages are installed */
    FLAG_SECRET = 64,   /* the file looks like a secret key */
    FLAG_TAINTED = 128, /* the machine had read data from an untrusted source */
    FLAG_BUILD = 256,   /* a build of the project runs the file */
};

unsigned flags_of(const struct tar_entry *e, const char *bytes, size_t n);
/* Returns which tool runs or obeys a file of that name: "git runs and obeys it"; else "". */
const char *flags_why(const char *path);
/* Writes the names of the flags, such as "executable, hook"; "" without flags. */
enum { FLAGS_TEXT = 128 };
void flags_text(unsigned flags, char ret[FLAGS_TEXT]);
