/*
 * A set of names that says "certainly not" or "maybe": it holds hashes of the names, and at most a
 * given number of them, because a box chooses how many names there are. Once it is full, the answer
 * is always "maybe".
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct names {
    uint64_t *slots; /* hashes; 0: free */
    size_t size, count;
    size_t *room; /* hashes that all sets of a user may still hold, together */
    bool full;
};

/* *room must outlive the set. */
void names_init(struct names *n, size_t *room);
void names_done(struct names *n);

void names_add(struct names *n, const char *name);
bool names_may_have(const struct names *n, const char *name);
