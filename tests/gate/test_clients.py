"""Programs as they are, from inside a box, with the right rule: nothing in them knows of the gate."""
import base64
import hashlib
import io
import sqlite3
import tarfile
import functools
import http.server
import json
import os
import pathlib
import socketserver
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "mcp"))

import postgres  # noqa: E402
from daemon import Refused  # noqa: E402
from mcp_client import Lines  # noqa: E402


def need(gated, box, program):
    if not gated.exec(box, f"command -v {program}")["stdout"]:
        pytest.skip(f"this host has no {program}")


def run(gated, box, line, **more):
    done = gated.exec(box, line, **more)
    assert done["exec"]["status"] == 0, (done.get("stdout"), done.get("stderr"))
    return done["stdout"]


def rules(gated, box):
    return gated.get(f"/v1/machines/{box}/net")["rules"]


# ---- presets ----


def with_preset(gated, name, **more):
    try:
        return gated.machine(net=[{"target": name, "local": True}], **more)
    except Refused as e:
        assert e.code == "not_found" and "rules" in e.error["remedy"], e
        pytest.skip(e.error["message"])


def need_answer(gated, box):
    """Skips unless this host itself gets any answer from where the preset leads."""
    for rule in rules(gated, box):
        try:
            urllib.request.urlopen(rule["target"] + "/", timeout=10).close()
        except urllib.error.HTTPError:
            pass
        except OSError as e:
            pytest.skip(f"this host cannot reach what the preset names: {e}")


def an_image(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.mode = 0o644
            if isinstance(content, bytes):
                entry.size = len(content)
            else:
                entry.type, entry.linkname = tarfile.SYMTYPE, content
            tar.addfile(entry, io.BytesIO(content if isinstance(content, bytes) else b""))
    return out.getvalue()


def test_a_preset_is_read_from_the_image_that_a_machine_is_made_from(gated, tmp_path):
    """Links in it lead to its own files, never to the host's."""
    (tmp_path / "secret.list").write_text("deb http://from-the-host.example/ x main\n")
    tree = an_image({"etc/apt/sources.list": b"deb http://mirror.example/debian stable main\n", "etc/apt/sources.list.d/more.list": "/elsewhere/more.list",
                     "elsewhere/more.list": b"deb https://more.example/x stable main\n", "etc/apt/sources.list.d/evil.list": f"{tmp_path}/secret.list",
                     "etc/apt/sources.list.d/up.list": "../../../../../../.." + f"{tmp_path}/secret.list"})
    gated.request("POST", "/v1/images", tree, name="mirrored")
    box = gated.machine(image="mirrored", net=[{"target": "apt"}])
    targets = {r["target"] for r in gated.get(f"/v1/machines/{box}/net")["rules"]}
    assert any("mirror.example" in t for t in targets) and any("more.example" in t for t in targets) and not any("from-the-host" in t for t in targets), targets
    gated.delete(f"/v1/machines/{box}")
    gated.request("DELETE", "/v1/images/mirrored")


def test_where_a_tainted_image_leads_is_no_preset(gated):
    """A stranger who wrote its settings would get what a guarded machine may still ask for. The control is the image before."""
    def made_from(image):
        box = gated.machine(image=image, guard=True, net=[{"target": "pip"}])
        return box, rules(gated, box)
    gated.request("POST", "/v1/images", an_image({"etc/pip.conf": b"index-url = https://index.example/simple\n"}), name="clean-index")
    box, (rule,) = made_from("clean-index")
    assert rule["target"] == "https://index.example" and rule["preset"] == "pip"
    gated.post(f"/v1/machines/{box}/grants", {"kind": "env", "what": "WORD", "value": "of a stranger", "untrusted": True})
    gated.put(f"/v1/machines/{box}/files", b"index-url = https://evil.example/simple\n", path="/etc/pip.conf", user="root")
    gated.post(f"/v1/machines/{box}/image", {"name": "their-index"})
    theirs, (rule,) = made_from("their-index")
    assert rule["target"] == "https://evil.example" and "preset" not in rule and not rule.get("trusted"), rule
    gated.request("DELETE", f"/v1/machines/{theirs}/net/rules/{rule['id']}")
    rule, = gated.post(f"/v1/machines/{theirs}/net/rules", {"target": "pip"})["rules"]
    assert "preset" not in rule, rule
    gated.clear()
    for image in ("their-index", "clean-index"):
        gated.request("DELETE", f"/v1/images/{image}")


@pytest.mark.parametrize("name", ["apt", "npm", "pip", "cargo", "go"])
def test_a_preset_is_read_from_the_image(gated, name):
    box = with_preset(gated, name)
    made = rules(gated, box)
    assert made and all(r["preset"] == name and r["action"] == "allow" for r in made)
    assert all(r["target"].startswith(("http://", "https://")) and r["target"].count("/") == 2 for r in made)
    # What the machine writes counts for nothing.
    gated.exec(box, "echo 'registry=https://evil.test/' >/etc/npmrc; mkdir -p /etc/apt/sources.list.d;"
                    " echo 'deb http://evil.test/x y z' >/etc/apt/sources.list.d/evil.list", user="root")
    again = gated.post(f"/v1/machines/{box}/net/rules", {"target": name, "local": True})["rules"]
    assert {r["target"] for r in again} == {r["target"] for r in made}


def test_apt_get(gated):
    box = with_preset(gated, "apt", limits={"disk": "1G", "mem": "512M"})
    need_answer(gated, box)
    run(gated, box, "apt-get update && apt-get install -y --no-install-recommends hello && hello", user="root", timeout=100)
    assert {n["detail"]["host"] for n in gated.notes(box, "net.allow")} <= {r["target"].split("/")[2].split(":")[0] for r in rules(gated, box)}


def test_npm_install(gated):
    box = with_preset(gated, "npm", limits={"disk": "1G", "mem": "1G"})
    need(gated, box, "npm")
    need_answer(gated, box)
    run(gated, box, "npm install --no-audit --no-fund is-number && node -e \"console.log(require('is-number')(5))\"", timeout=100)


# ---- servers of the test ----


@pytest.fixture
def box(gated, servers):
    servers.forget()
    return gated.machine(net=[{"target": f"http://ok.test:{servers.http}", "local": True}])


def test_git_clone(gated, tmp_path):
    git = functools.partial(subprocess.run, check=True, capture_output=True,
                            env={**os.environ, "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@a", "GIT_COMMITTER_NAME": "a",
                                 "GIT_COMMITTER_EMAIL": "a@a", "GIT_CONFIG_GLOBAL": "/dev/null"})
    git(["git", "init", "-q", tmp_path / "work"])
    (tmp_path / "work/file").write_text("from afar\n")
    git(["git", "-C", tmp_path / "work", "add", "file"])
    git(["git", "-C", tmp_path / "work", "commit", "-qm", "one"])
    git(["git", "clone", "-q", "--bare", tmp_path / "work", tmp_path / "repo.git"])
    git(["git", "-C", tmp_path / "repo.git", "update-server-info"])
    quiet = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(quiet, directory=tmp_path)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        box = gated.machine(net=[{"target": f"http://ok.test:{port}", "local": True}])
        need(gated, box, "git")
        assert run(gated, box, f"git clone -q http://ok.test:{port}/repo.git && cat repo/file") == "from afar\n"
        server.shutdown()


PYTHON = {
    "urllib": "import urllib.request as u; print(u.urlopen('{url}').read().decode())",
    "asyncio": """
import asyncio
async def main():
    r, w = await asyncio.open_connection("ok.test", {port})
    w.write(b"GET /x HTTP/1.1\\r\\nHost: ok.test:{port}\\r\\nConnection: close\\r\\n\\r\\n")
    print((await r.read()).split(b"\\r\\n\\r\\n", 1)[1].decode())
asyncio.run(main())
""",
    "http.client": "import http.client as h\nc = h.HTTPConnection('ok.test', {port})\nc.request('GET', '/x')\nprint(c.getresponse().read().decode())",
}


@pytest.mark.parametrize("how", PYTHON)
def test_python(gated, servers, box, how):
    done = gated.python(box, PYTHON[how].format(url=f"http://ok.test:{servers.http}/x", port=servers.http))
    assert json.loads(done["stdout"])["path"] == "/x", done


def test_node_fetch(gated, servers, box):
    need(gated, box, "node")
    done = run(gated, box, ["node", "-e", f"fetch('http://ok.test:{servers.http}/x').then(r => r.text()).then(console.log)"])
    assert json.loads(done)["path"] == "/x"


@pytest.mark.skipif(not postgres.BIN, reason="this host has no PostgreSQL server (Debian: postgresql)")
def test_psql(gated):
    server = postgres.Server()
    try:
        box = gated.machine(net=[{"target": f"tcp://ok.test:{server.port}", "local": True}])
        env, psql = f"PGPASSWORD=\"{server.password}\" PGCONNECT_TIMEOUT=20", f"{postgres.BIN}/psql -X -h ok.test -U boss"
        assert run(gated, box, f"{env} {psql} -p {server.port} postgres -Atc 'select 6 * 7'") == "42\n"
        # Another port of the same host stays closed.
        assert gated.exec(box, f"{env} {psql} -p {server.port + 1} postgres -c 'select 1'")["exec"]["status"] != 0
        assert gated.notes(box, "net.deny")[-1]["detail"]["port"] == server.port + 1
    finally:
        server.remove()


class Redis(socketserver.ThreadingTCPServer):
    """As much of a server as redis-cli needs for two commands."""
    daemon_threads = True

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            while line := self.rfile.readline():
                words = []
                for _ in range(int(line[1:])):
                    self.rfile.readline()
                    words.append(self.rfile.readline().strip().decode())
                self.wfile.write(b"+PONG\r\n" if words[0].upper() == "PING" else b"*0\r\n")


def test_redis_cli(gated):
    with Redis(("127.0.0.1", 0), Redis.Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        box = gated.machine(net=[{"target": f"tcp://ok.test:{port}", "local": True}])
        need(gated, box, "redis-cli")
        assert run(gated, box, f"redis-cli -h ok.test -p {port} ping") == "PONG\n"
        server.shutdown()


def sources(*hosts):
    return an_image({"etc/apt/sources.list": "".join(f"deb http://{h}/debian stable main\n" for h in hosts).encode()})


def test_preset_warns_of_a_mirror_with_a_private_address(gated):
    """When the rule is made: a refused download does not say what is wrong with the rule."""
    gated.request("POST", "/v1/images", sources("private.test", "public.test"), name="privately")
    made = gated.post("/v1/machines", {"image": "privately", "net": [{"target": "apt"}]})
    told = "mirror 'private.test' of preset 'apt' has the private address 10.99.0.1"
    assert told in made["warnings"] and "public.test" not in made["warnings"], made
    assert f"carrel net {made['id']} allow apt --local" in made["warnings"]
    assert "warnings" not in gated.post("/v1/machines", {"image": "privately", "net": [{"target": "apt", "local": True}]})

    box = gated.machine(image="privately")
    add = f"/v1/machines/{box}/net/rules"
    assert told in gated.post(add, {"target": "apt"})["warnings"]
    assert "warnings" not in gated.post(add, {"target": "apt", "local": True})


def test_preset_without_private_mirrors_does_not_warn(gated):
    gated.request("POST", "/v1/images", sources("public.test", "not-found.invalid"), name="publicly")
    assert "warnings" not in gated.post("/v1/machines", {"image": "publicly", "net": [{"target": "apt"}]})


# ---- browsers ----


def authority(gated, box):
    lines = run(gated, box, "cat /usr/local/share/ca-certificates/carrel.crt").split("\n")
    return "".join(line for line in lines if "-----" not in line)


def test_browsers_are_told_of_the_authority(gated):
    """Their own stores do not have it, and they do not read the bundle of the system."""
    box = gated.machine(net=[{"target": "ok.test", "local": True}])
    for place in "chromium", "opt/chrome", "opt/edge", "brave":
        assert json.loads(run(gated, box, f"cat /etc/{place}/policies/managed/carrel.json")) == {"CACertificates": [authority(gated, box)]}
    firefox = json.loads(run(gated, box, "cat /etc/firefox/policies/policies.json"))["policies"]
    assert firefox == {"Certificates": {"Install": ["/usr/local/share/ca-certificates/carrel.crt"]}}


def test_databases_of_browsers_hold_the_authority(gated):
    """Chromium's headless shell has no policies: it reads a database in the home of its user."""
    box = gated.machine(net=[{"target": "ok.test", "local": True}])
    for user, home in ("root", "/root"), ("user", "/home/user"):
        data = base64.b64decode(run(gated, box, f"base64 {home}/.pki/nssdb/cert9.db", user=user))
        db = sqlite3.connect(":memory:")
        db.deserialize(data)
        (der,), = db.execute("SELECT a11 FROM nssPublic WHERE a0 = x'00000001'")
        assert base64.b64encode(der).decode() == authority(gated, box)
        assert db.execute("SELECT ace536358, ace5363b4 FROM nssPublic WHERE a0 = x'ce534353'").fetchall() == [(bytes.fromhex("ce534352"), hashlib.sha1(der).digest())]
        assert run(gated, box, f"stat -c '%U %a' {home}/.pki/nssdb", user=user) == f"{user} 700\n"


def test_policies_of_firefox_in_an_image_stay(gated, tmp_path):
    box = gated.machine()
    run(gated, box, "mkdir -p /etc/firefox/policies && echo '{}' >/etc/firefox/policies/policies.json", user="root")
    gated.allow(box, "ok.test")
    assert run(gated, box, "cat /etc/firefox/policies/policies.json") == "{}\n"
    assert run(gated, box, "curl -sS https://ok.test.invalid/ -o /dev/null; cat $SSL_CERT_FILE | wc -l") != "0\n"


@pytest.mark.parametrize("program", ["chromium", "chromium-headless-shell"])
def test_browser_trusts_the_gate(gated, program):
    """A refusal of HTTPS comes from the gate, so a page with it was trusted."""
    box = gated.machine(net=[{"target": "ok.test", "local": True}], limits={"mem": "2G"})
    need(gated, box, program)
    page = run(gated, box, f"{program} --headless --no-sandbox --disable-gpu --disable-background-networking --no-first-run "
                           "--dump-dom https://refused.test/ 2>/dev/null", timeout="90s")
    assert "may not reach 'refused.test:443'" in page, page


def test_the_tool_browser_passes_the_gate(gated):
    box = gated.machine(net=[{"target": "ok.test", "local": True}], limits={"mem": "2G"})
    need(gated, box, "chromium")
    client = Lines(gated, "--machine", box)
    client.greet()
    page = client.call("browser", seconds=150, action="open", url="https://refused.test/")
    assert "may not reach 'refused.test:443'" in page["text"], page
    client.close()
