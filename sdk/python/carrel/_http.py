"""HTTP/1.1 as the daemon speaks it, without input and output: bytes of a request, and an answer from bytes.

Both clients use it, the one that waits (_io_sync.py) and the one for asyncio (_io_async.py). Sizes that the other
side chooses have limits.
"""
import json
import os
import pathlib
import re
import ssl
import time
import typing
import urllib.parse

HEAD_MAX = 64 << 10
LINE_MAX = 32 << 20
BODY_MAX = 512 << 20
PAGES_MAX = 10_000
TIMEOUT_MAX = 1e9
FULL_WAIT = 0.02  # seconds between two tries while a socket has no room for another client


class CarrelError(Exception):
    """The daemon refused or failed: `code` (such as not_found) says how, `remedy` what to do."""

    def __init__(self, code: str, message: str, remedy: str = "", status: int = 0):
        super().__init__(message + (f" ({remedy})" if remedy else ""))
        self.code, self.message, self.remedy, self.status = code, message, remedy, status


class Limit:
    """The seconds that a call may take; None is no limit. A stream has them anew for each piece of it."""

    def __init__(self, seconds: typing.Optional[float], what: str):
        self._seconds, self._what = seconds, what
        self.restart()

    def restart(self) -> None:
        self._end = None if self._seconds is None else time.monotonic() + self._seconds

    def left(self) -> typing.Optional[float]:
        """Seconds that are left. It raises TimeoutError if none are."""
        if self._end is None:
            return None
        left = self._end - time.monotonic()
        if left <= 0:
            raise self.passed()
        return left

    def passed(self) -> OSError:
        if self._seconds is None:  # the kernel has given the connection up
            return ConnectionError(f"{self._what}: the connection timed out")
        return TimeoutError(f"{self._what} within {self._seconds:g} s")


def checked_timeout(seconds: typing.Optional[float]) -> typing.Optional[float]:
    if seconds is not None and not 0 < seconds <= TIMEOUT_MAX:
        raise ValueError(f"timeout: {seconds} is not a number of seconds greater than 0; None is no limit")
    return seconds


class Address(typing.NamedTuple):
    """Where a daemon listens: the path of a unix socket, or a host and a port."""
    path: str
    host: str
    port: int
    tls: typing.Optional[ssl.SSLContext]
    prefix: str  # of every path, for a daemon behind a proxy

    def authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return self.path or f"{'https' if self.tls else 'http'}://{self.authority()}{self.prefix}"


def parse_address(url: str) -> Address:
    if url.startswith(("unix:/", "unix:///")):
        return Address(url.removeprefix("unix:").removeprefix("//"), "carrel", 0, None, "")
    parts = urllib.parse.urlsplit(url)
    if (parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username
            or not re.fullmatch(r"[!-~]*", parts.path)):
        raise ValueError(f"'{url}' is not unix:PATH, http://HOST:PORT or https://HOST:PORT")
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    return Address("", parts.hostname, parts.port or (443 if tls else 80), tls, parts.path.rstrip("/"))


def unreachable(address: Address, why: OSError) -> ConnectionError:
    reason = "it does not answer" if isinstance(why, TimeoutError) else why.strerror or str(why)
    return ConnectionError(f"cannot reach the daemon at {address}: {reason} (`carrel serve` starts one on this host)")


def own_socket() -> str:
    """The socket of this user's daemon, or of root's daemon if only that one runs."""
    if run := os.environ.get("CARREL_RUN"):
        return run + "/carrel.sock"
    root = "/run/carrel/carrel.sock"
    if os.geteuid() == 0:
        return root
    base = os.environ.get("XDG_RUNTIME_DIR")
    places = [f"{base}/carrel"] if base else [f"/run/user/{os.geteuid()}/carrel", f"/tmp/carrel-{os.geteuid()}"]
    own = [place + "/carrel.sock" for place in places]
    return next((path for path in [*own, root] if pathlib.Path(path).exists()), own[0])


def default_address() -> Address:
    url = os.environ.get("CARREL_URL")
    return parse_address(url or "unix:" + own_socket())


def request_bytes(address: Address, method: str, target: str, headers: typing.Mapping[str, str],
                  body: typing.Optional[bytes]) -> bytes:
    host = "carrel" if address.path else address.authority()
    lines = [f"{method} {address.prefix}{target} HTTP/1.1", f"Host: {host}", "Connection: close"]
    for name, value in headers.items():
        if any(c in name + value for c in "\r\n\0"):
            raise ValueError(f"the header {name} contains a control character")
        lines.append(f"{name}: {value}")
    if body is not None or method in ("POST", "PUT", "PATCH"):
        lines.append(f"Content-Length: {len(body or b'')}")
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


class Reader:
    """An answer from the bytes that come: feed() them, then take() what is there of the body."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: typing.Dict[str, str] = {}
        self.done = False
        self._buffer = b""
        self._left: typing.Optional[int] = None  # bytes of the body or of the chunk; None: until the end
        self._chunked = self._in_chunk = False

    def feed(self, data: bytes) -> None:
        """No bytes: the other side has closed the connection."""
        if not data:
            if not self.status or self._chunked or self._left:
                raise ConnectionError("the daemon closed the connection before the end of its answer")
            self.done = True
        self._buffer += data
        if not self.status:
            self._head()

    def _head(self) -> None:
        while not self.status:
            head, found, rest = self._buffer.partition(b"\r\n\r\n")
            if len(head) > HEAD_MAX:
                raise ConnectionError("the head of the answer is too long")
            if not found:
                return
            first, *lines = head.decode("latin-1").split("\r\n")
            words = re.match(r"HTTP/1\.\d ([1-9]\d\d)(?: |$)", first, re.A)
            if not words:
                raise ConnectionError("the answer is not HTTP")
            self._buffer = rest
            if not words[1].startswith("1"):  # 1xx come before the answer
                self.status = int(words[1])
        for line in lines:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        self._chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        if not self._chunked and "content-length" in self.headers:
            self._left = _size(self.headers["content-length"], 10)
            self.done = self._left == 0

    def take(self) -> bytes:
        """The bytes of the body that have come since."""
        if not self.status:
            return b""
        if self._chunked:
            return self._take_chunks()
        if self._left is None:
            piece, self._buffer = self._buffer, b""
            return piece
        piece, self._buffer = self._buffer[:self._left], b""
        self._left -= len(piece)
        self.done = self._left == 0
        return piece

    def _take_chunks(self) -> bytes:
        pieces, data, at = [], self._buffer, 0
        while not self.done:
            if self._in_chunk:
                piece = data[at:at + (self._left or 0)]
                pieces.append(piece)
                at += len(piece)
                self._left = (self._left or 0) - len(piece)
                if self._left or len(data) - at < 2:
                    break
                at, self._in_chunk = at + 2, False
            end = data.find(b"\r\n", at)
            if (len(data) if end < 0 else end) - at > 1024:
                raise ConnectionError("the size of a chunk is not readable")
            if end < 0:
                break
            self._left = _size(data[at:end].split(b";")[0].decode("latin-1").strip(), 16)
            self.done, self._in_chunk, at = self._left == 0, True, end + 2
        self._buffer = data[at:]
        return b"".join(pieces)


def _size(text: str, base: int) -> int:
    """int() alone would also take signs, blanks and thousands of digits."""
    if not re.fullmatch(r"[0-9]{1,18}" if base == 10 else r"[0-9a-fA-F]{1,15}", text):
        raise ConnectionError("the answer has a size that is not a number")
    return int(text, base)


def parse_json(content: bytes) -> typing.Any:
    """An object, which is what every JSON answer and every event is."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as e:
        raise CarrelError("unknown", f"the daemon's answer is not JSON: {e}") from e
    if not isinstance(found, dict):
        raise CarrelError("unknown", "the daemon's answer is not a JSON object")
    return found


def member(view: typing.Any, name: str, kind: type) -> typing.Any:
    """A member of an answer that we cannot do without."""
    value = view.get(name) if isinstance(view, dict) else None
    if not isinstance(value, kind):
        raise CarrelError("unknown", f"the daemon's answer has no usable '{name}': is this a Carrel daemon of this version?")
    return value


class Lines:
    """JSON objects from the bytes of a stream: one per line, or one per `data` of an event."""

    def __init__(self, events: bool):
        self._events, self._rest = events, bytearray()

    def feed(self, data: bytes) -> typing.List[typing.Any]:
        self._rest += data
        lines: typing.List[bytes] = []
        if b"\n" in data:
            *lines, last = bytes(self._rest).split(b"\n")
            self._rest = bytearray(last)
        if len(self._rest) > LINE_MAX:
            raise ConnectionError("a line of the stream is too long")
        if self._events:
            lines = [line[5:].strip() for line in lines if line.startswith(b"data:")]
        return [parse_json(line) for line in lines if line.strip()]


def refusal(status: int, content: bytes) -> CarrelError:
    try:
        error = member(parse_json(content), "error", dict)
        return CarrelError(member(error, "code", str), member(error, "message", str), str(error.get("remedy") or ""), status)
    except CarrelError:
        return CarrelError("unknown", f"the daemon answered {status}", "", status)
