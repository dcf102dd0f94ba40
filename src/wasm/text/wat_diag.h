/*
 * Errors in a WebAssembly text, reported so that its author, often a model, can fix them:
 * place, source line with a caret, what was expected and found, and a hint.
 *
 * A list has a fixed size, because the first errors are the useful ones.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct wat_diag {
    uint32_t pos, len; /* the part of the source with the error */
    char text[220];
    char hint[200]; /* may be empty */
};

enum { WAT_MAX_DIAGS = 10 };

struct wat_diags {
    struct wat_diag list[WAT_MAX_DIAGS];
    int count;
    bool more; /* there were more errors than the list holds */
};

/* Adds an error. Returns -1, so that callers can write `return wat_error(...)`. */
int wat_error(struct wat_diags *d, uint32_t pos, uint32_t len, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Adds a hint to the last error; returns -1 too. */
int wat_hint(struct wat_diags *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

struct wat_line {
    uint32_t line, col;  /* from 1; col counts characters, not bytes */
    uint32_t start, end; /* range of the line in the source, without its newline */
};

struct wat_line wat_line_at(const char *src, size_t len, uint32_t pos);

/*
 * Prints "file:line:col: error: text", the source line, a caret and the hint, each on its own line.
 */
bool wat_diag_print(const struct wat_diag *d, const char *file, const char *src, size_t len,
                    struct buf *out);
