"""A daemon whose machines reach servers of the test on loopback, by names of the test."""
import json
import pathlib
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "daemon"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from daemon import Daemon  # noqa: E402
import patience  # noqa: E402
from servers import Servers  # noqa: E402
import tally  # noqa: E402


time_limit = patience.time_limit(120)


@pytest.fixture(scope="session")
def servers():
    s = Servers()
    yield s
    s.stop()


NAMES = ["ok.test", "other.test", "sub.ok.test", "inner.test", "api.test", "deep.sub.ok.test"]


class Gated(Daemon):
    """A daemon that knows the names of the test. Its tests share machines, so every refusal is written down and explained."""

    def __init__(self, ca, refusals=100000):
        self.names = pathlib.Path(tempfile.mkdtemp(prefix="cg-", dir="/tmp"))
        (self.names / "hosts").write_text("127.0.0.1 " + " ".join(NAMES) + "\n10.99.0.1 private.test # of nobody\n9.9.9.9 public.test\n")
        super().__init__(conf=f"[gate]\nhosts = {self.names}/hosts\nca = {ca}\n[journal]\nrefusals = {refusals}\n")

    def notes(self, machine, verb="net", seconds=10, count=1):
        """Journal entries about this machine's crossings, once there are so many."""
        def enough():
            text = self.request("GET", "/v1/audit", raw=True, machine=machine, verb=verb).decode()
            found = [json.loads(line) for line in text.splitlines()]
            found = [n for n in found if n["kind"] == "note"]
            return (found,) if len(found) >= count else None
        return self.until(enough, seconds)[0]

    def allow(self, machine, target, **fields):
        return self.post(f"/v1/machines/{machine}/net/rules", {"target": target, "local": True, **fields})

    def python(self, machine, script, **fields):
        return self.exec(machine, ["python3", "-c", script], **fields)


@pytest.fixture(scope="session")
def gated_session(servers):
    d = Gated(servers.dir / "ca.pem")
    yield d
    d.stop()


@pytest.fixture
def gated(gated_session):
    yield gated_session
    gated_session.clear()
    assert gated_session.host.left_of_boxes() == []


@pytest.fixture
def count_attack():
    """To be called by a test once what it tried was refused."""
    return lambda: tally.attack(journalled=False)


def pytest_sessionfinish():
    if tally.counts:
        print("#! " + ", ".join(f"{n} {what}" for what, n in tally.counts.items()), flush=True)
