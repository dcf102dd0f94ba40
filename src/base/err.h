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
    ERR_INTERNAL = 1, /* a bug of Carrel or of the host */
    ERR_INVALID,      /* the request is malformed or contradicts itself */
    ERR_NOT_FOUND,
    ERR_EXISTS,
    ERR_DENIED,
    ERR_LIMIT,       /* a quota or a size cap was reached */
    ERR_BUSY,        /* not possible now, because the object is in use: try again later */
    ERR_UNSUPPORTED, /* this host, or this kind of machine, does not support the request */
    ERR_GONE,        /* the object existed and has ended */
    ERR_UNKNOWN,     /* the outcome is not known; never reported as success */
    ERR_TIMEOUT,
};

struct err {
    enum err_code code;
    char text[284];
    char remedy[160]; /* what the reader can do about the error; may be empty */
};

/* The name of a code in the API, the command line and the logs: "not_found". */
const char *err_code_name(enum err_code code);
enum err_code err_code_named(const char *name); /* ERR_INTERNAL for an unknown name */

/* These return -1, so a caller can write `return err_set(...)`. */
int err_set(struct err *err, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Sets the error from errno, which gives the code and the end of the text:
 * err_sys(err, "cannot open '%s'", path). */
int err_sys(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Sets the error as err_sys() does, but from the result -errno of a function. */
int err_num(struct err *err, int negative, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts the action that failed in front of the text: "cannot open 'a': no such file". */
int err_wrap(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Sets the remedy: what the reader can do. Keeps code and text. */
int err_remedy(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
