"""A machine that is refused all the time must not fill the host's disk with records of it."""
import pytest

from conftest import Gated

TRIES = 60
# A window of a minute may turn once while this runs on a slow host.
MOST = 20

ASK = f"""import socket
told = 0
for i in range({TRIES}):
    try:
        with socket.create_connection(("203.0.113.7", 80)) as s:
            s.sendall(b"GET / HTTP/1.1\\r\\nHost: 203.0.113.7\\r\\n\\r\\n")
            told += s.recv(12) == b"HTTP/1.1 403"
    except ConnectionResetError:
        pass
print(told)
"""


@pytest.mark.parametrize("refusals", [10, 100000])
def test_refusals_are_explained_ten_times_a_minute_and_then_counted(servers, refusals):
    d = Gated(servers.dir / "ca.pem", refusals)
    try:
        box = d.machine()
        told = int(d.python(box, ASK)["stdout"])
        d.delete(f"/v1/machines/{box}")  # the count of a window that did not end is told with the machine's end
        notes = d.notes(box, verb="net.deny", count=min(refusals, TRIES))

        def accounted():
            notes = d.notes(box, verb="net.deny")
            counts = [n["detail"]["count"] for n in notes if "count" in n["detail"]]
            one_by_one = [n for n in notes if "host" in n["detail"]]
            return (one_by_one, counts) if len(one_by_one) + sum(counts) >= TRIES else None

        notes, counts = d.until(accounted)
        assert len(notes) + sum(counts) == TRIES
        assert told == len(notes)
        if refusals == 10:
            assert 10 <= len(notes) <= MOST and counts
        else:  # the control: without the limit each refusal is one record
            assert len(notes) == TRIES and not counts
    finally:
        d.stop()
