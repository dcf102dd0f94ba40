/*
 * The names a machine has asked for, and the synthetic address of each.
 *
 * Addresses are taken from 198.18.0.0/15 in order, so that programs which keep one for ever keep
 * meaning the same name; when all NAMES_MAX are in use, the oldest name loses its. An address
 * that has no name here was made up by the machine.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"
#include "gate/name.h"

enum { NAMES_MAX = 4096 };

struct names {
    char **names; /* by number; NULL: not in use */
    size_t next;  /* number of the next new name */
    struct map numbers;
    void (*added)(void *arg, uint32_t number, const char *name); /* to be kept; may be NULL */
    void *arg;
};

void names_done(struct names *n);

bool names_has(const struct names *n, const char *name);
/* The name's address, in host order; the name is added if it is new. */
uint32_t names_address(struct names *n, const char *name);
/* NULL: nobody asked for a name and got this. */
const char *names_find(const struct names *n, uint32_t address);

/* One that was kept. What does not fit is left out. */
void names_restore(struct names *n, uint32_t number, const char *name);
/* The number that comes after those restored: the one after the newest. */
void names_go_on(struct names *n, uint32_t newest);
