"""The examples of examples/agents, with the real packages of npm, a scripted model and a real machine."""
import os
import shutil
import subprocess
import sys

import pytest

from conftest import PATIENCE, TOP, npm_packages

sys.path.insert(0, str(TOP / "tests/agent"))

from model import KEY, Model  # noqa: E402

HERE = TOP / "tests/sdk"
# Each with the folder of its packages, and the name that the model sees of its tool.
EXAMPLES = {"langchain": ("agents", "shell"), "openai-agents": ("agents", "shell"), "claude-agent": ("claude", "mcp__computer__shell")}


@pytest.fixture
def model(request):
    m = Model("echo from the machine >note; cat note", shells=(request.param,))
    m.last = "The note is written."
    yield m
    m.end()


def work(example, packages, model, npm_package, daemon, home, node):
    """The lines that the example prints; its machine is gone."""
    where = npm_packages(HERE / packages)
    shutil.rmtree(where / "node_modules/carrel", ignore_errors=True)
    shutil.copytree(npm_package, where / "node_modules/carrel")
    shutil.copy(TOP / f"examples/agents/{example}.mjs", where)
    base = f"http://127.0.0.1:{model.port}"
    env = {"PATH": f"{os.path.dirname(node)}:{os.environ['PATH']}", "HOME": str(home), "CARREL_RUN": str(daemon.run_dir), "MODEL": "a-model",
           "OPENAI_BASE_URL": base + "/v1", "OPENAI_API_KEY": KEY, "ANTHROPIC_BASE_URL": base, "ANTHROPIC_API_KEY": KEY,
           "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    done = subprocess.run([node, f"{example}.mjs", "Write a note."], cwd=where, env=env, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=240 * PATIENCE)
    assert done.returncode == 0, done.stderr[-2000:]
    assert daemon.machines() == []
    return done.stdout.splitlines()


@pytest.mark.parametrize("example, packages, model", [(name, *row) for name, row in EXAMPLES.items()], indirect=["model"], ids=EXAMPLES)
def test_an_agent_works_in_its_machine(example, packages, model, npm_package, daemon, tmp_path, node):
    lines = work(example, packages, model, npm_package, daemon, tmp_path, node)
    assert lines == ["The note is written.", "added home/user/note"]
    assert any("from the machine" in str(r.body) and "exit status 0" in str(r.body) for r in model.requests)


@pytest.mark.parametrize("model", ["shell"], indirect=True)
def test_an_agent_takes_a_command_back(model, npm_package, daemon, tmp_path):
    """The model calls `shell`, and with the result of that `undo`."""
    model.commands.append("no argument of undo")
    answer = model.responses

    def responses(request):
        model.shells = ("undo",) if "exit status" in str(request.body) else ("shell",)
        return answer(request)

    model.responses = responses
    assert work("openai-agents", "agents", model, npm_package, daemon, tmp_path, shutil.which("node")) == ["The note is written."]
    assert "as they were" in str(model.requests[-1].body)
