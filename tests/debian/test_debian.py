"""A Debian from the mirror that this host itself uses: packages install, and time goes back over them."""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "daemon"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from carrel import PROGRAM  # noqa: E402
from daemon import Daemon  # noqa: E402


def cli(daemon, *words, timeout=500):
    env = {"PATH": os.environ["PATH"], "CARREL_HOME": str(daemon.home), "CARREL_RUN": str(daemon.run_dir)}
    return subprocess.run([PROGRAM, *map(str, words)], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)


def why_not():
    """What keeps this host from it, or nothing."""
    if not shutil.which("mmdebstrap"):
        return "mmdebstrap is not installed"
    done = subprocess.run(["apt-get", "indextargets", "--format", "$(SITE)", "Codename: bookworm"], capture_output=True, text=True)
    for site in sorted(set(done.stdout.split())):
        got = subprocess.run(["curl", "-sf", "-m", "10", "-o", "/dev/null", site.rstrip("/") + "/dists/bookworm/Release"])
        if got.returncode == 0:
            return None
    return "no mirror of bookworm can be reached"


@pytest.fixture(scope="module")
def daemon():
    reason = why_not()
    if reason:
        pytest.skip(reason)
    d = Daemon()
    yield d
    d.stop()


def test_a_package_is_installed_gone_and_installed_again(daemon, tmp_path):
    (tmp_path / "recipe").write_text("base debian:bookworm\npackages tree\nuser nobody\n")
    done = cli(daemon, "image", "build", tmp_path / "recipe", "--name", "trees", "-q")
    assert done.returncode == 0, done
    made = daemon.machine(image="trees")
    assert "tree v" in daemon.exec(made, "tree --version")["stdout"] and daemon.exec(made, "id -un")["stdout"] == "nobody\n"

    hosts = [{"target": h, "local": True} for h in mirrors()]
    m = daemon.post("/v1/machines", {"image": "debian:bookworm", "net": hosts, "limits": {"disk": "2G"}})["id"]
    daemon.post(f"/v1/machines/{m}/steps", {"name": "bare"})
    install = "apt-get -q update && apt-get -q -y -o APT::Sandbox::User=root install tree && tree --version"
    first = daemon.exec(m, install, timeout="5m")
    assert "tree v" in first["stdout"], first
    daemon.post(f"/v1/machines/{m}/steps", {"name": "with"})
    daemon.post(f"/v1/machines/{m}/rewind", {"step": "bare"})
    assert daemon.exec(m, "tree --version")["exec"]["status"] == 127
    again = daemon.exec(m, install, timeout="5m")
    assert "tree v" in again["stdout"], again
    daemon.post(f"/v1/machines/{m}/rewind", {"step": "with"})
    assert daemon.exec(m, "tree --version && dpkg -s tree | grep ^Status")["exec"]["status"] == 0


def mirrors():
    import re
    text = "".join(p.read_text() for p in [*pathlib.Path("/etc/apt/sources.list.d").glob("*.sources"),
                                           *pathlib.Path("/etc/apt/sources.list.d").glob("*.list"), pathlib.Path("/etc/apt/sources.list")] if p.exists())
    return sorted(set(re.findall(r"://([^/:\s]+)", text)))
