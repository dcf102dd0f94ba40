/* `cell check`: validates a module and prints its imports, exports and size. */
#include <inttypes.h>
#include <string.h>

#include "base/banned.h"
#include "base/defer.h"
#include "cell/json.h"
#include "cell/session.h"
#include "cell/type_text.h"

enum { MAX_REPORT = 16 << 20 };

/* Writes one import or export as a line or a JSON object. */
static bool add_item(struct buf *b, bool json, bool first, const char *module, size_t module_size,
                     const char *name, size_t name_size, const struct wasm_extern_type *type) {
    struct buf shown DEFER(buf_done) = BUF(1 << 20);
    if (!type_text_add(&shown, type))
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

/* Writes why no host can provide an import; nothing if the hosts of cells have it. */
static bool add_lack(struct buf *b, const struct wasm_import *in) {
    int module = (int)(in->module_size < 80 ? in->module_size : 80);
    int name = (int)(in->name_size < 80 ? in->name_size : 80);
    struct wasm_extern_type type = {.kind = WASM_FUNC};
    enum host_fit fit = host_fits(in, &type.func);
    if (fit == HOST_FITS)
        return true;
    if (!buf_addf(b, "import %.*s.%.*s: ", module, in->module, name, in->name))
        return false;
    if (fit == HOST_OTHER_TYPE)
        return buf_addf(b, "the host function has the type ") && type_text_add(b, &type);
    return buf_addf(b, "no host has it; hosts have WASI preview 1, carrel.1 and carrel.{" HOST_NAMES
                       "}");
}

/* Warns about imports that can never be granted: as lines, or as a list of JSON texts. */
static bool add_warnings(struct buf *b, const struct wasm_module *m, bool json) {
    bool ok = !json || buf_addf(b, ",\"warnings\":["), first = true;
    for (uint32_t i = 0; ok && i < wasm_module_imports(m); i++) {
        struct buf text DEFER(buf_done) = BUF(1 << 20);
        struct wasm_import in;
        wasm_module_import(m, i, &in);
        ok = add_lack(&text, &in);
        if (!ok || !text.len)
            continue;
        ok = json ? buf_addf(b, "%s", first ? "" : ",") && json_string(b, text.data, text.len)
                  : buf_addf(b, "warning: %s\n", text.data);
        first = false;
    }
    return ok && (!json || buf_addf(b, "]"));
}

static int report(struct session *s) {
    struct buf b DEFER(buf_done) = BUF(MAX_REPORT), warnings DEFER(buf_done) = BUF(MAX_REPORT);
    bool json = s->job->options->json;
    bool ok = (json ? buf_addf(&b, "{\"valid\":true,") : buf_addf(&b, "valid\n")) &&
              add_imports(&b, s->module, json) && add_exports(&b, s->module, json) &&
              add_size(&b, s->module, json) &&
              add_warnings(json ? &b : &warnings, s->module, json) &&
              (!json || buf_addf(&b, "}\n"));
    if (!ok) {
        struct err err;
        err_set(&err, ERR_LIMIT, "the report of the check is too large");
        return session_fail(s, CELL_LIMIT, &err);
    }
    if (json)
        link_out(s->link, b.data, b.len);
    else
        link_text(s->link, b.data, b.len);
    link_err(s->link, warnings.data, warnings.len);
    return CELL_OK;
}

int verb_check(struct link *l, const void *arg) {
    struct session s DEFER(session_done);
    const struct job *job = arg;
    session_init(&s, l, job);
    int code = session_load(&s, job->bytes, job->options->spec, 0);
    return code == CELL_OK ? report(&s) : code;
}
