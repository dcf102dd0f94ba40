"""The packages of the SDKs: the same bytes each time, complete, and usable without a network."""
import hashlib
import os
import subprocess

import pytest

from conftest import EPOCH, TOP


def pack(out, *options, epoch=EPOCH):
    env = {**os.environ, "SOURCE_DATE_EPOCH": epoch}
    done = subprocess.run([TOP / "sdk/pack", *options, out], env=env, check=True, stdout=subprocess.PIPE)
    return [line for line in done.stdout.decode().splitlines()]


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def test_the_wheel_is_reproducible(tmp_path):
    (a,), (b,) = pack(tmp_path / "a", "--python"), pack(tmp_path / "b", "--python")
    (c,) = pack(tmp_path / "c", "--python", epoch="1800000000")
    assert digest(a) == digest(b) != digest(c)


def test_pip_installs_the_wheel_without_a_network(tmp_path):
    if subprocess.run(["/usr/bin/python3", "-m", "pip", "--version"], capture_output=True).returncode:
        pytest.skip("pip is not installed")
    (wheel,) = pack(tmp_path, "--python")
    install = ["/usr/bin/python3", "-m", "pip", "install", "--no-index", "--no-deps", "--quiet", "--target", tmp_path / "site", wheel]
    subprocess.run(install, check=True, capture_output=True)
    code = "import carrel; print(carrel.Machine.__name__, carrel.__file__)"
    done = subprocess.run(["/usr/bin/python3", "-c", code], env={"PYTHONPATH": str(tmp_path / "site")}, check=True, stdout=subprocess.PIPE)
    name, where = done.stdout.decode().split()
    assert name == "Machine" and where.startswith(str(tmp_path / "site"))
    assert (tmp_path / "site/carrel/py.typed").exists()


def test_the_npm_package_is_reproducible(npm_tarball, tmp_path):
    (again,) = pack(tmp_path, "--typescript")
    assert digest(npm_tarball) == digest(again)
