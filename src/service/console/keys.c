#include "service/console/keys.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/sha256.h"

void key_hash(const char *text, size_t n, char ret[CONSOLE_KEY_SIZE]) {
    struct sha256 hash;
    sha256_init(&hash);
    sha256_add(&hash, text, n);
    sha256_end_hex(&hash, ret);
}

void keys_init(struct keys *k) {
    k->list = xcalloc(k->max, sizeof(*k->list));
}

void keys_done(struct keys *k) {
    explicit_bzero(k->list, k->max * sizeof(*k->list));
    free(k->list);
}

struct key *keys_find(struct keys *k, const char *text, size_t n, int64_t now_ms) {
    char hash[CONSOLE_KEY_SIZE];
    key_hash(text, n, hash);
    for (size_t i = 0; i < k->max; i++)
        if (k->list[i].hash[0] && strcmp(k->list[i].hash, hash) == 0)
            return now_ms < k->list[i].expires_ms ? &k->list[i] : NULL;
    return NULL;
}

/* By owner, then the key first that was not used for the longest time. */
static int key_compare(const void *a, const void *b) {
    const struct key *x = *(struct key *const *)a, *y = *(struct key *const *)b;
    int order = strcmp(x->who.owner, y->who.owner);
    return order ? order : (x->used_ms > y->used_ms) - (x->used_ms < y->used_ms);
}

/* The oldest key of the owner who has the most, if that is more than `count`, in a full table. */
static struct key *keys_largest(struct keys *k, size_t count) {
    struct key **sorted DEFER_FREE = xmalloc(k->max * sizeof(struct key *));
    struct key *found = NULL;
    for (size_t i = 0; i < k->max; i++)
        sorted[i] = &k->list[i];
    qsort(sorted, k->max, sizeof(*sorted), key_compare);
    for (size_t i = 0, begin = 0; i < k->max; i++) {
        if (strcmp(sorted[i]->who.owner, sorted[begin]->who.owner) != 0)
            begin = i;
        if (i - begin + 1 > count) {
            count = i - begin + 1;
            found = sorted[begin];
        }
    }
    return found;
}

static struct key *keys_room(struct keys *k, const char *owner, int64_t now_ms) {
    struct key *empty = NULL, *oldest = NULL;
    size_t count = 0;
    for (size_t i = 0; i < k->max; i++) {
        struct key *at = &k->list[i];
        if (at->hash[0] && now_ms >= at->expires_ms)
            explicit_bzero(at, sizeof(*at));
        if (!at->hash[0]) {
            empty = empty ? empty : at;
        } else if (strcmp(at->who.owner, owner) == 0) {
            count++;
            oldest = oldest && oldest->used_ms <= at->used_ms ? oldest : at;
        }
    }
    if (count >= k->of_owner)
        return oldest;
    if (empty)
        return empty;
    struct key *taken = keys_largest(k, count ? count : 1);
    return taken ? taken : oldest;
}

struct key *keys_slot(struct keys *k, const char *owner, int64_t now_ms, struct err *err) {
    struct key *slot = keys_room(k, owner, now_ms);
    if (slot) {
        explicit_bzero(slot, sizeof(*slot));
        return slot;
    }
    err_set(err, ERR_LIMIT, "all %zu %s of the console on this host belong to other owners", k->max,
            k->name);
    err_remedy(err, "try again when one has ended: each lives for at most %lld %s",
               (long long)(k->life_s >= 3600 ? k->life_s / 3600 : k->life_s),
               k->life_s >= 3600 ? "hours" : "seconds");
    return NULL;
}
