"""Runs the code of the tool `python` in a machine.

The parent exchanges lines of JSON with the daemon. The child runs the code and keeps its variables.
They are two processes, so that code which closes descriptors or ends the interpreter does not break
the exchange. Nothing here is trusted: the daemon checks every answer.
"""
import json
import os
import select
import signal
import socket
import sys
import types

IMAGES, IMAGE_BYTES, ROWS, COLUMNS, CELL = 4, 1 << 20, 100, 30, 300


def plain(text):
    """Text that every JSON parser accepts."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")


class Clip:
    """Keeps the beginning and the end of a stream."""

    def __init__(self, most):
        self.half, self.head, self.tail, self.total = most // 2, bytearray(), bytearray(), 0

    def add(self, data):
        self.total += len(data)
        room = self.half - len(self.head)
        self.head += data[:room]
        self.tail += data[room:]
        if len(self.tail) > 4 * self.half:
            del self.tail[:-self.half]

    def text(self):
        """The text, and how many bytes it leaves out."""
        tail = self.tail[-self.half:]
        left_out = self.total - len(self.head) - len(tail)
        note = "\n[... %d bytes left out ...]\n" % left_out if left_out else ""
        if note:
            return plain(self.head.decode("utf-8", "replace") + note + tail.decode("utf-8", "replace")), left_out
        return plain((self.head + tail).decode("utf-8", "replace")), 0


def clipped(text, most):
    clip = Clip(most)
    clip.add(text.encode("utf-8", "replace"))
    return clip.text()[0]


# ---- the child: runs code ----

class Shown:
    """Values of one call that the caller sees: texts, images and tables."""

    def __init__(self, most):
        self.most, self.texts, self.images, self.tables = most, [], [], []

    def image(self, data):
        import base64
        if len(data) > IMAGE_BYTES:
            self.texts.append("[image of %d bytes left out: the limit is %d bytes]" % (len(data), IMAGE_BYTES))
        elif len(self.images) == IMAGES:
            self.texts.append("[image left out: the limit is %d images per call]" % IMAGES)
        else:
            self.images.append(base64.b64encode(data).decode("ascii"))

    def table(self, frame):
        if len(self.tables) < IMAGES:
            part = frame.iloc[:ROWS, :COLUMNS]
            self.tables.append({
                "columns": [clipped(str(c), CELL) for c in part.columns],
                "index": [clipped(str(i), CELL) for i in part.index],
                "rows": [[cell(v) for v in row] for row in part.itertuples(index=False, name=None)],
                "row_count": int(frame.shape[0]), "column_count": int(frame.shape[1])})
        self.texts.append(frame.to_string(max_rows=30, max_cols=20))

    def show(self, value, main=False):
        kind = type(value)
        home = (kind.__module__ or "").split(".")[0]
        if home == "pandas" and kind.__name__ == "Series":
            value, kind = value.to_frame(), type(value.to_frame())
        if home == "pandas" and kind.__name__ == "DataFrame":
            self.table(value)
        elif home == "matplotlib" and hasattr(value, "savefig"):
            self.figure(value)
        elif home == "PIL" and hasattr(value, "save"):
            self.saved(value.save)
        else:
            png = getattr(kind, "_repr_png_", None)
            data = png(value) if png else None
            if isinstance(data, bytes):
                self.image(data)
            else:
                self.texts.append(repr(value))

    def saved(self, save):
        import io
        data = io.BytesIO()
        save(data, format="PNG")
        self.image(data.getvalue())

    def figure(self, figure):
        self.saved(figure.savefig)
        sys.modules["matplotlib.pyplot"].close(figure)

    def figures(self):
        plot = sys.modules.get("matplotlib.pyplot")
        for number in plot.get_fignums() if plot else ():
            self.figure(plot.figure(number))


def cell(value):
    try:
        value = value.item()  # a number of numpy
    except Exception:
        pass
    if value is None or isinstance(value, (bool, str)):
        return clipped(value, CELL) if isinstance(value, str) else value
    if isinstance(value, int) and abs(value) < 1 << 53 or isinstance(value, float) and value - value == 0:
        return value
    return clipped(str(value), CELL)


class ExitStatus(Exception):
    """Code of bash ended with another status than 0."""


class Bash:
    """A shell that keeps its variables. It ends if its code says so, or is interrupted."""

    LOOP = 'while IFS= read -r -d "" __carrel <&%d; do eval "$__carrel" %d<&- %d>&-; echo $? >&%d; done'

    def __init__(self):
        import subprocess
        requests, self.requests = os.pipe()
        self.answers, answers = os.pipe()
        loop = self.LOOP % (requests, requests, answers, answers)
        self.process = subprocess.Popen(["bash", "-c", loop], pass_fds=(requests, answers))
        os.close(requests)
        os.close(answers)

    def status(self, code):
        """Runs the code, and returns its exit status."""
        data, answer = code.replace("\0", "").encode("utf-8", "replace") + b"\0", b""
        try:
            while data:
                data = data[os.write(self.requests, data):]
            while not answer.endswith(b"\n"):
                more = os.read(self.answers, 16)
                if not more:
                    return self.process.wait() % 256
                answer += more
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise
        return int(answer)

    def close(self):
        os.close(self.requests)
        os.close(self.answers)


class Interpreter:
    def __init__(self, channel, heard):
        import threading
        self.channel, self.heard, self.sending = channel, heard, threading.Lock()
        self.calls = 0
        self.count = 0
        self.running = False
        self.shown = None
        self.bash = None
        self.loop = None
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        sys.argv = [""]
        self.names = module.__dict__
        self.names["display"] = self.display
        self.names["__carrel_shell__"] = Shell.run
        Notebook(self.display).install()
        signal.signal(signal.SIGINT, self.interrupted)

    def interrupted(self, number, frame):
        if self.running:
            raise KeyboardInterrupt

    def send(self, message):
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass  # the code replaced or closed it
        data = json.dumps(message, allow_nan=False).encode("ascii") + b"\n"
        running, self.running = self.running, False  # an interrupt would cut the line; the parent repeats it
        with self.sending:
            self.channel.sendall(data)
            if "event" in message:
                os.read(self.heard, 1)  # what is printed from now on comes after it
        self.running = running

    def display(self, *values, **named):
        for value in values:
            self.shown.show(value)

    def parse(self, code, name):
        """The code as a tree. Code that is indented as a whole is accepted, and so are lines of notebooks."""
        import ast
        import linecache
        import textwrap
        try:
            tree = compile(code, name, "exec", ast.PyCF_ONLY_AST)
        except SyntaxError:
            other = textwrap.dedent(code)
            other = Shell.translated(other) or other
            if other == code:
                raise
            code = other
            tree = compile(code, name, "exec", ast.PyCF_ONLY_AST)
        linecache.cache[name] = len(code), None, code.splitlines(True), name
        return tree

    def execute(self, tree, name, mode):
        """Runs a part of the code. It may have `await` at the top, as in notebooks: the loop stays."""
        import ast
        code = compile(tree, name, mode, getattr(ast, "PyCF_ALLOW_TOP_LEVEL_AWAIT", 0))
        if not code.co_flags & 0x80:  # inspect.CO_COROUTINE; the import would be slow
            return eval(code, self.names)
        import asyncio
        if not self.loop or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        task = self.loop.create_task(eval(code, self.names))
        try:
            self.loop.run_until_complete(asyncio.wait([task]))
        finally:
            task.cancel()  # only if it was interrupted
        return task.result()

    def evaluate(self, code):
        import ast
        import linecache
        self.calls += 1
        name = "<python %d>" % self.calls
        linecache.cache[name] = len(code), None, code.splitlines(True), name
        linecache.cache.pop("<python %d>" % (self.calls - 50), None)
        tree = self.parse(code, name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        for statement in tree.body:
            self.execute(ast.Module([statement], []), name, "exec")
            self.show_figures_at_once()
        if last:
            value = self.execute(ast.Expression(last.value), name, "eval")
            if value is not None:
                self.names["_"] = value
                self.shown.show(value, main=True)
        self.shown.figures()

    def shell(self, code, env):
        """Runs code of bash. Its variables are those of a function, so that they end with it."""
        import shlex
        if env:
            pairs = " ".join(shlex.quote(name + "=" + value) for name, value in env.items())
            code = "__carrel_env() { local -x %s; eval %s; }; __carrel_env" % (pairs, shlex.quote(code))
        if self.bash and self.bash.process.poll() is not None:
            self.bash.close()
            self.bash = None
        self.bash = self.bash or Bash()
        status = self.bash.status(code)
        if status:
            raise ExitStatus(status)

    def show_figures_at_once(self):
        """Makes show() of pyplot show the figures before what follows it."""
        plot = sys.modules.get("matplotlib.pyplot")
        if hasattr(plot, "show"):
            plot.show = lambda *words, **named: self.shown.figures()

    def failure(self, error):
        """The traceback, without the frames of this file."""
        import traceback
        trace = error.__traceback__
        while trace and trace.tb_frame.f_code.co_filename == Interpreter.run.__code__.co_filename:
            trace = trace.tb_next
        return "".join(traceback.format_exception(type(error), error, trace))

    def outcome(self, request):
        """Runs the code, and returns how it ended."""
        try:
            try:
                self.running = True
                if "bash" in request:
                    self.shell(request["code"], request["env"])
                else:
                    self.evaluate(request["code"])
            finally:
                self.running = False
        except SystemExit as e:
            return ("exit", e) if "stream" not in request else ("error", e)
        except KeyboardInterrupt as e:
            return "interrupted", e
        except BaseException as e:
            return "error", e
        return "ok", None

    def run(self, request):
        most = request["most"]
        self.shown = Shown(most)
        status, error = self.outcome(request)
        answer = {"status": status}
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass  # the code replaced or closed it
        if error and status != "exit":
            answer["error"] = clipped(self.failure(error), most)
        if self.shown.texts:
            answer["value"] = clipped("\n".join(self.shown.texts), most)
        answer.update(images=self.shown.images, tables=self.shown.tables)
        return answer

    def stream(self, request):
        """The same for a caller that wants each result when it is there, with variables for this code only."""
        self.count += 1
        self.send({"event": "count", "count": self.count})
        self.shown = Display(self.send)
        env = {} if "bash" in request else request["env"]
        before = {name: os.environ.get(name) for name in env}
        os.environ.update(env)
        status, error = self.outcome(request)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if error:
            value = clipped(tried(str, error) or "", 64 << 10)
            is_status = isinstance(error, ExitStatus)  # told as the notebooks of bash do
            self.send({"event": "error", "name": "" if is_status else plain(type(error).__name__), "value": value,
                       "traceback": "" if is_status else clipped(self.failure(error), 256 << 10)})
        return {"status": status}

    def serve(self):
        for line in self.channel.makefile("r", encoding="utf-8"):
            request = json.loads(line)
            answer = self.stream(request) if "stream" in request else self.run(request)
            self.send(answer)
            if answer["status"] == "exit":
                os._exit(0)


def child(channel, heard, out, err):
    os.setpgid(0, 0)
    null = os.open(os.devnull, os.O_RDONLY)
    for fd, to in ((null, 0), (out, 1), (err, 2)):
        os.dup2(fd, to)
        os.close(fd)
    sys.stdin = open(0)
    sys.stdout, sys.stderr = (open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace") for fd in (1, 2))
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    os.environ.setdefault("MPLBACKEND", "Agg")
    Interpreter(channel, heard).serve()


# ---- the parent: exchanges lines ----

class Live:
    """Tells a stream as it is printed."""

    def __init__(self, parent, name):
        import codecs
        self.parent, self.name = parent, name
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, data, final=False):
        text = self.decoder.decode(data, final)
        if text:
            self.parent.tell({"id": self.parent.current["id"], "event": self.name, "text": plain(text)})

    def text(self):
        self.add(b"", True)
        return "", 0


class Parent:
    def __init__(self, source, sink):
        self.source, self.sink = source, sink
        self.rest, self.answer = b"", []
        self.waiting, self.current, self.stop = [], None, False
        ours, theirs = socket.socketpair()
        pipes = [os.pipe() for _ in range(2)]
        heard, self.hear = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            os.close(pipes[0][0])
            os.close(pipes[1][0])
            try:
                os.close(self.hear)
                child(theirs, heard, pipes[0][1], pipes[1][1])
            finally:
                os._exit(1)
        theirs.close()
        os.close(heard)
        self.channel = ours
        self.streams = [reading for reading, writing in pipes]
        for reading, writing in pipes:  # the parent keeps both ends, so that none reaches its end
            os.set_blocking(reading, False)
        self.outputs = [Clip(2), Clip(2)]

    def tell(self, answer):
        data = json.dumps(answer, allow_nan=False).encode("ascii") + b"\n"
        while data:
            data = data[os.write(self.sink, data):]

    def begin(self):
        while self.current is None and self.waiting:
            self.current = self.waiting.pop(0)
            if "ping" in self.current:
                self.tell({"id": self.current["id"], "status": "ok"})
                self.current = None
                continue
            self.drain()
            if "stream" in self.current:
                self.outputs = [Live(self, "stdout"), Live(self, "stderr")]
            else:
                self.outputs = [Clip(self.current["most"]), Clip(self.current["most"])]
            self.channel.sendall(json.dumps({k: v for k, v in self.current.items() if k != "id"}).encode("ascii") + b"\n")

    def end(self, answer):
        self.drain()
        for name, output in zip(("stdout", "stderr"), self.outputs):
            text, left_out = output.text()
            if "stream" not in self.current:
                answer[name], answer[name + "_left_out"], answer[name + "_bytes"] = text, left_out, output.total
        answer["id"] = self.current["id"]
        self.current, self.stop = None, False
        self.outputs = [Clip(2), Clip(2)]
        self.tell(answer)

    def drain(self):
        """Reads what is there; bounded, because other processes may go on writing."""
        for stream, output in zip(self.streams, self.outputs):
            for _ in range(64):
                try:
                    data = os.read(stream, 65536)
                except BlockingIOError:
                    break
                if not data:
                    break
                output.add(data)

    def take_line(self, line):
        try:
            request = json.loads(line.decode("utf-8"))
        except ValueError:
            return  # the rest of a line that a killed daemon began
        if "interrupt" not in request:
            self.waiting.append(request)
        else:
            self.stop = True

    def take_source(self):
        data = os.read(self.source, 65536)
        if not data:
            os.killpg(self.pid, signal.SIGKILL)
            raise SystemExit
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            self.take_line(line)

    def take_channel(self):
        try:
            data = self.channel.recv(1 << 16)
        except ConnectionError:
            data = b""
        if not data:
            self.died(os.waitpid(self.pid, 0)[1])
        self.answer.append(data)
        if b"\n" not in data:
            return
        *lines, rest = b"".join(self.answer).split(b"\n")
        self.answer = [rest]
        for line in lines:
            self.take_answer(json.loads(line.decode("ascii")))

    def take_answer(self, answer):
        if "event" in answer:
            self.drain()  # what was printed before comes first
            if self.current is not None:
                self.tell({**answer, "id": self.current["id"]})
            os.write(self.hear, b"\n")
            return
        if self.current is None:
            return
        self.end(answer)
        if answer["status"] == "exit":
            raise SystemExit

    def died(self, status):
        if self.current is not None:
            how = "signal %d" % os.WTERMSIG(status) if os.WIFSIGNALED(status) else "exit code %d" % os.WEXITSTATUS(status)
            self.end({"status": "died", "error": "the interpreter ended with " + how})
        raise SystemExit

    def serve(self):
        while True:
            wait = 0.5 if self.stop else 1 if self.current else None
            ready = select.select([self.source, self.channel] + self.streams, [], [], wait)[0]
            if self.channel in ready:
                self.take_channel()
            elif self.current:
                self.look()
            if self.source in ready:
                self.take_source()
            self.drain()
            self.begin()

    def look(self):
        """Interrupts the code again: it may have caught the first signal, or not begun yet."""
        # A process that the code forked may hold the channel open after the child has died.
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self.died(status)
        if self.stop:
            try:
                os.killpg(self.pid, signal.SIGINT)
            except ProcessLookupError:
                pass  # it has not begun its own group


signal.signal(signal.SIGINT, signal.SIG_IGN)
Parent(0, 1).serve()
