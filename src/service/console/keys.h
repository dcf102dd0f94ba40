/*
 * A table of keys of one kind: links, sessions or tickets of the console.
 *
 * An owner has a limited number of keys; one more replaces the owner's key that was not used for
 * the longest time. A full table takes the key from the owner who has the most, so no owner can
 * keep others out: their keys stay until they have as many.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "service/service.h"

enum { CONSOLE_KEY_SIZE = 65 /* with the NUL */ };

/* Free slots have no hash. */
struct key {
    char hash[CONSOLE_KEY_SIZE];
    char target[CONSOLE_KEY_SIZE]; /* hash of the target of a ticket */
    struct caller who;
    bool own_user; /* a link that only a process of its user opens */
    int64_t expires_ms, used_ms;
};

struct keys {
    const char *name; /* "links", for errors */
    size_t max, of_owner;
    int64_t life_s;
    struct key *list;
};

void keys_init(struct keys *k);
void keys_done(struct keys *k);
/* The hash, not the key, is compared: its bytes say nothing about the bytes of a guess. */
struct key *keys_find(struct keys *k, const char *text, size_t n, int64_t now_ms);
/* Returns a slot, emptied, for a new key of the owner. */
struct key *keys_slot(struct keys *k, const char *owner, int64_t now_ms, struct err *err);
void key_hash(const char *text, size_t n, char ret[CONSOLE_KEY_SIZE]);
