"""Exposed ports with TLS, by a certificate that the owner gives."""
import http.client
import os
import socket
import ssl
import subprocess

import pytest

from carrel import PROGRAM
from test_expose import Exposing, with_server

DOMAIN = "boxes.example.com"


def make_certificate(where, name=f"*.{DOMAIN}"):
    """A certificate that is its own authority, and its key."""
    new = where / "new"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                    "-addext", f"subjectAltName=DNS:{name}", "-keyout", where / "key.pem", "-out", new], check=True, capture_output=True)
    (where / "ca.pem").write_bytes(new.read_bytes())
    os.rename(new, where / "chain.pem")


class Secured(Exposing):
    domain = DOMAIN

    def __init__(self, where):
        self.where = where
        self.more = f"certificate = {where}/chain.pem\ncertificate_key = {where}/key.pem\n"
        super().__init__()

    def secure(self, host):
        """A connection with TLS, as a client makes it that trusts the certificate."""
        plain = socket.create_connection(("127.0.0.1", self.ingress), timeout=20)
        return ssl.create_default_context(cafile=self.where / "ca.pem").wrap_socket(plain, server_hostname=host)

    def ask(self, host, method="GET", path="/", body=None, **headers):
        c = http.client.HTTPConnection(host)
        c.sock = self.secure(host)
        c.request(method, path, body=body, headers={k.replace("_", "-"): v for k, v in headers.items()})
        answer = c.getresponse()
        text = answer.read()
        c.close()
        return answer, text


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    where = tmp_path_factory.mktemp("tls")
    make_certificate(where)
    d = Secured(where)
    yield d
    d.stop()


@pytest.fixture(scope="module")
def made(daemon):
    return daemon.post(f"/v1/machines/{with_server(daemon)}/exposures", {"port": 8000})


@pytest.fixture
def host(made):
    return made["url"].split("/")[2].split(":")[0]


def test_the_url_and_the_cookie_are_for_tls(daemon, made, host):
    assert made["url"].startswith(f"https://{host}:{daemon.ingress}/?") and host.endswith("." + DOMAIN)
    assert "direct_url" not in made and "headers" not in made  # the certificate is for names
    answer, _ = daemon.ask(host, path="/" + made["url"].split("/")[3])
    assert answer.status == 302 and "; Secure" in answer.headers["Set-Cookie"]
    assert daemon.ask(host)[0].status == 401
    assert daemon.ask(host, Carrel_Token=made["token"])[0].status == 200


def test_much_goes_both_ways(daemon, made, host):
    answer, text = daemon.ask(host, "POST", "/big", body=b"z" * 5_000_000, Carrel_Token=made["token"])
    assert answer.status == 200 and len(text) == 3_000_000
    answer, text = daemon.ask(host, "POST", "/", body=b"z" * 5_000_000, Carrel_Token=made["token"])
    assert answer.status == 200 and b'"n": 5000000' in text


def test_a_websocket_works(daemon, made, host):
    with daemon.secure(host) as s:
        s.sendall("\r\n".join(["GET /echo HTTP/1.1", f"Host: {host}", "Upgrade: echo", "Connection: Upgrade", f"Carrel-Token: {made['token']}", "", ""]).encode())
        head = b""
        while b"\r\n\r\n" not in head:
            head += s.recv(100)
        assert head.startswith(b"HTTP/1.1 101 ")
        for word in (b"one", b"two"):
            s.sendall(word)
            back = b""
            while len(back) < len(word):
                back += s.recv(10)
            assert back == word


def test_plain_http_and_garbage_get_nothing(daemon, host, made):
    for first in (f"GET / HTTP/1.1\r\nHost: {host}\r\nCarrel-Token: {made['token']}\r\n\r\n".encode(), b"\x16\x03\x01\xff\xff" + b"\0" * 100, b"\n"):
        with socket.create_connection(("127.0.0.1", daemon.ingress), timeout=20) as s:
            s.sendall(first)
            s.shutdown(socket.SHUT_WR)
            heard = b""
            try:
                while more := s.recv(1000):
                    heard += more
            except ConnectionResetError:
                pass
            assert b"HTTP/1.1 200" not in heard
    assert daemon.ask(host, Carrel_Token=made["token"])[0].status == 200, "others are served"


def test_old_versions_of_tls_are_refused(daemon, host):
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with socket.create_connection(("127.0.0.1", daemon.ingress), timeout=20) as plain, pytest.raises((ssl.SSLError, ConnectionResetError)):
        old.wrap_socket(plain, server_hostname=host)


def test_a_renewed_certificate_is_used_and_a_broken_one_is_not(daemon, host, made):
    (daemon.where / "chain.pem").write_text("no certificate")
    assert daemon.ask(host, Carrel_Token=made["token"])[0].status == 200, "by the certificate that it has"
    before = (daemon.where / "ca.pem").read_bytes()
    make_certificate(daemon.where)
    assert daemon.ask(host, Carrel_Token=made["token"])[0].status == 200
    (daemon.where / "ca.pem").write_bytes(before)
    with pytest.raises(ssl.SSLError):
        daemon.ask(host)


def test_a_certificate_that_cannot_be_used_is_reported(tmp_path):
    make_certificate(tmp_path)
    (tmp_path / "key.pem").unlink()
    d = Secured(tmp_path)
    try:
        box = d.machine()
        done = subprocess.run([PROGRAM, "expose", box, "8000"], env=d.env, capture_output=True, text=True, timeout=60)
        assert done.returncode and f"cannot use the private key in '{tmp_path}/key.pem'" in done.stderr and "certificate_key" in done.stderr
        make_certificate(tmp_path)
        assert subprocess.run([PROGRAM, "expose", box, "8000"], env=d.env, capture_output=True, timeout=60).returncode == 0
    finally:
        d.stop()
