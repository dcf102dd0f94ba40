#include "wasm/dump.h"

#include <sys/mman.h>

#include "wasm/interp.h"

/* ---- The arena: one range of addresses, of which nothing is used twice ---- */

/* Low enough for every size of address space, and far from what the kernel and libc map. */
#define ARENA_ADDRESS UINT64_C(0x3000000000)
#define ARENA_MAX (UINT64_C(160) << 20) /* Python, Ruby and PHP need about 50 MiB */

struct dump_arena {
    uint64_t used;
    uint8_t *last;  /* the block that was allocated last; it can grow in place */
    bool is_closed; /* later memory is from malloc() */
};

static struct dump_arena *arena_of_all(void) {
    return (struct dump_arena *)(uintptr_t)ARENA_ADDRESS; // NOLINT: this is the fixed address
}

static bool is_in_arena(const void *p) {
    return (uintptr_t)p - ARENA_ADDRESS < ARENA_MAX;
}

static uint64_t arena_round(uint64_t size) {
    return (size + 15) & ~UINT64_C(15);
}

static void *arena_take(struct dump_arena *a, size_t size) {
    if (size > ARENA_MAX || a->used + arena_round(size) > ARENA_MAX)
        return NULL;
    a->last = (uint8_t *)a + a->used;
    a->used += arena_round(size);
    return a->last;
}

static bool arena_extend(struct dump_arena *a, const void *p, size_t size) {
    uint64_t at = (uint64_t)(a->last - (uint8_t *)a);
    if (p != a->last || size > ARENA_MAX || at + arena_round(size) > ARENA_MAX)
        return false;
    a->used = at + arena_round(size);
    return true;
}

static void *arena_realloc(void *ctx, void *p, size_t old_size, size_t new_size) {
    struct dump_arena *a = ctx;
    if (p && !is_in_arena(p))
        return new_size ? realloc(p, new_size) : (free(p), NULL);
    if (new_size == 0)
        return NULL;
    if (p && !a->is_closed && arena_extend(a, p, new_size))
        return p;
    void *next = a->is_closed ? malloc(new_size) : arena_take(a, new_size);
    if (next && p)
        memcpy(next, p, old_size < new_size ? old_size : new_size);
    return next;
}

static bool map_at(void *address, uint64_t size, int flags, int fd, uint64_t offset) {
    void *p = mmap(address, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | flags, fd, (off_t)offset);
    if (p != MAP_FAILED && p != address) /* a kernel before 4.17 takes the address as a hint */
        munmap(p, size);
    return p == address;
}

struct wasm_alloc wasm_arena_new(void) {
    struct dump_arena *a = arena_of_all();
    if (!map_at(a, ARENA_MAX, MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0))
        return (struct wasm_alloc){0};
    a->used = arena_round(sizeof *a);
    return (struct wasm_alloc){arena_realloc, a};
}

/* ---- Making ---- */

/* The call of the store: its frames and slots are copied, because the stack is a mapping apart. */
struct dump_root {
    struct wasm_store *store;
    uint64_t *slots;
    struct frame *frames;
    size_t n_slots, n_frames;
};

static int dump_refuse(const char *why, struct err *err) {
    return err_set(err, ERR_UNSUPPORTED, "cannot dump the store: %s", why);
}

static int dump_check(const struct wasm_store *s, struct err *err) {
    if (!is_in_arena(s))
        return dump_refuse("its engine has another allocator", err);
    if (s->n_insts != 2 || s->n_mems != 1 || !s->mems[0]->pages)
        return dump_refuse("it must have one instance, with one large memory", err);
    if (s->state != RUN_HOST || !s->pc || s->init.active || s->start_fn || s->n_handles)
        return dump_refuse("it does not wait for the answer of a host call", err);
    for (uint32_t i = 0; i < s->n_tables; i++)
        if (!is_in_arena(s->tables[i]->elems))
            return dump_refuse("it has a large table", err);
    return 0;
}

static bool dump_code(struct wasm_module *m) {
    for (uint32_t i = m->imported_funcs; i < m->n_funcs; i++)
        if (!fn_compile(&m->fns[i]))
            return false;
    return true;
}

static bool dump_call(const struct wasm_store *s, struct dump_root *r) {
    r->n_slots = (size_t)(s->fp - s->stack) + s->top->fn->frame_slots;
    r->n_frames = (size_t)(s->top - s->frames) + 1;
    r->slots = engine_alloc(s->engine, r->n_slots * sizeof *r->slots);
    r->frames = engine_alloc(s->engine, r->n_frames * sizeof *r->frames);
    if (!r->slots || !r->frames)
        return false;
    memcpy(r->slots, s->stack, r->n_slots * sizeof *r->slots);
    memcpy(r->frames, s->frames, r->n_frames * sizeof *r->frames);
    return true;
}

int wasm_dump_make(struct wasm_store *s, struct wasm_dump *ret, struct err *err) {
    if (dump_check(s, err) < 0)
        return -1;
    struct dump_arena *a = arena_of_all();
    struct dump_root *r = engine_alloc(s->engine, sizeof *r);
    if (!r || !dump_code(s->insts[1]->mod) || !dump_call(s, r))
        return err_set(err, ERR_LIMIT, "cannot dump the store: out of memory");
    r->store = s;
    scratch_free(s->engine);
    a->is_closed = true;
    *ret = (struct wasm_dump){.arena = a,
                              .arena_size = a->used,
                              .memory = s->mems[0]->base,
                              .memory_size = s->mems[0]->size,
                              .root = (uint64_t)(uintptr_t)r};
    return 0;
}

/* ---- Loading ---- */

/* Address space for a memory that grows: beyond it the memory has to be copied. */
#define GROW_ROOM (UINT64_C(256) << 20)

bool wasm_dump_map(int fd, uint64_t arena_at, uint64_t memory_at, const struct wasm_dump *parts,
                   struct wasm_mapped *ret) {
    struct dump_arena *a = arena_of_all();
    uint64_t mapped = parts->memory_size + GROW_ROOM;
    if (!parts->arena_size || parts->arena_size > ARENA_MAX || !parts->memory_size ||
        parts->memory_size > UINT64_C(1) << 32)
        return false;
    uint8_t *memory = mmap(NULL, mapped, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    *ret = (struct wasm_mapped){parts->root, memory, parts->memory_size, mapped};
    return map_at(memory, parts->memory_size, MAP_FIXED, fd, memory_at) &&
           map_at(a, parts->arena_size, MAP_FIXED_NOREPLACE, fd, arena_at);
}

/* Returns a position in the new stack for one in the old stack, which began at `old`. */
static uint64_t *moved(const struct wasm_store *s, const uint64_t *old, const uint64_t *p) {
    return s->stack + (p - old);
}

static bool load_call(struct wasm_store *s, const struct dump_root *r) {
    const uint64_t *old = s->stack;
    s->stack = NULL;
    s->frames = NULL;
    s->engine->spare = (struct spare_stack){0};
    if (!stack_make(s))
        return false;
    memcpy(s->stack, r->slots, r->n_slots * sizeof *r->slots);
    memcpy(s->frames, r->frames, r->n_frames * sizeof *r->frames);
    for (size_t i = 1; i < r->n_frames; i++)
        s->frames[i].fp = moved(s, old, s->frames[i].fp);
    s->top = s->frames + (r->n_frames - 1);
    s->fp = moved(s, old, s->fp);
    s->host_slots = moved(s, old, s->host_slots);
    return true;
}

int wasm_dump_load(const struct wasm_mapped *t, uint64_t memory_pages, uint64_t store_bytes,
                   struct wasm_store **ret, struct err *err) {
    struct dump_root *r = (struct dump_root *)(uintptr_t)t->root; // NOLINT: see wasm_dump_make()
    struct wasm_store *s = r->store;
    struct memory *m = s->mems[0];
    s->engine->cfg.memory_pages = memory_pages;
    s->engine->cfg.store_bytes = store_bytes;
    m->max = memory_most(s, &m->type);
    if (m->size / PAGE_SIZE > m->max || s->bytes > store_bytes)
        return err_set(err, ERR_LIMIT, "the dumped store is larger than the limits");
    m->base = t->memory;
    pages_adopt(m->pages, t->memory, t->memory_size, t->memory_mapped);
    if (!load_call(s, r))
        return err_set(err, ERR_LIMIT, "out of memory for the stack of the program");
    *ret = s;
    return 0;
}

struct wasm_engine *wasm_store_engine(const struct wasm_store *s) {
    return s->engine;
}
