"""The release tarball, and the version that packages are built with."""
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import tarfile

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
VERSION = re.search(r"version: '([^']+)'", (TOP / "meson.build").read_text())[1]


def test_the_changelog_of_the_package_begins_with_our_version():
    assert (TOP / "packaging/debian/changelog").read_text().startswith(f"carrel ({VERSION}-")


def test_a_release_is_complete_and_reproducible(tmp_path):
    if not (TOP / ".git").exists():
        pytest.skip("this tree is not a git repository")
    hashes = set()
    for name in "ab":
        subprocess.run([TOP / "scripts/dist", tmp_path / name], check=True, capture_output=True)
        archive = tmp_path / name / f"carrel-{VERSION}.tar.gz"
        hashes.add(hashlib.sha256(archive.read_bytes()).hexdigest())
    assert len(hashes) == 1
    names = set(tarfile.open(archive).getnames())
    for path in ("meson.build", "LICENSE", "src/carrel.c", "packaging/debian/rules", "scripts/deb"):
        assert f"carrel-{VERSION}/{path}" in names


def test_a_package_for_a_processor_that_we_do_not_know_is_refused(tmp_path):
    if not shutil.which("dpkg"):
        pytest.skip("dpkg is not installed")
    done = subprocess.run([TOP / "scripts/deb", tmp_path], env={**os.environ, "DEB_ARCH": "riscv64"}, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "DEB_ARCH=riscv64: a host of the architecture" in done.stderr
