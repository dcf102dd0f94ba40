"""--json of every command: one object on success, the error object of the API on failure, numbers without noise."""
import json
import re
import subprocess
import sys

import pytest

from carrel import PROGRAM, TOP, Carrel

sys.path.insert(0, str(TOP / "tests/image"))
from trees import small_tree  # noqa: E402

SCRIPT = {"turns": [{"calls": [{"tool": "finish", "arguments": {"status": "done", "summary": "s", "evidence": ["e"]}}]}]}


def commands_with_json():
    page = subprocess.run([PROGRAM, "help"], capture_output=True, text=True).stdout
    names = re.findall(r"^  ([a-z]+) ", page, re.M)
    helps = {n: subprocess.run([PROGRAM, n, "--help"], capture_output=True, text=True).stdout for n in names}
    return [n for n in names if re.search(r"^ +--json ", helps[n], re.M)]


COMMANDS = [n for n in commands_with_json() if n != "wast"]  # another program, with a format of its own


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A store with one of everything that commands name: {word} in a line below becomes its name."""
    c = Carrel()
    top = tmp_path_factory.mktemp("json")
    tell = lambda *words, **kw: json.loads(c(*words, **kw).stdout)
    try:
        machine = tell("new", "--json", "--name", "work", "--cpus", "0.1")["id"]
        c("new", "--name", "spare")
        c("exec", "work", "--", "sh", "-c", "echo x >f")
        c("snap", "work", "one")
        c("image", "import", small_tree(top), "--name", "small")
        c("secret", "set", "kept", stdin=b"a long value")
        c("login", "claude", stdin=b"sk-ant-oat01-of-the-test")
        c("net", "work", "allow", "a.example")
        (top / "recipe").write_text("base small\nrun echo x >/y\n")
        (top / "script").write_text(json.dumps(SCRIPT))
        (top / "target").mkdir()
        c.words = {"machine": machine, "top": str(top), "exec": tell("logs", "--json", "work")["execs"][0]["id"],
                   "timer": tell("timer", "add", "--json", "--every", "1d", "work", "true")["id"],
                   "grant": tell("grant", "add", "work", "--file", "/etc/hostname:/home/user/h", "--json")["grants"][0]["id"],
                   "token": tell("token", "new", "--json")["id"]}
        yield c
    finally:
        c.stop()


# Lines that succeed, in this order, and a member of the object that they print; [] marks a list.
WORKS = """
new --json --name another -> id
ls --json -> machines[]
show --json work -> id
set --json work --meta a=b -> id
rename --json another other -> name
pause --json other -> state
resume --json other -> state
stop --json other -> state
hibernate --json --files-only spare -> state
stats --json -> machines
stats --json work -> cpu_us
health --json work -> state
models raise --json work --tokens 1000 -> calls
top --json -> machines[]
run --json -- echo x -> exit_status
exec --json work -- sh -c 'exit 3' -> exit_status
sh --json --ls work -> shells[]
logs --json work -> execs[]
snap --json work two -> id
steps --json work -> steps[]
steps --json work one -> restorable
diff --json work -> changes[]
rewind --json work one -> id
rename --json work@two second -> name
reinstall --json --keep-home spare -> state
fork --json spare -> machines[]
fork --json -n 2 work --run true --score 'echo 0.1' -> forks[]
do --json --model rehearsal/r --script {top}/script work task -> status
do --json --ls -> runs[]
agent ls --json -> machines[]
ship --json work:/home/user {top}/target -> files[]
ship --json --ls -> changesets[]
ship --json --ls --all work -> changesets[]
pending --json -> pending[]
events --json --past -> type
net work --json -> rules[]
net --json work -> rules[]
net work allow --json b.example -> rules[]
net work rm --json 1 -> rules[]
expose --json work 8000 -> url
expose --json work -> exposures[]
expose --json work rm 8000 -> exposures[]
timer add --json --in 1h work true -> id
timer ls --json work -> timers[]
timer rm --json work {timer} -> id
grants --json work -> grants[]
grant ls --json work -> grants[]
grant show --json work {grant} -> id
grant add --json work --file /etc/hostname:/home/user/i -> grants[]
grant revoke --json work {grant} -> grants[]
secret set --json more -> name
secret ls --json -> secrets[]
secret show --json kept -> name
secret rm --json kept -> name
login ls --json -> logins[]
login rm --json claude -> name
volume ls --json -> volumes[]
backup ls --json -> backups[]
image ls --json -> images[]
image show --json small -> id
image tag --json small second -> id
image build --json {top}/recipe --name built -> id
image export --json small --tar {top}/small.out -> tar
image import --json {top}/small.tar --name third -> id
image rm --json second third -> images[]
image prune --json -> removed
image cache ls --json -> packages[]
image cache clear --json -> removed
store check --json -> problems[]
store boxes --json -> boxes[]
token ls --json -> tokens[]
token show --json {token} -> id
token rm --json {token} -> revoked[]
doctor --json -> checks[]
console --json -> url
audit --json -> seq
audit verify --json -> whole
""".strip().splitlines()

# Lines that fail, with the code of the error.
FAILS = """
new --json --image nowhere -> not_found
ls --json --state odd -> invalid
show --json nobody -> not_found
set --json nobody --meta a=b -> not_found
rename --json nobody other -> not_found
rename --json work@nothing other -> not_found
pause --json nobody -> not_found
resume --json nobody -> not_found
stop --json nobody -> not_found
models show --json nobody -> not_found
hibernate --json nobody -> not_found
move --json --kind vm nobody -> not_found
move --json --kind cell other -> invalid
stats --json nobody -> not_found
health --json nobody -> not_found
top --json more -> invalid
run --json --image nowhere -- true -> not_found
exec --json nobody -- true -> not_found
sh --json --ls nobody -> not_found
sh --json work -> invalid
logs --json nobody -> not_found
logs --json work {exec} -> invalid
snap --json nobody -> not_found
steps --json work none -> not_found
diff --json work none -> not_found
rewind --json work none -> not_found
reinstall --json nobody -> not_found
fork --json nobody -> not_found
fork --json work --run true --score false --keep-best -> unknown
do --json --show r-aaaaaaaaaaaa -> not_found
agent update --json nobody -> not_found
ship --json nobody:/home/user {top}/target -> not_found
pending --json more -> invalid
events --json --past nobody -> not_found
net --json nobody -> not_found
expose --json nobody 80 -> not_found
timer ls --json nobody -> not_found
timer rm --json work none -> not_found
grants --json nobody -> not_found
grant show --json work none -> not_found
secret show --json none -> not_found
login rm --json codex -> not_found
login claude --json -> invalid
volume show --json none -> not_found
backup --json nobody -> not_found
backup verify --json none -> not_found
backup verify --json ./none -> not_found
backup --json work --to none -> invalid
backup forget --json none -> not_found
volume rm --json none -> not_found
image show --json none -> not_found
image rm --json none -> not_found
store adopt --json m-aaaaaaaaaaaa -> not_found
token show --json none -> not_found
doctor --json more -> invalid
console --json more -> invalid
audit --json --bogus -> invalid
""".strip().splitlines()


def split(line):
    """The words of a line, with quotes as in a shell."""
    words, _, wanted = line.rpartition(" -> ")
    return re.findall(r"'([^']*)'|(\S+)", words), wanted


def run(place, line, **kw):
    words, wanted = split(line)
    return place(*[(a or b).format(**place.words) for a, b in words], **kw), wanted


def reals(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [r for item in value for r in reals(item)]
    return [value] if isinstance(value, float) else []


def objects(done):
    """The objects that it printed, one per line. Their numbers are kept as texts, to see their digits."""
    lines = done.stdout.decode().splitlines()
    for line in lines:
        texts = []
        json.loads(line, parse_float=lambda t: texts.append(t) or float(t))
        assert all(len(t.strip("-0").replace(".", "")) <= 15 for t in texts), (done.args, texts)
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("line", WORKS)
def test_success_is_one_object(place, line):
    done, wanted = run(place, line, stdin=b"a long value")
    found = objects(done)
    assert len(found) == 1 or line.startswith(("audit --json", "events --json")), (done, found)
    for value in found:
        assert isinstance(value, dict) and "error" not in value, done
        member = value[wanted.removesuffix("[]")]
        assert isinstance(member, list) == wanted.endswith("[]"), (wanted, value)
    assert done.returncode in (0, 1, 3), done


@pytest.mark.parametrize("line", FAILS)
def test_a_failure_is_the_error_object(place, line):
    done, code = run(place, line)
    assert done.returncode == 125, done
    error, = objects(done)
    assert set(error) == {"error"} and {"code", "message"} <= set(error["error"]) <= {"code", "message", "remedy"}, done
    assert error["error"]["code"] == code and error["error"]["message"], done
    assert error["error"]["message"].encode() in done.stderr and done.stderr.splitlines()[-1].startswith(b"carrel: "), "people read it too"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_option_is_the_error_object_wherever_json_stands(place, command):
    for words in (["--json", "--bogus"], ["--bogus", "--json"]):
        done = place(command, *words)
        assert done.returncode == 125, done
        error, = objects(done)
        assert error["error"]["code"] == "invalid", done


def test_json_of_a_command_in_a_machine_is_not_ours(place):
    for words in (["run", "--bogus", "ls", "--json"], ["exec", "nobody", "ls", "--json"], ["exec", "nobody", "--", "--json"]):
        done = place(*words)
        assert (done.returncode, done.stdout) == (125, b""), done


def test_the_lines_name_every_command_with_json():
    """tests/vm moves a machine, which boots a kernel."""
    assert {line.split()[0] for line in WORKS} == set(COMMANDS) - {"move"}
    assert {line.split()[0] for line in FAILS} == set(COMMANDS)


def test_numbers_keep_their_decimal_form(place):
    assert b'"cpus":0.1,' in place("show", "--json", "work").stdout
    assert reals(json.loads(place("show", "--json", "work").stdout)) == [0.1]
    found = place("fork", "--json", "work", "--run", "true", "--score", "echo 9.95").stdout
    assert b'"score":9.95}' in found, found
    shown = place("show", "work").stdout
    assert re.search(rb"cpus +0\.1\n", shown), shown


def test_a_name_that_is_not_utf8_is_still_json(place):
    done = subprocess.run([PROGRAM.encode(), b"show", b"--json", b"\xff\x1b[31m"], env=place.env, capture_output=True, timeout=60)
    assert done.returncode == 125 and json.loads(done.stdout)["error"]["code"] and b"\x1b" not in done.stdout + done.stderr, done


def test_lists_of_the_api_are_objects(place):
    """Every GET that answers JSON and names nothing in its path."""
    paths = re.findall(r"^## GET (/v1/[a-z/]+)$", (TOP / "docs/reference/api.md").read_text(), re.M)
    assert {"/v1/machines", "/v1/images", "/v1/tokens", "/v1/secrets", "/v1/pending", "/v1/runs"} <= set(paths)
    for path in set(paths) - {"/v1/audit"}:  # one record per line
        command = ["curl", "-s", "--max-time", "20", "--unix-socket", str(place.run_dir / "carrel.sock"), f"http://c{path}?follow=0"]
        answer = subprocess.run(command, capture_output=True).stdout
        assert not answer.lstrip().startswith(b"["), (path, answer)
