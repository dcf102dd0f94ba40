import json
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


def npm_packages(source):
    """The packages that source/package-lock.json pins, fetched once below the build folder."""
    where = BUILD / "tests/sdk" / source.name
    lock = (source / "package-lock.json").read_bytes()
    if not shutil.which("npm") or not shutil.which("node"):
        pytest.skip("npm and node are not installed")
    done = where / "fetched"
    if not done.exists() or done.read_bytes() != lock:
        shutil.rmtree(where, ignore_errors=True)
        where.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(source / name, where)
        command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=1", "--fetch-timeout=20000"]
        try:
            got = subprocess.run(command, cwd=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=90, text=True)
        except subprocess.TimeoutExpired:
            pytest.skip("npm did not answer within 90 s")
        if got.returncode:
            pytest.skip("npm could not fetch the packages: " + got.stdout.strip().splitlines()[-1][:200])
        done.write_bytes(lock)
    for path in source.glob("*.mjs"):
        shutil.copy(path, where)
    return where


@pytest.fixture(scope="session")
def npm_package(tmp_path_factory):
    """The npm package of the TypeScript SDK, unpacked."""
    for program, package in ("tsc", "node-typescript"), ("node", "nodejs"):
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed (Debian: {package})")
    where = tmp_path_factory.mktemp("npm")
    done = subprocess.run([TOP / "sdk/pack", "--typescript", where], check=True, stdout=subprocess.PIPE, text=True)
    with tarfile.open(done.stdout.strip()) as tar:
        tar.extractall(where)
    return where / "package"


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
