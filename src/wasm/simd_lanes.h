/* Macros that define a function over all lanes of its vectors. Only for simd.c. */
#pragma once

#include "wasm/simd.h"

/*
 * One line per instruction: the types of input and output lanes, and the
 * expression for one lane. x, y and z are the operands' lanes; the result is
 * cast to the output lane. Local unions keep the loops free of aliasing, so
 * that gcc and clang turn them into vector code.
 */
#define LANES(FIELD) (sizeof((union v128){0}.FIELD) / sizeof((union v128){0}.FIELD[0]))
#define LANE(FIELD) __typeof__((union v128){0}.FIELD[0])

#define UNARY(NAME, OUT, IN, EXPR)                  \
    static union v128 NAME(union v128 a) {          \
        union v128 r;                               \
        for (unsigned i = 0; i < LANES(OUT); i++) { \
            LANE(IN) x = a.IN[i];                   \
            r.OUT[i] = (LANE(OUT))(EXPR);           \
        }                                           \
        return r;                                   \
    }

#define BINARY(NAME, OUT, IN, EXPR)                      \
    static union v128 NAME(union v128 a, union v128 b) { \
        union v128 r;                                    \
        for (unsigned i = 0; i < LANES(OUT); i++) {      \
            LANE(IN) x = a.IN[i], y = b.IN[i];           \
            r.OUT[i] = (LANE(OUT))(EXPR);                \
        }                                                \
        return r;                                        \
    }

#define TERNARY(NAME, OUT, IN, EXPR)                                   \
    static union v128 NAME(union v128 a, union v128 b, union v128 c) { \
        union v128 r;                                                  \
        for (unsigned i = 0; i < LANES(OUT); i++) {                    \
            LANE(IN) x = a.IN[i], y = b.IN[i], z = c.IN[i];            \
            r.OUT[i] = (LANE(OUT))(EXPR);                              \
        }                                                              \
        return r;                                                      \
    }
