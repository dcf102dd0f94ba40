/*
 * Kept packages: files "o-KEY" in the directory of the cache, a head of OBJECT_HEAD bytes and then
 * the bytes of the package. KEY is a hash of server, path and kind of rule. The head names the URL
 * and the digest. All functions block on files.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/cache.h"
#include "cache/digest.h"
#include "cache/subject.h"

enum { OBJECT_HEAD = 4096, OBJECT_NAME_SIZE = 48 };

void object_name(const struct cache_subject *s, char ret[OBJECT_NAME_SIZE]);

/* Writes the head of a new file, syncs the file, gives it its name and syncs the directory. 0 or
 * -errno. */
int object_keep(int dir, const char *temporary, int fd, const struct cache_subject *s,
                const char *digest);

/* Opens a kept package: its head must name this subject and this digest. Negative: not kept. */
int object_open(int dir, const struct cache_subject *s, const char *digest);
/* Whether the bytes of the package have the digest. False soon after another thread sets *stop. */
bool object_is_whole(int fd, const char *digest, const atomic_bool *stop);
void object_touch(int fd); /* remembers that the package was used now */

/* Deletes files, those first that were not used for longest, until the rest has at most max bytes.
 */
void object_trim(int dir, uint64_t max);
/* Deletes temporary files, which an interrupted daemon left. */
void object_sweep(int dir);

/* Lists the kept packages; appends to *ret. */
void object_list(int dir, struct cache_listing *ret);
/* Deletes all packages and indexes; counts the packages and all bytes. */
void object_clear(int dir, uint64_t *ret_count, uint64_t *ret_bytes);
