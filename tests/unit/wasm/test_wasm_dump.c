/* A dump is continued by another process as the store itself would go on: with the same results,
   fuel and hash, whatever memory it grows, and with the limits of the process that loads it. */
#include "tests/unit/wasm_cell.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wasm/dump.h"

enum { PAGES = 20, TAKEN = 77, ARENA_AT = WASM_DUMP_UNIT };

/* Calls itself, asks the host at the bottom, and adds on the way back; a global and the memory
   count. The vector function is translated to a call of C. */
static const char asks[] =
    "(module (import \"env\" \"ask\" (func $ask (param i32) (result i32)))"
    " (memory (export \"m\") 20) (global $g (mut i32) (i32.const 5))"
    " (table 3 funcref) (elem (i32.const 0) $late)"
    " (func $late (result i32) (i32x4.extract_lane 1"
    "   (i32x4.add (v128.const i32x4 1 2 3 4) (i32x4.splat (memory.grow (i32.const 9))))))"
    " (func $down (param $n i32) (result i32)"
    "   (i32.store (i32.mul (local.get $n) (i32.const 4096)) (local.get $n))"
    "   (if (i32.eqz (local.get $n)) (then (return (call $ask (i32.const 3)))))"
    "   (global.set $g (i32.add (global.get $g) (i32.const 1)))"
    "   (i32.add (call $down (i32.sub (local.get $n) (i32.const 1)))"
    "            (i32.load (i32.mul (local.get $n) (i32.const 4096)))))"
    " (func (export \"go\") (param i32) (result i32)"
    "   (i32.add (call $down (local.get 0)) (call_indirect (result i32) (i32.const 0)))))";

struct written {
    struct wasm_dump parts;
    uint64_t memory_at;
};

static void stop_at_question(struct cell *c, const struct wasm_config *cfg) {
    cell_open_with(c, asks, cfg);
    start(c, "go", 200);
    assert_int_equal(wasm_run(c->store, UINT64_MAX)->outcome, WASM_HOST);
}

/* Writes the dump to the file, and where its parts are to its beginning. */
static int write_dump(int file) {
    struct wasm_config cfg = {.alloc = wasm_arena_new()};
    struct cell c;
    struct err err;
    struct written w;
    if (!cfg.alloc.realloc)
        return TAKEN;
    stop_at_question(&c, &cfg);
    if (wasm_dump_make(c.store, &w.parts, &err) < 0)
        return 1;
    w.memory_at =
        ARENA_AT + (w.parts.arena_size + WASM_DUMP_UNIT) / WASM_DUMP_UNIT * WASM_DUMP_UNIT;
    bool ok =
        pwrite(file, w.parts.arena, w.parts.arena_size, ARENA_AT) == (ssize_t)w.parts.arena_size &&
        pwrite(file, w.parts.memory, w.parts.memory_size, (off_t)w.memory_at) ==
            (ssize_t)w.parts.memory_size &&
        pwrite(file, &w, sizeof w, 0) == sizeof w;
    return ok ? 0 : 1;
}

/* Another process makes the dump, so that its memory is gone. */
static int dump_elsewhere(void) {
    int status, file = memfd_create("dump", 0);
    assert_true(file >= 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(write_dump(file));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == TAKEN)
        skip(); /* with a sanitizer, whose shadow memory is there */
    assert_int_equal(status, 0);
    return file;
}

static bool map_dump(int file, struct wasm_mapped *ret) {
    struct written w;
    assert_int_equal(pread(file, &w, sizeof w, 0), sizeof w);
    return wasm_dump_map(file, ARENA_AT, w.memory_at, &w.parts, ret);
}

static int32_t answer_and_finish(struct wasm_store *s, uint64_t *ret_fuel, uint8_t hash[32]) {
    struct wasm_value seven = wasm_i32(7);
    struct err err;
    assert_int_equal(wasm_answer(s, &seven, 1, &err), 0);
    const struct wasm_event *ev = wasm_run(s, UINT64_MAX);
    assert_int_equal(ev->outcome, WASM_DONE);
    int32_t result = ev->values[0].i32;
    *ret_fuel = wasm_fuel_used(s);
    assert_int_equal(wasm_store_hash(s, hash, &err), 0);
    return result;
}

static void a_dump_goes_on_as_the_store_does(void **state) {
    (void)state;
    struct cell c;
    struct wasm_mapped mapped;
    struct wasm_store *s;
    struct err err;
    uint64_t fuel[2];
    uint8_t hash[2][32];
    int file = dump_elsewhere();
    stop_at_question(&c, NULL);
    int32_t want = answer_and_finish(c.store, &fuel[0], hash[0]);
    cell_close(&c);
    assert_int_equal(want, 7 + 200 * 201 / 2 + 2 + PAGES);
    assert_true(map_dump(file, &mapped));
    assert_int_equal(wasm_dump_load(&mapped, 65536, INT64_MAX, &s, &err), 0);
    assert_int_equal(answer_and_finish(s, &fuel[1], hash[1]), want);
    assert_int_equal(fuel[1], fuel[0]);
    assert_memory_equal(hash[1], hash[0], 32);
    struct wasm_mapped again; /* the address is taken, and nothing of this process is overwritten */
    assert_false(map_dump(file, &again));
    assert_int_equal(wasm_fuel_used(s), fuel[0]);
    close(file);
}

static int load_with(int file, uint64_t pages, uint64_t bytes) {
    struct wasm_mapped mapped;
    struct wasm_store *s;
    struct err err;
    uint64_t fuel;
    uint8_t hash[32];
    if (!map_dump(file, &mapped) || wasm_dump_load(&mapped, pages, bytes, &s, &err) < 0)
        return 100;
    return answer_and_finish(s, &fuel, hash) - 7 - 200 * 201 / 2 - 2; /* what memory.grow gave */
}

static int load_elsewhere(int file, uint64_t pages, uint64_t bytes) {
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(load_with(file, pages, bytes) & 0xff);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void limits_are_those_of_the_process_that_loads(void **state) {
    (void)state;
    int file = dump_elsewhere();
    assert_int_equal(load_elsewhere(file, PAGES + 9, INT64_MAX), PAGES);
    assert_int_equal(load_elsewhere(file, PAGES + 8, INT64_MAX), 0xff); /* -1: it may not grow */
    assert_int_equal(load_elsewhere(file, PAGES - 1, INT64_MAX), 100);
    assert_int_equal(load_elsewhere(file, 65536, PAGES * 65536), 100);
    close(file);
}

static void stores_of_another_kind_are_refused(void **state) {
    (void)state;
    struct wasm_dump parts;
    struct cell c;
    struct err err;
    stop_at_question(&c, NULL);
    assert_int_equal(wasm_dump_make(c.store, &parts, &err), -1);
    assert_int_equal(err.code, ERR_UNSUPPORTED);
    cell_close(&c);
}

UNIT_MAIN(cmocka_unit_test(limits_are_those_of_the_process_that_loads),
          cmocka_unit_test(stores_of_another_kind_are_refused),
          cmocka_unit_test(a_dump_goes_on_as_the_store_does))
