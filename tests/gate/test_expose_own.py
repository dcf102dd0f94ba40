"""Exposed ports with TLS by the daemon's own authority (`[gate] certificate = own`)."""
import os
import socket
import ssl
import stat
import subprocess

import pytest

from carrel import PROGRAM
from test_expose import with_server
from test_expose_tls import DOMAIN, Secured

ASK = """
const [host, port, token] = process.argv.slice(1);
const opened = require('https').get({host, port, path: '/', headers: {'Carrel-Token': token},
    lookup: (name, options, done) => options.all ? done(null, [{address: '127.0.0.1', family: 4}]) : done(null, '127.0.0.1', 4)},
    answer => { console.log(answer.statusCode); answer.resume(); });
opened.on('error', e => console.log(e.code));
"""


class Own(Secured):
    more = "certificate = own\n"

    def __init__(self):
        super(Secured, self).__init__()
        self.certificate = self.run_dir / "authority.pem"

    def secure(self, host, trusted=None):
        plain = socket.create_connection(("127.0.0.1", self.ingress), timeout=20)
        return ssl.create_default_context(cafile=trusted or self.certificate).wrap_socket(plain, server_hostname=host)


@pytest.fixture(scope="module")
def daemon():
    d = Own()
    yield d
    d.stop()


@pytest.fixture(scope="module")
def made(daemon):
    return daemon.post(f"/v1/machines/{with_server(daemon)}/exposures", {"port": 8000})


@pytest.fixture
def host(made):
    return made["url"].split("/")[2].split(":")[0]


def curl(daemon, host, token, *options):
    done = subprocess.run(["curl", "-s", "-o", os.devnull, "-w", "%{http_code}", "--resolve", f"{host}:{daemon.ingress}:127.0.0.1", *options,
                           "-H", f"Carrel-Token: {token}", f"https://{host}:{daemon.ingress}/"], capture_output=True, text=True, timeout=60)
    return done.stdout if done.returncode == 0 else done.returncode


def node(daemon, host, token, **env):
    done = subprocess.run(["node", "-e", ASK, host, str(daemon.ingress), token], env={"PATH": os.environ["PATH"], **env}, capture_output=True, text=True,
                          timeout=60)
    return done.stdout.strip() or done.stderr


def test_clients_that_trust_it_are_served(daemon, made, host):
    assert made["url"].startswith(f"https://{host}:") and host.endswith("." + DOMAIN)
    assert daemon.ask(host, Carrel_Token=made["token"])[0].status == 200
    assert curl(daemon, host, made["token"], "--cacert", daemon.certificate) == "200"
    assert node(daemon, host, made["token"], NODE_EXTRA_CA_CERTS=str(daemon.certificate)) == "200"


def test_clients_that_do_not_trust_it_refuse(daemon, made, host):
    assert curl(daemon, host, made["token"]) == 60
    assert node(daemon, host, made["token"]) in ("UNABLE_TO_VERIFY_LEAF_SIGNATURE", "SELF_SIGNED_CERT_IN_CHAIN", "UNABLE_TO_GET_ISSUER_CERT_LOCALLY")


def test_names_below_localhost_are_served_too(daemon, made, host):
    local = host.split(".")[0] + ".localhost"
    assert curl(daemon, local, made["token"], "--cacert", daemon.certificate) == "200"
    assert node(daemon, local, made["token"], NODE_EXTRA_CA_CERTS=str(daemon.certificate)) == "200"


def test_other_names_are_not_certified(daemon, host):
    for other in ("www.example.com", "example.com", DOMAIN, "a." + host, "localhost", "a.b.localhost", "a,DNS:www.example.com.localhost"):
        with pytest.raises((ssl.SSLError, ssl.CertificateError, ConnectionResetError)):
            daemon.secure(other)


def openssl(*words, **kw):
    return subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, text=True, **kw).stdout


def test_its_key_signs_for_no_other_site(daemon, tmp_path):
    """Not even the thief of the key can make a certificate for another site, or for an address, that clients accept."""
    secret = daemon.home / f"authority-{DOMAIN}.pem"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600 and stat.S_IMODE(daemon.certificate.stat().st_mode) == 0o644
    assert "PRIVATE" not in daemon.certificate.read_text()
    key = tmp_path / "key.pem"
    openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key)

    def accepted(name):
        (tmp_path / "more").write_text(f"subjectAltName={name}\n")
        openssl("req", "-new", "-key", key, "-subj", "/CN=x", "-out", tmp_path / "csr")
        openssl("x509", "-req", "-in", tmp_path / "csr", "-CA", daemon.certificate, "-CAkey", secret, "-extfile", tmp_path / "more", "-days", "2",
                "-out", tmp_path / "leaf.pem")
        return subprocess.run(["openssl", "verify", "-CAfile", daemon.certificate, tmp_path / "leaf.pem"], capture_output=True).returncode == 0

    assert accepted(f"DNS:x.{DOMAIN}") and accepted("DNS:x.localhost"), "the control"
    assert not accepted("DNS:www.example.com") and not accepted("IP:127.0.0.1") and not accepted("IP:::1")


def test_it_stays_the_same_after_a_restart_and_is_reported_if_broken(tmp_path):
    d = Own()
    try:
        box = d.machine()
        d.post(f"/v1/machines/{box}/exposures", {"port": 8000})
        before = d.certificate.read_text()
        d.restart()
        assert d.certificate.read_text() == before
        d.get(f"/v1/machines/{box}/exposures")
        d.delete(f"/v1/machines/{box}/exposures/8000")
        (d.home / f"authority-{DOMAIN}.pem").write_text("no key")
        d.restart()
        done = subprocess.run([PROGRAM, "expose", box, "8000"], env=d.env, capture_output=True, text=True, timeout=60)
        assert done.returncode and f"authority-{DOMAIN}.pem" in done.stderr and "delete it" in done.stderr
    finally:
        d.stop()


class NoDomain(Own):
    domain = ""


def test_it_needs_a_domain():
    d = NoDomain()
    try:
        done = subprocess.run([PROGRAM, "expose", d.machine(), "8000"], env=d.env, capture_output=True, text=True, timeout=60)
        assert done.returncode and "needs a domain" in done.stderr and "[gate] domain" in done.stderr
    finally:
        d.stop()
