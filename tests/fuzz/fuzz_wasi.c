/*
 * Property: whatever functions of WASI a program calls, nothing outside its directory is read or
 * changed, and a saved state is refused or loaded.
 *
 * An input is calls: the number of a function, then a byte for each argument, which chooses a value
 * of a table. Bytes after 255 are loaded as a saved state.
 */
#include <assert.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/defer.h"
#include "cell/wasi/wasi.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MEMORY = 65536, CALLS_MAX = 200 };
static const char secret[] = "outside-of-the-directory";

/* Paths in memory: path i is at 64 * i. */
static const char *const paths[] = {
    "file",
    "dir",
    "dir/file",
    "link",
    "up",
    "up/secret",
    "..",
    ".",
    "dir/..",
    "../out/secret",
    "absolute",
    "new",
    "dir/../../out/secret",
    "/etc/passwd",
    "loop",
    "file/",
    "link/",
    "up/",
    "../out",
    "dir/../file",
};
enum { PATHS = sizeof(paths) / sizeof(*paths) };

static bool wasi_fuzz_write(void *ctx, bool is_error, const void *bytes, size_t len) {
    (void)ctx, (void)is_error, (void)bytes, (void)len;
    return true;
}
static ssize_t wasi_fuzz_read(void *ctx, void *bytes, size_t len) {
    (void)ctx, (void)bytes, (void)len;
    return 0;
}

static int wasi_fuzz_file(int dir, const char *path, const char *text) {
    int fd DEFER_CLOSE = openat(dir, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -1;
}

static char top_path[] = "/tmp/fuzz-wasi-XXXXXX";

static int wasi_fuzz_remove(const char *path, const struct stat *st, int flag, struct FTW *ftw) {
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static void wasi_fuzz_leave(void) {
    nftw(top_path, wasi_fuzz_remove, 16, FTW_DEPTH | FTW_PHYS);
}

/* Makes the directory anew: what the last input left must not matter. */
static int wasi_fuzz_place(int *ret_top) {
    static int fd = -1;
    char inner[sizeof(top_path) + 3];
    if (fd < 0) {
        const struct rlimit most = {1 << 20, 1 << 20};
        setrlimit(RLIMIT_FSIZE, &most);
        signal(SIGXFSZ, SIG_IGN);
        fd = mkdtemp(top_path) ? open(top_path, O_RDONLY | O_DIRECTORY) : -1;
        if (fd < 0 || mkdirat(fd, "out", 0700) < 0 || wasi_fuzz_file(fd, "out/secret", secret) < 0)
            return -1;
        atexit(wasi_fuzz_leave);
    }
    snprintf(inner, sizeof(inner), "%s/in", top_path);
    nftw(inner, wasi_fuzz_remove, 16, FTW_DEPTH | FTW_PHYS);
    *ret_top = fd;
    if (mkdirat(fd, "in", 0700) < 0 || mkdirat(fd, "in/dir", 0700) < 0)
        return -1;
    if (wasi_fuzz_file(fd, "in/file", "text") < 0 || wasi_fuzz_file(fd, "in/dir/file", "text") < 0)
        return -1;
    return symlinkat("file", fd, "in/link") || symlinkat("../out", fd, "in/up") ||
           symlinkat("/etc/passwd", fd, "in/absolute") || symlinkat("loop", fd, "in/loop");
}

/* Values that arguments have: descriptors, flags, lengths and addresses of paths and buffers. */
static int64_t wasi_fuzz_value(uint8_t b) {
    static const int64_t some[] = {0,    1,  2,     3,     4,  5,          6,      7,  8,
                                   10,   12, 16,    20,    31, 64,         100,    -1, 4096,
                                   5000, -8, 65535, 65536, 2,  0x1fffffff, 1 << 20};
    if (b < sizeof(some) / sizeof(*some))
        return some[b];
    if (b < 128)
        return 64 * (int64_t)((b - 25) % PATHS);
    return (int64_t)(b - 128) * 512;
}

static size_t wasi_fuzz_call(struct wasi *w, uint8_t *memory, const uint8_t *p, size_t left) {
    const struct wasi_func *f = wasi_func_at(p[0] % wasi_func_count());
    struct buf writes DEFER(buf_done) = BUF(2 << 20);
    struct wasm_value args[9];
    struct wasm_host_info info;
    wasi_describe(f, &info);
    if (left < 1 + info.type.n_params)
        return left;
    for (uint32_t i = 0; i < info.type.n_params; i++) {
        int64_t value = wasi_fuzz_value(p[1 + i]);
        /* The length behind a path is that of the path, mostly. */
        bool is_path = i > 0 && p[i] >= 25 && p[i] < 128 && p[1 + i] >= 200;
        if (is_path)
            value = (int64_t)strlen(paths[(p[i] - 25) % PATHS]);
        args[i] = info.type.params[i] == WASM_I64 ? wasm_i64(value) : wasm_i32((int32_t)value);
    }
    struct wasi_call c = {.args = args,
                          .memory = memory,
                          .size = MEMORY,
                          .is_unstable = p[0] >= 128,
                          .writes = &writes};
    c.fuel_used = wasi_cost(f, &c) + wasi_taken(f, &c);
    wasi_run(w, f, &c);
    /* The log of the call makes the same memory. */
    assert(c.is_log_full || wasi_rewrite(&c, writes.data, writes.len));
    return 1 + info.type.n_params;
}

static void wasi_fuzz_check(int top, const uint8_t *memory) {
    char text[100] = "";
    struct stat st;
    int fd DEFER_CLOSE = openat(top, "out/secret", O_RDONLY);
    assert(fd >= 0 && read(fd, text, sizeof(text) - 1) >= 0 && strcmp(text, secret) == 0);
    assert(fstatat(top, "out", &st, 0) == 0 && st.st_nlink == 2);
    assert(fstat(fd, &st) == 0 && st.st_nlink == 1 && (st.st_mode & 07777) == 0600);
    assert(!memmem(memory, MEMORY, secret, strlen(secret)));
    assert(!memmem(memory, MEMORY, "root:x:0", 8));
    (void)memory;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int top;
    struct err err;
    if (wasi_fuzz_place(&top) != 0)
        return 0;
    int in DEFER_CLOSE = openat(top, "in", O_RDONLY | O_DIRECTORY);
    struct wasi_config config = {.preopens = {{.name = "/", .fd = in}},
                                 .n_preopens = 1,
                                 .args = (const char *const[]){"program"},
                                 .n_args = 1,
                                 .outside = {.write = wasi_fuzz_write, .read = wasi_fuzz_read}};
    struct wasi *w = wasi_new(&config), *again = wasi_new(&config);
    uint8_t *memory DEFER_FREE = calloc(1, MEMORY); /* exactly its size, for the sanitizer */
    struct buf state DEFER(buf_done) = BUF(1 << 20);
    for (size_t i = 0; i < PATHS; i++)
        memcpy(memory + 64 * i, paths[i], strlen(paths[i]));
    /* A vector of buffers that the table's addresses reach. */
    for (uint32_t i = 0; i < 16; i++)
        memory[4096 + 8 * i + 1] = 0x80, memory[4096 + 8 * i + 4] = 64;
    size_t at = 0;
    for (int n = 0; n < CALLS_MAX && at < size && data[at] != 255; n++)
        at += wasi_fuzz_call(w, memory, data + at, size - at);
    assert(wasi_save(w, &state) && wasi_load(again, state.data, state.len, &err) == 0);
    if (at < size)
        wasi_load(w, data + at + 1, size - at - 1, &err);
    wasi_fuzz_check(top, memory);
    wasi_free(w);
    wasi_free(again);
    return 0;
}
