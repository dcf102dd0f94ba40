"""carrel ship --return, whose daemon dies before it answers: the run has the comment once, and goes on."""
import contextlib
import socket
import subprocess

import pytest

from carrel import PROGRAM
from daemon import Daemon
from patience import PATIENCE
from runs import Runs, finish, run, turns
from test_return import Door

ENDS_TWICE = turns([run("echo good > a")], [finish("partial")], [run("echo better >> a")], [finish("partial", summary="Better.")])
RETURNED = "Your work was reviewed and returned with this comment:\nBetter, please."


class LossyDoor(Door):
    """Loses the answer to a request that has these bytes."""
    lost = None  # the bytes, and what happens instead
    asked = ()  # the connection that had them

    def copy(self, a, b, asks):
        seen = b""
        with contextlib.suppress(OSError):
            while data := a.recv(65536):
                seen = seen[-100:] + data
                if asks and self.lost and self.lost[0] in seen:
                    self.asked = (b, a)
                if not asks and self.lost and self.asked == (a, b):
                    happens, self.lost = self.lost[1], None
                    happens()
                    break
                b.sendall(data)
        for s in (a, b):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def behind(request):
    """A daemon behind a door, a machine on which a run has ended, and who returns it through the door."""
    d = Daemon("--listen", "127.0.0.1:0")
    door = request.param(d)
    m = d.machine(name="work")
    token = d.post("/v1/tokens", {"scopes": ["read", "run", "admin"]})["secret"]
    env = {**d.env, "CARREL_RUN": str(d.dir / "none"), "CARREL_URL": door.url, "CARREL_TOKEN": token, "CARREL_WAIT": "300"}
    ended, _ = Runs(d).play(ENDS_TWICE, machine=m)
    assert ended["report"]["summary"] == "Not all is done."

    def give_back():
        return subprocess.run([PROGRAM, "ship", "work", "--return", "Better, please."], env=env, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=60 * PATIENCE)

    yield d, door, m, ended["id"], give_back
    door.close()
    d.stop()


def went_on_once(d, m, r):
    runs = Runs(d)
    d.until(lambda: runs.show(r)["state"] == "ended" and (runs.show(r)["report"] or {}).get("summary") == "Better.", 60)
    assert d.exec(m, "cat a")["stdout"] == "good\nbetter\n"
    return [e["text"] for e in runs.transcript(r) if e["event"] == "return"] == [RETURNED]


@pytest.mark.parametrize("behind", [Door, LossyDoor], ids=["before", "after"], indirect=True)
def test_a_run_is_returned_once_though_the_daemon_died(behind):
    """Before the daemon heard of it, or once it has done it: the client asks the next one."""
    d, door, m, r, give_back = behind

    def dies():
        d.kill()
        d.start()

    door.trap = door.lost = (f"/v1/runs/{r}/resume".encode(), dies)
    done = give_back()
    assert None in (door.trap, door.lost), "the daemon did not die"
    assert done.returncode == 0 and f"comment sent: run {r} " in done.stdout, done
    assert went_on_once(d, m, r)


@pytest.mark.parametrize("behind", [Door], ids=["there"], indirect=True)
def test_a_return_with_the_same_key_is_the_same_return(behind):
    """Also when the run has ended again. One with another key, the control, is another return."""
    d, _, m, r, _ = behind
    url, asked = f"/v1/runs/{r}/resume", {"comment": "Better, please.", "key": "k-once"}
    assert d.post(url, asked)["id"] == r
    assert d.post(url, asked)["id"] == r
    assert went_on_once(d, m, r)
    again = d.post(url, asked)
    assert again["state"] == "ended" and again["report"]["summary"] == "Better."
    assert went_on_once(d, m, r)
    d.post(url, {**asked, "key": "k-other"})
    runs = Runs(d)
    runs.wait(r)
    assert [e["text"] for e in runs.transcript(r) if e["event"] == "return"] == [RETURNED] * 2
