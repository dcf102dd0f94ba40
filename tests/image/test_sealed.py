"""Images that are one file: how they become it, what lies on them, and what is never mounted."""
import contextlib
import hashlib
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import tarfile
import tempfile
import time

import pytest

from carrel import ROOTLESS, alive, signal_all, spawner_pids
from daemon import Refused
from trees import archive, directory, entry, hard, layout, link

pytestmark = pytest.mark.skipif(ROOTLESS, reason="mounting an image from its file needs root: directories")


def put(daemon, data, **query):
    return daemon.request("POST", "/v1/images", data, **query)


@pytest.fixture(scope="session", autouse=True)
def mountable(daemon_session):
    if not ROOTLESS and daemon_session.get("/v1/status")["box"]["images"] != "erofs":
        pytest.skip("this kernel cannot mount erofs from a file of the store")


def place(daemon, image):
    return pathlib.Path(daemon.home, "images", image["id"])


def sealed(daemon, image):
    """Where it lies, once it is a file and nothing else."""
    where = place(daemon, image)
    daemon.until(lambda: (where / "root.erofs").exists() and not (where / "root").exists())
    assert daemon.get("/v1/images/" + image["id"])["stored"] == "erofs"
    return where


def mounted(daemon):
    """The images that the spawner has mounted."""
    pid = daemon.get("/v1/status")["box"]["pid"]
    lines = pathlib.Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
    return [line.split()[4].rsplit("/", 1)[1] for line in lines if " - erofs " in line]


def workers(daemon):
    """The mounts that each process holds which reads an image of ours."""
    seen = []
    for fd in pathlib.Path("/proc").glob("[0-9]*/fd/3"):
        with contextlib.suppress(OSError):
            process = fd.parents[1]
            if (process / "comm").read_text() == "carrel-image\n" and str(daemon.home) in os.readlink(fd):
                look = ["nsenter", "-t", process.name, "-m", "cat", "/proc/self/mountinfo"]  # its own table shows what is under its root
                seen.append(subprocess.check_output(look, text=True))
    return seen


def odd(rootfs):
    """All that a tree can hold."""
    info, data = entry("noted", b"x" * 5000)
    info.pax_headers = {"SCHILY.xattr.user.note": "kept", "SCHILY.xattr.user.other": "y" * 3000}
    return layout([rootfs.read_bytes(), archive(
        (info, data), hard("noted-too", "noted"), hard("a-third", "noted"), entry("empty", b""), entry("block", b"b" * 4096),
        entry("tail", b"t" * 4097), entry("almost", b"a" * 4095), entry("large", os.urandom(300_000)), link("away", "nowhere"),
        link("far", "f" * 4000), directory("many", mtime=7), *[entry(f"many/{i:04}-{'n' * (i % 200)}", b"%d" % i) for i in range(900)],
        directory("names"), *[entry("names/" + n, b"") for n in ("-a", ".-b", "...", "..a", "!", "~", "ü" * 100)],
        entry("pipe", type=tarfile.FIFOTYPE), directory("sticky", mode=0o1777), entry("set", b"s", mode=0o6711, uid=65535, gid=3),
        entry("old", b"o", mtime=1), entry("zeros", bytes(1 << 20)))])


def test_a_named_image_becomes_a_file(daemon, rootfs):
    image = put(daemon, rootfs.read_bytes(), name="small")
    where = sealed(daemon, image)
    made = (where / "root.erofs").stat()
    assert stat.S_IMODE(made.st_mode) == 0o400 and made.st_uid == 0
    assert sorted(os.listdir(where)) == ["image.json", "presets", "root.erofs"]
    m = daemon.machine(image="small")
    assert daemon.exec(m, "stat -c '%u %g %a' /usr/bin/sh; echo x >/etc/new; cat /etc/new")["stdout"].split() == ["0", "0", "755", "x"]
    daemon.until(lambda: mounted(daemon) == [image["id"]])


def test_what_is_in_the_file_is_what_was_in_the_tree(daemon, rootfs):
    image = put(daemon, odd(rootfs), name="odd")
    where = sealed(daemon, image)
    again = put(daemon, daemon.request("GET", "/v1/images/odd/archive", raw=True, form="tar"), name="again")
    assert again["id"] == image["id"], "names, kinds, owners, modes, times, contents, links and attributes"
    m = daemon.machine(image="odd")
    out = daemon.exec(m, "ls /many | wc -l 2>/dev/null; stat -c %h /noted /a-third; stat -c '%u %g %a' /set; stat -c %Y /many /old; "
                         "stat -c %s /zeros /tail /far; readlink /away; ls -A /names; cat /many/0899*")["stdout"].split()
    assert out[-1] == "899" and out[:2] == ["3", "3"], out
    assert out[2:5] == ["65535", "3", "6711"] and out[5:7] == ["7", "1"] and out[7:10] == ["1048576", "4097", "4000"], out
    assert out[10] == "nowhere" and set(out[11:-1]) == {"-a", ".-b", "...", "..a", "!", "~", "ü" * 100}
    if shutil.which("fsck.erofs"):
        subprocess.run(["fsck.erofs", where / "root.erofs"], check=True, stdout=subprocess.DEVNULL, timeout=60)
    assert (where / "root.erofs").stat().st_blocks * 512 < 40 << 20, "holes stay holes"


def test_the_same_tree_is_the_same_file(daemon, rootfs):
    def made():
        image = put(daemon, rootfs.read_bytes(), name="small")
        where = sealed(daemon, image)
        sum_ = hashlib.sha256((where / "root.erofs").read_bytes()).hexdigest()
        daemon.delete("/v1/images/small")
        daemon.until(lambda: not where.exists())
        return sum_

    assert made() == made()


def test_steps_rewind_fork_and_differences_on_a_file(daemon, rootfs):
    image = put(daemon, odd(rootfs), name="odd")
    sealed(daemon, image)
    m = daemon.machine(image="odd")
    daemon.exec(m, "echo one >>/old; rm /block; mkdir /many/sub; echo x >/many/sub/x")
    daemon.exec(m, "rm -r /many; echo two >>/old")
    changes = {c["path"]: c["change"] for c in daemon.get(f"/v1/machines/{m}/diff")["changes"]}
    assert changes["old"] == "modified" and changes["block"] == "deleted", changes
    daemon.post(f"/v1/machines/{m}/rewind", {"step": "1"})
    assert daemon.exec(m, "cat /old /many/sub/x; ls /block 2>&1 | cat >/dev/null; cat /many/0899*")["stdout"] == "oone\nx\n899"
    fork = daemon.post(f"/v1/machines/{m}/fork", {})["machines"][0]["id"]
    assert daemon.exec(fork, "cat /old")["stdout"] == "oone\n"
    derived = daemon.post(f"/v1/machines/{m}/image", {"name": "derived"})
    assert derived["layers"] == 2 and derived["stored"] == "directory", "a layer above the file"
    assert daemon.exec(daemon.machine(image="derived"), "cat /old")["stdout"] == "oone\n"


def test_boxes_share_a_mount_that_goes_with_the_image(daemon, rootfs):
    image = put(daemon, rootfs.read_bytes(), name="small")
    sealed(daemon, image)
    a, b = daemon.machine(image="small"), daemon.machine(image="small", limits={"disk": 64 << 20})
    daemon.until(lambda: mounted(daemon) == [image["id"]])
    assert daemon.exec(a, "stat -c %i /usr/bin/sh")["stdout"] == daemon.exec(b, "stat -c %i /usr/bin/sh")["stdout"]
    daemon.delete("/v1/images/small")
    assert daemon.exec(a, "cat /etc/group")["exec"]["status"] == 0, "machines on it keep it"
    daemon.clear()
    daemon.until(lambda: not place(daemon, image).exists() and mounted(daemon) == [])


def test_a_machine_on_the_directory_goes_on_and_the_directory_goes_with_it(daemon, rootfs):
    """Whoever is quick gets the tree, and keeps it while the file is made."""
    image = put(daemon, rootfs.read_bytes(), name="build:small")
    m = daemon.machine(image="build:small")
    daemon.post("/v1/images/build:small/names", {"name": "small"})
    where = place(daemon, image)
    daemon.until(lambda: (where / "root.erofs").exists())
    assert daemon.exec(m, "cat /etc/group >/dev/null && echo x >/x")["exec"]["status"] == 0 and (where / "root").exists()
    assert daemon.exec(m, "cat /x; ls /usr/bin/sh")["stdout"].split() == ["x", "/usr/bin/sh"], "after a step it is on the file"
    daemon.clear()
    sealed(daemon, image)


def test_an_export_of_the_directory_is_whole_though_it_becomes_a_file(daemon, rootfs):
    """Whoever reads the tree keeps it, however slowly."""
    image = put(daemon, layout([rootfs.read_bytes(), archive(entry("large", bytes(48 << 20)), entry("zz", b"last"))]), name="build:large")
    where = place(daemon, image)
    c = daemon.connect()
    c.request("GET", f"/v1/images/{image['id']}/archive?form=tar")
    answer = c.getresponse()
    begun = answer.read(1000)
    assert workers(daemon) and not any(str(daemon.run_dir) in mounts for mounts in workers(daemon)), "a worker keeps nothing of the spawner's"
    daemon.post("/v1/images/build:large/names", {"name": "large"})
    daemon.until(lambda: (where / "root.erofs").exists())
    time.sleep(1.2)  # longer than it takes to try again
    assert (where / "root").exists()
    whole = begun + answer.read()
    c.close()
    sealed(daemon, image)
    assert put(daemon, whole, name="again")["id"] == image["id"]


def test_the_check_of_the_store_knows_files(daemon, rootfs):
    file = sealed(daemon, put(daemon, rootfs.read_bytes(), name="small")) / "root.erofs"
    m = daemon.machine(image="small")
    assert daemon.get("/v1/store/check")["problems"] == []
    file.chmod(0o666)
    found = daemon.get("/v1/store/check")["problems"]
    file.chmod(0o400)
    assert [p["machine"] for p in found] == [m] and "image" in found[0]["what"] and "again" in found[0]["remedy"], found


def test_steps_of_builds_stay_directories(daemon, rootfs):
    step = put(daemon, rootfs.read_bytes(), name="build:step")
    other = put(daemon, archive(directory("x")), name="other")
    sealed(daemon, other)
    assert daemon.get("/v1/images/build:step")["stored"] == "directory" and (place(daemon, step) / "root").is_dir()


def test_presets_are_read_from_it(daemon, rootfs):
    conf = archive(directory("etc/apt"), entry("etc/apt/sources.list", b"deb http://mirror.example/debian x main\n"),
                   directory("etc/pip"), link("etc/pip.conf", "pip/real"), entry("etc/pip/real", b"index-url = https://pip.example/simple\n"),
                   entry("etc/npmrc", b"registry=https://closed.example/\n", mode=0o600))
    sealed(daemon, put(daemon, layout([rootfs.read_bytes(), conf]), name="configured"))
    m = daemon.machine(image="configured", net=[{"target": "apt"}, {"target": "pip"}])
    targets = {r["target"] for r in daemon.get(f"/v1/machines/{m}/net")["rules"]}
    assert any("mirror.example" in t for t in targets) and any("pip.example" in t for t in targets), targets
    with pytest.raises(Refused) as refused:
        daemon.machine(image="configured", net=[{"target": "npm"}])
    assert refused.value.code == "not_found", "what not everybody may read does not count"


# ---- crashes ----


@contextlib.contextmanager
def mount(file):
    with tempfile.TemporaryDirectory() as at:
        subprocess.run(["mount", "-t", "erofs", "-o", "ro", file, at], check=True)
        try:
            yield at
        finally:
            subprocess.run(["umount", at], check=True)


def spawner_dies(daemon):
    pids = spawner_pids(daemon.run_dir)
    signal_all(pids, signal.SIGKILL)
    daemon.until(lambda: not any(alive(pid) for pid in pids))


def test_nothing_is_left_when_all_die_and_it_goes_on_afterwards(fresh, rootfs):
    d = fresh()
    image = put(d, rootfs.read_bytes(), name="small")
    sealed(d, image)
    m = d.machine(image="small")
    d.exec(m, "echo kept >/file")
    d.post(f"/v1/machines/{m}/steps", {"name": "kept"})  # waits for the one after the command
    d.kill()
    spawner_dies(d)
    assert str(d.dir) not in pathlib.Path("/proc/self/mountinfo").read_text()
    d.start()
    assert d.exec(m, "cat /file; echo more >>/file")["stdout"] == "kept\n"
    d.post(f"/v1/machines/{m}/rewind", {"step": "kept"})
    assert d.exec(m, "cat /file")["stdout"] == "kept\n"
    assert d.exec(d.machine(image="small"), "ls /usr/bin/sh")["exec"]["status"] == 0
    assert mounted(d) == [image["id"]]


@pytest.mark.parametrize("left", ["half a file", "half of what presets need", "the tree"])
def test_what_was_left_half_done_is_finished(fresh, rootfs, left):
    d = fresh()
    image = put(d, rootfs.read_bytes(), name="small")
    where = sealed(d, image)
    before = (where / "root.erofs").read_bytes()
    d.kill()
    tree = where / "root"
    if left == "the tree":
        tree.mkdir()
    else:  # as it was in the middle: the tree, and some of what is made of it
        with mount(where / "root.erofs") as files:
            subprocess.run(["cp", "-a", files, tree], check=True)
        (where / "root.erofs").unlink()
        shutil.rmtree(where / "presets")
    if left == "half a file":
        (where / "root.erofs.new").write_bytes(b"half")
    if left == "half of what presets need":
        (where / "presets.new/etc").mkdir(parents=True)
    d.start()
    sealed(d, image)
    assert sorted(os.listdir(where)) == ["image.json", "presets", "root.erofs"]
    assert (where / "root.erofs").read_bytes() == before


# ---- what is never mounted ----


def flip(path, at, value):
    with open(path, "r+b") as f:
        f.seek(at)
        f.write(value)


HOSTILE = {
    "no filesystem": lambda f: f.write_bytes(bytes(8192)),
    "nothing": lambda f: f.write_bytes(b""),
    "another's": lambda f: flip(f, 1024 + 48, b"\0" * 16),
    "compressed": lambda f: flip(f, 1024 + 80, b"\1\0\0\0"),
    "with devices": lambda f: flip(f, 1024 + 86, b"\1\0"),
    "shorter": lambda f: os.truncate(f, f.stat().st_size - 4096),
    "writable by others": lambda f: f.chmod(0o666),
    "somebody's": lambda f: os.chown(f, 1234, 1234),
    "with a second name": lambda f: os.link(f, f.with_name("second")),
    "a link": lambda f: (f.rename(f.with_name("real")), f.symlink_to("real")),
    "a pipe": lambda f: (f.unlink(), os.mkfifo(f)),
}


def test_a_file_that_is_not_as_we_wrote_it_is_never_mounted(fresh, rootfs):
    daemon = fresh()
    image = put(daemon, rootfs.read_bytes(), name="small")
    file = sealed(daemon, image) / "root.erofs"
    good = file.read_bytes()
    spawner_dies(daemon)  # the next one has nothing mounted, unless it was asked once more for what the last one did
    daemon.until(lambda: daemon.get("/v1/status")["box"].get("images") == "erofs")
    time.sleep(1.5)
    if mounted(daemon):
        spawner_dies(daemon)
        daemon.until(lambda: daemon.get("/v1/status")["box"].get("images") == "erofs")
    assert mounted(daemon) == []
    for what, spoil in HOSTILE.items():
        file.unlink()
        file.write_bytes(good)
        file.chmod(0o600)
        spoil(file)
        with contextlib.suppress(Refused):  # made only on what was mounted before, when it was good: a new spawner has nothing
            daemon.delete("/v1/machines/" + daemon.machine(image="small"))
            spawner_dies(daemon)
        with pytest.raises(Refused) as refused:
            daemon.machine(image="small")
        error = refused.value.error
        assert error["code"] == "internal" and "was changed" in error["message"] and "again" in error["remedy"], (what, error)
        assert mounted(daemon) == [], what
    assert daemon.exec(daemon.machine(), "echo well")["stdout"] == "well\n"
    for path in (file, file.with_name("second"), file.with_name("real")):
        path.unlink(missing_ok=True)
    file.write_bytes(good)
    file.chmod(0o400)
    assert daemon.exec(daemon.machine(image="small"), "echo well")["stdout"] == "well\n"
