/*
 * Splits and decodes the target of a request. Strict: a bad percent sequence, an encoded NUL or
 * text that is not UTF-8 is an error, never passed on partly decoded.
 */
#pragma once

#include "io/http.h"

/* Next segment of a raw path, still encoded: "/a/b" gives "a", "b"; "/a/" gives "a", "". */
bool http_path_next(struct http_text *rest, struct http_text *ret);

/*
 * Decodes a path segment and adds a NUL, which is not counted. -1: malformed, too long for `size`,
 * or with an encoded slash.
 */
int http_decode_segment(struct http_text raw, char *to, size_t size, size_t *ret_n);

/* Next "key=value" of a raw query, still encoded; the value is empty when there is no "=". */
bool http_query_next(struct http_text *rest, struct http_text *key, struct http_text *value);

/* Decodes a key or value of a query, where "+" is a space and slashes are allowed. */
int http_decode_query(struct http_text raw, char *to, size_t size, size_t *ret_n);

/*
 * Decodes the value of one query parameter. 1: found. 0: not given. -1: given twice, too long, or a
 * key of the query is malformed.
 */
int http_query_get(struct http_text query, const char *key, char *to, size_t size, size_t *ret_n);

/* Appends one path segment or query value; encodes all but unreserved characters. */
bool http_put_encoded(struct buf *b, struct http_text text);
