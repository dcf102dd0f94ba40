/*
 * The interpreter: one function that runs threaded code, with guest frames on a separate stack.
 *
 * Fuel is a register. The instruction that enters a fuel block subtracts the cost of the block. If
 * the fuel is not enough, the cost is added back and execution continues in the stepping
 * translation, which alone can stop inside a block. Guest calls do not use the native stack.
 */
#include "wasm/interp.h"

#include <stddef.h>
#include <string.h>

#include "wasm/fpmode.h"
#define NUM_CPU_CANONICAL FPMODE_CANONICAL
#include "wasm/chain_bodies.h"
#include "wasm/chains.h"
#include "wasm/num.h"
#include "wasm/simd.h"

const char trap_unreachable[] = "unreachable", trap_memory[] = "out of bounds memory access",
           trap_table[] = "out of bounds table access", trap_undefined[] = "undefined element",
           trap_uninitialized[] = "uninitialized element",
           trap_indirect[] = "indirect call type mismatch", trap_stack[] = "call stack exhausted",
           trap_null[] = "null reference", trap_null_func[] = "null function reference",
           trap_no_memory[] = "out of memory", trap_null_exn[] = "null exception reference",
           trap_exceptions[] = "too many exceptions";

const uint64_t interp_exit_word[2] = {0, I_EXIT};

/* ---- Positions ---- */

bool fn_compile(struct fn *fn) {
    if (!fn->fast && !(fn->fast = walk_emit(fn, false)))
        return false;
    fn->entry = fn->fast->words;
    return true;
}

struct code *fn_step_code(struct fn *fn) {
    if (!fn->step)
        fn->step = walk_emit(fn, true);
    return fn->step;
}

struct code *fn_code_at(const struct fn *fn, const uint64_t *pc) {
    struct code *both[] = {fn->fast, fn->step};
    for (int i = 0; i < 2; i++)
        if (both[i] && pc >= both[i]->words && pc < both[i]->words + both[i]->n_words)
            return both[i];
    return NULL;
}

/* Finds the first mark whose field is not below a value. Marks are sorted by both fields. */
static uint32_t mark_search(const struct code *c, size_t field, uint32_t value) {
    uint32_t low = 0, high = c->n_marks;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2, at;
        memcpy(&at, (const uint8_t *)&c->marks[mid] + field, sizeof at);
        if (at < value)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/*
 * The marks of one word are sorted: first the return to it, then any number of block starts, then
 * the mark of the word itself. So a return is searched from the front and all else from the back,
 * and neither search passes more than a few marks.
 */
const struct mark *code_mark_at(struct fn *fn, struct code *c, const uint64_t *pc, uint32_t kinds) {
    if (!c || !walk_marks(fn, c))
        return NULL;
    uint32_t pos = (uint32_t)(pc - c->words);
    const uint32_t starts = MARK_START | MARK_RETURN;
    if (kinds == MARK_RETURN) {
        uint32_t i = mark_search(c, offsetof(struct mark, pos), pos);
        bool found = i < c->n_marks && c->marks[i].pos == pos && c->marks[i].kind == kinds;
        return found ? &c->marks[i] : NULL;
    }
    for (uint32_t i = mark_search(c, offsetof(struct mark, pos), pos + 1); i-- > 0;) {
        fn->mod->engine->work++;
        if (c->marks[i].pos != pos || (!(kinds & starts) && (c->marks[i].kind & starts)))
            return NULL;
        if (c->marks[i].kind & kinds)
            return &c->marks[i];
    }
    return NULL;
}

const struct mark *code_mark_of(struct fn *fn, struct code *c, uint32_t offset, uint32_t kinds) {
    if (!c || !walk_marks(fn, c))
        return NULL;
    uint32_t i = mark_search(c, offsetof(struct mark, offset), offset);
    for (; i < c->n_marks && c->marks[i].offset == offset; i++) {
        fn->mod->engine->work++;
        if (c->marks[i].kind & kinds)
            return &c->marks[i];
    }
    return NULL;
}

/* Returns the stepping code for a fuel block or self-paying instruction of the fast code at pc. */
static const uint64_t *to_stepping(struct fn *fn, const uint64_t *pc) {
    struct code *c = fn_code_at(fn, pc), *step = fn_step_code(fn);
    const struct mark *m = code_mark_at(fn, c, pc, MARK_START | MARK_RETURN | MARK_SELF);
    uint32_t kinds = m && m->kind == MARK_SELF ? MARK_STEP : MARK_START | MARK_RETURN | MARK_STEP;
    m = m ? code_mark_of(fn, step, m->offset, kinds) : NULL;
    return m ? step->words + m->pos : NULL;
}

/* Returns the STEP word, in the stepping code, of the instruction at pc. */
static const uint64_t *to_step_of(struct fn *fn, const uint64_t *pc) {
    const struct mark *m = code_mark_at(fn, fn_code_at(fn, pc), pc, MARK_OP);
    struct code *step = fn_step_code(fn);
    m = m ? code_mark_of(fn, step, m->offset, MARK_STEP) : NULL;
    return m ? step->words + m->pos : NULL;
}

/* Returns the fast code of the fuel block that starts at pc, and pays for the block; or NULL. */
static const uint64_t *to_fast(struct fn *fn, const uint64_t *pc, int64_t *fuel) {
    const struct mark *m = code_mark_at(fn, fn->step, pc, MARK_START | MARK_RETURN);
    if (!m || !fn_compile(fn))
        return NULL;
    m = code_mark_of(fn, fn->fast, m->offset, MARK_START | MARK_RETURN);
    if (!m || *fuel < m->rest)
        return NULL;
    *fuel -= m->rest;
    return fn->fast->words + m->pos;
}

static uint32_t refund(struct fn *fn, const uint64_t *pc) {
    struct code *c = fn_code_at(fn, pc);
    if (!c || c->stepping)
        return 0;
    const struct mark *m = code_mark_at(fn, c, pc, MARK_OP);
    return m ? m->rest : 0;
}

/* ---- Access to any memory ---- */

/* An access to `width` bytes of memory number `mem`, at addr + offset. */
struct reach {
    uint32_t mem, width;
    uint64_t addr, offset;
};

static uint8_t *reach_now(const struct wasm_instance *inst, struct reach r) {
    const struct memory *m = inst->mems[r.mem];
    uint64_t at;
    if (__builtin_add_overflow(r.addr, r.offset, &at) || at > m->ready || m->ready - at < r.width)
        return NULL;
    return m->base + at;
}

/*
 * Called after reach_now() failed. Allocates the bytes, so that reach_now() will succeed, and
 * returns NULL; or returns the trap. The base address of the memory may change.
 */
static const char *reach_more(const struct wasm_instance *inst, struct reach r) {
    struct memory *m = inst->mems[r.mem];
    uint64_t at;
    if (__builtin_add_overflow(r.addr, r.offset, &at) || at > m->size || m->size - at < r.width)
        return trap_memory;
    return memory_reach(inst->store->engine, m, at + r.width) ? NULL : trap_no_memory;
}

static uint64_t load_any(uint32_t row, const uint8_t *p) {
    uint64_t v = 0;
    memcpy(&v, p, (size_t)1 << wasm_ops[row].align);
    switch (row) {
    case OP_I32_LOAD8_S:
        return (uint32_t)(int8_t)v;
    case OP_I32_LOAD16_S:
        return (uint32_t)(int16_t)v;
    case OP_I64_LOAD8_S:
        return (uint64_t)(int8_t)v;
    case OP_I64_LOAD16_S:
        return (uint64_t)(int16_t)v;
    case OP_I64_LOAD32_S:
        return (uint64_t)(int32_t)v;
    default:
        return v;
    }
}

/* ---- Exceptions ---- */

static const struct handler *find_handler(const struct fn *fn, const uint64_t *pc,
                                          const struct wasm_instance *inst, uint32_t tag,
                                          uint32_t *ret_passed) {
    struct code *c = fn_code_at(fn, pc);
    uint32_t pos = c ? (uint32_t)(pc - c->words) : 0;
    *ret_passed = c ? c->n_handlers : 0;
    for (uint32_t i = 0; c && i < c->n_handlers; i++) {
        const struct handler *h = &c->handlers[i];
        *ret_passed = i;
        if (pos >= h->from && pos < h->to && (h->tag == NO_TYPE || inst->tags[h->tag] == tag))
            return h;
    }
    return NULL;
}

/* Fuel for finding the handler of an exception: frames that are left, and clauses in each. */
static uint64_t unwind_cost(const struct wasm_store *s, const struct frame *top, const uint64_t *pc,
                            const struct wasm_instance *inst, uint32_t tag) {
    for (uint64_t cost = 0;; cost++) {
        uint32_t passed;
        const struct handler *h = find_handler(top->fn, pc, inst, tag, &passed);
        cost += passed / 8;
        if (h || top - 1 == s->frames)
            return cost;
        pc = top->ret - 1;
        inst = top->inst;
        top--;
    }
}

/* Fuel of a host call: its own cost, and 1 per 8 bytes of its size parameter. */
static uint64_t host_cost(const struct fn *fn, const uint64_t *args) {
    if (!fn->host->sized)
        return fn->host->cost;
    for (uint32_t i = 0; i + 1 < fn->host->sized; i++)
        args += slots_of(fn->type->vals[i]);
    uint64_t bytes = (uint32_t)*args;
    return fn->host->cost + bytes / 8 + (bytes % 8 != 0);
}

typedef uint16_t __attribute__((may_alias)) operand;

static union v128 get128(const uint64_t *slot) {
    union v128 v;
    memcpy(&v, slot, sizeof v);
    return v;
}

static void put128(uint64_t *slot, union v128 v) {
    memcpy(slot, &v, sizeof v);
}

static const struct simd_op *simd_row(uint64_t word) {
    return &simd_ops[(uint16_t)word];
}

/* Tables of operations, and the dispatch loop that uses them. */
/* clang-format off */

/* X(name, result): the operations that have all forms. a and b are the operands. */
#define I32_COMMUTING(X)                                                                         \
    X(I32_ADD, a + b) X(I32_MUL, a * b) X(I32_AND, a & b) X(I32_OR, a | b) X(I32_XOR, a ^ b)
#define I32_SHIFTS(X)                                                                            \
    X(I32_SHL, num_i32_shl(a, b)) X(I32_SHR_S, num_i32_shr_s(a, b))                              \
    X(I32_SHR_U, num_i32_shr_u(a, b)) X(I32_ROTL, num_i32_rotl(a, b))                            \
    X(I32_ROTR, num_i32_rotr(a, b))
#define I64_COMMUTING(X)                                                                         \
    X(I64_ADD, a + b) X(I64_MUL, a * b) X(I64_AND, a & b) X(I64_OR, a | b) X(I64_XOR, a ^ b)
#define I64_SHIFTS(X)                                                                            \
    X(I64_SHL, num_i64_shl(a, b)) X(I64_SHR_S, num_i64_shr_s(a, b))                              \
    X(I64_SHR_U, num_i64_shr_u(a, b)) X(I64_ROTL, num_i64_rotl(a, b))                            \
    X(I64_ROTR, num_i64_rotr(a, b))
#define I32_ORDERED(X) X(I32_SUB, a - b) I32_SHIFTS(X)
#define I64_ORDERED(X) X(I64_SUB, a - b) I64_SHIFTS(X)
#define I32_BINARY(X) I32_COMMUTING(X) I32_ORDERED(X)
#define I64_BINARY(X) I64_COMMUTING(X) I64_ORDERED(X)
#define I32_K(X) I32_COMMUTING(X) I32_SHIFTS(X)
#define I64_K(X) I64_COMMUTING(X) I64_SHIFTS(X)
#define I32_CMP(X)                                                                               \
    X(I32_EQ, a == b) X(I32_NE, a != b) X(I32_LT_S, (int32_t)a < (int32_t)b) X(I32_LT_U, a < b)  \
    X(I32_GT_S, (int32_t)a > (int32_t)b) X(I32_GT_U, a > b)                                      \
    X(I32_LE_S, (int32_t)a <= (int32_t)b) X(I32_LE_U, a <= b)                                    \
    X(I32_GE_S, (int32_t)a >= (int32_t)b) X(I32_GE_U, a >= b)
#define I64_CMP(X)                                                                               \
    X(I64_EQ, a == b) X(I64_NE, a != b) X(I64_LT_S, (int64_t)a < (int64_t)b) X(I64_LT_U, a < b)  \
    X(I64_GT_S, (int64_t)a > (int64_t)b) X(I64_GT_U, a > b)                                      \
    X(I64_LE_S, (int64_t)a <= (int64_t)b) X(I64_LE_U, a <= b)                                    \
    X(I64_GE_S, (int64_t)a >= (int64_t)b) X(I64_GE_U, a >= b)
#define F32_CMP(X)                                                              \
    X(F32_EQ, a == b) X(F32_NE, a != b) X(F32_LT, a < b) X(F32_GT, a > b) \
    X(F32_LE, a <= b) X(F32_GE, a >= b)
#define F64_CMP(X)                                                              \
    X(F64_EQ, a == b) X(F64_NE, a != b) X(F64_LT, a < b) X(F64_GT, a > b) \
    X(F64_LE, a <= b) X(F64_GE, a >= b)
#define I32_DIVIDE(X) \
    X(I32_DIV_S, num_i32_div_s) X(I32_DIV_U, num_i32_div_u) X(I32_REM_S, num_i32_rem_s) X(I32_REM_U, num_i32_rem_u)
#define I64_DIVIDE(X) \
    X(I64_DIV_S, num_i64_div_s) X(I64_DIV_U, num_i64_div_u) X(I64_REM_S, num_i64_rem_s) X(I64_REM_U, num_i64_rem_u)
#define F32_BINARY(X)                                                                              \
    X(F32_ADD, num_f32_add) X(F32_SUB, num_f32_sub) X(F32_MUL, num_f32_mul) X(F32_DIV, num_f32_div) \
    X(F32_MIN, num_f32_min) X(F32_MAX, num_f32_max)
#define F64_COMMUTING(X) X(F64_ADD, num_f64_add) X(F64_MUL, num_f64_mul)
#define F64_ORDERED(X) X(F64_SUB, num_f64_sub) X(F64_DIV, num_f64_div)
#define F64_BINARY(X) \
    F64_COMMUTING(X) F64_ORDERED(X) X(F64_MIN, num_f64_min) X(F64_MAX, num_f64_max)
#define F32_UNARY(X)                                                                        \
    X(F32_CEIL, num_f32_ceil) X(F32_FLOOR, num_f32_floor) X(F32_TRUNC, num_f32_trunc)       \
    X(F32_NEAREST, num_f32_nearest) X(F32_SQRT, num_f32_sqrt)
#define F64_UNARY(X)                                                                        \
    X(F64_CEIL, num_f64_ceil) X(F64_FLOOR, num_f64_floor) X(F64_TRUNC, num_f64_trunc)       \
    X(F64_NEAREST, num_f64_nearest) X(F64_SQRT, num_f64_sqrt)
/* x is the operand as a slot; the value of the expression is the result as a slot. */
#define F32_OF(x) num_f32_of_bits((uint32_t)(x))
#define F64_OF(x) num_f64_of_bits(x)
#define UNARY(X)                                                                              \
    X(I32_CLZ, num_i32_clz((uint32_t)x)) X(I32_CTZ, num_i32_ctz((uint32_t)x))                 \
    X(I32_POPCNT, num_i32_popcnt((uint32_t)x)) X(I64_CLZ, num_i64_clz(x))                     \
    X(I64_CTZ, num_i64_ctz(x)) X(I64_POPCNT, num_i64_popcnt(x))                               \
    X(F32_ABS, num_f32_abs_bits((uint32_t)x)) X(F32_NEG, num_f32_neg_bits((uint32_t)x))       \
    X(F64_ABS, num_f64_abs_bits(x)) X(F64_NEG, num_f64_neg_bits(x))                           \
    X(I32_WRAP_I64, (uint32_t)x) X(I64_EXTEND_I32_S, (uint64_t)(int32_t)x)                    \
    X(I64_EXTEND_I32_U, (uint32_t)x)                                                          \
    X(F32_CONVERT_I32_S, num_f32_bits((float)(int32_t)x))                                     \
    X(F32_CONVERT_I32_U, num_f32_bits((float)(uint32_t)x))                                    \
    X(F32_CONVERT_I64_S, num_f32_bits((float)(int64_t)x))                                     \
    X(F32_CONVERT_I64_U, num_f32_bits((float)x))                                              \
    X(F64_CONVERT_I32_S, num_f64_bits((double)(int32_t)x))                                    \
    X(F64_CONVERT_I32_U, num_f64_bits((double)(uint32_t)x))                                   \
    X(F64_CONVERT_I64_S, num_f64_bits((double)(int64_t)x))                                    \
    X(F64_CONVERT_I64_U, num_f64_bits((double)x))                                             \
    X(F32_DEMOTE_F64, num_f32_bits(num_f32_demote(F64_OF(x))))                                \
    X(F64_PROMOTE_F32, num_f64_bits(num_f64_promote(F32_OF(x))))                              \
    X(I32_REINTERPRET_F32, (uint32_t)x) X(I64_REINTERPRET_F64, x)                             \
    X(F32_REINTERPRET_I32, (uint32_t)x) X(F64_REINTERPRET_I64, x)                             \
    X(I32_EXTEND8_S, num_i32_extend8_s((uint32_t)x))                                          \
    X(I32_EXTEND16_S, num_i32_extend16_s((uint32_t)x)) X(I64_EXTEND8_S, num_i64_extend8_s(x)) \
    X(I64_EXTEND16_S, num_i64_extend16_s(x)) X(I64_EXTEND32_S, num_i64_extend32_s(x))         \
    X(I32_TRUNC_SAT_F32_S, num_sat_i32_trunc_f32_s(F32_OF(x)))                                \
    X(I32_TRUNC_SAT_F32_U, num_sat_i32_trunc_f32_u(F32_OF(x)))                                \
    X(I32_TRUNC_SAT_F64_S, num_sat_i32_trunc_f64_s(F64_OF(x)))                                \
    X(I32_TRUNC_SAT_F64_U, num_sat_i32_trunc_f64_u(F64_OF(x)))                                \
    X(I64_TRUNC_SAT_F32_S, num_sat_i64_trunc_f32_s(F32_OF(x)))                                \
    X(I64_TRUNC_SAT_F32_U, num_sat_i64_trunc_f32_u(F32_OF(x)))                                \
    X(I64_TRUNC_SAT_F64_S, num_sat_i64_trunc_f64_s(F64_OF(x)))                                \
    X(I64_TRUNC_SAT_F64_U, num_sat_i64_trunc_f64_u(F64_OF(x)))                                \
    X(REF_IS_NULL, x == 0)
#define TRUNCATE(X)                                                                   \
    X(I32_TRUNC_F32_S, num_i32_trunc_f32_s, F32_OF, uint32_t)                         \
    X(I32_TRUNC_F32_U, num_i32_trunc_f32_u, F32_OF, uint32_t)                         \
    X(I32_TRUNC_F64_S, num_i32_trunc_f64_s, F64_OF, uint32_t)                         \
    X(I32_TRUNC_F64_U, num_i32_trunc_f64_u, F64_OF, uint32_t)                         \
    X(I64_TRUNC_F32_S, num_i64_trunc_f32_s, F32_OF, uint64_t)                         \
    X(I64_TRUNC_F32_U, num_i64_trunc_f32_u, F32_OF, uint64_t)                         \
    X(I64_TRUNC_F64_S, num_i64_trunc_f64_s, F64_OF, uint64_t)                         \
    X(I64_TRUNC_F64_U, num_i64_trunc_f64_u, F64_OF, uint64_t)
/* X(name, type in memory, type through which the value is widened, register of the result) */
#define LOADS_WITH_REG(X)                                                                 \
    X(I32_LOAD, uint32_t, uint32_t, OUT) X(I64_LOAD, uint64_t, uint64_t, OUT)             \
    X(I32_LOAD8_S, int8_t, uint32_t, OUT) X(I32_LOAD8_U, uint8_t, uint32_t, OUT)          \
    X(I32_LOAD16_S, int16_t, uint32_t, OUT) X(I32_LOAD16_U, uint16_t, uint32_t, OUT)      \
    X(F64_LOAD, double, double, OUT_F64)
#define LOADS(X)                                                                          \
    LOADS_WITH_REG(X) X(F32_LOAD, uint32_t, uint32_t, OUT)                                \
    X(I64_LOAD8_S, int8_t, uint64_t, OUT) X(I64_LOAD8_U, uint8_t, uint64_t, OUT)          \
    X(I64_LOAD16_S, int16_t, uint64_t, OUT) X(I64_LOAD16_U, uint16_t, uint64_t, OUT)      \
    X(I64_LOAD32_S, int32_t, uint64_t, OUT) X(I64_LOAD32_U, uint32_t, uint64_t, OUT)
#define STORES_WITH_REG(X)                                                           \
    X(I32_STORE, uint32_t, ival) X(I64_STORE, uint64_t, ival)                        \
    X(I32_STORE8, uint8_t, ival) X(I32_STORE16, uint16_t, ival)                      \
    X(F64_STORE, uint64_t, num_f64_bits(fval))
#define STORES(X)                                                                    \
    STORES_WITH_REG(X) X(F32_STORE, uint32_t, 0) X(I64_STORE8, uint8_t, 0)           \
    X(I64_STORE16, uint16_t, 0) X(I64_STORE32, uint32_t, 0)

#define RA (((const operand *)pc)[1])
#define RB (((const operand *)pc)[2])
#define RC (((const operand *)pc)[3])
#define RC_SIGNED ((int16_t)RC)
#define RB_SIGNED ((int16_t)RB)
/*
 * Each instruction has its own dispatch jump, which is fast. A sanitized build has one jump for
 * all, because many are slow to instrument.
 */
#if defined(__SANITIZE_ADDRESS__)
#define ONE_DISPATCH 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(coverage_sanitizer)
#define ONE_DISPATCH 1
#endif
#endif
#ifdef ONE_DISPATCH
#define DISPATCH goto dispatch
#ifdef __clang__ /* clang compiles these checks for minutes; gcc's build has them */
#define INTERP_CHECKS __attribute__((no_sanitize("undefined")))
#endif
#else
#define DISPATCH goto *table[*(const operand *)pc]
#endif
#ifndef INTERP_CHECKS
#define INTERP_CHECKS
#endif
#ifdef __clang__ /* follows each jump to each instruction, for half a minute; gcc's build warns */
#pragma clang diagnostic ignored "-Wuninitialized"
#pragma clang diagnostic ignored "-Wsometimes-uninitialized"
#endif
#define NEXT(n)      \
    do {             \
        pc += (n);   \
        DISPATCH;    \
    } while (0)
#define TRAP(text)       \
    do {                 \
        trap = (text);   \
        goto do_trap;    \
    } while (0)
#define USE_INSTANCE(i)          \
    do {                         \
        inst = (i);              \
        mem = inst->mem0->base;  \
        mem_size = inst->mem0->ready; \
    } while (0)

/* Pays `cost` for the fuel block at pc. A benchmark build counts no fuel, to measure it. */
#ifdef WASM_WITHOUT_FUEL
#define PAY(cost)      \
    do {               \
        (void)(cost);  \
        DISPATCH;      \
    } while (0)
#else
#define PAY(cost)                            \
    do {                                     \
        int64_t cost_ = (int64_t)(cost);     \
        if (UNLIKELY((fuel -= cost_) < 0)) { \
            fuel += cost_;                   \
            goto cannot_pay;                 \
        }                                    \
        DISPATCH;                            \
    } while (0)
#endif

/* Jumps if `cond` is true, by the branch word at pc[1], and pays for the block that follows. */
#define BRANCH_IF(cond)                           \
    do {                                          \
        uint64_t word_ = pc[1];                   \
        if (cond) {                               \
            pc += 1 + (int64_t)(int32_t)word_;    \
            PAY((uint16_t)(word_ >> 32));         \
        }                                         \
        pc += 2;                                  \
        PAY(word_ >> 48);                         \
    } while (0)

/* Not inlined, because interp_run() changes the mode of the floating-point unit around it. */
static enum exit_code interp_loop(struct wasm_store *s, int64_t *fuel_io, const char **ret_trap)
    __attribute__((noinline));

INTERP_CHECKS static enum exit_code interp_loop(struct wasm_store *s, int64_t *fuel_io, const char **ret_trap) {
    static const void *const labels[CHAINS_END] = {
#define X(name, ...) [OP_##name] = &&do_##name,
        I32_BINARY(X) I64_BINARY(X) I32_CMP(X) I64_CMP(X) F32_CMP(X) F64_CMP(X) I32_DIVIDE(X)
        I64_DIVIDE(X) F32_BINARY(X) F64_BINARY(X) F32_UNARY(X) F64_UNARY(X) UNARY(X) TRUNCATE(X)
        LOADS(X) STORES(X)
#undef X
        [OP_F32_COPYSIGN] = &&do_F32_COPYSIGN, [OP_F64_COPYSIGN] = &&do_F64_COPYSIGN,
        [OP_UNREACHABLE] = &&do_UNREACHABLE,   [OP_MEMORY_SIZE] = &&do_MEMORY_SIZE,
        [OP_REF_FUNC] = &&do_REF_FUNC,         [OP_TABLE_GET] = &&do_TABLE_GET,
        [OP_TABLE_SET] = &&do_TABLE_SET,       [OP_TABLE_SIZE] = &&do_TABLE_SIZE,
        [OP_DATA_DROP] = &&do_DATA_DROP,       [OP_ELEM_DROP] = &&do_ELEM_DROP,
#define X(name, ...) [I_##name##_K] = &&do_##name##_K,
        I32_K(X) I64_K(X) I32_CMP(X) I64_CMP(X)
#undef X
#define X(name, ...) [I_BR_##name] = &&br_##name,
        I32_CMP(X) I64_CMP(X) F32_CMP(X) F64_CMP(X)
#undef X
#define X(name, ...) [I_BR_##name##_K] = &&br_##name##_K,
        I32_CMP(X) I64_CMP(X)
#undef X
#define X(name, ...) [I_BRN_##name] = &&brn_##name,
        F32_CMP(X) F64_CMP(X)
#undef X
#define X(name, ...) [I_##name##_FAR] = &&do_##name##_FAR, [I_##name##_AT] = &&do_##name##_AT,
        LOADS(X) STORES(X)
#undef X
#define X(name, ...) [I_##name##_SUM] = &&do_##name##_SUM,
        LOADS(X)
#undef X
#define X(name) [I_##name] = &&do_##name,
        ENGINE_OPS(X)
#undef X
#define X(name) [I_##name##_TO] = &&do_##name##_TO, [I_##name##_RB] = &&do_##name##_RB, \
        [I_##name##_RB_TO] = &&do_##name##_RB_TO,
        COMMUTING_OPS(X) ORDERED_OPS(X) REG_F64_COMMUTING(X) REG_F64_ORDERED(X) REG_LOADS(X)
#undef X
#define X(name) [I_##name##_RC] = &&do_##name##_RC, [I_##name##_RC_TO] = &&do_##name##_RC_TO,
        ORDERED_OPS(X) REG_F64_ORDERED(X)
#undef X
#define X(name) [I_##name##_K_TO] = &&do_##name##_K_TO, [I_##name##_K_RB] = &&do_##name##_K_RB, \
        [I_##name##_K_RB_TO] = &&do_##name##_K_RB_TO,
        ALU_OPS(X)
#undef X
#define X(name) [I_BR_##name##_RA] = &&br_##name##_RA, [I_BR_##name##_K_RA] = &&br_##name##_K_RA,
        INT_CMPS(X)
#undef X
#define X(name) [I_##name##_SUM_TO] = &&do_##name##_SUM_TO, [I_##name##_SUM_RB] = &&do_##name##_SUM_RB, \
        [I_##name##_SUM_RB_TO] = &&do_##name##_SUM_RB_TO,
        REG_LOADS(X)
#undef X
#define X(name) [I_##name##_RA] = &&do_##name##_RA, [I_##name##_RB] = &&do_##name##_RB, \
        [I_##name##_AT_RB] = &&do_##name##_AT_RB, [I_##name##_PLUS] = &&do_##name##_PLUS, \
        [I_##name##_PLUS_RB] = &&do_##name##_PLUS_RB,
        REG_STORES(X)
#undef X
#define X(name) [I_##name##_PLUS] = &&do_##name##_PLUS, [I_##name##_PLUS_TO] = &&do_##name##_PLUS_TO, \
        [I_##name##_PLUS_RB] = &&do_##name##_PLUS_RB, [I_##name##_PLUS_RB_TO] = &&do_##name##_PLUS_RB_TO,
        REG_LOADS(X)
#undef X
#define X(first, number, label) &&chain_##first##_##label,
#define ROW(number, first, words) CHAINS_OF_##first(X)
        [I_CHAINS] = CHAIN_FIRSTS(ROW)
#undef ROW
#undef X
    };
    /* Hidden from the compiler, so that it stays in a register: each dispatch would compute it. */
    const void *const *table = labels;
    __asm__("" : "+r"(table));
    const uint64_t *pc = s->pc;
    uint64_t *fp = s->fp;
    struct wasm_instance *inst = s->inst;
    struct frame *top = s->top;
    uint8_t *mem = NULL;
    uint64_t mem_size = 0;
    int64_t fuel = *fuel_io;
    /* The value registers: the last integer and the last double that an instruction made. */
    uint64_t ival = 0;
    double fval = 0;
    const char *trap = NULL;
    uint64_t needed = 0;
    struct reach reach;
    /* The next four describe the call that is being made. */
    struct fn *fn;
    struct wasm_instance *callee;
    uint64_t *args;
    const uint64_t *ret;

    if (inst)
        USE_INSTANCE(inst);
    if (s->start_fn) {
        fn = s->start_fn;
        callee = inst;
        s->start_fn = NULL;
        args = s->stack;
        ret = &interp_exit_word[1];
        pc = NULL;
        goto call_any;
    }
    if (s->answered) {
        s->answered = false;
        args = s->host_slots;
        goto host_return;
    }
#ifdef ONE_DISPATCH
dispatch:
    goto *table[*(const operand *)pc];
#else
    DISPATCH;
#endif

    /* ---- Numbers ---- */
#define OUT(v)         \
    do {               \
        ival = (v);    \
        fp[RA] = ival; \
    } while (0)
#define OUT_TO(v) ival = (v)
#define OUT_F64(v)                   \
    do {                             \
        fval = (v);                  \
        fp[RA] = num_f64_bits(fval); \
    } while (0)
#define OUT_F64_TO(v) fval = (v)
#define BINARY(type, first, second, expr, out) \
    {                                          \
        type a = (type)(first);                \
        type b = (type)(second);               \
        out((type)(expr));                     \
        NEXT(1);                               \
    }
#define REG_FORMS(name, type, second, expr)                      \
    do_##name : BINARY(type, fp[RB], second, expr, OUT)          \
    do_##name##_TO : BINARY(type, fp[RB], second, expr, OUT_TO)  \
    do_##name##_RB : BINARY(type, ival, second, expr, OUT)       \
    do_##name##_RB_TO : BINARY(type, ival, second, expr, OUT_TO)
#define X(name, expr) REG_FORMS(name, uint32_t, fp[RC], expr)
    I32_BINARY(X)
#undef X
#define X(name, expr) REG_FORMS(name##_K, uint32_t, RC_SIGNED, expr)
    I32_K(X)
#undef X
#define X(name, expr) REG_FORMS(name, uint64_t, fp[RC], expr)
    I64_BINARY(X)
#undef X
#define X(name, expr) REG_FORMS(name##_K, uint64_t, RC_SIGNED, expr)
    I64_K(X)
#undef X
#define X(name, expr)                                            \
    do_##name##_RC : BINARY(uint32_t, fp[RB], ival, expr, OUT)   \
    do_##name##_RC_TO : BINARY(uint32_t, fp[RB], ival, expr, OUT_TO)
    I32_ORDERED(X)
#undef X
#define X(name, expr)                                            \
    do_##name##_RC : BINARY(uint64_t, fp[RB], ival, expr, OUT)   \
    do_##name##_RC_TO : BINARY(uint64_t, fp[RB], ival, expr, OUT_TO)
    I64_ORDERED(X)
#undef X
#define X(name, expr)                                                \
    do_##name : BINARY(uint32_t, fp[RB], fp[RC], expr, OUT)          \
    do_##name##_K : BINARY(uint32_t, fp[RB], RC_SIGNED, expr, OUT)
    I32_CMP(X)
#undef X
#define X(name, expr)                                                \
    do_##name : BINARY(uint64_t, fp[RB], fp[RC], expr, OUT)          \
    do_##name##_K : BINARY(uint64_t, fp[RB], RC_SIGNED, expr, OUT)
    I64_CMP(X)
#undef X
#define COMPARE(type, first, second, expr) \
    {                                      \
        type a = (type)(first);            \
        type b = (type)(second);           \
        BRANCH_IF(expr);                   \
    }
#define BRANCHES(name, type, expr)                              \
    br_##name : COMPARE(type, fp[RA], fp[RB], expr)             \
    br_##name##_K : COMPARE(type, fp[RA], RB_SIGNED, expr)      \
    br_##name##_RA : COMPARE(type, ival, fp[RB], expr)          \
    br_##name##_K_RA : COMPARE(type, ival, RB_SIGNED, expr)
#define X(name, expr) BRANCHES(name, uint32_t, expr)
    I32_CMP(X)
#undef X
#define X(name, expr) BRANCHES(name, uint64_t, expr)
    I64_CMP(X)
#undef X
#define X(name, expr)                        \
    do_##name : {                            \
        float a = F32_OF(fp[RB]);            \
        float b = F32_OF(fp[RC]);            \
        fp[RA] = (expr);                     \
        NEXT(1);                             \
    }                                        \
    br_##name : {                            \
        float a = F32_OF(fp[RA]);            \
        float b = F32_OF(fp[RB]);            \
        BRANCH_IF(expr);                     \
    }                                        \
    brn_##name : {                           \
        float a = F32_OF(fp[RA]);            \
        float b = F32_OF(fp[RB]);            \
        BRANCH_IF(!(expr));                  \
    }
    F32_CMP(X)
#undef X
#define X(name, expr)                        \
    do_##name : {                            \
        double a = F64_OF(fp[RB]);           \
        double b = F64_OF(fp[RC]);           \
        fp[RA] = (expr);                     \
        NEXT(1);                             \
    }                                        \
    br_##name : {                            \
        double a = F64_OF(fp[RA]);           \
        double b = F64_OF(fp[RB]);           \
        BRANCH_IF(expr);                     \
    }                                        \
    brn_##name : {                           \
        double a = F64_OF(fp[RA]);           \
        double b = F64_OF(fp[RB]);           \
        BRANCH_IF(!(expr));                  \
    }
    F64_CMP(X)
#undef X
#define X(name, func)                                              \
    do_##name : {                                                  \
        uint32_t v = 0;                                            \
        trap = func((uint32_t)fp[RB], (uint32_t)fp[RC], &v);       \
        if (UNLIKELY(trap))                                        \
            goto do_trap;                                          \
        OUT(v);                                                    \
        NEXT(1);                                                   \
    }
    I32_DIVIDE(X)
#undef X
#define X(name, func)                        \
    do_##name : {                            \
        uint64_t v = 0;                      \
        trap = func(fp[RB], fp[RC], &v);     \
        if (UNLIKELY(trap))                  \
            goto do_trap;                    \
        OUT(v);                              \
        NEXT(1);                             \
    }
    I64_DIVIDE(X)
#undef X
#define X(name, func)                                                    \
    do_##name : {                                                        \
        fp[RA] = num_f32_bits(func(F32_OF(fp[RB]), F32_OF(fp[RC])));     \
        NEXT(1);                                                         \
    }
    F32_BINARY(X)
#undef X
#define F64_FORM(func, first, second, out) \
    {                                      \
        out(func(first, second));          \
        NEXT(1);                           \
    }
#define X(name, func) do_##name : F64_FORM(func, F64_OF(fp[RB]), F64_OF(fp[RC]), OUT_F64)
    F64_BINARY(X)
#undef X
#define X(name, func)                                                              \
    do_##name##_TO : F64_FORM(func, F64_OF(fp[RB]), F64_OF(fp[RC]), OUT_F64_TO)    \
    do_##name##_RB : F64_FORM(func, fval, F64_OF(fp[RC]), OUT_F64)                 \
    do_##name##_RB_TO : F64_FORM(func, fval, F64_OF(fp[RC]), OUT_F64_TO)
    F64_COMMUTING(X) F64_ORDERED(X)
#undef X
#define X(name, func)                                                              \
    do_##name##_RC : F64_FORM(func, F64_OF(fp[RB]), fval, OUT_F64)                 \
    do_##name##_RC_TO : F64_FORM(func, F64_OF(fp[RB]), fval, OUT_F64_TO)
    F64_ORDERED(X)
#undef X
#define X(name, func)                                   \
    do_##name : {                                       \
        fp[RA] = num_f32_bits(func(F32_OF(fp[RB])));    \
        NEXT(1);                                        \
    }
    F32_UNARY(X)
#undef X
#define X(name, func)                                   \
    do_##name : {                                       \
        OUT_F64(func(F64_OF(fp[RB])));                  \
        NEXT(1);                                        \
    }
    F64_UNARY(X)
#undef X
#define X(name, expr)            \
    do_##name : {                \
        uint64_t x = fp[RB];     \
        OUT(expr);               \
        NEXT(1);                 \
    }
    UNARY(X)
#undef X
#define X(name, func, of, type)          \
    do_##name : {                        \
        type v = 0;                      \
        trap = func(of(fp[RB]), &v);     \
        if (UNLIKELY(trap))              \
            goto do_trap;                \
        fp[RA] = v;                      \
        NEXT(1);                         \
    }
    TRUNCATE(X)
#undef X
do_F32_COPYSIGN:
    fp[RA] = num_f32_copysign_bits((uint32_t)fp[RB], (uint32_t)fp[RC]);
    NEXT(1);
do_F64_COPYSIGN:
    fp[RA] = num_f64_copysign_bits(fp[RB], fp[RC]);
    NEXT(1);

    /* ---- Memory 0 ---- */
#define BEYOND(end)                                 \
    do {                                            \
        reach = (struct reach){.addr = (end)};      \
        goto beyond;                                \
    } while (0)
#define LOAD_AT(type, wide, out, address, words)               \
    do {                                                       \
        uint64_t at_ = (address);                              \
        type v_;                                               \
        if (UNLIKELY(at_ + sizeof v_ > mem_size))              \
            BEYOND(at_ + sizeof v_);                           \
        memcpy(&v_, mem + at_, sizeof v_);                     \
        out((wide)v_);                                         \
        NEXT(words);                                           \
    } while (0)
#define NEAR(slot) ((uint64_t)(uint32_t)(slot) + RC)
#define SUM(slot) ((uint64_t)((uint32_t)(slot) + (uint32_t)fp[RC]) + pc[1])
#define PLUS(slot) ((uint64_t)((uint32_t)(slot) + (uint32_t)RC_SIGNED) + pc[1])
#define X(name, type, wide, out)                                                           \
    do_##name : LOAD_AT(type, wide, out, NEAR(fp[RB]), 1);                                 \
    do_##name##_FAR : LOAD_AT(type, wide, out, (uint64_t)(uint32_t)fp[RB] + pc[1], 2);     \
    do_##name##_AT : LOAD_AT(type, wide, out, pc[1], 2);                                   \
    do_##name##_SUM : LOAD_AT(type, wide, out, SUM(fp[RB]), 2);
    LOADS(X)
#undef X
#define X(name, type, wide, out)                                            \
    do_##name##_TO : LOAD_AT(type, wide, out##_TO, NEAR(fp[RB]), 1);        \
    do_##name##_RB : LOAD_AT(type, wide, out, NEAR(ival), 1);               \
    do_##name##_RB_TO : LOAD_AT(type, wide, out##_TO, NEAR(ival), 1);       \
    do_##name##_SUM_TO : LOAD_AT(type, wide, out##_TO, SUM(fp[RB]), 2);     \
    do_##name##_SUM_RB : LOAD_AT(type, wide, out, SUM(ival), 2);            \
    do_##name##_SUM_RB_TO : LOAD_AT(type, wide, out##_TO, SUM(ival), 2);    \
    do_##name##_PLUS : LOAD_AT(type, wide, out, PLUS(fp[RB]), 2);           \
    do_##name##_PLUS_TO : LOAD_AT(type, wide, out##_TO, PLUS(fp[RB]), 2);   \
    do_##name##_PLUS_RB : LOAD_AT(type, wide, out, PLUS(ival), 2);          \
    do_##name##_PLUS_RB_TO : LOAD_AT(type, wide, out##_TO, PLUS(ival), 2);
    LOADS_WITH_REG(X)
#undef X
#define STORE_AT(type, value, address, words)                  \
    do {                                                       \
        uint64_t at_ = (address);                              \
        type v_ = (type)(value);                               \
        if (UNLIKELY(at_ + sizeof v_ > mem_size))              \
            BEYOND(at_ + sizeof v_);                           \
        memcpy(mem + at_, &v_, sizeof v_);                     \
        NEXT(words);                                           \
    } while (0)
#define X(name, type, reg)                                                                 \
    do_##name : STORE_AT(type, fp[RB], NEAR(fp[RA]), 1);                                   \
    do_##name##_FAR : STORE_AT(type, fp[RB], (uint64_t)(uint32_t)fp[RA] + pc[1], 2);       \
    do_##name##_AT : STORE_AT(type, fp[RB], pc[1], 2);
    STORES(X)
#undef X
#define X(name, type, reg)                                                \
    do_##name##_RA : STORE_AT(type, fp[RB], NEAR(ival), 1);               \
    do_##name##_RB : STORE_AT(type, reg, NEAR(fp[RA]), 1);                \
    do_##name##_AT_RB : STORE_AT(type, reg, pc[1], 2);                    \
    do_##name##_PLUS : STORE_AT(type, fp[RB], PLUS(fp[RA]), 2);           \
    do_##name##_PLUS_RB : STORE_AT(type, reg, PLUS(fp[RA]), 2);
    STORES_WITH_REG(X)
#undef X
    /* Allocates the bytes that an access needs, then runs its word again. */
beyond:
    trap = reach_more(inst, reach);
    if (trap)
        goto do_trap;
    USE_INSTANCE(inst);
    DISPATCH;

    /* ---- Chains ---- */
#define X(first, number, label)   \
    chain_##first##_##label : {    \
        BODY_##first;             \
        pc += CHAIN_WORDS_##first; \
        goto label;               \
    }
#define ROW(number, first, words) CHAINS_OF_##first(X)
    CHAIN_FIRSTS(ROW)
#undef ROW
#undef X

    /* ---- Any memory ---- */
#define REACH(address, bytes)                                                            \
    reach = (struct reach){(uint32_t)(pc[1] >> 32), (bytes), (address), pc[2]};          \
    uint8_t *p = reach_now(inst, reach);                                                 \
    if (UNLIKELY(!p))                                                                    \
        goto beyond
do_MEM_LOAD: {
    uint32_t row = (uint32_t)pc[1];
    REACH(fp[RB], 1u << wasm_ops[row].align);
    fp[RA] = load_any(row, p);
    NEXT(3);
}

/* clang-format on */
do_MEM_STORE : {
    uint32_t width = 1u << wasm_ops[(uint32_t)pc[1]].align;
    REACH(fp[RA], width);
    memcpy(p, &fp[RB], width);
    NEXT(3);
}
do_MEMORY_SIZE:
    fp[RA] = inst->mems[pc[1]]->size / PAGE_SIZE;
    NEXT(2);

    /* ---- Moving values ---- */
do_MOV:
    OUT(fp[RB]);
    NEXT(1);
do_MOV2:
    put128(&fp[RA], get128(&fp[RB]));
    NEXT(1);
do_MOVN:
    memmove(&fp[RA], &fp[RB], RC * sizeof *fp);
    NEXT(1);
do_CONST32:
    OUT((uint32_t)(*pc >> 32));
    NEXT(1);
do_CONST32_TO:
    OUT_TO((uint32_t)(*pc >> 32));
    NEXT(1);
do_CONST_F64:
    OUT_F64(F64_OF(pc[1]));
    NEXT(2);
do_CONST_F64_TO:
    OUT_F64_TO(F64_OF(pc[1]));
    NEXT(2);
do_CONST64:
    OUT(pc[1]);
    NEXT(2);
do_CONST128:
    fp[RA] = pc[1];
    fp[RA + 1] = pc[2];
    NEXT(3);
do_SELECT1 : {
    uint64_t a = fp[RB], b = fp[RC];
    OUT((uint32_t)fp[pc[1]] ? a : b);
    NEXT(2);
}
do_SELECT2 : {
    union v128 v = get128((uint32_t)fp[pc[1]] ? &fp[RB] : &fp[RC]);
    put128(&fp[RA], v);
    NEXT(2);
}
do_GLOBAL_GET1:
    OUT(inst->globals[*pc >> 32]->value[0]);
    NEXT(1);
do_GLOBAL_GET2:
    put128(&fp[RA], get128(inst->globals[*pc >> 32]->value));
    NEXT(1);
do_GLOBAL_SET1:
    inst->globals[*pc >> 32]->value[0] = fp[RA];
    NEXT(1);
do_GLOBAL_SET2:
    put128(inst->globals[*pc >> 32]->value, get128(&fp[RA]));
    NEXT(1);

    /* ---- References and tables ---- */
do_REF_FUNC:
    fp[RA] = instance_func_ref(inst, (uint32_t)pc[1]);
    NEXT(2);
do_NULL_CHECK:
    if (fp[RA] == 0)
        TRAP(trap_null);
    NEXT(1);
do_TABLE_GET : {
    const struct table *t = inst->tables[pc[1]];
    uint64_t i = fp[RB];
    if (i >= t->size)
        TRAP(trap_table);
    fp[RA] = t->elems[i];
    NEXT(2);
}
do_TABLE_SET : {
    struct table *t = inst->tables[pc[1]];
    uint64_t i = fp[RA];
    if (i >= t->size)
        TRAP(trap_table);
    t->elems[i] = fp[RB];
    NEXT(2);
}
do_TABLE_SIZE:
    fp[RA] = inst->tables[pc[1]]->size;
    NEXT(2);
do_DATA_DROP:
    inst->dropped_datas[pc[1]] = 1;
    NEXT(2);
do_ELEM_DROP:
    inst->dropped_elems[pc[1]] = 1;
    NEXT(2);

    /* ---- Branches ---- */
do_BR_ALWAYS : {
    uint64_t w = pc[1];
    pc += 1 + (int64_t)(int32_t)w;
    PAY((uint16_t)(w >> 32));
}
do_BR_TRUE:
    BRANCH_IF((uint32_t)fp[RA] != 0);
do_BR_FALSE:
    BRANCH_IF((uint32_t)fp[RA] == 0);
do_BR_TRUE_RA:
    BRANCH_IF((uint32_t)ival != 0);
do_BR_FALSE_RA:
    BRANCH_IF((uint32_t)ival == 0);
do_BR_VALUES:
    if ((uint32_t)fp[RA] != 0)
        goto take_values;
    goto keep_values;
do_BR_NULL:
    if (fp[RA] == 0)
        goto take_values;
    goto keep_values;
do_BR_NOT_NULL:
    if (fp[RA] != 0)
        goto take_values;
    goto keep_values;
do_BR_CAST:
    if (object_is(s, fp[RA], (uint32_t)pc[3]) != (pc[3] >> 32 != 0))
        goto take_values;
    needed = pc[1] >> 48;
    if (UNLIKELY((uint64_t)fuel < needed))
        goto cannot_pay_self;
    fuel -= (int64_t)needed;
    NEXT(4);
keep_values:
    needed = pc[1] >> 48;
    if (UNLIKELY((uint64_t)fuel < needed))
        goto cannot_pay_self;
    fuel -= (int64_t)needed;
    NEXT(3);
take_values:
    needed = (uint16_t)(pc[1] >> 32);
    if (UNLIKELY((uint64_t)fuel < needed))
        goto cannot_pay_self;
    fuel -= (int64_t)needed;
    memmove(&fp[RB], &fp[RC], pc[2] * sizeof *fp);
    pc += 1 + (int64_t)(int32_t)pc[1];
    DISPATCH;
do_SWITCH:
    ival = fp[RA];
do_SWITCH_RA : {
    uint64_t i = (uint32_t)ival, n = pc[1];
    const uint64_t *at = pc + 2 + (i < n ? i : n);
    needed = *at >> 32;
    if (UNLIKELY((uint64_t)fuel < needed))
        goto switch_cannot_pay;
    fuel -= (int64_t)needed;
    pc = at + (int32_t)*at;
    DISPATCH;
switch_cannot_pay:
    /* A switch that carries values pays for itself; any other pays for the block it jumps to. */
    if (code_mark_at(top->fn, fn_code_at(top->fn, pc), pc, MARK_SELF | MARK_STEP))
        goto cannot_pay_self;
    pc = at + (int32_t)*at;
    goto cannot_pay;
}

    /* ---- Calls ---- */
do_CALL_FN:
    fn = (struct fn *)(uintptr_t)pc[1];
    args = fp + RA;
    ret = pc + 3;
    if (UNLIKELY(!fn->entry)) {
        callee = inst;
        goto call_any;
    }
    if (UNLIKELY(args + fn->frame_slots > s->stack_end || top + 1 == s->frames_end))
        TRAP(trap_stack);
    *++top = (struct frame){ret, fp, inst, fn};
enter:
    fp = args;
    for (uint64_t *z = fp + fn->param_slots, *end = z + fn->zero_slots; z < end; z++) {
        *z = 0;
        __asm__(""
                : "+r"(z)); /* keeps this a loop: most functions have too few locals for memset */
    }
    pc = fn->entry;
    if (UNLIKELY((fuel -= fn->entry_cost) < 0)) {
        /* to_stepping() could mistake the entry for a loop that starts at the same word. */
        fuel += fn->entry_cost;
        struct code *step = fn_step_code(fn);
        if (!step)
            TRAP(trap_no_memory);
        pc = step->words;
    }
    DISPATCH;

do_CALL_TABLE : {
    const struct table *t = inst->tables[pc[1] >> 32];
    uint64_t i = fp[RB];
    if (UNLIKELY(i >= t->size))
        TRAP(trap_undefined);
    uint64_t ref = t->elems[i];
    args = fp + RA;
    ret = pc + 3;
    /* Most calls stay in the instance and have exactly the type that was written. */
    uint64_t own = ref - instance_first_ref(inst);
    if (LIKELY(own < inst->n_fns)) {
        fn = &inst->fns[own];
        if (LIKELY(fn->canon == (uint32_t)pc[1] && fn->entry)) {
            if (UNLIKELY(args + fn->frame_slots > s->stack_end || top + 1 == s->frames_end))
                TRAP(trap_stack);
            *++top = (struct frame){ret, fp, inst, fn};
            goto enter;
        }
    }
    if (UNLIKELY(ref == 0))
        TRAP(trap_uninitialized);
    if (UNLIKELY(!(fn = store_fn(s, ref, &callee))))
        TRAP(trap_undefined);
    if (UNLIKELY(fn->canon != (uint32_t)pc[1]) &&
        !types_sub_def(s->engine, fn->canon, (uint32_t)pc[1]))
        TRAP(trap_indirect);
    goto call_any;
}
do_CALL_REF_:
    if (UNLIKELY(fp[RB] == 0))
        TRAP(trap_null_func);
    if (UNLIKELY(!(fn = store_fn(s, fp[RB], &callee))))
        TRAP(trap_null_func);
    args = fp + RA;
    ret = pc + 2;
    goto call_any;

    /* Calls function `fn` of instance `callee`. pc is at the call; NULL: the outermost call. */
call_any:
    if (UNLIKELY(!fn->entry)) {
        if (!fn->body && !fn->host)
            fn = store_fn(s, callee->func_refs[fn->index], &callee);
        if (fn->host)
            goto call_host;
        if (!fn->entry && !fn_compile(fn))
            TRAP(trap_no_memory);
    }
    if (UNLIKELY(args + fn->frame_slots > s->stack_end || top + 1 == s->frames_end))
        TRAP(trap_stack);
    *++top = (struct frame){ret, fp, inst, fn};
    if (callee != inst)
        USE_INSTANCE(callee);
    goto enter;

do_TAIL_FN:
    fn = &inst->fns[(uint32_t)pc[1]];
    callee = inst;
    goto tail_any;
do_TAIL_TABLE : {
    const struct table *t = inst->tables[pc[1] >> 32];
    uint64_t i = fp[RC];
    if (UNLIKELY(i >= t->size))
        TRAP(trap_undefined);
    if (UNLIKELY(t->elems[i] == 0))
        TRAP(trap_uninitialized);
    if (UNLIKELY(!(fn = store_fn(s, t->elems[i], &callee))))
        TRAP(trap_undefined);
    if (UNLIKELY(fn->canon != (uint32_t)pc[1]) &&
        !types_sub_def(s->engine, fn->canon, (uint32_t)pc[1]))
        TRAP(trap_indirect);
    goto tail_any;
}
do_TAIL_REF:
    if (UNLIKELY(fp[RC] == 0) || UNLIKELY(!(fn = store_fn(s, fp[RC], &callee))))
        TRAP(trap_null_func);
tail_any:
    args = fp + RA;
    if (UNLIKELY(!fn->entry)) {
        if (!fn->body && !fn->host)
            fn = store_fn(s, callee->func_refs[fn->index], &callee);
        if (fn->host)
            goto call_host;
        if (!fn->entry && !fn_compile(fn))
            TRAP(trap_no_memory);
    }
    if (UNLIKELY(fp + fn->frame_slots > s->stack_end))
        TRAP(trap_stack);
    memmove(fp, args, RB * sizeof *fp);
    top->fn = fn;
    args = fp;
    if (callee != inst)
        USE_INSTANCE(callee);
    goto enter;

call_host : {
    uint64_t cost = host_cost(fn, args);
    if (UNLIKELY((uint64_t)fuel < cost)) {
        uint64_t more = cost - (uint64_t)fuel, own = pc ? type_call_cost(fn->type) : 0;
        if (s->budget < more) {
            /* Refunds the cost of the call instruction and stops before it. */
            needed = cost + own;
            if (!pc) {
                s->start_fn = fn;
                goto out_of_fuel;
            }
            fuel += (int64_t)own;
            if (!(pc = to_step_of(top->fn, pc)))
                TRAP(trap_no_memory);
            goto out_of_fuel;
        }
        s->budget -= more;
        s->grant += more;
        fuel += (int64_t)more;
    }
    fuel -= (int64_t)cost;
    s->host_fn = fn->index;
    s->host_slots = args;
    goto leave_host;
}

    /* The results of the host function are in its argument slots. */
host_return:
    if (!pc) {
        pc = &interp_exit_word[1];
        DISPATCH;
    }
    switch (*(const operand *)pc) {
    case I_CALL_REF_:
        pc += 2;
        PAY(pc[-1] >> 32);
    case I_CALL_FN:
    case I_CALL_TABLE:
        pc += 3;
        PAY(pc[-1] >> 32);
    default: /* a tail call: return the results of the host function */
        memmove(fp, args, top->fn->result_slots * sizeof *fp);
        goto do_RET0;
    }

do_RET1:
    ival = fp[RA];
do_RET1_RA:
    fp[0] = ival;
    goto do_RET0;
do_RETN:
    memmove(fp, &fp[RA], RB * sizeof *fp);
do_RET0 : {
    struct wasm_instance *caller = top->inst;
    pc = top->ret;
    fp = top->fp;
    top--;
    if (UNLIKELY(caller != inst))
        USE_INSTANCE(caller);
    PAY(pc[-1] >> 32);
}

    /* ---- Exceptions ---- */
    uint64_t exn_ref;
    bool exn_is_new;
do_THROW_TAG : {
    uint32_t tag = inst->tags[pc[1]];
    const struct type *t = s->engine->types[s->tags[tag].canon];
    needed = 1 + unwind_cost(s, top, pc, inst, tag) + store_exn_cost(s, &fp[RA], t->param_slots);
    if (UNLIKELY((uint64_t)fuel < needed))
        goto cannot_pay_self;
    fuel -= (int64_t)needed;
    exn_ref = store_exn_new(s, tag, &fp[RA], t->param_slots);
    exn_is_new = true;
    if (!exn_ref)
        TRAP(trap_exceptions);
    goto unwind;
}
do_THROW_VALUE:
    exn_ref = fp[RA];
    exn_is_new = false;
    needed = 1;
    if (store_exn(s, exn_ref))
        needed += unwind_cost(s, top, pc, inst, store_exn(s, exn_ref)->tag);
    if (UNLIKELY((uint64_t)fuel < needed))
        goto cannot_pay_self;
    fuel -= (int64_t)needed;
    if (!store_exn(s, exn_ref))
        TRAP(trap_null_exn);
unwind:
    for (;;) {
        uint32_t passed;
        const struct exn *x = store_exn(s, exn_ref);
        const struct handler *h = find_handler(top->fn, pc, inst, x->tag, &passed);
        if (h) {
            uint64_t *to = fp + h->base;
            if (h->tag != NO_TYPE) {
                memcpy(to, x->slots, x->n_slots * sizeof *to);
                to += x->n_slots;
            }
            pc = fn_code_at(top->fn, pc)->words + h->pad;
            if (h->wants_ref)
                *to = exn_ref;
            else if (exn_is_new)
                store_exn_free(s, exn_ref);
            DISPATCH;
        }
        if (top - 1 == s->frames) {
            s->thrown = exn_ref;
            s->pc = pc;
            *fuel_io = fuel;
            return EXIT_THROW;
        }
        pc = top->ret - 1;
        fp = top->fp;
        struct wasm_instance *caller = top->inst;
        top--;
        if (caller != inst)
            USE_INSTANCE(caller);
    }

    /* ---- Vectors ---- */
#define VFUNC(member)                                 \
    ({                                                \
        const struct simd_op *dummy_ = NULL;          \
        (__typeof__(dummy_->member))(uintptr_t)pc[1]; \
    })
do_V_UNARY:
    put128(&fp[RA], VFUNC(unary)(get128(&fp[RB])));
    NEXT(3);
do_V_BINARY:
    put128(&fp[RA], VFUNC(binary)(get128(&fp[RB]), get128(&fp[RC])));
    NEXT(3);
do_V_TERNARY:
    put128(&fp[RA], VFUNC(ternary)(get128(&fp[RB]), get128(&fp[RC]), get128(&fp[pc[2]])));
    NEXT(3);
do_V_SHIFT:
    put128(&fp[RA], VFUNC(shift)(get128(&fp[RB]), (uint32_t)fp[RC]));
    NEXT(3);
do_V_TEST:
    fp[RA] = VFUNC(test)(get128(&fp[RB]));
    NEXT(3);
do_V_SPLAT:
    put128(&fp[RA], VFUNC(splat)(fp[RB]));
    NEXT(3);
do_V_EXTRACT:
    fp[RA] = VFUNC(extract)(get128(&fp[RB]), (unsigned)pc[2]);
    NEXT(3);
do_V_REPLACE:
    put128(&fp[RA], VFUNC(replace)(get128(&fp[RB]), (unsigned)pc[2], fp[RC]));
    NEXT(3);
do_V_SHUFFLE:
    put128(&fp[RA], simd_shuffle(get128(&fp[RB]), get128(&fp[RC]), (const uint8_t *)(pc + 1)));
    NEXT(3);
#define V_LANE ((unsigned)(uint16_t)(pc[1] >> 16))
do_V_LOAD : {
    const struct simd_op *row = simd_row(pc[1]);
    REACH(fp[RB], row->width);
    put128(&fp[RA], row->load(p));
    NEXT(3);
}
do_V_STORE : {
    const struct simd_op *row = simd_row(pc[1]);
    REACH(fp[RA], row->width);
    row->store(p, get128(&fp[RB]));
    NEXT(3);
}
do_V_LOAD_LANE : {
    const struct simd_op *row = simd_row(pc[1]);
    REACH(fp[RB], row->width);
    put128(&fp[RA], row->load_lane(p, get128(&fp[RC]), V_LANE));
    NEXT(3);
}
do_V_STORE_LANE : {
    const struct simd_op *row = simd_row(pc[1]);
    REACH(fp[RA], row->width);
    row->store_lane(p, get128(&fp[RB]), V_LANE);
    NEXT(3);
}

    /* ---- Bulk: check bounds, pay fuel, then change bytes ---- */
do_BULK : {
    struct bulk b = {.row = (uint32_t)pc[1],
                     .x = (uint32_t)pc[2],
                     .y = (uint32_t)(pc[2] >> 32),
                     .slots = &fp[RA],
                     .live_end = fp + RB};
    trap = bulk_check(inst, &b);
    needed = trap ? 1 : b.cost + (pc[1] >> 32);
    if (UNLIKELY((uint64_t)fuel < needed))
        goto cannot_pay_self;
    fuel -= (int64_t)needed;
    if (trap)
        goto trap_paid;
    if (!bulk_do(s, inst, &b))
        TRAP(trap_no_memory);
    USE_INSTANCE(inst);
    NEXT(3);
}

    /* ---- Fuel ---- */
do_STEP:
    needed = RA;
    if (UNLIKELY((uint64_t)fuel < needed))
        goto cannot_pay_self;
    fuel -= (int64_t)needed;
    NEXT(1);
do_REJOIN : {
    const uint64_t *fast = to_fast(top->fn, pc, &fuel);
    if (!fast)
        NEXT(1);
    pc = fast;
    DISPATCH;
}
do_NOTHING:
    NEXT(1);
do_CHARGE:
    needed = pc[1] >> 32;
    if (UNLIKELY((uint64_t)fuel < needed))
        goto cannot_pay;
    fuel -= (int64_t)needed;
    NEXT(2);

    /* The fuel is not enough for the instruction at pc. Fast code continues in stepping code. */
cannot_pay_self:
    trap = NULL;
    if (fn_code_at(top->fn, pc)->stepping) {
        /* One instruction may exceed the fuel of this run (the slice), but not the budget. */
        uint64_t more = needed - (uint64_t)fuel;
        if (fuel <= 0 || s->budget < more)
            goto out_of_fuel;
        s->budget -= more;
        s->grant += more;
        fuel += (int64_t)more;
        DISPATCH;
    }
    /* The fuel is not enough for the block at pc. */
cannot_pay : {
    if (pc == &interp_exit_word[1])
        DISPATCH;
    const uint64_t *step = to_stepping(top->fn, pc);
    if (!step)
        TRAP(trap_no_memory);
    pc = step;
    DISPATCH;
}

do_UNREACHABLE:
    TRAP(trap_unreachable);
do_EXIT:
    s->top = top;
    *fuel_io = fuel;
    return EXIT_DONE;
out_of_fuel:
    s->needed = needed;
    s->pc = pc, s->fp = fp, s->inst = inst, s->top = top;
    *fuel_io = fuel;
    return EXIT_FUEL;
leave_host:
    s->pc = pc, s->fp = fp, s->inst = inst, s->top = top;
    *fuel_io = fuel;
    return EXIT_HOST;
do_trap:
    if (pc && top > s->frames)
        fuel += refund(top->fn, pc);
trap_paid:
    s->pc = pc, s->fp = fp, s->inst = inst, s->top = top;
    *fuel_io = fuel;
    *ret_trap = trap;
    return EXIT_TRAP;
}

enum exit_code interp_run(struct wasm_store *s, int64_t *fuel_io, const char **ret_trap) {
    uint64_t mode = fpmode_enter();
    enum exit_code code = interp_loop(s, fuel_io, ret_trap);
    fpmode_leave(mode);
    return code;
}
