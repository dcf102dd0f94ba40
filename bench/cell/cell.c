/*
 * The measures of this engine, through its library: cell-bench MODE FILE ARGS…
 *
 *   run FILE N              the kernel's result, CPU milliseconds, fuel
 *   first FILE OFFSET ROUNDS  median microseconds from unique bytes to the result of a tiny call
 *   validate FILE ROUNDS    MB/s of CPU time, decode and validate: median round, best round
 *   fork FILE ROUNDS        median microseconds: fork(2), the first fork of a store, a further one
 *   capture FILE N ROUNDS   after N calls: median microseconds of CPU time for a capture and a
 * hash, bytes that became resident by the first of both instances FILE COUNT    per store with one
 * instance that has run: resident bytes, page tables
 */
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/defer.h"
#include "wasm/wasm.h"

static const uint64_t ample = UINT64_C(1) << 60;

static double clock_us(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static _Noreturn void die(const char *what) {
    fprintf(stderr, "cell-bench: %s\n", what);
    exit(1);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *list, size_t n) {
    qsort(list, n, sizeof *list, by_value);
    return list[n / 2];
}

static double *new_times(size_t n) {
    double *times = calloc(n, sizeof *times);
    if (!times)
        die("out of memory");
    return times;
}

/* A module's file. */
struct image {
    uint8_t *bytes;
    size_t size;
};

static struct image image_read(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f)
        die("cannot open the module");
    struct image image = {.bytes = malloc(16 << 20)};
    if (!image.bytes)
        die("out of memory");
    image.size = fread(image.bytes, 1, 16 << 20, f);
    fclose(f);
    return image;
}

static struct wasm_module *load(struct wasm_engine *e, struct image image) {
    struct wasm_module *m;
    struct wasm_diag diag;
    if (wasm_module_load(e, image.bytes, image.size, WASM_3_0, &m, &diag) < 0)
        die(diag.message);
    return m;
}

/* An instance in a store of its own, past its start function. */
static struct wasm_store *start(struct wasm_engine *e, struct wasm_module *m,
                                struct wasm_instance **ret) {
    struct err err;
    struct wasm_store *s = wasm_store_new(e);
    if (!s)
        die("out of memory");
    wasm_fuel_add(s, ample);
    if (wasm_instance_new(s, m, NULL, 0, ret, &err) < 0)
        die(err.text);
    if (wasm_run(s, UINT64_MAX)->outcome != WASM_DONE)
        die("instantiation did not finish");
    return s;
}

static void begin(struct wasm_store *s, struct wasm_instance *i, uint32_t n) {
    struct wasm_extern f;
    struct err err;
    struct wasm_value arg = wasm_i32((int32_t)n);
    if (!wasm_export(i, "run", 3, &f))
        die("no export 'run'");
    if (wasm_call(s, f, &arg, 1, &err) < 0)
        die(err.text);
}

static uint32_t call(struct wasm_store *s, struct wasm_instance *i, uint32_t n) {
    begin(s, i, n);
    const struct wasm_event *ev = wasm_run(s, UINT64_MAX);
    if (ev->outcome != WASM_DONE)
        die(ev->text ? ev->text : "the call did not finish");
    return (uint32_t)ev->values[0].i32;
}

static void mode_run(struct wasm_engine *e, struct image image, char **args) {
    struct wasm_module *m DEFER(wasm_module_unrefp) = load(e, image);
    struct wasm_instance *i;
    struct wasm_store *s DEFER(wasm_store_freep) = start(e, m, &i);
    call(s, i, 1);
    uint64_t fuel = wasm_fuel_used(s);
    double before = clock_us(CLOCK_PROCESS_CPUTIME_ID);
    uint32_t result = call(s, i, (uint32_t)strtoul(args[0], NULL, 10));
    double spent = clock_us(CLOCK_PROCESS_CPUTIME_ID) - before;
    printf("%" PRIu32 " %.4f %" PRIu64 "\n", result, spent / 1e3, wasm_fuel_used(s) - fuel);
}

static void mode_first(struct wasm_engine *e, struct image image, char **args) {
    size_t offset = strtoul(args[0], NULL, 10), rounds = strtoul(args[1], NULL, 10);
    if (!rounds || offset + 4 > image.size)
        die("bad arguments");
    double *times DEFER_FREE = new_times(rounds);
    for (size_t r = 0; r < rounds; r++) {
        for (unsigned k = 0; k < 4; k++)
            image.bytes[offset + k] = (uint8_t)(0x80 | (r >> (7 * k) & 0x7f));
        double before = clock_us(CLOCK_MONOTONIC);
        struct wasm_module *m DEFER(wasm_module_unrefp) = load(e, image);
        struct wasm_instance *i;
        struct wasm_store *s DEFER(wasm_store_freep) = start(e, m, &i);
        uint32_t result = call(s, i, (uint32_t)r);
        times[r] = clock_us(CLOCK_MONOTONIC) - before;
        if (result != 2 * r)
            die("wrong result");
    }
    printf("%.3f\n", median(times, rounds));
}

static void mode_validate(struct wasm_engine *e, struct image image, char **args) {
    size_t rounds = strtoul(args[0], NULL, 10);
    if (!rounds)
        die("bad arguments");
    double *times DEFER_FREE = new_times(rounds);
    for (size_t r = 0; r < rounds; r++) {
        double before = clock_us(CLOCK_PROCESS_CPUTIME_ID);
        struct wasm_module *m = load(e, image);
        times[r] = clock_us(CLOCK_PROCESS_CPUTIME_ID) - before;
        wasm_module_unref(m);
    }
    double middle = median(times, rounds);
    printf("%.2f %.2f\n", (double)image.size / middle, (double)image.size / times[0]);
}

static double fork_process_us(size_t bytes) {
    uint8_t *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        die("mmap");
    for (size_t at = 0; at < bytes; at += 4096)
        p[at] = 1;
    double before = clock_us(CLOCK_MONOTONIC);
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    double spent = clock_us(CLOCK_MONOTONIC) - before;
    waitpid(pid, NULL, 0);
    munmap(p, bytes);
    return spent;
}

static double fork_store_us(struct wasm_store *s) {
    struct err err;
    struct wasm_store *copy;
    double before = clock_us(CLOCK_MONOTONIC);
    if (wasm_fork(s, &copy, &err) < 0)
        die(err.text);
    double spent = clock_us(CLOCK_MONOTONIC) - before;
    wasm_store_free(copy);
    return spent;
}

static size_t touched_pages(struct wasm_store *s, struct wasm_instance *i) {
    struct wasm_extern memory;
    size_t size, touched = 0;
    if (!wasm_export(i, "memory", 6, &memory))
        die("no export 'memory'");
    const uint8_t *bytes = wasm_memory_bytes(s, memory, &size);
    for (size_t at = 0; at + 4096 <= size; at += 4096)
        touched += bytes[at] != 0 || memcmp(bytes + at, bytes + at + 1, 4095) != 0;
    return touched;
}

/* run(n) touches n pages of 4 KiB and goes on counting, so that fuel can stop it in the middle. */
static void mode_fork(struct wasm_engine *e, struct image image, char **args) {
    size_t rounds = strtoul(args[0], NULL, 10);
    if (!rounds)
        die("bad arguments");
    double *process DEFER_FREE = new_times(rounds), *first DEFER_FREE = new_times(rounds);
    double *further DEFER_FREE = new_times(rounds);
    struct wasm_module *m DEFER(wasm_module_unrefp) = load(e, image);
    for (size_t r = 0; r < rounds; r++) {
        struct wasm_instance *i;
        struct wasm_store *s DEFER(wasm_store_freep) = start(e, m, &i);
        begin(s, i, 4096);
        if (wasm_run(s, 200000)->outcome != WASM_SLICE)
            die("the touching kernel was not suspended");
        if (touched_pages(s, i) < 4096)
            die("the touching kernel did not touch its pages");
        process[r] = fork_process_us(16 << 20);
        first[r] = fork_store_us(s);
        further[r] = fork_store_us(s);
    }
    printf("%.2f %.2f %.2f\n", median(process, rounds), median(first, rounds),
           median(further, rounds));
}

/* A "Key:   123 kB" of /proc/self/status, in bytes. */
static size_t status_bytes(const char *key) {
    FILE *f = fopen("/proc/self/status", "r");
    char line[128];
    size_t kib = 0;
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0)
            kib = strtoul(line + strlen(key), NULL, 10);
    if (!f || !kib)
        die("cannot read /proc/self/status");
    fclose(f);
    return kib * 1024;
}

/* Resident pages, and the page tables that map them, which a wide reservation makes many of. */
struct resident {
    size_t pages, tables;
};

static struct resident resident_now(void) {
    return (struct resident){status_bytes("VmRSS:"), status_bytes("VmPTE:")};
}

static void mode_instances(struct wasm_engine *e, struct image image, char **args) {
    size_t count = strtoul(args[0], NULL, 10);
    struct wasm_store **stores DEFER_FREE = calloc(count + 1, sizeof *stores);
    struct wasm_module *m DEFER(wasm_module_unrefp) = load(e, image);
    if (!stores || !count)
        die("bad arguments");
    struct resident before = {0};
    for (size_t n = 0; n <= count; n++) {
        struct wasm_instance *i;
        stores[n] = start(e, m, &i);
        call(stores[n], i, 1);
        if (n == 0)
            before = resident_now();
    }
    struct resident after = resident_now();
    printf("%zu %zu\n", (after.pages - before.pages) / count,
           (after.tables - before.tables) / count);
    for (size_t n = 0; n <= count; n++)
        wasm_store_free(stores[n]);
}

static void mode_capture(struct wasm_engine *e, struct image image, char **args) {
    uint32_t touched = (uint32_t)strtoul(args[0], NULL, 10);
    size_t rounds = strtoul(args[1], NULL, 10);
    struct wasm_module *m DEFER(wasm_module_unrefp) = load(e, image);
    struct wasm_instance *i;
    struct wasm_store *s DEFER(wasm_store_freep) = start(e, m, &i);
    struct buf state DEFER(buf_done) = BUF(64 << 20);
    double *captures DEFER_FREE = new_times(rounds + 1), *hashes DEFER_FREE = new_times(rounds + 1);
    uint8_t hash[32];
    for (uint32_t k = 0; k < touched; k++)
        call(s, i, k);
    size_t before = resident_now().pages, grown = 0;
    for (size_t k = 0; k < rounds; k++) {
        struct err err;
        double at = clock_us(CLOCK_PROCESS_CPUTIME_ID);
        state.len = 0;
        if (wasm_capture(s, &state, &err) < 0)
            die(err.text);
        captures[k] = clock_us(CLOCK_PROCESS_CPUTIME_ID) - at;
        at = clock_us(CLOCK_PROCESS_CPUTIME_ID);
        if (wasm_store_hash(s, hash, &err) < 0)
            die(err.text);
        hashes[k] = clock_us(CLOCK_PROCESS_CPUTIME_ID) - at;
        if (k == 0)
            grown = resident_now().pages - before;
    }
    printf("%.1f %.1f %zu\n", median(captures, rounds), median(hashes, rounds), grown);
}

static const struct {
    const char *name;
    int args;
    void (*run)(struct wasm_engine *e, struct image image, char **args);
} modes[] = {
    {"run", 1, mode_run},   {"first", 2, mode_first},         {"validate", 1, mode_validate},
    {"fork", 1, mode_fork}, {"instances", 1, mode_instances}, {"capture", 2, mode_capture},
};

int main(int argc, char **argv) {
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        if (argc < 3 || strcmp(argv[1], modes[i].name) != 0 || argc - 3 != modes[i].args)
            continue;
        struct wasm_engine *e = wasm_engine_new(NULL);
        struct image image = image_read(argv[2]);
        modes[i].run(e, image, argv + 3);
        free(image.bytes);
        wasm_engine_free(e);
        return 0;
    }
    fprintf(stderr, "usage: cell-bench run|first|validate|fork|instances|capture FILE ARGS…\n");
    return 64;
}
