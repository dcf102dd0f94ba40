/*
 * The host names that a machine has looked up, and the synthetic (made-up) address of each.
 *
 * Addresses are assigned from 198.18.0.0/15 in order, so an address that a program keeps stays
 * valid for long. When all NAMES_MAX addresses are in use, the oldest name loses its address. The
 * gate never gave out an address that has no name here.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"
#include "gate/name.h"

enum { NAMES_MAX = 4096 };

struct names {
    char **names; /* host names by number; NULL: the number is not in use */
    size_t next;  /* number of the next new name */
    struct map numbers;
    /* Called for each new name, to store it; may be NULL. */
    void (*added)(void *arg, uint32_t number, const char *name);
    void *arg;
};

void names_done(struct names *n);

bool names_has(const struct names *n, const char *name);
/* Returns the address of the name, in host order; adds the name if it is new. */
uint32_t names_address(struct names *n, const char *name);
/* Returns the name that has this address; NULL: none. */
const char *names_find(const struct names *n, uint32_t address);

/* Restores a stored host name; does nothing if the number or the name is not valid. */
void names_restore(struct names *n, uint32_t number, const char *name);
/* Called after the last names_restore(): the next new name gets the number newest + 1. */
void names_go_on(struct names *n, uint32_t newest);
