"""docs/reference/operator.md: its commands work, and its tables name what there is."""
import json
import re
import shlex
import subprocess

import pytest

import pages
from carrel import PROGRAM, TOP
from runs import Runs, call, finish, run, to_the_end, turns

PAGE = (TOP / "docs/reference/operator.md").read_text()
LINES = [line for b in pages.blocks(TOP / "docs/reference/operator.md", "sh") for line in b.text.splitlines()]

# What a model does in each mode; without one, as it likes.
SCRIPTS = {"plan-then-execute": turns([call("freeze", calls=[run("uname -r")])], [run("uname -r")], [finish()]),
           "action-selector": turns([call("exec", argv=["pgrep", "-l", "web"])], [finish()])}


def do(daemon, words, **kw):
    return subprocess.run([PROGRAM, *words], env=daemon.env, cwd=TOP, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=60, **kw)


@pytest.mark.parametrize("line", LINES)
def test_a_command_works(daemon, tmp_path, line):
    runs = Runs(daemon)
    words = shlex.split(line.replace("project:", "examples/project:").replace('"make test"', "true"), comments=True)[1:]
    script = tmp_path / "script.json"
    if words[-1].endswith("."):
        daemon.machine(name="work")
        if "--script" not in words:  # a model of no key
            mode = words[words.index("--mode") + 1] if "--mode" in words else None
            script.write_text(json.dumps({"turns": SCRIPTS.get(mode, to_the_end([run("uname -r")]))}))
            words[1:1] = ["--provider", "rehearsal", "--script", str(script), "--model", "cheap"]
    if words[-1] == "RUN":
        words[-1] = runs.start(turns([run("sleep 1")], {"turn": 99}))["id"]
    done = do(daemon, words)
    assert done.returncode in ((0, 2) if "--resume" in words else (0,)), (words, done)
    if "--tries" in words:
        assert "The best is try" in done.stdout
    elif "--script" in words:
        assert "\ndone\n" in done.stdout and "Evidence:" in done.stdout


def test_there_are_enough_of_them():
    assert len(LINES) >= 7


def table(title):
    rows = re.search(rf"^\| {title} \|.*?\n\|---.*?\n(.*?)\n\n", PAGE, re.M | re.S)[1]
    return {name for row in rows.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}


def test_the_tables_name_what_there_is():
    source = (TOP / "src/operator/event.c").read_text()
    kinds = set(re.findall(r'"(\w+)"', re.search(r"kind_names\[\] = \{(.*?)\};", source, re.S)[1]))
    assert table("event") == kinds
    statuses = set(re.findall(r'end\(l, "(\w+)"', (TOP / "src/operator/next.c").read_text()))
    assert statuses | {"done", "blocked", "budget", "stuck", "cancelled"} == table("status")
