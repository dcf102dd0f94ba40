/* Requests for the files of a volume. data.c checks their token and opens the volume. */
#pragma once

#include "api/e2b/envd_inner.h"

struct volume_path {
    char id[ID_SIZE];      /* of the volume; empty: malformed */
    struct http_text what; /* "path", "dir" or "file"; NULL: another path */
};
/* False: the path is not that of a volume's files. */
bool volume_path_read(struct http_text path, struct volume_path *ret);
/* The handler of the request; NULL: there is none. has_body: it has one of JSON. */
const struct envd_method *volume_method(const struct http_exchange *x, struct http_text what,
                                        bool *ret_has_body);
