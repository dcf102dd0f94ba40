"""The vendors' own clients against our server side: what it writes is what they accept."""
import json
import os
import shutil
import subprocess

import pytest

from conftest import HERE, KEY, TOP

FORMATS = ["anthropic", "chat", "responses"]
STORY = [
    {"turn": 0, "say": "I look. é ✓", "calls": [{"tool": "exec", "arguments": {"cmd": "ls"}}, {"tool": "exec", "arguments": {"cmd": "id"}}],
     "usage": {"in": 10, "out": 33}},
    {"turn": 1, "after": "ran exec", "calls": [{"tool": "exec", "arguments": {}}], "usage": {"in": 10, "out": 44}},
    {"turn": 2, "say": "Done.", "usage": {"in": 10, "out": 55}},
]


@pytest.fixture(scope="module")
def packages():
    """Both clients below the build folder, fetched once; never a part of the project."""
    where = HERE / "npm"
    if not shutil.which("npm") or not shutil.which("node"):
        pytest.skip("npm and node are not installed")
    if not (where / "node_modules/openai").is_dir() or not (where / "node_modules/@anthropic-ai/sdk").is_dir():
        where.mkdir(parents=True, exist_ok=True)
        (where / "package.json").write_text('{"private": true}\n')
        try:
            got = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--fetch-retries=1", "--fetch-timeout=20000",
                                  "openai@6", "@anthropic-ai/sdk"], cwd=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 timeout=90, text=True)
        except subprocess.TimeoutExpired:
            pytest.skip("npm did not answer within 90 s")
        if got.returncode:
            pytest.skip("npm could not fetch openai and @anthropic-ai/sdk: " + got.stdout.strip().splitlines()[-1][:200])
    shutil.copy(TOP / "tests/model/sdk.mjs", where / "sdk.mjs")
    return where


def converse(packages, form, port, key=KEY):
    run = subprocess.run(["node", packages / "sdk.mjs", form, f"http://127.0.0.1:{port}"], env=dict(os.environ, KEY=key), timeout=60,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize("form", FORMATS)
def test_a_conversation_streamed_and_whole(serve, packages, form):
    seen = converse(packages, form, serve(STORY))
    assert "error" not in seen, seen
    assert [t["text"] for t in seen["turns"]] == ["I look. é ✓", "", "Done."]
    assert [t["calls"] for t in seen["turns"]] == [[["exec", {"cmd": "ls"}], ["exec", {"cmd": "id"}]], [["exec", {}]], []]
    assert [t["out"] for t in seen["turns"]] == [33, 44, 55]
    stops = {"anthropic": ["tool_use", "tool_use", "end_turn"], "chat": ["tool_calls", "tool_calls", "stop"], "responses": ["completed"] * 3}
    assert [t["stop"] for t in seen["turns"]] == stops[form]


@pytest.mark.parametrize("form", FORMATS)
def test_refusals_are_understood_and_tried_again(serve, packages, form):
    turns = [dict(STORY[0], fault={"kind": "status", "status": 429, "retry_after_ms": 20, "times": 2}), *STORY[1:]]
    seen = converse(packages, form, serve(turns))
    assert "error" not in seen and len(seen["turns"]) == 3, seen


@pytest.mark.parametrize("form", FORMATS)
def test_errors_are_the_clients_own(serve, packages, form):
    seen = converse(packages, form, serve(STORY), key="another")
    assert seen["error"]["status"] == 401 and seen["error"]["name"] == "AuthenticationError", seen
    seen = converse(packages, form, serve([{"turn": 7, "say": "x"}]))
    assert seen["error"]["status"] == 400 and "no turn 0 after" in seen["error"]["message"], seen


@pytest.mark.parametrize("form", FORMATS)
def test_an_error_in_the_stream_reaches_them(serve, packages, form):
    seen = converse(packages, form, serve([{"turn": 0, "say": "x" * 400, "fault": {"kind": "error", "times": 9}}]))
    assert "overloaded" in seen["error"]["message"], seen
