/*
 * The table of the 46 functions, and of those that some programs import besides them: types, cost,
 * and where the data of a call is.
 */
#include <string.h>

#include "cell/log.h"
#include "cell/wasi/wasi_inner.h"

enum { NO = -1, COST_SMALL = 50, COST_FILE = 500 };

/* Parameters: i is i32, l is i64. Every function but proc_exit returns an error number. */
struct wasi_func {
    const char *name;
    const char *params;
    wasi_handler *run;
    uint16_t cost;
    int8_t sized;    /* parameter with a number of bytes, which the engine charges */
    int8_t iovs;     /* parameter with a vector of buffers; the next one is their number */
    bool reads_iovs; /* the call reads these buffers, rather than writing to them */
    int8_t reads[2]; /* parameters with a pointer to bytes that it reads; the next has the length */
    int8_t subs;     /* parameter with subscriptions of poll_oneoff; the number is two later */
};

#define ROW(name, params, cost, ...) \
    { #name, params, wasi_##name, cost, __VA_ARGS__ }
#define REFUSED(name, params) \
    { #name, params, wasi_refused, COST_SMALL, PLAIN }
#define PLAIN .sized = NO, .iovs = NO, .reads = {NO, NO}, .subs = NO
#define PATH(at) .sized = (at) + 1, .iovs = NO, .reads = {at, NO}, .subs = NO
#define PATHS(at, other) .sized = (at) + 1, .iovs = NO, .reads = {at, other}, .subs = NO
#define IOVS(at, is_read) \
    .sized = NO, .iovs = at, .reads_iovs = is_read, .reads = {NO, NO}, .subs = NO
#define ROOM(size) .sized = size, .iovs = NO, .reads = {NO, NO}, .subs = NO

static const struct wasi_func funcs[] = {
    ROW(args_get, "ii", COST_FILE, PLAIN),
    ROW(args_sizes_get, "ii", COST_FILE, PLAIN),
    ROW(environ_get, "ii", COST_FILE, PLAIN),
    ROW(environ_sizes_get, "ii", COST_FILE, PLAIN),
    ROW(clock_res_get, "ii", COST_SMALL, PLAIN),
    ROW(clock_time_get, "ili", COST_FILE, PLAIN),
    ROW(fd_advise, "illi", COST_SMALL, PLAIN),
    ROW(fd_allocate, "ill", COST_FILE, PLAIN),
    ROW(fd_close, "i", COST_FILE, PLAIN),
    ROW(fd_datasync, "i", COST_FILE, PLAIN),
    ROW(fd_fdstat_get, "ii", COST_SMALL, PLAIN),
    ROW(fd_fdstat_set_flags, "ii", COST_FILE, PLAIN),
    ROW(fd_fdstat_set_rights, "ill", COST_SMALL, PLAIN),
    ROW(fd_filestat_get, "ii", COST_FILE, PLAIN),
    ROW(fd_filestat_set_size, "il", COST_FILE, PLAIN),
    ROW(fd_filestat_set_times, "illi", COST_FILE, PLAIN),
    ROW(fd_pread, "iiili", COST_FILE, IOVS(1, false)),
    ROW(fd_prestat_get, "ii", COST_SMALL, PLAIN),
    ROW(fd_prestat_dir_name, "iii", COST_SMALL, PLAIN),
    ROW(fd_pwrite, "iiili", COST_FILE, IOVS(1, true)),
    ROW(fd_read, "iiii", COST_FILE, IOVS(1, false)),
    ROW(fd_readdir, "iiili", COST_FILE, ROOM(2)),
    ROW(fd_renumber, "ii", COST_FILE, PLAIN),
    ROW(fd_seek, "ilii", COST_FILE, PLAIN),
    ROW(fd_sync, "i", COST_FILE, PLAIN),
    ROW(fd_tell, "ii", COST_SMALL, PLAIN),
    ROW(fd_write, "iiii", COST_FILE, IOVS(1, true)),
    ROW(path_create_directory, "iii", COST_FILE, PATH(1)),
    ROW(path_filestat_get, "iiiii", COST_FILE, PATH(2)),
    ROW(path_filestat_set_times, "iiiilli", COST_FILE, PATH(2)),
    ROW(path_link, "iiiiiii", COST_FILE, PATHS(2, 5)),
    ROW(path_open, "iiiiillii", COST_FILE, PATH(2)),
    ROW(path_readlink, "iiiiii", COST_FILE, PATH(1)),
    ROW(path_remove_directory, "iii", COST_FILE, PATH(1)),
    ROW(path_rename, "iiiiii", COST_FILE, PATHS(1, 4)),
    ROW(path_symlink, "iiiii", COST_FILE, PATHS(0, 3)),
    ROW(path_unlink_file, "iii", COST_FILE, PATH(1)),
    ROW(poll_oneoff, "iiii", COST_FILE, .sized = NO, .iovs = NO, .reads = {NO, NO}, .subs = 0),
    ROW(proc_exit, "i", COST_SMALL, PLAIN),
    ROW(proc_raise, "i", COST_SMALL, PLAIN),
    ROW(sched_yield, "", COST_SMALL, PLAIN),
    ROW(random_get, "ii", COST_FILE, ROOM(1)),
    ROW(sock_accept, "iii", COST_FILE, PLAIN),
    ROW(sock_recv, "iiiiii", COST_FILE, IOVS(1, false)),
    ROW(sock_send, "iiiii", COST_FILE, IOVS(1, true)),
    ROW(sock_shutdown, "ii", COST_FILE, PLAIN),
    /* Sockets as WasmEdge has them, which some programs import and do not need. */
    REFUSED(sock_open, "iii"),
    REFUSED(sock_bind, "iii"),
    REFUSED(sock_connect, "iii"),
    REFUSED(sock_listen, "ii"),
    REFUSED(sock_accept, "ii"),
    REFUSED(sock_setsockopt, "iiiii"),
    REFUSED(sock_getlocaladdr, "iiii"),
    REFUSED(sock_getpeeraddr, "iiii"),
    REFUSED(sock_getaddrinfo, "iiiiiiii"),
};
enum { FUNC_COUNT = sizeof(funcs) / sizeof(*funcs) };

size_t wasi_func_count(void) {
    return FUNC_COUNT;
}

const struct wasi_func *wasi_func_at(size_t i) {
    return &funcs[i];
}

bool wasi_is_module(const char *module, size_t module_size) {
    static const char *const names[] = {"wasi_snapshot_preview1", "wasi_unstable"};
    for (size_t i = 0; i < 2; i++)
        if (strlen(names[i]) == module_size && memcmp(names[i], module, module_size) == 0)
            return true;
    return false;
}

const struct wasi_func *wasi_find(const char *module, size_t module_size, const char *name,
                                  size_t name_size, uint32_t n_params) {
    const struct wasi_func *named = NULL;
    for (size_t i = 0; i < FUNC_COUNT && wasi_is_module(module, module_size); i++) {
        if (strlen(funcs[i].name) != name_size || memcmp(funcs[i].name, name, name_size) != 0)
            continue;
        if (strlen(funcs[i].params) == n_params)
            return &funcs[i];
        named = named ? named : &funcs[i];
    }
    return named;
}

void wasi_describe(const struct wasi_func *f, struct wasm_host_info *ret) {
    /* The lists of types follow from the rows, so writing them again changes nothing. */
    static const uint32_t result[] = {WASM_I32};
    static uint32_t types[FUNC_COUNT][9];
    uint32_t *params = types[f - funcs];
    size_t n = strlen(f->params);
    for (size_t i = 0; i < n; i++)
        params[i] = f->params[i] == 'l' ? WASM_I64 : WASM_I32;
    *ret = (struct wasm_host_info){
        .name = f->name,
        .type = {.params = params,
                 .n_params = (uint32_t)n,
                 .results = result,
                 .n_results = f->run == wasi_proc_exit ? 0 : 1},
        .cost = f->cost,
        .size_param = f->sized == NO ? WASM_NOT_SIZED : (uint32_t)f->sized,
    };
}

/* --- the data of a call --- */

static uint32_t wasi_param(const struct wasi_call *c, int i) {
    return (uint32_t)c->args[i].i32;
}

static uint32_t wasi_count(const struct wasi_call *c, int i, uint32_t most) {
    return wasi_param(c, i) < most ? wasi_param(c, i) : most;
}

uint64_t wasi_cost(const struct wasi_func *f, const struct wasi_call *c) {
    if (f->subs != NO)
        return (uint64_t)wasi_count(c, f->subs + 2, WASI_FDS_MAX) * 64;
    if (f->iovs == NO)
        return 0;
    uint32_t count = wasi_count(c, f->iovs + 1, WASI_IOVS_MAX), left = WASI_TRANSFER_MAX;
    for (uint32_t i = 0; i < count; i++) {
        struct wasi_iov v;
        if (wasi_iov_at(c, wasi_param(c, f->iovs), i, &left, &v) != WASI_OK)
            break;
    }
    return count * 4 + (WASI_TRANSFER_MAX - left) / 8;
}

static void wasi_mix(uint64_t *digest, const uint8_t *bytes, size_t len) {
    *digest = *digest * 0x100000001b3 ^ cell_digest(bytes, len);
}

static void wasi_mix_at(uint64_t *digest, const struct wasi_call *c, uint32_t at, uint64_t len) {
    const uint8_t *bytes = wasi_bytes(c, at, len);
    if (bytes && len <= WASI_TRANSFER_MAX)
        wasi_mix(digest, bytes, len);
}

uint64_t wasi_taken(const struct wasi_func *f, const struct wasi_call *c) {
    uint64_t digest = 0;
    uint32_t left = WASI_TRANSFER_MAX;
    for (int i = 0; i < 2; i++)
        if (f->reads[i] != NO)
            wasi_mix_at(&digest, c, wasi_param(c, f->reads[i]), wasi_param(c, f->reads[i] + 1));
    if (f->subs != NO)
        wasi_mix_at(&digest, c, wasi_param(c, f->subs),
                    (uint64_t)wasi_param(c, f->subs + 2) * (c->is_unstable ? 56 : 48));
    uint32_t count = f->iovs == NO ? 0 : wasi_count(c, f->iovs + 1, WASI_IOVS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        struct wasi_iov v;
        if (wasi_iov_at(c, wasi_param(c, f->iovs), i, &left, &v) != WASI_OK)
            break;
        wasi_mix(&digest, f->reads_iovs ? v.bytes : (const uint8_t *)&v.at,
                 f->reads_iovs ? v.len : sizeof(v.at) + sizeof(v.len));
    }
    return digest;
}

void wasi_run(struct wasi *w, const struct wasi_func *f, struct wasi_call *c) {
    const struct wasi_at a = {.w = w, .c = c};
    c->error = (uint16_t)f->run(&a);
}
