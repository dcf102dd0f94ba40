/* `cell check`: validates a module and prints its imports, exports and size. */
#include <inttypes.h>
#include <string.h>

#include "base/banned.h"
#include "base/defer.h"
#include "cell/json.h"
#include "cell/session.h"

enum { MAX_REPORT = 16 << 20 };

static bool add_types(struct buf *b, const uint32_t *types, uint32_t n) {
    bool ok = true;
    for (uint32_t i = 0; ok && i < n; i++) {
        char name[40];
        ok = buf_addf(b, " %s", wasm_type_name(types[i], name, sizeof(name)));
    }
    return ok;
}

static bool add_func(struct buf *b, const struct wasm_func_type *f, const char *word) {
    return buf_addf(b, "(%s", word) &&
           (!f->n_params ||
            (buf_addf(b, " (param") && add_types(b, f->params, f->n_params) && buf_addf(b, ")"))) &&
           (!f->n_results || (buf_addf(b, " (result") && add_types(b, f->results, f->n_results) &&
                              buf_addf(b, ")"))) &&
           buf_addf(b, ")");
}

static bool add_limits(struct buf *b, const struct wasm_limits *l) {
    return buf_addf(b, "%s%" PRIu64, l->is64 ? "i64 " : "", l->min) &&
           (!l->has_max || buf_addf(b, " %" PRIu64, l->max));
}

/* Writes a type as in the text format of WebAssembly. */
static bool add_type(struct buf *b, const struct wasm_extern_type *t) {
    char name[40];
    switch (t->kind) {
    case WASM_FUNC:
        return add_func(b, &t->func, "func");
    case WASM_TAG:
        return add_func(b, &t->func, "tag");
    case WASM_MEMORY:
        return buf_addf(b, "(memory ") && add_limits(b, &t->limits) && buf_addf(b, ")");
    case WASM_TABLE:
        return buf_addf(b, "(table ") && add_limits(b, &t->limits) &&
               buf_addf(b, " %s)", wasm_type_name(t->type, name, sizeof(name)));
    case WASM_GLOBAL:
        wasm_type_name(t->type, name, sizeof(name));
        return buf_addf(b, t->is_mutable ? "(global (mut %s))" : "(global %s)", name);
    }
    return false;
}

/* Writes one import or export as a line or a JSON object. */
static bool add_item(struct buf *b, bool json, bool first, const char *module, size_t module_size,
                     const char *name, size_t name_size, const struct wasm_extern_type *type) {
    struct buf shown DEFER(buf_done) = BUF(1 << 20);
    if (!add_type(&shown, type))
        return false;
    if (!json)
        return buf_addf(b, "  %.*s%s%.*s %s\n", (int)module_size, module ? module : "",
                        module ? "." : "", (int)name_size, name, shown.data);
    return buf_addf(b, first ? "{" : ",{") &&
           (!module || (buf_addf(b, "\"module\":") && json_string(b, module, module_size) &&
                        buf_addf(b, ","))) &&
           buf_addf(b, "\"name\":") && json_string(b, name, name_size) &&
           buf_addf(b, ",\"type\":") && json_string(b, shown.data, shown.len) && buf_addf(b, "}");
}

static bool add_imports(struct buf *b, const struct wasm_module *m, bool json) {
    uint32_t n = wasm_module_imports(m);
    bool ok = json ? buf_addf(b, "\"imports\":[")
                   : buf_addf(b, n ? "asks for:\n" : "asks for: nothing\n");
    for (uint32_t i = 0; ok && i < n; i++) {
        struct wasm_import in;
        wasm_module_import(m, i, &in);
        ok = add_item(b, json, i == 0, in.module, in.module_size, in.name, in.name_size, &in.type);
    }
    return ok && (!json || buf_addf(b, "],"));
}

static bool add_exports(struct buf *b, const struct wasm_module *m, bool json) {
    uint32_t n = wasm_module_exports(m);
    bool ok =
        json ? buf_addf(b, "\"exports\":[") : buf_addf(b, n ? "offers:\n" : "offers: nothing\n");
    for (uint32_t i = 0; ok && i < n; i++) {
        struct wasm_export x;
        wasm_module_export(m, i, &x);
        ok = add_item(b, json, i == 0, NULL, 0, x.name, x.name_size, &x.type);
    }
    return ok && (!json || buf_addf(b, "],"));
}

static bool add_size(struct buf *b, struct wasm_module *m, bool json) {
    size_t size;
    uint8_t hash[32];
    wasm_module_bytes(m, &size);
    wasm_module_hash(m, hash);
    bool ok = buf_addf(b,
                       json ? "\"bytes\":%zu,\"functions\":%u,\"hash\":\""
                            : "size: %zu bytes, %u functions\nhash: ",
                       size, wasm_module_funcs(m));
    for (int i = 0; ok && i < 32; i++)
        ok = buf_addf(b, "%02x", hash[i]);
    return ok && buf_addf(b, json ? "\"" : "\n");
}

static int report(struct session *s) {
    struct buf b DEFER(buf_done) = BUF(MAX_REPORT);
    bool json = s->job->options->json;
    bool ok = (json ? buf_addf(&b, "{\"valid\":true,") : buf_addf(&b, "valid\n")) &&
              add_imports(&b, s->module, json) && add_exports(&b, s->module, json) &&
              add_size(&b, s->module, json) && (!json || buf_addf(&b, "}\n"));
    if (!ok) {
        struct err err;
        err_set(&err, ERR_LIMIT, "the report of the check is too large");
        return session_fail(s, CELL_LIMIT, &err);
    }
    if (json)
        link_out(s->link, b.data, b.len);
    else
        link_text(s->link, b.data, b.len);
    return CELL_OK;
}

int verb_check(struct link *l, const void *arg) {
    struct session s DEFER(session_done);
    const struct job *job = arg;
    session_init(&s, l, job);
    int code = session_load(&s, job->bytes, job->options->spec, 0);
    return code == CELL_OK ? report(&s) : code;
}
