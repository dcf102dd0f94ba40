"""A small image for templates to start from: bash and a few tools of the host, with the user of E2B's images."""
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "image"))

from trees import PROGRAMS, libraries  # noqa: E402

MORE = ["bash", "dirname", "find", "wc", "grep", "pgrep", "useradd"]


def base_tar(where):
    top = where / "tree"
    for name in PROGRAMS + MORE:
        program = shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin")
        for path in [program, *libraries(program)]:
            to = top / (path if path != program else f"usr/bin/{name}").lstrip("/")
            to.parent.mkdir(parents=True, exist_ok=True)
            if not to.exists():
                shutil.copy(os.path.realpath(path), to)
    (top / "bin").symlink_to("usr/bin")
    for name in ("etc", "root", "tmp", "home/user"):
        (top / name).mkdir(parents=True)
    (top / "tmp").chmod(0o1777)
    (top / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\n")
    (top / "etc/group").write_text("root:x:0:\nuser:x:1000:\n")
    subprocess.run(["tar", "-C", top, "--owner=0", "--group=0", "--exclude=./home/user", "-cf", where / "base.tar", "."], check=True)
    subprocess.run(["tar", "-C", top, "--owner=1000", "--group=1000", "-rf", where / "base.tar", "./home/user"], check=True)
    return where / "base.tar"


def lend_base(daemon, where):
    """Stores it as the image `base`."""
    return daemon.request("POST", "/v1/images", base_tar(where).read_bytes(), name="base")
