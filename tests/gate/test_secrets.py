"""Secrets that never enter a machine: used at the gate, inside TLS, and nowhere else to be found."""
import base64
import json
import os
import pathlib
import re
import subprocess

import pytest

from carrel import PROGRAM, ROOTLESS
from daemon import Refused
import tally

CURL = ["curl", "-sS", "--max-time", "30"]
VALUE = "sk-real-9f8e7d6c5b4a/+= &x"
OTHER = "rotated-0123456789-value"


@pytest.fixture
def api(gated, servers):
    """A secret, and where it may go."""
    servers.forget()
    gated.put("/v1/secrets/API_KEY", {"value": VALUE})
    return f"https://api.test:{servers.https}"


def make(gated, servers, way="header", **more):
    net = [{"target": f"https://{host}:{servers.https}", "local": True} for host in ("api.test", "ok.test")]
    net += [{"target": f"http://{host}:{servers.http}", "local": True} for host in ("api.test", "ok.test")]
    return gated.machine(net=net, secrets=[{"name": "API_KEY", "host": "api.test", "as": way}], **more)


@pytest.fixture
def box(gated, servers, api):
    return make(gated, servers)


def run(gated, box, line, **more):
    done = gated.exec(box, line, **more)
    assert done["exec"]["status"] == 0, done
    return done["stdout"]


def fields(server):
    return {k.lower(): v for k, v in server.seen[-1]["headers"]}


def refusal(gated, servers, box, text, url, method, why):
    """A refusal that names the cause, has its entry in the journal, word for word, and let nothing of the value out."""
    scheme, host, port, path = re.match(r"(\w+)://([^:]+):(\d+)([^?]*)", url).groups()
    assert f"': {why}; " in text or text.endswith(f"': {why}\n"), text
    (note,) = gated.notes(box, "net.deny")
    found = [note["detail"].get(k) for k in ("protocol", "host", "port", "method", "path")]
    assert (found, note["reason"]) == ([{"https": "tls"}.get(scheme, scheme), host, int(port), method, path], why), note
    assert VALUE not in str([s["headers"] for s in servers.web.seen + servers.tls.seen])
    tally.attack()


# ---- it works ----


@pytest.mark.parametrize("way,words,place", [
    ("header", '-H "Authorization: Bearer $API_KEY" {url}/x', lambda s: fields(s)["authorization"] == "Bearer " + VALUE),
    ("header", '-H "X-Api-Key: $API_KEY" -d body {url}/x', lambda s: fields(s)["x-api-key"] == VALUE),
    ("basic", '-u "me:$API_KEY" {url}/x',
     lambda s: base64.b64decode(fields(s)["authorization"].split()[1]).decode() == "me:" + VALUE),
    ("query", '"{url}/x?key=$API_KEY&b=1"', lambda s: s.seen[-1]["path"] == "/x?key=sk-real-9f8e7d6c5b4a%2F%2B%3D%20%26x&b=1"),
])
def test_the_value_takes_the_place_of_the_placeholder(gated, servers, api, way, words, place):
    box = make(gated, servers, way)
    run(gated, box, "curl -sS " + words.format(url=api))
    assert place(servers.tls), servers.tls.seen[-1]
    note = gated.notes(box, "secret.use")[-1]
    assert {k: note["detail"][k] for k in ("secret", "as", "host", "path")} == {
        "secret": "API_KEY", "as": way, "host": "api.test", "path": "/x"}


CLIENTS = {
    "curl": 'curl -sS -H "X-Key: $API_KEY" {url}/x',
    "wget": 'wget -q -O - --header "X-Key: $API_KEY" {url}/x',
    "python3": "python3 -c \"import os, urllib.request as u; u.urlopen(u.Request('{url}/x', headers={{'X-Key': os.environ['API_KEY']}}))\"",
    "node": "node -e \"fetch('{url}/x', {{headers: {{'X-Key': process.env.API_KEY}}}}).then(r => r.text())\"",
    "git": "git -c http.extraHeader=\"X-Key: $API_KEY\" ls-remote {url}/x; true",
}


@pytest.mark.parametrize("client", CLIENTS)
def test_with_the_usual_clients(gated, servers, box, api, client):
    if not gated.exec(box, f"command -v {client}")["stdout"]:
        pytest.skip(f"this host has no {client}")
    run(gated, box, CLIENTS[client].format(url=api))
    assert fields(servers.tls)["x-key"] == VALUE


def test_rotation_and_revocation_work_at_once(gated, servers, box, api):
    line = f'curl -sS -H "X-Key: $API_KEY" {api}/x'
    run(gated, box, line)
    gated.put("/v1/secrets/API_KEY", {"value": OTHER})
    run(gated, box, line)
    assert fields(servers.tls)["x-key"] == OTHER
    gated.delete("/v1/secrets/API_KEY")
    servers.forget()
    refusal(gated, servers, box, run(gated, box, line), f"{api}/x", "GET", "secret 'API_KEY' no longer exists")
    assert servers.tls.seen == []
    gated.put("/v1/secrets/API_KEY", {"value": VALUE})
    run(gated, box, line)
    assert fields(servers.tls)["x-key"] == VALUE
    gated.revoke(box, "secret")
    assert gated.grants(box) == []
    assert run(gated, box, "echo ${API_KEY-none}") == "none\n"


def test_a_connection_that_is_open_loses_it_too(gated, servers, box, api):
    """Two requests on one connection, and the secret is taken away between them."""
    x = gated.background(box, ["python3", "-c", f"""
import http.client, os, ssl, time
c = http.client.HTTPSConnection("api.test", {servers.https})
for _ in range(2):
    c.request("GET", "/x", headers={{"X-Key": os.environ["API_KEY"]}})
    a = c.getresponse()
    print(a.status, a.read()[:0], flush=True)
    while not os.path.exists("go"): time.sleep(0.02)
"""])
    gated.until(lambda: len(servers.tls.seen) == 1)
    gated.delete("/v1/secrets/API_KEY")
    gated.exec(box, "touch go")
    assert gated.wait(box, x)["status"] == 0
    out = gated.request("GET", f"/v1/machines/{box}/execs/{x}/output", raw=True).decode()
    assert out.split()[0::2] == ["200", "403"] and len(servers.tls.seen) == 1


def test_granted_while_it_runs_and_after_a_restart(gated, servers, api):
    box = gated.machine(net=[{"target": f"https://api.test:{servers.https}", "local": True}])
    line = f'curl -sS -H "X-Key: $API_KEY" {api}/x'
    gated.grant(box, "secret", "API_KEY", at="api.test")
    run(gated, box, line)
    assert fields(servers.tls)["x-key"] == VALUE
    before = run(gated, box, "echo $API_KEY")
    gated.restart()
    gated.until(lambda: gated.get(f"/v1/machines/{box}/net")["listening"])
    assert run(gated, box, "echo $API_KEY") == before and before.startswith("carrel-secret-")
    run(gated, box, line)
    assert fields(servers.tls)["x-key"] == VALUE


def test_a_fork_has_the_same_placeholder(gated, servers, box, api):
    placeholder = run(gated, box, "echo $API_KEY | tee kept")
    fork = gated.post(f"/v1/machines/{box}/fork", {})["machines"][0]["id"]
    assert run(gated, fork, "echo $API_KEY; cat kept") == placeholder * 2
    run(gated, fork, f'curl -sS -H "X-Key: $API_KEY" {api}/x')
    assert fields(servers.tls)["x-key"] == VALUE


# ---- it cannot be had ----


def data_of(path):
    """What a file really holds: logs are mostly holes."""
    out, at = b"", 0
    with open(path, "rb") as f:
        while True:
            try:
                at = os.lseek(f.fileno(), at, os.SEEK_DATA)
            except OSError:
                return out
            end = os.lseek(f.fileno(), at, os.SEEK_HOLE)
            out += os.pread(f.fileno(), end - at, at)
            at = end


@pytest.mark.skipif(ROOTLESS, reason="files of a box belong to ids that an ordinary user cannot read")
def test_the_value_is_nowhere(gated, servers, box, api):
    """Not in the machine, not in the journal, not in the store."""
    run(gated, box, f'curl -sS -H "X-Key: $API_KEY" -o echoed {api}/x; cat echoed; env')
    with pytest.raises(Refused):
        gated.put("/v1/secrets/not-a-name", {"value": VALUE})
    look = ("env; set; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\\\0' '\\\\n';"
            " grep -rsaF -e $(printf %s%s sk-re al-9f8e) /etc /run /tmp /home /root /var /dev/shm || true")
    text = run(gated, box, look.replace("\\\\", "\\"), user="root")
    assert "carrel-secret-" in text and "sk-real" not in text
    journal = gated.request("GET", "/v1/audit", raw=True).decode()
    assert '"secret.use"' in journal and '"secret.set"' in journal and "sk-real" not in journal
    forms = [VALUE.encode(), base64.b64encode(VALUE.encode())]
    for path in [p for p in pathlib.Path(gated.dir).rglob("*") if p.is_file()]:
        content = data_of(path)
        assert not any(f in content for f in forms), path
    assert (gated.home / "secrets.key").stat().st_mode & 0o777 == 0o600
    listed = json.dumps([gated.get("/v1/secrets"), gated.get(f"/v1/machines/{box}/grants"), gated.get(f"/v1/machines/{box}")])
    assert "API_KEY" in listed and "sk-real" not in listed


NOT_HERE, NOT_THERE = [f"the placeholder of secret 'API_KEY' {why}" for why in ("may not be sent to this host", "is in a part of the request that its grant does not allow")]
IN_CLEAR, IN_BODY = "the placeholder of secret 'API_KEY' may be used only inside TLS", "the body of the request contains the placeholder of a secret"
PLACES = {  # words, URL, the reason
    "another host, in a field": ('-H "X-Key: $API_KEY"', "https://ok.test:{tls}/x", NOT_HERE),
    "another host, in the query": ("", "https://ok.test:{tls}/x?k=$API_KEY", NOT_HERE),
    "another host, in the path": ("", "https://ok.test:{tls}/$API_KEY", NOT_HERE),
    "another host, as a password": ('-u "u:$API_KEY"', "https://ok.test:{tls}/x", NOT_HERE),
    "another host, in the body": ('-d "k=$API_KEY"', "https://ok.test:{tls}/x", IN_BODY),
    "another host, in the clear": ('-H "X-Key: $API_KEY"', "http://ok.test:{web}/x", NOT_HERE),
    "its host, in the clear": ('-H "X-Key: $API_KEY"', "http://api.test:{web}/x", IN_CLEAR),
    "its host, in the path": ("", "https://api.test:{tls}/x/$API_KEY", NOT_THERE),
    "its host, in the query": ("", "https://api.test:{tls}/x?k=$API_KEY", NOT_THERE),
    "its host, in the body": ('-d "k=$API_KEY"', "https://api.test:{tls}/x", IN_BODY),
    "its host, as a field's name": ('-H "$API_KEY: x"', "https://api.test:{tls}/x", NOT_THERE),
    "its host, far down in a body": ("--data-binary @big", "https://api.test:{tls}/x", IN_BODY),
    "its host, in a body of chunks": ("-H 'Transfer-Encoding: chunked' --data-binary @big", "https://api.test:{tls}/x", IN_BODY),
}


@pytest.mark.parametrize("place", PLACES)
def test_placeholders_where_they_may_not_be(gated, servers, api, place):
    words, url, why = PLACES[place]
    url = url.format(tls=servers.https, web=servers.http)
    box = gated.machine(net=[{"target": f"{scheme}://{host}:{port}", "methods": "GET,POST", "local": True} for host in ("api.test", "ok.test")
                             for scheme, port in (("https", servers.https), ("http", servers.http))],
                        secrets=[{"name": "API_KEY", "host": "api.test"}])
    run(gated, box, "{ head -c 70000 /dev/zero | tr '\\0' y; echo $API_KEY; } >big")
    line = f'curl -sS {words} "{url}"'
    text, placeholder = run(gated, box, line), run(gated, box, "printf %s $API_KEY")
    refusal(gated, servers, box, text, url.replace("$API_KEY", placeholder), "POST" if "-d" in words else "GET", why)
    # The same request without the placeholder passes.
    assert json.loads(run(gated, box, "API_KEY=nothing; tr -d c <big >small; mv small big; " + line))["method"] in ("GET", "POST")


def test_a_placeholder_of_another_machine_is_a_word(gated, servers, box, api):
    """It is good for nothing there: no value takes its place."""
    stolen = run(gated, box, "echo $API_KEY").strip()
    other = make(gated, servers)
    run(gated, other, f'curl -sS -H "X-Key: {stolen}" {api}/x')
    assert fields(servers.tls)["x-key"] == stolen


# ---- what comes back ----


def test_what_is_echoed_is_masked(gated, servers, box, api):
    """In the answer's head and body, and also when it comes in other shapes."""
    seen = json.loads(run(gated, box, f'curl -sS -i -H "X-Key: $API_KEY" {api}/x').split("\r\n\r\n", 1)[1])
    assert seen["headers"]["X-Key"] == "*" * len(VALUE)
    assert gated.notes(box, "secret.use")[-1]["detail"]["path"] == "/x"
    tally.attack()
    assert servers.tls.seen[-1]["path"] == "/x" and fields(servers.tls)["accept-encoding"] == "identity"
    # The control: what is not a value comes back as it was.
    seen = json.loads(run(gated, box, f'curl -sS -H "X-Key: sk-real-9f8e" {api}/x'))
    assert seen["headers"]["X-Key"] == "sk-real-9f8e"


def test_a_password_that_is_echoed_is_masked(gated, servers, api):
    box = make(gated, servers, "basic")
    seen = json.loads(run(gated, box, f'curl -sS -u "me:$API_KEY" {api}/x'))
    assert set(seen["headers"]["Authorization"].split()[1]) == {"*"}


@pytest.mark.parametrize("chunk", [1, 3, 7, 16384])
def test_masked_across_the_cuts_of_a_body(gated, servers, box, chunk):
    """The server sends the value in pieces of so many bytes."""
    text = run(gated, box, f'curl -sS -H "X-Key: $API_KEY" "https://api.test:{servers.https}/pieces/{chunk}"')
    assert text == "before " + "*" * len(VALUE) + " after " + "*" * len(VALUE) + VALUE[:7]


ASK = """
import base64, http.client, os, ssl, sys
shape, fields = sys.argv[1], dict(f.split(": ") for f in sys.argv[2:])
c = http.client.HTTPSConnection("api.test", {https}, timeout=60)
c.request("GET", "/as/" + shape, headers={"X-Key": os.environ["API_KEY"], **fields})
a = c.getresponse()
print(a.status, a.headers.get("Content-Encoding"), (a.fp.read(16) if a.status == 101 else a.read()).hex())
"""
STARS = (b"*" * len(VALUE)).hex()
SHAPES = {  # what is asked for, and what of the answer the machine gets: its status, and a test of its body
    "a part": (["plain", "Range: bytes=0-9"], "200", lambda body: body == STARS),
    "parts that nobody asked for": (["part"], "502", lambda body: True),
    "base64": (["base64"], "200", lambda body: body.count("2a") > len(VALUE)),
    "hex": (["hex"], "200", lambda body: body == 2 * STARS),
    "compressed": (["gzip", "Accept-Encoding: gzip"], "502", lambda body: True),
    "a websocket": (["plain", "Connection: Upgrade", "Upgrade: websocket"], "403", lambda body: True),
}


@pytest.mark.parametrize("name", SHAPES)
def test_no_shape_of_an_answer_carries_a_value(gated, servers, box, api, name, count_attack):
    words, status, is_masked = SHAPES[name]
    done = gated.exec(box, ["python3", "-c", ASK.replace("{https}", str(servers.https)), *words])
    assert done["exec"]["status"] == 0, done
    code, _, body = done["stdout"].split()
    assert code == status and is_masked(body), done["stdout"]
    assert VALUE[:10].encode().hex() not in body
    count_attack()


@pytest.mark.parametrize("name", SHAPES)
def test_control_without_a_secret_each_shape_passes(gated, servers, api, name):
    """The same server and the same words, with a key that the machine holds itself."""
    box, words = gated.machine(net=[{"target": f"https://api.test:{servers.https}/as", "local": True}]), SHAPES[name][0]
    done = gated.exec(box, ["python3", "-c", ASK.replace("{https}", str(servers.https)), *words], env={"API_KEY": "k" * 12 + VALUE.split("/")[0]})
    assert done["exec"]["status"] == 0, done
    code, encoding, body = done["stdout"].split()
    assert code == {"a part": "206", "parts that nobody asked for": "206", "a websocket": "101"}.get(name, "200"), done["stdout"]
    assert encoding == ("gzip" if name == "compressed" else "None") and "2a2a" not in body and body


# ---- who may ----


def test_a_token_cannot_set_or_grant(gated, servers, box, api):
    token = gated.post("/v1/tokens", {"scopes": ["read", "run"]})["secret"]
    headers = {"Authorization": "Bearer " + token}.items()
    for method, path, body in (("PUT", "/v1/secrets/EVIL", {"value": "x" * 20}), ("DELETE", "/v1/secrets/API_KEY", None),
                               ("POST", f"/v1/machines/{box}/grants", {"kind": "secret", "what": "API_KEY", "at": "ok.test"}),
                               ("POST", "/v1/machines", {"secrets": [{"name": "API_KEY", "host": "ok.test"}]})):
        with pytest.raises(Refused) as e:
            gated.request(method, path, body, headers=headers)
        assert e.value.status == 403, (method, path)


BAD = [("/v1/secrets/A", {"value": "short"}), ("/v1/secrets/A", {"value": "a\nb" * 9}), ("/v1/secrets/A", {"value": "x" * 9000}),
       ("/v1/secrets/1A", {"value": "x" * 20}), ("/v1/secrets/A-B", {"value": "x" * 20}), ("/v1/secrets/A", {})]


def test_bad_input(gated, api):
    for path, body in BAD:
        with pytest.raises(Refused) as e:
            gated.put(path, body)
        assert e.value.code == "invalid", (path, body)
    for grant in ({"name": "API_KEY", "host": "10.0.0.1"}, {"name": "API_KEY", "host": "a b"}, {"name": "API_KEY", "host": "h", "as": "body"},
                  {"name": "API_KEY"}):
        with pytest.raises(Refused) as e:
            gated.machine(secrets=[grant])
        assert e.value.code == "invalid", grant
    with pytest.raises(Refused) as e:
        gated.machine(secrets=[{"name": "NEVER_SET", "host": "api.test"}])
    assert e.value.code == "not_found" and "carrel secret set" in e.value.error["remedy"]


def test_the_command_line(gated, servers, api):
    def carrel(*words, **more):
        return subprocess.run([PROGRAM, *words], env=gated.env, capture_output=True, text=True, timeout=60, **more)
    assert carrel("secret", "set", "FROM_CLI", input="a-value-from-stdin\n").returncode == 0
    assert "FROM_CLI" in carrel("secret", "ls").stdout
    made = carrel("new", "--net", f"https://api.test:{servers.https},local", "--secret", "FROM_CLI@api.test:header")
    assert made.returncode == 0, made.stderr
    box = made.stdout.strip()
    run(gated, box, f'curl -sS -H "X-Key: $FROM_CLI" {api}/x')
    assert fields(servers.tls)["x-key"] == "a-value-from-stdin"
    listed = carrel("grants", box).stdout
    assert "FROM_CLI @ api.test" in listed and "header" in listed
    assert carrel("grant", "revoke", box, gated.grants(box)[0]["id"]).returncode == 0 and gated.grants(box) == []
    added = carrel("grant", "add", box, "--secret", "FROM_CLI@api.test:query", "--expires", "1h")
    assert added.returncode == 0 and "query" in added.stdout and re.search(r" (59m|1h) ", added.stdout), added
    assert carrel("secret", "rm", "FROM_CLI").returncode == 0
    assert "FROM_CLI" not in carrel("secret", "ls").stdout
    bad = carrel("new", "--secret", "FROM_CLI")
    assert bad.returncode and "no host given" in bad.stderr
