"""Connections and programs for asyncio; _io_sync.py has the same functions, which wait."""
import asyncio
import socket
import typing

from ._http import FULL_WAIT, Address, Limit, unreachable

PIECE = 256 << 10


class Stream:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: Limit):
        self._reader, self._writer, self._limit = reader, writer, limit

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await _within(self._limit, self._writer.drain())

    async def receive(self) -> bytes:
        return await _within(self._limit, self._reader.read(PIECE))

    def close(self) -> None:
        self._writer.transport.abort()  # close() would wait until the daemon has read everything


T = typing.TypeVar("T")


async def _within(limit: Limit, waiting: typing.Coroutine[typing.Any, typing.Any, T]) -> T:
    try:
        async with asyncio.timeout(limit.left()):
            return await waiting
    except TimeoutError as e:
        waiting.close()
        raise limit.passed() from e


async def connect(address: Address, timeout: float, limit: Limit) -> Stream:
    left = limit.left()
    is_limit = left is not None and left <= timeout
    try:
        async with asyncio.timeout(left if is_limit else timeout):
            return Stream(*await _open(address), limit)
    except OSError as e:  # a timeout is one too
        raise limit.passed() if is_limit and isinstance(e, TimeoutError) else unreachable(address, e) from e


async def _open(address: Address) -> typing.Tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if not address.path:
        return await asyncio.open_connection(address.host, address.port, ssl=address.tls)
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.setblocking(False)
        while True:
            try:
                sock.connect(address.path)
                return await asyncio.open_unix_connection(sock=sock)
            except BlockingIOError:  # the queue of the daemon is full, and asyncio takes that for a connection
                await asyncio.sleep(FULL_WAIT)
    except BaseException:
        sock.close()
        raise


async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def run_program(argv: typing.Sequence[str], env: typing.Mapping[str, str], limit: Limit) -> typing.Tuple[int, bytes, bytes]:
    """Exit status, standard output and standard error."""
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*argv, env=env, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    try:
        out, err = await _within(limit, child.communicate())
    except BaseException:
        child.kill()
        await child.wait()
        raise
    return child.returncode or 0, out, err
