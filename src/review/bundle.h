/*
 * The head of a git bundle: the refs in it, and where the pack of objects begins. A machine wrote
 * the bytes. The rule: nothing here runs a program or reads a file.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { BUNDLE_HASH = 65 };

/* Points into the bytes that were parsed. */
struct bundle {
    const char *head, *pack; /* head: lines "HASH REF", "-HASH ..." and "@NAME=VALUE" */
    size_t head_size, pack_size;
};

/* Returns false if the bytes are not a bundle of version 2 or 3. */
bool bundle_parse(const char *bytes, size_t n, struct bundle *ret);

/* Finds a ref by its full name and returns its hash, 40 or 64 hexadecimal digits. */
bool bundle_find(const struct bundle *b, const char *ref, char ret[BUNDLE_HASH]);
