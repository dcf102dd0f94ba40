/* An interpreter in the interpreter: a stack machine that counts primes by trial division. */
#include "kernel.h"

enum op { PUSH, LOAD, STORE, ADD, MUL, MOD, LESS, IS_ZERO, JUMP, JUMP_IF, HALT };

/* Locals: 0 the candidate, 1 the divisor, 2 the count, 3 the limit. */
static const int32_t program[] = {
    PUSH, 2, STORE, 0,                             /*  0: candidate = 2 */
    LOAD, 0, LOAD,  3, LESS, IS_ZERO, JUMP_IF, 59, /*  4: while (candidate < limit) */
    PUSH, 2, STORE, 1,                             /* 12: divisor = 2 */
    LOAD, 0, LOAD,  1, LOAD, 1,       MUL,     LESS, JUMP_IF, 43, /* 16: past the root: prime */
    LOAD, 0, LOAD,  1, MOD,  IS_ZERO, JUMP_IF, 50,                /* 26: divides: not prime */
    LOAD, 1, PUSH,  1, ADD,  STORE,   1,       JUMP, 16,          /* 34: divisor++ */
    LOAD, 2, PUSH,  1, ADD,  STORE,   2,                          /* 43: count++ */
    LOAD, 0, PUSH,  1, ADD,  STORE,   0,       JUMP, 4,           /* 50: candidate++ */
    HALT,                                                         /* 59 */
};

struct machine {
    int32_t stack[32];
    int32_t locals[4];
};

static NOINLINE int32_t interpret(struct machine *m, const int32_t *code) {
    int32_t *sp = m->stack;
    for (const int32_t *pc = code;;) {
        switch (*pc++) {
        case PUSH:
            *sp++ = *pc++;
            break;
        case LOAD:
            *sp++ = m->locals[*pc++];
            break;
        case STORE:
            m->locals[*pc++] = *--sp;
            break;
        case ADD:
            sp--, sp[-1] += *sp;
            break;
        case MUL:
            sp--, sp[-1] *= *sp;
            break;
        case MOD:
            sp--, sp[-1] %= *sp;
            break;
        case LESS:
            sp--, sp[-1] = sp[-1] < *sp;
            break;
        case IS_ZERO:
            sp[-1] = !sp[-1];
            break;
        case JUMP:
            pc = code + *pc;
            break;
        case JUMP_IF:
            pc = *--sp ? code + *pc : pc + 1;
            break;
        default:
            return m->locals[2];
        }
    }
}

KERNEL uint32_t run(uint32_t n) {
    struct machine m = {.locals = {0, 0, 0, (int32_t)n}};
    return (uint32_t)interpret(&m, program);
}
