"""The harness that compares random modules: it notices a difference, and goes on after an interruption."""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

TESTS = pathlib.Path(__file__).resolve().parents[1]
RUNNER = pathlib.Path(os.environ.get("CARREL_BUILD", TESTS.parent / "build")) / "tests/diff/diff-run"


@pytest.fixture
def runner(tmp_path):
    """A runner that writes down how often it was started, and spoils one line of one module if it runs it in slices."""
    path = tmp_path / "runner"
    path.write_text(f"""#!/bin/sh
echo "$@" >>{tmp_path}/starts
if [ "$1" = --cut ] && [ -e {tmp_path}/spoil ]; then
    {RUNNER} "$@" | sed '/^module 7$/,/^= fuel/s/^= fuel .*/= fuel 1/'
else
    exec {RUNNER} "$@"
fi
""")
    path.chmod(0o755)
    return path


def compare(runner, *options):
    command = [sys.executable, TESTS / "diff/diff.py", "cut", runner, "--maker", "30", *options]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True)


def test_a_module_that_differs_is_named(runner, tmp_path):
    assert compare(runner, "--seeds", "1:20").stdout == "cut: 19 modules, 0 differ\n"
    (tmp_path / "spoil").touch()
    done = compare(runner, "--seeds", "1:20")
    assert done.returncode == 1
    assert "seed 7: cut: line" in done.stdout and "there '= fuel 1'" in done.stdout
    assert done.stdout.endswith("cut: 19 modules, 1 differ\n")


def test_an_interrupted_run_goes_on_where_it_ended(runner, tmp_path):
    state, options = tmp_path / "state", ["--seeds", "1:401", "--state", tmp_path / "state"]
    (tmp_path / "spoil").touch()
    keep = tmp_path / "keep"
    # The state as it was before the second and last batch ended: the runner keeps a copy.
    text = runner.read_text()
    runner.write_text(text.replace("#!/bin/sh\n", f"#!/bin/sh\n[ -e {state} ] && cp {state} {keep}\n"))
    first = compare(runner, *options)
    assert first.stdout.endswith("cut: 400 modules, 1 differ\n")
    assert not state.exists(), "a finished run leaves no state"
    (tmp_path / "starts").unlink()
    shutil.copy(keep, state)
    with state.open("a") as f:
        f.write("[201, [")  # the line that was being written
    again = compare(runner, *options)
    assert "seed 7: cut:" in again.stdout and "200 modules ran before" in again.stdout
    assert again.stdout.endswith("cut: 400 modules, 1 differ\n")
    assert (tmp_path / "starts").read_text() == "\n--cut\n", "only the second batch runs"


def test_another_runner_starts_from_the_beginning(runner, tmp_path):
    state = tmp_path / "state"
    state.write_text('["cut", "30", 1, 20, 200, [], "another digest"]\n[1, []]\n')
    done = compare(runner, "--seeds", "1:20", "--state", state)
    assert "ran before" not in done.stdout
    assert done.stdout.endswith("cut: 19 modules, 0 differ\n")
