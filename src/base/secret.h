/*
 * A secret is a key, a password or a token: bytes that can be used but not shown.
 *
 * The type is opaque and nothing prints it, so a secret cannot get into a log or an error by
 * accident. Only secret_reveal() gives the value, into a buffer that the caller wipes. Memory is
 * wiped when it is freed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct secret;

enum { SECRET_MAX = 8192 };

/* Copies the value. NULL: it is empty, too long, or has a byte that a header field cannot hold. */
struct secret *secret_new(const char *value, size_t n);
/* Reads an environment variable; NULL: not set, or not valid for secret_new(). */
struct secret *secret_env(const char *name);
struct secret *secret_copy(const struct secret *s); /* NULL if s is NULL */
void secret_free(struct secret *s);
void secret_freep(struct secret **s);

/* Appends the value to a buffer; the caller then calls secret_wipe(). False: not enough room. */
bool secret_reveal(const struct secret *s, struct buf *to) __attribute__((warn_unused_result));
void secret_wipe(struct buf *b);

/* Whether the bytes contain the value. For tests, and to mask secrets. */
bool secret_is_in(const struct secret *s, const void *bytes, size_t n);
