"""Results of commands, which both clients give."""
import base64
import os
import typing
import urllib.request

from ._http import CarrelError, member
from ._types import Exec, ExecEvent, Exposure, Result as ResultView

Text = typing.Union[str, bytes]
Command = typing.Union[str, typing.Sequence[typing.Union[str, "os.PathLike[str]"]]]


def command_fields(command: Command, fields: typing.Mapping[str, typing.Any]) -> typing.Dict[str, typing.Any]:
    """A text is a line for the shell, a list is a program and its arguments. `stdin` may be bytes."""
    if "background" in fields:
        raise TypeError("start() starts a command in the background")
    if isinstance(command, str):
        found: typing.Dict[str, typing.Any] = {"command": command, **fields}
    elif isinstance(command, (list, tuple)):
        found = {"argv": [os.fspath(word) if isinstance(word, os.PathLike) else word for word in command], **fields}
    else:
        raise TypeError(f"a command is a text or a list of texts, not {type(command).__name__}")
    if isinstance(found.get("stdin"), (bytes, bytearray, memoryview)):
        found["stdin_base64"] = base64.b64encode(found.pop("stdin")).decode()
    return found


def _output(view: typing.Any, name: str) -> bytes:
    if name + "_base64" not in view:
        return str(view.get(name, "")).encode()
    try:
        return base64.b64decode(view[name + "_base64"], validate=True)
    except (ValueError, TypeError) as e:
        raise CarrelError("unknown", f"the daemon's answer has no usable '{name}_base64': {e}") from e


def event_bytes(event: ExecEvent) -> bytes:
    """The output in an event of the type stdout or stderr."""
    return _output(event, "data")


def port_request(exposure: Exposure, path: str = "", **fields: typing.Any) -> urllib.request.Request:
    """A request of a program to a port that expose() gave, for urllib.request.urlopen().

    The fields are those of urllib.request.Request, such as `data`, `headers` and `method`.
    """
    if "direct_url" not in exposure:
        raise CarrelError("unsupported", "this daemon exposes ports with TLS, which needs host names: open `url`")
    headers = {**fields.pop("headers", {}), **exposure.get("headers", {})}
    return urllib.request.Request(exposure["direct_url"] + path.lstrip("/"), headers=headers, **fields)


class Result:
    """What a command that has ended left: `status`, `stdout` and `stderr`, and `view`, the daemon's answer."""

    def __init__(self, view: ResultView):
        self.view = view
        self.exec: Exec = member(view, "exec", dict)
        self.status: int = member(self.exec, "status", int)
        self.stdout_bytes, self.stderr_bytes = _output(view, "stdout"), _output(view, "stderr")
        self.stdout = self.stdout_bytes.decode(errors="replace")
        self.stderr = self.stderr_bytes.decode(errors="replace")

    def check(self) -> "Result":
        """Raises CarrelError unless the command exited with 0."""
        if self.status != 0:
            why = self.exec.get("error") or self.stderr.strip()[-500:] or self.exec.get("reason", "")
            raise CarrelError("failed", f"the command exited with {self.status}: {why}")
        return self

    def __repr__(self) -> str:
        return f"Result(status={self.status}, stdout={self.stdout!r}, stderr={self.stderr!r})"


class Contender(typing.NamedTuple):
    """One fork of a tournament. `score` is None if its command printed no number or failed."""
    machine: typing.Any  # a Machine, or an AsyncMachine
    status: int
    score: typing.Optional[float]
