"""A daemon that a command started stays for the programs that have a key, at the same address."""
import time

import pytest

from daemon import Daemon
from e2b_client import E2b


@pytest.fixture
def idle():
    """It ends after an idle second."""
    d = Daemon("--idle-ms", "1000")
    yield d
    if d.process.poll() is not None:
        d.start()
    d.stop()


def has_ended(d):
    return d.process.poll() is not None


def test_daemon_with_a_key_stays_until_the_key_is_revoked(idle):
    client = E2b.of(idle)
    time.sleep(4)
    assert client.list()[0] == []
    token, = idle.get("/v1/tokens")["tokens"]
    idle.delete(f"/v1/tokens/{token['id']}")
    idle.until(lambda: has_ended(idle))  # control: it ends without one
    assert idle.process.wait() == 0


def test_next_daemon_has_the_address_of_the_last_one(idle):
    client = E2b.of(idle)
    idle.restart()
    assert client.list()[0] == []
    # After a reboot the run directory is empty: another program may have the port meanwhile.
    idle.end()
    (idle.run_dir / "console.json").unlink()
    idle.start()
    assert E2b(f"http://127.0.0.1:{idle.port}", client.key).list()[0] == []
