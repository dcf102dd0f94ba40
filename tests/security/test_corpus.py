"""The table of attacks (tests/security/attack), each refused inside and shown to work without the defence."""
import errno
import functools
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile

import pytest

from lab import ATTACK, PLACE, ROOTLESS, Lab, counts, outcomes, read

ROWS = [json.loads(line) for line in
        subprocess.run([ATTACK, "--list"], stdout=subprocess.PIPE, check=True).stdout.splitlines()]


def once(function):
    """As functools.cache, but a failure is remembered too: a host that cannot do it says so once."""
    @functools.cache
    def attempt(*args):
        try:
            return function(*args), None
        except Exception as e:
            return None, e

    def call(*args):
        result, failure = attempt(*args)
        if failure:
            raise failure
        return result
    return call


def say(outcome):
    if outcome == 0:
        return "got through"
    if outcome >= 2000:
        return "no answer"
    return signal.Signals(outcome - 1000).name if outcome >= 1000 else errno.errorcode.get(outcome, outcome)


class Host:
    """What an attacker would look for: a file, sockets, a listener, a process."""

    def __init__(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="ch-", dir=PLACE))
        os.chmod(self.dir, 0o755)
        (self.dir / "mark").write_text("the host\n")
        self.sockets = [socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX), socket.socket()]
        self.sockets[0].bind(f"\0carrel-test-{os.getpid()}")
        self.sockets[1].bind(str(self.dir / "socket"))
        os.chmod(self.dir / "socket", 0o777)
        self.sockets[2].bind(("127.0.0.1", 0))
        for s in self.sockets:
            s.listen(64)

    def facts(self, lab=None, machine=None):
        facts = {"mark": self.dir / "mark", "socket": self.dir / "socket", "abstract": f"carrel-test-{os.getpid()}",
                 "port": self.sockets[2].getsockname()[1], "pid": os.getpid(), "hostname": os.uname().nodename,
                 "boot_id": read("/proc/sys/kernel/random/boot_id").strip(),
                 "root": f"{os.stat('/').st_dev}:{os.stat('/').st_ino}"}
        own = max((line.split(":", 2)[2] for line in read("/proc/self/cgroup").splitlines()), key=len)
        if len(own) > 1:
            facts["cgroup"] = own
        if lab:
            facts |= {"run": lab.run_dir, "home": lab.home, "spawn_sock": lab.run_dir / "spawn.sock"}
        if machine:
            facts |= {"guest_sock": machine.socket}
        return [f"{key}={value}" for key, value in facts.items()]

    def close(self):
        for s in self.sockets:
            s.close()
        shutil.rmtree(self.dir)


def attack(machine, host, user):
    """The outcome of every row that concerns this user, in a box. A terminal is not handed in."""
    done = machine.exec("/usr/local/bin/attack", *host.facts(machine.lab, machine), user=user, timeout=300)
    assert done.returncode == 0, done
    return outcomes(done.stdout.decode())


@once
def inside(user):
    host, lab = Host(), Lab()
    try:
        machine = lab.keep().install()
        return attack(machine, host, user)
    finally:
        host.close()
        lab.stop()


@once
def outside():
    """The same program as root of the host, where nothing holds it back. Its mounts, names and
    processes are its own (unshare), so that getting through does no harm; a shell is pid 1."""
    host = Host()
    lab = Lab()
    try:
        machine = lab.keep()
        facts = host.facts(lab, machine)
        # A real pid of the host has no meaning in a new pid namespace: pid 1 there stands for it.
        facts = [f for f in facts if not f.startswith("pid=")] + ["pid=1"]
        done = subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "--uts", "--ipc", "--mount-proc", "sh", "-c",
             'exec 0</dev/null 9</; cd /; "$@" & wait $!', "sh", ATTACK, *map(str, facts)],
            stdout=open(host.dir / "out", "w+"), env={**lab.env, "PATH": os.environ["PATH"]}, timeout=300)
        assert done.returncode == 0
        return outcomes((host.dir / "out").read_text())
    finally:
        host.close()
        lab.stop()


@once
def weakened(defences, user):
    host, lab = Host(), Lab(weak=defences)
    try:
        return attack(lab.keep().install(), host, user)
    finally:
        host.close()
        lab.stop()


def has_capability(number):
    return int(read("/proc/self/status").split("CapEff:")[1].split()[0], 16) >> number & 1


@once
def unconfined():
    """What the host has, for whoever runs the tests."""
    if not ROOTLESS:
        return outside()
    done = subprocess.run([ATTACK], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd="/tmp", timeout=300)
    return outcomes(done.stdout.decode())


# Rootless, the box's ipc and pid namespaces belong to the caller, who is `user` inside: those settings
# are the box's own.
OWN = {("user", f"write /proc/sys/{name}") for name in
       ("kernel/pid_max", "kernel/msgmax", "kernel/msgmni", "kernel/shmmax", "kernel/shmall", "kernel/sem",
        "fs/mqueue/queues_max")}


def cases():
    for row in ROWS:
        for user in ("root", "user"):
            if row["who"] in ("b", user[0]):
                yield pytest.param(row, user, id=f"{row['group']}-{user}-{row['name']}".replace("/", "|"))


@pytest.mark.parametrize("row, user", cases())
def test_refused_inside(row, user):
    outcome = inside(user)[row["n"]]
    counts["attacks tried"] += 1
    if outcome == 0 and ROOTLESS and (user, row["name"]) in OWN:
        return
    absent = outcome == errno.ENOENT and unconfined().get(row["n"]) == errno.ENOENT
    assert absent or outcome in row["refusals"], f"{say(outcome)}, expected {[say(r) for r in row['refusals']]}"


def test_refused_to_a_program_that_became_root():
    """`user` runs a setuid program, as sudo is one: the attacks of root fail for it as they do for root."""
    host, lab = Host(), Lab()
    try:
        machine = lab.keep().install()
        machine.sh("cp /usr/local/bin/attack /usr/local/bin/rise; chmod 4755 /usr/local/bin/rise")
        done = machine.exec("/usr/local/bin/rise", "--rise", "/usr/local/bin/attack", *host.facts(lab, machine), user="user", timeout=300)
        assert done.returncode == 0, done
        got = outcomes(done.stdout.decode())
    finally:
        host.close()
        lab.stop()
    # The control: it did become root, so what only root may do in a box was done alike.
    assert got.keys() == inside("root").keys() and len(got) > 400
    counts["attacks tried"] += len(got)
    through = [(row["name"], say(got[row["n"]])) for row in ROWS
               if row["n"] in got and got[row["n"]] not in row["refusals"] and got[row["n"]] != inside("root")[row["n"]]]
    assert through == []


ABSENT = {errno.ENOENT, errno.ENOSYS, errno.EAFNOSUPPORT, errno.ENODEV, errno.ENOEXEC, errno.ENETUNREACH,
          errno.EHOSTUNREACH, errno.EPROTONOSUPPORT}


def is_absent(row, outcome):
    """What this host lacks can be attacked nowhere on it."""
    return outcome not in row["reached"] and (
        outcome in ABSENT or outcome == errno.ENODATA and (
            outcome not in row["refusals"] or row["control"] == "weak masks"))


def control(row):
    """What became of an attack where its defence is missing; None where that cannot be shown."""
    if row["control"].startswith("none: "):
        counts["attacks without a control, with the reason in the table"] += 1
        return None
    if row["control"].startswith("weak "):
        outcome = weakened(row["control"][5:], "user" if row["who"] == "u" else "root")[row["n"]]
    elif row["control"] == "outside SYS_RESOURCE" and not has_capability(24):
        outcome = None
    else:
        outcome = outside()[row["n"]]
    if outcome is None or is_absent(row, outcome):
        counts["whose control this host cannot show"] += 1
        return None
    counts["with a control that got through"] += 1
    return outcome


@pytest.mark.skipif(ROOTLESS, reason="without root the host refuses everything too; the run as root has the controls")
@pytest.mark.parametrize("group", sorted({row["group"] for row in ROWS}))
def test_works_without_the_defence(group):
    held = []
    for row in ROWS:
        outcome = control(row) if row["group"] == group else None
        if outcome not in (None, 0, *row["reached"]):
            held.append((row["name"], say(outcome)))
    assert held == []
