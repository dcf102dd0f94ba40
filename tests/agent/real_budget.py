"""Three real agents at once under one budget of their owner (`make test-agents`). Usage is what tokenizers from npm count.

The texts that the agents read have from less than 1.5 to more than 6 bytes per token, so the estimates of the gateway are wrong in both directions.
"""
import base64
import concurrent.futures
import json
import random
import re
import shutil
import subprocess
import threading

import pytest

from carrel import BUILD, TOP
from conftest import git
from model import Model
from real_agents import ARGS, Real, installed, model_session, real_session  # noqa: F401 (fixtures)

NAMES = ["claude", "codex", "gemini"]
PRICES = (1, 2)  # of a million tokens of input and output, as carrel.conf of the tests has them
PART = 20000  # bytes; agents cut longer output of a command
# What the budget may be exceeded by, as docs/reference/models.md says.
OVERSHOOT = 0.05


class Tokens:
    """The tokenizers, as one process that answers a line for a line."""

    def __init__(self, where):
        self.lock = threading.Lock()
        self.process = subprocess.Popen(["node", where / "tokens.mjs"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def count(self, form, text):
        with self.lock:
            self.process.stdin.write(json.dumps([form, text]) + "\n")
            self.process.stdin.flush()
            return int(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait(10)


@pytest.fixture(scope="module")
def tokens():
    where = BUILD / "agents/tokens"
    if not shutil.which("npm") or not shutil.which("node"):
        pytest.skip("npm and node are not installed")
    shutil.copytree(TOP / "tests/agent/tokens", where, dirs_exist_ok=True)
    if not (where / "node_modules/.package-lock.json").exists():
        done = subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=where, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=150)
        if done.returncode:
            pytest.skip("npm could not fetch the tokenizers: " + done.stdout.strip().splitlines()[-1][:200])
    t = Tokens(where)
    yield t
    t.end()


def texts():
    """Kinds of text, from few bytes per token to many."""
    dice = random.Random(20)
    words = "international development information government responsibilities understanding communication environmental".split()
    code = "".join(p.read_text() for p in sorted((TOP / "src/cli/agent").glob("*.c")))
    return {"escapes": "".join(f"\\u{dice.randrange(0x4e00, 0x9000):04x}" for _ in range(PART // 6)),
            "base64": base64.encodebytes(dice.randbytes(PART * 3 // 4)).decode(),
            "hex": dice.randbytes(PART // 2).hex(),
            "code": code[:PART],
            "korean": "".join(dice.choice(["서울에서 ", "사람들이 ", "프로그램을 ", "만들었습니다. "]) for _ in range(PART // 14)),
            "words": " ".join(dice.choice(words) for _ in range(PART // 14))}


# What each agent reads, one text after the other.
READ = {"claude": ["words", "escapes", "code", "hex", "korean"],
        "codex": ["korean", "base64", "words", "escapes", "code"],
        "gemini": ["code", "words", "hex", "korean", "base64"]}


def projects(top):
    """A repository for each agent. Its files have the same names everywhere, and other texts."""
    for name, kinds in READ.items():
        where = top / name
        where.mkdir(parents=True)
        git(where, "init", "-q", "-b", "main")
        for n, kind in enumerate(kinds):
            (where / f"part-{n}").write_text(texts()[kind] + "\n")
        git(where, "add", "-A")
        git(where, "commit", "-q", "-m", "parts")


class Counting(Model):
    """Reports what the tokenizers count of request and answer, and remembers it by agent."""

    def __init__(self, tokens):
        super().__init__()
        self.commands = [f"cat part-{n}" for n in range(5)]
        self.tokens, self.lock = tokens, threading.Lock()
        self.usage = self.count
        self.begin()

    def begin(self):
        self.spent = {name: [] for name in NAMES}

    def count(self, r, said):
        form = "anthropic" if "messages" in r.path else "responses" if "responses" in r.path else "gemini"
        text = json.dumps(r.body, ensure_ascii=False)
        used = self.tokens.count(form, text), self.tokens.count(form, said)
        with self.lock:
            self.spent[NAMES[["anthropic", "responses", "gemini"].index(form)]].append((len(text.encode()), *used))
        return used

    def cost(self, name):
        return sum(used_in * PRICES[0] + used_out * PRICES[1] for _, used_in, used_out in self.spent[name]) / 1e6

    def total(self):
        return sum(self.cost(name) for name in NAMES)

    def ratios(self):
        """Bytes per token of what each call added to its conversation."""
        rows = [pair for calls in self.spent.values() for pair in zip(calls, calls[1:])]
        return sorted((b[0] - a[0]) / (b[1] - a[1]) for a, b in rows if b[1] - a[1] > 1000)


@pytest.fixture(scope="module")
def counting(tokens):
    m = Counting(tokens)
    yield m
    m.end()


class Pool(Real):
    """A daemon whose owner has one budget for all machines."""

    def __init__(self, port, money):
        super().__init__(port, f"owner_money = {money:.6f}\n" if money else "")


def converse(counting, top, money):
    """Runs the three at once. Returns what each command printed, and what the daemon has counted."""
    counting.begin()
    projects(top)
    pool = Pool(counting.port, money)
    try:
        with concurrent.futures.ThreadPoolExecutor(len(NAMES)) as at_once:
            started = {n: at_once.submit(pool.carrel, "agent", n, "-p", "Read all parts.", "--budget", "any", "--", *ARGS[n], cwd=top / n)
                       for n in NAMES}
            done = {n: s.result() for n, s in started.items()}
        (day,) = json.loads(pool.carrel("models", "usage", "--json").stdout)["usage"]
    finally:
        pool.stop()
    return done, day["money"]


@pytest.fixture(scope="module")
def cost(installed, counting, tmp_path_factory):  # noqa: F811
    """What the three conversations cost if nothing limits them."""
    for name in NAMES:
        installed(name)
    done, _ = converse(counting, tmp_path_factory.mktemp("free"), None)
    for name in NAMES:
        assert done[name].returncode == 0, done[name]
        assert len(counting.spent[name]) >= 6, counting.spent
    ratios = counting.ratios()
    assert ratios[0] < 1.5 and ratios[-1] > 6, ratios
    return counting.total()


@pytest.mark.parametrize("share", [1.2, 0.7, 0.4])
def test_three_agents_at_once_stay_within_one_budget(counting, cost, tmp_path, capsys, share):
    budget = cost * share
    done, charged = converse(counting, tmp_path, budget)
    over, finished = counting.total() / budget - 1, sum(d.returncode == 0 for d in done.values())
    with capsys.disabled():
        print(f"# budget of {share} x the cost: {finished} of {len(NAMES)} finish, {100 * over:+.1f} % of the budget")
    assert over <= OVERSHOOT and abs(charged - counting.total()) < 1e-6, (over, charged, counting.total())
    for name in NAMES:
        if share > 1:
            assert done[name].returncode == 0 and "Done." in done[name].stdout, done[name]
        elif done[name].returncode:
            assert re.search("budget .* spent", done[name].stdout + done[name].stderr), done[name]
    assert share > 1 or any(d.returncode for d in done.values())
