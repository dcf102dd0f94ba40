/*
 * Indexes: which digest a file of a server must have, by a document that was verified.
 *
 * Each index is a file "KIND-ORIGIN-SOURCE" in the directory of the cache. KIND is 'r' (digests of
 * package lists, from a signed Release) or 'l' (digests of packages). ORIGIN and SOURCE are hashes.
 * Its first line is "# DIGEST", the digest of the document; rows follow as carrel-packages writes
 * them (packages/rows.h). All functions block on files.
 */
#pragma once

#include <stdbool.h>

#include "cache/digest.h"
#include "cache/subject.h"

enum { INDEX_NAME_SIZE = 80, INDEX_HEAD = 2 + 71 + 1 };

/* source: the path of the document on the server. */
void index_name(char kind, const char *origin, const char *source, char ret[INDEX_NAME_SIZE]);
/* Whether the index was made from a document with this digest. */
bool index_is_of(int dir, const char *name, const char *digest);

/* Finds the digest of a file. False: no index names it, or two indexes contradict each other. An
 * index that is used stays: its time of change becomes now. */
bool index_find(int dir, char kind, const char *origin, const char *path, char ret[DIGEST_SIZE]);
/* Finds a file of the directory `above`, which ends with a slash, by its digest. */
bool index_find_by_digest(int dir, char kind, const char *origin, const char *above,
                          const char *digest, char ret_path[CACHE_PATH_SIZE]);
