"""What outlives the host: the last durable step. The host's restart is played: every process of ours killed, the run
directory gone, and another boot id than the one that was written down."""
import contextlib
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import threading
import time

import pytest
from carrel import PROGRAM, signal_all, spawner_pids
from daemon import Daemon, Refused
from patience import clock
from small_home import SmallHome, why_not
from test_events import journal
from test_steps import Box, Fork, refused


DEEP = "mkdir -p $(printf 'd/%.0s' $(seq 220))"  # too deep to be saved


def restart_host(d, off=lambda: None):
    """off: what happens to the disk of the host while it is off."""
    d.kill()
    spawners = spawner_pids(d.run_dir)
    signal_all(spawners, signal.SIGKILL)
    signal_all([int(re.search(r"^pid=(\d+)", record.read_text(), re.M).group(1)) for record in d.run_dir.glob("boxes/*/box")], signal.SIGKILL)
    d.until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in spawners))
    for path in d.run_dir.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    off()
    db = sqlite3.connect(d.home / "carrel.db")
    with db:
        db.execute("UPDATE saved SET boot = 'another' WHERE boot != ''")
    db.close()
    d.start()


def durable(b, number):
    """That step, once it is."""
    end = clock() + 20
    while True:
        found = [s for s in b.steps() if s["durable"]]
        if found and found[0]["number"] == number:
            assert len(found) == 1
            return found[0]
        assert clock() < end, b.steps()
        time.sleep(0.05)


def saved(d):
    return list(d.home.glob("saved/d-*"))


@pytest.fixture(scope="module")
def host():
    d = Daemon()
    yield d
    d.stop()


def test_after_a_restart_of_the_host_a_machine_is_its_last_durable_step(host):
    b = Box(host, name="lasting", metadata={"for": "ever"})
    b.sh("mkdir d; echo one >d/one; ln d/one d/two; ln -s one d/link; chmod 640 d/one; echo gone >gone")
    b.sh("rm gone; rm -r d; mkdir d; echo new >d/new; echo id >id; truncate -s 10M holes")
    who = b.sh("cat /etc/machine-id /etc/hostname 2>/dev/null; hostname")
    step = durable(b, 3)
    assert step["restorable"]
    x = host.post(b.url + "/execs", {"command": "echo late >late; sleep 100", "background": True})["id"]
    host.until(lambda: host.get(f"{b.url}/execs/{x}")["state"] == "running")
    restart_host(host)
    m = host.get(b.url)
    assert m["state"] == "stopped" and m["reason"] == "the host was restarted: restored as of step 3"
    lost = host.get(f"{b.url}/execs/{x}")
    assert lost["state"] == "unknown" and lost["reason"] == "the host was restarted", "nobody knows how it ended"
    assert not [r for r in journal(host, machine=b.id) if r.get("exec") == x and "exit" in r], "an exit that nobody saw"
    assert m["metadata"] == {"for": "ever"} and m["name"] == "lasting"
    refused("busy", b.sh, "true")
    refused("busy", b.snap)
    steps = {s["number"]: s for s in b.steps()}
    assert steps[3]["restorable"] and steps[3]["durable"]
    assert not steps[2]["restorable"] and "restarted" in steps[2]["reason"]
    host.restart()  # it waits on
    assert host.get(b.url)["state"] == "stopped"
    assert host.post(b.url + "/resume")["state"] == "running"
    assert "reason" not in host.get(b.url)
    assert b.sh("cat d/new; ls d; ls; stat -c '%s %b' holes; cat id").split() == ["new", "new", "d", "holes", "id", "10485760", "0", "id"]
    assert b.sh("cat /etc/machine-id /etc/hostname 2>/dev/null; hostname") == who
    assert host.get("/v1/store/check")["whole"]


def test_changes_are_shown_after_a_restart_of_the_host(host):
    b = Box(host)
    b.sh("mkdir d; echo one >d/one; echo two >d/two")
    b.sh("rm d/two; echo three >three")
    durable(b, 2)
    shown = host.get(b.url + "/diff", path="/home")["changes"]
    restart_host(host)
    host.post(b.url + "/resume")
    assert shown and host.get(b.url + "/diff", path="/home")["changes"] == shown
    b.sh("echo more >>three")
    assert [c["path"] for c in host.get(b.url + "/diff", **{"path": "/home", "from": "2"})["changes"]] == ["home/user/three"]


def test_the_cost_of_a_diff_after_a_restart_of_the_host_depends_on_what_changed(host):
    """Most layers are then copies in the store. The files of the image are not looked at, nor those of untouched layers."""
    b = Box(host)
    b.sh("mkdir many; cd many; seq 3000 | xargs touch")
    for i in range(4):
        b.sh(f"echo {i} >f{i}")
    durable(b, 5)
    before = host.get(b.url + "/diff", brief=True)
    restart_host(host)
    host.post(b.url + "/resume")
    after = host.get(b.url + "/diff", brief=True)
    assert after["changes"] == before["changes"] and after["added"] > 3000
    assert after["looked"] <= before["looked"] + 100, (before["looked"], after["looked"])
    b.sh("echo more >f1")
    host.until(lambda: len(saved_layers(host, b)) == 1)  # the copies are merged: no layer of step 5 is left in the root
    found = host.get(b.url + "/diff", **{"from": "5"})
    assert [c["path"] for c in found["changes"]] == ["home/user/f1"]


def test_a_clone_is_compared_with_its_base_after_restarts_of_the_host(host, tmp_path):
    """The step after the clone is gone then, but the copy of its layer is known, and is not merged with later ones."""
    git = ["git", "-C", tmp_path, "-c", "user.name=o", "-c", "user.email=o@example.com"]
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    for i in range(200):
        (tmp_path / f"f{i}").write_text("one\n")
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-qm", "one"], check=True)

    def carrel(*words):
        return subprocess.run([PROGRAM, *words], env=host.env, capture_output=True, text=True, timeout=100, check=True).stdout.strip()
    b = Fork(host, carrel("new", "--repo", f"{tmp_path}"), None)
    place = host.get(b.url + "/grants")["grants"][0]
    wanted = set()
    for i in range(3):
        for k in range(2):
            b.sh(f"echo {k} >>{place['at']}/f{i}")
            wanted.add(f"f{i}")
        host.until(lambda: b.steps()[-1]["durable"])
        restart_host(host)
        host.post(b.url + "/resume")
        found = host.get(b.url + "/diff", **{"from": place["detail"]["exec"], "path": place["at"], "brief": True})
        assert {c["path"].split("/")[-1] for c in found["changes"]} == wanted and found["from"] == {"name": place["detail"]["exec"]}, found
        assert found["looked"] < 100, found["looked"]
    shown = carrel("diff", b.id)
    assert all(f"M  {name}" in shown for name in wanted), shown
    assert len(saved_layers(host, b)) < 8


def saved_layers(d, b):
    """The layers of the machine's root that are copies in the store."""
    db = sqlite3.connect(f"file:{d.home}/carrel.db?mode=ro", uri=True)
    (stack,), = db.execute("SELECT stack FROM roots WHERE machine = ?", (b.id,))
    db.close()
    return re.findall(r"d-\S+", stack)


def test_packages_that_changed_while_the_host_was_off_are_noticed(host):
    """The state of the host's packages is written down beside the saved layers; here another one is."""
    others = saved(host)
    b = Box(host)
    b.sh("echo one >one")
    durable(b, 1)
    base = next(disk for disk in saved(host) if disk not in others) / "base"
    was = base.read_text()
    restart_host(host)
    host.post(b.url + "/resume")
    assert not host.get(b.url)["drifted"]
    base.write_text("0" * len(was))
    restart_host(host)
    host.post(b.url + "/resume")
    host.get(b.url + "/stats")
    assert host.get(b.url)["drifted"] and b.sh("cat one") == "one\n"
    assert "packages changed" in refused("unsupported", b.fork)
    assert "packages changed" in refused("unsupported", b.rewind, 1)
    b.fork(drifted=True)
    signal_all(spawner_pids(host.run_dir), signal.SIGKILL)  # the next one knows it, too
    assert "packages changed" in refused("unsupported", b.fork)
    b.sh("echo two >two")
    host.until(lambda: b.steps()[-1]["durable"])
    assert base.read_text() == "drifted"


def test_it_goes_on_from_there_and_survives_again(host):
    b = Box(host)
    b.sh("echo one >one")
    durable(b, 1)
    restart_host(host)
    host.post(b.url + "/resume")
    b.sh("echo two >two; rm one")
    durable(b, 2)
    b.rewind(1)
    assert b.sh("ls") == "one\n"
    b.rewind(2)
    restart_host(host)
    host.post(b.url + "/resume")
    assert b.sh("ls; cat two") == "two\ntwo\n"
    fork = b.fork()[0]
    host.delete(b.url)
    host.until(lambda: b.id not in [m["id"] for m in host.machines()])
    assert fork.sh("cat two") == "two\n", "what it lies on stays as long as it is needed"


def test_hard_links_owners_and_whiteouts_come_back(host):
    b = Box(host)
    b.sh("cp /bin/true t; ln t u; mkfifo p; rm -f ~/.bashrc; mkdir -p a/b; echo x >a/b/x; mv a moved", user="root")
    look = "cd; find . /home -printf '%p %y %m %u %g %l\\n' | sort; find . -type f -printf '%p %n %s %T@\\n' | sort; stat -c '%a %u %g' / /tmp"
    before = b.sh(look, user="root")
    durable(b, 2)
    restart_host(host)
    host.post(b.url + "/resume")
    assert b.sh(look, user="root") == before


def test_forks_come_back_too_and_what_nobody_needs_goes(host):
    host.clear()
    host.until(lambda: not saved(host))
    b = Box(host)
    b.sh("echo base >base")
    fork = b.fork()[0]
    fork.sh("echo own >own")
    durable(fork, fork.steps()[-1]["number"])
    restart_host(host)
    assert [m["id"] for m in host.machines() if m["state"] == "stopped"].count(fork.id) == 1
    host.post(fork.url + "/resume")
    assert fork.sh("cat base own") == "base\nown\n"
    assert saved(host)
    host.clear()
    host.until(lambda: not saved(host))


def test_without_a_durable_step_there_is_nothing_to_come_back_as(host):
    b = Box(host, steps="manual")
    b.sh("echo x >x")
    restart_host(host)
    host.until(lambda: host.get(b.url)["state"] == "ended")


def test_stacks_stay_short_however_often_the_host_is_restarted(host):
    b = Box(host, steps="manual")
    for i in range(4):
        b.sh(f"echo {i} >f{i}; rm -f f{i - 2}; mkdir -p d; echo {i} >d/{i}")
        durable(b, b.snap()["number"])
        restart_host(host)
        host.post(b.url + "/resume")
    b.sh("echo more >more")
    b.snap()
    layers = []
    for i in range(40):
        b.sh(f"echo {i} >last")
        layers.append(b.snap()["layers"])
        if layers[-1] <= 3:
            break
        time.sleep(0.1)
    assert layers[-1] <= 3, layers
    assert b.sh("cat f2 f3 d/* more; ls") == "2\n3\n0\n1\n2\n3\nmore\nd\nf2\nf3\nlast\nmore\n"
    durable(b, b.snap("whole")["number"])
    restart_host(host)
    host.post(b.url + "/resume")
    assert b.sh("cat f2 f3 d/* more") == "2\n3\n0\n1\n2\n3\nmore\n"
    assert host.get("/v1/store/check")["whole"]


def test_what_was_saved_in_vain_goes_again(host):
    """Directories cannot be saved, so what lies over them is not needed either; nor is what somebody left who was killed."""
    others = saved(host)
    b = Box(host, steps="manual")
    tried = f"save a step: cannot save layers of machine '{b.id}'"

    def fails(change):
        before = host.log().count(tried)
        b.sh(change)
        b.snap()
        host.until(lambda: host.log().count(tried) > before)

    fails(DEEP)
    disk, = [d for d in saved(host) if d not in others]
    assert [p.name for p in disk.iterdir()] == ["base"]
    (disk / "trash/half-wiped").mkdir(parents=True)
    fails(f"mkdir more; cd more; {DEEP}")
    host.until(lambda: [p.name for p in disk.iterdir()] == ["base"])
    (disk / "99.new").mkdir()
    fails("echo above >above")
    host.until(lambda: [p.name for p in disk.iterdir()] == ["base"])
    host.delete(b.url)


def test_why_a_step_is_not_durable_is_shown_until_one_is(host):
    b = Box(host, steps="manual")
    durable(b, b.snap("flat")["number"])
    assert "undurable" not in host.get(b.url)
    b.sh(DEEP)
    b.snap()
    host.until(lambda: "directories are nested more than 200 deep" in host.get(b.url).get("undurable", ""))
    b.rewind("flat")
    b.sh("echo again >again")
    durable(b, b.snap()["number"])
    assert "undurable" not in host.get(b.url)
    host.delete(b.url)


def test_what_cannot_be_thrown_away_is_told(host):
    others = saved(host)
    b = Box(host)
    b.sh("echo one >one")
    durable(b, 1)
    disk, = [d for d in saved(host) if d not in others]
    (disk / "8").mkdir()
    (disk / "trash").touch()
    b.sh("echo two >two")
    durable(b, 2)
    host.until(lambda: "delete saved layers: cannot delete unused layers of the disk: Not a directory" in host.log())
    host.delete(b.url)


def test_wiping_goes_on_after_a_kill(host):
    """What was thrown away in the store goes with the next undertaker, if the one before did not get so far."""
    places = [host.home / "saved", host.home / "images"]
    signal_all(spawner_pids(host.run_dir), signal.SIGKILL)
    for place in places:
        (place / "trash/half/wiped").mkdir(parents=True)
    b = Box(host)
    b.sh("echo one >one")
    host.until(lambda: not any((place / "trash").exists() for place in places))
    host.delete(b.url)


def first_process(d, b):
    return int(re.search(r"^pid=(\d+)", (d.run_dir / "boxes" / b.id / "box").read_text(), re.M).group(1))


def kill_first_process(d, b):
    """As the kernel does when memory is short, or an operator."""
    os.kill(first_process(d, b), signal.SIGKILL)


def test_a_killed_first_process_leaves_the_last_durable_step(host, tmp_path):
    fd = os.open(tmp_path, os.O_RDONLY)
    b = Box.__new__(Box)
    b.d, b.id = host, host.lend(fd, dirs=[{"path": str(tmp_path), "at": "/home/user/lent", "mode": "cow"}])
    os.close(fd)
    b.sh("echo kept >/home/user/kept")
    step = durable(b, 1)
    late = host.background(b.id, "echo late >/home/user/late; sleep 1000")
    kill_first_process(host, b)
    host.until(lambda: host.get(b.url)["state"] == "stopped")
    reason = host.get(b.url)["reason"]
    assert "first process was killed" in reason and f"step {step['number']}" in reason and "grant its directories again" in reason
    lost = host.get(f"{b.url}/execs/{late}")
    assert lost["state"] == "unknown" and f"carrel resume {b.id}" in lost["reason"], lost
    with pytest.raises(Refused) as why:
        host.get(b.url + "/files", path="/home/user/kept")
    assert f"carrel resume {b.id}" in why.value.error["remedy"] and reason in why.value.error["message"], why.value
    host.restart()  # it waits on, and why is still known
    assert host.get(b.url)["state"] == "stopped" and host.get(b.url)["reason"] == reason
    assert host.post(b.url + "/resume")["state"] == "running"
    assert b.sh("cat /home/user/kept; ls /home/user/late 2>/dev/null; true") == "kept\n"
    b.sh("echo more >/home/user/more")  # and steps go on
    durable(b, b.steps()[-1]["number"])
    kill_first_process(host, b)
    host.until(lambda: host.get(b.url)["state"] == "stopped")
    host.post(b.url + "/resume")
    assert b.sh("cat /home/user/kept /home/user/more") == "kept\nmore\n"
    assert host.get("/v1/store/check")["whole"]


def test_a_first_process_killed_while_no_daemon_runs_is_the_same(host):
    b = Box(host)
    b.sh("echo kept >kept")
    durable(b, 1)
    pid = first_process(host, b)
    host.kill()
    os.kill(pid, signal.SIGKILL)
    host.start()
    host.until(lambda: host.get(b.url)["state"] == "stopped")
    with pytest.raises(Refused) as why:  # it is not waited for: nobody but who resumes it brings it back
        host.exec(b.id, "true")
    assert f"carrel resume {b.id}" in why.value.error["remedy"] and "is stopped" in why.value.error["message"], why.value
    host.post(b.url + "/resume")
    assert b.sh("cat kept") == "kept\n"


def test_a_machine_that_is_removed_while_it_falls_is_gone(host):
    b = Box(host)
    b.sh("echo kept >kept")
    durable(b, 1)
    kill_first_process(host, b)
    host.delete(b.url)
    assert host.get(b.url)["state"] == "ended"
    host.until(lambda: b.id not in str(list(host.run_dir.glob("boxes/*"))))


def falls(d, b):
    return sum(r["verb"] == "machine.fall" and r["kind"] == "result" for r in journal(d, machine=b.id))


@pytest.mark.parametrize("verbs", [("stop", "stop"), ("pause", "resume"), ("update", "stop"), ("pause", "destroy")], ids="+".join)
def test_a_verb_under_way_when_its_box_falls_is_answered(host, verbs):
    """Whatever the driver was doing: one answer to each, and a daemon that lives on."""
    def ask(b, verb, answers):
        calls = {"update": lambda: host.patch(b.url, {"ttl": "1h"}), "destroy": lambda: host.delete(b.url)}
        try:
            calls.get(verb, lambda: host.post(f"{b.url}/{verb}"))()
            answers.append("done")
        except Refused as why:
            answers.append(why.code)

    boxes = [Box(host) for _ in range(3)]
    for b in boxes:
        b.sh("echo kept >kept")
    for b in boxes:
        durable(b, 1)
    answers = []
    asking = [threading.Thread(target=ask, args=(b, verb, answers)) for b in boxes for verb in verbs]
    firsts = [os.pidfd_open(first_process(host, b)) for b in boxes]  # a number may be another's once a box is removed
    for t in asking:
        t.start()
    for fd in firsts:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        os.close(fd)
    for t in asking:
        t.join()
    assert len(answers) == len(asking) and set(answers) <= {"done", "busy", "gone", "unknown", "not_found"}, answers
    for b in boxes:
        host.until(lambda: falls(host, b) == 1 or host.get(b.url)["state"] == "ended")
        if host.get(b.url)["state"] == "stopped":
            assert host.post(b.url + "/resume")["state"] == "running"
            assert b.sh("cat kept") == "kept\n"
            host.delete(b.url)


def test_without_a_durable_step_a_killed_machine_has_ended(host):
    b = Box(host, steps="manual")
    kill_first_process(host, b)
    host.until(lambda: host.get(b.url)["state"] == "ended")
    assert "by itself" in host.get(b.url)["reason"]


class CutHome(SmallHome):
    """A store on a disk whose power can be cut: then it holds only what was synced or written back before."""
    features = "has_journal"

    def cut(self):
        copy = self.dir / "copy"
        (self.home / "unsynced").write_text("x" * 100000)
        subprocess.run(["cp", "--sparse=always", self.image, copy], check=True)
        self.until(lambda: subprocess.run(["umount", self.home], stderr=subprocess.DEVNULL).returncode == 0)
        copy.rename(self.image)
        subprocess.run(["mount", "-o", "loop", self.image, self.home], check=True)
        unsynced = self.home / "unsynced"
        assert not unsynced.exists() or "x" not in unsynced.read_text(), "the control: nobody synced this file"


@pytest.mark.skipif(bool(why_not()), reason=str(why_not()))
def test_a_durable_step_of_a_disk_image_survives_a_power_cut():
    """The image has no write barriers. What is durable is synced in the store, and the image is not needed."""
    d = CutHome(size=600)
    try:
        b = Box(d, limits={"mem": "64M", "disk": "100M"}, steps="manual")
        for i in range(3):
            b.sh(f"mkdir d{i}; for n in $(seq 300); do echo {i} $n >d{i}/$n; done; rm -rf d{i - 2}; head -c 5000000 /dev/urandom >big; sha256sum big >sum")
            step = durable(b, b.snap()["number"])
            time.sleep(0.5)  # the database is synced a moment after its answers
            b.sh("echo later >later; rm -rf d*")
            restart_host(d, off=d.cut)
            assert d.get(b.url)["reason"] == f"the host was restarted: restored as of step {step['number']}"
            assert d.post(b.url + "/resume")["state"] == "running"
            assert b.sh(f"sha256sum --quiet -c sum; cat d{i}/* | wc -l; tail -n 1 d{i}/300; echo *").split("\n") == [
                "300", f"{i} 300", " ".join(["big", *(f"d{k}" for k in (i - 1, i) if k >= 0), "sum"]), ""]
            assert d.get("/v1/store/check")["whole"]
    finally:
        d.stop()
