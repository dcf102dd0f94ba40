/*
 * Property: a text becomes bytes that the decoder finds well formed (if perhaps invalid) and whose
 * map stays inside the text, or it gets at least one error, which can be shown and points into
 * the text. The first byte chooses the specification level.
 */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/defer.h"
#include "wasm/text/wat.h"
#include "wasm/text/wat_explain.h"
#include "wasm/wasm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_module(const struct wat_module *m, size_t len) {
    assert(m->binary.len >= 8 && memcmp(m->binary.data, "\0asm", 4) == 0);
    for (uint32_t i = 0; i < m->map_count; i++) {
        assert(m->map[i].offset <= m->binary.len && m->map[i].pos <= len);
        assert(i == 0 || m->map[i - 1].offset <= m->map[i].offset);
    }
}

/* The list of all errors begins with the one that the module was refused for. */
static void check_faults(struct wasm_engine *e, const struct wat_module *m, int spec,
                         const struct wasm_diag *first) {
    struct wasm_diag list[4];
    uint32_t n =
        wasm_module_faults(e, m->binary.data, m->binary.len, (enum wasm_level)spec, list, 4);
    assert(n >= 1 && list[0].offset == first->offset && list[0].fault == first->fault);
    assert(strcmp(list[0].message, first->message) == 0);
    for (uint32_t i = 1; i < n; i++)
        assert(list[i].offset > list[i - 1].offset);
}

/* What the encoder writes, the decoder reads; why it is invalid can be led back to the text. */
static void check_decodes(const struct wat_module *m, const char *src, size_t len, int spec) {
    struct wasm_engine *e = wasm_engine_new(NULL);
    struct wasm_module *loaded;
    struct wasm_diag diag = {0};
    struct wat_diags diags = {0};
    assert(e);
    if (wasm_module_load(e, m->binary.data, m->binary.len, (enum wasm_level)spec, &loaded, &diag) ==
        0) {
        wasm_module_unref(loaded);
    } else {
        assert(diag.fault != WASM_MALFORMED || strstr(diag.message, "too many"));
        wat_explain(&diag, m, src, len, &diags);
        assert(diags.count == 1 && diags.list[0].pos <= len);
        if (diag.fault == WASM_INVALID)
            check_faults(e, m, spec, &diag);
    }
    wasm_engine_free(e);
}

static void check_errors(const struct wat_diags *diags, const char *src, size_t len) {
    struct buf out DEFER(buf_done) = BUF(1 << 20);
    assert(diags->count > 0);
    for (int i = 0; i < diags->count; i++) {
        assert(diags->list[i].pos <= len && diags->list[i].text[0]);
        bool shown = wat_diag_print(&diags->list[i], "fuzz", src, len, &out);
        assert(shown);
        (void)shown;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    const char *src = (const char *)data + 1;
    struct wat_module m DEFER(wat_module_done);
    struct wat_diags diags = {0};
    int spec = (data[0] % 3 + 1) * 10;
    if (wat_encode(src, size - 1, spec, &m, &diags) < 0) {
        check_errors(&diags, src, size - 1);
    } else {
        check_module(&m, size - 1);
        check_decodes(&m, src, size - 1, spec);
    }
    return 0;
}
