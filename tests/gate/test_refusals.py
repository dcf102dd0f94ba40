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


# ---- what the tools print ----

# Each asks a host that no rule allows, and prints what it was told: in plain HTTP, as most mirrors are.
TOOLS = {
    "curl": "curl -sS {url}",
    "wget": "wget -T 20 -t 1 -O /dev/null {url}",
    "git": "git ls-remote {url}/x.git",
    "npm": "npm view is-number --registry {url} --no-update-notifier",
    "pip3": "pip3 download -vv --no-cache-dir --disable-pip-version-check --retries 0 --index-url {url}/simple --trusted-host other.test no-such-package",
    "apt-get": "mkdir -p a/lists/partial && echo 'deb [trusted=yes] {url} x main' > a/list && apt-get update -o Dir::Etc::SourceList=$PWD/a/list"
               " -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists=$PWD/a/lists -o APT::Sandbox::User=root",
}


@pytest.mark.parametrize("tool", TOOLS)
def test_tools_print_cause_and_remedy_of_a_refusal(gated, servers, tool):
    box = gated.machine()
    if not gated.exec(box, f"command -v {tool}")["stdout"]:
        pytest.skip(f"this host has no {tool}")
    done = gated.exec(box, "cd /tmp && " + TOOLS[tool].format(url=f"http://other.test:{servers.http}"), user="root", timeout=100)
    text = " ".join((done["stdout"] + done["stderr"]).split())  # some tools wrap lines
    assert "no rule allows the request" in text and f"carrel net {box} allow other.test:{servers.http}" in text, done
    assert "[object Object]" not in text


# ---- remedies ----


def ask(gated, box, host, port, *words):
    return gated.exec(box, ["curl", "-sS", "--max-time", "60", *words, f"http://{host}:{port}/"])["stdout"]


def test_a_refusal_names_the_remedy_of_its_cause(gated, servers):
    """Each remedy is done as it was printed, and the request passes or gets to the next cause."""
    box, port = gated.machine(guard=True), servers.http
    assert f"carrel net {box} allow other.test:{port}" in ask(gated, box, "other.test", port)
    gated.allow(box, f"other.test:{port}", local=False)
    assert f"carrel net {box} allow --local other.test:{port}" in ask(gated, box, "other.test", port)
    gated.allow(box, f"other.test:{port}", action="deny")
    rule = gated.get(f"/v1/machines/{box}/net")["rules"][-1]["id"]
    assert f"carrel net {box} rm {rule}" in ask(gated, box, "other.test", port)
    gated.delete(f"/v1/machines/{box}/net/rules/{rule}")
    gated.allow(box, f"other.test:{port}")
    gated.allow(box, f"ok.test:{port}")
    assert '"path": "/"' in ask(gated, box, "other.test", port)  # taints the machine
    assert f"carrel net {box} allow --tainted ok.test:{port}" in ask(gated, box, "ok.test", port)
    gated.allow(box, f"ok.test:{port}", tainted=True)
    assert '"path": "/"' in ask(gated, box, "ok.test", port)


def test_a_request_that_nobody_approved_in_time_names_the_remedy(gated, servers):
    box = gated.machine()
    gated.allow(box, f"ok.test:{servers.http}", action="ask", hold="1ms")
    assert "not approved in time; " in (text := ask(gated, box, "ok.test", servers.http)) and text.endswith(": carrel pending\n"), text
