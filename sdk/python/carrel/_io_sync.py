"""Connections and programs that wait; _io_async.py has the same functions for asyncio."""
import socket
import subprocess
import time
import typing

from ._http import Address, unreachable

PIECE = 256 << 10


class Stream:
    def __init__(self, sock: socket.socket):
        self._sock = sock

    def send(self, data: bytes) -> None:
        self._sock.sendall(data)

    def receive(self) -> bytes:
        return self._sock.recv(PIECE)

    def close(self) -> None:
        self._sock.close()


def connect(address: Address, timeout: float) -> Stream:
    try:
        return Stream(_open(address, timeout))
    except OSError as e:
        raise unreachable(address, e) from e


def _open(address: Address, timeout: float) -> socket.socket:
    if address.path:
        sock = socket.socket(socket.AF_UNIX)
    else:
        sock = socket.create_connection((address.host, address.port), timeout)
    try:
        if address.path:
            sock.connect(address.path)
        elif address.tls:
            sock = address.tls.wrap_socket(sock, server_hostname=address.host)
        sock.settimeout(None)
        return sock
    except BaseException:
        sock.close()
        raise


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def run_program(argv: typing.Sequence[str], env: typing.Mapping[str, str]) -> typing.Tuple[int, bytes, bytes]:
    """Exit status, standard output and standard error."""
    done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True)
    return done.returncode, done.stdout, done.stderr
