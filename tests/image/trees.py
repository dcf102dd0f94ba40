"""Archives of images, made by code: good ones, and parts of which bad ones are made."""
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import tarfile

PROGRAMS = ["sh", "cat", "ls", "id", "env", "pwd", "rm", "mkdir", "echo", "stat", "sleep", "readlink", "touch", "cp", "mv", "ln", "chmod", "chown",
            "mkfifo", "rmdir", "sha256sum", "sort", "dd"]
ARCH = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]


def libraries(program):
    out = subprocess.run(["ldd", program], stdout=subprocess.PIPE, text=True).stdout
    return re.findall(r"(/\S+)", out)


def small_tree(where: pathlib.Path):
    """A shell and a dozen tools of the host, with their libraries, as a tar."""
    top = where / "tree"
    for name in PROGRAMS:
        program = shutil.which(name, path="/usr/bin:/bin")
        for path in [program, *libraries(program)]:
            to = top / (path if path != program else f"usr/bin/{name}").lstrip("/")
            to.parent.mkdir(parents=True, exist_ok=True)
            if not to.exists():
                shutil.copy(os.path.realpath(path), to)
    (top / "bin").symlink_to("usr/bin")
    (top / "etc").mkdir()
    (top / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\napp:x:1234:1235:app:/srv/app:/bin/sh\n")
    (top / "etc/group").write_text("root:x:0:\napp:x:1235:\nstaff:x:50:\n")
    (top / "srv/app").mkdir(parents=True)
    (top / "root").mkdir()
    subprocess.run(["tar", "-C", top, "--owner=0", "--group=0", "-cf", where / "small.tar", "."], check=True)
    return where / "small.tar"


# ---- entries ----


def entry(name, data=None, **kw):
    """A member of an archive and its contents."""
    info = tarfile.TarInfo(name)
    info.mode = kw.pop("mode", 0o644)
    info.type = kw.pop("type", tarfile.REGTYPE)
    for key, value in kw.items():
        setattr(info, key, value)
    if data is not None:
        info.size = len(data)
    return info, data


def directory(name, **kw):
    return entry(name, type=tarfile.DIRTYPE, mode=kw.pop("mode", 0o755), **kw)


def link(name, target, **kw):
    return entry(name, type=tarfile.SYMTYPE, linkname=target, **kw)


def hard(name, target, **kw):
    return entry(name, type=tarfile.LNKTYPE, linkname=target, **kw)


def archive(*entries, **kw):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=kw.get("format", tarfile.PAX_FORMAT)) as tar:
        for info, data in entries:
            tar.addfile(info, io.BytesIO(data) if data is not None else None)
    return out.getvalue()


# ---- layouts ----


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def blob(data):
    return entry("blobs/sha256/" + hashlib.sha256(data).hexdigest(), data)


def described(data, kind):
    return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": digest(data), "size": len(data)}


def layout(layers, config=None, manifest=None, index=None, extra=()):
    """An OCI layout in a tar; manifest and index may be changed before they are written."""
    config_json = json.dumps({"architecture": ARCH, "os": "linux", "config": config or {},
                              "rootfs": {"type": "layers", "diff_ids": [digest(x) for x in layers]}}).encode()
    m = {"schemaVersion": 2, "config": described(config_json, "config.v1+json"),
         "layers": [described(x, "layer.v1.tar") for x in layers]}
    (manifest or (lambda _: None))(m)
    manifest_json = json.dumps(m).encode()
    i = {"schemaVersion": 2, "manifests": [described(manifest_json, "manifest.v1+json")]}
    (index or (lambda _: None))(i)
    return archive(entry("oci-layout", b'{"imageLayoutVersion":"1.0.0"}'), entry("index.json", json.dumps(i).encode()),
                   *{info.name: (info, data) for info, data in map(blob, [manifest_json, config_json, *layers])}.values(),
                   *extra)


def docker_archive(layers, config=None, diff_ids=None):
    config_json = json.dumps({"architecture": ARCH, "config": config or {}, "rootfs": {
        "type": "layers", "diff_ids": diff_ids or [digest(x) for x in layers]}}).encode()
    names = [hashlib.sha256(x).hexdigest() for x in layers]
    manifest = [{"Config": "config.json", "RepoTags": ["a:b"], "Layers": [n + "/layer.tar" for n in names]}]
    return archive(*[entry(n + "/layer.tar", x) for n, x in zip(names, layers)], entry("config.json", config_json),
                   entry("manifest.json", json.dumps(manifest).encode()))


def packed(data):
    return gzip.compress(data)
