/* A store in a folder of the test's own. */
#pragma once

#include "store/owners.h"
#include "store/store.h"
#include "tests/unit/unit.h"

/* segment_bytes of its journal; 0: the default. */
static inline struct store *unit_store(const char *home, uint64_t segment_bytes) {
    const struct store_options o = {.home = home, .journal = {.segment_bytes = segment_bytes}};
    struct store *s = NULL;
    struct err why = {0};
    if (store_open(&o, &s, &why) < 0)
        fail_msg("%s", why.text);
    return s;
}

/* The same with an owner. */
static inline struct store *unit_store_of(const char *home, const struct owner_row *owner) {
    struct store *s = unit_store(home, 0);
    struct err why = {0};
    if (store_owner_put(s, owner, &why) < 0)
        fail_msg("%s", why.text);
    return s;
}

static const struct owner_row unit_ann = {.name = "ann", .uid = 1000};
