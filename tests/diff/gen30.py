#!/usr/bin/env python3
"""Random valid modules of WebAssembly 3.0: objects, exceptions, tail calls, several memories of both sizes.

  gen30.py SEED [FILE]     writes the module of one seed

The same seed is the same module. A module ends by itself: every function and loop counts down a global. Results of
float arithmetic that may be NaN become 0, because the specification leaves the bits of a NaN to the engine.
"""
import random
import struct
import sys

I32, I64, F32, F64 = "i32", "i64", "f32", "f64"
NUMBERS = (I32, I64, F32, F64)
CODES = {I32: 0x7f, I64: 0x7e, F32: 0x7d, F64: 0x7c, "i8": 0x78, "i16": 0x77}
HEAPS = {"none": 0x71, "func": 0x70, "extern": 0x6f, "any": 0x6e, "eq": 0x6d, "i31": 0x6c, "struct": 0x6b,
         "array": 0x6a, "exn": 0x69}


SMALL = [bytes([n]) for n in range(0x80)]


def u(n):
    if n < 0x80:
        return SMALL[n]
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7f | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def s(n):
    out = bytearray()
    while not -0x40 <= n < 0x40:
        out.append(n & 0x7f | 0x80)
        n >>= 7
    out.append(n & 0x7f)
    return bytes(out)


def vec(items):
    items = list(items)
    return u(len(items)) + b"".join(items)


def ref(heap, null=True):
    return ("ref", null, heap)


def is_ref(t):
    return type(t) is tuple


def heap_code(heap):
    return s(heap) if isinstance(heap, int) else bytes([HEAPS[heap]])


def type_code(t):
    return bytes([0x63 if t[1] else 0x64]) + heap_code(t[2]) if is_ref(t) else bytes([CODES[t]])


class Type:
    """A type of the module: kind is struct, array or func."""
    def __init__(self, kind, parent=None, fields=(), params=(), results=(), final=False):
        self.kind, self.parent, self.final = kind, parent, final
        self.fields, self.params, self.results = list(fields), list(params), list(results)

    def code(self):
        if self.kind == "func":
            body = b"\x60" + vec(map(type_code, self.params)) + vec(map(type_code, self.results))
        else:
            fields = [type_code(t) + b"\x01" for t in self.fields]
            body = b"\x5f" + vec(fields) if self.kind == "struct" else b"\x5e" + fields[0]
        return bytes([0x4f if self.final else 0x50]) + vec([u(self.parent)] if self.parent is not None else []) + body


class Memory:
    def __init__(self, is64, pages, most):
        self.is64, self.pages, self.most = is64, pages, most
        self.address = I64 if is64 else I32


class Module:
    """The declarations, drawn from a seed. Function bodies are drawn by Body."""
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.make_types()
        self.memories = [Memory(i == 1 or self.rng.random() < 0.2, 1, 2) for i in range(self.rng.randint(1, 3))]
        self.tags = [self.func_type([], []), self.func_type([I32], []), self.func_type([I64, F64], []),
                     self.func_type([ref("any")], [])]
        self.signatures = [self.func_type(self.some_types(3), self.some_types(2)) for _ in range(self.rng.randint(2, 4))]
        self.plain = self.func_type([I32], [I32])
        self.pair = self.func_type([], [I32, I64])
        self.functions = [self.plain] + [self.rng.choice(self.signatures) for _ in range(self.rng.randint(1, 4))]
        # Globals: the countdown, then numbers and references.
        self.globals = [I32, I32, I64, F32, F64, ref("any"), ref(self.structs[0]), ref("func"), ref("extern")]
        self.tables64 = self.rng.random() < 0.3
        self.datas = [self.rng.randbytes(self.rng.randint(0, 40)) for _ in range(2)]
        self.bodies = [Body(self, t).code() for t in self.functions]

    def some_types(self, most):
        pool = [I32, I64, F32, F64, I32, I64, ref("any"), ref(self.structs[0]), ref(self.structs[-1]), ref("i31", False),
                ref(self.arrays[0], False), ref("eq"), ref("extern")]
        return [self.rng.choice(pool) for _ in range(self.rng.randint(0, most))]

    def make_types(self):
        rng = self.rng
        self.types, self.structs, self.arrays = [], [], []
        storage = ["i8", "i16", I32, I64, F32, F64]
        fields = []
        for i in range(3):  # a chain of subtypes
            references = [ref(0), ref("any"), ref("i31"), ref("eq")]
            fields = fields + [rng.choice(storage + references) for _ in range(rng.randint(i > 0, 2))]
            self.structs.append(self.add(Type("struct", i - 1 if i else None, fields, final=i == 2)))
        self.structs.append(self.add(Type("struct", None, [rng.choice(storage)], final=True)))
        for field in ("i8", rng.choice(["i16", I32]), rng.choice([I64, F64]), ref(0)):
            self.arrays.append(self.add(Type("array", None, [field], final=rng.random() < 0.5)))

    def add(self, t):
        self.types.append(t)
        return len(self.types) - 1

    def func_type(self, params, results):
        for i, t in enumerate(self.types):
            if t.kind == "func" and t.params == params and t.results == results:
                return i
        return self.add(Type("func", params=params, results=results, final=True))

    def is_sub_heap(self, a, b):
        if a == b:
            return True
        if isinstance(a, int):
            t = self.types[a]
            if isinstance(b, int):
                return t.parent is not None and self.is_sub_heap(t.parent, b)
            return b == t.kind or (t.kind != "func" and b in ("eq", "any"))
        return (a, b) in {("i31", "eq"), ("i31", "any"), ("struct", "eq"), ("struct", "any"), ("array", "eq"),
                          ("array", "any"), ("eq", "any")}

    def is_sub(self, a, b):
        if not is_ref(a) or not is_ref(b):
            return a == b
        return (b[1] or not a[1]) and self.is_sub_heap(a[2], b[2])

    def table_type(self):
        return I64 if self.tables64 else I32

    def constant(self, t):
        if is_ref(t):
            return b"\xd0" + heap_code(t[2]) + b"\x0b"
        return {I32: b"\x41\x05", I64: b"\x42\x07", F32: b"\x43" + struct.pack("<f", 1.5),
                F64: b"\x44" + struct.pack("<d", 2.5)}[t] + b"\x0b"

    def encode(self):
        n = len(self.functions)
        wrappers = []  # exports take and return numbers only
        codes, function_types, exports = list(self.bodies), [u(t) for t in self.functions], []
        for i in range(n):
            params = [t for t in self.types[self.functions[i]].params if not is_ref(t)]
            results = [t for t in self.types[self.functions[i]].results if not is_ref(t)]
            function_types.append(u(self.func_type(params, results)))
            wrappers.append(Body(self, self.func_type(params, results)).wrapper(i))
            exports.append(self.export(f"f{i}", 0, n + i))
        state = self.func_type([], [I32, I64, F32, F64])
        function_types.append(u(state))
        wrappers.append(b"\x00" + b"".join(b"\x23" + u(g) for g in (1, 2, 3, 4)) + b"\x0b")
        exports.append(self.export("state", 0, 2 * n))
        for t, code in ((F32, 0x5b), (F64, 0x61)):  # NaN becomes 0
            function_types.append(u(self.func_type([t], [t])))
            zero = (b"\x43" + bytes(4)) if t == F32 else (b"\x44" + bytes(8))
            wrappers.append(b"\x00\x20\x00" + zero + b"\x20\x00\x20\x00" + bytes([code]) + b"\x1b\x0b")
        function_types.append(u(self.func_type([I64], [])))  # global 2 = global 2 * 31 + its argument
        wrappers.append(b"\x00\x23\x02\x42\x1f\x7e\x20\x00\x7c\x24\x02\x0b")
        for i in range(len(self.memories)):
            exports.append(self.export("memory" if i == 0 else f"memory{i}", 2, i))
        return self.sections(function_types, codes + wrappers, exports)

    @staticmethod
    def export(name, kind, index):
        return u(len(name)) + name.encode() + bytes([kind]) + u(index)

    def denan(self, t):
        return 2 * len(self.functions) + (1 if t == F32 else 2)

    def mixer(self):
        return 2 * len(self.functions) + 3

    def sections(self, function_types, codes, exports):
        rec = b"\x4e" + vec(t.code() for t in self.types)
        n = len(self.functions)
        limits = b"\x05" if self.tables64 else b"\x01"
        zero = b"\x42\x00\x0b" if self.tables64 else b"\x41\x00\x0b"
        parts = [
            (1, vec([rec])),
            (3, vec(function_types)),
            (4, vec([b"\x70" + limits + u(8) + u(12), b"\x6e" + b"\x01" + u(4) + u(6)])),
            (5, vec(bytes([5 if m.is64 else 1]) + u(m.pages) + u(m.most) for m in self.memories)),
            (13, vec(b"\x00" + u(t) for t in self.tags)),
            (6, vec(type_code(t) + b"\x01" + self.constant(t) for t in self.globals)),
            (7, vec(exports)),
            (9, vec([b"\x00" + zero + vec(u(i) for i in range(n)), b"\x01\x00" + vec(u(i) for i in range(n)),
                     b"\x03\x00" + vec(u(i) for i in range(n))])),
            (12, u(len(self.datas))),
            (10, vec(u(len(c)) + c for c in codes)),
            (11, vec(b"\x01" + u(len(d)) + d for d in self.datas)),
        ]
        return b"\0asm\1\0\0\0" + b"".join(bytes([i]) + u(len(body)) + body for i, body in parts)


UNARY = {I32: [0x67, 0x68, 0x69, 0xc0, 0xc1], I64: [0x79, 0x7a, 0x7b, 0xc2, 0xc3, 0xc4],
         F32: [0x8b, 0x8c, 0x8d, 0x8e, 0x8f, 0x90, 0x91], F64: [0x99, 0x9a, 0x9b, 0x9c, 0x9d, 0x9e, 0x9f]}
BINARY = {I32: [0x6a, 0x6b, 0x6c, 0x71, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x6d, 0x6e, 0x6f, 0x70],
          I64: [0x7c, 0x7d, 0x7e, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8a, 0x7f, 0x80, 0x81, 0x82],
          F32: [0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98], F64: [0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6]}
COMPARE = {I32: range(0x46, 0x50), I64: range(0x51, 0x5b), F32: range(0x5b, 0x61), F64: range(0x61, 0x67)}
CONVERT = {I32: [(0xa7, I64), (0xbc, F32), ("sat0", F32), ("sat3", F64), (0xa8, F32), (0xaa, F64)],
           I64: [(0xac, I32), (0xad, I32), (0xbd, F64), ("sat4", F32), ("sat7", F64), (0xb0, F64)],
           F32: [(0xb2, I32), (0xb3, I32), (0xb4, I64), (0xb5, I64), (0xb6, F64)],
           F64: [(0xb7, I32), (0xb8, I32), (0xb9, I64), (0xba, I64), (0xbb, F32)]}
LOADS = {I32: [(0x28, 2), (0x2c, 0), (0x2d, 0), (0x2e, 1), (0x2f, 1)],
         I64: [(0x29, 3), (0x30, 0), (0x31, 0), (0x32, 1), (0x33, 1), (0x34, 2), (0x35, 2)],
         F32: [(0x2a, 2)], F64: [(0x2b, 3)]}
STORES = {I32: [(0x36, 2), (0x3a, 0), (0x3b, 1)], I64: [(0x37, 3), (0x3c, 0), (0x3d, 1), (0x3e, 2)], F32: [(0x38, 2)],
          F64: [(0x39, 3)]}
BITS_KEPT = {0x8b, 0x8c, 0x99, 0x9a}  # abs and neg change only the sign of a NaN
INTERESTING = [0, 1, -1, 2, 7, 31, 63, 64, 255, 256, 65535, 65536, -128, 2**31 - 1, -2**31]


class Body:
    """Draws one function body. value() leaves one value of a type on the stack, statement() none."""
    def __init__(self, module, type_index):
        self.m, self.rng = module, module.rng
        self.type = module.types[type_index]
        self.results = self.type.results
        extra = [*NUMBERS, *NUMBERS] + module.some_types(4)
        self.locals = self.type.params + extra
        self.first_local = len(self.type.params)
        self.scratch = {t: self.first_local + i for i, t in enumerate(NUMBERS)}
        self.out = bytearray()
        self.labels = [self.results]
        self.left = self.rng.choice([20, 60, 150])
        self.ready = self.first_local  # locals from here on may have no value yet
        self.fitting = {}  # by type and self.ready: the locals that local_of() may choose

    def put(self, *parts):
        for p in parts:
            if type(p) is int:
                self.out.append(p)
            else:
                self.out += p

    def code(self):
        self.tick()
        for i in range(self.first_local, len(self.locals)):
            if is_ref(self.locals[i]) and not self.locals[i][1]:
                self.leaf(self.locals[i])
                self.put(0x21, u(i))
        self.ready = len(self.locals)
        for _ in range(self.rng.randint(1, 5)):
            self.statement(3)
        if self.rng.random() < 0.15:
            self.tail_call(3)
        else:
            for t in self.results:
                self.value(t, 4)
        return self.finished()

    def wrapper(self, callee):
        """Sets the countdown and calls a function, with made up references instead of those that it takes."""
        self.put(0x41, s(120), 0x24, 0)
        given = 0
        callee_type = self.m.types[self.m.functions[callee]]
        for t in callee_type.params:
            if is_ref(t):
                self.leaf(t)
            else:
                self.put(0x20, u(given))
                given += 1
        self.put(0x10, u(callee))
        slots = {}
        for t in reversed(callee_type.results):  # references go to locals, to be looked at
            slots.setdefault(len(slots), t)
        order = [slots[i] for i in range(len(slots))]
        first = len(self.locals)
        self.locals += [ref(t[2]) if is_ref(t) else t for t in order]
        for i in range(len(order)):
            self.put(0x21, u(first + i))
        for i, t in reversed(list(enumerate(order))):
            if not is_ref(t):
                self.put(0x20, u(first + i))
        return self.finished(dirty=True)

    def finished(self, dirty=False):
        self.put(0x0b)
        kinds = self.locals[self.first_local:]
        if dirty:  # locals that are never set need a default
            kinds = [ref(t[2]) if is_ref(t) else t for t in kinds]
        return vec(u(1) + type_code(t) for t in kinds) + bytes(self.out)

    def tick(self):
        self.put(0x23, 0, 0x41, 1, 0x6b, 0x24, 0, 0x23, 0, 0x41, 0, 0x48, 0x04, 0x40)
        for t in self.results:
            self.leaf(t)
        self.put(0x0f, 0x0b)

    # Values

    def value(self, t, depth):
        self.left -= 1
        if depth <= 0 or self.left <= 0 or self.rng.random() < 0.12:
            self.leaf(t)
        elif self.rng.random() < 0.35:
            self.rng.choice([self.block, self.if_else, self.select, self.caught, self.called, self.tee, self.indirect,
                             self.by_reference, self.br_if_value, self.loop_value])(t, depth - 1)
        elif is_ref(t):
            self.reference(t, depth - 1)
        else:
            self.number(t, depth - 1)

    def local_of(self, t):
        found = self.fitting.get((t, self.ready))
        if found is None:
            found = [i for i, have in enumerate(self.locals[:self.ready]) if self.m.is_sub(have, t)]
            self.fitting[t, self.ready] = found
        return self.rng.choice(found) if found else None

    def leaf(self, t):
        i = self.local_of(t) if self.rng.random() < 0.6 else None
        if i is not None:
            self.put(0x20, u(i))
        elif not is_ref(t):
            self.constant(t)
        elif t[1] and (self.rng.random() < 0.4 or t[2] in ("exn", "extern", "func")):
            self.put(0xd0, heap_code(t[2]))
        else:
            self.fresh(t[2])

    def fresh(self, heap):
        """A new object that is a subtype of the heap type."""
        m = self.m
        if heap == "i31" or (heap in ("any", "eq") and self.rng.random() < 0.4):
            self.put(0x41, s(self.rng.choice(INTERESTING)), 0xfb, u(28))
        elif heap == "func":
            self.put(0xd2, u(self.rng.randrange(len(m.functions))))
        elif heap == "extern":
            self.fresh("any")
            self.put(0xfb, u(27))
        else:
            options = [i for i in m.structs + m.arrays if m.is_sub_heap(i, heap)]
            if not options:  # a function type
                options = [i for i, t in enumerate(m.functions) if t == heap]
                self.put(0xd2, u(options[0])) if options else self.put(0xd0, heap_code(heap), 0xd4)
                return
            i = self.rng.choice(options)
            is_struct, given = m.types[i].kind == "struct", self.rng.random() < 0.7
            for t in m.types[i].fields if given else []:
                self.put(0xd0, heap_code(t[2])) if is_ref(t) else self.constant(I32 if t in ("i8", "i16") else t)
            if not is_struct:
                self.put(0x41, s(self.rng.choice([0, 4, 5, 9, 9])))
            self.put(0xfb, u((0 if given else 1) if is_struct else (6 if given else 7)), u(i))

    def constant(self, t):
        n = self.rng.choice(INTERESTING + [self.rng.randint(-2**31, 2**31 - 1)])
        if t == I32:
            self.put(0x41, s(n))
        elif t == I64:
            self.put(0x42, s((n * self.rng.choice([1, 1, 0x100000001]) + 2**63) % 2**64 - 2**63))
        elif t == F32:
            self.put(0x43, struct.pack("<f", n / self.rng.choice([1, 3])))
        else:
            self.put(0x44, struct.pack("<d", n / self.rng.choice([1, 3])))

    def number(self, t, depth):
        self.draw_number(t, depth)
        if self.rng.random() < 0.4:
            self.observe(t)

    def observe(self, t):
        """Mixes the number on the stack into a global, so that a wrong one shows even if it is dropped."""
        i = self.scratch[t]
        self.put(0x22, u(i), 0x20, u(i), {I32: 0xad, I64: b"", F32: b"\xbc\xad", F64: 0xbd}[t])
        self.put(0x10, u(self.m.mixer()))

    def draw_number(self, t, depth):
        kind = self.rng.randrange(12)
        if kind <= 1:
            op = self.rng.choice(BINARY[t])
            self.value(t, depth)
            self.value(t, depth)
            if op in (0x6d, 0x6e, 0x6f, 0x70, 0x7f, 0x80, 0x81, 0x82) and self.rng.random() < 0.8:
                self.put(*((0x41, 1, 0x72) if t == I32 else (0x42, 1, 0x84)))  # no division by zero
            self.put(op)
            self.clean(t, op)
        elif kind == 2:
            op = self.rng.choice(UNARY[t])
            self.value(t, depth)
            self.put(op)
            self.clean(t, op)
        elif kind == 3:
            self.convert(t, depth)
        elif kind <= 5:
            self.load(t, depth)
        elif kind == 6:
            self.put(0x23, u(self.m.globals.index(t, 1)))
        elif kind <= 8 and t in (I32, I64):
            self.integer(t, depth)
        else:
            self.field(t, depth)

    def clean(self, t, op):
        if t in (F32, F64) and op not in BITS_KEPT:
            self.put(0x10, u(self.m.denan(t)))

    def convert(self, t, depth):
        op, source = self.rng.choice(CONVERT[t])
        self.value(source, depth)
        if op in (0xbc, 0xbd):  # the bits of a NaN in a memory are the same everywhere
            self.put(op)
        elif isinstance(op, str):
            self.put(0xfc, int(op[3:]))
        else:
            self.put(op)
            self.clean(t, op)

    def integer(self, t, depth):
        """What only integers have: comparisons, tests of references, sizes."""
        if t == I64:
            self.integer(I32, depth)
            self.put(self.rng.choice([0xac, 0xad]))
            return
        kind = self.rng.randrange(9)
        if kind <= 1:
            of = self.rng.choice(NUMBERS)
            self.value(of, depth)
            self.value(of, depth)
            self.put(self.rng.choice(COMPARE[of]))
        elif kind == 2:
            self.value(ref("any"), depth)
            self.put(0xfb, u(self.rng.choice([20, 21])), heap_code(self.any_heap()))
        elif kind == 3:
            self.value(self.rng.choice([ref("any"), ref(self.m.structs[0]), ref("extern"), ref("func")]), depth)
            self.put(0xd1)
        elif kind == 4:
            self.value(ref("eq"), depth)
            self.value(ref("eq"), depth)
            self.put(0xd3)
        elif kind == 5:
            self.value(ref("i31", self.rng.random() < 0.1), depth)
            self.put(0xfb, u(self.rng.choice([29, 30])))
        elif kind == 6:
            self.value(ref("array", self.rng.random() < 0.1), depth)
            self.put(0xfb, u(15))
        elif kind == 7:
            i = self.rng.randrange(len(self.m.memories))
            self.put(0x3f, u(i))
            if self.m.memories[i].is64:
                self.put(0xa7)
        else:
            self.grow(depth)

    def grow(self, depth):
        if self.rng.random() < 0.5:
            i = self.rng.randrange(len(self.m.memories))
            self.small(self.m.memories[i].address, depth, 1)
            self.put(0x40, u(i))
            if self.m.memories[i].is64:
                self.put(0xa7)
        else:
            self.value(ref("any"), depth)
            self.small(I32, depth, 1)
            self.put(0xfc, u(15), u(1))

    def any_heap(self):
        return self.rng.choice(self.m.structs + self.m.arrays + ["eq", "i31", "struct", "array", "any", "none"])

    def small(self, t, depth, mask):
        """A number that is mostly small, for indices and sizes."""
        self.value(t, depth)
        if self.rng.random() < 0.95:
            self.put(*((0x41, s(mask), 0x71) if t == I32 else (0x42, s(mask), 0x83)))

    def memarg(self, i, align):
        offset = self.rng.choice([0, 0, 1, 8, 100, 61000] if self.rng.random() < 0.95 else [65535, 2**32 - 1])
        return u((self.rng.randint(0, align)) | (0x40 if i else 0)) + (u(i) if i else b"") + u(offset)

    def load(self, t, depth):
        i = self.rng.randrange(len(self.m.memories))
        op, align = self.rng.choice(LOADS[t])
        self.small(self.m.memories[i].address, depth, 0xfff)
        self.put(op, self.memarg(i, align))

    def field(self, t, depth):
        """Reads a number from a struct or an array."""
        m = self.m
        wanted = {I32: (I32, "i8", "i16")}.get(t, (t,))
        found = [(i, k) for i in m.structs + m.arrays for k, f in enumerate(m.types[i].fields) if f in wanted]
        if not found:
            self.leaf(t)
            return
        i, k = self.rng.choice(found)
        self.read_field(i, k, depth)

    def read_field(self, i, k, depth):
        is_array = self.m.types[i].kind == "array"
        packed = self.m.types[i].fields[k] in ("i8", "i16")
        self.value(ref(i, self.rng.random() < 0.1), depth)
        if is_array:
            self.small(I32, depth, 3)
        op = (11 if is_array else 2) + (self.rng.choice([1, 2]) if packed else 0)
        self.put(0xfb, u(op), u(i), *([] if is_array else [u(k)]))

    def reference(self, t, depth):
        _, null, heap = t
        m = self.m
        kind = self.rng.randrange(8)
        if kind == 0 and heap in ("any", "eq", "i31") or heap == "i31" and kind < 5:
            self.value(I32, depth)
            self.put(0xfb, u(28))
        elif kind <= 3 and heap not in ("extern", "func", "exn", "i31") and self.new_object(t, depth):
            pass
        elif kind == 4 and null and any(m.is_sub(g, t) for g in m.globals):
            self.put(0x23, u(self.rng.choice([i for i, g in enumerate(m.globals) if m.is_sub(g, t)])))
        elif kind == 5 and m.is_sub_heap(heap, "any"):
            self.value(ref("any"), depth)
            if self.rng.random() < 0.9:  # mostly a value that fits
                self.guarded_cast(t, depth)
            else:
                self.put(0xfb, u(23 if null else 22), heap_code(heap))
        elif kind == 6 and heap == "extern":
            self.value(ref("any", null), depth)
            self.put(0xfb, u(27))
        elif kind == 6 and heap == "any":
            self.value(ref("extern", null), depth)
            self.put(0xfb, u(26))
        elif kind == 7 and heap == "any" and null:
            self.small(I32, depth, 3)
            self.put(0x25, u(1))
        elif kind == 7:
            found = [(i, k) for i in m.structs + m.arrays for k, f in enumerate(m.types[i].fields)
                     if is_ref(f) and m.is_sub(f, t)]
            self.read_field(*self.rng.choice(found), depth) if found else self.leaf(t)
        else:
            self.leaf(t)

    def guarded_cast(self, t, depth):
        """The operand if it has the type, else something else: with br_on_cast or br_on_cast_fail."""
        _, null, heap = t
        source = b"\x01" if not null else b"\x03"  # flags: the operand may be null; so may the target
        # The operand is on the stack, so it is the parameter of a block.
        outer = self.m.func_type([ref("any")], [t])
        self.put(0x02, s(outer))
        self.labels.append([t])
        if self.rng.random() < 0.5:
            self.put(0xfb, u(24), source, u(0), heap_code("any"), heap_code(heap), 0x1a)
            self.leaf(t)
        else:
            inner = self.m.func_type([ref("any")], [ref("any")])
            self.put(0x02, s(inner))
            self.put(0xfb, u(25), source, u(0), heap_code("any"), heap_code(heap), 0x0c, u(1), 0x0b, 0x1a)
            self.leaf(t)
        self.labels.pop()
        self.put(0x0b)

    def new_object(self, t, depth):
        m = self.m
        options = [i for i in m.structs + m.arrays if m.is_sub_heap(i, t[2])]
        if not options:
            return False
        i = self.rng.choice(options)
        if m.types[i].kind == "struct":
            for f in m.types[i].fields:
                self.value(I32 if f in ("i8", "i16") else f, depth)
            self.put(0xfb, u(0), u(i))
            return True
        field = m.types[i].fields[0]
        kind = self.rng.randrange(4)
        if kind == 0:
            n = self.rng.randint(0, 3)
            for _ in range(n):
                self.value(I32 if field in ("i8", "i16") else field, depth)
            self.put(0xfb, u(8), u(i), u(n))
        elif kind == 1 and not is_ref(field):
            self.small(I32, depth, 7)
            self.small(I32, depth, 3)
            self.put(0xfb, u(9), u(i), u(self.rng.randrange(len(m.datas))))
        else:
            if kind != 2:
                self.value(I32 if field in ("i8", "i16") else field, depth)
            self.value(I32, depth)
            self.put(0x41, s(31), 0x71, 0xfb, u(7 if kind == 2 else 6), u(i))
        return True

    # Control that leaves a value

    def block_type(self, t):
        return type_code(t)

    def inside(self, t, depth, statements):
        for _ in range(self.rng.randint(0, statements)):
            self.statement(depth)
        if self.rng.random() < 0.1:
            self.leave(depth)
        else:
            self.value(t, depth)

    def block(self, t, depth):
        self.put(0x02, self.block_type(t))
        self.labels.append([t])
        self.inside(t, depth, 2)
        self.labels.pop()
        self.put(0x0b)

    def if_else(self, t, depth):
        self.value(I32, depth)
        self.put(0x04, self.block_type(t))
        self.labels.append([t])
        self.inside(t, depth, 1)
        self.put(0x05)
        self.inside(t, depth, 1)
        self.labels.pop()
        self.put(0x0b)

    def select(self, t, depth):
        self.value(t, depth)
        self.value(t, depth)
        self.value(I32, depth)
        self.put(*((0x1c, vec([type_code(t)])) if is_ref(t) or self.rng.random() < 0.3 else (0x1b,)))

    def tee(self, t, depth):
        found = [i for i, have in enumerate(self.locals[:self.ready]) if have == t]
        self.value(t, depth)
        if found:
            self.put(0x22, u(self.rng.choice(found)))

    def br_if_value(self, t, depth):
        """A value that may leave through a label with the same type, or is thrown away."""
        found = [i for i, label in enumerate(self.labels) if label == [t]]
        self.value(t, depth)
        if found:
            self.value(I32, depth)
            self.put(0x0d, u(len(self.labels) - 1 - self.rng.choice(found)))

    def loop_value(self, t, depth):
        self.put(0x03, self.block_type(t))
        self.labels.append([])
        self.statement(depth)
        self.again(depth)
        self.value(t, depth)
        self.labels.pop()
        self.put(0x0b)

    def again(self, depth):
        """Repeats the innermost block, a loop, while the countdown lasts."""
        self.put(0x23, 0, 0x41, 1, 0x6b, 0x24, 0)
        self.value(I32, depth)
        self.put(0x23, 0, 0x41, 0, 0x4a, 0x71, 0x0d, 0)

    def catches(self, t):
        """Catch clauses that fit the label right outside, which takes t; and whether there are any."""
        m = self.m
        clauses = []
        for i, tag in enumerate(m.tags):
            if m.types[tag].params == [t]:
                clauses.append(b"\x00" + u(i) + u(0))
        if t == ref("exn"):
            clauses += [b"\x01" + u(0) + u(0), b"\x03" + u(0)]
        self.rng.shuffle(clauses)
        return clauses

    def caught(self, t, depth):
        """Runs something that may throw. What it throws becomes 0 or another value, or is thrown again."""
        clauses = self.catches(t)
        self.put(0x02, self.block_type(t))
        self.labels.append([t])
        kind = self.rng.randrange(3)
        if kind == 0:  # catch_all to an empty block, then another value
            self.put(0x02, 0x40)
            self.labels.append([])
            clauses = [c[:-1] + u(1) for c in clauses] + [b"\x02" + u(0)]
        elif kind == 1:  # catch_all_ref or catch_ref, and perhaps throw it again
            self.put(0x02, type_code(ref("exn")))
            self.labels.append([ref("exn")])
            own = self.rng.choice([b"\x03" + u(0), b"\x01" + u(0) + u(0)])
            clauses = [c[:-1] + u(1) for c in clauses] + [own]
        self.put(0x1f, self.block_type(t), vec(clauses))
        self.labels.append([t])
        self.inside(t, depth, 2)
        self.labels.pop()
        self.put(0x0b)
        if kind < 2:
            self.put(0x0c, u(1), 0x0b)
            self.labels.pop()
        if kind == 1:
            self.put(0x1a if self.rng.random() < 0.7 else 0x0a)
        if kind < 2:
            self.value(t, depth)
        self.labels.pop()
        self.put(0x0b)

    def arguments(self, type_index, depth):
        for t in self.m.types[type_index].params:
            self.value(t, depth)

    def results_to(self, type_index, t, depth):
        """After a call: keeps the first result if it is a t, else makes one."""
        results = self.m.types[type_index].results
        keep = bool(results) and self.m.is_sub(results[0], t)
        for _ in results[keep:]:
            self.put(0x1a)
        if not keep:
            self.value(t, depth)

    def called(self, t, depth):
        i = self.rng.randrange(len(self.m.functions))
        self.arguments(self.m.functions[i], depth)
        self.put(0x10, u(i))
        self.results_to(self.m.functions[i], t, depth)

    def table_index(self, depth, wanted=None):
        """An index into the table of functions; mostly that of one with the wanted type."""
        found = [i for i, t in enumerate(self.m.functions) if t == wanted]
        if found and self.rng.random() < 0.9:
            self.put(0x42 if self.m.tables64 else 0x41, s(self.rng.choice(found)))
        else:
            self.small(self.m.table_type(), depth, 3)

    def indirect(self, t, depth):
        i = self.rng.choice(self.m.functions)
        self.arguments(i, depth)
        self.table_index(depth, i)
        self.put(0x11, u(i), u(0))
        self.results_to(i, t, depth)

    def by_reference(self, t, depth):
        i = self.rng.randrange(len(self.m.functions))
        self.arguments(self.m.functions[i], depth)
        self.put(0xd2, u(i), 0x14, u(self.m.functions[i]))
        self.results_to(self.m.functions[i], t, depth)

    # Statements

    def statement(self, depth):
        self.left -= 1
        if depth <= 0 or self.left <= 0:
            self.put(0x01)
            return
        self.rng.choice([self.set_local, self.set_local, self.set_global, self.store, self.store, self.set_field,
                         self.set_field, self.bulk, self.array_bulk, self.table_change, self.drop, self.plain_block,
                         self.plain_if, self.plain_loop, self.branch, self.null_branch, self.try_statement, self.throw,
                         self.pairs, self.table_branch])(depth - 1)

    def set_local(self, depth):
        i = self.rng.randrange(len(self.locals))
        self.value(self.locals[i], depth)
        self.put(0x21, u(i))

    def set_global(self, depth):
        i = self.rng.randrange(1, len(self.m.globals))
        self.value(self.m.globals[i], depth)
        self.put(0x24, u(i))

    def store(self, depth):
        i = self.rng.randrange(len(self.m.memories))
        t = self.rng.choice(NUMBERS)
        op, align = self.rng.choice(STORES[t])
        self.small(self.m.memories[i].address, depth, 0xfff)
        self.value(t, depth)
        self.put(op, self.memarg(i, align))

    def set_field(self, depth):
        m = self.m
        i = self.rng.choice([i for i in m.structs + m.arrays if m.types[i].fields])
        k = self.rng.randrange(len(m.types[i].fields))
        field = m.types[i].fields[k]
        self.value(ref(i, self.rng.random() < 0.1), depth)
        if m.types[i].kind == "array":
            self.small(I32, depth, 3)
        self.value(I32 if field in ("i8", "i16") else field, depth)
        self.put(0xfb, *([u(14), u(i)] if m.types[i].kind == "array" else [u(5), u(i), u(k)]))

    def bulk(self, depth):
        memories = self.m.memories
        i, j = self.rng.randrange(len(memories)), self.rng.randrange(len(memories))
        to, source = memories[i].address, memories[j].address
        kind = self.rng.randrange(4)
        if kind == 0:
            self.small(to, depth, 0xff)
            self.small(source, depth, 0xff)
            self.small(I64 if to == source == I64 else I32, depth, 0x3f)
            self.put(0xfc, u(10), u(i), u(j))
        elif kind == 1:
            self.small(to, depth, 0xff)
            self.value(I32, depth)
            self.small(to, depth, 0x3f)
            self.put(0xfc, u(11), u(i))
        elif kind == 2:
            self.small(to, depth, 0xff)
            self.small(I32, depth, 7)
            self.small(I32, depth, 7)
            self.put(0xfc, u(8), u(self.rng.randrange(len(self.m.datas))), u(i))
        else:
            self.put(0xfc, u(9), u(1))

    def array_bulk(self, depth):
        m = self.m
        i = self.rng.choice(m.arrays)
        field = m.types[i].fields[0]
        kind = self.rng.randrange(3)
        self.value(ref(i, self.rng.random() < 0.1), depth)
        self.small(I32, depth, 3)
        if kind == 0:
            self.value(I32 if field in ("i8", "i16") else field, depth)
            self.small(I32, depth, 3)
            self.put(0xfb, u(16), u(i))
        elif kind == 1 or is_ref(field):
            self.value(ref(i, self.rng.random() < 0.1), depth)
            self.small(I32, depth, 3)
            self.small(I32, depth, 3)
            self.put(0xfb, u(17), u(i), u(i))
        else:
            self.small(I32, depth, 3)
            self.small(I32, depth, 1)
            self.put(0xfb, u(18), u(i), u(self.rng.randrange(len(m.datas))))

    def table_change(self, depth):
        kind = self.rng.randrange(4)
        if kind == 0:
            self.table_index(depth)
            self.value(ref("func"), depth)
            self.put(0x26, u(0))
        elif kind == 1:
            self.small(I32, depth, 3)
            self.value(ref("any"), depth)
            self.put(0x26, u(1))
        elif kind == 2:
            self.table_index(depth)
            self.small(I32, depth, 1)
            self.small(I32, depth, 1)
            self.put(0xfc, u(12), u(1), u(0))
        else:
            self.small(I32, depth, 3)
            self.value(ref("any"), depth)
            self.small(I32, depth, 1)
            self.put(0xfc, u(17), u(1))

    def drop(self, depth):
        self.value(self.rng.choice(list(NUMBERS) + [ref("any"), ref("extern"), ref("func"), ref(self.m.structs[1])]), depth)
        self.put(0x1a)

    def body(self, depth):
        for _ in range(self.rng.randint(1, 3)):
            self.statement(depth)

    def plain_block(self, depth):
        self.put(0x02, 0x40)
        self.labels.append([])
        self.body(depth)
        self.labels.pop()
        self.put(0x0b)

    def plain_if(self, depth):
        self.value(I32, depth)
        self.put(0x04, 0x40)
        self.labels.append([])
        self.body(depth)
        if self.rng.random() < 0.5:
            self.put(0x05)
            self.body(depth)
        self.labels.pop()
        self.put(0x0b)

    def plain_loop(self, depth):
        self.put(0x03, 0x40)
        self.labels.append([])
        self.body(depth)
        self.again(depth)
        self.labels.pop()
        self.put(0x0b)

    def exits(self):
        """Labels that a plain branch may go to without going round a loop for ever."""
        return [i for i, label in enumerate(self.labels) if i > 0 and label]

    def branch(self, depth):
        found = self.exits()
        if not found:
            self.drop(depth)
            return
        i = self.rng.choice(found)
        for t in self.labels[i]:
            self.value(t, depth)
        self.value(I32, depth)
        self.put(0x0d, u(len(self.labels) - 1 - i), *[0x1a] * len(self.labels[i]))

    def table_branch(self, depth):
        """Nested blocks, and a br_table into one of them."""
        n = self.rng.randint(1, 3)
        self.put(*(0x02, 0x40) * n)
        self.labels += [[]] * n
        self.value(I32, depth)
        self.put(0x0e, vec(u(self.rng.randrange(n)) for _ in range(self.rng.randint(0, 4))), u(self.rng.randrange(n)))
        for _ in range(n):
            self.put(0x0b)
            self.labels.pop()
            self.statement(depth)

    def null_branch(self, depth):
        heap = self.rng.choice(["any", "eq", self.m.structs[0], self.m.arrays[0], "extern"])
        if self.rng.random() < 0.5:  # br_on_null
            self.put(0x02, 0x40)
            self.labels.append([])
            self.value(ref(heap), depth)
            self.put(0xd5, u(0), 0x1a)
            self.statement(depth)
            self.labels.pop()
            self.put(0x0b)
        else:
            self.put(0x02, type_code(ref(heap, False)))
            self.labels.append([ref(heap, False)])
            self.value(ref(heap), depth)
            self.put(0xd6, u(0))
            self.fresh(heap)
            self.labels.pop()
            self.put(0x0b, 0x1a)

    def try_statement(self, depth):
        self.caught(self.rng.choice([I32, ref("any"), I64]), depth)
        self.put(0x1a)

    def throw(self, depth):
        """Throws under a condition, so that code after it runs too."""
        self.value(I32, depth)
        self.put(0x04, 0x40)
        self.labels.append([])
        self.leave(depth)
        self.labels.pop()
        self.put(0x0b)

    def leave(self, depth):
        """Ends the block: throws, returns, calls in tail position, or branches out."""
        kind = self.rng.randrange(10)
        found = self.exits()
        if kind <= 3:
            tag = self.rng.randrange(len(self.m.tags))
            self.arguments(self.m.tags[tag], depth)
            self.put(0x08, u(tag))
        elif kind <= 5:
            for t in self.results:
                self.value(t, depth)
            self.put(0x0f)
        elif kind <= 7:
            self.tail_call(depth)
        elif kind == 8 and found:
            i = self.rng.choice(found)
            for t in self.labels[i]:
                self.value(t, depth)
            self.put(0x0c, u(len(self.labels) - 1 - i))
        else:
            self.put(0x00)

    def tail_call(self, depth):
        m = self.m
        fit = [i for i, t in enumerate(m.functions) if len(m.types[t].results) == len(self.results) and
               all(m.is_sub(a, b) for a, b in zip(m.types[t].results, self.results))]
        if not fit:
            for t in self.results:
                self.leaf(t)
            self.put(0x0f)
            return
        i = self.rng.choice(fit)
        self.arguments(m.functions[i], depth)
        kind = self.rng.randrange(3)
        if kind == 0:
            self.put(0x12, u(i))
        elif kind == 1:
            self.table_index(0, m.functions[i])
            self.put(0x13, u(m.functions[i]), u(0))
        else:
            self.put(0xd2, u(i), 0x15, u(m.functions[i]))

    def pairs(self, depth):
        """A block with two results."""
        self.put(0x02, s(self.m.pair))
        self.labels.append([I32, I64])
        self.value(I32, depth)
        self.value(I64, depth)
        self.labels.pop()
        self.put(0x0b, 0x24, u(2), 0x24, u(1))


def module(seed):
    return Module(seed).encode()


if __name__ == "__main__":
    with (open(sys.argv[2], "wb") if len(sys.argv) > 2 else sys.stdout.buffer) as f:
        f.write(module(int(sys.argv[1])))
