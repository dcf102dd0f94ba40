"""Processes of vms on the host."""
import json
import pathlib
import subprocess

from carrel import PROGRAM, parent_of, spawner_pids
from daemon import Refused


def processes(*words):
    """Pids whose command line has all words."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().decode(errors="replace") if entry.name.isdigit() else ""
        except OSError:
            continue
        if line and all(word in line for word in words):
            found.append(int(entry.name))
    return found


def qemu_of(machine_name):
    return processes("qemu-system-", f"-name\0{machine_name}\0")


def qemu_of_daemon(daemon, machine_name):
    """Only those of this daemon: another one on the host may have a vm with the same name."""
    found, spawners = [], spawner_pids(daemon.run_dir)
    for pid in qemu_of(machine_name):
        above = pid
        while above > 1 and above not in spawners:
            above = parent_of(above)
        found += [pid] if above in spawners else []
    return found


def files_of(qemu):
    """The server of the files that started this QEMU."""
    status = pathlib.Path(f"/proc/{qemu}/status").read_text()
    return int(status.split("PPid:")[1].split()[0])


def delete_what_is_left(daemon, m):
    """A vm that ended by itself is stopped if a step of it was saved already, and gone otherwise."""
    try:
        daemon.delete(f"/v1/machines/{m}")
    except Refused as e:
        assert e.code == "gone", e


def events(daemon, machine):
    """Types of the events of a machine, oldest first."""
    lines = subprocess.run([PROGRAM, "events", "--past", "--json", machine], env=daemon.env, capture_output=True, text=True, timeout=60).stdout
    return [e["type"] for e in map(json.loads, lines.splitlines())]


def answers(daemon, machine):
    try:
        return daemon.exec(machine, "true")["exec"]["status"] == 0
    except Refused:
        return False
