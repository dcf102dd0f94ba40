"""Taint follows data: every way between machines, images and directories joins it before the data arrives."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest

from daemon import Refused
from runs import call, finish, results, run, to_the_end

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "src/service/taint.c"
FLOWS = set(re.findall(r'\[TAINT_\w+\] = \{"(\w+)"', SOURCE.read_text()))
ELSEWHERE = {"network", "untrusted",  # gate/test_taint.py
             "provider",  # gate/test_models_guard.py
             "image",  # image/test_images.py
             "tools",  # mcp/test_tools.py
             "upload"}  # mcp/test_transfer.py
WORD = {"kind": "env", "what": "WORD", "value": "of a stranger", "untrusted": True}


def tainted(daemon, m):
    return daemon.get(f"/v1/machines/{m}/net").get("tainted")


def taint(daemon, m):
    daemon.post(f"/v1/machines/{m}/grants", WORD)
    assert tainted(daemon, m) == "WORD"
    return m


@pytest.fixture
def place():
    top = pathlib.Path(tempfile.mkdtemp(prefix="ct-taint-", dir="/tmp")).resolve()
    yield top
    shutil.rmtree(top)


def lend(daemon, *dirs, mode="cow", **fields):
    fds = [os.open(d, os.O_RDONLY | os.O_DIRECTORY) for d in dirs]
    try:
        return daemon.lend(*fds, unreviewed=True, **fields,
                           dirs=[{"path": str(d), "at": f"/home/user/d{i}", "mode": mode} for i, d in enumerate(dirs)])
    finally:
        for fd in fds:
            os.close(fd)


def freeze(daemon, m):
    daemon.exec(m, "mkdir -p /outbox; echo x > /outbox/file", user="root")
    return daemon.post(f"/v1/machines/{m}/changesets", {"path": "/outbox"})


def ship(daemon, m, target):
    made = freeze(daemon, m)
    daemon.post(f"/v1/changesets/{made['id']}/ship", {"action": "ship", "target": str(target), "sha256": "0" * 64, "files": 1})


# ---- the flows, each with its control: the same from a machine that is not tainted ----

def flow_fork(daemon, runs, place, dirty):
    m = daemon.machine()
    if dirty:
        taint(daemon, m)
    return daemon.post(f"/v1/machines/{m}/fork", {})["machines"][0]["id"]


def flow_changeset(daemon, runs, place, dirty):
    m = daemon.machine()
    if dirty:
        taint(daemon, m)
    return freeze(daemon, m)


def flow_ship(daemon, runs, place, dirty):
    """A machine that has the directory when the change set arrives."""
    has = lend(daemon, place)
    m = daemon.machine()
    ship(daemon, taint(daemon, m) if dirty else m, place)
    return has


def flow_handover(daemon, runs, place, dirty):
    """One that is made later, with a directory below."""
    (place / "below").mkdir(exist_ok=True)
    m = daemon.machine()
    ship(daemon, taint(daemon, m) if dirty else m, place)
    return lend(daemon, place / "below", mode="ro")


def flow_shared(daemon, runs, place, dirty):
    """Both have it, and the one that is tainted may write to it."""
    m, other = lend(daemon, place, mode="rw"), lend(daemon, place, mode="ro")
    if dirty:
        taint(daemon, m)
    return other


def begin_sub_agent(daemon, runs, fails=False, said="Not all is done.", **spawn):
    """It waits in its machine until it is told to go on: the parent's machine, the child's, and the run."""
    m = daemon.machine()
    daemon.exec(m, "mkdir work")
    wait = run("until test -e /home/user/go; do sleep 0.05; done; echo file > work/file; echo went", yield_ms=50000, timeout_ms=600000)
    end = finish("partial", summary=said)
    over = [{"after": "was interrupted", "calls": [end]}] if fails else [{"after": "went", "calls": [end]}, {"calls": [finish("partial")]}]
    r = runs.start([{"after": "You are a sub-agent", "calls": [wait]},
                    {"turn": 0, "calls": [call("spawn", task="Look.", **spawn)]}, *over], machine=m)["id"]
    child = daemon.until(lambda: [x["machine"] for x in daemon.get("/v1/runs")["runs"] if x["id"] != r and
                                  x.get("machine") not in (None, m) and x["state"] == "running"])[0]
    return m, child, r


def end_sub_agent(daemon, runs, child, r):
    """What its parent is told."""
    daemon.request("PUT", f"/v1/machines/{child}/files?path=/home/user/go", b"x")
    runs.wait(r, "ended")
    return results(runs.transcript(r))[0]


def sub_agent(daemon, runs, dirty, fails=False, **spawn):
    """Its machine is tainted while it works, and it reports only then."""
    m, child, r = begin_sub_agent(daemon, runs, fails, **spawn)
    if dirty:
        taint(daemon, child)
    assert not tainted(daemon, m)
    told = end_sub_agent(daemon, runs, child, r)
    assert told.get("failed", False) == fails, told
    return m


def flow_report(daemon, runs, place, dirty):
    return sub_agent(daemon, runs, dirty)


def flow_bring(daemon, runs, place, dirty):
    return sub_agent(daemon, runs, dirty, bring="/home/user/work")


# A shell that waits before it does what a check needs, so that the machine of the check is there and its files are not.
WAITS = r"""cp -L /bin/sh /bin/real-sh
printf '%s\n' '#!/bin/real-sh' 'case "$*" in *carrel-judge*) until test -e /go; do sleep 0.05; done;; esac' 'exec /bin/real-sh "$@"' > /bin/sh-new
chmod 755 /bin/sh-new; mv -f /bin/sh-new /bin/sh"""


def begin_check(daemon, runs):
    """The try is over, and its check waits for its files: their machines, and the run."""
    m = daemon.machine()
    assert daemon.exec(m, WAITS, user="root")["exec"]["status"] == 0
    r = runs.start(to_the_end([run("echo made > made")]), machine=m, tries=1, check="until test -e /end; do sleep 0.05; done; test -e made")["id"]

    def fork_of(source):
        return daemon.until(lambda: [x["id"] for x in daemon.machines() if x["state"] == "running" and x.get("metadata", {}).get("forked_from") == source], 60)[0]

    tried = fork_of(m)
    return tried, fork_of(tried), r


def let(daemon, m, name):
    daemon.request("PUT", f"/v1/machines/{m}/files?path=/{name}&user=root", b"x")


def flow_check(daemon, runs, place, dirty):
    tried, judge, r = begin_check(daemon, runs)
    if dirty:
        taint(daemon, tried)
    assert not tainted(daemon, judge)
    let(daemon, judge, "go")
    daemon.until(lambda: daemon.exec(judge, "test -e /home/user/made")["exec"]["status"] == 0, 60)
    told = {"tainted": tainted(daemon, judge)}
    let(daemon, judge, "end")
    runs.wait(r, "ended")
    return told


CASES = {name[5:]: fn for name, fn in globals().items() if name.startswith("flow_")}


def test_every_flow_of_the_table_is_tried():
    assert set(CASES) | ELSEWHERE == FLOWS and not set(CASES) & ELSEWHERE


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_flow_joins_the_taint_of_its_source(daemon, runs, place, name):
    for dirty in (False, True):
        there = CASES[name](daemon, runs, place, dirty)
        told = there.get("tainted") if isinstance(there, dict) else tainted(daemon, there)
        assert told == ("WORD" if dirty else None), (name, dirty)
        if name in ("ship", "handover", "shared"):
            daemon.clear()


def test_a_report_that_fails_carries_the_taint_too(daemon, runs):
    """The child's script has no turn for what it saw: it is interrupted, and its parent is told why."""
    assert tainted(daemon, sub_agent(daemon, runs, True, fails=True)) == "WORD"


def test_files_that_are_brought_only_in_part_carry_the_taint_too(daemon, runs):
    """Of two files one goes to a directory that is root's. The control is a child that is not tainted."""
    for dirty in (False, True):
        m, child, r = begin_sub_agent(daemon, runs, bring="/home/user/work")
        daemon.exec(child, "mkdir work/sub; echo x > work/sub/file")
        daemon.exec(m, "mkdir /home/user/work/sub", user="root")
        if dirty:
            taint(daemon, child)
        told = json.loads(end_sub_agent(daemon, runs, child, r)["text"])
        assert told["brought"] != "all of it" and daemon.exec(m, "cat work/file")["stdout"] == "file\n", told
        assert tainted(daemon, m) == ("WORD" if dirty else None)


def test_what_cannot_be_handed_over_has_tainted_by_then(daemon, place):
    """The control is a file that nobody calls untrusted, which fails alike."""
    (place / "file").write_text("x")
    for dirty in (False, True):
        m = daemon.machine()
        daemon.exec(m, "touch in-the-way")
        fd = os.open(place / "file", os.O_RDONLY)
        try:
            with pytest.raises(Refused):
                daemon.send([fd], f"/v1/machines/{m}/grants", {"kind": "file", "what": "WORD", "at": "/home/user/in-the-way/file", "untrusted": dirty})
        finally:
            os.close(fd)
        assert tainted(daemon, m) == ("WORD" if dirty else None)


def test_files_and_repositories_of_a_tainted_directory_taint(daemon, place):
    repo, file = place / "repo", place / "repo/file"
    repo.mkdir()
    file.write_text("x")
    ship(daemon, taint(daemon, daemon.machine()), repo)
    clean = place / "clean"
    clean.write_text("x")

    def give(what):
        m = daemon.machine()
        fd = os.open(what, os.O_RDONLY)
        try:
            daemon.send([fd], f"/v1/machines/{m}/grants", {"kind": "file", "what": "/called/otherwise", "at": "/home/user/copy"})
        finally:
            os.close(fd)
        return m

    assert tainted(daemon, give(clean)) is None and tainted(daemon, give(file)) == "WORD"
    if not shutil.which("git"):
        pytest.skip("no git on this host")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(repo)]
    for words in (["init", "-q", "-b", "main"], ["add", "file"], ["commit", "-q", "-m", "x"], ["bundle", "create", "-q", str(place / "bundle"), "main"]):
        subprocess.run([*git, *words], check=True, timeout=60)
    m = daemon.machine()
    fd = os.open(place / "bundle", os.O_RDONLY)
    daemon.send([fd], f"/v1/machines/{m}/grants", {"kind": "repo", "what": str(repo), "at": "/home/user/repo", "mode": "main"})
    os.close(fd)
    assert tainted(daemon, m) == "WORD"


def test_a_directory_is_known_by_where_it_lies(daemon, place):
    """Its owner may call it as they like: a link leads to the same directory."""
    (place / "real").mkdir()
    (place / "link").symlink_to("real")
    ship(daemon, taint(daemon, daemon.machine()), place / "real")
    assert tainted(daemon, lend(daemon, place / "link")) == "WORD"
    other = place / "really"
    other.mkdir()
    assert tainted(daemon, lend(daemon, other)) is None, "the control: a name that only begins alike"


def test_a_machine_without_rules_keeps_its_taint_over_a_restart(daemon):
    m = taint(daemon, daemon.machine())
    daemon.restart()
    assert tainted(daemon, m) == "WORD"
