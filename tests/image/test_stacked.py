"""Imports that keep the layers of an archive: what they contain, share, refuse and leave."""
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import time

import pytest

from carrel import PROGRAM, ROOTLESS
from conftest import left_over
from daemon import Refused
from registries import MadeRegistry
from trees import ARCH, archive, described, directory, docker_archive, entry, hard, layout, link


def may_trace():
    return shutil.which("strace") and subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"], capture_output=True).returncode == 0


def ordered(layers, config=None, manifest=None, skip=(), more=()):
    """An OCI layout in the order in which it can be used."""
    config_json = json.dumps({"architecture": ARCH, "os": "linux", "config": config or {}}).encode()
    m = {"schemaVersion": 2, "config": described(config_json, "config.v1+json"), "layers": [described(x, "layer.v1.tar") for x in layers]}
    (manifest or (lambda _: None))(m)
    manifest_json = json.dumps(m).encode()
    index = {"schemaVersion": 2, "manifests": [described(manifest_json, "manifest.v1+json")]}
    blobs = [entry("blobs/sha256/" + hashlib.sha256(x).hexdigest(), x) for x in (manifest_json, config_json, *layers)]
    return archive(entry("index.json", json.dumps(index).encode()), *[b for i, b in enumerate(blobs) if i not in skip], *more)


def take(daemon, layers, name="app", **kw):
    return daemon.request("POST", "/v1/images", ordered(layers, **kw), name=name, form="layers")


def refused(daemon, data):
    with pytest.raises(Refused) as why:
        daemon.request("POST", "/v1/images", data, name="app", form="layers")
    daemon.until(lambda: left_over(daemon) == [])
    return why.value


def stored(daemon):
    return {p for p in (daemon.home / "images").iterdir() if p.name.startswith("i-")}


def added(daemon, before):
    """Bytes on the disk of the layers that were not there before."""
    new = stored(daemon) - before
    assert new
    sizes = subprocess.run(["du", "-sc", "--block-size=1", *new], stdout=subprocess.PIPE, text=True, check=True).stdout
    return int(sizes.splitlines()[-1].split()[0])


BASE = [directory("./", mtime=500), directory("d", mode=0o751, uid=7, gid=8, mtime=1000), entry("d/keep", b"keep"), entry("d/gone", b"gone"), entry("d/changed", b"old"),
        directory("d/sub", mode=0o700, mtime=2000), entry("d/sub/deep", b"deep"), directory("o", mtime=3000), entry("o/a", b"a"), directory("o/in"),
        entry("o/in/b", b"b"), directory("r"), entry("r/old", b"old"), link("to-d", "d"), entry("file", b"file"), directory("dir-to-file"),
        entry("dir-to-file/x", b"x"), link("link-to-dir", "d"), entry("cap", b"cap", mode=0o4755, uid=3)]

# What a layer does to the layers below it: the entries of the layer.
LAYERS = {
    "adds, changes and deletes": [entry("d/changed", b"new"), entry("d/.wh.gone", b""), entry("d/new", b"new")],
    "has no entries for directories": [entry("d/sub/more", b"more")],
    "makes a directory opaque": [directory("o", mode=0o755), entry("o/.wh..wh..opq", b""), directory("o/in"), entry("o/in/new", b"new")],
    "is opaque after its files": [directory("o"), directory("o/in"), entry("o/in/new", b"new"), entry("o/.wh..wh..opq", b"")],
    "replaces a directory": [entry(".wh.r", b""), directory("r"), entry("r/new", b"new")],
    "replaces a directory that it does not name": [entry(".wh.r", b""), entry("r/new", b"new")],
    "goes through a link": [entry("to-d/through", b"through"), entry("to-d/.wh.keep", b"")],
    "puts a file for a directory": [entry("dir-to-file", b"now")],
    "puts a directory for a file": [directory("file"), entry("file/x", b"x")],
    "puts a directory for a link": [directory("link-to-dir"), entry("link-to-dir/x", b"x")],
    "links to a file below": [hard("d/second", "d/keep"), hard("setuid", "cap")],
    "deletes what is not there": [entry(".wh.nothing", b""), entry("d/.wh.nothing", b"")],
    "deletes everything": [entry(".wh..wh..opq", b""), entry("only", b"only")],
    "deletes what every box needs": [entry(".wh.etc", b""), entry(".wh.tmp", b"")],
    "is empty": [],
    "changes its root": [directory("./", mode=0o711, mtime=4000)],
    "has a name twice": [entry("d/keep", b"1"), directory("d/keep"), entry("d/keep/x", b"x")],
}


@pytest.mark.parametrize("what", LAYERS)
def test_layer_has_the_effect_that_it_has_in_one_tree(daemon, rootfs, what):
    """The tree of the import that makes one tree of all layers is the control."""
    tools = archive(*[directory(x) for x in ("bin", "tools")])
    layers = [archive(*BASE), archive(*LAYERS[what]), tools] if what != "deletes everything" else [archive(*BASE), archive(*LAYERS[what])]
    flat = daemon.request("POST", "/v1/images", layout(layers), name="flat")
    kept = take(daemon, layers)
    assert flat["layers"] == 1 and kept["layers"] > 1, kept
    exported = [tree_of(daemon, name) for name in ("flat", "app")]
    assert exported[0] == exported[1]


# A layer that changes what is in BASE, so that the layer above it finds its names here, below, or in both.
MIDDLE = [entry("d/gone", b"again"), entry("d/second-gone", b"x"), directory("d/sub", mode=0o711, mtime=2500), entry("d/sub/deep", b"deeper"),
          entry("o/c", b"c"), entry("o/in/d", b"d"), directory("r", mode=0o750), entry("r/again", b"again"), entry("dir-to-file/y", b"y"), directory("etc", mtime=2700), entry("etc/own", b"own"),
          entry("nothing", b"something"), entry("d/.wh.changed", b"")]


@pytest.mark.parametrize("what", LAYERS)
def test_welded_layers_have_the_effect_that_they_have_in_one_tree(daemon, what):
    """Of 18 layers, the second and the third become one layer. The tree of the import that makes one tree is the control."""
    layers = [archive(*BASE), archive(*MIDDLE), archive(*LAYERS[what]), *[archive(entry(f"f{i}", b"x")) for i in range(15)]]
    daemon.request("POST", "/v1/images", layout(layers), name="flat")
    kept = take(daemon, layers)
    assert 8 <= kept["layers"] <= 16, kept
    flat, welded = (tree_of(daemon, name) for name in ("flat", "app"))
    assert flat == welded


def many_layers(base, count=40):
    """Layers that each add a file, and delete the file of the layer five below."""
    return [base, *[archive(entry(f"f{i}", b"%d\n" % i * 300), *([entry(f".wh.f{i - 5}", b"")] if i > 5 else [])) for i in range(1, count)]]


FORTY_LEFT = "".join(f"/f{i}\n" for i in range(35, 40))


@pytest.mark.parametrize("way", ["import", "pull"])
def test_image_of_forty_layers_is_welded_and_built_on(daemon, rootfs, tmp_path, way):
    layers = many_layers(rootfs.read_bytes())
    if way == "pull":
        server = MadeRegistry(layers)
        try:
            done = cli(daemon, "pull", server.name, "--name", "many")
        finally:
            server.stop()
    else:
        (tmp_path / "many.tar").write_bytes(layout(layers))
        done = cli(daemon, "import", tmp_path / "many.tar", "--name", "many")
    assert done.returncode == 0 and 2 < layers_of(daemon, "many") <= 16, done
    assert daemon.exec(daemon.machine(image="many"), "ls -d /f*; cat /f38 | sort -u")["stdout"] == FORTY_LEFT + "38\n"
    (tmp_path / "recipe").write_text("base many\n" + "".join(f"run rm /f{i}; echo {i} >/g{i}\n" for i in range(35, 40)))
    done = cli(daemon, "build", tmp_path / "recipe", "--name", "built")
    assert done.returncode == 0 and layers_of(daemon, "built") <= 16, done
    assert daemon.exec(daemon.machine(image="built"), "ls -d /f* 2>/dev/null; ls -d /g*; cat /g39")["stdout"] == FORTY_LEFT.replace("f", "g") + "39\n"


def test_images_of_many_layers_share_what_they_have_in_common(daemon, rootfs):
    layers = many_layers(rootfs.read_bytes())
    first = take(daemon, layers, name="first")
    assert take(daemon, layers, name="again")["id"] == first["id"]
    before = stored(daemon)
    more = take(daemon, layers + [archive(entry("more", b"more"))], name="more")
    assert more["id"] != first["id"] and len(stored(daemon) - before) <= 2
    assert "more" in tree_of(daemon, "more") and "f39" in tree_of(daemon, "more")


def tree_of(daemon, name):
    """What an export of the image has: each entry with its attributes and contents."""
    data = daemon.request("GET", f"/v1/images/{name}/archive", raw=True, form="tar")
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {i.name: (i.type, i.mode, i.uid, i.gid, i.linkname, i.mtime, tar.extractfile(i).read() if i.isreg() else b"") for i in tar}


def test_machine_runs_on_kept_layers(daemon, rootfs):
    base = rootfs.read_bytes()
    view = take(daemon, [base, archive(entry("one", b"1\n")), gzip.compress(archive(entry("two", b"2\n"), entry(".wh.one", b"")))], config={"Env": ["A=b"], "User": "app"})
    assert view["layers"] == 3 and view["config"]["env"] == ["A=b"], view
    m = daemon.machine(image="app")
    assert daemon.exec(m, "cat /two; ls /one 2>&1; echo $A; id -u")["stdout"].splitlines()[0::2] == ["2", "b"]
    assert daemon.exec(m, "ls /one; id -u")["stdout"] == "1234\n"


def test_second_image_with_the_same_base_writes_only_what_differs(daemon, rootfs):
    base, differs = rootfs.read_bytes(), os.urandom(300 << 10)
    first = take(daemon, [base, archive(entry("one", b"1"))], name="first")
    before = stored(daemon)
    second = take(daemon, [base, archive(entry("two", differs))], name="second")
    assert second["id"] != first["id"]
    assert added(daemon, before) <= 2 * len(differs) + (1 << 20)
    assert len(base) > 3 << 20, "the base is larger than the bound"


def test_second_import_gives_the_same_image(daemon, rootfs):
    layers = [rootfs.read_bytes(), archive(entry("one", b"1")), archive(entry("two", b"2"))]
    ids = [take(daemon, layers, name=f"n{i}", config={"Env": ["A=b"]})["id"] for i in range(2)]
    assert ids[0] == ids[1]
    other = take(daemon, layers, name="other", config={"Env": ["A=c"]})
    assert other["id"] != ids[0] and other["layers"] == 4 and other["config"]["env"] == ["A=c"]
    assert take(daemon, layers, name="again", config={"Env": ["A=c"]})["id"] == other["id"]


def test_image_of_one_layer_is_the_base_of_a_later_one(daemon, rootfs):
    base = rootfs.read_bytes()
    one = take(daemon, [base], name="base", config={"Env": ["A=b"]})
    flat = daemon.request("POST", "/v1/images", layout([base], config={"Env": ["A=b"]}), name="flat")
    assert one["layers"] == 1 and one["id"] == flat["id"]
    before = stored(daemon)
    assert take(daemon, [base, archive(entry("x", b"x"))])["layers"] == 2
    assert added(daemon, before) < 1 << 20


def test_presets_are_those_of_the_merged_files(daemon, rootfs):
    """Which hosts `apt` needs, after a layer has changed, added or deleted its lists."""
    lists = archive(entry("etc/apt/sources.list", b"deb http://one.example/ x y\n"), entry("etc/apt/sources.list.d/a.list", b"deb http://two.example/ x y\n"))
    cases = {"same": [entry("x", b"x")], "changed": [entry("etc/apt/sources.list", b"deb http://new.example/ x y\n")],
             "added": [entry("etc/apt/sources.list.d/b.list", b"deb http://new.example/ x y\n")], "deleted": [entry("etc/apt/.wh.sources.list", b"")],
             "gone": [entry("etc/apt/sources.list.d/.wh..wh..opq", b"")]}
    found = {}
    for name, entries in cases.items():
        take(daemon, [rootfs.read_bytes(), lists, archive(*entries), archive(entry("above", b""))], name=name)
        m = daemon.machine(image=name, net=[{"target": "apt"}])
        found[name] = {h for r in daemon.get(f"/v1/machines/{m}/net")["rules"] for h in ("one", "two", "new") if f"{h}.example" in r["target"]}
    assert found == {"same": {"one", "two"}, "changed": {"new", "two"}, "added": {"one", "two", "new"}, "deleted": {"two"}, "gone": {"one"}}


def test_layers_go_with_the_last_image(daemon, rootfs):
    take(daemon, [rootfs.read_bytes(), archive(entry("one", b"1")), archive(entry("two", b"2"))])
    assert len(left_over(daemon)) >= 3
    daemon.delete("/v1/images/app")
    daemon.until(lambda: left_over(daemon) == [])


def test_layer_of_another_owner_is_not_used(fresh):
    """A reader that was taken over may leave other files than those of the digest. The record of one image says so here."""
    daemon = fresh("--listen", "127.0.0.1:0")
    theirs, mine = (daemon.tcp(owner=x, scopes=["read", "run"]) for x in ("theirs", "mine"))
    record = daemon.home / "images" / take(theirs, [BASE_LAYER])["id"] / "image.json"
    record.write_text(record.read_text().replace(hashlib.sha256(BASE_LAYER).hexdigest(), hashlib.sha256(SECOND).hexdigest()))
    found = {}
    for client, name in ((mine, "mine"), (theirs, "theirs")):
        take(client, [SECOND], name=name)
        found[name] = {"one", "two"} & set(tree_of(client, name))
    assert found == {"mine": {"two"}, "theirs": {"one"}}, "the control: the record is believed for its owner"


def spoiled(layers, at):
    """The bytes of one layer differ from its digest."""
    data = ordered(layers)
    where = data.index(layers[at][:600])
    return data[:where + 520] + b"\xff" + data[where + 521:]


BASE_LAYER, SECOND = archive(entry("one", b"1" * 600)), archive(entry("two", b"2" * 600))


@pytest.mark.parametrize("at", [0, 1])
def test_layer_with_another_digest_is_refused(daemon, at):
    assert "does not match its digest" in str(refused(daemon, spoiled([BASE_LAYER, SECOND], at)))


def test_known_layer_is_verified_too(daemon):
    take(daemon, [BASE_LAYER, SECOND], name="before")
    with pytest.raises(Refused) as why:
        daemon.request("POST", "/v1/images", spoiled([BASE_LAYER, SECOND], 0), name="app", form="layers")
    assert "does not match its digest" in str(why.value)


def digests(layers):
    return {"digests": ["sha256:" + hashlib.sha256(x).hexdigest() for x in layers]}


def stored_layers(client, layers):
    return client.post("/v1/layers", digests(layers))["stored"]


def test_stored_layers_are_counted_for_their_owner(fresh):
    daemon = fresh("--listen", "127.0.0.1:0")
    theirs, mine = (daemon.tcp(owner=x, scopes=["read", "run"]) for x in ("theirs", "mine"))
    third = archive(entry("three", b"3"))
    take(mine, [BASE_LAYER, SECOND])
    assert [stored_layers(mine, x) for x in ([BASE_LAYER, SECOND, third], [BASE_LAYER, third], [SECOND, BASE_LAYER])] == [2, 1, 0]
    assert stored_layers(theirs, [BASE_LAYER, SECOND]) == 0
    many = [BASE_LAYER, *[archive(entry(f"f{i}", b"x")) for i in range(16)]]
    take(mine, many, name="many")
    assert [stored_layers(mine, many), stored_layers(mine, many[:-1] + [third]), stored_layers(mine, many[:2] + [third] + many[3:])] == [17, 15, 1]
    for wrong in ([], ["sha256:x"], ["md5:" + 64 * "0"], 129 * ["sha256:" + 64 * "0"]):
        with pytest.raises(Refused) as why:
            mine.post("/v1/layers", {"digests": wrong})
        assert why.value.code == "invalid", why.value


@pytest.mark.skipif(not may_trace(), reason="strace is not there, or may not trace")
def test_records_of_images_are_read_once(daemon, tmp_path):
    """They are read by the thread that answers all requests."""
    for i in range(3):
        take(daemon, [BASE_LAYER, archive(entry(f"f{i}", b"x"))], name=f"n{i}")
    assert stored_layers(daemon, [SECOND]) == 0
    out = tmp_path / "trace"
    with subprocess.Popen(["strace", "-f", "-qq", "-e", "trace=openat", "-o", out, "-p", str(daemon.process.pid)]) as strace:
        daemon.until(lambda: "TracerPid:\t0" not in open(f"/proc/{daemon.process.pid}/status").read())
        counted = [stored_layers(daemon, x) for x in ([BASE_LAYER, SECOND], [SECOND])]
        strace.terminate()
    opened = out.read_text()
    assert counted == [1, 0] and "images" in opened and "image.json" not in opened, opened
    take(daemon, [BASE_LAYER, SECOND], name="new")
    assert stored_layers(daemon, [BASE_LAYER, SECOND]) == 2
    daemon.request("DELETE", "/v1/images/new")
    assert stored_layers(daemon, [BASE_LAYER, SECOND]) == 1


def test_import_without_stored_layers_gives_the_same_image(daemon):
    third = archive(entry("three", b"3"))
    whole = take(daemon, [BASE_LAYER, SECOND, third])
    assert take(daemon, [BASE_LAYER, SECOND, third], name="documents", skip=[2, 3, 4])["id"] == whole["id"]
    assert take(daemon, [BASE_LAYER, SECOND, third], name="other", skip=[2, 3, 4], config={"Env": ["A=b"]})["config"]["env"] == ["A=b"]
    other = archive(entry("other", b"other"))
    assert set(tree_of(daemon, "app")) ^ set(tree_of(daemon, take(daemon, [BASE_LAYER, SECOND, other], name="mixed", skip=[2, 3])["name"])) == {"three", "other"}
    many = [BASE_LAYER, *[archive(entry(f"f{i}", b"x")) for i in range(20)]]
    ids = {take(daemon, many, name="many", skip=x)["id"] for x in ([], range(2, 23), range(2, 7))}
    assert len(ids) == 1


def test_manifest_gets_no_layer_of_a_machine_by_its_digest(daemon, small, tmp_path):
    """Only layers that were imported have a digest: the files of a machine or a build cannot be named by one."""
    box = daemon.machine(image="small")
    daemon.exec(box, "echo private >/secret")
    daemon.post(f"/v1/machines/{box}/image", {"name": "private"})
    assert cli(daemon, "export", "private", "--oci", tmp_path / "oci").returncode == 0
    blob = lambda digest: (tmp_path / "oci/blobs/sha256" / digest[7:]).read_bytes()  # noqa: E731
    index = json.loads((tmp_path / "oci/index.json").read_text())
    layers = [blob(x["digest"]) for x in json.loads(blob(index["manifests"][0]["digest"]))["layers"]]
    assert len(layers) == 2
    hostile = [*layers, archive(entry("hostile", b"x"))]
    assert stored_layers(daemon, hostile) <= 1
    with pytest.raises(Refused) as why:
        take(daemon, hostile, skip=[2, 3])
    assert why.value.code == "gone" and "neither in the image archive nor stored" in str(why.value), why.value
    take(daemon, [BASE_LAYER, SECOND], name="imported")
    assert take(daemon, [BASE_LAYER, SECOND, hostile[2]], name="control", skip=[2, 3])["layers"] == 3


def test_manifest_of_a_file_gets_only_layers_of_the_file(daemon, tmp_path):
    """Of a registry, layers that the owner has are not asked for. A file has to have all layers that it names."""
    private = archive(entry("private", b"private"))
    take(daemon, [BASE_LAYER, private], name="before")
    whole = layout([BASE_LAYER, private, SECOND])
    (tmp_path / "whole.tar").write_bytes(whole)
    with tarfile.open(tmp_path / "whole.tar") as old, tarfile.open(tmp_path / "app.tar", "w") as new:
        for member in old:
            if not member.name.endswith(hashlib.sha256(private).hexdigest()):
                new.addfile(member, old.extractfile(member))
    done = cli(daemon, "import", tmp_path / "app.tar", "--name", "app")
    assert done.returncode == 125, done
    assert cli(daemon, "import", tmp_path / "whole.tar", "--name", "app").returncode == 0, "the control"


def bomb():
    return gzip.compress(archive(entry("zeros", bytes(64 << 20))))


HOSTILE = {
    "layers out of order": (lambda: ordered([BASE_LAYER, SECOND], skip=[2], more=[entry("blobs/sha256/" + hashlib.sha256(BASE_LAYER).hexdigest(), BASE_LAYER)]), "neither in the image archive nor stored"),
    "a layer is missing": (lambda: ordered([BASE_LAYER, SECOND], skip=[3]), "neither in the image archive nor stored"),
    "all layers are missing": (lambda: ordered([BASE_LAYER, SECOND], skip=[2, 3]), "neither in the image archive nor stored"),
    "a layer comes again": (lambda: ordered([BASE_LAYER, SECOND], more=[entry("blobs/sha256/" + hashlib.sha256(BASE_LAYER).hexdigest(), BASE_LAYER)]), "out of order"),
    "a layer too many": (lambda: ordered([BASE_LAYER], more=[entry("blobs/sha256/" + hashlib.sha256(SECOND).hexdigest(), SECOND)]), "out of order"),
    "no configuration": (lambda: ordered([BASE_LAYER], skip=[1]), "out of order"),
    "no manifest": (lambda: ordered([BASE_LAYER], skip=[0]), "out of order"),
    "too many layers": (lambda: ordered([archive(entry(f"f{i}", b"x")) for i in range(129)]), "the image has 129 layers; it must have 1 to 128"),
    "another digest inside of a group": (lambda: spoiled([archive(entry(f"f{i}", b"%d" % i * 600)) for i in range(20)], 9), "does not match its digest"),
    "a group that ends early": (lambda: ordered([archive(entry(f"f{i}", b"x")) for i in range(19)], skip=[20]), "ends early"),
    "a group without its first layer": (lambda: ordered([archive(entry(f"f{i}", b"x")) for i in range(19)], skip=[3]), "neither in the image archive nor stored"),
    "a group without its second layer": (lambda: ordered([archive(entry(f"f{i}", b"x")) for i in range(19)], skip=[4]), "out of order"),
    "a name that leaves the tree, in a group": (lambda: ordered([archive(entry(f"f{i}", b"x")) for i in range(16)] + [archive(entry("../x", b""))]), "leaves the image by '..'"),
    "a whiteout of .., in a group": (lambda: ordered([archive(entry(f"f{i}", b"x")) for i in range(16)] + [archive(entry(".wh...", b""))]), "names no file"),
    "no layers": (lambda: ordered([]), "the image has 0 layers"),
    "another size": (lambda: ordered([BASE_LAYER], manifest=lambda m: m["layers"][0].update(size=5)), "does not have its size"),
    "a digest that is a path": (lambda: ordered([BASE_LAYER], manifest=lambda m: m["layers"][0].update(digest="sha256:../../x")), "without a valid digest"),
    "a whiteout of ..": (lambda: ordered([BASE_LAYER, archive(entry(".wh...", b""))]), "is a whiteout (deletion marker) that names no file"),
    "a whiteout of nothing": (lambda: ordered([BASE_LAYER, archive(entry(".wh.", b""))]), "is a whiteout (deletion marker) that names no file"),
    "a name that leaves the tree": (lambda: ordered([BASE_LAYER, archive(entry("../x", b""))]), "leaves the image by '..'"),
    "a link out of the tree": (lambda: ordered([archive(link("out", "/etc")), archive(entry("out/x", b"x"))]), "would follow a link out of the image"),
    "a link above the tree": (lambda: ordered([archive(link("out", "a/../../..")), archive(entry("out/x", b"x"))]), "would follow a link out of the image"),
    "a link to itself": (lambda: ordered([archive(link("l", "l")), archive(entry("l/x", b"x"))]), "would follow a link out of the image"),
    "a directory below a file": (lambda: ordered([BASE_LAYER, archive(entry("one/x", b"x"))]), "is below a file"),
    "a hard link to a directory below": (lambda: ordered([archive(directory("d")), archive(hard("x", "d"))]), "is not a file"),
    "a hard link to what is deleted": (lambda: ordered([BASE_LAYER, archive(entry(".wh.one", b""), hard("x", "one"))]), "does not exist"),
    "a device": (lambda: ordered([BASE_LAYER, archive(entry("dev-0", type=b"3"))]), "is a device"),
    "an overlay mark": (lambda: ordered([BASE_LAYER, archive(entry("d", b"x", pax_headers={"SCHILY.xattr.trusted.overlay.opaque": "y"}))]), "unsupported attribute"),
    "a layer that is no tar": (lambda: ordered([BASE_LAYER, b"x" * 2000]), "image archive"),
    "a layer compressed twice": (lambda: ordered([BASE_LAYER, gzip.compress(bomb())]), "compressed more than once"),
    "nothing": (lambda: b"", "ends early"),
    "no tar": (lambda: b"x" * 5000, "is not a tar"),
    "an endless document": (lambda: archive(entry("index.json", bytes(5 << 20))), "does not have its size"),
    "half of an archive": (lambda: ordered([BASE_LAYER, SECOND])[:-12000], "ends early"),
    "an index of two": (lambda: archive(entry("index.json", json.dumps({"manifests": [{}, {}]}).encode())), "does not have one manifest"),
    "a manifest that is no JSON": (lambda: archive(entry("index.json", b"{")), "is not JSON"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_archive_leaves_nothing(daemon, what):
    make, said = HOSTILE[what]
    why = refused(daemon, make())
    assert said in str(why), why
    assert take(daemon, [BASE_LAYER, SECOND])["layers"] == 2, "the control"


def test_same_layer_twice_is_unpacked_twice(daemon):
    """The second time it is above another image."""
    again = archive(entry("one", b"changed"))
    take(daemon, [BASE_LAYER, again, BASE_LAYER])
    assert tree_of(daemon, "app")["one"][-1] == b"1" * 600


def test_layers_together_count_towards_the_disk_quota(fresh):
    daemon, quota = fresh("--listen", "127.0.0.1:0"), 4 << 20
    layers = [archive(entry(f"f{i}", os.urandom(quota // 3))) for i in range(4)]
    with pytest.raises(Refused) as why:
        take(daemon.tcp(owner="small", disk=str(quota), scopes=["read", "run"]), layers)
    assert why.value.code == "limit" and "rest of the disk quota" in str(why.value), why.value
    assert take(daemon.tcp(owner="large", scopes=["read", "run"]), layers)["layers"] == 4, "the control"
    daemon.until(lambda: len(left_over(daemon)) == 4)


@pytest.mark.parametrize("sent", [0.3, 0.6, 0.99])
def test_client_that_disconnects_leaves_nothing(daemon, rootfs, sent):
    data = ordered([BASE_LAYER, rootfs.read_bytes(), SECOND])
    c = daemon.connect()
    c.putrequest("POST", "/v1/images?name=app&form=layers")
    c.putheader("Content-Length", str(len(data)))
    c.endheaders()
    c.send(data[:int(len(data) * sent)])
    daemon.until(lambda: any(n.startswith("i-") for n in left_over(daemon)))
    c.close()
    daemon.until(lambda: left_over(daemon) == [])


def test_killed_daemon_leaves_nothing(fresh, rootfs):
    daemon = fresh()
    data = ordered([BASE_LAYER, rootfs.read_bytes(), SECOND])
    c = daemon.connect()
    c.putrequest("POST", "/v1/images?name=app&form=layers")
    c.putheader("Content-Length", str(len(data)))
    c.endheaders()
    c.send(data[:len(data) // 2])
    daemon.until(lambda: any(n.startswith("i-") for n in left_over(daemon)))
    daemon.restart(hard=True)
    daemon.until(lambda: left_over(daemon) == [])
    assert daemon.get("/v1/images")["images"] == []
    c.close()


# ---- the command line ----


def cli(daemon, *words, **kw):
    env = {"PATH": os.environ["PATH"], "CARREL_HOME": str(daemon.home), "CARREL_RUN": str(daemon.run_dir), "DOCKER_CONFIG": "/nonexistent"}
    return subprocess.run([PROGRAM, "image", *map(str, words)], env=env, capture_output=True, timeout=110, **{"stdin": subprocess.DEVNULL, **kw})


def layers_of(daemon, name):
    return daemon.get("/v1/images/" + name)["layers"]


def test_import_of_a_file_or_directory_keeps_layers(daemon, tmp_path):
    (tmp_path / "app.tar").write_bytes(layout([BASE_LAYER, SECOND], index=lambda i: i["manifests"].insert(0, {
        **i["manifests"][0], "digest": "sha256:" + 64 * "0", "platform": {"os": "linux", "architecture": "s390x"}})))
    (tmp_path / "app").mkdir()
    subprocess.run(["tar", "-C", tmp_path / "app", "-xf", tmp_path / "app.tar"], check=True)
    for i, source in enumerate(("app.tar", "app")):
        assert cli(daemon, "import", tmp_path / source, "--name", f"n{i}").returncode == 0
    with open(tmp_path / "app.tar", "rb") as file:
        assert cli(daemon, "import", "-", "--name", "n2", stdin=file).returncode == 0
    assert [layers_of(daemon, f"n{i}") for i in range(3)] == [2, 2, 2]
    assert len({daemon.get(f"/v1/images/n{i}")["id"] for i in range(3)}) == 1


@pytest.mark.parametrize("what", ["a pipe", "compressed"])
def test_other_archives_become_one_tree(daemon, tmp_path, what):
    data = layout([BASE_LAYER, SECOND])
    (tmp_path / "app.tar").write_bytes(gzip.compress(data) if what == "compressed" else data)
    if what == "a pipe":
        cat = subprocess.Popen(["cat", tmp_path / "app.tar"], stdout=subprocess.PIPE)
        done = cli(daemon, "import", "-", "--name", "app", stdin=cat.stdout)
        cat.stdout.close()
        assert cat.wait() == 0
    else:
        done = cli(daemon, "import", tmp_path / "app.tar", "--name", "app")
    assert done.returncode == 0 and layers_of(daemon, "app") == 1, done
    assert tree_of(daemon, "app")["one"]


def test_import_of_a_docker_archive_keeps_layers(daemon, rootfs, tmp_path):
    """It shares them with an OCI layout. One whose layers are others than its configuration lists is refused."""
    layers = [rootfs.read_bytes(), archive(entry("one", b"1\n")), archive(entry("two", b"2\n"), entry(".wh.one", b""))]
    (tmp_path / "docker.tar").write_bytes(docker_archive(layers, {"Env": ["A=b"]}))
    assert cli(daemon, "import", tmp_path / "docker.tar", "--name", "docker").returncode == 0
    assert layers_of(daemon, "docker") == 3 and daemon.get("/v1/images/docker")["config"]["env"] == ["A=b"]
    assert take(daemon, layers, name="oci", config={"Env": ["A=b"]})["id"] == daemon.get("/v1/images/docker")["id"]
    assert daemon.exec(daemon.machine(image="docker"), "cat /two; ls /one 2>/dev/null; echo $A")["stdout"] == "2\nb\n"
    (tmp_path / "other.tar").write_bytes(docker_archive(layers, diff_ids=["sha256:" + 64 * "1"] * 3))
    done = cli(daemon, "import", tmp_path / "other.tar", "--name", "other")
    assert done.returncode == 125 and b"does not match its hash" in done.stderr, done
    (tmp_path / "tree.tar").write_bytes(archive(entry("file", b"x"), entry("manifest.json", b'[{"Config":"file","Layers":["file"]}]')))
    assert cli(daemon, "import", tmp_path / "tree.tar", "--name", "tree").returncode == 0
    assert {"file", "manifest.json"} <= set(tree_of(daemon, "tree")), "a file of this name does not make a tree a Docker archive"


def test_import_keeps_a_layer_that_occurs_twice(daemon, tmp_path):
    changed = archive(entry("one", b"changed"))
    (tmp_path / "app.tar").write_bytes(layout([BASE_LAYER, changed, BASE_LAYER]))
    assert cli(daemon, "import", tmp_path / "app.tar", "--name", "app").returncode == 0
    assert layers_of(daemon, "app") == 3 and tree_of(daemon, "app")["one"][-1] == b"1" * 600


def test_damaged_layout_is_refused(daemon, tmp_path):
    data = layout([BASE_LAYER, SECOND])
    where = data.index(SECOND[:600])
    (tmp_path / "bad.tar").write_bytes(data[:where + 520] + b"\xff" + data[where + 521:])
    done = cli(daemon, "import", tmp_path / "bad.tar", "--name", "app")
    assert done.returncode == 125 and b"does not match its digest" in done.stderr, done
    daemon.until(lambda: left_over(daemon) == [])


def test_export_and_import_keep_the_layers_of_a_build(daemon, small, tmp_path):
    (tmp_path / "recipe").write_text("base small\nrun echo one >/one; rm /etc/group\nenv A=b\nrun echo two >/two\n")
    assert cli(daemon, "build", tmp_path / "recipe", "--name", "app").returncode == 0
    assert cli(daemon, "export", "app", "--oci", tmp_path / "oci").returncode == 0
    assert cli(daemon, "import", tmp_path / "oci", "--name", "back").returncode == 0
    assert layers_of(daemon, "back") == layers_of(daemon, "app") == 3
    assert tree_of(daemon, "back") == tree_of(daemon, "app")


def test_export_compresses_layers_with_zstd(daemon, small, tmp_path):
    """Debian's zstd and tar read the layers, and so does our import."""
    (tmp_path / "recipe").write_text("base small\nrun echo one >/one; rm /etc/group\n")
    assert cli(daemon, "build", tmp_path / "recipe", "--name", "app").returncode == 0
    for name, words in (("plain", []), ("zstd", ["--zstd"]), ("again", ["--zstd"])):
        assert cli(daemon, "export", "app", "--oci", tmp_path / name, *words).returncode == 0
    blobs = {name: tmp_path / name / "blobs/sha256" for name in ("plain", "zstd", "again")}
    assert sorted(os.listdir(blobs["zstd"])) == sorted(os.listdir(blobs["again"])), "equal images give equal bytes"
    index = json.loads((tmp_path / "zstd/index.json").read_bytes())
    manifest = json.loads((blobs["zstd"] / index["manifests"][0]["digest"][7:]).read_bytes())
    config = json.loads((blobs["zstd"] / manifest["config"]["digest"][7:]).read_bytes())
    assert len(manifest["layers"]) == 2 and {x["mediaType"] for x in manifest["layers"]} == {"application/vnd.oci.image.layer.v1.tar+zstd"}
    for layer, plain in zip(manifest["layers"], config["rootfs"]["diff_ids"]):
        stored = blobs["zstd"] / layer["digest"][7:]
        data = subprocess.run(["zstd", "-dc", stored], stdout=subprocess.PIPE, check=True).stdout
        assert stored.stat().st_size == layer["size"] and "sha256:" + hashlib.sha256(data).hexdigest() == plain
        assert (blobs["plain"] / plain[7:]).read_bytes() == data, "the same tar as without compression"
        subprocess.run(["tar", "--zstd", "-tf", stored], stdout=subprocess.DEVNULL, check=True)
    sizes = [sum(p.stat().st_size for p in blobs[name].iterdir()) for name in ("zstd", "plain")]
    assert sizes[0] < sizes[1] * 0.7, sizes
    assert cli(daemon, "import", tmp_path / "zstd", "--name", "back").returncode == 0
    assert layers_of(daemon, "back") == 2 and tree_of(daemon, "back") == tree_of(daemon, "app")
    done = cli(daemon, "export", "app", "--tar", tmp_path / "x.tar", "--zstd")
    assert done.returncode == 125 and b"--zstd works only with --oci DIR" in done.stderr and not (tmp_path / "x.tar").exists(), done


def test_pull_keeps_layers_and_shares_the_base(daemon, rootfs):
    base = gzip.compress(rootfs.read_bytes())
    servers = [MadeRegistry([base, x]) for x in (BASE_LAYER, SECOND)]
    try:
        assert cli(daemon, "pull", servers[0].name, "--name", "first").returncode == 0
        before = stored(daemon)
        assert cli(daemon, "pull", servers[1].name, "--name", "second").returncode == 0
        assert added(daemon, before) < 1 << 20 and [layers_of(daemon, x) for x in ("first", "second")] == [2, 2]
        assert daemon.exec(daemon.machine(image="second"), "cat /two; ls /one 2>/dev/null")["stdout"] == "2" * 600
    finally:
        for server in servers:
            server.stop()


def test_the_tree_below_stays_while_a_layer_above_it_is_read(daemon):
    """The image below becomes a file meanwhile, and a link of the layer needs one of its files afterwards."""
    if ROOTLESS or daemon.get("/v1/status")["box"]["images"] != "erofs":
        pytest.skip("this host cannot mount erofs from a file of the store")
    layers = [archive(entry("one", b"1")), archive(entry("two", b"2"), entry("pad", bytes(4 << 20)), hard("again", "one"))]
    low = take(daemon, layers[:1], name="build:low")
    where = daemon.home / "images" / low["id"]
    data = ordered(layers)
    c = daemon.connect()
    c.putrequest("POST", "/v1/images?name=above&form=layers")
    for name, value in {**daemon.headers, "Content-Length": str(len(data))}.items():
        c.putheader(name, value)
    c.endheaders(data[:2 << 20])
    daemon.until(lambda: list((daemon.home / "images").glob("n-*/root/two")))
    daemon.post("/v1/images/build:low/names", {"name": "low"})
    daemon.until(lambda: "erofs" == daemon.get("/v1/images/low")["stored"])
    time.sleep(0.3)  # the tree is gone sooner without the lock, which is what the test is for
    assert (where / "root" / "one").exists()
    c.send(data[2 << 20:])
    answer = c.getresponse()
    content = json.loads(answer.read())
    c.close()
    assert answer.status < 300 and content["layers"] == 2, content
    daemon.until(lambda: not (where / "root").exists())
