"""The TypeScript SDK as its npm package, in the node of this host and in others, against a real daemon."""
import os
import re
import shutil
import subprocess

import pytest

from conftest import BUILD, PATIENCE, TOP

HERE = TOP / "tests/sdk/typescript"
NAMES = re.findall(r"^  async (\w+)\(", (HERE / "cases.mjs").read_text(), re.M)
ALONE = {"approvals", "ship", "restart", "fetch"}  # have a test of their own


@pytest.fixture(scope="session")
def project(npm_package, tmp_path_factory):
    """A project that has the package installed."""
    where = tmp_path_factory.mktemp("project")
    shutil.copytree(npm_package, where / "node_modules/carrel")
    for name in "cases.mjs", "strict.ts":
        shutil.copy(HERE / name, where)
    return where


@pytest.fixture(scope="module")
def token(daemon_session):
    return daemon_session.post("/v1/tokens", {"note": "sdk", "scopes": ["read", "run", "admin"]})["secret"]


@pytest.fixture
def unix(daemon):
    return {"TEST_URL": f"unix:{daemon.socket}"}


@pytest.fixture
def tcp(daemon, token):
    return {"TEST_URL": f"http://127.0.0.1:{daemon.port}", "TEST_TOKEN": token}


@pytest.fixture
def place(request, node):
    """One version of node uses TCP, the others the unix socket."""
    return request.getfixturevalue("tcp" if "node18" in str(node) else "unix")


def run(project, name, env, node):
    env = {**os.environ, "TEST_SECONDS": str(2 * PATIENCE), **env}
    done = subprocess.run([node, "cases.mjs", name], cwd=project, env=env, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=100 * PATIENCE)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ALONE])
def test_what_works(project, node, name, place):
    run(project, name, place, node)


def test_a_browser_needs_only_fetch(project, node, tcp):
    run(project, "fetch", tcp, node)


def test_a_directory_ships(project, node, place, daemon, tmp_path):
    env = {**place, "CARREL_PROGRAM": str(BUILD / "carrel"), "CARREL_HOME": str(daemon.home), "TEST_TARGET": str(tmp_path)}
    run(project, "ship", env, node)
    assert (tmp_path / "note").read_text() == "shipped"


@pytest.mark.parametrize("decision", ["approve", "deny"])
def test_requests_wait_for_a_decision(project, node, place, daemon, decision):
    m = daemon.machine()
    daemon.held(m)
    run(project, "approvals", {**place, "TEST_MACHINE": m, "TEST_DECISION": decision}, node)


def test_a_command_is_awaited_across_a_restart(project, node, unix, daemon):
    with subprocess.Popen([node, "cases.mjs", "restart"], cwd=project, env={**os.environ, **unix}, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as p:
        try:
            assert p.stdout.readline() == "running\n"
            daemon.restart()
            _, err = p.communicate("restarted\n", timeout=100 * PATIENCE)
        finally:
            p.kill()
        assert p.returncode == 0, err


def test_the_types_refuse_mistakes(project):
    words = ["--noEmit", "--strict", "--target", "ES2022", "--module", "ES2022", "--moduleResolution", "node", "strict.ts"]
    done = subprocess.run(["tsc", *words], cwd=project, stdout=subprocess.PIPE, text=True, timeout=120 * PATIENCE)
    assert done.returncode == 0, done.stdout


def test_the_examples_of_the_readme_work(project, daemon, node):
    blocks = re.findall(r"^```js\n(.*?)^```", (TOP / "sdk/typescript/README.md").read_text(), re.M | re.S)
    printed = []
    for i, block in enumerate(blocks):
        (project / f"example{i}.mjs").write_text(block)
        env = {**os.environ, "CARREL_RUN": str(daemon.run_dir)}
        done = subprocess.run([node, f"example{i}.mjs"], cwd=project, env=env, check=True, stdout=subprocess.PIPE, text=True, timeout=100 * PATIENCE)
        printed.append(done.stdout)
    assert printed == ["hello from /home/user/hello.py\n\ntrue\n", "1\n2\n3\n", "true\nTimeoutError\n", "3 true\n"]
