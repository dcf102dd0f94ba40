"""Package archives of the tests: a signed Debian archive and an npm registry, under the names that the host's tools use.

The rules of a preset come from the host's own configuration, so the archives listen at the usual ports of a loopback
address, and the hosts file of the gate leads the names there.
"""
import base64
import hashlib
import http.server
import io
import json
import lzma
import os
import pathlib
import re
import socketserver
import ssl
import subprocess
import tarfile
import tempfile
import threading

import servers

ADDRESS = "127.0.0.2"
REGISTRY = "registry.npmjs.org"
RELEASE, LIST, DEB = "/test/dists/stable/InRelease", "/test/dists/stable/main/binary-all/Packages.xz", "/test/pool/big_1.0%7ea_all.deb"


def apt_host():
    """A host that the host's apt gets packages from over HTTP, or None."""
    files = [pathlib.Path("/etc/apt/sources.list"), *pathlib.Path("/etc/apt/sources.list.d").glob("*")]
    for path in files:
        for line in path.read_text().splitlines() if path.is_file() else ():
            found = None if line.lstrip().startswith("#") else re.search(r"http://([a-z0-9.-]+)(?:/|\s|$)", line)
            if found:
                return found[1]
    return None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.seen.append((self.path, dict(self.headers.items())))
        body = self.server.files.get(self.path.replace("%7E", "%7e"))
        if callable(body):
            return body(self)
        self.send_response(404 if body is None else 200)
        body = body or b""
        self.send_header("Content-Length", str(len(body)))
        for name, value in self.server.more.get(self.path, ()):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.server.sent += len(body)

    def log_message(self, *_):
        pass


class Archive(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True

    def __init__(self, port, context=None):
        self.files, self.more, self.seen, self.sent = {}, {}, [], 0
        super().__init__((ADDRESS, port), Handler)
        if context:
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def paths(self):
        return [path for path, _ in self.seen]

    def forget(self):
        self.seen, self.sent = [], 0

    def stop(self):
        self.shutdown()
        self.server_close()

    def handle_error(self, *_):
        pass


class Signer:
    """A key of the test, and the keyring with its public part."""

    def __init__(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="cg-", dir="/tmp"))
        self.dir.chmod(0o755)  # the verifier of root's daemon is nobody
        self.home = self.dir / "home"
        self.home.mkdir(mode=0o700)
        self.gpg("--passphrase", "", "--quick-gen-key", "test <test@test>", "ed25519", "sign", "never")
        self.ring = self.dir / "ring.gpg"
        self.ring.write_bytes(self.gpg("--export"))

    def gpg(self, *words, data=None):
        return subprocess.run(["gpg", "--quiet", "--batch", "--homedir", self.home, *words], input=data, check=True, capture_output=True).stdout

    def sign(self, text):
        return self.gpg("--clearsign", "--output", "-", data=text.encode())

    def stop(self):
        subprocess.run(["gpgconf", "--homedir", self.home, "--kill", "all"], check=False)


def make_deb(name, version, size, where):
    """A real package with one file of this size, which cannot be compressed."""
    tree = where / f"{name}-tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "opt").mkdir()
    (tree / "opt" / name).write_bytes(os.urandom(size))
    (tree / "DEBIAN/control").write_text(f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: test <test@test>\nDescription: test\n")
    out = where / f"{name}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, out], check=True, capture_output=True)
    return out.read_bytes()


def publish(archive, signer, debs, by_hash=False, root="/test", signed=None):
    """Puts packages into the archive: {file name: (name, version, bytes)}. signed changes the signed document."""
    listing = "".join(f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: test <test@test>\nDescription: test\n"
                      f"Filename: pool/{file}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n\n" for file, (name, version, data) in debs.items())
    plain, packed = listing.encode(), lzma.compress(listing.encode())
    dists = f"{root}/dists/stable"
    files = {"main/binary-all/Packages": plain, "main/binary-all/Packages.xz": packed}
    digests = "".join(f" {hashlib.sha256(data).hexdigest()} {len(data)} {name}\n" for name, data in files.items())
    text = (f"Origin: test\nSuite: stable\nCodename: stable\nDate: Tue, 17 Nov 2026 00:00:00 UTC\nArchitectures: all arm64 amd64\nComponents: main\n"
            f"Acquire-By-Hash: {'yes' if by_hash else 'no'}\nSHA256:\n{digests}")
    release = signer.sign(text)
    archive.files[f"{dists}/InRelease"] = signed(release) if signed else release
    for name, data in files.items():
        archive.files[f"{dists}/{name}"] = data
        archive.files[f"{dists}/main/binary-all/by-hash/SHA256/{hashlib.sha256(data).hexdigest()}"] = data
    for file, (_, _, data) in debs.items():
        archive.files[f"{root}/pool/{file.replace('~', '%7e')}"] = data


def make_tarball(name, size):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for path, data in (("package/package.json", json.dumps({"name": name, "version": "1.0.0"}).encode()), ("package/data", os.urandom(size))):
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def npm_publish(archive, name, tarball, claims=None):
    """claims: {path of a tarball: bytes} that the document vouches for besides its own."""
    def dist(path, data):
        return {"tarball": f"https://{REGISTRY}{path}", "shasum": hashlib.sha1(data).hexdigest(),
                "integrity": "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()}
    own = f"/{name}/-/{name.split('/')[-1]}-1.0.0.tgz"
    versions = {"1.0.0": {"name": name, "version": "1.0.0", "dist": dist(own, tarball)}}
    for n, (path, data) in enumerate((claims or {}).items()):
        versions[f"0.0.{n}"] = {"name": name, "version": f"0.0.{n}", "dist": dist(path, data)}
    archive.files[f"/{name.replace('/', '%2f')}"] = json.dumps({"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": versions}).encode()
    archive.files[own] = tarball
    return own


def make_context(directory):
    if not (directory / "cert.pem").exists():
        servers.make_certificate(directory, [REGISTRY])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "cert.pem", directory / "key.pem")
    return context


APT = ("-o Dir::Etc::sourcelist=/tmp/test.list -o Dir::Etc::sourceparts=/nowhere -o Dir::State::lists=/tmp/lists -o APT::Sandbox::User=root "
       "-o Dir::Cache::archives=/tmp/archives -o Acquire::Languages=none")


def apt_install(daemon, box, signer, url):
    """Installs the package `big` of the archive at this URL; the digest of its file."""
    daemon.put(f"/v1/machines/{box}/files", signer.ring.read_bytes(), path="/tmp/ring.gpg", user="root")
    done = daemon.exec(box, f"mkdir -p /tmp/lists/partial /tmp/archives/partial; echo 'deb [signed-by=/tmp/ring.gpg] {url} stable main' >/tmp/test.list;"
                            f" apt-get {APT} update && apt-get {APT} install -y big && sha256sum /opt/big", user="root", timeout=100)
    assert done["exec"]["status"] == 0, (done["stdout"], done["stderr"])
    return done["stdout"].splitlines()[-1]
