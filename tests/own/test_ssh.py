"""`carrel ssh`: OpenSSH's client in a machine, through the daemon, with keys that nobody was asked about."""
import hashlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

from carrel import PROGRAM

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import ssh_client  # noqa: E402


@pytest.fixture(scope="module")
def client(daemon, tmp_path_factory):
    return ssh_client.Client(daemon, tmp_path_factory.mktemp("keys"))


def servers(daemon, box):
    return daemon.exec(box, "pgrep -x sshd; true")["stdout"].split()


def test_a_command_runs_with_its_output_and_status(client, box):
    done = client.ssh(box, "echo out; echo err >&2; cat; exit 3", input=b"in\n")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\nin\n", b"err\n")
    assert client.ssh("lab", "--", "id", "-un").stdout == b"user\n"
    assert client.ssh(box, "--user", "root", "id", "-un").stdout == b"root\n"


def test_a_session_has_the_variables_of_commands(client, daemon, box):
    daemon.post(f"/v1/machines/{box}/grants", {"kind": "env", "what": "OWN", "value": "a 'b' $c *"})
    wanted = daemon.exec(box, "echo \"$OWN $PATH $PIP_NO_INPUT\"")["stdout"]
    assert "a 'b' $c *" in wanted
    assert client.ssh(box, 'echo "$OWN $PATH $PIP_NO_INPUT"').stdout.decode() == wanted


def test_copies_are_whole(client, daemon, box, tmp_path):
    host, config = client.config("lab")
    assert host == "carrel-lab"
    source = tmp_path / "source"
    source.write_bytes(os.urandom(30_000_000))
    assert client.run("scp", "-q", "-F", config, source, f"{host}:copied").returncode == 0
    assert client.run("scp", "-q", "-F", config, f"{host}:copied", tmp_path / "back").returncode == 0
    wanted = hashlib.sha256(source.read_bytes()).hexdigest()
    assert hashlib.sha256((tmp_path / "back").read_bytes()).hexdigest() == wanted
    assert daemon.exec(box, "sha256sum copied; rm copied")["stdout"].split()[0] == wanted


@pytest.mark.skipif(not shutil.which("rsync"), reason="rsync is not installed")
def test_rsync_works_over_it(client, daemon, box, tmp_path):
    (tmp_path / "tree/below").mkdir(parents=True)
    (tmp_path / "tree/below/file").write_text("content")
    done = client.run("rsync", "-a", "-e", f"{PROGRAM} ssh", f"{tmp_path}/tree/", "lab:tree/")
    assert done.returncode == 0, done.stderr
    assert daemon.exec(box, "cat tree/below/file")["stdout"] == "content"


def test_forwarded_ports_lead_into_the_machine(client, daemon, box):
    """As editors use it: OpenSSH's own port, to a server of the machine."""
    x = daemon.background(box, ["python3", "-c", "import socket\ns = socket.create_server(('127.0.0.1', 7070))\n"
                                "print('ready', flush=True)\ns.accept()[0].sendall(b'from inside')"])
    daemon.until(lambda: "ready" in daemon.get(f"/v1/machines/{box}/execs/{x}/output", raw=True).decode())
    _, config = client.config("lab")
    done = client.run("ssh", "-F", config, "-W", "127.0.0.1:7070", "carrel-lab")
    assert done.stdout == b"from inside"


def test_two_connections_at_once_do_not_mix(client, box):
    clients = [subprocess.Popen([PROGRAM, "ssh", box, f"sleep 0.5; echo {i}"], env=client.env, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE) for i in range(4)]
    assert [c.communicate(timeout=ssh_client.SECONDS)[0] for c in clients] == [b"%d\n" % i for i in range(4)]


def test_no_process_is_left_and_the_key_is_in_no_step(client, daemon):
    m = daemon.machine()
    assert client.ssh(m, "echo kept >~/made").returncode == 0
    daemon.until(lambda: not servers(daemon, m))
    changes = [c["path"] for c in daemon.get(f"/v1/machines/{m}/diff", path="/")["changes"]]
    assert "home/user/made" in changes and not any("carrel-ssh" in path or "ssh_host" in path for path in changes)
    daemon.until(lambda: daemon.get(f"/v1/machines/{m}/steps")["steps"][0]["restorable"])
    daemon.delete(f"/v1/machines/{m}")


def test_a_client_that_is_killed_leaves_no_sshd(client, daemon, box):
    p = subprocess.Popen([PROGRAM, "ssh", "--stdio", box], env=client.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert p.stdout.read(4) == b"SSH-"
    assert servers(daemon, box)
    p.send_signal(signal.SIGKILL)
    p.communicate()
    daemon.until(lambda: not servers(daemon, box))


def test_nothing_listens_on_the_host(client, box):
    p = subprocess.Popen([PROGRAM, "ssh", "--stdio", box], env=client.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert p.stdout.read(4) == b"SSH-"
    children = pathlib.Path(f"/proc/{p.pid}/task/{p.pid}/children").read_text().split()
    held = {os.readlink(f) for pid in [p.pid, *children] for f in pathlib.Path(f"/proc/{pid}/fd").iterdir() if f.is_symlink()}
    rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    assert not [r for r in rows if r[3] == "0A" and f"socket:[{r[9]}]" in held]
    p.stdin.close()
    p.stdout.close()
    p.wait(ssh_client.SECONDS)


def test_another_key_is_refused(client, tmp_path):
    host, config = client.config("lab")
    key = tmp_path / "other"
    assert client.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).returncode == 0
    config.write_text(config.read_text().replace(str(client.data / "carrel-ssh/id_ed25519"), str(key)))
    done = client.run("ssh", "-F", config, "-o", "BatchMode=yes", host, "true")
    assert done.returncode == 255 and b"Permission denied (publickey)" in done.stderr


def test_a_new_host_key_is_known_at_once(client, daemon):
    m = daemon.machine()
    assert client.ssh(m, "true").returncode == 0
    before = (client.data / f"carrel-ssh/hosts/{m}").read_text()
    daemon.post(f"/v1/machines/{m}/stop")
    daemon.post(f"/v1/machines/{m}/resume")
    daemon.exec(m, "rm -r /dev/shm/carrel-ssh-*")
    assert client.ssh(m, "echo again").stdout == b"again\n"
    after = (client.data / f"carrel-ssh/hosts/{m}").read_text()
    assert before != after and after.count("\n") == 1 and after.startswith(f"{m} ssh-ed25519 ")
    daemon.delete(f"/v1/machines/{m}")


def test_keys_are_for_this_user_only(client, box):
    assert client.ssh(box, "true").returncode == 0
    for path in (client.data / "carrel-ssh").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_machine_without_sshd_says_so(client, daemon):
    m = daemon.machine()
    daemon.exec(m, "mkdir -p /usr/local/sbin; rm -f /usr/sbin/sshd", user="root")
    done = client.ssh("--stdio", m)
    assert done.returncode == 125
    assert done.stderr.decode().startswith(f"carrel: machine '{m}' has no sshd: install it: ")
    daemon.delete(f"/v1/machines/{m}")


def test_a_lying_machine_is_not_believed(client, daemon):
    """Its shell may print what it likes: no line of the owner's files is its own to write."""
    m = daemon.machine()
    daemon.exec(m, "printf '#!/bin/bash\\necho 22 ssh-ed25519 AAAA,evil\\n' >/tmp/sh; chmod 755 /tmp/sh; ln -sf /tmp/sh /usr/bin/sh", user="root")
    done = client.ssh("--stdio", m)
    assert done.returncode == 125 and b"wrong host key" in done.stderr, done
    assert not (client.data / f"carrel-ssh/hosts/{m}").exists()
    daemon.delete(f"/v1/machines/{m}")


def test_it_works_with_a_daemon_on_another_host(client, daemon):
    token = daemon.post("/v1/tokens", {"scopes": ["read", "run"]})["secret"]
    env = {**client.env, "CARREL_URL": f"http://127.0.0.1:{daemon.port}", "CARREL_TOKEN": token}

    def far(*words):
        return subprocess.run([PROGRAM, *words], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ssh_client.SECONDS)

    assert far("new", "--name", "far").returncode == 0
    done = far("ssh", "far", "hostname; head -c 3000000 /dev/zero | wc -c")
    assert done.stdout.split() == ["far", "3000000"], done.stderr


@pytest.mark.parametrize("words, said", [
    ((), "no machine given"), (("no-such",), "does not exist"), (("--config", "--stdio", "lab"), "exclude each other"),
    (("--config", "lab", "true"), "take only a machine"), (("--user", "a b", "lab"), "not a valid name"),
    (("--user", "nobody-here", "lab"), "nobody-here")])
def test_wrong_words_are_one_line(client, box, words, said):
    done = client.ssh(*words)
    assert done.returncode == 125 and said in done.stderr.decode() and done.stderr.count(b"\n") == 1, done.stderr
