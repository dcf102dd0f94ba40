"""Exposed ports for programs that resolve no names below localhost: at an address, with the name of the port in a header."""
import http.client
import json
import shutil
import subprocess
import urllib.error
import urllib.request

import pytest

from test_expose import box, daemon, module_daemon, with_server  # noqa: F401


@pytest.fixture
def shown(daemon, box):  # noqa: F811
    return daemon.post(f"/v1/machines/{box}/exposures", {"port": 8000})


def opened(url, headers):
    """Status and what the program was told, by urllib."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def test_urllib_opens_a_port_without_its_name(daemon, box, shown):  # noqa: F811
    assert shown["direct_url"] == f"http://127.0.0.1:{daemon.ingress}/"
    assert shown["headers"] == {"Carrel-Port": f"8000-{box}", "Carrel-Token": shown["token"]}
    status, told = opened(shown["direct_url"] + "a?b=c", shown["headers"])
    assert (status, told["path"]) == (200, "/a?b=c")
    assert not [name for name in told["headers"] if name.lower().startswith("carrel")]
    status, told = opened(f"{shown['direct_url']}a?carrel_token={shown['token']}&b=c", {"Carrel-Port": f"8000-{box}"})
    assert (status, told["path"]) == (200, "/a?b=c")  # no cookie, and no second request
    listed, = daemon.get(f"/v1/machines/{box}/exposures")["exposures"]
    assert listed["headers"] == {"Carrel-Port": f"8000-{box}"} and opened(listed["direct_url"], listed["headers"])[0] == 401
    public = daemon.post(f"/v1/machines/{box}/exposures", {"port": 8000, "public": True})
    assert public["headers"] == listed["headers"] and opened(public["direct_url"], public["headers"])[0] == 200


@pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")
def test_fetch_of_node_opens_a_port_without_its_name(daemon, shown):  # noqa: F811
    program = """const shown = JSON.parse(process.argv[1])
fetch(shown.direct_url + 'x', {method: 'POST', body: 'body', headers: shown.headers})
    .then(async a => console.log(JSON.stringify([a.status, await a.json()])))"""
    run = subprocess.run(["node", "-e", program, json.dumps(shown)], capture_output=True, text=True, timeout=60)
    status, told = json.loads(run.stdout or run.stderr)
    assert (status, told["path"], told["n"]) == (200, "/x", 4)


def test_a_websocket_opens_without_a_name(daemon, shown):  # noqa: F811
    c = http.client.HTTPConnection("127.0.0.1", daemon.ingress, timeout=20)
    c.request("GET", "/echo", headers={**shown["headers"], "Connection": "Upgrade", "Upgrade": "echo"})
    sock = c.sock
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += sock.recv(1)
    sock.sendall(b"p")
    assert answer.startswith(b"HTTP/1.1 101") and sock.recv(1) == b"p"
    c.close()


def test_pages_and_other_hosts_do_not_use_the_header(daemon, box, shown):  # noqa: F811
    """Pages would share one origin, and their cookies with the console. The control is the same request without the field."""
    def status(host=f"127.0.0.1:{daemon.ingress}", **fields):
        return daemon.visit(box, host=host, **{"Carrel-Port": f"8000-{box}", "Carrel-Token": shown["token"], **fields})[0]
    assert status().status == status(host="localhost").status == status(Sec_Fetch_Mode="cors").status == 200  # control
    for field in ({"Origin": "null"}, {"Origin": shown["direct_url"][:-1]}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}):
        assert status(**field).status == 403, field
        assert status(host=f"8000-{box}.localhost:{daemon.ingress}", **{"Carrel-Port": "", **field}).status in (403, 404)
    for host in ("evil.example", f"8000-{box}.localhost:{daemon.ingress}", f"1-{box}.localhost", "127.0.0.1.evil.example", "api.localhost", "", "0x7f.1"):
        assert status(host=host or " ").status in (400, 404), host
    for name in ("", "8000", f"8001-{box}", f"8000-{box}x", f"8000-{box}.localhost", f"api-{box}", "x" * 200, f"8000-{box}, 8000-{box}"):
        assert status(**{"Carrel-Port": name}).status == 404, name
    two = http.client.HTTPConnection("127.0.0.1", daemon.ingress, timeout=20)
    two.putrequest("GET", "/")
    for name in (f"8000-{box}", f"8001-{box}"):
        two.putheader("Carrel-Port", name)
    two.putheader("Carrel-Token", shown["token"])
    two.endheaders()
    assert two.getresponse().status == 404
    assert status(**{"Carrel-Token": "x"}).status == status(**{"Carrel-Token": ""}).status == 401
    assert daemon.visit(box, host=f"127.0.0.1:{daemon.ingress}")[0].status == 404  # what opens in a browser
    asked, _ = daemon.visit(box, host=f"127.0.0.1:{daemon.ingress}", method="OPTIONS", Origin="http://evil.example",
                            Access_Control_Request_Method="GET", Access_Control_Request_Headers="carrel-port")
    assert asked.status == 404 and not asked.headers["Access-Control-Allow-Origin"]


def test_a_token_opens_its_own_port_only(daemon, box, shown):  # noqa: F811
    other = with_server(daemon)
    theirs = daemon.post(f"/v1/machines/{other}/exposures", {"port": 8000})
    assert opened(theirs["direct_url"], theirs["headers"])[0] == opened(shown["direct_url"], shown["headers"])[0] == 200
    assert opened(theirs["direct_url"], {**theirs["headers"], "Carrel-Token": shown["token"]})[0] == 401
    daemon.delete(f"/v1/machines/{box}/exposures/8000")
    assert opened(shown["direct_url"], shown["headers"])[0] == 404
