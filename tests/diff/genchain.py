#!/usr/bin/env python3
"""Random modules of plain code: long chains of numbers, loads and stores, in which each result is used at once.

  genchain.py SEED [FILE]     writes the module of one seed

The interpreter has special forms for such chains (docs/internals/cell-engine.md, 3); other makers draw few of them. The
same seed is the same module. A module ends by itself, and no NaN can reach memory: doubles come from integers, and a
double that was loaded is only compared or converted.
"""
import random
import struct
import sys

from gen30 import BINARY, COMPARE, F64, I32, I64, LOADS, STORES, s, u, vec

CODES = {I32: 0x7f, I64: 0x7e, F64: 0x7c}
PARAMS = [I32, I32, I64]
# Two locals of each type after the parameters, then two that hold addresses from 64 on, then a counter.
LOCALS = [I32, I32, I64, I64, F64, F64, I32, I32, I32]
TYPES = PARAMS + LOCALS
POINTERS, COUNTER = (9, 10), 11
WHOLE = {I32: BINARY[I32][:11], I64: BINARY[I64][:11], F64: BINARY[F64][:3]}  # nothing that traps or makes a NaN
DOUBLES = 8192  # doubles are stored from here on, integers below


class Body:
    def __init__(self, rng):
        self.rng, self.blocks = rng, 0

    def const(self, t):
        rng = self.rng
        n = rng.choice([rng.randrange(-64, 64), rng.randrange(-2**15 - 2, 2**15 + 2), rng.randrange(-2**31, 2**31)])
        return b"\x44" + struct.pack("<d", n % 1000) if t == F64 else (b"\x41" if t == I32 else b"\x42") + s(n)

    def local(self, t):
        return self.rng.choice([i for i, x in enumerate(TYPES) if x == t and i < COUNTER])

    def free(self, t):
        return self.rng.choice([i for i, x in enumerate(TYPES) if x == t and i < min(POINTERS)])

    def leaf(self, t):
        return b"\x20" + u(self.local(t)) if self.rng.random() < 0.7 else self.const(t)

    def address(self, depth):
        """An address from 64 to 5000, in the forms that the emitter knows; rarely one out of bounds."""
        rng, pointer = self.rng, b"\x20" + u(self.rng.choice(POINTERS))
        k = rng.randrange(-64, 300) if rng.random() < 0.995 else rng.choice([-2**15, -2**20, 2**31 - 1])
        return rng.choice([
            lambda: pointer,
            lambda: b"\x41" + s(rng.randrange(64, 4096)),
            lambda: pointer + b"\x41" + s(k) + b"\x6a",
            lambda: b"\x41" + s(k) + pointer + b"\x6a",
            lambda: pointer + self.small(depth) + b"\x6a",
            lambda: self.small(depth) + b"\x41" + s(64) + b"\x6a",
        ])()

    def small(self, depth):
        return self.value(I32, depth - 1) + b"\x41" + s(1016) + b"\x71"

    def load(self, t, depth):
        op, align = self.rng.choice(LOADS[t])
        offset = self.rng.choice([0, 0, 8, 100]) + (DOUBLES if t == F64 else 0)
        return self.address(depth) + bytes([op, align]) + u(offset)

    def compare(self, depth):
        t = self.rng.choice([I32, I32, I64, F64])
        left = self.load(F64, depth) if t == F64 and self.rng.random() < 0.4 else self.value(t, depth - 1)
        return left + self.value(t, depth - 1) + bytes([self.rng.choice(COMPARE[t])])

    def value(self, t, depth):
        rng = self.rng
        if depth <= 0 or rng.random() < 0.1:
            return self.leaf(t)
        pick = rng.random()
        if pick < 0.55 or (t == F64 and pick < 0.9):
            both = [self.value(t, depth - 1), self.leaf(t)]
            rng.shuffle(both)
            return b"".join(both) + bytes([rng.choice(WHOLE[t])])
        if pick < 0.62 and t != F64:
            return self.value(t, depth - 1) + b"\x22" + u(self.free(t))
        if pick < 0.8 and t != F64:
            return self.load(t, depth)
        if pick < 0.85:
            return self.value(t, depth - 1) + self.value(t, depth - 1) + self.compare(depth) + b"\x1b"
        return self.converted(t, depth)

    def converted(self, t, depth):
        rng = self.rng
        if t == F64:
            return self.value(I32, depth - 1) + b"\xb7"
        if t == I64:
            return self.value(I32, depth - 1) + bytes([rng.choice([0xac, 0xad])])
        return rng.choice([
            lambda: self.value(I64, depth - 1) + b"\xa7",
            lambda: self.value(F64, depth - 1) + b"\xfc\x02",
            lambda: self.load(F64, depth) + b"\xfc\x03",
            lambda: self.value(I32, depth - 1) + bytes([rng.choice([0x45, 0xc0, 0xc1, 0x67, 0x68])]),
            lambda: self.compare(depth),
        ])()

    def set_local(self):
        t = self.rng.choice([I32, I32, I64, F64])
        # A double in a local is small, so that no chain of products becomes infinite.
        code = self.value(I32, 4) + b"\xb7" if t == F64 else self.value(t, 4)
        return code + b"\x21" + u(self.free(t))

    def set_pointer(self):
        return self.small(3) + b"\x41" + s(64) + b"\x6a\x21" + u(self.rng.choice(POINTERS))

    def store(self):
        t = self.rng.choice([I32, I32, I64, F64])
        op, align = self.rng.choice(STORES[t])
        offset = self.rng.choice([0, 8, 100]) + (DOUBLES if t == F64 else 0)
        return self.address(2) + self.value(t, 3) + bytes([op, align]) + u(offset)

    def statements(self, depth):
        return b"".join(self.statement(depth) for _ in range(self.rng.randrange(1, 5)))

    def statement(self, depth):
        pick = self.rng.random()
        if pick < 0.4 or depth == 0:
            return self.set_local()
        if pick < 0.7:
            return self.store()
        if pick < 0.78:
            return self.set_pointer()
        if pick < 0.88:
            return self.compare(3) + b"\x04\x40" + self.statements(depth - 1) + b"\x05" + self.statements(depth - 1) + b"\x0b"
        if pick < 0.94:
            return b"\x02\x40" + self.statements(depth - 1) + self.value(I32, 3) + b"\x0d\x00" + self.statements(depth - 1) + b"\x0b"
        return b"\x02\x40\x02\x40\x02\x40" + self.value(I32, 3) + b"\x0e\x02\x00\x01\x02\x0b" + self.statements(depth - 1) + \
            b"\x0b" + self.statements(depth - 1) + b"\x0b"

    def code(self):
        start = b"".join(b"\x41" + s(n) + b"\x21" + u(p) for p, n in zip(POINTERS, (64, 1000)))
        count = b"\x20\x0b\x41\x01\x6a\x22\x0b\x41\x05\x48\x0d\x00"  # five times
        loop = b"\x03\x40" + b"".join(self.statements(3) for _ in range(3)) + count + b"\x0b"
        locals_ = vec(b"\x01" + bytes([CODES[t]]) for t in LOCALS)
        return locals_ + start + loop + self.value(I32, 5) + b"\x0b"


def module(seed):
    rng = random.Random(seed)
    bodies = [Body(rng).code() for _ in range(3)]
    exports = [b"\x02f" + str(i).encode() + b"\x00" + u(i) for i in range(len(bodies))] + [b"\x06memory\x02\x00"]
    parts = [(1, vec([b"\x60" + vec(bytes([CODES[t]]) for t in PARAMS) + b"\x01\x7f"])), (3, vec([b"\x00"] * len(bodies))),
             (5, vec([b"\x00\x01"])), (7, vec(exports)), (10, vec(u(len(b)) + b for b in bodies))]
    return b"\0asm\1\0\0\0" + b"".join(bytes([i]) + u(len(p)) + p for i, p in parts)


if __name__ == "__main__":
    sys.stdout.buffer.write(module(int(sys.argv[1]))) if len(sys.argv) < 3 else open(sys.argv[2], "wb").write(
        module(int(sys.argv[1])))
