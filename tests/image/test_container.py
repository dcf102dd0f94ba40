"""Image archives that scripts/oci-archive writes, as scripts/container does for the image of the daemon."""
import gzip
import hashlib
import json
import os
import pathlib
import secrets
import subprocess
import tarfile

import pytest

from trees import ARCH

TREE = pathlib.Path(__file__).resolve().parents[2]


def archive(layer, out, epoch="1700000000"):
    subprocess.run([TREE / "scripts/oci-archive", layer, TREE / "packaging/container/config.json", "1.2-3", ARCH, out], check=True,
                   env={**os.environ, "SOURCE_DATE_EPOCH": epoch})
    return out


def test_an_archive_has_what_its_digests_say(rootfs, tmp_path):
    out = archive(rootfs, tmp_path / "one.tar")
    with tarfile.open(out) as tar:
        assert tar.getnames()[0] == "oci-layout"
        files = {m.name: tar.extractfile(m).read() for m in tar if m.isfile()}

    def blob(of):
        data = files["blobs/sha256/" + of["digest"].removeprefix("sha256:")]
        assert len(data) == of["size"] and "sha256:" + hashlib.sha256(data).hexdigest() == of["digest"]
        return data

    (named,) = json.loads(files["index.json"])["manifests"]
    assert named["platform"] == {"architecture": ARCH, "os": "linux"} and named["annotations"]["org.opencontainers.image.ref.name"] == "1.2-3"
    manifest = json.loads(blob(named))
    (for_docker,) = json.loads(files["manifest.json"])
    assert for_docker == {"Config": "blobs/sha256/" + manifest["config"]["digest"][7:], "RepoTags": ["carrel:1.2-3"],
                          "Layers": ["blobs/sha256/" + manifest["layers"][0]["digest"][7:]]}
    config = json.loads(blob(manifest["config"]))
    (layer,) = map(blob, manifest["layers"])
    assert gzip.decompress(layer) == rootfs.read_bytes()
    assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(rootfs.read_bytes()).hexdigest()]
    assert config["created"] == "2023-11-14T22:13:20Z" and config["architecture"] == ARCH and "@" not in json.dumps(config)


def test_the_same_layer_gives_the_same_bytes(tmp_path):
    layer = tmp_path / "layer.tar"
    subprocess.run(["tar", "-cf", layer, "-C", TREE / "packaging", "container"], check=True)
    one, two = (archive(layer, tmp_path / name).read_bytes() for name in ("one.tar", "two.tar"))
    assert one == two and one != archive(layer, tmp_path / "three.tar", epoch="1700000001").read_bytes()


def test_an_archive_is_imported(daemon, rootfs, tmp_path):
    daemon.request("POST", "/v1/images", archive(rootfs, tmp_path / "one.tar").read_bytes(), name="small")
    m = daemon.machine(image="small")
    assert daemon.exec(m, "echo $LANG")["stdout"] == "C.UTF-8\n"


# A container: its own cgroup is the highest that it sees.
ENTER = """
echo 0 >{group}/cgroup.procs
exec unshare --cgroup --mount sh -ec 'mount --make-rprivate /; {mount}; exec {start} --listen 127.0.0.1:7070'
"""
TINI = """#!/bin/sh
echo "$@"
grep ^0:: /proc/self/cgroup
echo $(cat /sys/fs/cgroup/cgroup.procs)
"""


@pytest.mark.parametrize("mount, moved", [("mount -t cgroup2 none /sys/fs/cgroup", True), ("mount -t tmpfs none /sys/fs/cgroup", False)],
                         ids=["v2", "v1"])
def test_first_program_leaves_the_highest_cgroup(tmp_path, mount, moved):
    top = next((p for p in map(pathlib.Path, ("/sys/fs/cgroup/unified", "/sys/fs/cgroup")) if (p / "cgroup.procs").exists()), None)
    if os.geteuid() != 0 or not top:
        pytest.skip("only root can make a container here, on a host with cgroup v2")
    group = top / f"carrel-test-{secrets.token_hex(4)}"
    group.mkdir()
    (tmp_path / "tini").write_text(TINI if moved else TINI.rsplit("echo", 1)[0])
    (tmp_path / "tini").chmod(0o755)
    try:
        done = subprocess.run(["sh", "-ec", ENTER.format(group=group, mount=mount, start=TREE / "packaging/container/start")], capture_output=True,
                              text=True, env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}, timeout=60)
        assert done.returncode == 0, done
        assert done.stdout.splitlines() == ["-- carrel serve --listen 127.0.0.1:7070", *(["0::/start", ""] if moved else ["0::/"])], done
    finally:
        for path in (group / "start", group):
            if path.exists():
                path.rmdir()
