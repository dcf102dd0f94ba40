/*
 * Files that Carrel itself writes into a machine with network rules, so that programs there trust
 * the network gate (service/net/trust.c). `carrel diff` leaves them out: they are not work of the
 * machine, and are never shipped. The daemon says which they are, by content, mode and owner: a
 * path alone would let an agent hide its changes there.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

/*
 * True if change `at` of a list of differences is such a file, or a new directory that has no other
 * change in it. Paths have no leading slash.
 */
bool own_files_has(const json_t *changes, size_t at);
