"""Connections and programs for asyncio; _io_sync.py has the same functions, which wait."""
import asyncio
import typing

from ._http import Address, unreachable

PIECE = 256 << 10


class Stream:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._reader, self._writer = reader, writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def receive(self) -> bytes:
        return await self._reader.read(PIECE)

    def close(self) -> None:
        self._writer.close()


async def connect(address: Address, timeout: float) -> Stream:
    if address.path:
        opening = asyncio.open_unix_connection(address.path)
    else:
        opening = asyncio.open_connection(address.host, address.port, ssl=address.tls)
    try:
        return Stream(*await asyncio.wait_for(opening, timeout))
    except OSError as e:  # a timeout is one too
        raise unreachable(address, e) from e


async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def run_program(argv: typing.Sequence[str], env: typing.Mapping[str, str]) -> typing.Tuple[int, bytes, bytes]:
    """Exit status, standard output and standard error."""
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*argv, env=env, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    out, err = await child.communicate()
    return child.returncode or 0, out, err
