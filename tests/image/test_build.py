"""Recipes: steps that are made once, and what stands in the way of one."""
import contextlib
import json
import os
import pathlib
import pty
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time

import pytest

import cells
from carrel import PROGRAM


def cli(daemon, *words, run=None, PATH=os.environ["PATH"], **kw):
    env = {"PATH": PATH, "CARREL_HOME": str(daemon.home), "CARREL_RUN": str(run or daemon.run_dir)}
    return subprocess.run([PROGRAM, *map(str, words)], env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=110, text=True, **kw)


RECIPE = """# an image of our own
base small
env GREETING=hello
run echo "$GREETING" >/greeting; touch /first
file conf /etc/app/conf
run cat /etc/app/conf >/copied
user app
workdir /srv/app
command cat /greeting
"""


@pytest.fixture
def recipe(small, tmp_path):
    (tmp_path / "recipe").write_text(RECIPE)
    (tmp_path / "conf").write_text("one\n")
    return tmp_path / "recipe"


def test_a_recipe_becomes_an_image(daemon, recipe):
    done = cli(daemon, "image", "build", recipe, "--name", "app", "--json")
    assert done.returncode == 0, done
    image = json.loads(done.stdout)
    assert image["name"] == "app" and image["config"]["user"] == "app" and image["config"]["command"] == ["cat", "/greeting"]
    assert "3 instructions run, 0 cached" in done.stderr
    m = daemon.machine(image="app")
    out = daemon.exec(m, "cat /greeting /copied; pwd; id -u; echo $GREETING")["stdout"].split()
    assert out == ["hello", "one", "/srv/app", "1234", "hello"], out
    assert daemon.machines() and len(daemon.machines()) == 1  # the build's own are gone


def test_what_was_made_is_not_made_again(daemon, recipe):
    first = json.loads(cli(daemon, "image", "build", recipe, "--json").stdout)
    again = cli(daemon, "image", "build", recipe, "--json")
    assert "0 instructions run, 3 cached" in again.stderr and json.loads(again.stdout)["id"] == first["id"]
    (recipe.parent / "conf").write_text("two\n")
    changed = cli(daemon, "image", "build", recipe, "--json", "--name", "other")
    assert "2 instructions run, 1 cached" in changed.stderr, changed
    assert daemon.exec(daemon.machine(image="other"), "cat /copied")["stdout"] == "two\n"


def test_each_step_adds_a_layer_with_its_own_changes(daemon, recipe):
    """Also the steps after one that was cached, which run in a machine of the cached image."""
    cli(daemon, "image", "build", recipe, "--name", "app")
    (recipe.parent / "conf").write_text("two\n")
    cli(daemon, "image", "build", recipe, "--name", "other")
    steps = [i for i in daemon.get("/v1/images")["images"] if i["name"].startswith("build:")]
    assert sorted(i["layers"] for i in steps) == [2, 3, 3, 4, 4], steps
    for image in steps:
        top = daemon.home / "images" / image["id"] / "root"
        files = {str(p.relative_to(top)) for p in top.rglob("*") if p.is_file()}
        assert files == {2: {"greeting", "first"}, 3: {"etc/app/conf"}, 4: {"copied"}}[image["layers"]], files


def test_steps_are_hidden_and_go_when_asked(daemon, recipe):
    cli(daemon, "image", "build", recipe, "--name", "app")
    assert "build:" not in cli(daemon, "image", "ls").stdout and "build:" in cli(daemon, "image", "ls", "--all").stdout
    assert cli(daemon, "image", "prune").stdout.startswith("3 intermediate images deleted")
    assert {i["name"] for i in daemon.get("/v1/images")["images"]} == {"small", "app"}


def test_a_line_that_fails_says_which_and_leaves_no_machine(daemon, recipe):
    recipe.write_text("base small\nrun echo fine\nrun echo broken >&2; exit 7\n")
    done = cli(daemon, "image", "build", recipe, "--name", "app")
    assert done.returncode == 125 and "line 3 of the recipe: the command exited with status 7" in done.stderr and "broken\n" in done.stderr, done
    assert daemon.machines() == [] and "app" not in [i["name"] for i in daemon.get("/v1/images")["images"]]


@pytest.mark.parametrize("text,said", [
    ("", "empty"), ("base nothing\n", "image 'nothing' does not exist"), ("base small\nfile ../x /x\n", "leads out of its directory"),
    ("base small\nfile missing /x\n", "open 'missing'"), ("base small\nbake x\n", "unknown instruction 'bake x'"),
    ("base debian:no-such-suite\n", "has no mirror")])
def test_a_recipe_that_makes_no_sense(daemon, recipe, text, said):
    recipe.write_text(text)
    done = cli(daemon, "image", "build", recipe)
    assert done.returncode == 125 and said in done.stderr, done


@pytest.mark.parametrize("path", ["inside/secret", "link/secret", "inside/again/secret", "one"])
def test_a_recipe_takes_nothing_from_elsewhere(daemon, recipe, tmp_path_factory, path):
    """Its author may lay links beside it; what they lead to is this host's, and would end in the image."""
    host = tmp_path_factory.mktemp("host")
    (host / "secret").write_text("of the host\n")
    beside = recipe.parent
    (beside / "real").mkdir()
    (beside / "real/secret").write_text("of the recipe\n")
    os.symlink(host, beside / "link")
    os.symlink("real", beside / "inside")
    os.symlink(host, beside / "real/again")
    os.symlink(host / "secret", beside / "one")
    recipe.write_text(f"base small\nfile {path} /taken\n")
    done = cli(daemon, "image", "build", recipe, "--name", "app")
    assert (beside / path).exists(), "the control: without a check it can be read"
    if path == "inside/secret":  # and a link that stays beside the recipe is followed
        assert done.returncode == 0, done
        assert daemon.exec(daemon.machine(image="app"), "cat /taken")["stdout"] == "of the recipe\n"
    else:
        assert done.returncode == 125 and "leads out of its directory" in done.stderr, done


def test_a_pipe_beside_a_recipe_does_not_hang_it(daemon, recipe):
    os.mkfifo(recipe.parent / "pipe")
    recipe.write_text("base small\nfile pipe /taken\n")
    done = cli(daemon, "image", "build", recipe)
    assert done.returncode == 125 and "'pipe' is not a regular file" in done.stderr, done


class Between:
    """Stands between client and daemon, and does something before the first request that begins so is passed on."""

    def __init__(self, daemon, begins, what):
        self.daemon, self.begins, self.what, self.done = daemon, begins, what, 0
        self.run = pathlib.Path(tempfile.mkdtemp(prefix="cp-", dir="/tmp"))  # short: it holds a socket
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(str(self.run / "carrel.sock"))
        self.server.listen(16)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                client = self.server.accept()[0]
                behind = socket.socket(socket.AF_UNIX)
                behind.connect(self.daemon.socket)
                threading.Thread(target=self.carry, args=(client, behind, True), daemon=True).start()
                threading.Thread(target=self.carry, args=(behind, client, False), daemon=True).start()

    def carry(self, source, to, requests):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if requests and self.begins in data and not self.done:
                    self.done += 1
                    self.what()
                to.sendall(data)
            to.shutdown(socket.SHUT_WR)

    def stop(self):
        self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()
        shutil.rmtree(self.run)


@pytest.fixture
def between(daemon):
    made = []

    def make(begins, what):
        made.append(Between(daemon, begins, what))
        return made[-1]

    yield make
    for b in made:
        b.stop()


def test_a_file_that_changes_during_a_build_spoils_no_step(daemon, recipe, between):
    """A step is found again by what is in it: nothing else may be in it."""
    recipe.write_text("base small\nfile conf /conf\n")
    conf = recipe.parent / "conf"
    swap = between(b"POST /v1/images/builds", lambda: conf.write_text("evil\n"))  # after the file was looked at
    assert cli(daemon, "image", "build", recipe, "--name", "first", run=swap.run).returncode == 0 and swap.done
    conf.write_text("one\n")
    again = cli(daemon, "image", "build", recipe, "--name", "again")
    assert "0 instructions run, 1 cached" in again.stderr, again
    assert daemon.exec(daemon.machine(image="again"), "cat /conf")["stdout"] == "one\n"


@pytest.mark.parametrize("swapped", [False, True])
def test_a_directory_that_is_swapped_during_a_build_gives_nothing(daemon, recipe, between, tmp_path_factory, swapped):
    """Whoever may rename the recipe's directory cannot have another one of this host read in its place."""
    host = tmp_path_factory.mktemp("host")
    (host / "conf").write_text("of the host\n")
    (recipe.parent / "context").mkdir()
    named = recipe.parent / "context/recipe"
    named.write_text("base small\nfile conf /conf\n")
    (named.parent / "conf").write_text("one\n")

    def swap():
        if swapped:
            named.parent.rename(recipe.parent / "away")
            named.parent.symlink_to(host)

    while_asked = between(b"GET /v1/images/small", swap)  # after the recipe was read
    done = cli(daemon, "image", "build", named, "--name", "app", run=while_asked.run)
    assert done.returncode == 0 and while_asked.done, done
    assert (named.parent / "conf").read_text() == ("of the host\n" if swapped else "one\n")
    assert daemon.exec(daemon.machine(image="app"), "cat /conf")["stdout"] == "one\n"


def test_a_recipe_reaches_nothing_by_itself(daemon, recipe):
    recipe.write_text("base small\nrun cat </dev/tcp/192.0.2.1/80 2>/dev/null && exit 1; exit 0\n")
    assert cli(daemon, "image", "build", recipe).returncode == 0


def slow_mmdebstrap(directory, rootfs, seconds):
    """A PATH with an mmdebstrap that writes nothing for so long, as the real one does on a slow mirror."""
    directory.mkdir()
    (directory / "mmdebstrap").write_text(f"#!/bin/sh\nsleep {seconds}\nexec cat '{rootfs}'\n")
    (directory / "mmdebstrap").chmod(0o755)
    return f"{directory}:{os.environ['PATH']}"


def has_suite(suite):
    files = [pathlib.Path("/etc/apt/sources.list"), *pathlib.Path("/etc/apt/sources.list.d").glob("*")]
    return any(suite in f.read_text().split() for f in files if f.is_file() and f.suffix in (".list", ".sources"))


def test_quiet_lines_keep_the_daemon_running(fresh, rootfs, tmp_path):
    """The daemon exits when it is idle for 4 s, and both lines are quiet for longer."""
    if not has_suite("bookworm"):
        pytest.skip("apt on this host has no mirror for bookworm")
    daemon = fresh("--idle-ms", "4000")
    (tmp_path / "recipe").write_text("base debian:bookworm\nrun sleep 9; echo made >/made\n")
    path = slow_mmdebstrap(tmp_path / "bin", rootfs, 9)
    done = cli(daemon, "image", "build", tmp_path / "recipe", "--name", "app", PATH=path)
    assert done.returncode == 0, done
    assert daemon.process.poll() is None, "this daemon made the whole image"
    assert re.search(r"1/2  making  base debian:bookworm  \d+ s\n", done.stderr), done.stderr
    assert daemon.exec(daemon.machine(image="app"), "cat /made")["stdout"] == "made\n"


def test_requests_keep_the_daemon_running(fresh):
    """Short requests are work, even if none is under way at the moment when the daemon looks."""
    daemon = fresh("--idle-ms", "3000")
    for _ in range(80):
        daemon.get("/v1/images")
        time.sleep(0.1)
    assert daemon.process.poll() is None
    assert daemon.process.wait(60) == 0  # the control: without requests it exits
    daemon.start()


def test_build_shows_each_line_of_the_recipe(daemon, recipe):
    done = cli(daemon, "image", "build", recipe, "--name", "app")
    shown = [line.split() for line in done.stderr.splitlines() if "/8 " in line]
    assert [line[:3] for line in shown] == [
        ["1/8", "using", "base"], ["2/8", "setting", "env"], ["3/8", "making", "run"], ["4/8", "making", "file"], ["5/8", "making", "run"],
        ["6/8", "setting", "user"], ["7/8", "setting", "workdir"], ["8/8", "setting", "command"]], done.stderr
    assert cli(daemon, "image", "build", recipe, "--name", "app", "-q").stderr == ""


def test_build_shows_time_and_last_output_of_a_long_line(daemon, recipe):
    recipe.write_text("base small\nrun echo first; printf 'halfway \\033[2J\\n'; sleep 7\n")
    done = cli(daemon, "image", "build", recipe)
    assert done.returncode == 0, done
    assert re.search(r"^  2/2  making  run echo first.*  \d+ s  halfway \\x1b\[2J$", done.stderr, re.M), done.stderr


def test_build_on_a_terminal_shows_a_long_line_in_place(daemon, recipe):
    recipe.write_text("base small\nrun echo halfway; sleep 4\n")
    env = {"PATH": os.environ["PATH"], "CARREL_HOME": str(daemon.home), "CARREL_RUN": str(daemon.run_dir)}
    master, slave = pty.openpty()
    started = subprocess.Popen([PROGRAM, "image", "build", str(recipe)], env=env, stdin=slave, stdout=subprocess.DEVNULL, stderr=slave)
    os.close(slave)
    shown = b""
    with contextlib.suppress(OSError):  # EIO: the program has ended
        while data := os.read(master, 4096):
            shown += data
    os.close(master)
    assert started.wait(60) == 0, shown
    assert re.search(rb"\r\x1b\[K  2/2  making  run echo halfway; sleep 4  \d+ s  halfway", shown), shown
    assert shown.endswith(b"\r\x1b[K1 instruction run, 0 cached\r\n"), shown


def test_output_of_a_failed_line_is_shown_to_its_end(daemon, recipe):
    """A long output is cut at its beginning: the reason of a failure is at the end."""
    recipe.write_text("base small\nrun i=0; while [ $i -lt 60000 ]; do echo line $i; i=$((i+1)); done; echo the reason >&2; exit 3\n")
    done = cli(daemon, "image", "build", recipe)
    assert done.returncode == 125 and "exited with status 3" in done.stderr, done.stderr[-500:]
    assert "line 59999\n" in done.stderr and "the reason\n" in done.stderr


def host_mirror():
    """A mirror of this host's apt; None: it has none."""
    files = [pathlib.Path("/etc/apt/sources.list"), *pathlib.Path("/etc/apt/sources.list.d").glob("*")]
    text = "".join(f.read_text() for f in files if f.is_file() and f.suffix in (".list", ".sources"))
    found = re.search(r"^[^#\n]*https?://([^/:\s]+)", text, re.M)
    return found[1] if found else None


def reached_by_packages(daemon, directory, sources):
    """Rules that an apt-get of the image finds while it runs for a packages line; before that line there is none."""
    (directory / "sources").write_text(sources)
    (directory / "apt-get").write_text("#!/bin/sh\ncp /run/carrel/machine.json /rules\nmkdir -p /var/lib/apt/lists\n")
    (directory / "apt-get").chmod(0o755)
    (directory / "recipe").write_text("base small\nfile apt-get /usr/bin/apt-get\nrun cp /run/carrel/machine.json /before || echo {} >/before\n"
                                      "file sources /etc/apt/sources.list\npackages anything\n")
    done = cli(daemon, "image", "build", directory / "recipe", "--name", "app", "--no-cache")
    assert done.returncode == 0, done
    m = daemon.machine(image="app")
    assert "://" not in daemon.exec(m, "cat /before")["stdout"]
    return json.loads(daemon.exec(m, "cat /rules")["stdout"])["network"]["rules"]


def test_packages_come_from_the_sources_of_the_image(daemon, small, tmp_path):
    rules = reached_by_packages(daemon, tmp_path, "deb http://mirror.of-the-image.test/debian stable main\n")
    assert [r["target"] for r in rules] == ["http://mirror.of-the-image.test"] and not rules[0].get("local"), rules


def test_private_mirror_is_reached_if_the_host_uses_it(daemon, small, tmp_path):
    mirror = host_mirror()
    if not mirror:
        pytest.skip("apt on this host has no mirror")
    rules = reached_by_packages(daemon, tmp_path, f"deb http://{mirror}/debian stable main\ndeb http://other.test/debian stable main\n")
    assert {r["target"]: bool(r.get("local")) for r in rules} == {f"http://{mirror}": True, "http://other.test": False}, rules
    rules = reached_by_packages(daemon, tmp_path, f"deb http://{mirror}/debian stable main\n")
    assert [(r["target"], r.get("local"), r.get("preset")) for r in rules] == [(f"http://{mirror}", True, "apt")], rules


def reached_with_npm(daemon, directory, *options):
    """Rules for a line after `net npm`, in an image whose npm has a mirror; and for the line before it."""
    (directory / "npmrc").write_text("registry=https://npm.mirror.test/\n")
    (directory / "recipe").write_text("base small\nfile npmrc /etc/npmrc\nrun cp /run/carrel/machine.json /before || echo {} >/before\n"
                                      "net npm\nrun cp /run/carrel/machine.json /rules\n")
    done = cli(daemon, "image", "build", directory / "recipe", "--name", "app", "--no-cache", *options)
    assert done.returncode == 0, done
    m = daemon.machine(image="app")
    assert "://" not in daemon.exec(m, "cat /before")["stdout"]
    return [(r["target"], bool(r.get("local"))) for r in json.loads(daemon.exec(m, "cat /rules")["stdout"])["network"]["rules"]]


def test_private_addresses_are_reached_only_if_the_command_line_says_so(daemon, small, tmp_path):
    assert reached_with_npm(daemon, tmp_path) == [("https://npm.mirror.test", False)]
    assert reached_with_npm(daemon, tmp_path, "--net", "npm,local") == [("https://npm.mirror.test", True)]
    (tmp_path / "recipe").write_text("base small\nnet npm,local\nrun true\n")
    done = cli(daemon, "image", "build", tmp_path / "recipe", "--name", "app")
    assert done.returncode == 125 and "'npm,local' is not a valid target" in done.stderr, done


def test_packages_for_an_image_without_sources_are_refused(daemon, small, tmp_path):
    (tmp_path / "recipe").write_text("base small\npackages curl\n")
    done = cli(daemon, "image", "build", tmp_path / "recipe")
    assert done.returncode == 125 and "line 2 of the recipe" in done.stderr and "where tool 'apt' gets its packages from" in done.stderr, done
    assert daemon.machines() == []


@pytest.mark.parametrize("name,text", [("Dockerfile", "FROM scratch\nCOPY hello.wat /bin/hello.wasm\nENV A=1\n"),
                                       ("recipe", "base scratch\nfile hello.wat /bin/hello.wasm\nenv A=1\n")], ids=["Dockerfile", "recipe"])
def test_image_of_a_cell_is_built_from_scratch(daemon, tmp_path, name, text):
    (tmp_path / name).write_text(text)
    (tmp_path / "hello.wat").write_text(cells.PROGRAMS["hello"])
    done = cli(daemon, "image", "build", tmp_path, "--name", "from-nothing")
    assert done.returncode == 0, done.stderr
    m = daemon.machine(kind="cell", image="from-nothing")
    assert daemon.exec(m, ["hello"])["stdout"] == "hello\n"
    assert [e["name"] for e in daemon.get(f"/v1/machines/{m}/files/list", path="/bin")["entries"]] == ["hello.wasm"]


def test_command_in_an_image_from_scratch_fails_with_its_line(daemon, tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM scratch\nRUN true\n")
    done = cli(daemon, "image", "build", tmp_path, "--name", "from-nothing")
    assert done.returncode != 0 and "line 2 of the Dockerfile" in done.stderr, done.stderr
