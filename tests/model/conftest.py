"""A rehearsal that speaks HTTP, and our client against it: real sockets, real codecs."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests"))

import patience  # noqa: E402

BUILD = pathlib.Path(os.environ.get("CARREL_BUILD") or TOP / "build")
HERE = BUILD / "tests/model"
KEY = "key-of-the-rehearsal"
# Our names of the three formats' providers.
MODELS = ["anthropic/m", "openai/m", "openai-responses/m"]


time_limit = patience.time_limit(120)


def environment(port, key=KEY, scheme="http"):
    env = {k: v for k, v in os.environ.items() if "_API_KEY" not in k and "proxy" not in k.lower()}
    base = f"{scheme}://127.0.0.1:{port}"
    env.update(ANTHROPIC_BASE_URL=base, OPENAI_BASE_URL=base + "/v1")
    if key:
        env.update(ANTHROPIC_API_KEY=key, OPENAI_API_KEY=key)
    return env


@pytest.fixture
def serve(tmp_path):
    """serve([turns]) starts a server and gives its port."""
    started = []

    def start(turns, key=KEY):
        script = tmp_path / f"script{len(started)}.json"
        script.write_text(json.dumps({"turns": turns}))
        server = subprocess.Popen([HERE / "rehearsal-server", script, key], stdout=subprocess.PIPE, text=True)
        started.append(server)
        return int(server.stdout.readline())

    yield start
    for server in started:
        server.terminate()
        assert server.wait(20) == 0
        server.stdout.close()


def ask(model, port, key=KEY, env=None, scheme="http", **settings):
    """All lines that our client prints."""
    args = [f"{k}={v}" for k, v in settings.items()]
    run = subprocess.run([HERE / "model-ask", model, *args], env=env or environment(port, key, scheme), timeout=60,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert run.returncode in (0, 2, 3), run.stderr
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    assert key is None or key not in run.stdout + run.stderr, "a key was printed"
    return lines
