#include "wasm/opcode.h"

const struct wasm_op_info wasm_ops[OP_COUNT] = {
#define OP(name, text, prefix, code, imm, sig, align, fuel, level) \
    [OP_##name] = {text, sig, prefix, IMM_##imm, align, FUEL_##fuel, level, code},
#include "wasm/opcodes.def"
#undef OP
};

enum wasm_op wasm_op_find(unsigned prefix, uint32_t code) {
    if (code > 0xffff)
        return OP_COUNT;
    switch (prefix << 16 | code) {
#define OP(name, text, prefix, code, ...) \
    case (prefix) << 16 | (code):         \
        return OP_##name;
#include "wasm/opcodes.def"
#undef OP
    default:
        return OP_COUNT;
    }
}
