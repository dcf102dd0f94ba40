"""What a program has drawn on a terminal: just enough of xterm for what ncurses sends."""
import re

TOKEN = re.compile(rb"\x1b\[([?>]?)([\d;]*)([A-Za-z@`])|\x1b[()][A-Z0-9]|\x1b[=>78]|[\r\n\b\t\x07\x0f\x0e]|[^\x00-\x1f\x7f]+")


class Screen:
    def __init__(self, rows, cols):
        self.resize(rows, cols)

    def resize(self, rows, cols):
        self.rows, self.cols = rows, cols
        self.clear()

    def clear(self):
        self.cells = [[" "] * self.cols for _ in range(self.rows)]
        self.y = self.x = 0
        self.last = " "

    def __str__(self):
        return "\n".join("".join(line).rstrip() for line in self.cells)

    @property
    def lines(self):
        return str(self).split("\n")

    def feed(self, data):
        """Draws it; what is no whole sequence yet is returned."""
        while data:
            found = TOKEN.match(data)
            if not found and data[:1] == b"\x1b" and len(data) < 16:
                return data
            assert found, f"not understood: {data[:40]}"
            self.token(found)
            data = data[found.end():]
        return b""

    def token(self, found):
        text = found.group(0)
        if found.group(3):
            if not found.group(1):
                self.control(found.group(3).decode(), [int(n or 0) for n in found.group(2).split(b";")])
        elif text in (b"\r", b"\n", b"\b", b"\t"):
            self.blank(text)
        elif text[0] >= 0x20:
            for c in text.decode(errors="replace"):
                self.put(c)

    def blank(self, text):
        if text == b"\n":
            self.y = min(self.y + 1, self.rows - 1)
        else:
            self.x = {b"\r": 0, b"\b": max(self.x - 1, 0), b"\t": min(self.x // 8 * 8 + 8, self.cols - 1)}[text]

    def put(self, c):
        if self.x < self.cols:
            self.cells[self.y][self.x] = self.last = c
        self.x += 1

    def erase(self, y, start, end):
        self.cells[y][start:end] = [" "] * (min(end, self.cols) - start)

    def control(self, what, numbers):
        n = numbers[0] or 1
        line = self.cells[self.y]
        if what == "H":
            self.y, self.x = n - 1, (numbers + [1])[1] - 1 if len(numbers) > 1 else 0
        elif what in "ABCD":
            self.y += {"A": -n, "B": n}.get(what, 0)
            self.x += {"C": n, "D": -n}.get(what, 0)
        elif what in "G`":
            self.x = n - 1
        elif what == "d":
            self.y = n - 1
        elif what == "X":
            self.erase(self.y, self.x, self.x + n)
        elif what == "b":
            for _ in range(n):
                self.put(self.last)
        elif what == "P":
            self.cells[self.y] = line[:self.x] + line[self.x + n:] + [" "] * n
        elif what == "@":
            self.cells[self.y] = (line[:self.x] + [" "] * n + line[self.x:])[:self.cols]
        elif what == "K":
            start, end = {0: (self.x, self.cols), 1: (0, self.x + 1), 2: (0, self.cols)}[numbers[0]]
            self.erase(self.y, start, end)
        elif what == "J":
            if numbers[0] == 0:
                self.erase(self.y, self.x, self.cols)
            for y in range(self.y + 1 if numbers[0] == 0 else 0, self.rows):
                self.erase(y, 0, self.cols)
        else:
            assert what in "mrhlt", f"CSI {numbers} {what} is not understood"
        self.y, self.x = min(self.y, self.rows - 1), min(self.x, self.cols)
