/*
 * The log of one run of a cell (a WebAssembly program): everything needed to repeat the run with
 * the same result.
 *
 * The log is one file: magic and version, the module's bytes, the call, every host call with its
 * answer, the end (outcome, results, fuel, memory hash), a checksum. Numbers are little-endian, and
 * lengths come before their bytes. The file is untrusted: cell_log_open() checks all of it before
 * anything is used.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "wasm/wasm.h"

enum { CELL_LOG_VALUES = 64, CELL_LOG_VERSION = 2 };

struct slice {
    const uint8_t *data; /* not owned */
    size_t len;
};

struct cell_values {
    uint32_t count;
    struct wasm_value list[CELL_LOG_VALUES];
};

/* The beginning of a log: the program, its limits and the call. */
struct cell_start {
    uint8_t spec;
    uint64_t fuel, pages;
    struct slice module, function, input; /* function: name of the called function; empty: none */
    struct slice grants; /* names of granted host functions, each followed by a newline */
    struct cell_values args;
};

/* One host call and its answer. */
struct cell_call {
    uint64_t sequence;
    struct slice name;
    struct cell_values args;
    uint64_t taken; /* digest of the bytes the host read from memory */
    struct cell_values results;
    struct slice given; /* bytes the host put into memory, at the address in args */
};

/* How the run ended. */
struct cell_end {
    uint8_t outcome; /* enum wasm_outcome */
    struct slice text;
    struct cell_values results;
    uint64_t fuel;
    uint8_t hash[32];
};

/* Write a log: start, calls, end, in this order. False: the buffer is full. */
bool cell_log_start(struct buf *log, const struct cell_start *s);
bool cell_log_call(struct buf *log, const struct cell_call *c);
bool cell_log_end(struct buf *log, const struct cell_end *e);

/* A log that is read. The bytes given to cell_log_open() must outlive it. */
struct cell_log {
    struct cell_start start;
    struct cell_end end;
    struct slice calls;
    size_t at; /* offset of the next call in `calls` */
};

int cell_log_open(struct cell_log *ret, const void *bytes, size_t len, struct err *err);
/* Reads the next recorded call; false after the last one. */
bool cell_log_next(struct cell_log *log, struct cell_call *ret);

/* The FNV-1a hash, for the checksum of a log and for the bytes that a host call read. */
uint64_t cell_digest(const void *bytes, size_t len);
