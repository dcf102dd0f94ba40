"""Connections and programs that wait; _io_async.py has the same functions for asyncio."""
import socket
import subprocess
import time
import typing

from ._http import FULL_WAIT, Address, Limit, unreachable

PIECE = 256 << 10


class Stream:
    def __init__(self, sock: socket.socket, limit: Limit):
        self._sock, self._limit = sock, limit

    def send(self, data: bytes) -> None:
        self._sock.settimeout(self._limit.left())
        try:
            self._sock.sendall(data)
        except TimeoutError as e:
            raise self._limit.passed() from e

    def receive(self) -> bytes:
        self._sock.settimeout(self._limit.left())
        try:
            return self._sock.recv(PIECE)
        except TimeoutError as e:
            raise self._limit.passed() from e

    def close(self) -> None:
        self._sock.close()


def connect(address: Address, timeout: float, limit: Limit) -> Stream:
    left = limit.left()
    is_limit = left is not None and left <= timeout
    try:
        return Stream(_open(address, left if is_limit else timeout), limit)
    except OSError as e:
        raise limit.passed() if is_limit and isinstance(e, TimeoutError) else unreachable(address, e) from e


def _open(address: Address, timeout: typing.Optional[float]) -> socket.socket:
    if address.path:
        return _open_path(address.path, timeout)
    sock = socket.create_connection((address.host, address.port), timeout)
    try:
        return address.tls.wrap_socket(sock, server_hostname=address.host) if address.tls else sock
    except BaseException:
        sock.close()
        raise


def _open_path(path: str, timeout: typing.Optional[float]) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    end = None if timeout is None else time.monotonic() + timeout
    try:
        sock.settimeout(timeout)
        while True:
            try:
                sock.connect(path)
                return sock
            except BlockingIOError:  # the queue of the daemon is full, and poll() cannot wait for room
                if end is not None and time.monotonic() >= end:
                    raise TimeoutError from None
                time.sleep(FULL_WAIT)
    except BaseException:
        sock.close()
        raise


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def run_program(argv: typing.Sequence[str], env: typing.Mapping[str, str], limit: Limit) -> typing.Tuple[int, bytes, bytes]:
    """Exit status, standard output and standard error."""
    try:
        done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit.left())
    except subprocess.TimeoutExpired as e:
        raise limit.passed() from e
    return done.returncode, done.stdout, done.stderr
