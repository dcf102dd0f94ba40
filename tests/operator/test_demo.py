"""`make demo` tells the whole story, and checks every step that it shows."""
import subprocess
import time

import pytest

from carrel import BUILD, TOP
from patience import PATIENCE

KEY = "key-of-the-demo"


def mission(daemon, **env):
    begun = time.monotonic()
    done = subprocess.run([TOP / "scripts/mission", BUILD], env={**daemon.env, **env}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=150)
    assert done.returncode == 0 and "To look further" in done.stdout and "FAILED:" not in done.stdout, done.stdout
    assert "rewind      before-the-fix" in done.stdout and "complete: every hash" in done.stdout
    assert time.monotonic() - begun < 60 * PATIENCE
    return done.stdout


def test_the_mission(daemon):
    assert "The model is a rehearsal" in mission(daemon)


@pytest.fixture
def model():
    """The same turns over the wire, from a server that wants a key."""
    server = subprocess.Popen([BUILD / "tests/model/rehearsal-server", TOP / "examples/mission.json", KEY], stdout=subprocess.PIPE, text=True)
    yield f"http://127.0.0.1:{int(server.stdout.readline())}"
    server.terminate()
    assert server.wait(20) == 0
    server.stdout.close()


def test_the_mission_with_a_model_over_the_wire(daemon, model):
    """make demo MODEL=PROVIDER/NAME, with a key and a base URL in the environment."""
    out = mission(daemon, MODEL="openai/mission", OPENAI_API_KEY=KEY, OPENAI_BASE_URL=f"{model}/v1")
    assert "model openai/mission" in out and "The model is a rehearsal" not in out and KEY not in out
