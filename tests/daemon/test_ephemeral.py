"""A machine that ends with its caller (`carrel run`): what is written about it, and when its caller is told."""
import http.client
import re
import shutil
import threading
import time

import pytest
from carrel import ROOTLESS
from daemon import Refused
from faulty import Faulty
from test_faults import spawner, strace

RUNS = 20
RUN = {"exec": {"command": "exit 7"}}
ENDED = 6


@pytest.fixture
def d():
    made = Faulty()
    yield made
    made.stop()


def commits(d):
    return int(re.search(rb"^carrel_store_commits_total (\d+)$", d.request("GET", "/metrics", raw=True), re.M)[1])


def status(d):
    return d.post("/v1/run", RUN)["exec"]["status"]


def is_over(d):
    return not d.machines(all=1) and not list((d.run_dir / "boxes").glob("m-*"))


def test_a_run_takes_four_transactions(d):
    """Creation, command, outcome and end. A fifth one is possible for the whole host now and then."""
    d.post("/v1/run", RUN)
    d.until(lambda: is_over(d))
    before = commits(d)
    for _ in range(RUNS):
        assert status(d) == 7
    d.until(lambda: is_over(d))
    assert 4 * RUNS <= commits(d) - before < 5 * RUNS


@pytest.mark.skipif(ROOTLESS or not shutil.which("strace"), reason="without root or strace no requests are seen")
def test_a_run_sends_two_requests_to_the_spawner(d):
    """For a machine, and for its end. That the guest disappears then is no news."""
    d.post("/v1/run", RUN)
    d.until(lambda: is_over(d))
    record = d.dir / "requests"
    with strace(d, spawner(d), "-o", str(record), "-e", "trace=recvmsg"):
        for _ in range(5):
            assert status(d) == 7
            d.until(lambda: is_over(d))
    requests = [line for line in record.read_text().splitlines() if re.search(r"m-[a-z2-7]{6}", line)]
    assert len(requests) == 2 * 5, requests


def test_a_machine_without_a_command_is_written_too(d):
    """The row of a machine whose command is refused says how it ended."""
    with pytest.raises(Refused) as e:
        d.post("/v1/run", {"exec": {"argv": ["true"], "name": "x-1"}})
    assert e.value.code == "invalid"
    d.until(lambda: is_over(d))
    assert d.rows("SELECT state FROM machines") == [(ENDED,)]


class Run(threading.Thread):
    """A run whose events are kept as they come."""

    def __init__(self, d):
        super().__init__(daemon=True)
        self.d, self.events = d, []
        self.start()

    def run(self):
        try:
            for event in self.d.stream("POST", "/v1/run", RUN):
                self.events.append(event)
        except (Refused, OSError, http.client.HTTPException):
            pass

    def told(self, kind):
        return [e for e in self.events if e["type"] == kind]


def check_told(d, run):
    """What the caller was told is written, and nothing else is left of the machine."""
    d.until(lambda: is_over(d))
    for event in run.told("start"):
        assert d.rows("SELECT count(*) FROM execs WHERE id = ?", event["exec"]) == [(1,)], run.events
    for event in run.told("exit"):
        assert event["exec"]["status"] == 7, event
        assert d.rows("SELECT exit_code FROM execs WHERE id = ?", run.told("start")[0]["exec"]) == [(7,)], run.events
    assert d.rows("SELECT count(*) FROM machines WHERE state <> ?", ENDED) == [(0,)]
    assert d.rows("SELECT count(*) FROM execs WHERE state < 3") == [(0,)]


@pytest.mark.parametrize("wait_ms", [0, 1, 2, 3, 4, 6, 8, 11, 15, 20, 30])
def test_a_killed_daemon_loses_nothing_that_was_told(d, wait_ms):
    d.post("/v1/run", RUN)  # the pools are full when the clock starts
    run = Run(d)
    time.sleep(wait_ms / 1000)
    d.restart()
    run.join(60)
    check_told(d, run)
    assert status(d) == 7


@pytest.mark.parametrize("skip", range(0, 24, 2))
def test_nothing_is_told_that_could_not_be_written(d, skip):
    """The disk is full after so many writes of a run."""
    d.post("/v1/run", RUN)
    d.until(lambda: is_over(d))
    with d.failing(skip=skip):
        run = Run(d)
        d.until(lambda: run.told("exit") or not run.is_alive() or "retrying" in d.log())
    run.join(60)
    check_told(d, run)
