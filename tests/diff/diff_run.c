/*
 * Runs modules that wasm-opt -ttf, gen30.py or genchain.py made and prints a transcript:
 * diff-run [--cut] < records
 *
 * A record is a line "SEED BYTES" and the module in that many bytes. --cut draws the slices from
 * the seed.
 *
 * Every exported function is called in turn with arguments drawn from a fixed sequence; the
 * transcript has each call, its logged values, its results or trap, and at the end a hash of each
 * exported memory, then fuel and the store's hash on lines that begin with '='. Other engines
 * replay the calls and are held to the lines without '='; this engine on another CPU, or cut into
 * random slices with capture, resume and fork between them (--cut), to every line.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/defer.h"
#include "wasm/wasm.h"

enum { MODULE_MAX = 1 << 20, STATE_MAX = 64 << 20 };

struct runner {
    struct wasm_engine *engine;
    struct wasm_module *module;
    struct wasm_store *store;
    uint32_t args; /* state of the argument sequence */
    uint32_t cut;  /* state of the slice sequence; 0 runs in one go */
};

static uint32_t next_random(uint32_t *state) {
    uint32_t x = *state;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return *state = x;
}

static _Noreturn void die(const char *what) {
    fprintf(stderr, "diff-run: %s\n", what);
    exit(1);
}

/* A NaN prints as "nan": which one it is, is not for the other engine to say. */
static void print_value(struct wasm_value v) {
    switch (v.type) {
    case WASM_I32:
        printf(" i32:%08" PRIx32, (uint32_t)v.i32);
        break;
    case WASM_I64:
        printf(" i64:%016" PRIx64, (uint64_t)v.i64);
        break;
    case WASM_F32:
        if ((v.f32 & 0x7fffffff) > 0x7f800000)
            printf(" f32:nan");
        else
            printf(" f32:%08" PRIx32, v.f32);
        break;
    case WASM_F64:
        if ((v.f64 & INT64_MAX) > UINT64_C(0x7ff0000000000000))
            printf(" f64:nan");
        else
            printf(" f64:%016" PRIx64, v.f64);
        break;
    default:
        printf(v.ref ? " ref" : " null");
    }
}

static void print_line(const char *what, const struct wasm_value *values, uint32_t n) {
    printf("%s", what);
    for (uint32_t i = 0; i < n; i++)
        print_value(values[i]);
    putchar('\n');
}

static bool has_v128(const uint32_t *types, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (types[i] == WASM_V128)
            return true;
    return false;
}

static struct wasm_module *find_module(void *ctx, const uint8_t hash[32]) {
    (void)hash;
    return ((struct runner *)ctx)->module;
}

/* Go on in another store that was saved and read, or forked; which one, is drawn. */
static void move_store(struct runner *r) {
    struct err err;
    struct wasm_store *moved;
    if (next_random(&r->cut) & 1) {
        if (wasm_fork(r->store, &moved, &err) < 0)
            die(err.text);
    } else {
        struct buf state DEFER(buf_done) = BUF(STATE_MAX);
        struct wasm_modules modules = {.find = find_module, .ctx = r};
        if (wasm_capture(r->store, &state, &err) < 0)
            die(err.text);
        if (wasm_resume(r->engine, state.data, state.len, &modules, &moved, &err) < 0)
            die(err.text);
    }
    wasm_store_free(r->store);
    r->store = moved;
}

/* Half of the slices are short, because many calls are. */
static uint64_t draw_slice(struct runner *r) {
    uint32_t most = next_random(&r->cut) & 1 ? 64 : 4096;
    return next_random(&r->cut) % most + 1;
}

static const struct wasm_event *run_on(struct runner *r) {
    if (!r->cut)
        return wasm_run(r->store, UINT64_MAX);
    const struct wasm_event *ev;
    while ((ev = wasm_run(r->store, draw_slice(r)))->outcome == WASM_SLICE)
        if (next_random(&r->cut) % 16 == 0)
            move_store(r);
    if (ev->outcome == WASM_HOST && next_random(&r->cut) % 16 == 0) {
        move_store(r);
        ev = wasm_run(r->store, UINT64_MAX);
    }
    return ev;
}

/* Log what the module logs; false ends the call. A v128 cannot cross into JavaScript: that is a
   trap there, and here. */
static bool answer(struct runner *r, const struct wasm_event *ev) {
    struct err err;
    bool wide = ev->n_values && ev->values[0].type == WASM_V128;
    print_line("log", ev->values, ev->n_values);
    if ((wide ? wasm_answer_trap(r->store, "v128 at the border", &err)
              : wasm_answer(r->store, NULL, 0, &err)) < 0)
        die(err.text);
    if (wide)
        printf("trap v128 at the border\n");
    return !wide;
}

/* To the end of the call; false if it trapped. */
static bool drive(struct runner *r) {
    const struct wasm_event *ev;
    while ((ev = run_on(r))->outcome == WASM_HOST)
        if (!answer(r, ev))
            return false;
    if (ev->outcome == WASM_DONE)
        print_line("done", ev->values, ev->n_values);
    else if (ev->outcome == WASM_TRAPPED)
        printf("trap %s\n", ev->text);
    else if (ev->outcome == WASM_THROWN)
        printf("trap exception\n");
    else
        die("the call did not end");
    return ev->outcome == WASM_DONE;
}

static struct wasm_value draw_value(struct runner *r, uint32_t type) {
    static const int32_t corners[] = {0, 1, -1, INT32_MIN, INT32_MAX, 7, -128, 65536};
    uint32_t x = next_random(&r->args);
    int32_t small = x & 1 ? corners[x >> 1 & 7] : (int32_t)x;
    struct wasm_value v = {.type = type};
    float f = (float)small / 256;
    double d = (double)small / 256;
    if (type == WASM_I32)
        v.i32 = small;
    else if (type == WASM_I64)
        v.i64 = (int64_t)((uint64_t)small * (x & 2 ? 1 : 0x123456789));
    else if (type == WASM_F32)
        memcpy(&v.f32, &f, sizeof f);
    else if (type == WASM_F64)
        memcpy(&v.f64, &d, sizeof d);
    return v;
}

static void call_export(struct runner *r, const struct wasm_export *export) {
    const struct wasm_func_type *type = &export->type.func;
    struct wasm_value args[16];
    if (type->n_params > 16 || has_v128(type->params, type->n_params) ||
        has_v128(type->results, type->n_results))
        return;
    for (uint32_t i = 0; i < type->n_params; i++)
        args[i] = draw_value(r, type->params[i]);
    struct wasm_extern f;
    struct err err;
    if (!wasm_export(wasm_instance_at(r->store, 0), export->name, export->name_size, &f))
        die("an export is missing");
    printf("call %.*s", (int)export->name_size, export->name);
    print_line("", args, type->n_params);
    if (wasm_call(r->store, f, args, type->n_params, &err) < 0)
        die(err.text);
    drive(r);
}

static void print_memory(struct runner *r, const struct wasm_export *export) {
    struct wasm_extern x;
    size_t size;
    if (!wasm_export(wasm_instance_at(r->store, 0), export->name, export->name_size, &x))
        die("a memory is missing");
    const uint8_t *bytes = wasm_memory_bytes(r->store, x, &size);
    uint32_t hash = 0;
    for (size_t i = 0; i < size; i += sizeof hash) {
        uint32_t word;
        memcpy(&word, bytes + i, sizeof word);
        hash ^= word * 0xcc9e2d51u;
        hash = (hash << 13 | hash >> 19) * 5 + 0xe6546b64u;
    }
    printf("memory %.*s %zu %08" PRIx32 "\n", (int)export->name_size, export->name, size, hash);
}

static void print_memories(struct runner *r) {
    for (uint32_t i = 0; i < wasm_module_exports(r->module); i++) {
        struct wasm_export export;
        wasm_module_export(r->module, i, &export);
        if (export.type.kind == WASM_MEMORY)
            print_memory(r, &export);
    }
}

static void print_store(struct runner *r) {
    uint8_t hash[32];
    struct err err;
    if (wasm_store_hash(r->store, hash, &err) < 0)
        die(err.text);
    printf("= fuel %" PRIu64 "\n= store ", wasm_fuel_used(r->store));
    for (unsigned i = 0; i < 32; i++)
        printf("%02x", hash[i]);
    putchar('\n');
}

static void define_imports(struct runner *r) {
    for (uint32_t i = 0; i < wasm_module_imports(r->module); i++) {
        struct wasm_import import;
        struct err err;
        char module[64], name[64];
        wasm_module_import(r->module, i, &import);
        snprintf(module, sizeof module, "%.*s", (int)import.module_size, import.module);
        snprintf(name, sizeof name, "%.*s", (int)import.name_size, import.name);
        if (import.type.kind != WASM_FUNC)
            die("an import is not a function");
        if (wasm_host_func(r->store, module, name, &import.type.func, 10, &err) < 0)
            die(err.text);
    }
}

static void run_exports(struct runner *r) {
    for (uint32_t i = 0; i < wasm_module_exports(r->module); i++) {
        struct wasm_export export;
        wasm_module_export(r->module, i, &export);
        if (export.type.kind == WASM_FUNC)
            call_export(r, &export);
    }
}

static void run_module(struct runner *r) {
    struct wasm_instance *instance;
    struct err err;
    define_imports(r);
    wasm_fuel_add(r->store, UINT64_C(1) << 40);
    if (wasm_instance_new(r->store, r->module, NULL, 0, &instance, &err) < 0)
        die(err.text);
    if (drive(r)) {
        run_exports(r);
        print_memories(r);
    }
    print_store(r);
}

static void run_bytes(const uint8_t *bytes, size_t size, uint32_t cut) {
    struct wasm_diag diag;
    struct runner r = {.engine = wasm_engine_new(NULL), .args = 20261115, .cut = cut};
    if (wasm_module_load(r.engine, bytes, size, WASM_3_0, &r.module, &diag) < 0) {
        printf("refused %s at %zu\n", diag.message, diag.offset);
    } else {
        r.store = wasm_store_new(r.engine);
        run_module(&r);
        wasm_store_free(r.store);
        wasm_module_unref(r.module);
    }
    wasm_engine_free(r.engine);
}

int main(int argc, char **argv) {
    bool is_cut = argc == 2 && strcmp(argv[1], "--cut") == 0;
    uint8_t *bytes DEFER_FREE = malloc(MODULE_MAX);
    uint32_t seed, size;
    char end;
    if (!bytes || (argc > 1 && !is_cut))
        die("usage: diff-run [--cut] < records");
    while (scanf("%" SCNu32 " %" SCNu32 "%c", &seed, &size, &end) == 3) {
        if (end != '\n' || size > MODULE_MAX || fread(bytes, 1, size, stdin) != size)
            die("a record is not complete");
        printf("module %" PRIu32 "\n", seed);
        run_bytes(bytes, size, is_cut ? seed | 1 : 0);
    }
}
