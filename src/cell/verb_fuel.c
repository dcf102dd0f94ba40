/*
 * `cell fuel`: prints which functions and lines use the fuel. The program runs instruction by
 * instruction at first, then in slices (runs with a fixed amount of fuel). Each slice is charged to
 * the instruction where it began. Fuel is exact and the size of slices is fixed, so two runs give
 * the same profile.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/banned.h"
#include "base/defer.h"
#include "base/sort.h"
#include "cell/json.h"
#include "cell/session.h"
#include "cell/verb.h"

enum { MAX_BYTES = 16 << 20, SHOWN = 20, EXACT_FUEL = 5000000, SLICE = 1009 };

struct row {
    uint64_t fuel;
    uint32_t key; /* index of a function, number of a source line, or offset of an instruction */
};

struct profile {
    uint64_t *by_offset; /* fuel charged to each byte of the module */
    size_t size;
    uint64_t total;
    uint64_t making; /* fuel to create memories, tables and segments; not in by_offset */
    bool sampled;
};

/* Before its first instruction a call has no frame: its fuel goes to the function's start. */
static size_t current_offset(const struct session *s, size_t entry) {
    struct wasm_frame f;
    return wasm_frame_at(s->store, 0, &f) ? f.offset : entry;
}

static void charge(struct profile *p, struct session *s, size_t offset, uint64_t before) {
    uint64_t spent = wasm_fuel_used(s->store) - before;
    p->total += spent;
    if (offset < p->size)
        p->by_offset[offset] += spent;
    else
        p->making += spent;
}

enum { NO_OFFSET = MAX_BYTES };

/* Runs the call in progress to its end, and charges the fuel to the instructions. */
static int drive(struct session *s, struct profile *p, size_t entry, struct ending *ret) {
    struct err err;
    for (;;) {
        size_t offset = current_offset(s, entry);
        uint64_t before = wasm_fuel_used(s->store);
        p->sampled = before >= EXACT_FUEL;
        const struct wasm_event *ev = wasm_run(s->store, p->sampled ? SLICE : 1);
        charge(p, s, offset, before);
        if (ev->outcome == WASM_SLICE)
            continue;
        if (ev->outcome != WASM_HOST) {
            *ret = (struct ending){.outcome = ev->outcome, .text = ev->text, .needed = ev->needed};
            return CELL_OK;
        }
        int answered = host_answer(s, ev, ret, &err);
        if (answered < 0)
            return session_fail(s, CELL_INTERNAL, &err);
        if (answered > 0)
            return CELL_OK;
    }
}

/* Returns where the body of an exported function starts in the module. */
static size_t entry_of(const struct session *s, struct slice function) {
    for (uint32_t i = 0; i < wasm_module_exports(s->module); i++) {
        struct wasm_export x;
        size_t offset, size;
        wasm_module_export(s->module, i, &x);
        if (x.type.kind == WASM_FUNC && x.name_size == function.len &&
            !memcmp(x.name, function.data, function.len) &&
            wasm_module_func_body(s->module, x.index, &offset, &size))
            return offset;
    }
    return NO_OFFSET;
}

static int run_profiled(struct session *s, struct profile *p, struct ending *ret) {
    struct slice function;
    struct cell_values args;
    struct wasm_extern f;
    struct err err;
    int code = chosen_function(s, &function);
    if (code == CELL_OK)
        code = read_arguments(s, function, &args);
    if (code == CELL_OK)
        code = session_link(s);
    if (code != CELL_OK)
        return code;
    wasm_fuel_add(s->store, s->job->options->fuel);
    code = drive(s, p, NO_OFFSET, ret);
    if (code != CELL_OK || ret->outcome != WASM_DONE || !function.len)
        return code;
    if (!wasm_export(s->instance, (const char *)function.data, function.len, &f)) {
        err_set(&err, ERR_NOT_FOUND, "module %s exports no function '%.*s'", s->job->file,
                (int)function.len, (const char *)function.data);
        return session_fail(s, CELL_INVALID, &err);
    }
    if (wasm_call(s->store, f, args.list, args.count, &err) < 0)
        return session_fail(s, CELL_INVALID, &err);
    return drive(s, p, entry_of(s, function), ret);
}

/* --- sums --- */

static int by_fuel(const void *a, const void *b) {
    const struct row *x = a, *y = b;
    if (x->fuel != y->fuel)
        return x->fuel < y->fuel ? 1 : -1;
    return x->key < y->key ? -1 : x->key > y->key;
}

static uint32_t sum_functions(const struct session *s, const struct profile *p, struct row *rows) {
    uint32_t n = 0;
    for (uint32_t f = 0; f < wasm_module_funcs(s->module); f++) {
        size_t offset, size;
        if (!wasm_module_func_body(s->module, f, &offset, &size))
            continue;
        struct row row = {.key = f};
        for (size_t i = offset; i < offset + size && i < p->size; i++)
            row.fuel += p->by_offset[i];
        if (row.fuel)
            rows[n++] = row;
    }
    heap_sort(rows, n, sizeof(*rows), by_fuel);
    return n;
}

/*
 * Adds up the fuel of each source line. The lines of increasing offsets mostly increase, so
 * counting continues from the last position.
 */
static void charge_lines(const struct session *s, const struct profile *p, uint64_t *by_line) {
    const char *src = (const char *)s->job->bytes.data;
    uint32_t line = 1, pos = 0;
    for (uint32_t i = 0; i < p->size; i++) {
        if (!p->by_offset[i])
            continue;
        uint32_t to = wat_locate(&s->text, i);
        for (; pos < to; pos++)
            line += src[pos] == '\n';
        for (; pos > to; pos--)
            line -= src[pos - 1] == '\n';
        by_line[line] += p->by_offset[i];
    }
}

static uint32_t keep_charged(const uint64_t *fuel, size_t n, struct row *rows) {
    uint32_t count = 0;
    for (size_t i = 0; i < n; i++)
        if (fuel[i])
            rows[count++] = (struct row){.key = (uint32_t)i, .fuel = fuel[i]};
    heap_sort(rows, count, sizeof(*rows), by_fuel);
    return count;
}

/* Sums fuel by line of the text; in a binary, by instruction. -1: out of memory. */
static int64_t sum_lines(const struct session *s, const struct profile *p, struct row *rows) {
    if (!s->is_text)
        return keep_charged(p->by_offset, p->size, rows);
    size_t lines = s->job->bytes.len + 2;
    uint64_t *by_line DEFER_FREE = calloc(lines, sizeof(*by_line));
    if (!by_line)
        return -1;
    charge_lines(s, p, by_line);
    return keep_charged(by_line, lines, rows);
}

/* --- printing --- */

static double share(uint64_t part, uint64_t whole) {
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

static struct slice source_line(const struct session *s, uint32_t line) {
    const uint8_t *p = s->job->bytes.data, *end = p + s->job->bytes.len;
    while (--line > 0 && p) {
        p = memchr(p, '\n', (size_t)(end - p));
        p = p ? p + 1 : NULL;
    }
    while (p && p < end && (*p == ' ' || *p == '\t'))
        p++;
    const uint8_t *stop = p ? memchr(p, '\n', (size_t)(end - p)) : NULL;
    size_t len = !p ? 0 : (size_t)((stop ? stop : end) - p);
    return (struct slice){.data = p, .len = len < 60 ? len : 60};
}

static bool add_function(struct buf *b, const struct session *s, const struct profile *p,
                         const struct row *row) {
    char name[100];
    session_func_name(s, row->key, name, sizeof(name));
    return buf_addf(b, "%12" PRIu64 " %5.1f%%  %s\n", row->fuel, share(row->fuel, p->total), name);
}

static bool add_line(struct buf *b, const struct session *s, const struct profile *p,
                     const struct row *row) {
    if (!s->is_text)
        return buf_addf(b, "%12" PRIu64 " %5.1f%%  byte 0x%x\n", row->fuel,
                        share(row->fuel, p->total), row->key);
    struct slice text = source_line(s, row->key);
    return buf_addf(b, "%12" PRIu64 " %5.1f%%  %5u | %.*s\n", row->fuel, share(row->fuel, p->total),
                    row->key, (int)text.len, (const char *)text.data);
}

static bool add_json_rows(struct buf *b, const struct session *s, const struct row *rows,
                          uint32_t n, bool functions) {
    bool ok = true;
    for (uint32_t i = 0; ok && i < n; i++) {
        char name[100];
        session_func_name(s, rows[i].key, name, sizeof(name));
        ok = buf_addf(b, "%s{\"fuel\":%" PRIu64 ",", i ? "," : "", rows[i].fuel) &&
             (functions ? buf_addf(b, "\"function\":") && json_string(b, name, strlen(name))
                        : buf_addf(b, "\"%s\":%u", s->is_text ? "line" : "byte", rows[i].key)) &&
             buf_addf(b, "}");
    }
    return ok;
}

struct tables {
    struct row *functions, *lines;
    uint32_t function_count, line_count;
};

static bool add_text(struct buf *b, const struct session *s, const struct profile *p,
                     const struct tables *t) {
    bool ok = buf_addf(b, "fuel: %" PRIu64 "%s\n\nby function:\n", p->total,
                       p->sampled ? " (after the first 5,000,000 in slices of 1009)" : "");
    for (uint32_t i = 0; ok && i < t->function_count && i < SHOWN; i++)
        ok = add_function(b, s, p, &t->functions[i]);
    if (ok && p->making)
        ok = buf_addf(b, "%12" PRIu64 " %5.1f%%  (memories, tables and segments)\n", p->making,
                      share(p->making, p->total));
    ok = ok && buf_addf(b, "\nby %s:\n", s->is_text ? "line" : "instruction");
    for (uint32_t i = 0; ok && i < t->line_count && i < SHOWN; i++)
        ok = add_line(b, s, p, &t->lines[i]);
    return ok;
}

static bool add_json(struct buf *b, const struct session *s, const struct profile *p,
                     const struct tables *t) {
    return buf_addf(b, "{\"fuel\":%" PRIu64 ",\"making\":%" PRIu64, p->total, p->making) &&
           buf_addf(b, ",\"sampled\":%s,\"functions\":[", p->sampled ? "true" : "false") &&
           add_json_rows(b, s, t->functions, t->function_count, true) &&
           buf_addf(b, "],\"lines\":[") && add_json_rows(b, s, t->lines, t->line_count, false) &&
           buf_addf(b, "]}\n");
}

static int verb_fuel_tell(struct session *s, struct profile *p) {
    struct buf b DEFER(buf_done) = BUF(JAIL_MAX_TEXT);
    struct row *functions DEFER_FREE = calloc(wasm_module_funcs(s->module) + 1, sizeof(*functions));
    struct row *lines DEFER_FREE = calloc(p->size + 1, sizeof(*lines));
    struct err err;
    err_set(&err, ERR_LIMIT, "cannot profile the program: out of memory");
    if (!functions || !lines)
        return session_fail(s, CELL_LIMIT, &err);
    struct tables t = {.functions = functions, .lines = lines};
    t.function_count = sum_functions(s, p, functions);
    int64_t count = sum_lines(s, p, lines);
    if (count < 0)
        return session_fail(s, CELL_LIMIT, &err);
    t.line_count = (uint32_t)count;
    bool json = s->job->options->json;
    if (!(json ? add_json(&b, s, p, &t) : add_text(&b, s, p, &t)))
        return session_fail(s, CELL_LIMIT, &err);
    (json ? link_out : link_text)(s->link, b.data, b.len);
    return CELL_OK;
}

static int profile(struct session *s) {
    const struct cell_options *o = s->job->options;
    struct profile p = {0};
    struct ending e = {0};
    struct err err;
    wasm_module_bytes(s->module, &p.size);
    int code = session_check_grants(s, o->grants, o->grant_count);
    if (code != CELL_OK)
        return code;
    uint64_t *by_offset DEFER_FREE =
        p.size <= MAX_BYTES ? calloc(p.size + 1, sizeof(*by_offset)) : NULL;
    if (!by_offset) {
        err_set(&err, ERR_LIMIT, "the module is too large for a profile: at most 16 MiB");
        return session_fail(s, CELL_LIMIT, &err);
    }
    p.by_offset = by_offset;
    code = run_profiled(s, &p, &e);
    if (code != CELL_OK)
        return code;
    code = verb_fuel_tell(s, &p);
    return code == CELL_OK && e.outcome == WASM_OUT_OF_FUEL ? CELL_FUEL
           : code == CELL_OK && e.outcome != WASM_DONE      ? CELL_TRAP
                                                            : code;
}

int verb_fuel(struct link *l, const void *arg) {
    struct session s DEFER(session_done);
    const struct job *job = arg;
    session_init(&s, l, job);
    int code = session_load(&s, job->bytes, job->options->spec, job->options->memory);
    return code == CELL_OK ? profile(&s) : code;
}
