"""HTTP/1.1 as the daemon speaks it, without input and output: bytes of a request, and an answer from bytes.

Both clients use it, the one that waits (_io_sync.py) and the one for asyncio (_io_async.py). Sizes that the other
side chooses have limits.
"""
import json
import os
import pathlib
import ssl
import typing
import urllib.parse

HEAD_MAX = 64 << 10
LINE_MAX = 32 << 20
BODY_MAX = 512 << 20


class CarrelError(Exception):
    """The daemon refused or failed: `code` (such as not_found) says how, `remedy` what to do."""

    def __init__(self, code: str, message: str, remedy: str = "", status: int = 0):
        super().__init__(message + (f" ({remedy})" if remedy else ""))
        self.code, self.message, self.remedy, self.status = code, message, remedy, status


class Address(typing.NamedTuple):
    """Where a daemon listens: the path of a unix socket, or a host and a port."""
    path: str
    host: str
    port: int
    tls: typing.Optional[ssl.SSLContext]
    prefix: str  # of every path, for a daemon behind a proxy

    def __str__(self) -> str:
        return self.path or f"{'https' if self.tls else 'http'}://{self.host}:{self.port}{self.prefix}"


def parse_address(url: str) -> Address:
    if url.startswith("unix:"):
        return Address(url.removeprefix("unix:").removeprefix("//"), "carrel", 0, None, "")
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
        raise ValueError(f"'{url}' is not unix:PATH, http://HOST:PORT or https://HOST:PORT")
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    return Address("", parts.hostname, parts.port or (443 if tls else 80), tls, parts.path.rstrip("/"))


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
    host = "carrel" if address.path else f"{address.host}:{address.port}"
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
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if len(head) > HEAD_MAX:
            raise ConnectionError("the head of the answer is too long")
        if not found:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        words = first.split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
            raise ConnectionError("the answer is not HTTP")
        self._buffer = rest
        if 100 <= int(words[1]) < 200:
            return self._head()
        self.status = int(words[1])
        for line in lines:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        self._chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        if not self._chunked and "content-length" in self.headers:
            self._left = int(self.headers["content-length"])
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
        pieces = []
        while not self.done:
            if self._in_chunk:
                piece = self._buffer[:self._left]
                pieces.append(piece)
                self._buffer = self._buffer[len(piece):]
                self._left = (self._left or 0) - len(piece)
                if self._left or len(self._buffer) < 2:
                    break
                self._buffer, self._in_chunk = self._buffer[2:], False
            line, found, rest = self._buffer.partition(b"\r\n")
            if len(line) > 1024:
                raise ConnectionError("the size of a chunk is not readable")
            if not found:
                break
            self._left = int(line.split(b";")[0], 16)
            if self._left == 0:
                self.done = True
            self._in_chunk, self._buffer = True, rest
        return b"".join(pieces)


class Lines:
    """JSON objects from the bytes of a stream: one per line, or one per `data` of an event."""

    def __init__(self, events: bool):
        self._events, self._rest = events, b""

    def feed(self, data: bytes) -> typing.List[typing.Any]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE_MAX:
            raise ConnectionError("a line of the stream is too long")
        if self._events:
            lines = [line[5:].strip() for line in lines if line.startswith(b"data:")]
        return [json.loads(line) for line in lines if line.strip()]


def refusal(status: int, content: bytes) -> CarrelError:
    try:
        error = json.loads(content)["error"]
        return CarrelError(error["code"], error["message"], error.get("remedy", ""), status)
    except (ValueError, KeyError, TypeError):
        return CarrelError("unknown", f"the daemon answered {status}", "", status)
