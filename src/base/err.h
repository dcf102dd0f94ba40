/*
 * Errors that a person or an API client will read.
 *
 * A function that can fail takes `struct err *err` last and returns 0 or -1.
 * On success *err is untouched; on failure it holds a code, one sentence and,
 * where one is known, the remedy. No allocation, so reporting "out of memory"
 * cannot fail. err may be NULL.
 */
#pragma once

#include "base/banned.h"

enum err_code {
    ERR_INTERNAL = 1, /* our bug, or the host's */
    ERR_INVALID,      /* the caller's request makes no sense */
    ERR_NOT_FOUND,
    ERR_EXISTS,
    ERR_DENIED,
    ERR_LIMIT,       /* a quota or a size cap was reached */
    ERR_BUSY,        /* not now: something else is using it */
    ERR_UNSUPPORTED, /* this host, or this kind of machine, cannot do it */
    ERR_GONE,        /* it was there and has ended */
    ERR_UNKNOWN,     /* the outcome cannot be known; never reported as success */
    ERR_TIMEOUT,
};

struct err {
    enum err_code code;
    char text[284];
    char remedy[160]; /* what the reader can do about it; may be empty */
};

/* The name that every face of the product uses for a code: "not_found". */
const char *err_code_name(enum err_code code);
enum err_code err_code_named(const char *name); /* ERR_INTERNAL for a name nobody knows */

/* These return -1, so a caller can write `return err_set(...)`. */
int err_set(struct err *err, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Code and ending come from errno: err_sys(err, "open '%s'", path). */
int err_sys(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The same for a wrapper that returned -errno. */
int err_num(struct err *err, int negative, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Put what we were doing in front of why it failed. */
int err_wrap(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Say what to do about it; keeps code and text. */
int err_remedy(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
