#include "wasm/opcode.h"

const struct wasm_op_info wasm_ops[OP_COUNT] = {
#define OP(name, text, prefix, code, imm, sig, align, fuel, level) \
    [OP_##name] = {text, sig, prefix, IMM_##imm, align, FUEL_##fuel, level, code},
#include "wasm/opcodes.def"
#undef OP
};

/* One table per prefix, from code to row + 1; a code without an instruction reads as zero. */
#define PICK_0x00(name, code) [code] = OP_##name + 1,
#define PICK_0xfb(name, code)
#define PICK_0xfc(name, code)
#define PICK_0xfd(name, code)
#define OP(name, text, prefix, code, ...) PICK_##prefix(name, code)
static const uint16_t plain[256] = {
#include "wasm/opcodes.def"
};
#undef PICK_0x00
#undef PICK_0xfb
#define PICK_0x00(name, code)
#define PICK_0xfb(name, code) [code] = OP_##name + 1,
static const uint16_t objects[32] = {
#include "wasm/opcodes.def"
};
#undef PICK_0xfb
#undef PICK_0xfc
#define PICK_0xfb(name, code)
#define PICK_0xfc(name, code) [code] = OP_##name + 1,
static const uint16_t bulk[32] = {
#include "wasm/opcodes.def"
};
#undef PICK_0xfc
#undef PICK_0xfd
#define PICK_0xfc(name, code)
#define PICK_0xfd(name, code) [code] = OP_##name + 1,
static const uint16_t vectors[0x120] = {
#include "wasm/opcodes.def"
};
#undef OP

static enum wasm_op lookup(const uint16_t *table, uint32_t size, uint32_t code) {
    return code < size && table[code] ? (enum wasm_op)(table[code] - 1) : OP_COUNT;
}

enum wasm_op wasm_op_find(unsigned prefix, uint32_t code) {
    switch (prefix) {
    case 0:
        return lookup(plain, 256, code);
    case 0xfb:
        return lookup(objects, 32, code);
    case 0xfc:
        return lookup(bulk, 32, code);
    case 0xfd:
        return lookup(vectors, 0x120, code);
    default:
        return OP_COUNT;
    }
}
