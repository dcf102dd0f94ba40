"""The image of the host, built once by the first store of a test program and handed on to its next ones.

A spawner copies thousands of small files into a new store, which takes seconds, and tests make stores
by the dozen. Nobody ever writes to an image, so the next store may have the last one's.
"""
import atexit
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

ROOTLESS = os.geteuid() != 0
PART = re.compile(r"(host|usr)-[0-9a-f]{16}")
spares = {}  # filesystem -> a directory that holds one, or is empty


def as_owner(*words):
    """Rootless, the store holds files of subordinate ids: only their own namespace may move or remove them."""
    subprocess.run(["unshare", "--map-auto", "--map-root-user", *map(str, words)] if ROOTLESS else words, check=True)


def remove(path):
    if ROOTLESS:
        as_owner("rm", "-rf", path)
    else:
        shutil.rmtree(path)


def parts(place):
    return [p for p in place.iterdir() if PART.fullmatch(p.name)] if place.exists() else []


def move(found, target):
    if found and ROOTLESS:
        as_owner("mv", "-t", target, *found)
    for part in () if ROOTLESS else found:
        part.rename(target / part.name)


def spare(home):
    """Where one is kept, on the filesystem of a store that lies two directories below its place."""
    place = home.parent.parent
    device = place.stat().st_dev
    if device not in spares:
        spares[device] = pathlib.Path(tempfile.mkdtemp(prefix="carrel-image-", dir=place))
        atexit.register(remove, spares[device])
    return spares[device]


def lend(home):
    """To a store that is about to be made."""
    found = parts(spare(home))
    if found:
        (home / "images").mkdir(mode=0o700, parents=True, exist_ok=True)
        home.chmod(0o700)
        move(found, home / "images")


def take_back(home):
    if not parts(spare(home)):
        move(parts(home / "images"), spare(home))
