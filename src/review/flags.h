/*
 * What deserves a look before a file is taken from a machine: told from its path, mode, target and
 * content. Pure.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/tar.h"

enum ship_flag {
    FLAG_EXECUTABLE = 1,
    FLAG_SETUID = 2,    /* stripped */
    FLAG_LEAVES = 4,    /* a link out of the tree: never taken */
    FLAG_HOOK = 8,      /* something runs it by itself: git, a login, an editor */
    FLAG_CI = 16,       /* a build service runs it */
    FLAG_LOCK = 32,     /* decides what is installed */
    FLAG_SECRET = 64,   /* looks like a key */
    FLAG_TAINTED = 128, /* its machine had read from a source that is not trusted */
    FLAG_BUILD = 256,   /* who builds the project runs it */
};

unsigned flags_of(const struct tar_entry *e, const char *bytes, size_t n);
/* Who runs or obeys a file of that name by itself, as half a sentence; "" nobody. */
const char *flags_why(const char *path);
/* "executable, hook"; "" of none. */
enum { FLAGS_TEXT = 128 };
void flags_text(unsigned flags, char ret[FLAGS_TEXT]);
