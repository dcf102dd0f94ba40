/*
 * Stacks of layers, as text: "m-4kq2x7w3n5ab/7 m-4kq2x7w3n5ab/3", the uppermost first.
 *
 * A layer is a frozen upper: a numbered directory on the disk of the machine that wrote it, or a
 * copy of one on a disk of the store ("d-..."), which outlives the host. The image below them all
 * is not named. Parsing is total: anything but that form is refused.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"

enum {
    LAYERS_MAX = 64,      /* in one stack; the kernel takes 500, and each costs every lookup */
    LAYERS_GOOD = 16,     /* what compaction keeps a retained step within */
    LAYERS_DISKS_MAX = 8, /* disks of other machines in one stack */
    LAYER_NUMBER_MAX = 999999999,
    LAYERS_TEXT_SIZE = LAYERS_MAX * (ID_SIZE + 11) + 1,
};

struct layer {
    char machine[ID_SIZE]; /* or a saved disk */
    uint32_t number;       /* from 1 on */
};

struct layers {
    size_t count;
    struct layer v[LAYERS_MAX];
};

int layers_parse(const char *text, struct layers *ret, struct err *err);
/* False: it does not fit. */
bool layers_print(const struct layers *l, char *text, size_t size);

/* One more on top; `limit` when there are too many. */
int layers_push(struct layers *l, const char *machine, uint32_t number, struct err *err);
bool layers_have(const struct layers *l, const char *machine, uint32_t number);
