"""The README's examples are run as they stand there, in a folder that holds what they name."""
import pathlib
import re
import subprocess

from carrel import PROGRAM, stop_daemon
from patience import PATIENCE

README = pathlib.Path(__file__).parents[2] / "README.md"
SCRIPT = "#!/bin/sh\necho done > result\n"
FILES = {
    "fix-it": SCRIPT,
    "notes.txt": "remember\n",
    "Makefile": "all:\n\t@echo built\n",
}


def examples():
    text = README.read_text().split("## What it looks like")[1].split("## Threat model")[0]
    return [re.split(r"\s{2,}", line)[0] for line in text.splitlines() if line.startswith("carrel ")]


def test_every_example_works(carrel, limits, tmp_path):
    limits("memory")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "examples").symlink_to(README.parent / "examples")
    lines = examples()
    assert len(lines) >= 16
    for line in lines:
        done = subprocess.run(["sh", "-c", line.replace("carrel ", f"{PROGRAM} ", 1)], cwd=tmp_path,
                              env=carrel.env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60 * PATIENCE)
        assert done.returncode == 0, (line, done.stderr)
        if line.startswith("carrel fork"):
            best = re.search(rb"^(m-\w+).*best$", done.stdout, re.M)
            assert carrel("rm", best[1].decode()).returncode == 0
        kept = re.search(rb"kept as (m-\w+)", done.stderr)
        if kept:
            assert carrel("rm", kept[1].decode()).returncode == 0
    assert not (tmp_path / "result").exists(), "a copy was lent, and nobody approved copying back"
    stop_daemon(carrel.run_dir)  # it would start a spawner again that a later test kills
