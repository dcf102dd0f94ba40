/*
 * A key, a password, a token: bytes that can be used but not shown.
 *
 * The type is opaque and nothing prints it, so it cannot end in a log or an error by accident. The
 * one way out is into a buffer that is then wiped. Memory is wiped when it is freed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct secret;

enum { SECRET_MAX = 8192 };

/* A copy. NULL: it is empty, too long, or holds a byte that no header field could hold. */
struct secret *secret_new(const char *value, size_t n);
/* From the environment; NULL when it is not set, or as above. */
struct secret *secret_env(const char *name);
struct secret *secret_copy(const struct secret *s); /* NULL of NULL */
void secret_free(struct secret *s);
void secret_freep(struct secret **s);

/* Appends the value. Give it a buffer with room enough, and secret_wipe() it. */
bool secret_reveal(const struct secret *s, struct buf *to) __attribute__((warn_unused_result));
void secret_wipe(struct buf *b);

/* Whether the bytes hold the value: for tests, and for those who mask. */
bool secret_is_in(const struct secret *s, const void *bytes, size_t n);
