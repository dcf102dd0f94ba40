#include "cell/log.h"

#include <string.h>

#include "base/banned.h"

static const char magic[8] = "CARRELOG";
enum { MARK_CALL = 1, MARK_END = 2, CHECKSUM_BYTES = 8 };

uint64_t cell_digest(const void *bytes, size_t len) {
    const uint8_t *p = bytes;
    uint64_t h = 0xcbf29ce484222325;
    for (size_t i = 0; i < len; i++)
        h = (h ^ p[i]) * 0x100000001b3;
    return h;
}

/* --- writing --- */

static bool log_put_number(struct buf *b, uint64_t value, unsigned bytes) {
    uint8_t out[8];
    for (unsigned i = 0; i < bytes; i++)
        out[i] = (uint8_t)(value >> 8 * i);
    return buf_add(b, out, bytes);
}

static bool put_slice(struct buf *b, struct slice s) {
    return s.len <= UINT32_MAX && log_put_number(b, s.len, 4) && buf_add(b, s.data, s.len);
}

static bool put_value(struct buf *b, const struct wasm_value *v) {
    if (!log_put_number(b, v->type, 4))
        return false;
    if (v->type == WASM_V128)
        return buf_add(b, v->v128, 16);
    bool narrow = v->type == WASM_I32 || v->type == WASM_F32;
    return log_put_number(b, narrow ? v->f32 : v->f64, 8);
}

static bool put_values(struct buf *b, const struct cell_values *v) {
    bool ok = log_put_number(b, v->count, 4);
    for (uint32_t i = 0; ok && i < v->count; i++)
        ok = put_value(b, &v->list[i]);
    return ok;
}

bool cell_log_start(struct buf *log, const struct cell_start *s) {
    return buf_add(log, magic, sizeof(magic)) && log_put_number(log, CELL_LOG_VERSION, 4) &&
           log_put_number(log, s->spec, 1) && log_put_number(log, s->fuel, 8) &&
           log_put_number(log, s->pages, 8) && put_slice(log, s->module) &&
           put_slice(log, s->function) && put_slice(log, s->input) && put_slice(log, s->grants) &&
           put_values(log, &s->args);
}

bool cell_log_call(struct buf *log, const struct cell_call *c) {
    return log_put_number(log, MARK_CALL, 1) && log_put_number(log, c->sequence, 8) &&
           put_slice(log, c->name) && put_values(log, &c->args) &&
           log_put_number(log, c->taken, 8) && put_values(log, &c->results) &&
           put_slice(log, c->given);
}

bool cell_log_end(struct buf *log, const struct cell_end *e) {
    return log_put_number(log, MARK_END, 1) && log_put_number(log, e->outcome, 1) &&
           put_slice(log, e->text) && put_values(log, &e->results) &&
           log_put_number(log, e->fuel, 8) && buf_add(log, e->hash, sizeof(e->hash)) &&
           log_put_number(log, cell_digest(log->data, log->len), CHECKSUM_BYTES);
}

/* --- reading --- */

struct reader {
    const uint8_t *p;
    size_t left;
    bool bad;
};

static struct slice log_take(struct reader *r, size_t len) {
    if (r->bad || len > r->left) {
        r->bad = true;
        return (struct slice){0};
    }
    struct slice s = {.data = r->p, .len = len};
    r->p += len;
    r->left -= len;
    return s;
}

static uint64_t log_take_number(struct reader *r, unsigned bytes) {
    struct slice s = log_take(r, bytes);
    uint64_t value = 0;
    for (unsigned i = 0; i < s.len; i++)
        value |= (uint64_t)s.data[i] << 8 * i;
    return value;
}

static struct slice take_slice(struct reader *r) {
    return log_take(r, log_take_number(r, 4));
}

/* Types that a module defines are refused: their numbers are valid only in one engine. */
static bool known_type(uint32_t type) {
    const uint32_t flags = WASM_REF | WASM_ABSTRACT, heap = type & ~(flags | WASM_NULLABLE);
    bool is_abstract = (type & flags) == flags && heap >= 0x69 && heap <= 0x74;
    return (type >= WASM_V128 && type <= WASM_I32) || is_abstract;
}

static struct wasm_value take_value(struct reader *r) {
    struct wasm_value v = {.type = (uint32_t)log_take_number(r, 4)};
    r->bad = r->bad || !known_type(v.type);
    if (v.type == WASM_V128) {
        struct slice s = log_take(r, 16);
        if (s.len)
            memcpy(v.v128, s.data, 16);
        return v;
    }
    uint64_t bits = log_take_number(r, 8);
    if (v.type == WASM_I32 || v.type == WASM_F32)
        v.f32 = (uint32_t)bits;
    else
        v.f64 = bits;
    return v;
}

static void take_values(struct reader *r, struct cell_values *ret) {
    uint64_t count = log_take_number(r, 4);
    r->bad = r->bad || count > CELL_LOG_VALUES;
    ret->count = r->bad ? 0 : (uint32_t)count;
    for (uint32_t i = 0; i < ret->count; i++)
        ret->list[i] = take_value(r);
}

static void take_start(struct reader *r, struct cell_start *ret) {
    ret->spec = (uint8_t)log_take_number(r, 1);
    r->bad = r->bad || (ret->spec != 10 && ret->spec != 20 && ret->spec != 30);
    ret->fuel = log_take_number(r, 8);
    ret->pages = log_take_number(r, 8);
    ret->module = take_slice(r);
    ret->function = take_slice(r);
    ret->input = take_slice(r);
    ret->grants = take_slice(r);
    take_values(r, &ret->args);
}

static void take_call(struct reader *r, struct cell_call *ret) {
    ret->sequence = log_take_number(r, 8);
    ret->name = take_slice(r);
    take_values(r, &ret->args);
    ret->taken = log_take_number(r, 8);
    take_values(r, &ret->results);
    ret->given = take_slice(r);
}

static void take_end(struct reader *r, struct cell_end *ret) {
    ret->outcome = (uint8_t)log_take_number(r, 1);
    ret->text = take_slice(r);
    take_values(r, &ret->results);
    ret->fuel = log_take_number(r, 8);
    struct slice hash = log_take(r, sizeof(ret->hash));
    if (hash.len)
        memcpy(ret->hash, hash.data, sizeof(ret->hash));
    r->bad = r->bad || ret->outcome > WASM_IDLE || r->left != 0;
}

static int check_frame(const uint8_t *bytes, size_t len, struct err *err) {
    if (len < sizeof(magic) + 4 + CHECKSUM_BYTES || memcmp(bytes, magic, sizeof(magic)) != 0)
        return err_set(err, ERR_INVALID,
                       "the file is not a log that `carrel cell run --record` wrote");
    struct reader version = {.p = bytes + sizeof(magic), .left = 4};
    uint64_t number = log_take_number(&version, 4);
    if (number != CELL_LOG_VERSION)
        return err_set(err, ERR_UNSUPPORTED,
                       "the log of the recorded run has format version %llu; this program reads "
                       "only version %d",
                       (unsigned long long)number, CELL_LOG_VERSION);
    struct reader sum = {.p = bytes + len - CHECKSUM_BYTES, .left = CHECKSUM_BYTES};
    if (log_take_number(&sum, CHECKSUM_BYTES) != cell_digest(bytes, len - CHECKSUM_BYTES))
        return err_set(err, ERR_INVALID,
                       "the log of the recorded run is damaged: its checksum does not match");
    return 0;
}

int cell_log_open(struct cell_log *ret, const void *bytes, size_t len, struct err *err) {
    if (check_frame(bytes, len, err) < 0)
        return -1;
    const size_t head = sizeof(magic) + 4;
    struct reader r = {.p = (const uint8_t *)bytes + head, .left = len - head - CHECKSUM_BYTES};
    struct cell_log log = {0};
    take_start(&r, &log.start);
    const uint8_t *first = r.p;
    uint64_t mark;
    while (!r.bad && (mark = log_take_number(&r, 1)) == MARK_CALL)
        take_call(&r, &(struct cell_call){0});
    log.calls = (struct slice){.data = first, .len = (size_t)(r.p - first)};
    r.bad = r.bad || mark != MARK_END;
    take_end(&r, &log.end);
    if (r.bad)
        return err_set(err, ERR_INVALID,
                       "the log of the recorded run is damaged: a field has an impossible value");
    *ret = log;
    return 0;
}

bool cell_log_next(struct cell_log *log, struct cell_call *ret) {
    struct reader r = {.p = log->calls.data + log->at, .left = log->calls.len - log->at};
    if (log_take_number(&r, 1) != MARK_CALL)
        return false;
    take_call(&r, ret);
    log->at = log->calls.len - r.left;
    return !r.bad;
}
