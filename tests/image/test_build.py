"""Recipes: steps that are made once, and what stands in the way of one."""
import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading

import pytest

from carrel import PROGRAM


def cli(daemon, *words, run=None, **kw):
    env = {"PATH": os.environ["PATH"], "CARREL_HOME": str(daemon.home), "CARREL_RUN": str(run or daemon.run_dir)}
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


def test_a_directory_is_told_apart_from_a_recipe(daemon, tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM debian:12\n")
    for path, said in ((tmp_path, "is a directory, not a recipe file"), (tmp_path / "Dockerfile", "cannot build Dockerfiles")):
        done = cli(daemon, "image", "build", path)
        assert done.returncode == 125 and said in done.stderr and "docker save NAME | carrel image import -" in done.stderr, done


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
    swap = between(b"GET /v1/images/build", lambda: conf.write_text("evil\n"))  # after the file was looked at
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
