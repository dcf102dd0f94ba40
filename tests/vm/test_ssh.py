"""`carrel ssh` into a vm: the same promises as in a box, over the vm's own network."""
import hashlib
import os

import pytest

import ssh_client


@pytest.fixture(scope="module")
def client(daemon, tmp_path_factory):
    return ssh_client.Client(daemon, tmp_path_factory.mktemp("keys"))


def test_a_command_runs_in_a_vm_and_copies_are_whole(client, daemon, vm, tmp_path):
    done = client.ssh(vm, "hostname; id -un; exit 3")
    assert (done.returncode, done.stdout) == (3, b"shared\nuser\n"), done.stderr
    host, config = client.config("shared")
    source = tmp_path / "source"
    source.write_bytes(os.urandom(3_000_000))
    copy = client.run("scp", "-q", "-F", config, source, f"{host}:copied")
    assert copy.returncode == 0, copy.stderr
    wanted = hashlib.sha256(source.read_bytes()).hexdigest()
    assert daemon.exec(vm, "sha256sum copied")["stdout"].split()[0] == wanted
    daemon.until(lambda: not daemon.exec(vm, "pgrep -x sshd; true")["stdout"])
