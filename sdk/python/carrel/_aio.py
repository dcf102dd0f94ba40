"""The client for asyncio. sdk/generate makes _sync.py from this file: the same without waiting for others."""
import copy
import hashlib
import io
import json
import os
import posixpath
import re
import secrets
import tarfile
import time
import typing
import urllib.parse

from . import _http
from ._http import CarrelError, member
from ._io_async import Stream, connect, run_program, sleep
from ._operations import OPERATIONS
from ._result import Command, Contender, Result, Text, command_fields
from ._types import (ChangeSet, Diff, Entry, Exec, ExecEvent, Exposure, Grant, Machine as MachineView, MachineRequest,
                     PendingItem, Rule, Stats, Status, Step)


class AsyncClient:
    """A connection to one daemon. It keeps nothing but the address and the token.

    url: unix:PATH, http://HOST:PORT or https://HOST:PORT. Without it, CARREL_URL, or the socket of this user's daemon.
    token: the secret of a token, for a daemon on TCP. Without it, CARREL_TOKEN.
    wait: seconds to look for a daemon that has answered before and went away, for calls that can be repeated.
    timeout: seconds that a call may take, and that a stream may be silent; then TimeoutError is raised. None: no limit.

    >>> client = AsyncClient()
    >>> (await client.status())["version"]
    '0.1.0'
    >>> (await client.call("machine_show", machine=machine.id))["state"]
    'running'
    >>> (await client.with_timeout(10).status())["version"]
    '0.1.0'
    """

    def __init__(self, url: typing.Optional[str] = None, token: typing.Optional[str] = None, *,
                 connect_timeout: float = 30, wait: float = 30,
                 timeout: typing.Optional[float] = None):
        self.address = _http.parse_address(url) if url else _http.default_address()
        self._token = token or (None if url else os.environ.get("CARREL_TOKEN"))
        self._is_default, self._connect_timeout, self._wait, self._was_reached = url is None, connect_timeout, wait, False
        self._timeout = _http.checked_timeout(timeout)

    def with_timeout(self, seconds: typing.Optional[float]) -> "AsyncClient":
        """The same client with another time limit for its calls: client.with_timeout(5).status(). None: no limit."""
        other = copy.copy(self)
        other._timeout = _http.checked_timeout(seconds)
        return other

    def _target(self, operation: str, params: typing.Mapping[str, typing.Any]) -> typing.Tuple[str, str]:
        """The method, and the path with its query. A parameter that is a word of Python ends in `_`."""
        method, path, queries = _operation(operation)
        given = {name.rstrip("_"): value for name, value in params.items() if value is not None}
        for name in re.findall(r"\{(\w+)\}", path):
            if name not in given:
                raise TypeError(f"{operation} needs the parameter '{name}'")
            value = str(given.pop(name))
            if value in ("", ".", ".."):  # a proxy would read dots as another path
                raise ValueError(f"{operation}: '{name}' is empty" if not value else f"{operation}: '{name}' may not be '{value}'")
            path = path.replace("{" + name + "}", urllib.parse.quote(value, safe=""))
        if unknown := set(given) - set(queries):
            raise TypeError(f"{operation} has no parameter '{min(unknown)}'")
        words = {name: str(int(value)) if isinstance(value, bool) else str(value) for name, value in given.items()}
        return method, path + ("?" + urllib.parse.urlencode(words) if words else "")

    async def _open(self, operation: str, body: typing.Any, accept: str, params: typing.Mapping[str, typing.Any],
                    limit: _http.Limit) -> typing.Tuple[Stream, _http.Reader]:
        """Sends a request; the answer up to the end of its head."""
        method, target = self._target(operation, params)
        headers = {"Accept": accept}
        if self._token:
            headers["Authorization"] = "Bearer " + self._token
        data = bytes(body) if isinstance(body, (bytearray, memoryview)) else body
        if data is not None and not isinstance(data, bytes):
            data = json.dumps({k: v for k, v in body.items() if v is not None}).encode()
            headers["Content-Type"] = "application/json"
        stream = await connect(self.address, self._connect_timeout, limit)
        try:
            reader = _http.Reader()
            try:
                await stream.send(_http.request_bytes(self.address, method, target, headers, data))
            except ConnectionError:
                pass  # a daemon that refuses a long body answers before its end
            while not reader.status:
                reader.feed(await stream.receive())
            self._was_reached = True
            if reader.status >= 300:
                raise _http.refusal(reader.status, await self._rest(stream, reader, 1 << 20))
            return stream, reader
        except BaseException:
            stream.close()
            raise

    async def _rest(self, stream: Stream, reader: _http.Reader, limit: int) -> bytes:
        pieces, size = [reader.take()], 0
        while not reader.done:
            reader.feed(await stream.receive())
            pieces.append(reader.take())
            size += len(pieces[-1])
            if size > limit:
                raise CarrelError("limit", f"the answer is longer than {limit} bytes")
        return b"".join(pieces)

    async def _call(self, operation: str, body: typing.Any, params: typing.Mapping[str, typing.Any],
                    limit: _http.Limit) -> typing.Any:
        stream, reader = await self._open(operation, body, "*/*", params, limit)
        try:
            content = await self._rest(stream, reader, _http.BODY_MAX)
        finally:
            stream.close()
        is_json = reader.headers.get("content-type", "").startswith("application/json")
        return _http.parse_json(content) if is_json and content else content

    async def call(self, operation: str, body: typing.Any = None, **params: typing.Any) -> typing.Any:
        """Any operation of the API by its name: call("machine_show", machine="work"). JSON, or bytes.

        Reads, and requests with an idempotency key, are repeated while the daemon is restarted.
        """
        repeats = _operation(operation)[0] == "GET" or (isinstance(body, dict) and "key" in body)
        end = time.monotonic() + self._wait
        limit = _http.Limit(self._timeout, f"{operation}: the daemon at {self.address} did not complete its answer")
        while True:
            try:
                return await self._call(operation, body, params, limit)
            except ConnectionError:
                if not repeats or not self._was_reached or time.monotonic() >= end:
                    raise
            await sleep(0.2)

    async def pages(self, operation: str, rows: str, **params: typing.Any) -> typing.List[typing.Any]:
        """All rows of a list, whose pages are read one after the other: pages("step_list", "steps", machine="work")."""
        found: typing.List[typing.Any] = []
        cursor = None
        for _ in range(_http.PAGES_MAX):
            page = await self.call(operation, cursor=cursor, **params)
            found += member(page, rows, list)
            cursor = page.get("next")
            if not cursor:
                return found
        raise CarrelError("limit", f"{operation}: the answer has more than {_http.PAGES_MAX} pages")

    async def events(self, operation: str, body: typing.Any = None, **params: typing.Any) -> typing.AsyncIterator[typing.Any]:
        """The objects of an operation that streams, as they come."""
        accept = "application/x-ndjson, text/event-stream;q=0.9"
        if operation in ("exec", "run", "exec_events", "build_log"):
            accept = "application/x-ndjson"
        limit = _http.Limit(self._timeout, f"{operation}: nothing came from the daemon at {self.address}")
        stream, reader = await self._open(operation, body, accept, params, limit)
        try:
            lines = _http.Lines(reader.headers.get("content-type", "").startswith("text/event-stream"))
            while True:
                for item in lines.feed(reader.take()):
                    yield item
                if reader.done:
                    return
                limit.restart()
                reader.feed(await stream.receive())
        finally:
            stream.close()

    async def status(self) -> Status:
        """The status of the daemon and its host."""
        return typing.cast(Status, await self.call("status"))

    async def machines(self, **filters: typing.Any) -> typing.List["AsyncMachine"]:
        """All machines that fit: state, kind, name, meta, all. Pages are read one after the other."""
        return [AsyncMachine(self, view) for view in await self.pages("machine_list", "machines", **filters)]

    async def pending(self) -> typing.List[PendingItem]:
        """Requests and questions of machines that wait for a decision."""
        return typing.cast(typing.List[PendingItem], member(await self.call("pending_list"), "pending", list))

    async def program(self, *words: str) -> bytes:
        """Runs the program `carrel` on this host with this daemon; its standard output."""
        env = dict(os.environ)
        if not self._is_default:
            if self.address.path:
                env.pop("CARREL_URL", None)
                env["CARREL_RUN"] = posixpath.dirname(self.address.path)
            else:
                env["CARREL_URL"] = str(self.address)
        if self._token:
            env["CARREL_TOKEN"] = self._token
        name = os.environ.get("CARREL_PROGRAM", "carrel")
        try:
            limit = _http.Limit(self._timeout, f"carrel {words[0] if words else ''} did not end")
            status, out, err = await run_program([name, *words], env, limit)
        except FileNotFoundError as e:
            raise CarrelError("unsupported", "the program 'carrel' is not installed on this host") from e
        if status != 0:
            raise CarrelError("failed", err.decode(errors="replace").strip() or f"carrel exited with {status}")
        return out


class AsyncProcess:
    """A command that was started in the background.

    >>> process = await machine.start("cat; exit 3", stdin_open=True)
    >>> await process.write("words", eof=True)
    >>> (await process.wait())["status"], await process.output()
    (3, b'words')
    """

    def __init__(self, client: AsyncClient, view: Exec):
        self.client, self.view = client, view
        self.id, self.machine = member(view, "id", str), member(view, "machine", str)

    def with_timeout(self, seconds: typing.Optional[float]) -> "AsyncProcess":
        """The same process, whose calls have another time limit."""
        return AsyncProcess(self.client.with_timeout(seconds), self.view)

    def _words(self) -> typing.Dict[str, str]:
        return {"machine": self.machine, "exec": self.id}

    async def refresh(self) -> Exec:
        self.view = await self.client.call("exec_show", **self._words())
        return self.view

    async def events(self, stdout: int = 0, stderr: int = 0) -> typing.AsyncIterator[ExecEvent]:
        """Output from these offsets on, and then the end of the command."""
        async for event in self.client.events("exec_events", stdout=stdout, stderr=stderr, **self._words()):
            yield event

    async def wait(self) -> Exec:
        """The command once it has ended, also across a restart of the daemon."""
        while (await self.refresh())["state"] in ("starting", "running"):
            try:
                async for event in self.client.events("exec_events", output=False, **self._words()):
                    del event
            except ConnectionError:
                await sleep(0.2)
        return self.view

    async def output(self, stream: str = "stdout", offset: int = 0, limit: typing.Optional[int] = None) -> bytes:
        return typing.cast(bytes, await self.client.call("exec_output", stream=stream, offset=offset, limit=limit, **self._words()))

    async def write(self, data: Text, *, eof: bool = False) -> None:
        """Writes to standard input; the command must have been started with stdin_open=True."""
        data = data.encode() if isinstance(data, str) else data
        await self.client.call("exec_stdin", data, eof=eof, **self._words())

    async def signal(self, name: str) -> None:
        await self.client.call("exec_signal", {"signal": name}, **self._words())

    async def kill(self) -> None:
        await self.client.call("exec_kill", **self._words())


class AsyncFiles:
    """Files of a machine. Paths are absolute; `user` is who reads or writes (default: the image's user).

    >>> await machine.files.mkdir("/home/user/work")
    >>> await machine.files.write("/home/user/work/note", "text")
    >>> await machine.files.read_text("/home/user/work/note")
    'text'
    >>> [entry["name"] for entry in await machine.files.list("/home/user/work")]
    ['note']
    >>> await machine.files.exists("/home/user/none")
    False
    """

    def __init__(self, machine: "AsyncMachine"):
        self._machine = machine

    async def _call(self, operation: str, body: typing.Any = None, **params: typing.Any) -> typing.Any:
        return await self._machine.client.call(operation, body, machine=self._machine.id, **params)

    async def read(self, path: str, user: typing.Optional[str] = None) -> bytes:
        return typing.cast(bytes, await self._call("file_read", path=path, user=user))

    async def read_text(self, path: str, user: typing.Optional[str] = None) -> str:
        return (await self.read(path, user)).decode()

    async def write(self, path: str, data: Text, **params: typing.Any) -> None:
        """Writes the whole file, or nothing. params: user, mode, if_hash, sync, offset."""
        await self._call("file_write", data.encode() if isinstance(data, str) else data, path=path, **params)

    async def list(self, path: str, user: typing.Optional[str] = None) -> typing.List[Entry]:
        return await self._machine.client.pages("file_list", "entries", machine=self._machine.id, path=path, user=user)

    async def stat(self, path: str, *, follow: bool = False, user: typing.Optional[str] = None) -> Entry:
        return typing.cast(Entry, await self._call("file_stat", path=path, follow=follow, user=user))

    async def exists(self, path: str) -> bool:
        try:
            await self.stat(path)
        except CarrelError as e:
            if e.code != "not_found":
                raise
            return False
        return True

    async def mkdir(self, path: str, user: typing.Optional[str] = None) -> None:
        """Makes a directory and the missing ones above it."""
        await self._call("file_mkdir", {"path": path, "user": user})

    async def move(self, source: str, target: str, user: typing.Optional[str] = None) -> None:
        await self._call("file_move", {"from": source, "to": target, "user": user})

    async def remove(self, path: str, *, recursive: bool = False, user: typing.Optional[str] = None) -> None:
        await self._call("file_remove", path=path, recursive=recursive, user=user)

    async def read_tar(self, path: str, user: typing.Optional[str] = None) -> bytes:
        """A directory and everything below it as a tar archive."""
        return typing.cast(bytes, await self._call("tar_read", path=path, user=user))

    async def write_tar(self, path: str, archive: bytes, user: typing.Optional[str] = None) -> None:
        await self._call("tar_write", archive, path=path, user=user)

    async def watch(self, path: str) -> typing.AsyncIterator[typing.Any]:
        """Changes of a file or a directory, as they happen."""
        async for event in self._machine.client.events("file_watch", machine=self._machine.id, path=path):
            yield event


class AsyncMachine:
    """A computer for an agent. `view` is what the daemon said of it last; refresh() asks again.

    >>> async with await AsyncMachine.create(limits={"mem": "256M"}, ttl="1h") as one:
    ...     print((await one.exec("echo hello")).check().stdout)
    hello
    <BLANKLINE>
    """

    def __init__(self, client: AsyncClient, view: MachineView):
        self.client, self.view, self.id = client, view, member(view, "id", str)
        self.files = AsyncFiles(self)

    def __repr__(self) -> str:
        return f"<machine {self.id} {self.view['state']}>"

    def with_timeout(self, seconds: typing.Optional[float]) -> "AsyncMachine":
        """The same machine, whose calls have another time limit. A command that a call waited for goes on.

        >>> try:
        ...     await machine.with_timeout(0.5).exec("sleep 1000")
        ... except TimeoutError as error:
        ...     print(str(error).rpartition(" the daemon at ")[0], "...", str(error).split()[-2:])
        exec: ... ['0.5', 's']
        """
        return AsyncMachine(self.client.with_timeout(seconds), self.view)

    async def __aenter__(self) -> "AsyncMachine":
        return self

    async def __aexit__(self, *exc: typing.Any) -> None:
        await self.destroy()

    @classmethod
    async def create(cls, client: typing.Optional[AsyncClient] = None, **fields: typing.Any) -> "AsyncMachine":
        """A new machine. Fields are those of MachineRequest: name, image, limits, ttl, net, env, ..."""
        client = client or AsyncClient()
        request: MachineRequest = typing.cast(MachineRequest, {"key": secrets.token_hex(16), **fields})
        return cls(client, await client.call("machine_create", request))

    @classmethod
    async def get(cls, ref: str, client: typing.Optional[AsyncClient] = None) -> "AsyncMachine":
        """The machine with this id, name or unique prefix of the id."""
        client = client or AsyncClient()
        return cls(client, await client.call("machine_show", machine=ref))

    @staticmethod
    async def run(command: Command, client: typing.Optional[AsyncClient] = None, *,
                  machine: typing.Optional[MachineRequest] = None, **fields: typing.Any) -> Result:
        """Runs one command in a new machine, which is destroyed afterwards. Fields are those of ExecRequest.

        >>> (await AsyncMachine.run(["echo", "hello"])).status
        0
        """
        client = client or AsyncClient()
        body = {"exec": {**command_fields(command, fields)}, "machine": machine or {}}
        return Result(await client.call("run", body))

    @classmethod
    async def cell(cls, programs: typing.Mapping[str, bytes], client: typing.Optional[AsyncClient] = None,
                   **fields: typing.Any) -> "AsyncMachine":
        """A machine of the kind cell with these WebAssembly programs (binary or text) in /bin, by name.

        >>> async with await AsyncMachine.cell({"quiet": b'(module (memory (export "memory") 1) (func (export "_start")))'}) as cell:
        ...     (await cell.exec(["quiet"])).status
        0
        """
        client = client or AsyncClient()
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for name, program in sorted(programs.items()):
                entry = tarfile.TarInfo(f"bin/{name}.wasm")
                entry.size, entry.mode = len(program), 0o755
                tar.addfile(entry, io.BytesIO(program))
        archive = out.getvalue()
        image = "cell-" + hashlib.sha256(archive).hexdigest()[:16]
        await client.call("image_import", archive, name=image)
        return await cls.create(client, kind="cell", image=image, **fields)

    async def _call(self, operation: str, body: typing.Any = None, **params: typing.Any) -> typing.Any:
        return await self.client.call(operation, body, machine=self.id, **params)

    async def refresh(self) -> MachineView:
        self.view = await self._call("machine_show")
        return self.view

    async def update(self, **fields: typing.Any) -> MachineView:
        """Changes limits, ttl, idle, idle_action, name or metadata."""
        self.view = await self._call("machine_update", fields)
        return self.view

    async def destroy(self) -> None:
        """Deletes the machine. It is no error if it has ended."""
        try:
            self.view = await self._call("machine_destroy")
        except CarrelError as e:
            if e.code not in ("not_found", "gone"):
                raise

    async def pause(self) -> None:
        self.view = await self._call("machine_pause")

    async def resume(self) -> None:
        self.view = await self._call("machine_resume")

    async def stop(self) -> None:
        self.view = await self._call("machine_stop")

    async def stats(self) -> Stats:
        return typing.cast(Stats, await self._call("machine_stats"))

    # ---- commands ----

    async def exec(self, command: Command, **fields: typing.Any) -> Result:
        """Runs a command and waits for its end. Fields are those of ExecRequest: env, cwd, user, stdin, timeout, ..."""
        body = {"key": secrets.token_hex(16), **command_fields(command, fields)}
        return Result(await self._call("exec", body))

    async def stream(self, command: Command, **fields: typing.Any) -> typing.AsyncIterator[ExecEvent]:
        """Runs a command; the events start, stdout, stderr, gap and exit as they come.

        >>> async for event in machine.stream("echo one; exit 4"):
        ...     print(event["type"], event["exec"]["status"] if event["type"] == "exit" else "")
        start
        stdout
        exit 4
        """
        body = {**command_fields(command, fields)}
        async for event in self.client.events("exec", body, machine=self.id):
            yield event

    async def start(self, command: Command, **fields: typing.Any) -> AsyncProcess:
        """Starts a command in the background."""
        body = {"key": secrets.token_hex(16), **command_fields(command, fields), "background": True}
        return AsyncProcess(self.client, await self._call("exec", body))

    # ---- steps ----

    async def snapshot(self, name: typing.Optional[str] = None) -> Step:
        """Takes a step: rewind() returns to it, fork() starts there."""
        return typing.cast(Step, await self._call("snap", {"name": name}))

    async def steps(self) -> typing.List[Step]:
        """The steps, newest first."""
        return await self.client.pages("step_list", "steps", machine=self.id)

    async def rewind(self, step: typing.Union[str, int, Step], **fields: typing.Any) -> Step:
        """Returns to a step: its number, id or name, or `last`. The present state is kept as a step.

        >>> good = await machine.snapshot()
        >>> _ = await machine.exec("echo wrong >state")
        >>> [(change["path"], change["change"]) for change in (await machine.diff(good))["changes"]]
        [('home/user/state', 'added')]
        >>> _ = await machine.rewind(good)
        >>> await machine.files.exists("/home/user/state")
        False
        """
        return typing.cast(Step, await self._call("rewind", {"step": _step(step), **fields}))

    async def fork(self, count: int = 1, step: typing.Union[str, int, Step, None] = None,
                   **fields: typing.Any) -> typing.List["AsyncMachine"]:
        """New machines from a step, or from the present state: all of them, or none if one fails.

        >>> for fork in await machine.fork(2):
        ...     async with fork:
        ...         (await fork.exec("exit 0")).status
        0
        0
        """
        body = {"count": count, "step": None if step is None else _step(step), "key": secrets.token_hex(16), **fields}
        return [AsyncMachine(self.client, view) for view in member(await self._call("fork", body), "machines", list)]

    async def tournament(self, command: Command, score: Command, count: int = 2, *,
                         step: typing.Union[str, int, Step, None] = None, keep_best: bool = True) -> typing.List[Contender]:
        """Runs a command in each of `count` forks at the same time, then `score` in each; the best one first.

        The score is the last number that `score` prints. With keep_best the other forks are destroyed, if one has a
        score. After an error all of them are.

        >>> best = (await machine.tournament("echo $RANDOM >luck", "cat luck", count=3))[0]
        >>> best.score >= 0
        True
        >>> await best.machine.destroy()
        """
        forks = await self.fork(count, step)
        try:
            rows = await self._compete(forks, command, score)
        except BaseException:
            for machine in forks:
                try:
                    await machine.destroy()
                except (CarrelError, OSError):
                    pass  # the first error is the one to show
            raise
        rows.sort(key=lambda row: float("-inf") if row.score is None else row.score, reverse=True)
        if keep_best and rows and rows[0].score is not None:
            for row in rows[1:]:
                await row.machine.destroy()
        return rows

    @staticmethod
    async def _compete(forks: typing.List["AsyncMachine"], command: Command, score: Command) -> typing.List[Contender]:
        started = []
        for machine in forks:
            started.append(await machine.start(command))
        rows = []
        for machine, process in zip(forks, started):
            status = (await process.wait())["status"]
            told = await machine.exec(score)
            numbers = re.findall(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?", told.stdout)
            rows.append(Contender(machine, status, float(numbers[-1]) if told.status == 0 and numbers else None))
        return rows

    # ---- review ----

    async def diff(self, from_: typing.Union[str, int, Step, None] = None, to: typing.Union[str, int, Step, None] = None,
                   **params: typing.Any) -> Diff:
        """Changes of files between two steps (default: from the start of the machine until now). params: path, context, brief, ..."""
        ends = {"from": None if from_ is None else _step(from_), "to": None if to is None else _step(to)}
        return typing.cast(Diff, await self._call("diff", **ends, **params))

    async def freeze(self, path: typing.Optional[str] = None) -> ChangeSet:
        """Freezes a directory (default: /outbox) as a change set, which no longer follows the machine."""
        return typing.cast(ChangeSet, await self._call("freeze", {"path": path}))

    async def ship(self, path: str, target: str) -> typing.Any:
        """Copies a directory of the machine to a directory of this host, as `carrel ship -y` does; what it printed.

        The program `carrel` writes the files, with your rights: it refuses links that lead out and keeps a receipt,
        so that `carrel ship --undo` can take it back.

        >>> _ = await machine.exec("mkdir -p out; echo done >out/report")
        >>> _ = await machine.ship("/home/user/out", directory)
        >>> open(directory + "/report").read()
        'done\\n'
        """
        out = await self.client.program("ship", "-y", "--json", f"{self.id}:{path}", target)
        return json.loads(out)

    async def pending(self) -> typing.List[PendingItem]:
        """Requests and questions of this machine that wait for a decision."""
        return [item for item in await self.client.pending() if item["machine"] == self.id]

    async def approve(self, item: typing.Union[str, PendingItem], *, always: bool = False,
                      ttl: typing.Union[str, float, None] = None) -> typing.Any:
        """Approves a pending request; always: also adds the rule that the item shows.

        >>> for item in await machine.pending():
        ...     _ = await machine.approve(item)
        """
        return await self._decide(item, {"decision": "approve", "always": always or None, "ttl": ttl})

    async def deny(self, item: typing.Union[str, PendingItem]) -> typing.Any:
        return await self._decide(item, {"decision": "deny"})

    async def answer(self, item: typing.Union[str, PendingItem], text: str) -> typing.Any:
        """Answers a question that a program of the machine asks."""
        return await self._decide(item, {"decision": "answer", "text": text})

    async def _decide(self, item: typing.Union[str, PendingItem], body: typing.Mapping[str, typing.Any]) -> typing.Any:
        return await self.client.call("pending_decide", body, item=item if isinstance(item, str) else item["id"])

    # ---- the world outside ----

    async def allow(self, target: str, action: str = "allow", **fields: typing.Any) -> typing.List[Rule]:
        """Adds a network rule; the rules of the machine. action: allow, deny or ask."""
        body = {"target": target, "action": action, **fields}
        return typing.cast(typing.List[Rule], member(await self._call("net_add", body), "rules", list))

    async def grant(self, kind: str, what: str, **fields: typing.Any) -> typing.List[Grant]:
        """Adds a grant, such as a secret; the grants of the machine."""
        added = await self._call("grant_add", {"kind": kind, "what": what, **fields})
        return typing.cast(typing.List[Grant], member(added, "grants", list))

    async def expose(self, port: int) -> Exposure:
        """Exposes a port of the machine; `url` opens it in a browser, and port_request() is for programs.

        >>> port = await machine.expose(8000)
        >>> port["url"].startswith("http://8000-")
        True
        >>> port_request(port, "/a").full_url == port["direct_url"] + "a"
        True
        """
        return typing.cast(Exposure, await self._call("expose", {"port": port}))

    async def unexpose(self, port: int) -> None:
        await self._call("expose_remove", port=port)


def _operation(name: str) -> typing.Tuple[str, str, typing.Tuple[str, ...]]:
    if name not in OPERATIONS:
        raise TypeError(f"the API has no operation '{name}'")
    return OPERATIONS[name]


def _step(step: typing.Union[str, int, Step]) -> str:
    return step["id"] if isinstance(step, dict) else str(step)
