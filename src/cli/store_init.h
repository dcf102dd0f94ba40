/*
 * `carrel store init`: sets the disk format of new machines.
 *
 * This is refused while a daemon or a spawner uses the store.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct store_init {
    uint64_t btrfs_bytes; /* 0: --btrfs was not given */
    bool plain, json;
};

int store_init(const struct store_init *o, struct err *err);
