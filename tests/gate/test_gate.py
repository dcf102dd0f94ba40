"""What a machine may reach, seen from inside it and in the journal."""
import json
import subprocess
import time

import pytest

import tally

from carrel import PROGRAM
from daemon import Refused, UnixConnection
from kinds import PROXY
from patience import PATIENCE

CURL = ["curl", "-sS", "--max-time", "20", "-H", "Accept: application/json"]


def curl(gated, machine, *words, **fields):
    return gated.exec(machine, [*CURL, *words], **fields)


def body(result):
    assert result["exec"]["status"] == 0, result
    return json.loads(result["stdout"])


@pytest.fixture
def box(gated, servers):
    servers.forget()
    return gated.machine()


# ---- allowed ----


def test_an_allowed_request_arrives_and_is_written_down(gated, servers, box):
    gated.allow(box, f"ok.test:{servers.http}")
    seen = body(curl(gated, box, f"http://ok.test:{servers.http}/a?b=c"))
    assert seen["path"] == "/a?b=c" and seen["host"] == f"ok.test:{servers.http}"
    allowed, closed = gated.notes(box, count=2)
    assert (allowed["verb"], closed["verb"]) == ("net.allow", "net.close")
    assert allowed["detail"] == {"host": "ok.test", "port": servers.http, "protocol": "http", "method": "GET",
                                 "path": "/a", "address": "127.0.0.1", "rule": 1}
    assert closed["detail"]["received"] > 100 and closed["bytes"] == closed["detail"]["sent"] + closed["detail"]["received"]


def test_rules_may_be_given_when_a_machine_is_made(gated, servers):
    m = gated.machine(net=[{"target": f"ok.test:{servers.http}", "local": True}])
    assert body(curl(gated, m, f"http://ok.test:{servers.http}/"))["path"] == "/"


@pytest.mark.parametrize("size", [0, 1, 65536, 5_000_000])
def test_bodies_go_through_both_ways(gated, servers, box, size):
    gated.allow(box, f"http://ok.test:{servers.http}")
    url = f"http://ok.test:{servers.http}"
    script = f"head -c {size} /dev/zero | tr '\\0' y >f && curl -sS --data-binary @f {url}/up -o /dev/null" \
             f" && curl -sS {url}/big/{size} | wc -c"
    assert gated.exec(box, script)["stdout"].strip() == str(size)
    assert servers.web.seen[0]["body"] == b"y" * size


def test_chunks_and_heads_and_keep_alive(gated, servers, box):
    gated.allow(box, f"ok.test:{servers.http}")
    url = f"http://ok.test:{servers.http}"
    done = curl(gated, box, f"{url}/chunks", f"{url}/chunks", "-w", " %{num_connects}\n")
    assert done["stdout"] == "one two three 1\none two three 0\n"
    done = curl(gated, box, "-I", f"{url}/x")
    assert done["stdout"].startswith("HTTP/1.1 200") and "Content-Length" in done["stdout"]
    done = curl(gated, box, "-H", "Transfer-Encoding: chunked", "-d", "some words", f"{url}/up")
    assert body(done)["body"] == "some words"


def test_a_tunnel_carries_tls_untouched(gated, servers, box):
    gated.allow(box, f"ok.test:{servers.https}")
    gated.put(f"/v1/machines/{box}/files", servers.ca.encode(), path="/home/user/ca.pem")
    seen = body(curl(gated, box, "--cacert", "/home/user/ca.pem", f"https://ok.test:{servers.https}/t"))
    assert seen["path"] == "/t"
    assert gated.notes(box)[0]["detail"]["protocol"] == "tls"


def test_a_machine_that_trusts_nobody_is_told_in_the_clear(gated, servers, box):
    """No rule, so no authority: what TLS itself can say is said, and the client prints it."""
    done = curl(gated, box, f"https://ok.test:{servers.https}/")
    assert done["exec"]["status"] == 35 and "access denied" in done["stderr"], done
    (note,) = gated.notes(box, verb="net.deny")
    assert (note["detail"]["host"], note["detail"]["protocol"]) == ("ok.test", "tls")


def test_tcp_lets_the_server_speak_first(gated, servers, box):
    gated.allow(box, f"tcp://ok.test:{servers.tcp}")
    script = f"import socket; s = socket.create_connection(('ok.test', {servers.tcp})); print(s.recv(6)); " \
             "s.sendall(b'x' * 3000000); s.shutdown(1); n = 0\nwhile d := s.recv(1 << 20): n += len(d)\nprint(n)"
    assert gated.python(box, script)["stdout"] == "b'hello\\n'\n3000000\n"


def test_suffixes_and_addresses(gated, servers, box):
    gated.allow(box, f"*.ok.test:{servers.http}")
    for name, works in (("sub.ok.test", True), ("deep.sub.ok.test", True), ("ok.test", False), ("other.test", False)):
        done = curl(gated, box, f"http://{name}:{servers.http}/")
        assert ("error" not in body(done)) == works, name


@pytest.mark.parametrize("target", ["http://127.0.0.1:9", "tcp://127.8.8.8:9", "tcp://0.0.0.0:9", "https://localhost", "a.localhost:8080", "tcp://[::1]:9"])
def test_a_rule_that_could_have_no_effect_is_refused(gated, box, target):
    """In a machine these are the machine itself, so that no connection to them gets to the gate."""
    with pytest.raises(Refused) as e:
        gated.allow(box, target)
    assert "it is the machine itself" in str(e.value.error) and "carrel.conf" in e.value.error["remedy"], e.value.error
    gated.allow(box, target, action="deny")
    with pytest.raises(Refused):
        gated.machine(net=[{"target": target, "local": True}])


@pytest.mark.parametrize("words", [["-x"], ["-p", "-x"]])
def test_the_explicit_proxy_keeps_the_same_rules(gated, servers, box, words):
    gated.allow(box, f"ok.test:{servers.http}")
    proxy = [*words, f"http://{PROXY}:3128"]
    assert body(curl(gated, box, *proxy, f"http://ok.test:{servers.http}/p"))["path"] == "/p"
    denied = body(curl(gated, box, *proxy, f"http://other.test:{servers.http}/p"))
    assert denied["code"] == "denied"


def test_methods_and_paths(gated, servers, box):
    gated.allow(box, f"http://ok.test:{servers.http}/v1", methods="GET,HEAD")
    url = f"http://ok.test:{servers.http}"
    assert body(curl(gated, box, f"{url}/v1/x"))["path"] == "/v1/x"
    for words in ([f"{url}/v2"], ["-d", "x", f"{url}/v1/x"], [f"{url}/v10"], ["--path-as-is", f"{url}/v1/../v2"],
                  [f"{url}/v1/%2e%2e/v2"], ["-X", "DELETE", f"{url}/v1/x"]):
        assert body(curl(gated, box, *words))["code"] == "denied", words
    assert len(servers.web.seen) == 1


def test_websockets_are_requests_too(gated, servers, box):
    gated.allow(box, f"http://ok.test:{servers.http}/ws")
    script = f"""import socket
for path in ("/ws", "/other"):
    s = socket.create_connection(("ok.test", {servers.http}))
    s.sendall(b"GET %s HTTP/1.1\\r\\nHost: ok.test:{servers.http}\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\n\\r\\n" % path.encode())
    print(s.recv(12).decode())
"""
    assert gated.python(box, script)["stdout"].split() == ["HTTP/1.1", "200", "HTTP/1.1", "403"]
    assert ("Upgrade", "websocket") in servers.web.seen[0]["headers"]
    (note,) = gated.notes(box, "net.deny")
    assert [note["detail"][k] for k in ("host", "port", "path")] + [note["reason"]] == ["ok.test", servers.http, "/other", "no rule allows the request"]
    tally.attack()


# ---- changed while it runs ----


def test_a_rule_works_at_once_and_ends_at_once(gated, servers, box):
    url = f"http://ok.test:{servers.http}/"
    assert "error" in body(curl(gated, box, url))
    rules = gated.allow(box, f"ok.test:{servers.http}")["rules"]
    assert "error" not in body(curl(gated, box, url))
    gated.delete(f"/v1/machines/{box}/net/rules/{rules[0]['id']}")
    assert "error" in body(curl(gated, box, url))


def test_a_tunnel_that_is_no_longer_allowed_is_cut(gated, servers, box):
    rule = gated.allow(box, f"tcp://ok.test:{servers.tcp}")["rules"][0]["id"]
    x = gated.background(box, ["python3", "-c", f"""import socket
s = socket.create_connection(("ok.test", {servers.tcp})); s.recv(6); print("open", flush=True)
try: print(s.recv(1))
except OSError as e: print(e.strerror)"""])
    gated.until(lambda: b"open" in gated.request("GET", f"/v1/machines/{box}/execs/{x}/output", raw=True))
    gated.delete(f"/v1/machines/{box}/net/rules/{rule}")
    gated.wait(box, x)
    assert b"reset" in gated.request("GET", f"/v1/machines/{box}/execs/{x}/output", raw=True)
    assert gated.notes(box, count=2)[-1]["reason"] == "the network policy of the machine has changed"


def test_budgets_cut_what_goes_beyond_them(gated, servers, box):
    gated.allow(box, f"http://ok.test:{servers.http}", bytes=200000)
    url = f"http://ok.test:{servers.http}"
    assert curl(gated, box, "-o", "/dev/null", f"{url}/big/100000")["exec"]["status"] == 0
    assert curl(gated, box, "-o", "/dev/null", f"{url}/big/300000")["exec"]["status"] != 0
    assert any(n.get("reason") == "the byte limit of the network rule is used up" for n in gated.notes(box, count=3))


@pytest.mark.parametrize("scheme", ["http", "tcp"])
def test_what_is_sent_counts_as_what_comes_back(gated, servers, box, scheme):
    """The control is the same upload under a budget that is large enough."""
    up = ["-o", "/dev/null", "-H", "Expect:", "--data-binary", "@large", f"http://ok.test:{servers.http}/chunks"]  # which answers with a few words
    gated.exec(box, "head -c 150000 /dev/zero > large")
    gated.allow(box, f"{scheme}://ok.test:{servers.http}", bytes=1000000)
    assert curl(gated, box, *up)["exec"]["status"] == 0 and len(servers.web.seen[-1]["body"]) == 150000
    gated.allow(box, f"{scheme}://ok.test:{servers.http}", bytes=100000)
    assert curl(gated, box, *up)["exec"]["status"] != 0
    assert "the byte limit of the network rule is used up" in [n.get("reason") for n in gated.notes(box, "net.close", count=2)]


@pytest.mark.parametrize("scheme", ["http", "tcp"])
def test_a_rate_is_kept(gated, servers, box, scheme):
    gated.allow(box, f"{scheme}://ok.test:{servers.http}", rate=200000)
    done = curl(gated, box, "-o", "/dev/null", "-w", "%{time_total} %{size_download}",
                f"http://ok.test:{servers.http}/big/600000")
    seconds, size = done["stdout"].split()
    assert int(size) == 600000 and 1.2 < float(seconds) < 15


def test_rules_and_names_outlive_the_daemon(gated, servers, box):
    gated.allow(box, f"ok.test:{servers.http}")
    url = f"http://ok.test:{servers.http}/"
    before = gated.exec(box, "getent hosts other.test; getent hosts ok.test")["stdout"]
    assert "error" not in body(curl(gated, box, url))
    gated.restart()
    gated.until(lambda: gated.get(f"/v1/machines/{box}/net")["listening"])
    assert "error" not in body(curl(gated, box, url))
    assert gated.exec(box, "getent hosts other.test; getent hosts ok.test")["stdout"] == before


def test_without_a_daemon_connections_are_refused_at_once(gated, servers, box):
    gated.allow(box, f"ok.test:{servers.http}")
    x = gated.background(box, ["python3", "-c", f"""import socket, time
reached = 0
while True:
    began = time.monotonic()
    try: socket.create_connection(("198.18.0.4", {servers.http}), 20).close()
    except OSError as e:
        print(e)
        break
    reached += 1
    if reached == 1: print("up", flush=True)
    time.sleep(0.1)
try: socket.getaddrinfo("ok.test", 80); print("reached")
except OSError as e: print(e)
print(time.monotonic() - began < 2.5)"""])
    gated.until(lambda: gated.request("GET", f"/v1/machines/{box}/execs/{x}/output", raw=True) == b"up\n")
    gated.kill()
    time.sleep(3 * PATIENCE)
    gated.start()
    gated.wait(box, x)
    out = gated.request("GET", f"/v1/machines/{box}/execs/{x}/output", raw=True).decode().splitlines()
    assert out[1] == "[Errno 111] Connection refused" and "reached" not in out and out[3] == "True"


def test_a_fork_may_reach_what_its_source_may(gated, servers, box):
    gated.allow(box, f"http://ok.test:{servers.http}/v1")
    made = gated.post(f"/v1/machines/{box}/fork", {})
    fork = (made.get("machines") or [made])[0]["id"]
    assert "error" not in body(curl(gated, fork, f"http://ok.test:{servers.http}/v1"))
    assert "error" in body(curl(gated, fork, f"http://ok.test:{servers.http}/v2"))
    gated.delete(f"/v1/machines/{box}/net/rules/1")
    assert "error" not in body(curl(gated, fork, f"http://ok.test:{servers.http}/v1"))


# ---- who may ----


def test_a_token_opens_nothing_without_the_scope_admin(gated, box):
    secret = gated.post("/v1/tokens", {"scopes": ["read", "run"]})["secret"]
    assert secret
    c = UnixConnection(gated.socket)
    c.request("POST", f"/v1/machines/{box}/net/rules", json.dumps({"target": "a.test"}),
              {"Authorization": "Bearer " + secret})
    answer = c.getresponse()
    assert answer.status in (401, 403)


@pytest.mark.parametrize("rule", [
    {"target": "a b"}, {"target": ""}, {}, {"target": "tcp://a.test"}, {"target": "a.test", "methods": "GET"},
    {"target": "https://a.test", "methods": "G T"}, {"target": "a.test", "action": "let"}, {"target": "a.test/x"},
    {"target": "a.test", "hold": "300s"}, {"target": "127.1"}])
def test_a_bad_rule_is_refused_and_changes_nothing(gated, box, rule):
    with pytest.raises(Refused) as refused:
        gated.post(f"/v1/machines/{box}/net/rules", rule)
    assert refused.value.code == "invalid"
    assert gated.get(f"/v1/machines/{box}/net")["rules"] == []


def test_the_command_line(gated, servers, box):
    def carrel(*words):
        return subprocess.run([PROGRAM, "net", box, *words], env=gated.env, capture_output=True, text=True, timeout=60)
    assert "everything else" in carrel().stdout
    assert carrel("allow", f"ok.test:{servers.http}", "--local").returncode == 0
    assert carrel("deny", "*.evil.test").returncode == 0
    assert "local  trusted  tainted" in carrel("allow", "known.test", "--local", "--trusted", "--tainted").stdout
    assert carrel("rm", "3").returncode == 0
    assert "error" not in body(curl(gated, box, f"http://ok.test:{servers.http}/"))
    rules = json.loads(carrel("show", "--json").stdout)["rules"]
    assert [(r["action"], r["target"]) for r in rules] == [("allow", f"ok.test:{servers.http}"), ("deny", "*.evil.test")]
    assert carrel("rm", "1").returncode == 0 and carrel("rm", "1").returncode == 125
    assert "is not a valid target" in carrel("allow", "a b").stderr
    assert len(json.loads(carrel("show", "--json").stdout)["rules"]) == 1
    done = carrel("allow", "yarn")
    assert done.returncode == 125 and "preset 'yarn' does not exist" in done.stderr and "http://yarn" in done.stderr, done
    assert carrel("allow", "http://yarn").returncode == 0


def test_metrics_count_crossings(gated, servers, box):
    gated.allow(box, f"ok.test:{servers.http}")
    curl(gated, box, f"http://ok.test:{servers.http}/")
    text = gated.request("GET", "/metrics", raw=True).decode()
    assert 'carrel_gate_crossings_total{outcome="allowed"}' in text and "carrel_gate_connections" in text
