"""What tests of `carrel ssh` share: a user of OpenSSH with a directory of keys."""
import os
import shutil
import subprocess

import pytest

from carrel import PROGRAM
from patience import PATIENCE

SECONDS = 120 * PATIENCE
SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")


class Client:
    def __init__(self, daemon, data):
        if not SSHD:
            pytest.skip("openssh-server is not installed, so machines of the image 'host' have no sshd")
        self.data = data
        self.env = {**daemon.env, "XDG_DATA_HOME": str(data)}

    def run(self, *words, **options):
        return subprocess.run(list(map(str, words)), env=self.env, capture_output=True, timeout=SECONDS,
                              **({"stdin": subprocess.DEVNULL} if "input" not in options else {}), **options)

    def ssh(self, *words, **options):
        return self.run(PROGRAM, "ssh", *words, **options)

    def config(self, machine):
        """The name of the host, and the file with its lines."""
        done = self.ssh("--config", machine)
        assert done.returncode == 0, done.stderr
        path = self.data / f"{machine}.conf"
        path.write_bytes(done.stdout)
        return done.stdout.split()[1].decode(), path
