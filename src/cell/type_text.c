#include "cell/type_text.h"

#include <inttypes.h>

#include "base/banned.h"

static bool type_text_values(struct buf *b, const uint32_t *types, uint32_t n) {
    bool ok = true;
    for (uint32_t i = 0; ok && i < n; i++) {
        char name[40];
        ok = buf_addf(b, " %s", wasm_type_name(types[i], name, sizeof(name)));
    }
    return ok;
}

static bool type_text_func(struct buf *b, const struct wasm_func_type *f, const char *word) {
    return buf_addf(b, "(%s", word) &&
           (!f->n_params || (buf_addf(b, " (param") &&
                             type_text_values(b, f->params, f->n_params) && buf_addf(b, ")"))) &&
           (!f->n_results || (buf_addf(b, " (result") &&
                              type_text_values(b, f->results, f->n_results) && buf_addf(b, ")"))) &&
           buf_addf(b, ")");
}

static bool type_text_limits(struct buf *b, const struct wasm_limits *l) {
    return buf_addf(b, "%s%" PRIu64, l->is64 ? "i64 " : "", l->min) &&
           (!l->has_max || buf_addf(b, " %" PRIu64, l->max));
}

bool type_text_add(struct buf *b, const struct wasm_extern_type *t) {
    char name[40];
    switch (t->kind) {
    case WASM_FUNC:
        return type_text_func(b, &t->func, "func");
    case WASM_TAG:
        return type_text_func(b, &t->func, "tag");
    case WASM_MEMORY:
        return buf_addf(b, "(memory ") && type_text_limits(b, &t->limits) && buf_addf(b, ")");
    case WASM_TABLE:
        return buf_addf(b, "(table ") && type_text_limits(b, &t->limits) &&
               buf_addf(b, " %s)", wasm_type_name(t->type, name, sizeof(name)));
    case WASM_GLOBAL:
        wasm_type_name(t->type, name, sizeof(name));
        return buf_addf(b, t->is_mutable ? "(global (mut %s))" : "(global %s)", name);
    }
    return false;
}
