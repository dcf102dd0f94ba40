"""Archives that try to get out, or to cost more than they may: each is refused whole, for its own reason, and
nothing of it is left. What looks like an attack and is none lands inside."""
import io
import json
import os
import pathlib
import re
import subprocess
import tarfile

import pytest

from carrel import PROGRAM
from daemon import Refused
from trees import archive, blob, described, directory, docker_archive, entry, hard, layout, link, packed

GOOD = archive(directory("etc"), entry("etc/motd", b"hello\n"))


def whiteout(name):
    return layout([GOOD, archive(entry(name, b""))])


def with_attribute(name, value="x"):
    info, data = entry("a", b"x")
    info.pax_headers = {"SCHILY.xattr." + name: value}
    return archive((info, data))


def truncated():
    return archive(entry("a", b"x" * 5000))[:3000]


def lying_size():
    """A sparse file of a petabyte that takes a few bytes."""
    info, data = entry("huge", b"\0" * 512)
    info.pax_headers = {"GNU.sparse.name": "huge", "GNU.sparse.size": str(1 << 50), "GNU.sparse.numblocks": "1", "GNU.sparse.map": "0,512"}
    return archive((info, data))


def deep(levels):
    return archive(entry("/".join(["d"] * levels) + "/f", b"x"))


def no_blob():
    def other(m):
        m["layers"][0]["digest"] = "sha256:" + "0" * 64
    return layout([GOOD], manifest=other)


def wrong_bytes():
    layers = [GOOD]
    def other(m):
        m["layers"][0] = described(b"other", "layer.v1.tar")
    info, _ = blob(b"other")
    return layout(layers, manifest=other, extra=[entry(info.name, b"evil!")])


def wrong_size():
    def other(m):
        m["layers"][0]["size"] += 1
    return layout([GOOD], manifest=other)


def other_digest(text):
    def other(m):
        m["layers"][0]["digest"] = text
    return layout([GOOD], manifest=other)


def index_of(value):
    def other(i):
        i.clear()
        i.update(value)
    return layout([GOOD], index=other)


def other_processor():
    def other(i):
        i["manifests"][0]["platform"] = {"architecture": "s390x", "os": "linux"}
    return layout([GOOD], index=other)


def index_bomb():
    """An index that leads to itself cannot be made; one that leads ever on can."""
    data = json.dumps({"manifests": []}).encode()
    blobs = []
    for _ in range(6):
        blobs.append(blob(data))
        data = json.dumps({"manifests": [described(data, "index.v1+json")]}).encode()
    return archive(entry("oci-layout", b"{}"), entry("index.json", data), *blobs)


def many_layers():
    def other(m):
        m["layers"] = m["layers"] * 129
    return layout([GOOD], manifest=other)


HOSTILE = {
    "an absolute name": (archive(entry("/etc/cron.d/evil", b"x")), "absolute name"),
    "dots to get out": (archive(entry("../evil", b"x")), r"'..'"),
    "dots in the middle": (archive(entry("a/../../evil", b"x")), r"'..'"),
    "dots at the end": (archive(directory("a/..")), r"'..'"),
    "through an absolute link": (archive(link("out", "/tmp"), entry("out/evil", b"x")), "a link out of the image"),
    "through a link upwards": (archive(directory("a"), link("a/up", "../.."), entry("a/up/evil", b"x")), "a link out of the image"),
    "through two links": (archive(link("a", "b"), link("b", "/"), entry("a/etc/evil", b"x")), "a link out of the image"),
    "through a loop of links": (archive(link("a", "b"), link("b", "a"), entry("a/evil", b"x")), "a link out of the image"),
    "through links of proc": (archive(link("p", "/proc/self/root"), entry("p/etc/evil", b"x")), "a link out of the image"),
    "a directory over a link, then through it again": (
        archive(link("a", "/"), directory("a/b")), "a link out of the image"),
    "a hard link to the host": (archive(hard("shadow", "/etc/shadow")), "absolute name"),
    "a hard link upwards": (archive(hard("shadow", "../../etc/shadow")), r"'..'"),
    "a hard link through a link": (archive(link("out", "/etc"), hard("shadow", "out/shadow")), "a link out of the image"),
    "a hard link to nothing": (archive(hard("a", "b")), "does not exist"),
    "a hard link to itself": (archive(entry("a", b"x"), hard("a", "a")), "points to itself"),
    "a hard link to a directory": (archive(directory("d"), hard("a", "d")), "a directory"),
    "a file below a file": (archive(entry("a", b"x"), entry("a/b", b"x")), "not a directory"),
    "a device": (archive(entry("disk", type=tarfile.BLKTYPE, devmajor=8, devminor=0)), "is a device"),
    "a character device": (archive(entry("mem", type=tarfile.CHRTYPE, devmajor=1, devminor=1)), "is a device"),
    "a whiteout of an overlay": (archive(entry("gone", type=tarfile.CHRTYPE, devmajor=0, devminor=0)), "is a device"),
    "an overlay's attribute": (with_attribute("trusted.overlay.redirect", "/etc"), "has the unsupported attribute"),
    "an overlay's attribute of users": (with_attribute("user.overlay.opaque", "y"), "has the unsupported attribute"),
    "ids beyond the range": (archive(entry("a", b"x", uid=100000)), "at most 65535"),
    "a group beyond the range": (archive(entry("a", b"x", gid=65536)), "at most 65535"),
    "a negative id": (archive(entry("a", b"x", gid=-1), format=tarfile.GNU_FORMAT), "at most 65535"),
    "a name of 300 bytes": (archive(entry("n" * 300, b"x")), "255 bytes"),
    "a name of a million bytes": (archive(entry("n" * 1_000_001, b"x")), "broken: .*1MB"),
    "a path of a million bytes": (archive(entry("d/" * 520_000 + "f", b"x")), "broken: .*1MB"),
    "a link to a million bytes": (archive(link("l", "t" * 1_000_001)), "broken: .*1MB"),
    "a name of a million bytes, as GNU writes it": (
        archive(entry("n" * 1_100_000, b"x"), format=tarfile.GNU_FORMAT), "broken: .*too large"),
    "129 directories deep": (deep(129), "128 directories deep"),
    "a path of 5000 bytes": (archive(entry("/".join(["d" * 200] * 25), b"x")), "4095 bytes"),
    "a file of a petabyte": (lying_size(), "larger than"),
    "a petabyte where nothing is kept": (archive(entry("dev/x", size=1 << 50)), "larger than"),
    "a petabyte beside the files of a layout": (
        archive(entry("oci-layout", b"{}"), hard("l", "oci-layout", size=1 << 50)), "larger than"),
    "a petabyte in a layer, behind a link": (layout([GOOD, archive(hard("l", "etc/motd", size=1 << 50))]), "larger than"),
    "packed twice": (packed(packed(GOOD)), "compressed more than once"),
    "a layer that is packed twice": (layout([packed(packed(GOOD))]), "compressed more than once"),
    "half an archive": (truncated(), "broken"),
    "no archive": (b"hello, I am no archive\n" * 100, "unknown format|broken|empty"),
    "nothing": (b"", "empty|unknown format"),
    "gzip of nothing": (packed(b""), "empty|unknown format|broken"),
    "a file where proc is to be": (archive(entry("proc", b"x")), "not a directory"),
    "a link where dev is to be": (archive(link("dev", "/dev")), "not a directory"),
    "a link where run is to be": (archive(link("run", "/run")), "not a directory"),
    "the root as a file": (archive(entry(".", b"x"), entry("a", b"x")), "not a directory"),
    "a mark of a layer in a plain tree": (archive(entry("etc/.wh.passwd", b"")), "whiteout of a layer"),
    "our own configuration, smuggled": (archive(directory("a"), entry(".carrel-image.json", b"{}")), "only as the first entry"),
    "our own configuration, broken": (archive(entry(".carrel-image.json", b"{"), directory("a")), "not JSON"),
    "our own configuration, huge": (archive(entry(".carrel-image.json", b" " * 40000), directory("a")), "larger than"),
    "a whiteout of nothing": (whiteout(".wh."), "names no file"),
    "a whiteout of the directory itself": (whiteout("etc/.wh.."), "names no file"),
    "a whiteout of the one above": (whiteout("etc/.wh..."), "names no file"),
    "a whiteout through a link": (layout([archive(link("out", "/")), archive(entry("out/.wh.etc", b""))]), "a link out of the image"),
    "a layer whose blob is missing": (no_blob(), "lacks"),
    "a layer that is another": (wrong_bytes(), "twice|does not match its digest"),
    "a layer of another size": (wrong_size(), "does not match its digest"),
    "a digest that is a path": (other_digest("sha256:../../../etc/passwd"), "unsupported digest"),
    "a digest of another kind": (other_digest("md5:" + "0" * 32), "unsupported digest"),
    "an index of nothing": (index_of({"manifests": []}), "lists no manifest"),
    "an index that is a list": (archive(entry("oci-layout", b"{}"), entry("index.json", b"[1]")), "lists no manifest"),
    "an index that is no JSON": (archive(entry("oci-layout", b"{}"), entry("index.json", b"{")), "not JSON"),
    "an image for another processor": (other_processor(), "not for this processor"),
    "indexes that lead ever on": (index_bomb(), "indexes are nested"),
    "more than 128 layers": (many_layers(), "128 layers"),
    "a layer that gets out": (layout([archive(entry("../evil", b"x"))]), r"layer 1.*'..'"),
    "a docker archive whose layer is another": (docker_archive([GOOD], diff_ids=["sha256:" + "1" * 64]), "does not match its hash"),
    "a docker archive with a file twice": (
        archive(entry("manifest.json", b"[]"), entry("manifest.json", b"[]")), "twice"),
    "a docker archive of no image": (archive(entry("manifest.json", b"[]")), "contains 0 images"),
    "a docker archive that names a path outside": (
        archive(entry("manifest.json", json.dumps([{"Config": "/etc/passwd", "Layers": []}]).encode())), "absolute name"),
    "an environment that is none": (layout([GOOD], {"Env": ["NOVALUE"]}), "not NAME=VALUE"),
    "a working directory that is none": (layout([GOOD], {"WorkingDir": "a/b"}), "not absolute"),
    "a user that is not there": (layout([GOOD], {"User": "nobody-of-note"}), "no user"),
}


def marks():
    """What an archive that got out would have left."""
    return [p for p in ("/etc/cron.d/evil", "/evil", "/tmp/evil", "/etc/evil", "/tmp/../evil") if os.path.exists(p)]


@pytest.mark.parametrize("name", HOSTILE)
def test_it_is_refused_whole_and_says_why(daemon, name):
    data, why = HOSTILE[name]
    with pytest.raises(Refused) as refused:
        daemon.request("POST", "/v1/images", data, name="evil")
    message = refused.value.error["message"]
    assert refused.value.code in ("invalid", "limit", "unsupported"), refused.value
    assert re.search(why, message), (name, message)
    assert daemon.get("/v1/images")["images"] == [] and marks() == []


def test_the_corpus_is_large_enough():
    assert len(HOSTILE) >= 20 and len({data for data, _ in HOSTILE.values()}) == len(HOSTILE)


def test_the_control_of_all_of_these_is_taken(daemon):
    """Without the trick the same kinds of archives are fine."""
    for data in (GOOD, packed(GOOD), layout([GOOD]), docker_archive([GOOD])):
        assert daemon.request("POST", "/v1/images", data, name="good")["bytes"] > 0


@pytest.mark.parametrize("moved", [None, "index.json", "oci-layout", "blobs", "blobs/sha256", "a blob"])
def test_a_layout_takes_nothing_from_elsewhere(daemon, tmp_path, moved):
    """A directory of somebody else's may hold links; what they lead to is this host's and would be sent."""
    mine, host = tmp_path / "layout", tmp_path / "host"
    with tarfile.open(fileobj=io.BytesIO(layout([GOOD]))) as tar:
        tar.extractall(mine)
    if moved:
        path = next((mine / "blobs/sha256").iterdir()) if moved == "a blob" else mine / moved
        path.rename(host)
        path.symlink_to(host)
    env = {"PATH": os.environ["PATH"], "CARREL_HOME": str(daemon.home), "CARREL_RUN": str(daemon.run_dir)}
    done = subprocess.run([PROGRAM, "image", "import", str(mine), "--name", "good"], env=env, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=110)
    if not moved:  # the control
        assert done.returncode == 0, done
    else:
        assert done.returncode == 125 and "leads out of its directory" in done.stderr, done


def test_a_link_that_stays_inside_is_followed(daemon, small, rootfs):
    """As merged /usr has it: bin leads to usr/bin, and a layer writes bin/x."""
    image = daemon.request("POST", "/v1/images", layout([rootfs.read_bytes(), archive(entry("bin/x", b"#!/bin/sh\necho here\n", mode=0o755))]))
    m = daemon.machine(image=image["id"])
    done = daemon.exec(m, "/usr/bin/x; readlink /bin")
    assert done["stdout"].split() == ["here", "usr/bin"], done


def test_what_a_box_brings_itself_is_left_out(daemon, rootfs):
    data = layout([rootfs.read_bytes(), archive(entry("dev/null", type=tarfile.CHRTYPE, devmajor=1, devminor=3),
                                                entry("proc/evil", b"x"), entry("sys/evil", b"x"))])
    m = daemon.machine(image=daemon.request("POST", "/v1/images", data)["id"])
    assert daemon.exec(m, "ls /proc/evil /sys/evil 2>/dev/null; echo x >/dev/null && echo fine")["stdout"] == "fine\n"


def test_set_id_bits_are_kept_and_lead_to_root_of_the_machine(daemon, rootfs):
    data = rootfs.read_bytes()
    out = io.BytesIO(data)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        program = tar.extractfile("./usr/bin/id").read()
    image = daemon.request("POST", "/v1/images", layout([out.getvalue(), archive(entry("usr/bin/sid", program, mode=0o4755))]))
    m = daemon.machine(image=image["id"])
    done = daemon.exec(m, "stat -c %a /usr/bin/sid; /usr/bin/sid -u", user="1000")
    assert done["stdout"].split() == ["4755", "0"], done


def test_an_upload_that_breaks_off_leaves_nothing(daemon, rootfs):
    c = daemon.connect()
    data = rootfs.read_bytes()
    c.putrequest("POST", "/v1/images?name=half")
    c.putheader("Content-Length", str(len(data)))
    c.endheaders()
    c.send(data[:len(data) // 2])
    c.close()
    daemon.until(lambda: not [p for p in (pathlib.Path(daemon.home) / "images").iterdir() if p.name.startswith("n-")])
    assert daemon.get("/v1/images")["images"] == []
