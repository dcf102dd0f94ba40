"""Registries on loopback: Debian's docker-registry, with a token server, and one that misbehaves on request."""
import base64
import contextlib
import hashlib
import http.server
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse

from trees import ARCH

USER, PASSWORD = "ann", "s3cret:with colon"
BASIC = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def digest_of(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def login(directory, host, user=USER, password=PASSWORD):
    """A directory for DOCKER_CONFIG with these credentials."""
    directory.mkdir(exist_ok=True)
    auth = base64.b64encode(f"{user}:{password}".encode()).decode()
    (directory / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}))
    return directory


class Server:
    """An HTTP server in a thread; the handler finds it as `self.server.owner`."""

    def __init__(self, handler):
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.http.daemon_threads = True
        self.http.owner = self
        self.port = self.http.server_address[1]
        self.host = f"127.0.0.1:{self.port}"
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self):
        self.http.shutdown()
        self.http.server_close()


class Quiet(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        pass

    def reply(self, status, body=b"", **fields):
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


# ---- Debian's registry, with tokens ----


def encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class TokenServer(Server):
    """Gives tokens to whoever has the password, for exactly the scope that was asked for."""

    class Handler(Quiet):
        def do_GET(self):
            owner = self.server.owner
            query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
            owner.asked.append(query)
            if self.headers.get("Authorization") != BASIC:
                return self.reply(401)
            self.reply(200, json.dumps({"token": owner.token(query["scope"][0])}).encode(), Content_Type="application/json")

    def __init__(self, directory):
        super().__init__(self.Handler)
        self.asked = []
        self.key, self.cert = directory / "key.pem", directory / "cert.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=tokens", "-days", "2", "-keyout", self.key,
                        "-out", self.cert], check=True, capture_output=True)
        self.der = subprocess.run(["openssl", "x509", "-in", self.cert, "-outform", "DER"], check=True, capture_output=True).stdout

    def token(self, scope):
        kind, name, actions = scope.split(":")
        head = {"typ": "JWT", "alg": "RS256", "x5c": [base64.b64encode(self.der).decode()]}
        claims = {"iss": "tests", "sub": USER, "aud": "registry.tests", "exp": int(time.time()) + 600, "nbf": int(time.time()) - 60, "iat": int(time.time()),
                  "jti": os.urandom(8).hex(), "access": [{"type": kind, "name": name, "actions": actions.split(",")}]}
        text = encoded(json.dumps(head).encode()) + "." + encoded(json.dumps(claims).encode())
        signed = subprocess.run(["openssl", "dgst", "-sha256", "-sign", self.key], input=text.encode(), check=True, capture_output=True).stdout
        return text + "." + encoded(signed)


class DebianRegistry:
    """Debian's docker-registry, with its blobs in a directory."""

    def __init__(self, directory: pathlib.Path, tokens=None):
        self.port = free_port()
        self.host = f"127.0.0.1:{self.port}"
        self.blobs = directory / "blobs"
        auth = ""
        if tokens:
            auth = (f"auth:\n  token:\n    realm: http://{tokens.host}/token\n    service: registry.tests\n    issuer: tests\n"
                    f"    rootcertbundle: {tokens.cert}\n")
        (directory / "config.yml").write_text(
            f"version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {self.blobs}\nhttp:\n  addr: {self.host}\n{auth}")
        self.access = directory / "access"
        self.process = subprocess.Popen([shutil.which("docker-registry"), "serve", directory / "config.yml"], stdout=open(self.access, "w"),
                                        stderr=open(directory / "log", "w"))
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            assert self.process.poll() is None, (directory / "log").read_text()
            time.sleep(0.05)

    def blobs_sent(self):
        """Digests of the blobs that clients have requested, from its access log."""
        return re.findall(r'"GET /v2/\S+/blobs/(sha256:[0-9a-f]{64}) ', self.access.read_text())

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


# ---- a registry made by code ----


class MadeRegistry(Server):
    """
    Holds one image as `made/app:1`, behind an index of two processors. What it does wrong is set by the test:
    `replace` gives other bytes for a digest, `cut` ends the connection after so many bytes of each layer, `answers` gives
    whole answers for paths. It records the paths and the Authorization of all requests.
    """

    class Handler(Quiet):
        def do_HEAD(self):
            self.do_GET()

        def do_GET(self):
            owner = self.server.owner
            owner.requests.append((self.path, self.headers.get("Authorization"), self.headers.get("Range")))
            if self.path in owner.answers:
                status, body, fields = owner.answers[self.path]
                return self.reply(status, body, **fields)
            if owner.wants and self.headers.get("Authorization") != owner.wants:
                return self.reply(401, WWW_Authenticate=owner.challenge)
            name = self.path.rpartition("/")[2]
            body = owner.replace.get(name, owner.objects.get(name))
            if body is None:
                return self.reply(404, b'{"errors":[{"message":"not here"}]}')
            if "/blobs/" in self.path and owner.cut:
                return self.part(body)
            self.reply(200, body)

        def part(self, body):
            """A part of a blob, with the length of the whole; then the connection ends."""
            owner, start = self.server.owner, 0
            asked = self.headers.get("Range")
            if asked and owner.ranges:
                start = int(asked[6:-1])
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            else:
                self.send_response(200)
            self.send_header("Content-Length", str(len(body) - start))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(body[start:start + owner.cut])
            owner.cut = owner.cut if owner.ranges else 2 * owner.cut
            self.close_connection = True

    def __init__(self, layers, config=None):
        super().__init__(self.Handler)
        self.objects, self.replace, self.answers, self.requests = {}, {}, {}, []
        self.cut, self.ranges, self.wants, self.challenge = 0, True, None, ""
        config = {"architecture": ARCH, "os": "linux", "config": config or {}, "rootfs": {"type": "layers", "diff_ids": [digest_of(x) for x in layers]}}
        self.config = self.add(json.dumps(config).encode())
        self.layers = [self.add(x) for x in layers]
        self.manifest = self.add(json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "config": self.config, "layers": self.layers}).encode(), MANIFEST)
        other = {**self.manifest, "digest": "sha256:" + 64 * "0", "platform": {"os": "linux", "architecture": "s390x"}}
        mine = {**self.manifest, "platform": {"os": "linux", "architecture": ARCH}}
        self.index = self.add(json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": [other, mine]}).encode(), INDEX)
        self.objects["1"] = self.objects[self.index["digest"]]

    def add(self, data, kind="application/octet-stream"):
        self.objects[digest_of(data)] = data
        return {"mediaType": kind, "digest": digest_of(data), "size": len(data)}

    def tag(self, document):
        """Gives the tag to another manifest or index."""
        self.objects["1"] = document if isinstance(document, bytes) else json.dumps(document).encode()

    @property
    def name(self):
        return f"{self.host}/made/app:1"
