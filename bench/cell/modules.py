"""Modules that the measures need and no compiler makes: one of 250 bytes, one of a megabyte."""


def leb(n):
    out = bytearray()
    while True:
        byte, n = n & 0x7F, n >> 7
        if not n:
            return bytes(out + bytes([byte]))
        out.append(byte | 0x80)


def read_leb(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def section(number, body):
    return bytes([number]) + leb(len(body)) + body


def vector(items):
    return leb(len(items)) + b"".join(items)


def body(code, locals_=b"\x00"):
    code = locals_ + code + b"\x0b"
    return leb(len(code)) + code


HEADER = b"\0asm\x01\0\0\0"
MARK = b"\x41\x80\x80\x80\x80\x00\x1a"  # i32.const 0, padded; drop


def tiny(size=250, writes=False):
    """run(x) = 2 * x, beside a few functions of plain code; one page of memory, the first bytes of it data; if asked to,
    run also writes to its second half. Returns the bytes and the constant's offset."""
    double = MARK + b"\x20\x00\x20\x00\x6a"
    if writes:
        double = b"\x41\x00\x20\x00\x36\x02\x80\x80\x02" + double  # i32.store offset=32768
    # (x + 7) * x, stored and loaded at (x & 1023)
    store = b"\x20\x00\x41\xff\x07\x71\x20\x00\x41\x07\x6a\x20\x00\x6c\x36\x02\x00\x20\x00\x41\xff\x07\x71\x28\x02\x00"
    # do { x -= 3; y += x; } while (x > 0)
    loop = b"\x03\x40\x20\x00\x41\x03\x6b\x22\x00\x20\x01\x6a\x21\x01\x20\x00\x41\x00\x4a\x0d\x00\x0b\x20\x01"
    bodies = [body(double), body(store), body(loop, b"\x01\x01\x7f"), body(store), body(loop, b"\x01\x01\x7f")]

    def build(padding):
        return HEADER + b"".join([
            section(1, vector([b"\x60\x01\x7f\x01\x7f"])),
            section(3, vector([b"\x00"] * len(bodies))),
            section(5, vector([b"\x00\x01"])),
            section(7, vector([b"\x03run\x00\x00", b"\x06memory\x02\x00"])),
            section(10, vector(bodies)),
            section(11, vector([b"\x00\x41\x00\x0b" + leb(padding) + b"x" * padding])),
        ])

    data = build(size - len(build(0)))
    assert len(data) == size, len(data)
    return data, data.index(MARK) + 1


def sections(data):
    at = len(HEADER)
    while at < len(data):
        number = data[at]
        size, at = read_leb(data, at + 1)
        yield number, data[at:at + size]
        at += size


def split_bodies(code):
    count, at = read_leb(code, 0)
    for _ in range(count):
        size, start = read_leb(code, at)
        yield code[at:start + size]
        at = start + size


def split_indices(functions):
    count, at = read_leb(functions, 0)
    for _ in range(count):
        _, end = read_leb(functions, at)
        yield functions[at:end]
        at = end


def repeated(data, size):
    """The module with its function bodies repeated until it has about `size` bytes; calls stay as they are."""
    parts = [(n, b) for n, b in sections(data) if n != 0]
    code = next(b for n, b in parts if n == 10)
    times = max(1, size // len(code))
    replace = {3: lambda b: vector(list(split_indices(b)) * times),
               10: lambda b: vector(list(split_bodies(b)) * times)}
    return HEADER + b"".join(section(n, replace.get(n, lambda b: b)(b)) for n, b in parts)
