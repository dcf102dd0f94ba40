/*
 * Taints (marks for data from untrusted sources) of things that are not machines: images,
 * directories of the host, and conversations with MCP clients. The taint of a machine is in its
 * policy.
 */
#pragma once

#include "store/db.h"

enum { STORE_TAINT_KIND_SIZE = 16 };

/* Records a taint and its source. An existing taint keeps its first source. */
int store_taint_put(struct store *s, const char *owner, const char *kind, const char *key,
                    const char *source, int64_t since_ms, struct err *err);
/* Calls fn for all taints of one kind, in the order of their keys. */
typedef void store_taint_fn(void *arg, const char *key, const char *source);
int store_taint_each(struct store *s, const char *owner, const char *kind, store_taint_fn *fn,
                     void *arg, struct err *err);
/* Deletes one taint, of something that does not exist any more. */
int store_taint_remove(struct store *s, const char *owner, const char *kind, const char *key,
                       struct err *err);
/* Deletes the taints of one kind that were recorded before a time. */
int store_taint_trim(struct store *s, const char *kind, int64_t before_ms, struct err *err);
