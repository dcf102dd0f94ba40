"""Images as layers above images: what a layer contains, what keeps it, and that the files are the same."""
import io
import json
import os
import pathlib
import re
import stat
import tarfile
import threading

import pytest

from carrel import BUILD, ROOTLESS
from conftest import left_over
from daemon import Refused
from own import Own
from trees import archive, directory, entry, layout, link

LAYERS_MAX = 16


def put(daemon, data, **query):
    return daemon.request("POST", "/v1/images", data, **query)


def snap(daemon, machine, name, **how):
    return daemon.post(f"/v1/machines/{machine}/image", {"name": name, **how})


def place(daemon, image):
    return pathlib.Path(daemon.home, "images", image["id"])


def contents(daemon, image):
    """Each path of an image's own layer."""
    top = place(daemon, image) / "root"
    return {str(p.relative_to(top)) for p in top.rglob("*")}


def is_whiteout(path):
    st = path.lstat()
    return stat.S_ISCHR(st.st_mode) and st.st_rdev == 0


def fill(daemon, machine, path, megabytes):
    """Writes a file with what the shell of the small image can do."""
    million = "s=0123456789; for i in 0 1 2 3 4; do s=$s$s$s$s$s$s$s$s$s$s; done; "
    out = daemon.exec(machine, f"{million} for i in {' '.join(map(str, range(megabytes)))}; do echo $s; done >{path}", user="root")
    assert out["exec"]["status"] == 0, out


LIST = ("cd /; for d in etc srv root a b c d e x z last; do [ -e $d ] || continue; ls -lAR --time-style=+%s $d; done; stat -c %a:%u /; "
        "for f in a/* b/* b/*/* c/* d/* e/* x/* x/*/* x/*/*/*; do [ -f $f ] && [ ! -L $f ] && sha256sum $f; done; :")


def listing(daemon, machine):
    """Names, types, modes, owners, sizes and times of files, and their contents. Steps may add links to a file in other layers."""
    out = daemon.exec(machine, LIST, user="root")
    assert out["exec"]["status"] == 0, out
    lines = [line for line in out["stdout"].splitlines() if not line.startswith("total ") and "resolv.conf" not in line]
    return [re.sub(r"^(d\S+) +\d+( \S+ +\S+) +\d+", r"\1\2", re.sub(r"^([-lp]\S{9}) +\d+", r"\1", re.sub(" +", " ", line))) for line in lines]


# 64 MiB of zeros in the file /zeros, without head and dd
ZEROS = "printf '\\0' >/zeros; for i in 1 2 3 4 5 6 7 8 9 a b c d e f g h i j k l m n o p q; do cat /zeros /zeros >/twice; mv /twice /zeros; done"


def sealed(daemon, image):
    where = place(daemon, image)
    daemon.until(lambda: (where / "root.erofs").exists() and not (where / "root").exists())


@pytest.fixture(params=["directory", "erofs"])
def base(request, daemon, rootfs):
    """An image with a few trees to change, as a directory and as a file."""
    if request.param == "erofs" and daemon.get("/v1/status")["box"]["images"] != "erofs":
        pytest.skip("this host cannot mount erofs from a file of the store")
    more = archive(*[e for d in "abcd" for e in
                     (directory(d), entry(f"{d}/one", b"1" + d.encode()), entry(f"{d}/two", b"2"), directory(f"{d}/sub"),
                      entry(f"{d}/sub/deep", d.encode()), link(f"{d}/link", "one"))], directory("e", mode=0o1777), entry("z", b"z"))
    name = "build:base" if request.param == "directory" else "base"
    image = put(daemon, layout([rootfs.read_bytes(), more]), name=name)
    if request.param == "erofs":
        sealed(daemon, image)
    return image


# ---- what a layer contains ----


def test_layer_contains_only_what_the_machine_changed(daemon, base):
    m = daemon.machine(image=base["id"])
    daemon.exec(m, "echo new >/new; echo changed >/a/one; rm /b/one; rm -rf /c", user="root")
    made = snap(daemon, m, "made")
    assert made["layers"] == 2 and base["layers"] == 1
    assert contents(daemon, made) == {"new", "a", "a/one", "b", "b/one", "c"}
    root = place(daemon, made) / "root"
    assert is_whiteout(root / "b/one") and is_whiteout(root / "c") and not is_whiteout(root / "new")
    assert made["bytes"] >= base["bytes"] and made["entries"] > base["entries"]


def test_merged_layers_of_a_machine_do_not_reach_below_its_last_image(daemon, base):
    """The layers above the image are merged in the background; the next image is still above that image."""
    m = daemon.machine(image=base["id"], steps="manual")
    daemon.exec(m, "echo 1 >/first", user="root")
    first = snap(daemon, m, "build:first")
    made = []

    def step_with_few_layers():
        daemon.exec(m, f"echo {len(made)} >/more{len(made)}", user="root")
        made.append(daemon.post(f"/v1/machines/{m}/steps", {})["layers"])
        return len(made) > 10 and made[-1] < len(made) / 2

    daemon.until(step_with_few_layers)
    second = snap(daemon, m, "build:second")
    assert second["layers"] == first["layers"] + 1 == 3, made
    assert contents(daemon, second) == {f"more{i}" for i in range(len(made))}


def test_each_image_of_one_machine_adds_what_changed_since_the_one_before(daemon, base):
    m = daemon.machine(image=base["id"])
    daemon.exec(m, "echo 1 >/first", user="root")
    first = snap(daemon, m, "build:first")
    daemon.exec(m, "echo 2 >/second; rm /first", user="root")
    second = snap(daemon, m, "build:second")
    assert second["layers"] == 3 and contents(daemon, second) == {"first", "second"}
    assert is_whiteout(place(daemon, second) / "root/first") and contents(daemon, first) == {"first"}
    assert listing(daemon, daemon.machine(image="build:second")) == listing(daemon, m)


def test_image_made_before_does_not_matter_after_a_rewind(daemon, base):
    m = daemon.machine(image=base["id"])
    daemon.post(f"/v1/machines/{m}/steps", {"name": "then"})
    daemon.exec(m, "echo 1 >/first", user="root")
    snap(daemon, m, "build:first")
    daemon.post(f"/v1/machines/{m}/rewind", {"step": "then"})
    daemon.exec(m, "echo 2 >/second", user="root")
    second = snap(daemon, m, "build:second")
    assert second["layers"] == 2 and contents(daemon, second) == {"second"}
    assert daemon.exec(daemon.machine(image="build:second"), "ls /first /second 2>/dev/null")["stdout"] == "/second\n"


def test_equal_changes_are_one_image(daemon, base):
    ids = set()
    for name in ("one", "other"):
        m = daemon.machine(image=base["id"])
        daemon.exec(m, "echo same >/same; touch -d @1000000 /same /", user="root")
        ids.add(snap(daemon, m, name)["id"])
    assert len(ids) == 1


# ---- the files are the same ----

CHANGES = [
    "rm -rf /a; mkdir /a; echo only >/a/only",                        # a directory that replaces one
    "rm -rf /b; mv /c /b",                                            # a directory that was moved over a deleted one
    "mv /d/sub /e/moved; rm /d/one; ln -s two /d/one",                # moved out; a link in place of a file
    "rm -rf /d/sub; echo file >/d/sub; rm /z; mkdir /z; echo in >/z/in",  # directory to file, file to directory
    "mkdir -p /x/y; echo 1 >/x/y/f; ln /x/y/f /x/y/g; chmod 4755 /x/y/f; mkfifo /x/pipe",
    "mv /x/y /x/w; rm -rf /e/moved; mkdir /e/moved",                  # a new directory moved, a moved one replaced
    "chmod 700 /b; touch -d @5000000 /b/two; echo more >>/b/sub/deep",
    "rm -rf /x; mkdir -p /x/y/deep; echo back >/x/y/deep/f; rm -rf /x/y; mv /b /x/b",
]


@pytest.mark.parametrize("between", ["nothing", "step", "image", "machine"])
def test_files_of_an_image_are_those_of_its_machine(daemon, base, between):
    """After each change: nothing, a step (several layers), an image, or a machine of that image (images above images)."""
    m = daemon.machine(image=base["id"])
    for i, change in enumerate(CHANGES):
        done = daemon.exec(m, change, user="root")
        assert done["exec"]["status"] == 0, (change, done)
        if between == "step":
            daemon.post(f"/v1/machines/{m}/steps", {})
        elif between != "nothing":
            made = snap(daemon, m, f"build:{i}")
            other = daemon.machine(image=made["id"])
            assert listing(daemon, other) == listing(daemon, m), change
            m = other if between == "machine" else m
    made = snap(daemon, m, "made")
    other = daemon.machine(image="made")
    assert listing(daemon, other) == listing(daemon, m)
    assert daemon.exec(other, "stat -c %h /x/b/two; cat /x/b/sub/deep", user="root")["stdout"] == "1\ncmore\n"


def test_flat_copy_of_layers_has_the_same_files(daemon, base):
    m = daemon.machine(image=base["id"])
    for change in CHANGES[:5]:
        daemon.exec(m, change, user="root")
    snap(daemon, m, "made")
    out = daemon.request("GET", "/v1/images/made/archive", raw=True, form="tar")
    flat = put(daemon, out, name="flat")
    assert flat["layers"] == 1
    assert daemon.request("GET", "/v1/images/flat/archive", raw=True, form="tar") == out, "byte for byte"
    assert listing(daemon, daemon.machine(image="flat")) == listing(daemon, m)


def test_oci_layout_has_each_layer(daemon, base):
    """Two images of one chain share the blobs of their common layers, and a copy is the flat copy of the tar."""
    m, blobs = daemon.machine(image=base["id"], steps="manual"), []  # other steps merge layers, and an image may be above the base again
    for i, change in enumerate(CHANGES[:5]):
        daemon.exec(m, change, user="root")
        made = snap(daemon, m, f"build:{i}")
        out = daemon.request("GET", f"/v1/images/build:{i}/archive", raw=True, form="oci")
        with tarfile.open(fileobj=io.BytesIO(out)) as tar:
            index = json.load(tar.extractfile("index.json"))
            manifest = json.load(tar.extractfile("blobs/sha256/" + index["manifests"][0]["digest"][7:]))
        blobs.append([layer["digest"] for layer in manifest["layers"]])
        assert len(blobs[-1]) == made["layers"] == i + 2 and blobs[-1][:-1] == (blobs[-2] if i else blobs[-1][:-1])
    flat = put(daemon, daemon.request("GET", f"/v1/images/{made['id']}/archive", raw=True, form="tar"), name="flat")
    assert put(daemon, out, name="again")["id"] == flat["id"]


def test_hard_links_and_attributes_stay_in_a_layer(daemon, base):
    m = daemon.machine(image=base["id"])
    daemon.exec(m, "echo x >/f; ln /f /g; ln /a/one /a/again; chmod 6711 /f", user="root")
    snap(daemon, m, "made")
    out = daemon.exec(daemon.machine(image="made"), "stat -c '%h %a' /f /g /a/one /a/again")["stdout"].split("\n")
    assert out[:4] == ["2 6711", "2 6711", "2 644", "2 644"], out


def test_zeros_of_a_file_take_no_disk_space_in_an_image(daemon, base):
    """With a sparse file, which takes nothing of its own disk limit, a machine could fill the disk of the host."""
    m = daemon.machine(image=base["id"])
    made = daemon.exec(m, f"{ZEROS}; (echo start; cat /zeros; echo end) >/holes; rm /zeros", user="root")
    assert made["exec"]["status"] == 0, made
    image = snap(daemon, m, "build:holes")
    file = (place(daemon, image) / "root/holes").stat()
    assert file.st_size == (64 << 20) + 10 and file.st_blocks * 512 < 8 << 20
    sums = [daemon.exec(one, "sha256sum </holes")["stdout"] for one in (m, daemon.machine(image="build:holes"))]
    assert sums[0] == sums[1] != ""


@pytest.mark.parametrize("length", [251, 252, 255])
def test_file_with_a_long_name_can_be_deleted(daemon, rootfs, length):
    """A whiteout in an archive has a name that is four bytes longer."""
    name = "n" * length
    put(daemon, layout([rootfs.read_bytes(), archive(directory("a"), entry("a/" + name, b"x"), entry("a/other", b"y"))]), name="base")
    m = daemon.machine(image="base")
    daemon.exec(m, f"rm /a/{name}", user="root")
    made = snap(daemon, m, "made")
    assert contents(daemon, made) == {"a", "a/" + name} and is_whiteout(place(daemon, made) / "root/a" / name)
    put(daemon, daemon.request("GET", "/v1/images/made/archive", raw=True, form="oci"), name="again")
    for image in ("made", "again"):
        assert daemon.exec(daemon.machine(image=image), "ls /a")["stdout"] == "other\n"


@pytest.mark.parametrize("length", [4091, 4092, 4095])
def test_file_with_a_long_path_can_be_deleted(daemon, rootfs, length):
    """A whiteout in an archive has a path that is four bytes longer, also than the longest path."""
    parts = ["d" * 200] * 20
    dirs = ["/".join(parts[:i + 1]) for i in range(20)]
    path = dirs[-1] + "/" + "n" * (length - len(dirs[-1]) - 1)
    put(daemon, layout([rootfs.read_bytes(), archive(*map(directory, dirs), entry(path, b"x"), entry(dirs[-1] + "/other", b"y"))]), name="base")
    m = daemon.machine(image="base")
    down = "; ".join(f"cd {part}" for part in parts)
    daemon.exec(m, f"cd /; {down}; rm n*", user="root")
    snap(daemon, m, "made")
    put(daemon, daemon.request("GET", "/v1/images/made/archive", raw=True, form="oci"), name="again")
    for image in ("made", "again"):
        assert daemon.exec(daemon.machine(image=image), f"cd /; {down}; ls")["stdout"] == "other\n"


# ---- the depth ----


def test_long_chain_of_images_is_welded(daemon, base):
    """The layer that would be one too many is built on the lowest image, and has all that the others had."""
    m, depths = daemon.machine(image=base["id"]), []
    for i in range(LAYERS_MAX + 3):
        daemon.exec(m, f"echo {i} >/a/{i}; rm -f /a/{i - 2} /c/one; echo {i} >/last", user="root")
        made = snap(daemon, m, f"build:{i}")
        depths.append(made["layers"])
        old, m = m, daemon.machine(image=made["id"])
        assert listing(daemon, m) == listing(daemon, old), i
        daemon.delete(f"/v1/machines/{old}")
    assert max(depths) == LAYERS_MAX and depths[LAYERS_MAX - 1] == 2 and depths[-1] == 5, depths


# ---- what keeps a layer ----


def test_image_below_stays_while_an_image_above_it_does(daemon, base):
    m = daemon.machine(image=base["id"])
    daemon.exec(m, "echo new >/new", user="root")
    snap(daemon, m, "made")
    daemon.delete(f"/v1/machines/{m}")
    daemon.delete("/v1/images/" + base["name"])
    daemon.restart()
    daemon.until(lambda: len(left_over(daemon)) == 2)
    assert daemon.exec(daemon.machine(image="made"), "cat /new /a/one")["stdout"] == "new\n1a"
    daemon.clear()
    daemon.delete("/v1/images/made")
    daemon.until(lambda: left_over(daemon) == [])


def test_new_image_stays_while_unused_ones_are_deleted(fresh, rootfs):
    """A tree has its id, and is synced, before it has a name. Unused images that are deleted meanwhile show that all were looked at."""
    d = fresh()
    flag, images = d.dir / "hold", d.home / "images"
    d.end()
    d.start(env={"LD_PRELOAD": str(BUILD / "tests/daemon/libfail-sync.so"), "HOLD_SYNC": str(flag), "HOLD_SYNC_OF": str(images)})
    base = put(d, rootfs.read_bytes(), name="base")
    m = d.machine(image="base")
    d.exec(m, "echo 1 >/one", user="root")
    other = snap(d, m, "other")
    d.until(lambda: {p.name for p in images.glob("[in]-*")} == {base["id"], other["id"]})
    flag.touch()
    try:
        d.exec(m, "echo 2 >/two", user="root")
        came = []
        waits = threading.Thread(target=lambda: came.append(snap(d, m, "made")))
        waits.start()
        d.until(lambda: len(list(images.glob("i-*"))) == 3)
        unused = images / ("i-" + "a" * 52)
        (unused / "root").mkdir(parents=True)
        d.delete("/v1/images/other")
        d.until(lambda: not unused.exists())
    finally:
        flag.unlink()
    waits.join()
    assert came and place(d, came[0]).exists() and came[0]["layers"] == 3
    assert d.exec(d.machine(image="made"), "cat /one /two")["stdout"] == "1\n2\n"


class Held:
    """A daemon whose worker waits before it reads the layers of a machine, while `hold` exists."""

    def __init__(self, where, rootfs, **options):
        self.hold, self.began = where / "hold", where / "began"
        self.d = Own(where, **options)
        self.d.work_by_script(f'if [ "$1" = layer ]; then : >{self.began}; while [ -e {self.hold} ]; do sleep 0.02; done; fi\n'
                              f'exec {BUILD}/libexec/carrel-image "$@"\n')
        put(self.d, rootfs.read_bytes(), name="base")

    def snap(self, machine, **how):
        """Starts to make an image; join() returns the image or the error."""
        self.hold.touch()
        self.began.unlink(missing_ok=True)
        self.waits = threading.Thread(target=self.ask, args=(machine, how))
        self.waits.start()
        self.d.until(self.began.exists)

    def ask(self, machine, how):
        try:
            self.came = snap(self.d, machine, "made", **how)
        except Refused as e:
            self.came = e

    def join(self):
        self.hold.unlink()
        self.waits.join()
        return self.came


@pytest.fixture
def held(tmp_path, rootfs):
    made = []

    def make(**options):
        made.append(Held(tmp_path, rootfs, **options))
        return made[-1]

    yield make
    for h in made:
        h.hold.unlink(missing_ok=True)
        h.d.stop()


def test_layers_stay_while_an_image_is_made_of_them(held):
    """The step of the image, and a larger later one, are deleted meanwhile. The larger one shows when layers are gone."""
    h = held(conf="[steps]\nkeep = 8\n")
    d, m = h.d, h.d.machine(image="base")
    url = f"/v1/machines/{m}"

    def disk_bytes():
        """A step lets the daemon measure the disk."""
        d.exec(m, "echo again >>/again", user="root")
        return d.get(url)["disk_bytes"]

    d.post(url + "/steps", {"name": "then"})
    for size in (3, 6):
        fill(d, m, "/f", size)
        if size == 3:
            of_image, total = d.get(url + "/steps")["steps"][0]["id"], d.exec(m, "sha256sum /f")["stdout"]
        d.post(url + "/rewind", {"step": "then"})
    h.snap(m, step=of_image)
    for i in range(14):
        d.exec(m, f"echo {i} >/n", user="root")
    d.until(lambda: of_image not in {s["id"] for s in d.get(url + "/steps")["steps"]})
    d.until(lambda: disk_bytes() < 5_000_000)
    assert disk_bytes() > 3_000_000
    made = h.join()
    assert not isinstance(made, Refused), made
    assert d.exec(d.machine(image="made"), "sha256sum /f")["stdout"] == total and made["bytes"] > 3_000_000
    d.until(lambda: disk_bytes() < 1_000_000)


def test_image_of_a_machine_that_ends_meanwhile_is_refused(held):
    h = held()
    m = h.d.machine(image="base")
    h.d.exec(m, "echo 1 >/one", user="root")
    h.snap(m)
    h.d.delete(f"/v1/machines/{m}")
    came = h.join()
    assert isinstance(came, Refused) and came.code == "gone" and m in str(came), came
    assert [i["name"] for i in h.d.get("/v1/images")["images"]] == ["base"]
    h.d.until(lambda: len(left_over(h.d)) == 1)


def test_prune_counts_only_what_becomes_free(daemon, rootfs):
    """Of three layers, one has another name and one is below it."""
    put(daemon, rootfs.read_bytes(), name="base")
    m = daemon.machine(image="base")
    for name, size in (("build:low", 1), ("build:named", 2), ("build:top", 4)):
        fill(daemon, m, f"/{size}", size)
        snap(daemon, m, name)
    daemon.post("/v1/images/build:named/names", {"name": "kept"})
    daemon.post("/v1/images/build:top/names", {"name": "build:same"})
    out = daemon.post("/v1/images/prune")
    assert out["removed"] == 4 and 4_000_000 <= out["bytes"] < 5_000_000, out
    daemon.delete("/v1/images/kept")
    assert daemon.post("/v1/images/prune") == {"removed": 0, "bytes": 0}


def test_prune_counts_a_layer_whose_name_is_gone(daemon, rootfs):
    put(daemon, rootfs.read_bytes(), name="base")
    m = daemon.machine(image="base")
    for name, size in (("low", 1), ("build:top", 2)):
        fill(daemon, m, f"/{size}", size)
        snap(daemon, m, name)
    daemon.delete("/v1/images/low")
    out = daemon.post("/v1/images/prune")
    assert out["removed"] == 1 and 3_000_000 <= out["bytes"] < 4_000_000, out


def test_directory_below_stays_until_boxes_above_it_have_left_it(daemon, rootfs):
    """An image becomes a file while a machine of an image above it still uses its directory."""
    if ROOTLESS or daemon.get("/v1/status")["box"]["images"] != "erofs":
        pytest.skip("this host cannot mount erofs from a file of the store")
    put(daemon, rootfs.read_bytes(), name="build:low")
    m = daemon.machine(image="build:low")
    daemon.exec(m, "echo new >/new", user="root")
    made = snap(daemon, m, "made")
    daemon.delete(f"/v1/machines/{m}")
    above = daemon.machine(image="made")
    low = daemon.post("/v1/images/build:low/names", {"name": "named"})
    daemon.until(lambda: (place(daemon, low) / "root.erofs").exists())
    assert daemon.exec(above, "cat /new; ls /usr/bin/cp")["stdout"] == "new\n/usr/bin/cp\n"
    assert (place(daemon, low) / "root").exists() and made["layers"] == 2
    daemon.delete(f"/v1/machines/{above}")
    sealed(daemon, low)
    assert daemon.exec(daemon.machine(image="made"), "cat /new; ls /usr/bin/cp")["stdout"] == "new\n/usr/bin/cp\n"


def leads_out(directory):
    """True if '..' leads from the directory to the host's root."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(64):
        up = os.open("..", os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = up
    there = os.path.samestat(os.fstat(fd), os.stat("/"))
    os.close(fd)
    return there


@pytest.mark.skipif(ROOTLESS, reason="the descriptors of a worker can be read only by root")
def test_no_descriptor_of_a_worker_leads_out_of_its_jail(daemon, base):
    """A worker locks the images below, and its root directory is that of one image."""
    m = daemon.machine(image=base["id"])
    assert daemon.exec(m, ZEROS, user="root")["exec"]["status"] == 0
    made = snap(daemon, m, "made")
    c = daemon.connect()
    c.request("GET", f"/v1/images/{made['id']}/archive?form=tar")
    answer = c.getresponse()
    answer.read(1000)
    jails = [p.parent for p in pathlib.Path("/proc").glob("[0-9]*/root") if str(place(daemon, made)) == os.path.realpath(p)]
    assert len(jails) == 1
    opened = [fd for fd in (jails[0] / "fd").iterdir() if fd.is_dir()]
    locks = [fd for fd in opened if any(os.path.samefile(fd, place(daemon, image)) for image in (made, base))]
    assert len(locks) == 3, "its root directory, and the locks of both images"
    assert leads_out(daemon.home), "the control"
    assert [fd for fd in opened if leads_out(fd) and fd.name != "3"] == []
    answer.close()
    c.close()


def test_damaged_list_of_layers_is_refused_and_deletes_nothing(daemon, base):
    m = daemon.machine(image=base["id"])
    daemon.exec(m, "echo new >/new", user="root")
    made = snap(daemon, m, "made")
    daemon.delete(f"/v1/machines/{m}")
    file = place(daemon, made) / "below"
    text = file.read_text()
    assert text == base["id"] + "\n"
    for damage in ("../" + text, text[:-1], text + text, text.upper(), "\n"):
        file.write_text(damage)
        with pytest.raises(Refused):
            daemon.machine(image="made")
    daemon.delete("/v1/images/" + base["name"])
    assert place(daemon, base).exists(), "it may be below the image whose list cannot be read"
    file.write_text(text)
    assert daemon.exec(daemon.machine(image="made"), "cat /new")["stdout"] == "new\n"


# ---- what a box needs ----


def test_layer_cannot_take_what_every_box_needs(daemon, base):
    m = daemon.machine(image=base["id"])
    daemon.exec(m, "rm -rf /tmp /etc/hosts; rm -f /etc/resolv.conf; echo x >/etc/resolv.conf", user="root")
    made = snap(daemon, m, "made")
    assert "tmp" not in contents(daemon, made) and "etc/resolv.conf" not in contents(daemon, made)
    out = daemon.exec(daemon.machine(image="made"), "ls -d /tmp; cat /etc/resolv.conf /etc/hosts")["stdout"]
    assert "/tmp" in out and "nameserver 127.0.0.1" in out and "localhost" in out


def test_name_of_a_deletion_mark_is_refused(daemon, base):
    m = daemon.machine(image=base["id"])
    daemon.exec(m, "echo x >/a/.wh.one", user="root")
    with pytest.raises(Refused) as refused:
        snap(daemon, m, "made")
    assert refused.value.code == "invalid" and ".wh.one" in str(refused.value)


def test_user_of_an_image_is_found_in_the_layer_and_below(daemon, base):
    m = daemon.machine(image=base["id"])
    snap(daemon, m, "below", user="app")
    assert daemon.exec(daemon.machine(image="below"), "id -u")["stdout"] == "1234\n"
    daemon.exec(m, "echo 'new:x:77:78::/:/bin/sh' >>/etc/passwd", user="root")
    snap(daemon, m, "above", user="new")
    assert daemon.exec(daemon.machine(image="above"), "id -u; id -g")["stdout"] == "77\n78\n"
    with pytest.raises(Refused) as refused:
        snap(daemon, m, "nobody", user="missing")
    assert "missing" in str(refused.value)


def test_presets_are_those_of_the_merged_files(daemon, rootfs):
    conf = archive(directory("etc/apt"), entry("etc/apt/sources.list", b"deb http://old.example/debian x main\n"),
                   directory("etc/pip"), link("etc/pip.conf", "pip/real"), entry("etc/pip/real", b"index-url = https://pip.example/simple\n"))
    put(daemon, layout([rootfs.read_bytes(), conf]), name="configured")

    def targets(image, preset):
        m = daemon.machine(image=image, net=[{"target": preset}])
        return {r["target"] for r in daemon.get(f"/v1/machines/{m}/net")["rules"]}

    m = daemon.machine(image="configured")
    daemon.exec(m, "echo x >/x", user="root")
    same = snap(daemon, m, "same")
    assert any("old.example" in t for t in targets("same", "apt")) and not (place(daemon, same) / "presets").exists()
    daemon.exec(m, "echo 'deb http://new.example/debian x main' >/etc/apt/sources.list; "
                   "echo 'index-url = https://other.example/simple' >/etc/pip/real", user="root")
    snap(daemon, m, "changed")
    apt, pip = targets("changed", "apt"), targets("changed", "pip")
    assert any("new.example" in t for t in apt) and not any("old.example" in t for t in apt), apt
    assert any("other.example" in t for t in pip) and not any("pip.example" in t for t in pip), pip
