/*
 * A set of names that says "certainly not" or "maybe": it holds hashes of the names, and at most a
 * given number of them, because a box chooses how many names there are. Once it is full, the answer
 * is always "maybe".
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct name_set {
    uint64_t *slots; /* hashes; 0: free */
    size_t size, count;
    size_t *room; /* hashes that all sets of a user may still hold, together */
    bool full;
};

/* *room must outlive the set. */
void name_set_init(struct name_set *n, size_t *room);
void name_set_done(struct name_set *n);

void name_set_add(struct name_set *n, const char *name);
bool name_set_may_have(const struct name_set *n, const char *name);
