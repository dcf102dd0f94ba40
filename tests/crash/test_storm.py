"""The storm of kills in its short form; CARREL_SOAK=1 makes it the full one of 1,000. A failure prints its seed."""
import os
import random
import signal

import pytest
import storm
from carrel import SOAK
from daemon import Daemon, stopped
from patience import PATIENCE
from watchdog import Stuck, Watchdog

KILLS = 1000 if SOAK else 30
LIMIT_S = 5400 if SOAK else 240
SEED = int(os.environ.get("STORM_SEED") or random.SystemRandom().randrange(1 << 32))


def said(lines):
    return "\n".join(lines[-60:])


def test_nothing_acknowledged_is_lost_and_nothing_is_left():
    signal.alarm(int(LIMIT_S * PATIENCE))
    lines = []
    faults, missed = storm.run(SEED, KILLS, lines.append)
    print(said(lines))
    assert not faults, f"seed {SEED}: {faults[:3]}"
    # Reading takes next to nothing: a short storm need not hit it.
    assert not set(missed) - (set() if SOAK else {"read", "pause", "resume", "start"}), f"seed {SEED}: no kill fell into {missed}"


def living(s):
    return [(c, m) for c in s.clients for m in c.living()]


def change_a_file(s):
    """A write that was acknowledged is lost."""
    m, path = next((m, path) for _, m in living(s) for path in m.files)
    s.daemon.put(f"/v1/machines/{m.id}/files", b"not what was acknowledged", path=path)
    return path


def forget_a_machine(s):
    """One is there that nobody was told of."""
    c, m = living(s)[0]
    del c.machines[m.id]
    return m.id


def kill_a_guest(s):
    """One that was acknowledged is gone."""
    _, m = living(s)[0]
    os.kill(int(storm.record(s.daemon.run_dir, m.id)["pid"]), signal.SIGKILL)
    return m.id


def wrong_exit_code(s):
    m, key = next((m, key) for _, m in living(s) for key in m.execs)
    m.execs["another key"] = m.execs.pop(key)
    return m.id


def test_the_storm_notices_what_it_is_there_to_notice():
    """The control: what a daemon that loses, keeps or changes things would do is done by hand."""
    signal.alarm(int(LIMIT_S * PATIENCE))
    s = storm.Storm(SEED, 3, lambda _: None)
    try:
        s.storm()
        assert not s.faults, f"seed {SEED}: {s.faults}"
        s.settle_s = 3
        for harm in change_a_file, wrong_exit_code, forget_a_machine, kill_a_guest:
            s.faults.clear()
            name = harm(s)
            s.check_api()
            s.check_kernel()
            assert any(name in f for f in s.faults), (harm.__name__, name, s.faults)
    finally:
        s.clear()


def test_a_storm_that_stands_still_says_where_everybody_stands():
    d, lines = Daemon(), []
    try:
        with stopped([d.process.pid]), pytest.raises(Stuck), Watchdog(d, 0.5, lines.append):
            d.get("/v1/machines")
        told = "\n".join(lines)
        assert "in get" in told and f"process {d.process.pid} " in told and "(stopped)" in told and "log ends" in told, told
    finally:
        d.stop()


def test_a_storm_that_goes_on_is_left_alone():
    d, lines = Daemon(), []
    try:
        with Watchdog(d, 60, lines.append) as dog:
            d.get("/v1/machines")
            dog.beat()
        assert not lines
    finally:
        d.stop()
