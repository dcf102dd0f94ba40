"""Exposed ports below a domain, and public ones."""
import json
import socket
import subprocess

import pytest

from carrel import PROGRAM
from daemon import Daemon, Refused
from test_expose import Exposing, with_server

DOMAIN = "boxes.example.com"


class Below(Exposing):
    domain = DOMAIN


@pytest.fixture(scope="module")
def daemon():
    d = Below()
    yield d
    d.stop()


@pytest.fixture(scope="module")
def box(daemon):
    return with_server(daemon)


@pytest.fixture
def expose(daemon, box):
    """Exposes ports, which are closed at the end."""
    ports = set()

    def one(port=8000, **fields):
        ports.add(port)
        return daemon.post(f"/v1/machines/{box}/exposures", {"port": port, **fields})

    yield one
    for port in ports:
        daemon.delete(f"/v1/machines/{box}/exposures/{port}")


@pytest.fixture
def label(box):
    return box.replace("-", "")


def status(daemon, box, host, **headers):
    return daemon.visit(box, host=host, **headers)[0].status


def test_a_url_has_the_label_and_the_domain(daemon, box, label, expose):
    made = expose()
    assert made["url"] == f"http://8000-{label}.{DOMAIN}:{daemon.ingress}/?carrel_token={made['token']}"
    for host in (f"8000-{label}.{DOMAIN}", f"8000-{label}.{DOMAIN}:{daemon.ingress}", f"8000-{box}.{DOMAIN}", f"8000-{label}.localhost",
                 f"8000-{label}.{DOMAIN}".upper()):
        assert status(daemon, box, host) == 401
        assert status(daemon, box, host, Carrel_Token=made["token"]) == 200, host


def test_foreign_names_lead_nowhere(daemon, box, label, expose):
    token = expose()["token"]
    for host in (f"8000-{label}.evil.example", f"8000-{label}.{DOMAIN}.evil.example", f"8000-{label}.evil.{DOMAIN}", f"8000-{label}.example.com",
                 f"8000-{label}x{DOMAIN}", f"x.8000-{label}.{DOMAIN}", f"8000-{label}.{DOMAIN}.", DOMAIN, f"8001-{label}.{DOMAIN}", "127.0.0.1"):
        assert status(daemon, box, host, Carrel_Token=token) == 404, host


def test_a_name_without_a_port_means_the_only_one(daemon, box, label, expose):
    host = f"{label}.{DOMAIN}"
    assert status(daemon, box, host) == 404
    made = expose()
    assert status(daemon, box, host, Carrel_Token=made["token"]) == 200
    assert status(daemon, box, host) == 401
    expose(8001, public=True)
    assert status(daemon, box, host, Carrel_Token=made["token"]) == 404, "which one is not known"


def test_a_public_port_needs_no_token(daemon, box, label, expose):
    made = expose(public=True)
    assert made["url"] == f"http://8000-{label}.{DOMAIN}:{daemon.ingress}/" and made["public"] and "token" not in made
    host = f"8000-{label}.{DOMAIN}"
    for headers in ({}, {"Carrel_Token": "of something else"}, {"Cookie": "a=1; carrel_expose=stale"}):
        answer, text = daemon.visit(box, "/?x=1&carrel_token=stale", host=host, **headers)
        seen = json.loads(text)
        assert answer.status == 200 and seen["path"] == "/?x=1" and "stale" not in text.decode() and "Carrel-Token" not in seen["headers"]
    shown = {k: made[k] for k in ("port", "url", "direct_url", "headers", "public")}
    assert daemon.get(f"/v1/machines/{box}/exposures")["exposures"] == [shown]
    assert any(n.get("detail") == {"port": 8000, "public": True} for n in daemon.audit(box, "expose.open"))


def test_a_public_port_becomes_private_again(daemon, box, label, expose):
    host = f"8000-{label}.{DOMAIN}"
    expose(public=True)
    made = expose()
    assert made["replaced"] and status(daemon, box, host) == 401
    assert status(daemon, box, host, Carrel_Token="") == 401, "the empty token is that of public ports"
    assert status(daemon, box, host, Cookie="carrel_expose=") == 401
    assert status(daemon, box, host, Carrel_Token=made["token"]) == 200


def test_public_and_private_ports_outlive_the_daemon(daemon, box, label, expose):
    expose(8001)
    expose(public=True)
    daemon.restart()
    assert status(daemon, box, f"8000-{label}.{DOMAIN}") == 200
    assert status(daemon, box, f"8001-{label}.{DOMAIN}") == 401


def test_a_public_port_of_a_tainted_guarded_machine_is_closed(daemon):
    box = daemon.machine(guard=True)
    daemon.post(f"/v1/machines/{box}/exposures", {"port": 8000, "public": True})
    host = f"8000-{box}.{DOMAIN}"
    assert status(daemon, box, host) == 502, "the control: nothing answers in the machine"
    daemon.post(f"/v1/machines/{box}/grants", {"kind": "env", "what": "A", "value": "b", "untrusted": True})
    assert status(daemon, box, host) == 403


def open_socket(daemon, host, origin):
    s = socket.create_connection(("127.0.0.1", daemon.ingress), timeout=20)
    s.sendall("\r\n".join(["GET / HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
                           "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", f"Origin: {origin}", "", ""]).encode())
    with s:
        return int(s.recv(100).split()[1])


def test_pages_of_any_origin_may_use_a_public_port(daemon, box, label, expose):
    expose(public=True)
    assert open_socket(daemon, f"8000-{label}.{DOMAIN}", "https://pages.example") == 101


def test_the_command_makes_a_port_public(daemon, box, label):
    def carrel(*words):
        return subprocess.run([PROGRAM, "expose", *words], env=daemon.env, capture_output=True, text=True, timeout=60)

    url = f"http://8000-{label}.{DOMAIN}:{daemon.ingress}/\n"
    assert carrel("--public", box, "8000").stdout == url
    assert carrel(box).stdout == url
    assert carrel(box, "rm", "8000").returncode == 0
    for words in (["--public", box], ["--public", box, "rm", "8000"]):
        assert "--public works only with a port" in carrel(*words).stderr


def test_only_the_owner_makes_a_port_public(daemon, box):
    with pytest.raises(Refused) as e:
        daemon.tcp(scopes=["read", "run"]).post(f"/v1/machines/{box}/exposures", {"port": 8000, "public": True})
    assert e.value.status == 403


@pytest.mark.parametrize("domain", ["*.example.com", "Example.com", "example..com", ".com", "-a.com", "a b", "http://example.com", "example.com:80"])
def test_a_malformed_domain_is_refused(daemon, domain):
    conf = daemon.dir / "other.conf"
    conf.write_text(f"[gate]\ndomain = {domain}\n")
    done = subprocess.run([*Daemon.program, "--conf", str(conf)] if isinstance(Daemon.program, list) else [Daemon.program, "--conf", str(conf)],
                          env=daemon.env, capture_output=True, text=True, timeout=60)
    assert done.returncode and "is not a domain" in done.stderr
