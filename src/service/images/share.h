/*
 * An image that was made of another shares its files: what is the same in both, by name, owner,
 * mode, time and content, becomes one file with two names. Neither shows it. What cannot be shared
 * stays a copy.
 */
#pragma once

#include <stdint.h>

/* Directories of both trees; the child is nobody's yet. Bytes that were freed. */
uint64_t image_share(int parent, int child);
