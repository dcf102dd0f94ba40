/*
 * The instruction set as data: opcodes.def turned into enums and one table.
 *
 * The decoder, the validator, the text format and the fuel table all read these rows, so an
 * instruction is added in one place.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The immediates (constants in the code) that follow the opcode in the bytes of a module. */
enum wasm_imm {
    IMM_NONE,
    IMM_BLOCK,         /* block type */
    IMM_LABEL,         /* label depth */
    IMM_BR_TABLE,      /* vector of labels, default label */
    IMM_FUNC,          /* function index */
    IMM_CALL_INDIRECT, /* type index, table index */
    IMM_TYPE,          /* type index */
    IMM_TAG,           /* tag index */
    IMM_TRY_TABLE,     /* block type, vector of catch clauses */
    IMM_SELECT,        /* vector of value types */
    IMM_LOCAL,
    IMM_GLOBAL,
    IMM_TABLE,
    IMM_MEM,         /* memory index */
    IMM_MEMARG,      /* alignment and flags, optional memory index, offset */
    IMM_MEMARG_LANE, /* the immediates of IMM_MEMARG, lane byte */
    IMM_LANE,        /* lane byte */
    IMM_I32,         /* signed LEB128 */
    IMM_I64,
    IMM_F32, /* little-endian bytes */
    IMM_F64,
    IMM_V128,
    IMM_SHUFFLE,    /* 16 lane bytes */
    IMM_DATA_MEM,   /* data index, memory index */
    IMM_DATA,       /* data index */
    IMM_ELEM_TABLE, /* element index, table index */
    IMM_ELEM,       /* element index */
    IMM_TABLE2,     /* destination table, source table */
    IMM_MEM2,       /* destination memory, source memory */
    IMM_HEAPTYPE,   /* heap type */
    IMM_REFTYPE,    /* heap type; the opcode decides whether null matches */
    IMM_TYPE_FIELD, /* type index, field index */
    IMM_TYPE_N,     /* type index, count */
    IMM_TYPE_DATA,
    IMM_TYPE_ELEM,
    IMM_TYPE2,
    IMM_CAST, /* flag byte, label, two heap types */
};

/* Classes of fuel costs; docs/internals/fuel.md has the numbers. */
enum wasm_fuel {
    FUEL_FREE,
    FUEL_ONE,
    FUEL_BRANCH, /* fuel 1, and 1 for each 8 values if the branch is taken */
    FUEL_CALL,   /* fuel 1, 1 for each whole 8 of parameters and results, and the callee's entry */
    FUEL_THROW, /* fuel 1, 1 for each frame left and each whole 8 of values and of clauses passed */
    FUEL_BYTES, /* fuel 1, and 1 for each 64 bytes read or written */
    FUEL_ELEMS, /* fuel 1, and 1 for each 8 elements read or written */
};

enum wasm_op {
#define OP(name, text, prefix, code, imm, sig, align, fuel, level) OP_##name,
#include "wasm/opcodes.def"
#undef OP
    OP_COUNT
};

struct wasm_op_info {
    const char *text;
    const char *sig;
    uint8_t prefix;
    uint8_t imm;   /* enum wasm_imm */
    uint8_t align; /* log2 of the natural alignment in bytes */
    uint8_t fuel;  /* enum wasm_fuel */
    uint8_t level; /* first version of the specification that has it: enum wasm_level */
    uint16_t code;
};

extern const struct wasm_op_info wasm_ops[OP_COUNT];

/* Returns the row of an instruction by its prefix byte and code; OP_COUNT: there is none. */
enum wasm_op wasm_op_find(unsigned prefix, uint32_t code);
