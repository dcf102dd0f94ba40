/* The program in the first comment of wasm/wasm.h, whole. */
#include "tests/unit/unit.h"

#include "wasm/text/wat.h"
#include "wasm/wasm.h"

static int32_t logged;

static const struct wasm_event *drive(struct wasm_store *s) {
    const struct wasm_event *ev;
    while ((ev = wasm_run(s, UINT64_MAX))->outcome == WASM_HOST) {
        assert_string_equal(ev->name, "log");
        logged = ev->values[0].i32;
        wasm_answer(s, NULL, 0, NULL);
    }
    return ev;
}

static void the_example_runs(void **state) {
    (void)state;
    static const char text[] = "(module (import \"env\" \"log\" (func $log (param i32)))"
                               "  (func (export \"main\") (param i32) (result i32)"
                               "    (call $log (local.get 0))"
                               "    (i32.add (local.get 0) (i32.const 1))))";
    struct wat_module wat = {0};
    struct wat_diags diags = {0};
    assert_int_equal(wat_encode(text, sizeof text - 1, 30, &wat, &diags), 0);

    struct wasm_engine *e = wasm_engine_new(NULL);
    struct wasm_module *m;
    struct wasm_diag diag;
    struct err err;
    assert_int_equal(wasm_module_load(e, wat.binary.data, wat.binary.len, WASM_3_0, &m, &diag), 0);

    struct wasm_store *s = wasm_store_new(e);
    wasm_fuel_add(s, 1000000);
    const struct wasm_func_type log = {.params = (uint32_t[]){WASM_I32}, .n_params = 1};
    assert_int_equal(wasm_host_func(s, "env", "log", &log, 10, &err), 0);

    struct wasm_instance *i;
    assert_int_equal(wasm_instance_new(s, m, NULL, 0, &i, &err), 0);
    assert_int_equal(drive(s)->outcome, WASM_DONE);

    struct wasm_extern f;
    assert_true(wasm_export(i, "main", 4, &f));
    struct wasm_value arg = wasm_i32(41);
    assert_int_equal(wasm_call(s, f, &arg, 1, &err), 0);
    const struct wasm_event *ev = drive(s);
    assert_int_equal(ev->outcome, WASM_DONE);
    assert_int_equal(ev->values[0].i32, 42);
    assert_int_equal(logged, 41);
    /* local.get, call, 10 for the host; local.get, const, add. */
    assert_int_equal(wasm_fuel_used(s), 15);

    wasm_store_free(s);
    wasm_module_unref(m);
    wasm_engine_free(e);
    wat_module_done(&wat);
}

UNIT_MAIN(cmocka_unit_test(the_example_runs))
