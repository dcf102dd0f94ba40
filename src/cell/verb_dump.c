/* Makes a dump of a warm image, and continues one (cell/dump.h). Runs in the jail. */
#include "base/banned.h"
#include "base/defer.h"
#include "cell/dump.h"
#include "cell/verb.h"

/* Returns the size of the part of WASI in front of a state; 0: there is none. */
static size_t wasi_part(struct slice state) {
    enum { HEAD = 12 };
    if (state.len < HEAD)
        return 0;
    const uint8_t *p = state.data + 8;
    size_t n = p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24;
    return n <= state.len - HEAD ? HEAD + n : 0;
}

static int dump_store(struct session *s, struct slice image, struct err *err) {
    size_t wasi = wasi_part(image);
    struct wasm_dump parts;
    const struct slice store = {image.data + wasi, image.len - wasi};
    if (!wasi || s->has_capabilities || s->is_text)
        return err_set(err, ERR_UNSUPPORTED, "cannot dump a program that is text or has no WASI");
    if (resume_engine(s, store, err) < 0 || wasm_dump_make(s->store, &parts, err) < 0)
        return -1;
    const struct dump_sizes sizes = {.wasi = wasi,
                                     .arena = parts.arena_size,
                                     .memory = parts.memory_size,
                                     .root = parts.root,
                                     .store = wasm_store_bytes(s->store)};
    link_state(s->link, &sizes, sizeof(sizes));
    link_state(s->link, image.data, wasi);
    link_state(s->link, parts.arena, parts.arena_size);
    link_state(s->link, parts.memory, parts.memory_size);
    return 0;
}

int verb_dump(struct link *l, const void *arg) {
    struct session s; /* is not freed: its memory ends with the process */
    const struct job *job = arg;
    struct slice image = job->warm;
    struct err err;
    session_init(&s, l, job);
    s.alloc = wasm_arena_new();
    if (!s.alloc.realloc) {
        err_set(&err, ERR_UNSUPPORTED, "cannot make a dump: the address of dumps is taken");
        return session_fail(&s, CELL_INTERNAL, &err);
    }
    int code = session_load(&s, job->bytes, job->options->spec, job->options->memory);
    if (code == CELL_OK)
        code = session_check_grants(&s, NULL, 0);
    if (code != CELL_OK)
        return code;
    if (warm_is_whole(&image) && dump_store(&s, image, &err) == 0)
        return CELL_OK;
    return CELL_STATE;
}

int session_load_dump(struct session *s) {
    const struct dump *f = s->job->dump;
    struct slice wasi = {f->wasi, f->wasi_size};
    struct err err;
    s->pages = s->job->options->memory;
    if (wasm_dump_load(&f->mapped, s->pages, cell_budget(s->pages), &s->store, &err) < 0)
        return session_fail(s, CELL_LIMIT, &err);
    s->engine = wasm_store_engine(s->store);
    s->instance = wasm_instance_at(s->store, 0);
    s->module = wasm_instance_module(s->instance);
    s->has_wasi = true;
    return host_wasi_resume(s, &wasi, &err) < 0 ? session_fail(s, CELL_STATE, &err) : CELL_OK;
}
