"""Images as packs: equal images give equal packs, a small change gives a small pack, and nothing damaged is imported."""
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile

import pytest

from carrel import BUILD, PROGRAM
from daemon import Refused
from own import Own
from test_stacked import ordered
from trees import archive, directory, entry, hard, link

MIB = 1 << 20


def put(daemon, data, **query):
    return daemon.request("POST", "/v1/images", data, **query)


def packs(daemon, name, to=dict):
    """The files of an export, in their order."""
    out = daemon.request("GET", f"/v1/images/{name}/archive", raw=True, form="packs")
    with tarfile.open(fileobj=io.BytesIO(out)) as tar:
        return to((m.name, tar.extractfile(m).read()) for m in tar)


def image_of(files):
    return json.loads(files["image.json"])


def tar_of(files):
    return archive(*[entry(name, data) for name, data in files.items()])


def noise(size, seed):
    """Bytes that cannot be compressed, the same in each run."""
    return b"".join(hashlib.sha256(b"%d %d" % (seed, i)).digest() for i in range(size // 32))


def sha(data):
    return hashlib.sha256(data).hexdigest()


def rename(files, old, data):
    """Replaces a file that is named by its hash, wherever the image names it."""
    new = old.split("/")[0] + "/" + sha(data)
    return {new if name == old else name: data if name == old else
            text.replace(old.split("/")[1].encode(), new.split("/")[1].encode()) if name == "image.json" else text
            for name, text in files.items()}


@pytest.fixture
def large(daemon):
    """Two packs; a file whose chunks are in both; names, links and attributes of all kinds."""
    a, b = noise(9 * MIB, 1), noise(5 * MIB, 2)
    return put(daemon, archive(
        entry("a", a, mtime=11, uid=65535, gid=7), entry("b", b, mode=0o6711), entry("b2", b[:2 * MIB] + a[:2 * MIB]), entry("a-copy", a),
        directory("d", mode=0o1777, mtime=5), entry("d/empty", b""), hard("d/hard", "a"), link("d/link", "../a"), entry("d/zeros", bytes(3 * MIB)),
        entry("p", type=tarfile.FIFOTYPE), entry("x", b"x", pax_headers={"SCHILY.xattr.user.note": "kept"})), name="large")


def test_files_of_an_export_are_named_by_their_hash(daemon, large):
    files = packs(daemon, "large")
    assert list(files)[0] == "carrel-packs" and files["carrel-packs"] == b"1\n"
    assert list(files)[-1] == "image.json"
    layer, = image_of(files)["layers"]
    named = [n for n in files if "/" in n]
    assert sorted(named) == sorted(["manifests/" + layer["manifest"], *("packs/" + p for p in layer["packs"])])
    assert all(name.split("/")[1] == sha(files[name]) for name in named)


def test_packs_have_4_to_16_mib_except_the_last(daemon, large):
    files = packs(daemon, "large")
    sizes = [len(files["packs/" + p]) for p in image_of(files)["layers"][0]["packs"]]
    assert len(sizes) == 2 and 4 * MIB <= sizes[0] <= 16 * MIB and sizes[1] <= 16 * MIB
    assert 14 * MIB <= sum(sizes) < 16 * MIB, "equal contents are stored once, except where they meet others, and zeros take nothing"


def test_import_of_packs_is_the_same_image(daemon, large):
    files = packs(daemon, "large")
    again = put(daemon, tar_of(files), name="again")
    assert again["id"] == large["id"] and again["entries"] == large["entries"]


def test_import_of_packs_in_any_order(daemon, large):
    files = packs(daemon, "large")
    first = {"carrel-packs": files.pop("carrel-packs")}
    assert put(daemon, tar_of({**first, **dict(sorted(files.items(), reverse=True))}), name="again")["id"] == large["id"]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this host has one processor")
def test_packs_do_not_depend_on_the_number_of_processors(tmp_path):
    d = Own(tmp_path)
    try:
        d.work_by(BUILD / "libexec/carrel-image")
        put(d, archive(*[entry(f"f{i}", b"%d" % i * 50000) for i in range(200)], entry("noise", noise(9 * MIB, 3))), name="text")
        d.until(lambda: d.workers() == [])
        many = packs(d, "text")
        shutil.copy(BUILD / "libexec/carrel-image", d.libexec / "real")
        d.work_by_script(f'exec taskset -c {min(os.sched_getaffinity(0))} {d.libexec}/real "$@"\n')
        assert packs(d, "text") == many
    finally:
        d.stop()


def test_a_small_change_adds_a_small_pack(daemon, small):
    """The layer below has the same packs, so a copy of both needs only the new files."""
    before = packs(daemon, "small")
    m = daemon.machine(image="small")
    daemon.exec(m, "echo changed >/srv/app/new; rm /usr/bin/cp; mkdir /d; echo x >/d/y", user="root")
    daemon.post(f"/v1/machines/{m}/image", {"name": "next"})
    after = packs(daemon, "next")
    assert image_of(after)["layers"][0] == image_of(before)["layers"][0]
    new = {name: data for name, data in after.items() if name not in before}
    assert sorted(n.split("/")[0] for n in new) == ["manifests", "packs"]
    assert sum(map(len, new.values())) < 4096


def test_import_of_packs_of_several_layers_has_their_files(daemon, small):
    m = daemon.machine(image="small")
    daemon.exec(m, "echo one >/srv/app/kept; echo two >/srv/app/gone; rm /usr/bin/cp", user="root")
    daemon.post(f"/v1/machines/{m}/image", {"name": "one"})
    daemon.exec(m, "rm /srv/app/gone; ln /srv/app/kept /srv/app/hard; ln -s kept /srv/app/link; rm -r /root; echo r >/root", user="root")
    daemon.post(f"/v1/machines/{m}/image", {"name": "two"})
    files = packs(daemon, "two")
    assert len(image_of(files)["layers"]) == 3
    assert put(daemon, tar_of(files), name="again")["layers"] == 1
    show = "cd /; stat -c '%A %u %g %Y %N' srv/app srv/app/* root etc/passwd usr/bin usr/bin/*; cat srv/app/* root; stat -c %h srv/app/kept; ls usr/bin/cp 2>/dev/null || echo away"
    one, two = (daemon.exec(daemon.machine(image=name), show, user="root")["stdout"] for name in ("two", "again"))
    assert one == two and "away" in one


def repeated(daemon, rootfs):
    """An image whose layers repeat: one layer occurs twice, and two others have one file under different names."""
    one, other = archive(entry("one", noise(MIB, 5))), archive(entry("other", noise(MIB, 5)))
    put(daemon, ordered([rootfs.read_bytes(), one, archive(entry("more", b"more")), one, other]), name="repeated", form="layers")
    return packs(daemon, "repeated", list)


def test_export_has_each_file_once_and_is_imported(daemon, rootfs):
    files = repeated(daemon, rootfs)
    names = [name for name, _ in files]
    image = image_of(dict(files))
    used = [p for layer in image["layers"] for p in layer["packs"]]
    assert len(image["layers"]) >= 4 and len(used) > len(set(used)), "layers share packs, or this test shows nothing"
    assert len(names) == len(set(names)), names
    put(daemon, tar_of(dict(files)), name="again")
    sums = daemon.exec(daemon.machine(image="again"), "cat /more; sha256sum </one; sha256sum </other")["stdout"]
    assert sums == "more" + f"{sha(noise(MIB, 5))}  -\n" * 2


def test_archive_that_has_a_hashed_file_twice_is_imported(daemon, rootfs):
    """Earlier versions wrote such archives. Another file that occurs twice is refused."""
    files = repeated(daemon, rootfs)
    again = [f for f in files if f[0].startswith(("packs/", "manifests/"))]
    put(daemon, archive(*[entry(name, data) for name, data in [files[0], *again, *again, files[-1]]]), name="again")
    with pytest.raises(Refused) as why:
        put(daemon, archive(*[entry(name, data) for name, data in [*files, files[-1]]]), name="bad")
    assert "contains file 'image.json' twice" in str(why.value)


def test_directory_of_packs_with_repeated_layers_is_imported(daemon, rootfs, tmp_path):
    repeated(daemon, rootfs)
    assert cli(daemon, "export", "repeated", "--packs", tmp_path).returncode == 0
    done = cli(daemon, "import", "repeated", "--packs", tmp_path, "--name", "again")
    assert done.returncode == 0 and done.stdout.startswith("again "), done


# ---- the command line ----


def cli(daemon, *words):
    env = {"PATH": os.environ["PATH"], "CARREL_HOME": str(daemon.home), "CARREL_RUN": str(daemon.run_dir)}
    return subprocess.run([PROGRAM, "image", *map(str, words)], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=60)


def listed(where):
    return {str(p.relative_to(where)): p.stat().st_ino for p in where.rglob("*") if p.is_file()}


def test_directory_of_packs_has_each_file_once(daemon, small, tmp_path):
    """The second export adds only what the first one lacks, and touches nothing else."""
    where = tmp_path / "packs"
    assert cli(daemon, "export", "small", "--packs", where).stderr == f"carrel: wrote image 'small' to '{where}'\n"
    before = listed(where)
    m = daemon.machine(image="small")
    daemon.exec(m, "echo changed >/srv/app/new", user="root")
    daemon.post(f"/v1/machines/{m}/image", {"name": "next"})
    assert cli(daemon, "export", "next", "--packs", where).returncode == 0
    after = listed(where)
    assert {name: after[name] for name in before} == before
    new = [name for name in after if name not in before]
    assert sorted(n.split("/")[0] for n in new) == ["images", "manifests", "packs"] and "images/next.json" in new
    assert sum((where / n).stat().st_size for n in new) < 4096
    made = cli(daemon, "import", "small", "--packs", where, "--name", "again")
    assert made.stdout == f"again {small['id']}\n", made
    assert cli(daemon, "import", "next", "--packs", where, "--name", "flat").returncode == 0
    assert daemon.exec(daemon.machine(image="flat"), "cat /srv/app/new")["stdout"] == "changed\n"


def test_import_without_a_name_keeps_the_name_in_the_directory(daemon, small, tmp_path):
    assert cli(daemon, "export", "small", "--packs", tmp_path).returncode == 0
    daemon.delete("/v1/images/small")
    assert cli(daemon, "import", "small", "--packs", tmp_path).stdout == f"small {small['id']}\n"


def test_interrupted_export_leaves_no_image(daemon, small, tmp_path):
    """The image cannot be named, though its packs are there; a later export completes the directory."""
    blocked = tmp_path / "images"
    blocked.write_text("")
    (tmp_path / "packs").mkdir()
    done = cli(daemon, "export", "small", "--packs", tmp_path)
    assert done.returncode == 125 and "images" in done.stderr, done
    blocked.unlink()
    assert cli(daemon, "export", "small", "--packs", tmp_path).returncode == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["carrel-packs", "images", "manifests", "packs"]


@pytest.mark.parametrize("name", ["nothing", "../small", ""])
def test_image_that_is_not_in_the_directory(daemon, small, tmp_path, name):
    assert cli(daemon, "export", "small", "--packs", tmp_path).returncode == 0
    done = cli(daemon, "import", name, "--packs", tmp_path)
    assert done.returncode != 0 and "does not exist in directory" in done.stderr, done


def test_export_of_packs_refuses_other_directories(daemon, small, tmp_path):
    (tmp_path / "notes").write_text("mine")
    done = cli(daemon, "export", "small", "--packs", tmp_path)
    assert done.returncode == 125 and "has files, but no packs" in done.stderr and os.listdir(tmp_path) == ["notes"], done


def test_export_of_a_missing_image_creates_no_directory(daemon, tmp_path):
    done = cli(daemon, "export", "nothing", "--packs", tmp_path / "new")
    assert done.returncode == 125 and "image 'nothing' does not exist" in done.stderr and not (tmp_path / "new").exists(), done


# ---- damaged ones ----


def refused(daemon, files):
    with pytest.raises(Refused) as refusal:
        put(daemon, tar_of(files), name="bad")
    assert daemon.get("/v1/images")["images"][-1]["name"] != "bad"
    return refusal.value.error


def changed(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]


@pytest.mark.parametrize("folder", ["packs", "manifests"])
def test_damaged_file_is_refused(daemon, large, folder):
    files = packs(daemon, "large")
    name = [n for n in files if n.startswith(folder)][-1]
    said = refused(daemon, {**files, name: changed(files[name], -2)})
    assert said["code"] == "invalid" and "does not match its hash" in said["message"], said


@pytest.mark.parametrize("folder", ["packs", "manifests", "image.json"])
def test_missing_file_is_refused(daemon, large, folder):
    files = packs(daemon, "large")
    gone = [n for n in files if n.startswith(folder)][-1]
    said = refused(daemon, {n: data for n, data in files.items() if n != gone})
    assert said["code"] == "invalid" and "lacks file" in said["message"], said


def test_damaged_chunk_is_refused_even_if_all_names_are_right(daemon, large):
    files = packs(daemon, "large")
    name = [n for n in files if n.startswith("packs")][0]
    bad = changed(files[name], len(files[name]) - 100)
    manifest, = (n for n in files if n.startswith("manifests"))
    text = files[manifest].replace(bytes.fromhex(name.split("/")[1]), bytes.fromhex(sha(bad)))
    said = refused(daemon, rename(rename(files, name, bad), manifest, text))
    assert said["code"] == "invalid" and "the pack is damaged" in said["message"], said


def test_file_that_is_not_as_long_as_its_chunks_is_refused(daemon, large):
    files = packs(daemon, "large")
    manifest, = (n for n in files if n.startswith("manifests"))
    size = (9 * MIB).to_bytes(8, "little")
    assert size in files[manifest]
    said = refused(daemon, rename(files, manifest, files[manifest].replace(size, (9 * MIB - 1).to_bytes(8, "little"), 1)))
    assert said["code"] == "invalid" and "does not have the size of its chunks" in said["message"], said


def test_pack_with_another_number_of_chunks_is_refused(daemon, large):
    """The manifest says that the first pack has one chunk less, and the second one more."""
    files = packs(daemon, "large")
    manifest, = (n for n in files if n.startswith("manifests"))
    text = bytearray(files[manifest])
    for at, by in ((48, -1), (84, 1)):
        text[at:at + 4] = (int.from_bytes(text[at:at + 4], "little") + by).to_bytes(4, "little")
    said = refused(daemon, rename(files, manifest, bytes(text)))
    assert said["code"] == "invalid" and "another number of chunks" in said["message"], said


@pytest.mark.parametrize("text,code", [(b"2\n", "unsupported"), (b"", "unsupported"), (b"1", "unsupported")])
def test_unknown_version_is_refused(daemon, large, text, code):
    assert refused(daemon, {**packs(daemon, "large"), "carrel-packs": text})["code"] == code


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"layers": []}', b'{"layers": [{}], "image": {}}', b'{"layers": [{"manifest": "../x"}], "image": {}}',
                                  b'{"layers": [{"manifest": 7}], "image": {}}', b'{"layers": [{"manifest": "' + b"a" * 64 + b'"}]}'])
def test_image_without_layers_is_refused(daemon, large, text):
    assert refused(daemon, {**packs(daemon, "large"), "image.json": text})["code"] == "invalid"


# ---- ones that cost much work ----


def pack_of(*frames):
    """frames: the chunks of each, a list of bytes."""
    def compressed(data):
        return subprocess.run(["zstd", "-qc", f"--stream-size={len(data)}"], input=data, stdout=subprocess.PIPE, check=True).stdout

    stored = [compressed(b"".join(f)) for f in frames]
    chunks = [c for f in frames for c in f]
    return b"".join([b"CRLPACK\x01", u32(1), u32(len(frames)), u32(len(chunks)), *(u32(len(f)) + u32(len(z)) for f, z in zip(frames, stored)),
                     *(hashlib.sha256(c).digest() + u32(len(c)) for c in chunks), *stored])


def u32(n):
    return n.to_bytes(4, "little")


def one_file(made, numbers, size):
    """An archive of packs: one file with the chunks of these numbers. made: the packs, each with the number of its chunks."""
    attributes = (0o755).to_bytes(2, "little") + bytes(12)
    manifest = b"".join([b"CRLTREE\x01", u32(len(made)), u32(2), *(bytes.fromhex(sha(p)) + u32(n) for p, n in made), b"\x01\x00\x00", attributes,
                         b"\x02\x01\x01f", attributes, b"\x00", size.to_bytes(8, "little"), u32(len(numbers)), *map(u32, numbers)])
    image = {"layers": [{"manifest": sha(manifest), "packs": [sha(p) for p, _ in made]}], "image": {}}
    return gzip.compress(tar_of({"carrel-packs": b"1\n", **{"packs/" + sha(p): p for p, _ in made}, "manifests/" + sha(manifest): manifest,
                                 "image.json": json.dumps(image).encode()}))


QUOTA = 4 * MIB
# Each of them is a file of far fewer bytes than the quota, but takes the work of far more.
COSTLY = {
    "one chunk again and again": lambda n: ([(pack_of([b"%d" % (i % 10) for i in range(100)]), 100)], [*range(100), *[99] * n]),
    "frames of one chunk in turn": lambda n: ([(pack_of(*[[b"%d" % (i % 10)] for i in range(20)]), 20)], [i % 20 for i in range(n // 10)]),
    "packs of one chunk in turn": lambda n: ([(pack_of([b"%c" % i]), 1) for i in range(70)], [i % 70 for i in range(70 + n // 100)]),
}


@pytest.mark.skipif(not shutil.which("zstd"), reason="zstd is not installed")
@pytest.mark.parametrize("what", COSTLY)
def test_work_counts_as_bytes_that_an_import_reads(fresh, what):
    server = fresh("--listen", "127.0.0.1:0")
    owner = server.tcp(owner="o", disk=str(QUOTA), scopes=["read", "run", "admin"])

    def import_of(n):
        made, numbers = COSTLY[what](n)
        return one_file(made, numbers, len(numbers))

    # The control: the same with less work is an image.
    assert put(owner, import_of(1000), name="little")["entries"] >= 1
    owner.delete("/v1/images/little")
    with pytest.raises(Refused) as why:
        put(owner, import_of(100_000), name="much")
    assert why.value.code == "limit" and "larger than the rest of the disk quota" in str(why.value), why.value
