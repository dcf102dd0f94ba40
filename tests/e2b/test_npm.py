"""The real SDK of E2B from npm, against a real daemon: it must not notice that this is another server."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from carrel import BUILD
import patience

HERE = pathlib.Path(__file__).resolve().parent / "npm"
NAMES = re.findall(r"^  async (\w+)\(s\)", (HERE / "cases.mjs").read_text(), re.M)
OLDEST = (20, 18)  # what the SDK needs of node


def node_version():
    said = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout
    return tuple(int(n) for n in re.findall(r"\d+", said)[:2])


@pytest.fixture(scope="module")
def project():
    """The packages of the lock file below the build folder, fetched once; and a node that is new enough."""
    if not shutil.which("npm") or not shutil.which("node"):
        pytest.skip("npm and node are not installed")
    where, is_new = BUILD / "tests/e2b-npm", node_version() >= OLDEST
    where.mkdir(parents=True, exist_ok=True)
    lock, installed = HERE / "package-lock.json", where / "installed.json"
    if not installed.exists() or installed.read_bytes() != lock.read_bytes():
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, where)
        command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=1", "--fetch-timeout=20000"]
        try:
            got = subprocess.run(command + (["--omit=optional"] if is_new else []), cwd=where, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, timeout=120, text=True)
        except subprocess.TimeoutExpired:
            pytest.skip("npm did not answer within 120 s")
        if got.returncode:
            pytest.skip("npm could not fetch e2b: " + got.stdout.strip().splitlines()[-1][:200])
        shutil.copy(lock, installed)
    shutil.copy(HERE / "cases.mjs", where)
    fetched = list(where.glob("node_modules/node-linux-*/bin/node"))
    if not is_new and not fetched:
        pytest.skip("there is no node from npm for this processor")
    return where, "node" if is_new else str(fetched[0])


@pytest.fixture(scope="module")
def results(project, server, e2b):
    where, node = project
    url = e2b.url.geturl()
    env = {**os.environ, "E2B_API_KEY": e2b.key, "E2B_API_URL": url, "E2B_SANDBOX_URL": url}
    try:
        done = subprocess.run([node, "cases.mjs"], cwd=where, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=100 * patience.PATIENCE)
        out, errors = done.stdout, done.stderr
    except subprocess.TimeoutExpired as e:
        out, errors = (e.stdout or b"").decode(), "it did not end in time"
    yield {line["name"]: line["error"] for line in map(json.loads, out.splitlines())}, errors
    server.clear()


@pytest.mark.parametrize("name", NAMES)
def test_sdk_from_npm(results, name):
    told, errors = results
    assert name in told, errors
    assert told[name] is None, told[name]
