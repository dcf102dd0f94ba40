/*
 * Dumps: a stopped store, its module and its engine as bytes that a process maps.
 *
 * A saved state (wasm_resume) is untrusted, small and the same on every CPU. A dump is the
 * opposite: it contains pointers, so it is trusted, and it fits only the program file that made it.
 * In exchange nothing has to be read, validated or translated: pages are mapped, and copied when
 * they are written. The embedder must know that nobody else has written the bytes.
 *
 * The engine has to be made with the allocator of wasm_arena_new(), whose memory is at one fixed
 * address in all processes.
 */
#pragma once

#include "wasm/wasm.h"

/* What the embedder writes to a file, each part at an offset that is a multiple of WASM_DUMP_UNIT.
 */
enum { WASM_DUMP_UNIT = 65536 };

struct wasm_dump {
    const void *arena, *memory;
    uint64_t arena_size, memory_size;
    uint64_t root; /* address in the arena where wasm_dump_load() finds everything else */
};

/* Reserves the fixed address. alloc.realloc is NULL if something is mapped there already. */
struct wasm_alloc wasm_arena_new(void);

/*
 * Translates all functions and describes the bytes to keep. The store, which has one instance and
 * one memory from 1 MiB on, must not be used afterwards.
 */
int wasm_dump_make(struct wasm_store *s, struct wasm_dump *ret, struct err *err);

/* Where the parts are mapped. A child process inherits the mappings. */
struct wasm_mapped {
    uint64_t root;
    uint8_t *memory;
    uint64_t memory_size, memory_mapped;
};

/* Maps the parts of a file privately. false: the address is taken, or no memory. */
bool wasm_dump_map(int fd, uint64_t arena_at, uint64_t memory_at, const struct wasm_dump *parts,
                   struct wasm_mapped *ret);
/*
 * Makes the store usable, with these limits (struct wasm_config). Fails if it already exceeds them;
 * then the mapped bytes cannot be used.
 */
int wasm_dump_load(const struct wasm_mapped *t, uint64_t memory_pages, uint64_t store_bytes,
                   struct wasm_store **ret, struct err *err);
/* The engine and the module of a loaded store. Free neither them nor the store: end the process. */
struct wasm_engine *wasm_store_engine(const struct wasm_store *s);
