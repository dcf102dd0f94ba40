import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "tests"), str(TOP / "tests/daemon")]

from carrel import BUILD  # noqa: E402
from daemon import Daemon  # noqa: E402
from patience import PATIENCE  # noqa: E402

OPENAPI = [BUILD / "tests/daemon/api-doc", "openapi"]


def openapi():
    """The document of this build; tests/daemon/test_openapi.py compares it with real answers."""
    return json.loads(subprocess.run(OPENAPI, stdout=subprocess.PIPE, check=True).stdout)


absent = []  # why npm fetched nothing: another try would wait as long


def npm_packages(source):
    """The packages that source/package-lock.json pins, fetched once below the build folder."""
    where = BUILD / "tests/sdk" / source.name
    lock = (source / "package-lock.json").read_bytes()
    if not shutil.which("npm") or not shutil.which("node"):
        pytest.skip("npm and node are not installed")
    done = where / "fetched"
    if not done.exists() or done.read_bytes() != lock:
        if absent:
            pytest.skip(absent[0])
        shutil.rmtree(where, ignore_errors=True)
        where.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(source / name, where)
        command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=1", "--fetch-timeout=20000"]
        try:
            got = subprocess.run(command, cwd=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=90, text=True)
        except subprocess.TimeoutExpired:
            absent.append("npm did not answer within 90 s")
            pytest.skip(absent[0])
        if got.returncode:
            absent.append("npm could not fetch the packages: " + got.stdout.strip().splitlines()[-1][:200])
            pytest.skip(absent[0])
        done.write_bytes(lock)
    for path in source.glob("*.mjs"):
        shutil.copy(path, where)
    return where


EPOCH = "1700000000"


@pytest.fixture(scope="session")
def npm_tarball(tmp_path_factory):
    """The npm package of the TypeScript SDK."""
    for program, package in ("tsc", "node-typescript"), ("node", "nodejs"):
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed (Debian: {package})")
    env = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH}
    words = [TOP / "sdk/pack", "--typescript", tmp_path_factory.mktemp("tarball")]
    return subprocess.run(words, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


@pytest.fixture(scope="session")
def npm_package(npm_tarball, tmp_path_factory):
    """The npm package, unpacked."""
    where = tmp_path_factory.mktemp("npm")
    with tarfile.open(npm_tarball) as tar:
        tar.extractall(where)
    return where / "package"


@pytest.fixture(scope="session", params=["host", "18", "22"])
def node(request):
    """The node of this host; and from npm the oldest version that the package is for, and a later one."""
    if request.param == "host":
        return shutil.which("node") or pytest.skip("node is not installed (Debian: nodejs)")
    cpu = {"x86_64": "x64", "aarch64": "arm64"}[os.uname().machine]
    path = npm_packages(TOP / "tests/sdk/node") / f"node_modules/node{request.param}-{cpu}/bin/node"
    assert subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout.startswith(f"v{request.param}.")
    return path


@pytest.fixture(scope="session")
def daemon_session():
    d = Daemon("--listen", "127.0.0.1:0")
    yield d
    d.stop()


@pytest.fixture
def daemon(daemon_session):
    """A daemon on its unix socket and on a port of TCP, without machines of other tests."""
    yield daemon_session
    daemon_session.clear()
