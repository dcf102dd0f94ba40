"""docs/reference/files-and-places.md: the program keeps its files where the page says."""
import os
import re
import subprocess

import pytest
from carrel import PROGRAM, ROOTLESS, TOP
from patience import PATIENCE

PLACES = (TOP / "docs/reference/files-and-places.md").read_text()


def rows(page, heading):
    """Rows of the table whose first heading is this, as lists of cells."""
    table = re.search(rf"^\| {heading} \|.*\n\|---.*\n((?:\|.*\n)+)", page, re.M)[1]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()]


def section(heading):
    return re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PLACES, re.M | re.S)[1]


def names(heading):
    return {name for row in rows(section(heading), "name") for name in re.findall(r"`([^`]+)`", row[0])}


def test_run_directory_and_store_hold_what_the_page_lists(carrel):
    assert carrel("new", "--name", "places").returncode == 0
    run, store = set(os.listdir(carrel.run_dir)), set(os.listdir(carrel.home))
    assert carrel("rm", "places").returncode == 0
    assert run <= names("Run directory") and store <= names("Store"), (run, store)
    assert {"carrel.sock", "carrel.pid", "carrel.log", "daemon.lock", "spawn.sock", "boxes"} <= run
    assert {"carrel.db", "carrel.lock", "journal", "images"} <= store


# What a place of root's lies below.
HIDE = {"run directory": "/run", "store": "/var/lib", "settings": "/etc"}


def defaults():
    """Each place of the first table with each variable that it may come from: (what, variable or None, path)."""
    for what, root, user, _ in rows(PLACES, "what"):
        for place in re.findall(r"`([^`]+)`", user if ROOTLESS else root):
            variable, path = re.fullmatch(r"(?:\$(\w+))?(.*)", place).groups()
            yield what, variable, path


def serve(what, variable, path, tmp_path):
    """`carrel serve` where the place cannot be used: its error names the place. As root in a mount namespace of its own,
    because these are places of the host."""
    if variable:
        place = str(tmp_path / "xdg") + path
    else:
        place = path.replace("~", str(tmp_path)).replace("UID", str(os.getuid()))
    runtime = f"/run/user/{os.getuid()}"
    if ROOTLESS and os.path.exists(place):
        pytest.skip(f"{place} is in use")
    if ROOTLESS and path.startswith("/run/") and not os.path.isdir(runtime):
        pytest.skip(f"this user has no {runtime}")
    if ROOTLESS and path.startswith("/tmp/") and os.path.isdir(runtime):
        pytest.skip(f"{runtime} exists, and comes first")
    make = f"mkdir -p {place} && chmod 777 {place}"
    if what == "settings":
        make = f"mkdir -p {os.path.dirname(place)} && echo nonsense >{place}"
    others = {"CARREL_RUN": tmp_path / "run", "CARREL_HOME": tmp_path / "home"}
    others.pop({"run directory": "CARREL_RUN", "store": "CARREL_HOME"}.get(what), None)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **{name: str(path) for name, path in others.items()},
           **({variable: str(tmp_path / "xdg")} if variable else {})}
    if "ASAN_OPTIONS" in os.environ:
        env["ASAN_OPTIONS"] = os.environ["ASAN_OPTIONS"]
    words = ["sh", "-ec", f"{make}; exec {PROGRAM} serve"]
    if not ROOTLESS:
        words = ["unshare", "--mount", "sh", "-ec", f"mount -t tmpfs none {HIDE[what]}; {make}; exec {PROGRAM} serve"]
    done = subprocess.run(words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=60 * PATIENCE)
    if what == "run directory" and ROOTLESS and not variable:
        os.rmdir(place)
    return place, done


@pytest.mark.parametrize("what,variable,path", defaults(), ids=lambda value: str(value).replace("/", "-"))
def test_the_program_uses_the_place_that_the_page_names(what, variable, path, tmp_path):
    place, done = serve(what, variable, path, tmp_path)
    assert done.returncode != 0, done
    assert f" '{place}' " in done.stderr or f" {place}: " in done.stderr, (place, done)
