"""Templates built by the real SDK of E2B from npm: its builder, its builds, and tags."""
import json
import os
import re
import shutil
import subprocess

import pytest

import patience
from base_image import lend_base
from test_npm import HERE, project  # noqa: F401

NAMES = re.findall(r"^  async (\w+)\(\)", (HERE / "templates.mjs").read_text(), re.M)


@pytest.fixture(scope="module")
def results(project, server, e2b, tmp_path_factory):  # noqa: F811
    where, node = project
    lend_base(server, tmp_path_factory.mktemp("base"))
    url = e2b.url.geturl()
    env = {**os.environ, "E2B_API_KEY": e2b.key, "E2B_API_URL": url, "E2B_SANDBOX_URL": url}
    shutil.copy(HERE / "templates.mjs", where)
    try:
        done = subprocess.run([node, "templates.mjs"], cwd=where, env=env, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=150 * patience.PATIENCE)
        out, errors = done.stdout, done.stderr
    except subprocess.TimeoutExpired as e:
        out, errors = (e.stdout or b"").decode(), "it did not end in time"
    yield {line["name"]: line["error"] for line in map(json.loads, filter(lambda l: l[:1] == "{", out.splitlines()))}, errors
    server.clear()


@pytest.mark.parametrize("name", NAMES)
def test_templates_by_the_sdk(results, name):
    told, errors = results
    assert name in told, errors
    assert told[name] is None, told[name]
