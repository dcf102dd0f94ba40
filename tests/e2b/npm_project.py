"""The packages of E2B from npm, fetched once below the build folder, and a node that is new enough for them."""
import fcntl
import pathlib
import re
import shutil
import subprocess

from carrel import BUILD

HERE = pathlib.Path(__file__).resolve().parent / "npm"
OLDEST = (20, 18)  # what the SDK needs of node


class Missing(Exception):
    """Why there are no packages."""


def node_version():
    said = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout
    return tuple(int(n) for n in re.findall(r"\d+", said)[:2])


def is_fetched(where):
    installed = where / "installed.json"
    return installed.exists() and installed.read_bytes() == (HERE / "package-lock.json").read_bytes()


def fetch(where, is_new):
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, where)
    command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=1", "--fetch-timeout=20000"]
    try:
        got = subprocess.run(command + (["--omit=optional"] if is_new else []), cwd=where, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, timeout=120, text=True)
    except subprocess.TimeoutExpired:
        raise Missing("npm did not answer within 120 s") from None
    if got.returncode:
        raise Missing("npm could not fetch e2b: " + got.stdout.strip().splitlines()[-1][:200])
    shutil.copy(HERE / "package-lock.json", where / "installed.json")


def project(*programs):
    """The folder of the packages with these programs in it, and the node that runs them."""
    if not shutil.which("npm") or not shutil.which("node"):
        raise Missing("npm and node are not installed")
    where, is_new = BUILD / "tests/e2b-npm", node_version() >= OLDEST
    if not is_fetched(where):
        try:
            where.mkdir(parents=True, exist_ok=True)
            with open(where / "suite.lock", "a") as other_suites:
                fcntl.flock(other_suites, fcntl.LOCK_EX)
                if not is_fetched(where):
                    fetch(where, is_new)
        except PermissionError as why:
            raise Missing(f"the packages of E2B are not there yet, and this user cannot put them there ({why})") from None
    for program in programs:
        shutil.copy(program, where)
    fetched = list(where.glob("node_modules/node-linux-*/bin/node"))
    if not is_new and not fetched:
        raise Missing("there is no node from npm for this processor")
    return where, "node" if is_new else str(fetched[0])
