"""The TypeScript SDK as its npm package, in the node of this host, against a real daemon."""
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


def run(project, name, env, node="node"):
    done = subprocess.run([node, "cases.mjs", name], cwd=project, env={**os.environ, **env}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=100 * PATIENCE)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("place", ["unix", "tcp"])
@pytest.mark.parametrize("name", [n for n in NAMES if n not in ALONE])
def test_what_works_over(project, name, place, request):
    run(project, name, request.getfixturevalue(place))


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ALONE])
def test_what_works_in_versions_of_node(project, node, name, unix):
    run(project, name, unix, node)


def test_a_browser_needs_only_fetch(project, tcp):
    run(project, "fetch", tcp)


def test_a_directory_ships(project, unix, daemon, tmp_path):
    env = {**unix, "CARREL_PROGRAM": str(BUILD / "carrel"), "CARREL_HOME": str(daemon.home), "TEST_TARGET": str(tmp_path)}
    run(project, "ship", env)
    assert (tmp_path / "note").read_text() == "shipped"


@pytest.mark.parametrize("decision", ["approve", "deny"])
def test_requests_wait_for_a_decision(project, unix, daemon, decision):
    m = daemon.machine()
    daemon.held(m)
    run(project, "approvals", {**unix, "TEST_MACHINE": m, "TEST_DECISION": decision})


def test_a_command_is_awaited_across_a_restart(project, unix, daemon):
    with subprocess.Popen(["node", "cases.mjs", "restart"], cwd=project, env={**os.environ, **unix}, stdin=subprocess.PIPE,
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


def readme_examples_work(project, daemon, node):
    blocks = re.findall(r"^```js\n(.*?)^```", (TOP / "sdk/typescript/README.md").read_text(), re.M | re.S)
    printed = []
    for i, block in enumerate(blocks):
        (project / f"example{i}.mjs").write_text(block)
        env = {**os.environ, "CARREL_RUN": str(daemon.run_dir)}
        done = subprocess.run([node, f"example{i}.mjs"], cwd=project, env=env, check=True, stdout=subprocess.PIPE, text=True, timeout=100 * PATIENCE)
        printed.append(done.stdout)
    assert printed == ["hello from /home/user/hello.py\n\ntrue\n", "1\n2\n3\n", "3 true\n"]


def test_the_examples_of_the_readme_work(project, daemon):
    readme_examples_work(project, daemon, "node")


def test_the_examples_of_the_readme_work_in_versions_of_node(project, daemon, node):
    readme_examples_work(project, daemon, node)
