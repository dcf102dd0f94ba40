/* Reports the imports, exports and names of a module. */
#include "base/siphash.h"
#include "wasm/engine.h"
#include "wasm/module_inner.h"

/* Computes the hash at the first call, because most modules never need it. */
void wasm_module_hash(struct wasm_module *m, uint8_t hash[32]) {
    if (!m->hashed) {
        struct sha256 s;
        sha256_init(&s);
        sha256_add(&s, m->bytes, m->size);
        sha256_end(&s, m->hash);
        m->hashed = true;
    }
    memcpy(hash, m->hash, 32);
}

const uint8_t *wasm_module_bytes(const struct wasm_module *m, size_t *ret_size) {
    *ret_size = m->size;
    return m->bytes;
}

static void decl_type(const struct wasm_module *m, uint8_t kind, uint32_t i,
                      struct wasm_extern_type *ret) {
    *ret = (struct wasm_extern_type){.kind = kind};
    switch (kind) {
    case WASM_FUNC:
        ret->func = type_view(m->fns[i].type);
        break;
    case WASM_TABLE:
        ret->limits = m->tables[i].l;
        ret->type = m->tables[i].type;
        break;
    case WASM_MEMORY:
        ret->limits = m->mems[i].l;
        break;
    case WASM_GLOBAL:
        ret->type = m->globals[i].type;
        ret->is_mutable = m->globals[i].is_mutable;
        break;
    default:
        ret->func = type_view(m->engine->types[m->tags[i]]);
    }
}

bool wasm_module_has_start(const struct wasm_module *m) {
    return m->start != NO_TYPE;
}

uint32_t wasm_module_imports(const struct wasm_module *m) {
    return m->n_imports;
}

void wasm_module_import(const struct wasm_module *m, uint32_t i, struct wasm_import *ret) {
    const struct import_decl *d = &m->imports[i];
    *ret = (struct wasm_import){d->module, d->name, d->module_size, d->name_size, {0}};
    decl_type(m, d->kind, d->index, &ret->type);
}

uint32_t wasm_module_exports(const struct wasm_module *m) {
    return m->n_exports;
}

void wasm_module_export(const struct wasm_module *m, uint32_t i, struct wasm_export *ret) {
    const struct export_decl *d = &m->exports[i];
    *ret = (struct wasm_export){d->name, d->name_size, d->index, {0}};
    decl_type(m, d->kind, d->index, &ret->type);
}

uint32_t wasm_module_funcs(const struct wasm_module *m) {
    return m->n_funcs;
}

bool wasm_module_func_body(const struct wasm_module *m, uint32_t func, size_t *ret_offset,
                           size_t *ret_size) {
    if (func < m->imported_funcs || func >= m->n_funcs)
        return false;
    *ret_offset = m->fns[func].body;
    *ret_size = m->fns[func].body_size;
    return true;
}

/* Finds a name in the name section. The section is optional, so an error in it is not reported. */
static const char *section_name(const struct wasm_module *m, uint32_t func, size_t *ret_size) {
    struct wasm_diag diag;
    struct reader r = {.p = m->bytes + m->names, .base = m->bytes, .diag = &diag};
    r.end = r.p + m->names_size;
    while (r.p < r.end) {
        uint8_t id = reader_byte(&r);
        uint32_t size = reader_u32(&r);
        if (r.failed || size > (size_t)(r.end - r.p))
            return NULL;
        if (id != 1) {
            r.p += size;
            continue;
        }
        uint32_t n = reader_u32(&r);
        for (uint32_t i = 0; i < n && !r.failed; i++) {
            uint32_t at = reader_u32(&r), len = reader_u32(&r);
            const uint8_t *p = reader_bytes(&r, len);
            if (p && at == func) {
                *ret_size = len;
                return (const char *)p;
            }
        }
        return NULL;
    }
    return NULL;
}

/* Returns the name from the name section, else of the first export of the function. */
const char *wasm_module_func_name(const struct wasm_module *m, uint32_t func, size_t *ret_size) {
    const char *found = section_name(m, func, ret_size);
    for (uint32_t i = 0; !found && i < m->n_exports; i++)
        if (m->exports[i].kind == WASM_FUNC && m->exports[i].index == func) {
            found = m->exports[i].name;
            *ret_size = m->exports[i].name_size;
        }
    return found;
}
