"""Rules for ranges of addresses. Each attack has a control: the same connection under a rule that allows it."""
import os
import subprocess
import sys

import pytest

from carrel import ROOTLESS
from daemon import Refused
from test_attacks import PRELUDE

NET = f"10.231.{os.getpid() % 250}"
SERVER = """import http.server, sys
class Web(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"beyond")
    def log_message(self, *_): pass
sys.stdin.readline()
http.server.ThreadingHTTPServer(("0.0.0.0", 8080), Web).serve_forever()
"""


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def beyond():
    """A host of its own at NET.2, on the other side of a cable."""
    if ROOTLESS:
        pytest.skip("an ordinary user cannot add a network interface")
    name = f"cr{os.getpid() % 100000}"
    p = subprocess.Popen(["unshare", "--net", sys.executable, "-c", SERVER], stdin=subprocess.PIPE)
    try:
        ip("link", "add", name, "type", "veth", "peer", "name", name + "p")
        while subprocess.run(["ip", "link", "set", name + "p", "netns", str(p.pid)], capture_output=True).returncode == 0:
            if os.readlink(f"/proc/{p.pid}/ns/net") != os.readlink("/proc/self/ns/net"):
                break
        ip("addr", "add", NET + ".1/24", "dev", name)
        ip("link", "set", name, "up")
        for words in (("addr", "add", NET + ".2/24", "dev", name + "p"), ("link", "set", name + "p", "up"), ("link", "set", "lo", "up")):
            subprocess.run(["nsenter", "--net", "-t", str(p.pid), "ip", *words], check=True)
        p.stdin.write(b"\n")
        p.stdin.flush()
        subprocess.run(["curl", "-fsS", "--noproxy", "*", "--retry", "20", "--retry-connrefused", "--retry-delay", "1", f"http://{NET}.2:8080/"], check=True,
                       capture_output=True)
        yield NET + ".2"
    finally:
        p.kill()
        p.wait()
        subprocess.run(["ip", "link", "del", name], capture_output=True)


def tries(gated, rules, script):
    box = gated.machine(net=rules)
    done = gated.python(box, PRELUDE + script, timeout="30s")
    assert done["exec"]["status"] == 0, done
    return done["stdout"]


def rule(target, action="allow", local=True):
    return {"target": target, "action": action, "local": local}


def test_a_range_opens_the_addresses_in_it_and_no_others(gated, beyond, count_attack):
    get = f"say(get('{beyond}', 8080))"
    assert "beyond" in tries(gated, [rule(f"{NET}.0/24:8080")], get)
    assert "beyond" in tries(gated, [rule(f"tcp://{NET}.2/31:8080")], get)
    assert "no rule allows the request" in tries(gated, [rule(f"{NET}.128/25:8080")], get)
    assert "denied by a rule" in tries(gated, [rule(f"{NET}.0/24:8080"), rule(f"{NET}.2/31:8080", "deny")], get)
    told = tries(gated, [rule(f"{NET}.0/24:8080", local=False)], get)
    assert "resolves to a private address" in told and "--local" in told
    count_attack()


@pytest.mark.parametrize("range, host", [
    ("127.0.0.0/7", "127.0.0.1"), ("0.0.0.0/1", "0.0.0.0"), ("0.0.0.0/1", "127.0.0.1"), ("128.0.0.0/1", "169.254.169.254"), ("169.254.0.0/15", "169.254.9.9")])
def test_a_range_never_leads_to_this_host_or_its_link(gated, servers, count_attack, range, host):
    """Through the proxy, because elsewhere a loopback address is that of the machine itself."""
    ask = (f"say(dial('127.0.0.1', 3128, b'GET http://{host}:{servers.http}/ HTTP/1.1\\r\\nHost: {host}:{servers.http}\\r\\nConnection: close\\r\\n\\r\\n'))")
    told = tries(gated, [rule(f"{range}:{servers.http}")], ask)
    assert " 403 " in told and "an address of this host or its link: no range allows it" in told
    if not host.startswith("169"):
        assert " 200 " in tries(gated, [rule(f"*:{servers.http}")], ask)
    count_attack()


def test_a_range_does_not_open_an_address_of_this_host(gated, beyond, count_attack):
    server = subprocess.Popen([sys.executable, "-c", SERVER.replace("0.0.0.0", NET + ".1")], stdin=subprocess.PIPE)
    try:
        server.stdin.close()
        get = f"import time\nfor _ in range(50):\n    out = get('{NET}.1', 8080)\n    if ' 200 ' in out or ' 403 ' in out: break\n    time.sleep(.2)\nsay(out)"
        assert "beyond" in tries(gated, [rule(f"{NET}.1:8080")], get)
        assert "no range allows it" in tries(gated, [rule(f"{NET}.0/24:8080")], get)
    finally:
        server.kill()
        server.wait()
    count_attack()


def test_a_denied_range_is_denied_by_name_too(gated, servers, count_attack):
    get = f"say(get('ok.test', {servers.http}))"
    every = rule(f"*:{servers.http}")
    assert " 200 " in tries(gated, [every], get)
    told = tries(gated, [every, rule(f"127.0.0.0/8:{servers.http}", "deny")], get)
    assert " 403 " in told and f"host 'ok.test' leads to an address that rule 2 denies: 127.0.0.0/8:{servers.http}" in told
    assert " 200 " in tries(gated, [every, rule(f"127.0.0.0/8:{servers.http}", "deny"), rule(f"ok.test:{servers.http}")], get)
    mapped = (f"say(dial('127.0.0.1', 3128, b'GET http://[::ffff:127.0.0.1]:{servers.http}/ HTTP/1.1\\r\\nHost: [::ffff:127.0.0.1]:{servers.http}\\r\\n"
              "Connection: close\\r\\n\\r\\n'))")
    assert " 200 " in tries(gated, [every], mapped)
    assert " 403 " in tries(gated, [every, rule(f"127.0.0.0/8:{servers.http}", "deny")], mapped)
    count_attack()


def test_a_range_denied_later_closes_connections(gated, servers):
    box = gated.machine(net=[rule(f"*:{servers.http}"), rule(f"tcp://ok.test:{servers.tcp}")])
    script = PRELUDE + f"""
import os
s = socket.create_connection(("ok.test", {servers.http})); s.settimeout(20)
ask = b"GET / HTTP/1.1\\r\\nHost: ok.test:{servers.http}\\r\\nAccept: application/json\\r\\n\\r\\n"
t = socket.create_connection(("ok.test", {servers.tcp})); t.settimeout(20)
def get():
    s.sendall(ask); out = s.recv(65536)
    while not out.rstrip().endswith(b"}}"): out += s.recv(65536)
    return out[9:12].decode()
print(get(), t.recv(6).decode(), flush=True)
os.mkfifo("/tmp/go"); open("/tmp/go").read()
print(get())
try: print("tunnel", t.recv(6))
except ConnectionResetError: print("reset")
"""
    started = gated.background(box, ["python3", "-c", script])
    gated.until(lambda: gated.exec(box, "test -p /tmp/go")["exec"]["status"] == 0, 20)
    for port in (servers.http, servers.tcp):
        gated.post(f"/v1/machines/{box}/net/rules", rule(f"tcp://127.0.0.0/8:{port}", "deny"))
    gated.exec(box, "echo >/tmp/go")
    gated.wait(box, started)
    out = gated.get(f"/v1/machines/{box}/execs/{started}/output").decode()
    assert "403" in out and out.endswith("reset\n")


@pytest.mark.parametrize("target, why", [
    ("127.0.0.0/8", "has no effect"), ("127.1.0.0/16:80", "has no effect"), ("169.254.0.0/16", "has no effect"), ("0.0.0.0/0", "not a valid target"),
    ("10.0.0.0/33", "not a valid target"), ("10.0.0.0/8/9", "not a valid target")])
def test_a_range_without_effect_is_refused(gated, target, why):
    box = gated.machine()
    with pytest.raises(Refused) as refused:
        gated.post(f"/v1/machines/{box}/net/rules", {"target": target, "local": True})
    assert refused.value.status == 400 and why in str(refused.value)
