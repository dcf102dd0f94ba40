"""Results of commands, which both clients give."""
import base64
import typing

from ._http import CarrelError
from ._types import Exec, ExecEvent, Result as ResultView

Text = typing.Union[str, bytes]
Command = typing.Union[str, typing.Sequence[str]]


def command_fields(command: Command) -> typing.Dict[str, typing.Any]:
    """A text is a line for the shell, a list is a program and its arguments."""
    return {"command": command} if isinstance(command, str) else {"argv": list(command)}


def _output(view: typing.Any, name: str) -> bytes:
    if name + "_base64" in view:
        return base64.b64decode(view[name + "_base64"])
    return str(view.get(name, "")).encode()


def event_bytes(event: ExecEvent) -> bytes:
    """The output in an event of the type stdout or stderr."""
    return _output(event, "data")


class Result:
    """What a command that has ended left: `status`, `stdout` and `stderr`, and `view`, the daemon's answer."""

    def __init__(self, view: ResultView):
        self.view = view
        self.exec: Exec = view["exec"]
        self.status = self.exec["status"]
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
