/*
 * Stacks of layers, as text: "m-4kq2x7w3n5ab/7 m-4kq2x7w3n5ab/3", the uppermost first.
 *
 * A layer is a frozen upper (a writable layer that no longer changes): a numbered directory on the
 * disk of the machine that wrote it, or a copy on a disk of the store ("d-..."), which survives a
 * restart of the host. The image below all layers is not part of the text. Any other form is
 * refused.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"

enum {
    LAYERS_MAX = 64,      /* in one stack; the kernel allows 500, but each slows lookups of files */
    LAYERS_DISKS_MAX = 8, /* disks of other machines in one stack */
    LAYER_NUMBER_MAX = 999999999,
    LAYERS_TEXT_SIZE = LAYERS_MAX * (ID_SIZE + 11) + 1,
};

struct layer {
    char machine[ID_SIZE]; /* id of a machine, or of a disk of the store */
    uint32_t number;       /* from 1 on */
};

struct layers {
    size_t count;
    struct layer v[LAYERS_MAX];
};

int layers_parse(const char *text, struct layers *ret, struct err *err);
/* Writes the stack as text. False: the text does not fit. */
bool layers_print(const struct layers *l, char *text, size_t size);

/* Adds a layer on top; ERR_LIMIT if the stack is full. */
int layers_push(struct layers *l, const char *machine, uint32_t number, struct err *err);
bool layers_have(const struct layers *l, const char *machine, uint32_t number);
