/*
 * The host functions that a cell (a WebAssembly program) can be granted.
 *
 * Each function answers from the memory of the program, from the link to the parent process or, in
 * a replay, from the log. Recording and replaying use the same data of a call, so they always
 * agree.
 */
#include <inttypes.h>
#include <string.h>

#include "base/banned.h"
#include "base/defer.h"
#include "cell/host_inner.h"

static const char out_of_bounds[] = "out of bounds memory access";
static const char no_memory[] = "a host call requires a memory that is exported as \"memory\"";
static const char too_long[] = "a host call moves at most 1 MiB (random: 64 KiB)";

uint8_t *host_memory(const struct session *s, size_t *ret_size) {
    struct wasm_extern memory;
    static uint8_t none;
    if (!wasm_export(wasm_instance_at(s->store, 0), "memory", 6, &memory) ||
        memory.kind != WASM_MEMORY)
        return NULL;
    uint8_t *bytes = wasm_memory_bytes(s->store, memory, ret_size);
    return *ret_size ? bytes : &none; /* an empty memory has no address */
}

uint8_t *host_guest_bytes(struct session *s, struct pending *p, uint32_t at, uint32_t len) {
    static uint8_t none;
    size_t size = 0;
    uint8_t *bytes = host_memory(s, &size);
    if (!bytes)
        return p->trap = no_memory, NULL;
    if (len > HOST_TRANSFER_MAX)
        return p->trap = too_long, NULL;
    if (at > size || len > size - at)
        return p->trap = out_of_bounds, NULL;
    return len ? bytes + at : &none;
}

uint32_t host_arg(const struct pending *p, int i) {
    return (uint32_t)p->call.args.list[i].i32;
}

void host_give(struct pending *p, struct wasm_value v) {
    p->call.results = (struct cell_values){.count = 1, .list = {v}};
}

static void do_args_size(struct session *s, struct pending *p) {
    host_give(p, wasm_i32((int32_t)s->input.len));
}

static void do_args_read(struct session *s, struct pending *p) {
    uint32_t offset = host_arg(p, 1), len = host_arg(p, 2);
    uint32_t have = offset < s->input.len ? (uint32_t)s->input.len - offset : 0;
    uint32_t n = len < have ? len : have;
    if (!host_guest_bytes(s, p, host_arg(p, 0), n))
        return;
    if (n && !buf_add(&p->given, s->input.data + offset, n))
        p->trap = too_long;
    host_give(p, wasm_i32((int32_t)n));
}

const uint8_t *host_taken(struct session *s, struct pending *p) {
    const uint8_t *bytes = host_guest_bytes(s, p, host_arg(p, 0), host_arg(p, 1));
    if (bytes)
        p->call.taken = cell_digest(bytes, host_arg(p, 1));
    return bytes;
}

static void do_result(struct session *s, struct pending *p) {
    const uint8_t *bytes = host_taken(s, p);
    struct session *top = session_top(s);
    if (bytes && !buf_add(&top->output, bytes, host_arg(p, 1)))
        p->trap = "the program's result is larger than 64 MiB";
    if (bytes && !s->replay && !top->job->options->json)
        link_out(s->link, bytes, host_arg(p, 1));
}

void host_do_log(struct session *s, struct pending *p) {
    const uint8_t *bytes = host_taken(s, p);
    if (!bytes || s->replay)
        return;
    link_err(s->link, bytes, host_arg(p, 1));
    link_err(s->link, "\n", 1);
}

void host_do_clock(struct session *s, struct pending *p) {
    host_give(p, wasm_i64(s->replay ? 0 : (int64_t)link_clock_ns(s->link)));
}

void host_do_random(struct session *s, struct pending *p) {
    uint8_t bytes[JAIL_MAX_RANDOM];
    uint32_t len = host_arg(p, 1);
    if (len > sizeof(bytes)) {
        p->trap = too_long;
        return;
    }
    if (!host_guest_bytes(s, p, host_arg(p, 0), len))
        return;
    if (!s->replay)
        link_random(s->link, bytes, len);
    if (!s->replay && !buf_add(&p->given, bytes, len))
        p->trap = too_long;
}

static const struct host_func functions[] = {
    {.name = "args_size",
     .type = {.results = TYPES(WASM_I32), .n_results = 1},
     .cost = 5,
     .sized = WASM_NOT_SIZED,
     .run = do_args_size},
    {.name = "args_read",
     .type = {.params = TYPES(WASM_I32, WASM_I32, WASM_I32),
              .n_params = 3,
              .results = TYPES(WASM_I32),
              .n_results = 1},
     .cost = 100,
     .sized = 2,
     .run = do_args_read},
    {.name = "result",
     .type = {.params = TYPES(WASM_I32, WASM_I32), .n_params = 2},
     .cost = 500,
     .sized = 1,
     .run = do_result},
    {.name = "log",
     .type = {.params = TYPES(WASM_I32, WASM_I32), .n_params = 2},
     .cost = 500,
     .sized = 1,
     .run = host_do_log},
    {.name = "clock",
     .type = {.results = TYPES(WASM_I64), .n_results = 1},
     .cost = 500,
     .sized = WASM_NOT_SIZED,
     .run = host_do_clock},
    {.name = "random",
     .type = {.params = TYPES(WASM_I32, WASM_I32), .n_params = 2},
     .cost = 500,
     .sized = 1,
     .run = host_do_random},
};

static const struct host_func *host_find_in(const struct host_func *list, size_t count,
                                            const char *name, size_t len) {
    for (size_t i = 0; i < count; i++)
        if (strlen(list[i].name) == len && memcmp(list[i].name, name, len) == 0)
            return &list[i];
    return NULL;
}

static bool is_named(const char *name, size_t len, const char *wanted) {
    return len == strlen(wanted) && memcmp(name, wanted, len) == 0;
}

static const struct host_func *host_find(const char *module, size_t module_size, const char *name,
                                         size_t len) {
    if (is_named(module, module_size, HOST_MODULE))
        return host_find_in(functions, sizeof(functions) / sizeof(*functions), name, len);
    if (is_named(module, module_size, HOST_CAPABILITIES))
        return host_find_in(capability_functions, capability_function_count, name, len);
    return NULL;
}

bool host_known(const char *name, size_t len) {
    return host_find(HOST_MODULE, strlen(HOST_MODULE), name, len) != NULL;
}

bool host_has_capability(const struct wasm_import *in, uint32_t *ret) {
    const struct host_func *f = host_find(in->module, in->module_size, in->name, in->name_size);
    if (!f || !is_named(in->module, in->module_size, HOST_CAPABILITIES) ||
        in->type.kind != WASM_FUNC)
        return false;
    *ret = f->capability;
    return true;
}

static bool same_types(const uint32_t *a, uint32_t n_a, const uint32_t *b, uint32_t n_b) {
    return n_a == n_b && (n_a == 0 || memcmp(a, b, n_a * sizeof(*a)) == 0);
}

static bool same_func_type(const struct wasm_func_type *a, const struct wasm_func_type *b) {
    return same_types(a->params, a->n_params, b->params, b->n_params) &&
           same_types(a->results, a->n_results, b->results, b->n_results);
}

/* Finds a host function of either kind by its names: what the engine must know of it. */
static bool host_describe(const char *module, size_t module_size, const char *name,
                          size_t name_size, uint32_t n_params, struct wasm_host_info *ret) {
    const struct wasi_func *wasi = wasi_find(module, module_size, name, name_size, n_params);
    const struct host_func *f = host_find(module, module_size, name, name_size);
    if (wasi)
        wasi_describe(wasi, ret);
    else if (f)
        *ret = (struct wasm_host_info){
            .name = f->name, .type = f->type, .cost = f->cost, .size_param = f->sized};
    return wasi || f;
}

enum host_fit host_fits(const struct wasm_import *in, struct wasm_func_type *ret) {
    struct wasm_host_info f;
    uint32_t n_params = in->type.kind == WASM_FUNC ? in->type.func.n_params : 0;
    if (!host_describe(in->module, in->module_size, in->name, in->name_size, n_params, &f))
        return HOST_NONE;
    *ret = f.type;
    return in->type.kind == WASM_FUNC && same_func_type(&in->type.func, &f.type) ? HOST_FITS
                                                                                 : HOST_OTHER_TYPE;
}

bool host_is(const struct wasm_host_info *h) {
    struct wasm_host_info f;
    return host_describe(h->module, strlen(h->module), h->name, strlen(h->name), h->type.n_params,
                         &f) &&
           h->cost == f.cost && h->size_param == f.size_param && same_func_type(&h->type, &f.type);
}

int host_define(struct session *s, const struct wasm_import *in, struct err *err) {
    struct wasm_host_info f;
    char module[32];
    uint32_t n_params = in->type.kind == WASM_FUNC ? in->type.func.n_params : 0;
    if (!host_describe(in->module, in->module_size, in->name, in->name_size, n_params, &f))
        return err_set(err, ERR_NOT_FOUND, "host function %.*s does not exist",
                       (int)(in->name_size < 80 ? in->name_size : 80), in->name);
    snprintf(module, sizeof(module), "%.*s", (int)in->module_size, in->module);
    return wasm_host_func_sized(s->store, module, f.name, &f.type, f.cost, f.size_param, err);
}

/* --- replay --- */

static bool same_values(const struct cell_values *a, const struct cell_values *b) {
    for (uint32_t i = 0; i < a->count && i < b->count; i++)
        if (a->list[i].type != b->list[i].type ||
            (a->list[i].type == WASM_I32 ? a->list[i].i32 != b->list[i].i32
                                         : a->list[i].i64 != b->list[i].i64))
            return false;
    return a->count == b->count;
}

static int host_differs(struct session *s, const struct cell_call *call, const char *how,
                        struct err *err) {
    bool is_whole = memchr(call->name.data, '.', call->name.len);
    snprintf(s->difference, sizeof(s->difference), "host call %" PRIu64 " (%s%.*s): %s",
             call->sequence, is_whole ? "" : "carrel.", (int)call->name.len,
             (const char *)call->name.data, how);
    return err_set(err, ERR_INVALID, "%s", s->difference);
}

int host_use_recorded(struct session *s, struct cell_call *call, struct buf *given,
                      struct err *err) {
    struct cell_call was;
    if (!cell_log_next(s->replay, &was))
        return host_differs(s, call, "the recorded run made no more calls", err);
    if (was.name.len != call->name.len || memcmp(was.name.data, call->name.data, was.name.len))
        return host_differs(s, call, "the recorded run called another function", err);
    if (was.sequence != call->sequence || !same_values(&was.args, &call->args))
        return host_differs(s, call, "its arguments differ from the recorded ones", err);
    if (was.taken != call->taken)
        return host_differs(s, call, "the bytes handed over differ from the recorded ones", err);
    call->results = was.results;
    given->len = 0;
    if (was.given.len && !buf_add(given, was.given.data, was.given.len))
        return host_differs(s, call, "the recorded answer is too long", err);
    return 0;
}

/* --- answering --- */

static void put_fuel(uint64_t fuel, uint8_t ret[HOST_FUEL_BYTES]) {
    for (unsigned i = 0; i < HOST_FUEL_BYTES; i++)
        ret[i] = (uint8_t)(fuel >> 8 * i);
}

static void host_put(struct pending *p, uint64_t fuel, const void *bytes, size_t len) {
    uint8_t head[HOST_FUEL_BYTES];
    put_fuel(fuel, head);
    p->given.len = 0;
    if (!buf_add(&p->given, head, sizeof(head)) || (len && !buf_add(&p->given, bytes, len)))
        p->trap = too_long;
}

void host_put_answer(struct pending *p, uint64_t fuel, const void *bytes, size_t len) {
    if (len > HOST_TRANSFER_MAX) {
        host_put_failure(p, fuel, HOST_LIMIT, "the answer is larger than 1 MiB");
        return;
    }
    host_put(p, fuel, bytes, len);
    host_give(p, wasm_i32((int32_t)len));
}

void host_put_failure(struct pending *p, uint64_t fuel, enum host_code code, const char *why) {
    host_put(p, fuel, why, strlen(why));
    host_give(p, wasm_i32(code));
}

uint64_t host_fuel_of(const struct session *s, uint64_t bytes) {
    uint64_t left = wasm_fuel_left(s->store), fuel = bytes / 8;
    return fuel < left ? fuel : left;
}

/* Keeps the answer for carrel.1.answer, and takes the fuel that the call cost. */
static int keep_answer(struct session *s, const struct pending *p, struct err *err) {
    const uint8_t *bytes = (const uint8_t *)p->given.data;
    uint64_t fuel = 0;
    if (p->given.len < HOST_FUEL_BYTES)
        return host_differs(s, &p->call, "the recorded answer is cut off", err);
    for (unsigned i = 0; i < HOST_FUEL_BYTES; i++)
        fuel |= (uint64_t)bytes[i] << 8 * i;
    if (!wasm_fuel_spend(s->store, fuel))
        return host_differs(s, &p->call, "it needs more fuel than is left", err);
    s->answer.len = 0;
    return buf_add(&s->answer, bytes + HOST_FUEL_BYTES, p->given.len - HOST_FUEL_BYTES)
               ? 0
               : err_set(err, ERR_LIMIT, "cannot keep an answer: out of memory");
}

static int host_finish(struct session *s, const struct host_func *f, struct pending *p,
                       struct err *err) {
    if (s->replay && !f->is_unlogged && host_use_recorded(s, &p->call, &p->given, err) < 0)
        return -1;
    p->call.given = (struct slice){.data = (const uint8_t *)p->given.data, .len = p->given.len};
    if (s->recording && !f->is_unlogged && !cell_log_call(&s->log, &p->call))
        return err_set(err, ERR_LIMIT, "the log of the recorded run is larger than 1 GiB");
    if (f->has_answer && keep_answer(s, p, err) < 0)
        return -1;
    if (p->given.len && !f->has_answer) {
        uint8_t *to = host_guest_bytes(s, p, host_arg(p, 0), (uint32_t)p->given.len);
        if (!to)
            return 0;
        memcpy(to, p->given.data, p->given.len);
    }
    return wasm_answer(s->store, p->call.results.list, p->call.results.count, err);
}

/* The log has functions of module `carrel` without the name of the module. */
static void name_in_log(const struct host_func *f, char *ret, size_t size) {
    snprintf(ret, size, "%s%s%s", f->module ? f->module : "", f->module ? "." : "", f->name);
}

int host_answer(struct session *s, const struct wasm_event *ev, struct ending *ret,
                struct err *err) {
    const struct wasi_func *wasi =
        wasi_find(ev->module, strlen(ev->module), ev->name, strlen(ev->name), ev->n_values);
    if (wasi)
        return host_wasi_answer(s, wasi, ev, ret, err);
    struct pending p = {.call = {.sequence = ev->sequence},
                        .given = BUF(HOST_TRANSFER_MAX + HOST_FUEL_BYTES)};
    char name[32];
    const struct host_func *f =
        host_find(ev->module, strlen(ev->module), ev->name, strlen(ev->name));
    if (!f || ev->n_values != f->type.n_params)
        return err_set(err, ERR_DENIED, "the program called %s.%s, which is not a host function",
                       ev->module, ev->name);
    name_in_log(f, name, sizeof(name));
    p.call.name = (struct slice){.data = (const uint8_t *)name, .len = strlen(name)};
    p.call.args.count = ev->n_values;
    if (ev->n_values)
        memcpy(p.call.args.list, ev->values, ev->n_values * sizeof(*ev->values));
    f->run(s, &p);
    int r = p.trap ? 0 : host_finish(s, f, &p, err);
    if (r == 0 && p.trap)
        r = wasm_answer_trap(s->store, p.trap, err);
    if (r == 0 && p.trap)
        *ret = (struct ending){.outcome = WASM_TRAPPED, .text = p.trap};
    buf_done(&p.given);
    return r < 0 ? r : p.trap != NULL;
}
