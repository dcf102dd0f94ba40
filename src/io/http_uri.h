/*
 * The parts of a target, decoded. Strict: a bad percent sequence, an encoded NUL or text that is
 * not UTF-8 is an error, never passed on half decoded.
 */
#pragma once

#include "io/http.h"

/* Next segment of a raw path, still encoded: "/a/b" gives "a", "b"; "/a/" gives "a", "". */
bool http_path_next(struct http_text *rest, struct http_text *ret);

/*
 * Decodes a segment; NUL is added at the end, not counted. -1: malformed, too long for `size`, or
 * it holds an encoded slash, which no segment may.
 */
int http_decode_segment(struct http_text raw, char *to, size_t size, size_t *ret_n);

/* Next "key=value" of a raw query, still encoded; the value is empty when there is no "=". */
bool http_query_next(struct http_text *rest, struct http_text *key, struct http_text *value);

/* The same for a key or value, where "+" is a blank and slashes are free. */
int http_decode_query(struct http_text raw, char *to, size_t size, size_t *ret_n);

/*
 * The value of one parameter. 1: found. 0: not there. -1: given twice, too long, or some key of
 * the query is malformed.
 */
int http_query_get(struct http_text query, const char *key, char *to, size_t size, size_t *ret_n);

/* Appends text with everything but unreserved characters encoded; for one segment or value. */
bool http_put_encoded(struct buf *b, struct http_text text);
