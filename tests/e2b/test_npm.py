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
PROGRAMS = ("cases.mjs", "code.mjs")
NAMES = [(p, name) for p in PROGRAMS for name in re.findall(r"^  async (\w+)\(s\)", (HERE / p).read_text(), re.M)]
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
    for name in PROGRAMS:
        shutil.copy(HERE / name, where)
    fetched = list(where.glob("node_modules/node-linux-*/bin/node"))
    if not is_new and not fetched:
        pytest.skip("there is no node from npm for this processor")
    return where, "node" if is_new else str(fetched[0])


def run_program(node, where, program, env):
    try:
        done = subprocess.run([node, program], cwd=where, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=100 * patience.PATIENCE)
        return done.stdout, done.stderr
    except subprocess.TimeoutExpired as e:
        return (e.stdout or b"").decode(), "it did not end in time"


@pytest.fixture(scope="module")
def results(project, server, e2b):
    """What a program said of its cases; each program runs once."""
    where, node = project
    url = e2b.url.geturl()
    env = {**os.environ, "E2B_API_KEY": e2b.key, "E2B_API_URL": url, "E2B_SANDBOX_URL": url}
    said = {}

    def of(program):
        if program not in said:
            out, errors = run_program(node, where, program, env)
            said[program] = {line["name"]: line for line in map(json.loads, out.splitlines())}, errors
        return said[program]

    yield of
    server.clear()


@pytest.mark.parametrize("program,name", NAMES)
def test_sdk_from_npm(results, program, name):
    told, errors = results(program)
    assert name in told, errors
    assert told[name]["error"] is None, told[name]["error"]
    if told[name].get("skipped"):
        pytest.skip(told[name]["skipped"])
