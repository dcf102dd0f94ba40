/*
 * WASI preview 1: the 46 functions, as modules "wasi_snapshot_preview1" and "wasi_unstable".
 *
 * A program reaches files only beneath directories that it was granted (preopens). Clocks are
 * virtual and random bytes come from a seed, unless the real ones were granted. All memory of the
 * program is reached through checked pointers (wasi_inner.h).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "cell/wasi/abi.h"
#include "wasm/wasm.h"

enum {
    WASI_FDS_MAX = 1024,         /* open descriptors of a program */
    WASI_TRANSFER_MAX = 1 << 20, /* bytes that one call moves */
    WASI_PATH_MAX = 4096,
    WASI_PREOPENS_MAX = 16,
    WASI_SOCKETS_MAX = 4,
};

/* What the program asks of the world besides files; the jail's link answers it. */
struct wasi_outside {
    void *ctx;
    bool (*write)(void *ctx, bool is_error, const void *bytes, size_t len); /* false: too much */
    ssize_t (*read)(void *ctx, void *bytes, size_t len); /* standard input: bytes or -errno */
    uint64_t (*clock_ns)(void *ctx, bool is_monotonic);
    void (*random)(void *ctx, void *bytes, size_t len);
    /* Waits until the time is over or, if for_input, standard input can be read: then true. */
    bool (*wait)(void *ctx, bool for_input, uint64_t timeout_ns);
};

/* A granted directory. The program sees it under `name`. */
struct wasi_preopen {
    const char *name;
    int fd; /* owned by the caller */
    bool is_read_only;
};

struct wasi_config {
    const char *const *args, *const *env;
    size_t n_args, n_env;
    struct wasi_preopen preopens[WASI_PREOPENS_MAX];
    size_t n_preopens;
    int sockets[WASI_SOCKETS_MAX]; /* granted listening sockets, owned by the caller */
    size_t n_sockets;
    bool has_clock, has_random; /* the real ones were granted */
    uint64_t seed;
    bool is_terminal[2]; /* standard input, standard output */
    struct wasi_outside outside;
};

struct wasi;
/* The config is copied; the strings in it must outlive the program. */
struct wasi *wasi_new(const struct wasi_config *config);
void wasi_free(struct wasi *w);

/* A row of the table of functions. */
struct wasi_func;
/*
 * Finds the function of this name with n_params parameters, else the first one of this name. NULL:
 * no function has the name.
 */
const struct wasi_func *wasi_find(const char *module, size_t module_size, const char *name,
                                  size_t name_size, uint32_t n_params);
bool wasi_is_module(const char *module, size_t module_size);
/* Writes what wasm_host_func_sized() needs; the types belong to the table. */
void wasi_describe(const struct wasi_func *f, struct wasm_host_info *ret);
size_t wasi_func_count(void);
const struct wasi_func *wasi_func_at(size_t i);

/* A call of the program, and its answer. */
struct wasi_call {
    const struct wasm_value *args;
    uint8_t *memory; /* of the program */
    size_t size;
    bool is_unstable;   /* the call came through "wasi_unstable", whose layouts differ */
    uint64_t fuel_used; /* of the store: the virtual time */
    struct buf *writes; /* every write to memory is added, for a log; NULL: not needed */
    /* answer */
    uint16_t error; /* enum wasi_errno */
    bool has_exited;
    uint32_t exit_code;
    bool is_log_full; /* `writes` had no room */
};

/* Returns the fuel that a call costs for its data, besides the declared cost. */
uint64_t wasi_cost(const struct wasi_func *f, const struct wasi_call *c);
/* Returns a digest of the bytes that the call reads from memory, for a log. */
uint64_t wasi_taken(const struct wasi_func *f, const struct wasi_call *c);
void wasi_run(struct wasi *w, const struct wasi_func *f, struct wasi_call *c);
/* Applies recorded writes to memory. False: they do not fit. */
bool wasi_rewrite(struct wasi_call *c, const void *writes, size_t len);

/*
 * Appends descriptors, clocks and the position of random bytes. Files are saved as preopen, path
 * and offset; sockets are not saved. wasi_load() opens them again in a new struct wasi; a file that
 * cannot be opened becomes stale: each use fails with WASI_STALE. The bytes are untrusted.
 */
bool wasi_save(const struct wasi *w, struct buf *ret);
int wasi_load(struct wasi *w, const void *bytes, size_t len, struct err *err);
