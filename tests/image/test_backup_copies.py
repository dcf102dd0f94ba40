"""Backups that leave the host: complete in a directory, checked there, restored by another daemon; and hostile ones."""
import hashlib
import io
import json
import os
import pathlib
import subprocess
import tarfile

import pytest

from carrel import PROGRAM
from daemon import Refused
from test_backups import LOOK, backups, restore, run, store, take, work, forgotten  # noqa: F401


@pytest.fixture(scope="module")
def other():
    """The daemon of another host, which has neither the machine nor its image."""
    from daemon import Daemon
    d = Daemon()
    yield d
    d.stop()


@pytest.fixture
def away(tmp_path):
    return f"{tmp_path}/away"


def carrel(daemon, *words, code=0):
    env = {**daemon.env, "CARREL_URL": "", "CARREL_TOKEN": ""}
    done = subprocess.run([PROGRAM, *words], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100)
    assert done.returncode == code, done
    return done


def names(directory):
    return {str(p.relative_to(directory)) for p in pathlib.Path(directory).rglob("*") if p.is_file()}


def test_copy_is_restored_by_another_daemon(daemon, work, away, other):
    first = carrel(daemon, "backup", "-q", work, "--to", away).stdout.strip()
    before, files = run(daemon, work, LOOK), names(away)
    run(daemon, work, "dd if=/dev/urandom bs=1000 count=100 2>/dev/null of=/root/d/new; rm /root/d/mid")
    second = json.loads(carrel(daemon, "backup", "--json", work, "--to", away).stdout)
    after = run(daemon, work, LOOK)
    assert 100_000 < second["copied_bytes"] < 3_000_000, "only what is new is copied"
    assert names(away) > files and len(list(pathlib.Path(away, "backups").iterdir())) == 2
    assert carrel(other, "backup", "ls", "-q", away).stdout.split() == [second["id"], first]
    assert "match their hashes" in carrel(other, "backup", "verify", away).stderr
    carrel(other, "backup", "verify", "-q", away, first)
    for words, wanted in ((away, first), before), ((away,), after):
        m = carrel(other, "backup", "restore", *words).stdout.strip()
        assert run(other, m, LOOK) == wanted
        other.delete(f"/v1/machines/{m}")
    assert backups(other) == [] and os.listdir(store(other)) == [], "the copy was stored only meanwhile"


def test_damaged_copy_is_named_and_not_restored(daemon, work, away, other):
    carrel(daemon, "backup", "-q", work, "--to", away)
    for folder in "packs", "manifests", "backups":
        path = next(pathlib.Path(away, folder).iterdir())
        good = path.read_bytes()
        path.write_bytes(good[:-100] + bytes([good[-100] ^ 1]) + good[-99:])
        for verb in "verify", "restore":
            assert ("damaged" if verb == "verify" or folder == "backups" else "hash") in carrel(other, "backup", verb, away, code=125).stderr
        path.unlink()
        assert carrel(other, "backup", "verify", away, code=125).stderr
        assert carrel(other, "backup", "restore", away, code=125).stderr
        other.until(lambda: not store(other).exists() or os.listdir(store(other)) == [])
        assert backups(other) == []
        carrel(daemon, "backup", "-q", backups(daemon)[0]["id"], "--to", away)
        assert path.read_bytes() == good, "copied again"
    carrel(other, "backup", "verify", "-q", away)


def test_directory_with_other_files_is_refused(daemon, work, tmp_path):
    (tmp_path / "mine").write_text("mine")
    assert "has files, but no backups" in carrel(daemon, "backup", work, "--to", str(tmp_path), code=125).stderr
    assert names(tmp_path) == {"mine"}
    assert "slash" in carrel(daemon, "backup", work, "--to", "away", code=125).stderr


# ---- hostile copies ----

def hashed(folder, data):
    return f"{folder}/{hashlib.sha256(data).hexdigest()}", data


def described(change):
    """The files of a copy whose description is changed."""
    def make(files):
        (name, text), = ((n, t) for n, t in files if n.startswith("backups/"))
        all_ = json.loads(text.splitlines()[0])
        change(all_)
        line = json.dumps(all_).encode()
        return [f for f in files if f[0] != name] + [(name, line + b"\n" + hashlib.sha256(line).hexdigest().encode() + b"\n")]
    return make


def put(**fields):
    return described(lambda d: d.update(fields))


def detail(**fields):
    return described(lambda d: d["details"].update(fields))


HOSTILE = {
    "path": lambda f: f + [("../../escaped", b"x")],
    "absolute": lambda f: f + [("/tmp/escaped", b"x")],
    "record": lambda f: f + [("known", b"x")],
    "hash": lambda f: f + [("packs/" + "0" * 64, b"x")],
    "short hash": lambda f: f + [("packs/00", b"x")],
    "large pack": lambda f: f + [hashed("packs", b"\0" * ((16 << 20) + 1))],
    "no manifest": lambda f: [x for x in f if not x[0].startswith("manifests/")],
    "another manifest": lambda f: f + [hashed("manifests", b"CRLTREE\2")],
    "no packs": lambda f: [x for x in f if not x[0].startswith("packs/")],
    "no description": lambda f: [x for x in f if not x[0].startswith("backups/")],
    "two descriptions": lambda f: f + [("backups/b", b"{}")],
    "description without hash": lambda f: [(n, t.splitlines()[0] if n.startswith("backups/") else t) for n, t in f],
    "form": put(carrel=2),
    "name": put(name="../x"),
    "time": put(created_ms=1 << 62),
    "manifest of the description": put(manifest="0" * 64),
    "no details": put(details=None),
    "kind": detail(kind="cell"),
    "no kind": detail(kind=7),
    "memory": detail(mem=1 << 60),
    "negative": detail(pids=-1),
    "taint": detail(taint="a\nb"),
    "config": detail(config=[]),
    "host": detail(host="/etc/passwd"),
}


@pytest.fixture(scope="module")
def copy(daemon_session, rootfs):
    """The files of a good copy of a small backup."""
    d = daemon_session
    d.request("POST", "/v1/images", rootfs.read_bytes(), name="small")
    m = d.machine(image="small")
    backup = take(d, m)
    data = d.request("GET", f"/v1/backups/{backup['id']}/archive", raw=True)
    d.delete(f"/v1/machines/{m}")
    d.delete("/v1/backups/" + backup["id"])
    d.delete("/v1/images/small")
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return [(e.name, tar.extractfile(e).read()) for e in tar]


def archive(files):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, contents in files:
            info = tarfile.TarInfo(name)
            info.size = len(contents)
            tar.addfile(info, io.BytesIO(contents))
    return data.getvalue()


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_copy_is_refused_and_leaves_nothing(daemon, copy, what):
    with pytest.raises(Refused) as e:
        daemon.request("POST", "/v1/backups", archive(HOSTILE[what](copy)))
    assert e.value.code in ("invalid", "unsupported", "limit"), e.value
    assert backups(daemon) == [] and os.listdir(store(daemon)) == []


def test_good_copy_is_stored_and_what_it_does_not_need_is_not(daemon, copy):
    stored = daemon.request("POST", "/v1/backups", archive(copy + [hashed("packs", b"not needed")]))
    assert [b["id"] for b in backups(daemon)] == [stored["id"]] and stored["machine"] not in (m["id"] for m in daemon.machines(all=1))
    files = names(store(daemon) / stored["machine"])
    assert len(files) == len([f for f in copy if not f[0].startswith("backups/")])
    daemon.post(f"/v1/backups/{stored['id']}/verify")
    assert run(daemon, restore(daemon, stored)["id"], "echo works") == "works\n"


@pytest.mark.parametrize("part", [0.1, 0.5, 0.999])
def test_client_that_leaves_leaves_nothing(daemon, copy, part):
    data = archive(copy)
    c = daemon.connect()
    c.connect()
    with c.sock as s:
        s.sendall(b"POST /v1/backups HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data) + data[:int(len(data) * part)])
        daemon.until(lambda: store(daemon).exists() and os.listdir(store(daemon)))
    daemon.until(lambda: os.listdir(store(daemon)) == [])
    assert backups(daemon) == []
