#!/usr/bin/python3
"""bench/agent/start.py BUILD [ROUNDS]: the second start of `carrel agent codex` to its first output, against the host.

Both run the same program on one task, with a scripted model on loopback. The bar is 1.5 times the host.
"""
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD, ROUNDS = pathlib.Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 10
BAR = 1.5
os.environ["CARREL_BUILD"] = str(BUILD)
sys.path[:0] = [str(TOP / "tests" / folder) for folder in ("", "daemon", "agent")]

from carrel import PROGRAM  # noqa: E402
from daemon import Daemon  # noqa: E402
from model import KEY, Model  # noqa: E402

CONFIG = """model_provider = "here"
check_for_update_on_startup = false
[model_providers.here]
name = "here"
base_url = "http://127.0.0.1:{port}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
supports_websockets = false
[features]
plugins = false
apps = false
[analytics]
enabled = false
"""
FREE = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]


class WithKey(Daemon):
    def start(self, env=()):
        super().start({**dict(env), "OWNER_KEY": KEY})


def heading_ms(words, env, cwd):
    """Milliseconds until codex prints its heading, its first output after it has started up. Before it there is only a
    line about standard input, which it prints before it reads anything."""
    start = time.monotonic()
    p = subprocess.Popen(words, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    seen = b""
    while b"OpenAI Codex" not in seen and (data := os.read(p.stdout.fileno(), 4096)):
        seen += data
    took = 1000 * (time.monotonic() - start)
    seen += p.stdout.read()
    assert p.wait() == 0 and b"Done." in seen, seen
    return took


def main():
    model = Model(command="true")
    daemon = WithKey(conf=f"[models]\nprovider = r format=responses url=http://127.0.0.1:{model.port}/v1 key_env=OWNER_KEY\n")
    home = pathlib.Path(tempfile.mkdtemp(prefix="bench-agent-"))
    data = BUILD / "agents"
    env = {**os.environ, **daemon.env, "XDG_DATA_HOME": str(data), "PATH": os.environ["PATH"]}
    try:
        made = subprocess.run([PROGRAM, "agent", "update", "-q", "codex"], env={**env, "HOME": os.environ["HOME"]}, text=True,
                              capture_output=True)
        if made.returncode:
            print("skipped:", made.stderr.strip())
            return 77
        project = home / "project"
        project.mkdir()
        for words in (["init", "-q"], ["-c", "user.name=b", "-c", "user.email=b@example.com", "commit", "-q", "--allow-empty", "-m", "one"]):
            subprocess.run(["git", *words], cwd=project, check=True)
        (home / ".codex").mkdir()
        (home / ".codex/config.toml").write_text(CONFIG.format(port=model.port))
        program = next(data.glob("carrel-agents/codex-*/vendor/*/bin/codex"))
        host = {"HOME": str(home), "PATH": os.environ["PATH"], "OPENAI_API_KEY": "x"}
        ways = {"host": ([program, "exec", *FREE, "--", "x"], host),
                "machine": ([PROGRAM, "agent", "codex", "-q", "-p", "x"], env)}
        times = {way: [] for way in ways}
        for n in range(ROUNDS + 1):  # the first round warms both up, and makes the machine
            for way, (words, variables) in ways.items():
                took = heading_ms(words, variables, project)
                if n:
                    times[way].append(took)
        medians = {way: statistics.median(t) for way, t in times.items()}
        ratio = medians["machine"] / medians["host"]
        print(f"heading of codex, median of {ROUNDS}: host {medians['host']:.0f} ms, "
              f"machine {medians['machine']:.0f} ms, {ratio:.2f} x (bar {BAR})")
        return 0 if ratio <= BAR else 1
    finally:
        daemon.clear()
        daemon.stop()
        model.end()
        shutil.rmtree(home, ignore_errors=True)


sys.exit(main())
