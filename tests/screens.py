"""Screenshots of desktops, and programs in machines that draw, report events, or lie."""
import shutil
import struct
import zlib

import pytest

SOCKET = "/tmp/.carrel-desktop/vnc"
HAS_DESKTOP = bool(shutil.which("Xtigervnc") and shutil.which("openbox") and shutil.which("xev"))
needs_desktop = pytest.mark.skipif(not HAS_DESKTOP, reason="needs tigervnc-standalone-server, openbox and x11-utils")
needs_chromium = pytest.mark.skipif(not shutil.which("chromium"), reason="needs chromium: scripts/setup browser")


def pixels(png):
    """(width, height, rows) of an image as Carrel writes it: RGB, every row the difference from the one above."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, parts = 8, {}
    while at < len(png):
        n, kind = struct.unpack(">I4s", png[at:at + 8])
        body = png[at + 8:at + 8 + n]
        assert struct.unpack(">I", png[at + 8 + n:at + 12 + n])[0] == zlib.crc32(kind + body)
        parts[kind] = body
        at += 12 + n
    width, height, *kinds = struct.unpack(">IIBBBBB", parts[b"IHDR"])
    assert kinds == [8, 2, 0, 0, 0]
    raw, step = zlib.decompress(parts[b"IDAT"]), 1 + 3 * width
    assert len(raw) == step * height
    rows, above = [], bytes(3 * width)
    for y in range(height):
        assert raw[y * step] == 2
        above = bytes((a + b) & 255 for a, b in zip(raw[y * step + 1:(y + 1) * step], above))
        rows.append(above)
    return width, height, rows


def decoded(png):
    """(width, height, pixel(x, y)) of any image of 8 bits a colour, without interlace; rows are decoded as far as needed."""
    at, parts = 8, {}
    while at < len(png):
        n, kind = struct.unpack(">I4s", png[at:at + 8])
        parts[kind] = parts.get(kind, b"") + png[at + 8:at + 8 + n]
        at += 12 + n
    width, height, *kinds = struct.unpack(">IIBBBBB", parts[b"IHDR"])
    assert kinds in ([8, 2, 0, 0, 0], [8, 6, 0, 0, 0])
    raw, step = zlib.decompress(parts[b"IDAT"]), 3 if kinds[1] == 2 else 4
    rows = [bytearray(width * step)]

    def row(line):
        kind, row, above = line[0], bytearray(line[1:]), rows[-1]
        for i in range(len(row)):
            a, b, c = (row[i - step] if i >= step else 0), above[i], (above[i - step] if i >= step else 0)
            nearest = min((abs(b - c), 0, a), (abs(a - c), 1, b), (abs(a + b - 2 * c), 2, c))[2]
            row[i] = row[i] + (0, a, b, (a + b) // 2, nearest)[kind] & 255
        return row

    def pixel(x, y):
        while len(rows) < y + 2:
            start = (len(rows) - 1) * (1 + width * step)
            rows.append(row(raw[start:start + 1 + width * step]))
        return tuple(rows[y + 1][x * step:x * step + 3])

    return width, height, pixel


def server(script):
    """A program that plays the VNC server of the desktop with one client after the other: `script` talks with c."""
    return ["python3", "-c", f"""
import os, socket, struct, time
os.makedirs({SOCKET.rsplit('/', 1)[0]!r}, exist_ok=True)
s = socket.socket(socket.AF_UNIX)
s.bind({SOCKET!r})
s.listen()
def init(w, h, name=b"x"):
    return struct.pack(">HH", w, h) + bytes([32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 16, 8, 0, 0, 0, 0]) + struct.pack(">I", len(name)) + name
def rect(x, y, w, h, encoding=0):
    return struct.pack(">HHHHi", x, y, w, h, encoding)
def greet(c, w=8, h=4):
    c.sendall(b"RFB 003.008\\n")
    c.recv(12, socket.MSG_WAITALL)
    c.sendall(b"\\1\\1")
    c.recv(1)
    c.sendall(bytes(4))
    c.recv(1)
    c.sendall(init(w, h))
    c.recv(20, socket.MSG_WAITALL)  # the pixel format, then the encodings, and not a byte of what follows
    c.recv(4 * struct.unpack(">BxH", c.recv(4, socket.MSG_WAITALL))[1], socket.MSG_WAITALL)
while True:
    c = s.accept()[0]
    try:
{''.join('        ' + line + chr(10) for line in script.strip().splitlines())}
        while c.recv(4096):
            pass
    except OSError:
        pass
    c.close()
"""]


HONEST = "greet(c)\nc.sendall(b'\\0\\0\\0\\1' + rect(0, 0, 8, 4) + b'\\x10\\x20\\x30\\0' * 32)"
