/*
 * Recognises requests that the package cache is about, by their paths, and says which requests and
 * answers it may use at all. Pure.
 */
#pragma once

#include <stdbool.h>

#include "io/http.h"

enum { CACHE_PATH_SIZE = 1024, CACHE_ORIGIN_SIZE = 300 };

enum cache_kind {
    CACHE_RELEASE,  /* signed list of package lists (InRelease) */
    CACHE_LIST,     /* package list (Packages) */
    CACHE_DOCUMENT, /* document of an npm registry about one package */
    CACHE_PACKAGE,  /* package: the only kind that is kept */
};

/* A file on a server. */
struct cache_subject {
    enum cache_kind kind;
    char origin[CACHE_ORIGIN_SIZE]; /* SCHEME://HOST:PORT */
    char path[CACHE_PATH_SIZE];     /* decoded */
    bool local;                     /* the rule also allows addresses that are not public */
};

/*
 * Finds out what the path means to the tool of the preset; false: nothing to the cache. Sets kind
 * and path. raw: the path of the request, not decoded. is_tls: the gate verified the certificate of
 * the server; without that, npm has no verified digests.
 */
bool cache_subject_read(const char *preset, const char *raw, bool is_tls,
                        struct cache_subject *ret);

/* For a package list: the directory of its archive, with a slash at the end. False: none. */
bool cache_root_of(const char *path, char ret[CACHE_PATH_SIZE]);
/* For a package list with a path by-hash/SHA256/HEX: its directory, with a slash at the end. False:
 * the path has the name of the list. */
bool cache_by_hash(const char *path, char ret_dir[CACHE_PATH_SIZE]);

/* Whether the request is a plain GET: it has no body, query or range, and only header fields that
 * cannot carry a credential. conditions: it may ask for the file only if that has changed. */
bool cache_request_is_plain(const struct http_head *h, bool conditions);
/* Whether the answer is a whole file that may be stored. packed: it may have the coding gzip. */
bool cache_answer_is_whole(const struct http_head *h, bool packed);
