"""The real SDK of E2B from npm, against a real daemon: it must not notice that this is another server."""
import json
import os
import pathlib
import re
import subprocess

import pytest

import npm_project
import patience

HERE = pathlib.Path(__file__).resolve().parent / "npm"
PROGRAMS = ("cases.mjs", "code.mjs", "methods.mjs")
NAMES = [(p, name) for p in PROGRAMS for name in re.findall(r"^  async (\w+)\(s?\)", (HERE / p).read_text(), re.M)]


@pytest.fixture(scope="module")
def project():
    try:
        return npm_project.project(*(HERE / name for name in PROGRAMS))
    except npm_project.Missing as why:
        pytest.skip(str(why))


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
