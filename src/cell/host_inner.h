/*
 * What the files of host functions share: host.c (all functions, and module `carrel`), host_caps.c
 * (module `carrel.1`) and host_call.c (carrel.1.call).
 */
#pragma once

#include "base/cell_command.h"
#include "cell/session.h"

enum {
    HOST_TRANSFER_MAX = 1 << 20, /* maximum bytes that one host call moves */
    HOST_FUEL_BYTES = 8,         /* in front of an answer in the log: the fuel it cost */
};

/* The codes of base/cell_command.h. */
enum host_code {
    HOST_INVALID = CELL_CODE_INVALID,
    HOST_NOT_FOUND = CELL_CODE_NOT_FOUND,
    HOST_DENIED = CELL_CODE_DENIED,
    HOST_LIMIT = CELL_CODE_LIMIT,
    HOST_FAILED = CELL_CODE_FAILED,
};

/* A host call in progress. */
struct pending {
    struct cell_call call;
    struct buf given; /* owns call.given */
    const char *trap;
};

struct host_func {
    const char *module, *name;
    uint32_t capability; /* bit that --allow gives; 0: none is needed, or --grant gives it */
    struct wasm_func_type type;
    uint64_t cost;
    uint32_t sized;   /* index of the parameter that is a number of bytes */
    bool has_answer;  /* the bytes it gives are kept for carrel.1.answer, and not put into memory */
    bool is_unlogged; /* it gives only what the log has already, so it runs in a replay too */
    void (*run)(struct session *s, struct pending *p);
};

#define TYPES(...)       \
    (const uint32_t[]) { \
        __VA_ARGS__      \
    }

/* The functions of module carrel.1 (host_caps.c). */
extern const struct host_func capability_functions[];
extern const size_t capability_function_count;

/*
 * Returns memory [at, at + len) of the program, or NULL and sets p->trap. For len 0 it returns a
 * dummy, because an empty memory has no address.
 */
uint8_t *host_guest_bytes(struct session *s, struct pending *p, uint32_t at, uint32_t len);
uint32_t host_arg(const struct pending *p, int i);
void host_give(struct pending *p, struct wasm_value v);
/* Returns the bytes at arguments 0 and 1, which the program hands over; notes them for the log. */
const uint8_t *host_taken(struct session *s, struct pending *p);
/* The host functions of module `carrel` that carrel.1 has too. */
void host_do_log(struct session *s, struct pending *p);
void host_do_clock(struct session *s, struct pending *p);
void host_do_random(struct session *s, struct pending *p);

/* Sets the answer and the length of it as result. `fuel` is taken from the program. */
void host_put_answer(struct pending *p, uint64_t fuel, const void *bytes, size_t len);
/* Sets a code as result, and its reason as answer. */
void host_put_failure(struct pending *p, uint64_t fuel, enum host_code code, const char *why);

/* The fuel for bytes that the engine did not charge: 1 for each 8, as for those it does. */
uint64_t host_fuel_of(const struct session *s, uint64_t bytes);

/* carrel.1.kv (host_kv.c). */
void host_do_kv_get(struct session *s, struct pending *p);
void host_do_kv_put(struct session *s, struct pending *p);
void host_do_kv_delete(struct session *s, struct pending *p);
void host_do_kv_list(struct session *s, struct pending *p);

/* carrel.1.call: runs another program (host_call.c). */
void host_do_call(struct session *s, struct pending *p);
