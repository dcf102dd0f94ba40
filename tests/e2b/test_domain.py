"""Programs that know only E2B_DOMAIN: the names of the API and of sandboxes, with TLS by the daemon's own authority."""
import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess

import pytest

from carrel import PROGRAM
from daemon import Daemon, free_port
from e2b_client import E2b
import patience
from test_npm import HERE, project  # noqa: F401

DOMAIN = "boxes.example.com"


class Named(Daemon):
    def __init__(self):
        self.ingress = free_port()
        super().__init__(conf=f"[gate]\ndomain = {DOMAIN}\ncertificate = own\ningress = 127.0.0.1:{self.ingress}\n")

    def ask(self, name, path, method="GET", body=None, **fields):
        """Status, headers and body of a request to NAME.DOMAIN."""
        host = f"{name}.{DOMAIN}"
        c = http.client.HTTPConnection(f"{host}:{self.ingress}")
        plain = socket.create_connection(("127.0.0.1", self.ingress), timeout=60)
        c.sock = ssl.create_default_context(cafile=self.run_dir / "authority.pem").wrap_socket(plain, server_hostname=host)
        c.request(method, path, body=body, headers={k.replace("_", "-"): v for k, v in fields.items()})
        answer = c.getresponse()
        data = answer.read()
        c.close()
        return answer.status, answer.headers, data


@pytest.fixture(scope="module")
def named():
    d = Named()
    yield d
    d.stop()


@pytest.fixture(scope="module")
def client(named):
    return E2b.of(named)


@pytest.fixture(scope="module")
def sandbox(client):
    return client.create()


def test_the_sdk_needs_only_the_domain(project, named):  # noqa: F811
    where, node = project
    told = subprocess.run([PROGRAM, "e2b", "env", "--domain"], env=named.env, capture_output=True, text=True, timeout=60, check=True).stdout
    env = dict(line.removeprefix("export ").split("=", 1) for line in told.splitlines())
    assert sorted(env) == ["E2B_API_KEY", "E2B_DOMAIN"] and env["E2B_DOMAIN"] == f"{DOMAIN}:{named.ingress}"
    shutil.copy(HERE / "domain.mjs", where)
    done = subprocess.run([node, "domain.mjs"], cwd=where, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100 * patience.PATIENCE,
                          env={**os.environ, **env, "NODE_EXTRA_CA_CERTS": str(named.run_dir / "authority.pem")})
    assert done.stdout == "done\n", done.stderr


def test_without_a_domain_the_command_says_what_is_missing(server):
    done = subprocess.run([PROGRAM, "e2b", "env", "--domain"], env=server.env, capture_output=True, text=True, timeout=60)
    assert done.returncode and "set domain and certificate in the section [gate]" in done.stderr and "E2B_API_KEY" not in done.stdout


def test_the_name_of_the_api_answers_only_the_calls_of_clients(named, client):
    """The connection has no rights of its own: its other end is the daemon itself."""
    assert named.ask("api", "/v2/sandboxes", X_API_Key=client.key)[0] == 200
    assert named.ask("API", "/v2/sandboxes", X_API_Key=client.key)[0] == 200
    for origin in ("https://evil.example", "null", f"https://8000-maaaaaaaaaaaa.{DOMAIN}"):
        status, _, data = named.ask("api", "/v2/sandboxes", X_API_Key=client.key, Origin=origin)
        assert status == 403 and json.loads(data)["code"] == 403
    for key in ({}, {"X_API_Key": "e2b_" + "0" * 65}):
        status, _, data = named.ask("api", "/v2/sandboxes", **key)
        assert status == 401 and json.loads(data)["code"] == 401
    for method, path in (("GET", "/v1/machines"), ("POST", "/v1/machines"), ("POST", "/e2b/key"), ("GET", "/"), ("GET", "/metrics"), ("POST", "/mcp")):
        for key in ({}, {"X_API_Key": client.key}, {"Authorization": "Bearer " + client.key}):
            status, _, data = named.ask("api", path, method, b"{}", **key)
            assert status == 404 and json.loads(data)["code"] == 404, path


def test_names_of_sandboxes_need_the_token(named, client, sandbox):
    name, token = f"49983-{sandbox['sandboxID']}", sandbox["envdAccessToken"]
    assert named.ask(name, "/health")[0] == 204
    assert named.ask(name, "/metrics")[0] == 401
    assert named.ask(name, "/metrics", X_Access_Token="x" * len(token))[0] == 401
    assert named.ask(name, "/metrics", X_Access_Token=token)[0] == 200
    assert named.ask("49983-maaaaaaaaaaaa", "/health")[0] == 502
    # A field of another sandbox does not lead there.
    other = client.create()
    assert named.ask(name, "/metrics", X_Access_Token=other["envdAccessToken"], E2b_Sandbox_Id=other["sandboxID"])[0] == 401


def test_one_connection_reaches_only_names_of_the_api(named, client, sandbox):
    """A client may keep it, and name another host in the next request."""
    plain = socket.create_connection(("127.0.0.1", named.ingress), timeout=60)
    s = ssl.create_default_context(cafile=named.run_dir / "authority.pem").wrap_socket(plain, server_hostname=f"api.{DOMAIN}")
    told = []
    for host in (f"api.{DOMAIN}", f"49983-{sandbox['sandboxID']}.{DOMAIN}", f"8000-{sandbox['sandboxID']}.{DOMAIN}", "localhost", f"api.{DOMAIN}"):
        s.sendall(f"GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head:
            head += s.recv(1)
        told.append(int(head.split()[1]))
        length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0)
        while length:
            length -= len(s.recv(length))
    assert told == [404, 204, 404, 404, 404]


def test_an_exposed_port_of_that_number_comes_first(named):
    box = named.machine()
    token = named.post(f"/v1/machines/{box}/exposures", {"port": 49983})["token"]
    assert named.ask("49983-" + box.replace("-", ""), "/health")[0] == 401
    assert named.ask("49983-" + box.replace("-", ""), "/health", Carrel_Token=token)[0] == 502


def test_the_domain_is_served_after_a_restart(named, client, sandbox):
    named.kill()
    named.start()
    named.until(lambda: named.ask("api", "/v2/sandboxes", X_API_Key=client.key)[0] == 200)
    assert named.ask(f"49983-{sandbox['sandboxID']}", "/metrics", X_Access_Token=sandbox["envdAccessToken"])[0] == 200
