"""Requests that mean one sandbox to us and another to a program: by header, by host name, and both. Each has a control."""
import json
import re
import socket

import pytest

from e2b_client import E2bError
from test_ports import serve


@pytest.fixture(scope="module")
def two(server, e2b):
    yield serve(server, e2b.create()), serve(server, e2b.create())
    server.clear()


def answers(port, text):
    """The statuses of all answers, and the last body, until the connection ends or nothing comes for a second."""
    s = socket.create_connection(("127.0.0.1", port), timeout=60)
    s.sendall(text.replace("\n", "\r\n").encode())
    out, s_timeout = b"", 60
    try:
        while piece := s.recv(65536):
            out += piece
            s.settimeout(s_timeout := 1)
    except (TimeoutError, ConnectionResetError):
        assert s_timeout == 1, "there was no answer"
    s.close()
    return [int(n) for n in re.findall(rb"HTTP/1\.1 (\d{3}) ", out)], out.rpartition(b"\r\n\r\n")[2]


BY_HEADER = "GET /x HTTP/1.1\nHost: localhost\nE2b-Sandbox-Id: {a}\nE2b-Sandbox-Port: 8000\nConnection: close\n\n"


def by_header(e2b, two, text):
    return answers(e2b.url.port, text.format(a=two[0]["sandboxID"], b=two[1]["sandboxID"], key=e2b.key, token=two[0]["envdAccessToken"]))


def test_control_by_header(e2b, two):
    status, body = by_header(e2b, two, BY_HEADER)
    assert status == [200] and json.loads(body)["path"] == "/x"


@pytest.mark.parametrize("old, new, status", [
    ("E2b-Sandbox-Id: {a}", "E2b-Sandbox-Id: {a}\nE2b-Sandbox-Id: {b}", 502),
    ("Port: 8000", "Port: 8000\nE2b-Sandbox-Port: 49983", 502),
    *(("Port: 8000", f"Port: {port}", 502) for port in ("0", "65536", "-1", "+8000", "0x1f40", "8000,49983", "8000 49983", "")),
    ("GET /x", "GET http://8000-{b}.localhost/x", 403),
    ("\n\n", "\nContent-Length: 4\nTransfer-Encoding: chunked\n\n0\n\nGET /x HTTP/1.1\nHost: localhost\n\n", 400),
    ("\n\n", "\nTransfer-Encoding: chunked, identity\n\n0\n\n", 400),
    ("\nE2b-Sandbox-Port", "\n E2b-Sandbox-Port", 400),
    ("Id: {a}", "Id : {a}", 400)])
def test_two_meanings_by_header_reach_nobody(e2b, two, old, new, status):
    assert old in BY_HEADER
    assert by_header(e2b, two, BY_HEADER.replace(old, new, 1))[0] == [status]


def test_a_request_within_a_body_is_a_body(e2b, two):
    inner = "GET /v2/sandboxes HTTP/1.1\nHost: localhost\nX-API-Key: {key}\n\n"
    n = len(inner.replace("\n", "\r\n").format(key=e2b.key))
    status, body = by_header(e2b, two, BY_HEADER.replace("GET", "POST").replace("\n\n", f"\nContent-Length: {n}\n\n") + inner)
    assert status == [200] and json.loads(body)["n"] == n


@pytest.mark.parametrize("fields", ["E2b-Sandbox-Id: {a}\nE2b-Sandbox-Port: 8000", "E2b-Sandbox-Id: {a}\nX-Access-Token: {token}", "X-API-Key: {key}"])
@pytest.mark.parametrize("host, allowed", [("localhost", True), ("evil.example", False), ("localhost.evil.example", False)])
def test_a_name_that_was_bound_to_this_address_opens_nothing(e2b, two, host, allowed, fields):
    """DNS rebinding: a page of evil.example reaches 127.0.0.1 under its own name, and may set all of these fields."""
    path = "/v2/sandboxes" if "API" in fields else "/metrics"
    status, body = by_header(e2b, two, f"GET {path} HTTP/1.1\nHost: {host}\n{fields}\nConnection: close\n\n")
    assert status == [200 if allowed else 403] and (allowed or b"is not a name of this server" in body)


def by_name(two, text):
    listener = int(two[0]["domain"].rsplit(":", 1)[1])
    return answers(listener, text.format(a=f"8000-{two[0]['sandboxID']}.localhost", b=f"8000-{two[1]['sandboxID']}.localhost",
                                         control=f"49983-{two[0]['sandboxID']}.localhost", id=two[1]["sandboxID"]))


@pytest.mark.parametrize("text, status", [
    ("GET /x HTTP/1.1\nHost: {a}\n\n", [200]),  # the control
    ("GET /x HTTP/1.1\nHost: {a}\n\nGET /y HTTP/1.1\nHost: {b}\n\n", [200]),
    ("GET /x HTTP/1.1\nHost: {a}\nHost: {b}\n\n", [400]),
    ("GET http://{b}/x HTTP/1.1\nHost: {a}\n\n", [404]),
    ("GET /x HTTP/1.1\nHost: {a}@{b}\n\n", [400]),
    ("GET /x HTTP/1.1\nHost: {control}\nE2b-Sandbox-Id: {id}\nE2b-Sandbox-Port: 8000\nConnection: close\n\n", [401])])
def test_a_host_name_leads_to_one_sandbox(two, text, status):
    got, body = by_name(two, text)
    assert got == status
    if status == [200]:
        told = json.loads(body)
        assert told["path"] == "/x" and two[0]["sandboxID"] in dict(told["fields"])["Host"]


def test_fields_do_not_lead_a_host_name_elsewhere(two):
    status, body = by_name(two, "GET /x HTTP/1.1\nHost: {a}\nE2b-Sandbox-Id: {id}\nE2b-Sandbox-Port: 49983\n\n")
    assert status == [200] and two[0]["sandboxID"] in dict(json.loads(body)["fields"])["Host"]


def test_client_reads_why_its_host_is_refused(e2b):
    with pytest.raises(E2bError) as refused:
        e2b.call("GET", "/v2/sandboxes", headers={"Host": "evil.example"})
    assert refused.value.status == 403 and "'evil.example' is not a name of this server" in refused.value.message
