"""Which daemon and store a command uses: variables may be missing, and other daemons may come and go."""
import json
import os
import signal
import subprocess
import time

import pytest
from carrel import BUILD, LIMIT_S, ROOTLESS
from patience import PATIENCE, clock

pytestmark = pytest.mark.skipif(ROOTLESS, reason="only root can make an ordinary user and a /run of its own")

UID, OTHER = 1_703_001, 1_703_002  # nobody's on this host
HOME, PATH = "/run/home", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
STORE = f"{HOME}/.local/share/carrel"
# All of the host's places are hidden, and all processes end with the first one.
INIT = f"""
for place in /run /tmp /var/lib; do mount -t tmpfs -o mode=1777 none $place; done
[ ! -d /etc/systemd ] || mount -t tmpfs none /etc/systemd
mount --bind {BUILD} /mnt
chmod 755 /run
install -d -m 0755 /run/user
install -d -m 0700 -o {UID} -g {UID} /run/user/{UID} /run/else {HOME}
echo ready
exec cat
"""


class World:
    """An ordinary user and root, on a host that has neither daemons nor stores."""

    def __init__(self):
        self.first = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child",
                                       "--mount-proc", "sh", "-ec", INIT], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.first.stdout.readline() == b"ready\n"
        pid = self.first.pid
        self.pid = open(f"/proc/{pid}/task/{pid}/children", encoding="ascii").read().split()[0]

    def end(self):
        self.first.kill()
        self.first.wait()
        self.first.stdin.close()
        self.first.stdout.close()

    def path(self, path):
        """A file of this world."""
        return f"/proc/{self.pid}/root{path}"

    def words(self, uid, env, words):
        ids = ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups"] if uid else []
        if "ASAN_OPTIONS" in os.environ:
            env = {**env, "ASAN_OPTIONS": os.environ["ASAN_OPTIONS"]}
        return ["nsenter", "-t", self.pid, "-m", "-p", "--wd=/", *ids, "env", "-i", f"PATH={PATH}",
                *(f"{name}={value}" for name, value in env.items()), *words]

    def run(self, uid, env, *words):
        return subprocess.run(self.words(uid, env, words), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=LIMIT_S * PATIENCE)

    def user(self, *words, **env):
        """`carrel WORDS` of the user, with no other variables than an MCP client gives, and these."""
        return self.run(UID, {"HOME": HOME, "USER": "user", **env}, "/mnt/carrel", *words)

    def root(self, *words):
        return self.run(0, {"HOME": "/root"}, "/mnt/carrel", *words)

    def notes(self, *words, **env):
        """Notes of the tokens of the daemon that the user gets: they tell daemons apart."""
        done = self.user("token", "ls", "--json", *words, **env)
        assert done.returncode == 0, done
        return [token["note"] for token in json.loads(done.stdout)["tokens"]]

    def kill(self, run):
        """Ends the daemon of a run directory."""
        pid = open(self.path(f"{run}/carrel.pid"), encoding="ascii").read().strip()
        assert self.run(0, {}, "kill", "-KILL", pid).returncode == 0
        self.until(lambda: self.run(0, {}, "sh", "-c", f"! kill -0 {pid} || grep -q zombie /proc/{pid}/status").returncode == 0)

    def until(self, done):
        end = clock() + LIMIT_S
        while not done():
            assert clock() < end
            time.sleep(0.02)

    def serve(self):
        """Root's daemon, as a service."""
        process = subprocess.Popen(self.words(0, {"HOME": "/root"}, ["/mnt/carrel", "serve"]), stdin=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        self.until(lambda: os.path.exists(self.path("/run/carrel/carrel.pid")))
        return process

    def stop(self, process):
        self.kill("/run/carrel")
        process.wait()
        os.unlink(self.path("/run/carrel/carrel.pid"))


@pytest.fixture
def world():
    w = World()
    yield w
    w.end()


def make(world, note, **env):
    """A store with a token of that note."""
    done = world.user("token", "new", "--note", note, **env)
    assert done.returncode == 0, done
    return done


def test_a_client_without_variables_finds_the_daemon_in_run_user(world):
    make(world, "mine", XDG_RUNTIME_DIR=f"/run/user/{UID}")
    assert world.notes() == ["mine"]


def test_a_client_without_variables_finds_the_daemon_in_any_run_directory(world):
    make(world, "mine", XDG_RUNTIME_DIR="/run/else")
    assert world.notes() == ["mine"]
    assert world.notes(XDG_RUNTIME_DIR=f"/run/user/{UID}") == ["mine"]


def test_a_variable_that_names_the_directory_of_another_user_is_ignored(world):
    os.mkdir(world.path("/run/other"), 0o700)
    make(world, "mine", XDG_RUNTIME_DIR="/run/other")
    assert os.path.exists(world.path(f"/run/user/{UID}/carrel/carrel.sock"))


def test_a_client_without_variables_makes_no_second_store(world):
    make(world, "mine", XDG_DATA_HOME="/run/else")
    assert world.notes() == ["mine"]
    world.kill(f"/run/user/{UID}/carrel")
    assert world.notes() == ["mine"]
    assert not os.path.exists(world.path(STORE))


def test_a_new_store_is_announced_once(world):
    said = f"carrel: created store '{STORE}'\n"
    assert make(world, "mine").stderr == said
    assert make(world, "more").stderr == ""
    world.kill(f"/run/user/{UID}/carrel")
    assert make(world, "again").stderr == ""
    named = make(world, "named", CARREL_HOME="/run/else/home", CARREL_RUN="/run/else/run")
    assert named.stderr == ""


def test_a_user_with_a_store_keeps_it_whether_root_serves_or_not(world):
    make(world, "mine")
    world.kill(f"/run/user/{UID}/carrel")
    served = world.serve()
    assert world.notes() == ["mine"]
    world.stop(served)
    assert world.notes() == ["mine"]


def test_a_user_without_a_store_uses_the_daemon_for_all_users_also_after_it_stopped(world):
    served = world.serve()
    make(world, "at root's")
    world.stop(served)
    refused = world.user("token", "ls")
    assert refused.returncode == 125 and "daemon for all users of this host is not running" in refused.stderr, refused
    served = world.serve()
    assert world.notes() == ["at root's"]
    world.stop(served)
    assert not os.path.exists(world.path(STORE))


def test_a_daemon_that_a_command_of_root_started_is_not_for_all_users(world):
    assert world.root("token", "new", "--note", "root's").returncode == 0
    make(world, "mine")
    assert world.notes() == ["mine"] and os.path.exists(world.path(STORE))


def test_an_empty_list_says_that_root_has_a_daemon_of_its_own(world):
    assert "root" not in world.user("ls").stderr
    assert world.root("token", "new", "--note", "root's").returncode == 0
    listed = world.user("ls")
    assert listed.returncode == 0 and f"no machines in store '{STORE}'" in listed.stderr, listed
    assert "sudo carrel ls" in listed.stderr, listed


def daemon_row(world, **env):
    done = world.user("doctor", "--json", **env)
    return next(row for row in json.loads(done.stdout)["checks"] if row["name"] == "daemon")


def test_doctor_says_which_daemon_and_why(world):
    row = daemon_row(world)
    assert row["found"] == f"your own: run directory /run/user/{UID}/carrel (/run/user), store {STORE} (HOME)"
    assert row["used"] == "because this host has no daemon for all users"
    served = world.serve()
    row = daemon_row(world)
    assert row["found"] == "the daemon for all users, in /run/carrel"
    assert row["used"] == "because you have no store, and this host has a daemon for all users"
    row = daemon_row(world, CARREL_RUN="/run/else/run")
    assert "run directory /run/else/run (CARREL_RUN)" in row["found"] and row["used"] == "because CARREL_RUN is set"
    world.stop(served)


LISTEN = """
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
os.mkdir(sys.argv[1], 0o755)
s.bind(sys.argv[1] + "/carrel.sock")
os.chmod(sys.argv[1] + "/carrel.sock", 0o777)
s.listen()
print("listens", flush=True)
c, _ = s.accept()
print(c.recv(10).decode(), flush=True)
c.sendall(b"HTTP/1.1 418 Caught\\r\\nContent-Length: 0\\r\\n\\r\\n")
c.recv(1)
"""


@pytest.mark.parametrize("maker,connects", [(OTHER, False), (UID, True)], ids=["another-user", "control"])
def test_a_run_directory_that_another_user_made_in_tmp_gets_no_request(world, maker, connects):
    os.rmdir(world.path(f"/run/user/{UID}"))
    server = subprocess.Popen(world.words(maker, {}, ["/usr/bin/python3", "-c", LISTEN, f"/tmp/carrel-{UID}"]),
                              stdout=subprocess.PIPE, text=True)
    assert server.stdout.readline() == "listens\n"
    done = world.user("token", "ls")
    assert done.returncode == 125, done
    if connects:
        assert server.stdout.readline() and "418" in done.stderr, done
    else:
        assert f"'/tmp/carrel-{UID}' is not a private directory of this user" in done.stderr, done
    server.send_signal(signal.SIGKILL)
    server.wait()
    server.stdout.close()
