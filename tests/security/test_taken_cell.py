"""A cell machine whose worker was taken over (tests/cell/taken.c): each attack works where nothing prevents it."""
import json

import pytest

import cells
from carrel import BUILD, ROOTLESS
from lab import counts

WORKED, FAILED, KILLED = 0, 1, 3
ON_CALLS = ["run-native", "make-socket", "send-signal", "make-process", "open-plainly", "leave-root"]


@pytest.fixture
def taken(make_lab, tmp_path):
    """Runs an attack as a command of a cell machine: its exit status, and the fuel in its record."""
    lab = make_lab(worker=BUILD / "libexec/carrel-cell-taken")
    (tmp_path / "image.tar").write_bytes(cells.image(native=(BUILD / "libexec/carrel-guest").read_bytes()))
    assert lab("image", "import", tmp_path / "image.tar", "--name", "programs").returncode == 0
    new = lab("new", "--kind", "cell", "--image", "programs", "--name", "taken")
    if ROOTLESS and b"unsupported" in new.stderr:
        pytest.skip(new.stderr.decode())
    assert new.returncode == 0, new
    machine = new.stdout.decode().strip()

    def attack(name, where):
        done = lab("exec", "--json", machine, "--", name, where)
        counts["attacks tried"] += 1
        result = json.loads(done.stdout)
        assert result.get("exit_status", 4) != 4, result
        return result["exit_status"], result["usage"]["fuel"]
    attack.allow = lambda what: lab("set", "taken", "--allow", what)
    yield attack


def test_worker_that_was_taken_over_executes_nothing_and_leaves_its_jail_nowhere(taken):
    for name in ON_CALLS:
        assert taken(name, "free")[0] == WORKED, name
        assert taken(name, "jailed")[0] == KILLED, name
    assert taken("run-native", "parent")[0] == FAILED
    for name in ("read-through-proc", "read-absolute", "read-upwards"):
        assert taken(name, "jailed")[0] == taken(name, "free")[0] == FAILED, name
    assert taken("write-file", "jailed")[0] == WORKED  # control: the files of the machine are its own


def test_fuel_that_a_worker_claims_is_a_number_that_the_store_has(taken):
    assert taken("write-file", "jailed")[1] == 2 ** 50


def test_daemon_checks_every_request_of_a_worker_that_was_taken_over(taken):
    """The worker writes frames itself, outside of its jail. Requests that pass are answered by the gate, which refuses the host."""
    requests = ["ask-http", "ask-twice", "ask-model", "ask-unknown", "ask-without-end"]
    assert {taken(name, "parent")[0] for name in requests} == {FAILED}  # without capabilities there is no socket
    assert taken.allow("http").returncode == 0
    assert [taken(name, "parent")[0] for name in requests] == [WORKED, WORKED, FAILED, FAILED, FAILED]
    assert taken("ask-http", "jailed")[0] == KILLED  # the child that runs the program has no socket at all
    assert taken.allow("").returncode == 0
    assert taken("ask-http", "parent")[0] == FAILED
