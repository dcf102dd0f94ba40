"""The network of a box without a rule: everything is refused, and at once."""
import json

import pytest
from patience import PATIENCE

PROBE = r"""
import errno, json, socket, time
results = {}
def attempt(name, act):
    began = time.monotonic()
    try:
        act(); outcome = "ok"
    except OSError as e:
        outcome = errno.errorcode.get(e.errno, str(e))
    results[name] = [outcome, time.monotonic() - began]
def tcp(host, port, family=socket.AF_INET):
    s = socket.socket(family); s.settimeout(5); s.connect((host, port)); s.sendall(b"carrel?!"); s.recv(1)
def udp(host, port, family=socket.AF_INET, connect=False):
    s = socket.socket(family, socket.SOCK_DGRAM)
    if connect:
        s.connect((host, port)); s.send(b"x")
    else:
        s.sendto(b"x", (host, port))
def own_server(host, family=socket.AF_INET):
    s = socket.socket(family); s.bind((host, 0)); s.listen(); c = socket.socket(family)
    c.connect(s.getsockname()[:2] if host not in ("0.0.0.0", "::") else ("127.0.0.1", s.getsockname()[1])); s.accept()
def bind(port):
    socket.socket().bind(("0.0.0.0", port))
attempt("tcp", lambda: tcp("203.0.113.1", 443))
attempt("tcp synthetic", lambda: tcp("198.18.0.9", 80))
attempt("tcp mapped", lambda: tcp("::ffff:203.0.113.1", 443, socket.AF_INET6))
attempt("tcp6", lambda: tcp("2001:db8::1", 443, socket.AF_INET6))
attempt("udp", lambda: udp("203.0.113.1", 53))
attempt("udp connected", lambda: udp("203.0.113.1", 443, connect=True))
attempt("udp6", lambda: udp("2001:db8::1", 53, socket.AF_INET6))
attempt("multicast", lambda: udp("239.255.255.250", 1900))
attempt("ping", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP))
attempt("own server", lambda: own_server("127.0.0.1"))
attempt("own server on all addresses", lambda: own_server("0.0.0.0"))
attempt("own server by IPv6", lambda: own_server("::1", socket.AF_INET6))
attempt("port 80", lambda: bind(80))
attempt("where the gate listens", lambda: tcp("127.0.0.1", 3129))
attempt("transparent", lambda: socket.socket().setsockopt(socket.IPPROTO_IP, 19, 1))
attempt("mark", lambda: socket.socket().setsockopt(socket.SOL_SOCKET, 36, 1))
attempt("an address of its own", lambda: socket.getaddrinfo("198.18.0.1", 80, socket.AF_INET, 0, 0, socket.AI_ADDRCONFIG))
print(json.dumps(results))
"""

WANTED = {
    "tcp": {"ECONNRESET"}, "tcp synthetic": {"ECONNRESET"}, "tcp mapped": {"ECONNRESET"}, "tcp6": {"ENETUNREACH"},
    "udp": {"EPERM"}, "udp connected": {"EPERM"}, "udp6": {"ENETUNREACH"}, "multicast": {"EPERM", "ENETUNREACH"},
    "ping": {"EACCES", "EPERM"}, "raw": {"EPERM"}, "own server": {"ok"}, "own server on all addresses": {"ok"},
    "own server by IPv6": {"ok"}, "port 80": {"ok"}, "where the gate listens": {"ECONNRESET"},
    "transparent": {"EPERM"}, "mark": {"EPERM"}, "an address of its own": {"ok"},
}
# Where the kernel cannot steer there is no route at all.
WANTED_PLAIN = {**WANTED, **{name: {"ENETUNREACH"} for name in
                             ("tcp", "tcp synthetic", "tcp mapped", "udp", "udp connected", "multicast")}}


@pytest.fixture(scope="module")
def outcomes(carrel_session):
    """What became of each attempt and how long it took; and what can be expected of this host."""
    done = carrel_session.run("--", "python3", "-c", PROBE)
    assert done.returncode == 0, done.stderr
    steered = carrel_session.status()["network"] == "steered"
    return json.loads(done.stdout), WANTED if steered else WANTED_PLAIN


@pytest.mark.parametrize("name", WANTED)
def test_without_a_rule(outcomes, name):
    attempts, wanted = outcomes
    outcome, seconds = attempts[name]
    assert outcome in wanted[name]
    assert seconds < 0.5 * PATIENCE, "refused, but not at once"


def test_the_doctor_says_how_connections_are_steered(carrel, outcomes):
    rows = json.loads(carrel("doctor", "--json").stdout)["checks"]
    row = next(r for r in rows if r["name"] == "network")
    assert row["verdict"] == ("ok" if outcomes[1] is WANTED else "less")
