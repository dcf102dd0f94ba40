"""The box driver with real boxes: every verb, and what happens when one of the three processes dies."""
import os
import resource
import signal
import socket
import time

import pytest
from carrel import ROOTLESS, spawner_pids
from drive import Drive, Failed, fresh_id
from patience import clock

RUNNING, EXITED = 1, 2


def refused(code, ask, *words):
    with pytest.raises(Failed) as e:
        ask(*words)
    assert e.value.code == code, e.value
    return e.value.text


def rows(drive, machine):
    """Commands by id: state and status."""
    return {int(i): (int(s), int(x)) for i, s, x in (row.split(":") for row in drive("table", machine).split())}


def until(look, wanted=True, seconds=10):
    end = clock() + seconds
    while look() != wanted:
        assert clock() < end, look()
        time.sleep(0.01)


def test_a_command_has_its_output_and_status(drive, machine):
    assert drive.run(machine, 1, "sh", "-c", "echo out;exit 3") == (3, b"out\n")
    assert drive.run(machine, 2, "id", "-u") == (0, b"1000\n")


def test_a_passed_descriptor_is_written(drive, machine):
    assert drive.fields("exec", machine, 1, "fd", "echo", "through")["status"] == "0"
    assert (drive.dir / "fd.out").read_text() == "through\n"
    (drive.dir / "fd.out").unlink()


def test_a_command_that_cannot_begin_says_why(drive, machine):
    assert drive("exec", machine, 1, "pipe", "/no/such/program") == "never errno=2 step=7"
    assert drive.run(machine, 1, "true")[0] == 0, "the id is free again"


def test_many_commands_at_once(drive, machine):
    asked = {i: drive.ask("exec", machine, i, "pipe", "sh", "-c", f"sleep 0.1;echo {i}") for i in range(1, 41)}
    for i, number in asked.items():
        assert drive.wait(number).endswith(f"out={(str(i) + chr(10)).encode().hex()}")
    until(lambda: rows(drive, machine), {})


def test_an_id_in_use_is_refused(drive, machine):
    long = drive.ask("exec", machine, 1, "null", "sleep", "60")
    until(lambda: 1 in rows(drive, machine))
    refused("exists", drive, "exec", machine, 1, "null", "true")
    drive("kill", machine, 1)
    assert drive.wait(long).startswith("status=9 flags=9")


def test_files(drive, machine):
    drive("write", machine, "/tmp/f", "hello")
    assert bytes.fromhex(drive("read", machine, "/tmp/f")) == b"hello"
    refused("not_found", drive, "read", machine, "/tmp/none")
    refused("denied", drive, "write", machine, "/etc/f", "x")


def test_a_watched_directory_tells(drive, machine):
    drive("watch", machine, "/tmp")
    drive("write", machine, "/tmp/seen", "x")
    assert drive.event().startswith(f"event {machine} seen ")


def test_unknown_and_doubled_machines(drive, machine):
    refused("exists", drive, "create", machine)
    refused("not_found", drive, "adopt", fresh_id())
    drive("destroy", fresh_id())  # nothing of it is left: that is what was asked for


def test_limits_out_of_range_are_refused(drive):
    assert "memory limit 1B: must be between 4M and 1024T" in refused("invalid", drive, "create", fresh_id(), "mem=1")
    assert "process limit 99999999999: must be between 1 and 4000000" in refused("invalid", drive, "create", fresh_id(), "pids=99999999999")


def test_list_has_every_machine_that_stays(drive, machine):
    ids = {fresh_id() for _ in range(9)}
    passing = fresh_id()
    for number in [drive.ask("create", i, "linger=1") for i in ids] + [drive.ask("create", passing)]:
        drive.wait(number)
    assert set(drive.list()) == ids | {machine}
    for number in [drive.ask("destroy", i) for i in ids | {passing}]:
        drive.wait(number)
    assert drive.list() == [machine]


def test_stats_count(drive, machine):
    before = drive.stats(machine)
    assert before["limit"] == 2 << 30 and before["frozen"] == 0 and before["oom"] == 0
    assert drive.run(machine, 1, "sh", "-c", "dd if=/dev/zero of=/tmp/big bs=1M count=32 2>/dev/null;"
                     "i=0;while [ $i -lt 100000 ];do i=$((i+1));done")[0] == 0
    after = drive.stats(machine)
    assert after["cpu"] - before["cpu"] > 10000, "a shell counting to 100,000 takes more than 10 ms"
    assert 64 << 20 <= after["io"] - before["io"] < 80 << 20
    assert 32 << 20 <= after["disk"] - before["disk"] < 40 << 20
    assert after["peak"] >= after["mem"] > 0


def test_stats_of_many_at_once(drive):
    ids = [fresh_id() for _ in range(40)]
    for number in [drive.ask("create", i) for i in ids]:
        drive.wait(number)
    for number in [drive.ask("stats", i) for i in ids for _ in range(3)]:
        assert " limit=2147483648 " in drive.wait(number)
    for number in [drive.ask("destroy", i) for i in ids]:
        drive.wait(number)


def test_a_frozen_machine_stands_still_and_its_guest_serves(drive, machine):
    spin = drive.ask("exec", machine, 1, "null", "sh", "-c", "while :;do :;done")
    until(lambda: drive.stats(machine)["cpu"] > 50000)
    drive("freeze", machine, "on=1")
    still = drive.stats(machine)
    assert still["frozen"] == 1 and still["pids"] == 1
    time.sleep(0.3)
    assert drive.stats(machine)["cpu"] - still["cpu"] <= 10000
    drive("write", machine, "/tmp/f", "served")
    assert bytes.fromhex(drive("read", machine, "/tmp/f")) == b"served"
    drive("freeze", machine, "on=1")  # asking for what is so is fine
    drive("freeze", machine, "on=0")
    until(lambda: drive.stats(machine)["cpu"] - still["cpu"] > 50000)
    drive("kill", machine, 1)
    assert drive.wait(spin).startswith("status=9")


def test_a_frozen_machine_can_be_destroyed(drive):
    m = fresh_id()
    drive("create", m, "linger=1")
    drive.ask("exec", m, 1, "null", "sleep", "60")
    until(lambda: 1 in rows(drive, m))
    drive("freeze", m, "on=1")
    drive("destroy", m)
    assert m not in drive.list()


def test_limits_change_while_it_runs(drive, machine):
    drive("limit", machine, f"mem={300 << 20}", "pids=6", "cpu=500")
    assert drive.stats(machine)["limit"] == 300 << 20
    for mib in 500, 200, 4096, 300:
        drive("limit", machine, f"mem={mib << 20}")
        assert drive.stats(machine)["limit"] == mib << 20
    spawn = "for i in 1 2 3 4 5 6 7 8;do sleep 5 & done"
    assert drive.run(machine, 1, "bash", "-c", spawn)[0] != 0
    assert drive.stats(machine)["refused"] > 0
    drive("limit", machine, "nocpu=1")
    refused("invalid", drive, "limit", machine, "mem=5")


def test_a_memory_limit_below_use_is_refused(drive, machine):
    long = drive.ask("exec", machine, 1, "null", "bash", "-c",
                     "x=$(head -c 60M /dev/zero | tr '\\0' x); sleep 60")
    until(lambda: drive.stats(machine)["mem"] > 60 << 20)
    refused("busy", drive, "limit", machine, f"mem={8 << 20}")
    assert drive.stats(machine)["oom"] == 0
    drive("kill", machine, 1)
    drive.wait(long)


def test_a_deadline_ends_it_and_the_end_is_told(drive):
    m = fresh_id()
    drive("create", m, "linger=1", "deadline=60000")
    drive("deadline", m, "in=200")
    began, real = clock(), time.monotonic()
    assert drive.event().startswith(f"end {m} gone")
    assert time.monotonic() - real > 0.1 and clock() - began < 30  # and not at its first deadline, of 60 s
    until(drive.list, [])


def test_a_guest_that_ends_is_noticed_soon(drive):
    m = fresh_id()
    drive("create", m, "linger=1")
    lost = drive.ask("exec", m, 1, "null", "sleep", "60")
    until(lambda: 1 in rows(drive, m))
    began = clock()
    drive("shutdown", m)
    refused("unknown", drive.wait, lost)
    assert drive.event().startswith(f"end {m} gone")
    assert clock() - began < 30  # and not when its command would have ended, after 60 s
    until(drive.list, [])


def test_letting_go_ends_what_does_not_linger(drive):
    m, kept = fresh_id(), fresh_id()
    drive("create", m)
    drive("create", kept, "linger=1")
    drive("free", m)
    drive("free", kept)
    until(drive.list, [kept])
    drive("adopt", kept)
    drive("destroy", kept)


def test_an_early_machine_takes_commands_at_once(drive):
    m = fresh_id()
    drive("create", m, "early=1")
    assert drive.run(m, 1, "echo", "early") == (0, b"early\n")
    drive("destroy", m)


def test_machines_outlive_their_host_process(carrel):
    m, brief = fresh_id(), fresh_id()
    first = Drive(carrel)
    first("create", m, "linger=1")
    first("create", brief)
    first("write", m, "/tmp/f", "before")
    first.ask("exec", m, 7, "pipe", "sh", "-c", "echo one;sleep 1;echo two;exit 5")
    until(lambda: 7 in rows(first, m))
    first.kill()
    second = Drive(carrel)
    try:
        until(second.list, [m])  # the other one ended with its creator
        second("adopt", m)
        assert bytes.fromhex(second("read", m, "/tmp/f")) == b"before"
        told = second.fields("attach", m, 7, "frames=1")
        assert told["status"] == "5" and bytes.fromhex(told["out"]).endswith(b"two\n")
        until(lambda: rows(second, m), {})
        second("destroy", m)
    finally:
        second.quit()


@pytest.mark.parametrize("round", range(4))
def test_a_dead_host_process_makes_no_more_machines(carrel, round):
    """Whoever comes next sees all there is: requests of the dead one are not carried out behind its back."""
    first, second = Drive(carrel), Drive(carrel)
    first("list"), second("list")
    for _ in range(30):
        first.ask("create", fresh_id(), "linger=1")
    time.sleep(0.01 * round)
    first.kill()
    try:
        seen = set(second.list())
        time.sleep(0.4)
        assert set(second.list()) <= seen
        for i in second.list():
            second("destroy", i)
    finally:
        second.quit()


def test_machines_outlive_the_spawner(carrel, drive, machine):
    limit = drive.stats(machine)["limit"]
    long = drive.ask("exec", machine, 1, "pipe", "sh", "-c", "sleep 1;echo still")
    before = spawner_pids(carrel.run_dir)
    os.kill(before[0], signal.SIGKILL)
    other = fresh_id()
    drive("create", other, "linger=1")  # a new spawner is started for it
    assert spawner_pids(carrel.run_dir) not in ([], before)
    assert set(drive.list()) == {machine, other}
    assert drive.wait(long).endswith(f"out={b'still'.hex()}0a")
    assert drive.run(machine, 2, "echo", "again") == (0, b"again\n")
    assert drive.stats(machine)["limit"] == limit
    drive("freeze", machine, "on=1")
    drive("freeze", machine, "on=0")
    drive("destroy", other)


@pytest.mark.parametrize("round", range(4))
def test_requests_in_flight_when_the_spawner_dies_are_answered(carrel, drive, round):
    ids = [fresh_id() for _ in range(16)]
    asked = [drive.ask("create", i, "linger=1") for i in ids]
    time.sleep(0.004 * round)
    os.kill(spawner_pids(carrel.run_dir)[0], signal.SIGKILL)
    made = []
    for i, number in zip(ids, asked):
        try:
            drive.wait(number)
            made.append(i)
        except Failed as e:
            assert e.code in ("unknown", "gone"), e
    gone = [drive.ask("destroy", i) for i in ids[:8]]
    until(lambda: bool(spawner_pids(carrel.run_dir)))
    time.sleep(0.002 * round)
    os.kill(spawner_pids(carrel.run_dir)[0], signal.SIGKILL)
    for number in gone:
        drive.wait(number)
    assert set(drive.list()) == set(made) - set(ids[:8]), "what was made is there, and nothing else"
    for i in set(made) - set(ids[:8]):
        assert drive.run(i, 1, "true")[0] == 0
    for number in [drive.ask("destroy", i) for i in ids]:
        drive.wait(number)
    assert drive.list() == []


def test_a_lost_connection_is_made_again(drive, machine):
    long = drive.ask("exec", machine, 1, "pipe", "sh", "-c", "sleep 0.5; echo kept")
    until(lambda: 1 in rows(drive, machine))
    drive("rubbish", machine)
    refused("unknown", drive.wait, long)
    assert drive.event() == f"back {machine}"
    told = drive.fields("attach", machine, 1, "frames=1")
    assert bytes.fromhex(told["out"]) == b"kept\n"


def test_adoption_waits_for_a_free_connection(carrel, drive, machine):
    """Sixteen are all a guest has: whoever comes then is turned away."""
    held = []
    drive("free", machine)
    for i in range(40):
        if i == 20:
            time.sleep(0.3)  # our own has gone by now, and its place is taken too
        s = socket.socket(socket.AF_UNIX)
        s.connect(str(carrel.run_dir / "boxes" / machine / "guest.sock"))
        held.append(s)
    adopting = drive.ask("adopt", machine)
    time.sleep(0.3)
    assert adopting not in drive.answers
    for s in held:
        s.close()
    drive.wait(adopting)
    assert drive.run(machine, 1, "true")[0] == 0


def test_without_descriptors_machines_are_refused_and_the_others_work(carrel):
    few = Drive(carrel, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40)))
    try:
        made, codes = [], set()
        for i in [fresh_id() for _ in range(40)]:
            try:
                few("create", i, "linger=1")
                made.append(i)
            except Failed as e:
                codes.add(e.code)
        assert 10 < len(made) < 40 and codes == {"limit"}, codes
        until(lambda: sorted(few.list()), sorted(made))  # what was refused is not there
        few("free", made[0])
        few("destroy", made[0])
        assert few.run(made[1], 1, "echo", "fine") == (0, b"fine\n")
        few("create", fresh_id(), "linger=1")
        for i in few.list():
            few("destroy", i)
    finally:
        few.quit()


@pytest.mark.skipif(ROOTLESS, reason="starts a spawner of its own")
def test_without_a_spawner_one_is_started(fresh_carrel):
    drive = Drive(fresh_carrel)
    try:
        m = fresh_id()
        drive("create", m, "linger=1")
        assert drive.run(m, 1, "echo", "up") == (0, b"up\n")
        os.kill(spawner_pids(fresh_carrel.run_dir)[0], signal.SIGTERM)
        assert drive.run(m, 2, "true")[0] == 0
        drive("destroy", m)
    finally:
        drive.quit()
