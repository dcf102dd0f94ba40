"""What a command did is said in one line, and a wrong word is answered with the right ones."""
import json
import re
import subprocess
import tarfile

import pytest

from carrel import ROOTLESS, Carrel


@pytest.fixture
def machine(carrel):
    for name in "tour", "other":
        assert carrel("new", "--name", name).returncode == 0
    yield "tour"
    for name in "tour", "trip", "other":
        carrel("rm", name)


LOGIN = b"sk-ant-oat01-of-the-test\n"
# Words, what is said, and whether -q silences it. Commands that only print, or whose output is what they made, are below.
CHANGES = {
    "set": (["set", "tour", "--meta", "a=b"], r"changed machine 'tour'"),
    "rename": (["rename", "tour", "trip"], r"renamed machine 'tour' to 'trip'"),
    "rename step": (["rename", "STEP", "good"], r"renamed step 'tour@last' to 'good'"),
    "rm": (["rm", "other", "tour"], r"deleted machine 'other'\ncarrel: deleted machine 'tour'"),
    "cp": (["cp", "/etc/hostname", "tour:/tmp/name"], r"copied '/etc/hostname' to 'tour:/tmp/name'"),
    "secret set": (["secret", "set", "SHOP_KEY"], r"stored secret 'SHOP_KEY'"),
    "secret rm": (["secret", "rm", "SHOP_KEY"], r"deleted secret 'SHOP_KEY'"),
    "login claude": (["login", "claude"], r"stored login 'claude'"),
    "login rm": (["login", "rm", "LOGIN"], r"deleted login 'claude'"),
    "token rm": (["token", "rm", "TOKEN"], r"revoked token 't-\w+'"),
    "approve": (["approve", "PENDING"], r"approved request 'p-\w+'"),
    "answer": (["answer", "QUESTION", "yes"], r"answered question 'q-\w+'"),
    "deny": (["deny", "PENDING"], r"denied request 'p-\w+'"),
    "image rm": (["image", "rm", "copy"], r"deleted image 'copy'"),
    "image export": (["image", "export", "copy", "--tar", "TAR"], r"wrote image 'copy' to '.*'"),
    "grant revoke": (["grant", "revoke", "tour", "GRANT"], r"revoked grant 'g-\w+' of machine 'tour'"),
    "models raise": (["models", "raise", "tour", "--tokens", "1000"], r"changed the model budget of machine 'tour'"),
    "expose rm": (["expose", "tour", "rm", "8000"], r"port 8000 of machine 'tour' is no longer exposed"),
}
if not ROOTLESS:  # volumes require root
    CHANGES["volume create"] = ["volume", "create", "disk", "--size", "16M"], r"made volume 'disk'"
    CHANGES["volume snap"] = ["volume", "snap", "VOLUME", "one"], r"made snapshot 'kept@one'"
    CHANGES["volume rm"] = ["volume", "rm", "VOLUME"], r"deleted volume 'kept'"
# Print the id, number, state, list or text of what they made or changed, on standard output.
PRINT = {"agent", "console", "new", "fork", "snap", "rewind", "pause", "resume", "stop", "hibernate", "move", "reinstall", "timer", "net", "expose", "forward", "grant", "token", "image", "store", "ship", "do", "run",
         "exec", "sh", "ssh", "mcp", "serve", "secret", "volume", "backup", "login", "desktop"}
READ = {"ls", "show", "serial", "logs", "steps", "diff", "stats", "health", "top", "pending", "events", "grants", "doctor", "e2b", "audit", "completion", "version", "help", "cell", "wast"}


@pytest.fixture
def things(carrel, machine, tmp_path):
    """Ids of a token, a grant and a waiting request; an image; an exposed port."""
    def pending():
        assert carrel("net", "tour", "ask", "http://one.example").returncode == 0
        client = carrel.popen("exec", "tour", "--", "curl", "-s", "http://one.example/", stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        clients.append(client)
        while not (ids := carrel("pending", "-q").stdout.decode().split()):
            assert client.poll() is None
        return ids[0]

    def question():
        client = carrel.popen("exec", "tour", "--", "carrel", "ask", "why", stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        clients.append(client)
        while not (ids := carrel("pending", "-q").stdout.decode().split()):
            assert client.poll() is None
        return ids[0]

    def token():
        assert carrel("token", "new", "--note", "old").returncode == 0
        return carrel("token", "ls", "-q").stdout.decode().split()[0]

    def grant():
        return carrel("grant", "add", "tour", "--env", "A=b", "-q").stdout.decode().split()[0]

    def image():
        archive = tmp_path / "copy.tar"
        with tarfile.open(archive, "w") as tar:
            tar.addfile(tarfile.TarInfo("empty"))
        assert carrel("image", "import", archive, "--name", "copy").returncode == 0
        return "copy"

    def port():
        assert carrel("expose", "tour", "8000").returncode == 0
        return "8000"

    def secret():
        assert carrel("secret", "set", "SHOP_KEY", stdin=b"kf-3141592653\n").returncode == 0
        return "SHOP_KEY"

    def login():
        assert carrel("login", "claude", stdin=LOGIN).returncode == 0
        return "claude"

    def volume():
        assert carrel("volume", "create", "kept", "--size", "16M").returncode == 0
        return "kept"

    def step():
        assert carrel("snap", "tour").returncode == 0
        return "tour@last"

    clients = []
    made = {"STEP": step, "PENDING": pending, "QUESTION": question, "TOKEN": token, "GRANT": grant, "copy": image, "8000": port, "SHOP_KEY": secret, "LOGIN": login, "VOLUME": volume,
            "TAR": lambda: str(tmp_path / "image.tar")}
    yield lambda words: [made[word]() if word in made else word for word in words]
    for client in clients:
        client.kill()
        client.wait()
    for name in sorted(carrel("volume", "ls", "-q").stdout.decode().split(), key=len, reverse=True):
        carrel("volume", "rm", name)


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("quiet", [[], ["-q"]], ids=["says", "quiet"])
def test_a_change_is_said_in_one_line(carrel, things, name, quiet):
    words, says = CHANGES[name]
    typed = {"secret set": b"kf-2718281828\n", "login claude": LOGIN}.get(name)
    done = carrel(*things(words), *quiet, stdin=typed)
    assert done.returncode == 0, done
    if quiet:
        assert done.stderr == b"", done
    else:
        assert re.fullmatch(f"carrel: {says}\n", done.stderr.decode()), done


def test_rm_of_all_machines_says_if_there_is_none():
    c = Carrel()
    try:
        assert c("rm", "--all").stderr == b"carrel: no machines to delete\n"
        assert c("rm", "--all", "-q").stderr == b""
    finally:
        c.stop()


def test_every_command_is_known_to_this_file(carrel):
    """A new command that changes something joins CHANGES."""
    listed = set(re.findall(r"^  (\w+) ", carrel("help").stdout.decode(), re.M))
    assert listed == {name.split()[0] for name in CHANGES} | PRINT | READ


@pytest.mark.parametrize("words,says", [
    (["new", "--steps", "s"], "--steps s: must be every, risky or manual"),
    (["new", "--idle-action", "x"], "--idle-action x: must be pause, stop, destroy or release"),
    (["set", "tour", "--idle-action=x"], "--idle-action x: must be pause, stop, destroy or release"),
    (["token", "new", "--scope", "x"], "--scope x: must be read, run or admin"),
    (["top", "--sort", "x"], "--sort x: must be cpu, mem, disk, age or name"),
    (["do", "--mode", "x", "task"], "--mode x: must be free, plan-then-execute, action-selector, map or handles"),
    (["new", "--kind", "x"], "--kind x: must be box, cell or vm"),
    (["run", "--timeout", "0", "--", "true"], "--timeout must be greater than 0; leave it out for no limit"),
    (["ls", "--state", "x"], "use one of: creating running paused stopped ending ended"),
    (["store", "frob"], "unknown subcommand 'frob': use check, init, boxes or adopt; see carrel store --help"),
    (["net", "tour", "frob"], "unknown subcommand 'frob': use allow, deny, ask, rm or show; see carrel net --help"),
    (["ship", "--list"], "unknown option '--list': use --ls"),
    (["ship", "--all", "tour"], "--all requires --ls"),
    (["ship", "--ls", "tour", "there"], "unexpected argument 'there'"),
    (["ship", "--apply", "tour"], "unknown option '--apply': use carrel ship -y, or carrel run --apply"),
    (["secret"], "carrel secret requires a subcommand: use set, ls, show or rm; see carrel secret --help"),
], ids=lambda words: " ".join(words) if isinstance(words, list) else "")
def test_a_wrong_word_is_answered_with_the_right_ones(carrel, words, says):
    done = carrel(*words)
    assert done.returncode == 125 and says in done.stderr.decode(), done


@pytest.mark.parametrize("words,says", [
    (["logs", "nobody"], "machine 'nobody' does not exist: list yours with: carrel ls"),
    (["logs", "nobody", "x-aaaaaaaaaaaa"], "machine 'nobody' does not exist: list yours with: carrel ls"),
    (["logs", "tour", "x-aaaaaaaaaaaa"], "command 'x-aaaaaaaaaaaa' does not exist in machine 'tour': list its commands with: carrel logs tour"),
    (["logs", "tour", "x"], "command 'x' does not exist in machine 'tour': list its commands with: carrel logs tour"),
    (["net", "tour", "allow", "localhost"], "a rule for 'localhost' has no effect: in a machine it is the machine itself: for a server on this host"),
    (["net", "tour", "ask", "db.localhost"], "a rule for 'db.localhost' has no effect"),
    (["net", "tour", "allow", "npmm"], "preset 'npmm' does not exist: presets are apt, npm, pip, cargo and go"),
], ids=lambda words: " ".join(words) if isinstance(words, list) else "")
def test_a_name_that_does_not_work_is_answered_with_what_to_do(carrel, machine, words, says):
    done = carrel(*words)
    assert done.returncode == 125 and says in done.stderr.decode(), done


@pytest.mark.parametrize("group", ["image ls", "secret ls", "token ls", "store boxes", "audit verify", "net tour", "grant ls tour", "expose tour"])
def test_options_may_stand_before_the_subcommand(carrel, machine, group):
    command, *words = group.split()
    done = carrel(command, "--json", *words)
    assert done.returncode == 0 and json.loads(done.stdout), done


def test_net_shows_the_time_left_of_a_rule(carrel, machine):
    carrel("net", "tour", "allow", "a.test", "--for", "2h")
    carrel("net", "tour", "allow", "b.test")
    shown = carrel("net", "tour").stdout.decode()
    head, first, second = shown.splitlines()[:3]
    at = head.index("LEFT")
    assert re.fullmatch(r"(2h|1h 5\dm) *", first[at:]) and second[at:].split() == ["-"], shown


def test_stats_show_only_what_this_host_counts(carrel, machine):
    uncounted = json.loads(carrel("stats", "--json").stdout)["box"]["unenforced"]
    stats = json.loads(carrel("stats", "tour", "--json").stdout)
    shown = dict(line.split(maxsplit=1) for line in carrel("stats", "tour").stdout.decode().splitlines())
    of = {"memory": ["mem_bytes", "mem_peak_bytes", "mem_limit_bytes", "oom_kills"], "processes": ["pids", "pids_refused"]}
    for limit, names in of.items():
        for name in names:
            assert (name in stats) == (limit not in uncounted) == (shown[name.removesuffix("_bytes")] != "-"), (name, stats, shown)
    assert list(shown)[:2] == ["cpu", "mem"] and shown["disk"] != "-" and shown["frozen"] == "no"


def test_help_of_steps_explains_the_marks_in_the_list(carrel):
    said = carrel("steps", "--help").stdout.decode()
    assert "* marks the durable step" in said and "! marks a step that cannot be restored" in said
