"""Registries: images go there and come back, and what a hostile one can do."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import threading

import pytest

from carrel import PROGRAM
from registries import BASIC, PASSWORD, DebianRegistry, MadeRegistry, Quiet, Server, TokenServer, digest_of, login


def image(daemon, *words, docker="/nonexistent", **more):
    """`carrel image` with the credentials in that directory."""
    env = {"PATH": os.environ["PATH"], "CARREL_HOME": str(daemon.home), "CARREL_RUN": str(daemon.run_dir), "DOCKER_CONFIG": str(docker), **{k: str(v) for k, v in more.items()}}
    return subprocess.run([PROGRAM, "image", *map(str, words)], env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=110, text=True)


def names(daemon):
    return {i["name"] for i in daemon.get("/v1/images")["images"]}


@pytest.fixture
def debian(tmp_path):
    """Makes Debian's registry; with `tokens` behind a token server."""
    if not shutil.which("docker-registry"):
        pytest.skip("docker-registry is not installed")
    made = []

    def make(tokens=False):
        (tmp_path / "registry").mkdir()
        if tokens:
            made.append(TokenServer(tmp_path))
        made.append(DebianRegistry(tmp_path / "registry", made[0] if tokens else None))
        return made[-1], made[0]

    yield make
    for server in reversed(made):
        server.stop()


@pytest.fixture
def made(rootfs):
    """A registry that misbehaves on request, with an image in which a shell runs."""
    server = MadeRegistry([rootfs.read_bytes()], {"Env": ["FROM=registry"], "Cmd": ["sh"]})
    yield server
    server.stop()


class Elsewhere(Server):
    """Another host, to which a registry redirects: it has the same objects and records what it was sent."""

    class Handler(Quiet):
        def do_GET(self):
            self.server.owner.requests.append((self.path, self.headers.get("Authorization")))
            self.reply(200, self.server.owner.objects[self.path.rpartition("/")[2]])

    def __init__(self, objects):
        super().__init__(self.Handler)
        self.objects, self.requests = objects, []


@pytest.fixture
def elsewhere(made):
    server = Elsewhere(made.objects)
    yield server
    server.stop()


# ---- Debian's registry ----


def test_image_that_is_pushed_comes_back_the_same(daemon, small, debian):
    registry, _ = debian()
    name = f"{registry.host}/team/app:v1"
    pushed = image(daemon, "push", "small", name, "--json")
    assert pushed.returncode == 0, pushed
    told = json.loads(pushed.stdout)
    assert told["image"] == "small" and told["reference"] == name and re.fullmatch("sha256:[0-9a-f]{64}", told["digest"]), told
    pulled = image(daemon, "pull", name, "--name", "back", "--json")
    assert pulled.returncode == 0 and json.loads(pulled.stdout)["id"] == small["id"], pulled
    by_digest = image(daemon, "pull", f"{registry.host}/team/app@{told['digest']}", "--name", "digest", "--json")
    assert by_digest.returncode == 0 and json.loads(by_digest.stdout)["id"] == small["id"], by_digest
    assert daemon.exec(daemon.machine(image="back"), "cat /etc/group")["stdout"].startswith("root:x:0:")


def test_pulled_image_has_a_name_made_from_the_reference(daemon, small, debian):
    registry, _ = debian()
    assert image(daemon, "push", "small", f"{registry.host}/team/app", "-q").stderr == ""
    done = image(daemon, "pull", f"{registry.host}/team/app")
    assert done.returncode == 0 and done.stdout.startswith(f"{registry.host}.team.app i-"), done


def test_blobs_that_a_registry_has_are_not_sent_again(daemon, small, debian):
    registry, _ = debian()
    assert image(daemon, "push", "small", f"{registry.host}/app:1").returncode == 0
    blobs = {p: p.stat().st_mtime_ns for p in registry.blobs.glob("**/data")}
    assert len(blobs) == 3
    assert image(daemon, "push", "small", f"{registry.host}/app:2").returncode == 0
    after = {p: p.stat().st_mtime_ns for p in registry.blobs.glob("**/data")}
    changed = [p for p in after if after[p] != blobs.get(p)]
    assert len(after) == 3 and all(p.stat().st_size < 4096 for p in changed), "a layer was written again"


def remove_images(daemon):
    for i in daemon.get("/v1/images")["images"]:
        daemon.delete("/v1/images/" + i["name"])
    daemon.post("/v1/images/prune")
    daemon.until(lambda: not list((daemon.home / "images").glob("i-*")))


def test_pull_requests_only_layers_that_are_not_stored(daemon, small, debian, tmp_path):
    """By the access log of Debian's registry."""
    registry, _ = debian()
    for name in ("first", "second"):
        (tmp_path / "recipe").write_text(f"base small\nrun echo {name} >/{name}\n")
        assert image(daemon, "build", tmp_path / "recipe", "--name", name).returncode == 0
        assert image(daemon, "push", name, f"{registry.host}/{name}:1").returncode == 0
    remove_images(daemon)
    requested = []
    for name in ("first", "second", "second"):
        before = len(registry.blobs_sent())
        done = image(daemon, "pull", f"{registry.host}/{name}:1", "--name", name)
        assert done.returncode == 0, done
        requested.append(registry.blobs_sent()[before:])
    config, base, _ = requested[0]
    assert len(set(requested[1])) == 2 and base not in requested[1], "the configuration and its own layer"
    assert requested[2] == requested[1][:1] and requested[2] != [config], "only the configuration"
    assert daemon.exec(daemon.machine(image="second"), "cat /second; ls /first 2>/dev/null")["stdout"] == "second\n"


def test_token_server_is_asked_with_the_credentials_of_docker_login(daemon, small, debian, tmp_path):
    registry, tokens = debian(tokens=True)
    name = f"{registry.host}/team/app:v1"
    docker = login(tmp_path / "docker", registry.host)
    denied = image(daemon, "push", "small", name)
    assert denied.returncode == 125 and "gave no token (status 401)" in denied.stderr and "docker login" in denied.stderr, denied
    done = image(daemon, "push", "small", name, docker=docker)
    assert done.returncode == 0, done
    assert tokens.asked[-1] == {"service": ["registry.tests"], "scope": ["repository:team/app:pull,push"]}
    done = image(daemon, "pull", name, "--name", "back", docker=docker)
    assert done.returncode == 0 and tokens.asked[-1]["scope"] == ["repository:team/app:pull"], done
    wrong = image(daemon, "pull", name, "--name", "back", docker=login(tmp_path / "wrong", registry.host, password="other"))
    assert wrong.returncode == 125 and PASSWORD not in wrong.stderr, wrong


@pytest.mark.parametrize("verb", ["pull", "push"])
def test_credentials_are_in_no_argument(daemon, small, debian, tmp_path, verb):
    """While carrel-registry runs, /proc shows its arguments to all users: they are the reference and no secret."""
    registry, tokens = debian(tokens=True)
    seen = []
    token = tokens.token

    def look(scope):
        for p in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                seen.append(p.read_bytes().split(b"\0"))
            except OSError:
                pass
        return token(scope)

    tokens.token = look
    name = f"{registry.host}/team/app:v1"
    words = ["push", "small", name] if verb == "push" else ["pull", name, "--name", "x"]
    image(daemon, *words, docker=login(tmp_path / "docker", registry.host))
    mine = [a for a in seen if a[0].endswith(b"carrel-registry") and name.encode() in a]
    assert mine and all(a == [b"carrel-registry", verb.encode(), name.encode(), b""] for a in mine), mine


def test_missing_image_is_reported_with_the_words_of_the_registry(daemon, debian):
    registry, _ = debian()
    done = image(daemon, "pull", f"{registry.host}/no/such:1")
    assert done.returncode == 125 and (f"cannot pull '{registry.host}/no/such:1': cannot read the manifest: the registry answered "
                                       "with status 404: manifest unknown") in done.stderr, done
    done = image(daemon, "push", "nothing", f"{registry.host}/no/such:1")
    assert done.returncode == 125 and done.stderr.startswith("carrel: image 'nothing' does not exist"), done
    assert names(daemon) == set()


# ---- a registry made by code ----


def test_index_gives_the_image_of_this_processor(daemon, made):
    done = image(daemon, "pull", made.name, "--name", "app", "--json")
    assert done.returncode == 0, done
    assert json.loads(done.stdout)["config"]["command"] == ["sh"]
    assert daemon.exec(daemon.machine(image="app"), "echo $FROM")["stdout"] == "registry\n"


def test_index_without_this_processor_is_refused(daemon, made):
    made.tag({"schemaVersion": 2, "manifests": [{**made.manifest, "platform": {"os": "linux", "architecture": "s390x"}}]})
    done = image(daemon, "pull", made.name)
    assert done.returncode == 125 and "no image for this processor" in done.stderr, done


@pytest.mark.parametrize("ranges", [True, False])
def test_broken_connections_are_resumed(daemon, made, ranges):
    made.cut, made.ranges = made.layers[0]["size"] // 3 + 1, ranges
    done = image(daemon, "pull", made.name, "--name", "app")
    assert done.returncode == 0, done
    starts = [r for path, _, r in made.requests if path.endswith(made.layers[0]["digest"])]
    assert starts[0] is None and len(starts) >= 2 and all(re.fullmatch(r"bytes=[1-9]\d*-", r) for r in starts[1:]), starts
    assert daemon.exec(daemon.machine(image="app"), "echo $FROM")["stdout"] == "registry\n"


def spoil_layer(made):
    layer = made.layers[0]["digest"]
    made.replace[layer] = made.objects[layer][:-1] + b"x"
    return "does not have the digest"


def shorten_layer(made):
    layer = made.layers[0]["digest"]
    made.replace[layer] = made.objects[layer][:-512]
    return "bytes; the manifest says"


def lengthen_layer(made):
    layer = made.layers[0]["digest"]
    made.replace[layer] = made.objects[layer] + bytes(512)
    return "larger than the manifest says"


def spoil_config(made):
    made.replace[made.config["digest"]] = made.objects[made.config["digest"]].replace(b"FROM=registry", b"FROM=nowhere!")
    return "does not have the digest"


def spoil_manifest(made):
    made.replace[made.manifest["digest"]] = made.objects[made.manifest["digest"]].replace(b'"schemaVersion": 2', b'"schemaVersion":  2')
    return "the index says"


def swap_manifest(made):
    text = made.objects[made.manifest["digest"]]
    made.replace[made.manifest["digest"]] = text.replace(b'"size"', b'"sizE"', 1)
    return "the manifest does not have the digest"


def huge_manifest(made):
    made.tag(b" " * (5 << 20))
    return "larger than 4194304 bytes"


def huge_layer(made):
    made.tag({"schemaVersion": 2, "config": made.config, "layers": [{**made.layers[0], "size": 1 << 50}]})
    return "the limit is 68719476736"


def many_layers(made):
    made.tag({"schemaVersion": 2, "config": made.config, "layers": 129 * made.layers})
    return "more than 128 layers"


def path_in_digest(made):
    made.tag({"schemaVersion": 2, "config": made.config, "layers": [{**made.layers[0], "digest": "sha256:../../../../etc/passwd"}]})
    return "invalid digest 'sha256:../../../../etc/passwd'"


def old_manifest(made):
    made.tag({"schemaVersion": 1, "fsLayers": []})
    return "not of version 2"


def redirect_to_file(made):
    path = "/v2/made/app/blobs/" + made.layers[0]["digest"]
    made.answers[path] = (307, b"", {"Location": "file:///etc/passwd"})
    return "invalid URL 'file:///etc/passwd'"


def redirect_with_password(made):
    path = "/v2/made/app/blobs/" + made.layers[0]["digest"]
    made.answers[path] = (307, b"", {"Location": f"http://ann:word@{made.host}{path}"})
    return "a user name or password"


def redirect_to_plain_host(made):
    path = "/v2/made/app/blobs/" + made.layers[0]["digest"]
    made.answers[path] = (307, b"", {"Location": "http://192.0.2.1/blob"})
    return "which is not https"


def redirect_without_end(made):
    path = "/v2/made/app/blobs/" + made.layers[0]["digest"]
    made.answers[path] = (307, b"", {"Location": path})
    return "redirects more than 5 times"


ATTACKS = [spoil_layer, shorten_layer, lengthen_layer, spoil_config, spoil_manifest, swap_manifest, huge_manifest, huge_layer, many_layers,
           path_in_digest, old_manifest, redirect_to_file, redirect_with_password, redirect_to_plain_host, redirect_without_end]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda f: f.__name__)
def test_hostile_registry_gives_no_image(daemon, made, attack):
    said = attack(made)
    done = image(daemon, "pull", made.name, "--name", "app")
    assert done.returncode == 125 and said in done.stderr, done
    assert names(daemon) == set()
    made.answers.clear()
    made.replace.clear()
    made.objects["1"] = made.objects[made.index["digest"]]
    assert image(daemon, "pull", made.name, "--name", "app").returncode == 0, "the control: the same registry without the attack"


@pytest.mark.parametrize("name", ["127.0.0.1:5000/../app", "127.0.0.1:5000/a//b", "127.0.0.1:5000/App", "127.0.0.1:5000/app:", "127.0.0.1:5000/app:a/b",
                                  "127.0.0.1:5000/app@md5:00", "127.0.0.1:50000000/app", "user@127.0.0.1:5000/app", "127.0.0.1:5000/app?x"])
def test_wrong_reference_is_refused_before_anything_is_asked(daemon, name):
    done = image(daemon, "pull", name, "--name", "app")
    assert done.returncode == 125 and "is not a name of an image in a registry" in done.stderr, done


def test_redirect_to_another_host_is_followed_without_credentials(daemon, made, elsewhere, tmp_path):
    docker = login(tmp_path / "docker", made.host)
    made.wants, made.challenge = BASIC, 'Basic realm="made"'
    path = "/v2/made/app/blobs/" + made.layers[0]["digest"]
    made.answers[path] = (307, b"", {"Location": f"http://{elsewhere.host}/cdn/{made.layers[0]['digest']}"})
    done = image(daemon, "pull", made.name, "--name", "app", docker=docker)
    assert done.returncode == 0, done
    assert [auth for p, auth, _ in made.requests if p == path] == [BASIC], "the control: the registry itself got them"
    assert elsewhere.requests == [("/cdn/" + made.layers[0]["digest"], None)]


def test_token_server_that_redirects_gets_nobody_the_credentials(daemon, made, elsewhere, tmp_path):
    docker = login(tmp_path / "docker", made.host)
    made.wants, made.challenge = "Bearer x", f'Bearer realm="http://{made.host}/token",service="made"'
    made.answers["/token?service=made&scope=repository%3Amade%2Fapp%3Apull"] = (307, b"", {"Location": f"http://{elsewhere.host}/token"})
    done = image(daemon, "pull", made.name, "--name", "app", docker=docker)
    assert done.returncode == 125 and "gave no token (status 307)" in done.stderr and elsewhere.requests == [], done
    made.answers["/token?service=made&scope=repository%3Amade%2Fapp%3Apull"] = (200, b'{"token": "x"}', {})
    assert image(daemon, "pull", made.name, "--name", "app", docker=docker).returncode == 0, "the control"
    assert [auth for p, auth, _ in made.requests if p.startswith("/token")] == [BASIC, BASIC]


def test_credentials_of_another_registry_are_not_sent(daemon, made, tmp_path):
    docker = login(tmp_path / "docker", "registry.example")
    made.wants, made.challenge = BASIC, 'Basic realm="made"'
    done = image(daemon, "pull", made.name, "--name", "app", docker=docker)
    assert done.returncode == 125 and "status 401" in done.stderr and {auth for _, auth, _ in made.requests} == {None}, done
    assert image(daemon, "pull", made.name, "--name", "app", docker=login(tmp_path / "docker", made.host)).returncode == 0, "the control"


def test_http_is_used_for_this_host_only(daemon, made):
    """The address 0.0.0.0 leads to this host, but is not one of loopback."""
    other = made.name.replace("127.0.0.1", "0.0.0.0")
    done = image(daemon, "pull", other, "--name", "app")
    assert done.returncode == 125 and "--insecure uses http" in done.stderr and made.requests == [], done
    assert image(daemon, "pull", other, "--name", "app", "--insecure").returncode == 0, "the control"


def test_registry_with_an_unknown_certificate_is_refused(daemon, made, tmp_path):
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=made", "-days", "2", "-addext", "subjectAltName=IP:0.0.0.0",
                    "-keyout", key, "-out", cert], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    made.http.socket = context.wrap_socket(made.http.socket, server_side=True)
    name = made.name.replace("127.0.0.1", "0.0.0.0")
    done = image(daemon, "pull", name, "--name", "app")
    assert done.returncode == 125 and "certificate" in done.stderr and made.requests == [], done
    done = image(daemon, "pull", name, "--name", "app", SSL_CERT_FILE=cert)
    assert done.returncode == 0, "the control"


def test_password_of_docker_login_is_never_printed(daemon, made, tmp_path):
    made.wants, made.challenge = "Bearer x", f'Bearer realm="http://{made.host}/none",service="made"'
    done = image(daemon, "pull", made.name, "--name", "app", docker=login(tmp_path / "docker", made.host))
    assert done.returncode == 125 and PASSWORD not in done.stderr + done.stdout and BASIC[6:] not in done.stderr + done.stdout, done
    assert BASIC in {auth for _, auth, _ in made.requests}, "the control: it was used"


def test_layer_that_occurs_twice_is_pulled_once(daemon, rootfs):
    layer = rootfs.read_bytes()
    server = MadeRegistry([layer, layer])
    try:
        assert image(daemon, "pull", server.name, "--name", "app").returncode == 0
        assert [p for p, _, _ in server.requests].count("/v2/made/app/blobs/" + digest_of(layer)) == 1
    finally:
        server.stop()


def test_layer_that_is_deleted_during_a_pull_is_pulled(daemon, rootfs):
    """The client asked the daemon before the registry was asked for the configuration."""
    layer = rootfs.read_bytes()
    server = MadeRegistry([layer])
    deleted = []

    class Deleting(dict):
        def get(self, name, *default):
            if name == server.config["digest"] and deleted == [False]:
                deleted[0] = True
                remove_images(daemon)
            return super().get(name, *default)

    server.replace = Deleting()
    blob = "/v2/made/app/blobs/" + digest_of(layer)
    try:
        for name in ("first", "second", "third"):
            deleted[:] = [False] if name == "third" else []
            before = len(server.requests)
            done = image(daemon, "pull", server.name, "--name", name)
            assert done.returncode == 0, done
            count = [path for path, *_ in server.requests[before:]].count(blob)
            assert count == {"first": 1, "second": 0, "third": 1}[name], name
        assert deleted == [True] and names(daemon) == {"third"}
    finally:
        server.stop()


class Cutting:
    """Stands before a registry, and ends the first connection that sends it more than `limit` bytes."""

    def __init__(self, port, limit):
        self.port, self.limit, self.cuts = port, limit, 0
        self.server = socket.create_server(("127.0.0.1", 0))
        self.host = "127.0.0.1:%d" % self.server.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                client, behind = self.server.accept()[0], socket.create_connection(("127.0.0.1", self.port))
                threading.Thread(target=self.carry, args=(client, behind, True), daemon=True).start()
                threading.Thread(target=self.carry, args=(behind, client, False), daemon=True).start()

    def carry(self, source, to, sends):
        passed = 0
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                passed += len(data)
                if sends and passed > self.limit and not self.cuts:
                    self.cuts += 1
                    break
                to.sendall(data)
        for end in (source, to):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def stop(self):
        self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()


def test_push_continues_after_a_broken_connection(daemon, small, debian):
    registry, _ = debian()
    before = Cutting(registry.port, 2 << 20)
    try:
        done = image(daemon, "push", "small", f"{before.host}/app:1")
        assert done.returncode == 0 and before.cuts == 1, done
    finally:
        before.stop()
    pulled = image(daemon, "pull", f"{registry.host}/app:1", "--name", "back", "--json")
    assert pulled.returncode == 0 and json.loads(pulled.stdout)["id"] == small["id"], pulled


class Losing(Server):
    """
    A registry for pushes. It cuts the first part of a layer. Then it refuses the upload `losses` times, as one does that still wrote
    bytes of the broken connection: at the resumed part, or with `late` at the end of the upload.
    """

    class Handler(Quiet):
        def do_HEAD(self):
            self.reply(404)

        def do_POST(self):
            owner = self.server.owner
            owner.uploads.append(b"")
            self.reply(202, Location=f"/upload/{len(owner.uploads) - 1}")

        def do_GET(self):
            self.reply(204, Location=self.path, Range="0-1048575")

        def do_PATCH(self):
            owner, size, number = self.server.owner, int(self.headers["Content-Length"]), int(self.path.rpartition("/")[2])
            if size > 1 << 20 and not owner.cut:
                self.rfile.read(1 << 20)
                owner.cut = self.close_connection = True
                return self.connection.shutdown(socket.SHUT_RDWR)
            data = self.rfile.read(size)
            if size > 1 << 20 and not owner.late and self.is_lost():
                return
            owner.uploads[number] += data
            self.reply(202, Location=self.path)

        def do_PUT(self):
            owner, data, (path, _, asked) = self.server.owner, self.rfile.read(int(self.headers.get("Content-Length", 0))), self.path.partition("?digest=")
            if asked and owner.cut and owner.late and self.is_lost():
                return
            if asked:
                owner.kept[asked.replace("%3A", ":")] = owner.uploads[int(path.rpartition("/")[2])]
            self.reply(201)

        def is_lost(self):
            owner = self.server.owner
            owner.losses -= 1
            if owner.losses < 0:
                return False
            self.reply(404, b'{"errors":[{"code":"BLOB_UPLOAD_INVALID","message":"blob upload invalid"}]}')
            return True

    def __init__(self, losses, late):
        super().__init__(self.Handler)
        self.losses, self.late, self.cut, self.uploads, self.kept = losses, late, False, [], {}


@pytest.mark.parametrize("late", [False, True])
def test_push_begins_an_upload_again_that_the_registry_lost(daemon, small, late):
    server = Losing(2, late)
    try:
        done = image(daemon, "push", "small", f"{server.host}/app:1")
        assert done.returncode == 0 and server.cut and server.losses < 0, done
        assert server.kept and all(digest_of(data) == digest for digest, data in server.kept.items())
    finally:
        server.stop()


@pytest.mark.parametrize("late", [False, True])
def test_push_ends_if_the_registry_always_loses_the_upload(daemon, small, late):
    server = Losing(1000, late)
    try:
        done = image(daemon, "push", "small", f"{server.host}/app:1")
        assert done.returncode == 125 and "blob upload invalid" in done.stderr and server.losses > 1000 - 10, done
    finally:
        server.stop()


def test_built_image_with_several_layers_comes_back(daemon, small, debian, tmp_path):
    registry, _ = debian()
    (tmp_path / "recipe").write_text("base small\nrun echo one >/one; rm /etc/group\nenv A=b\nrun echo two >/two\n")
    assert image(daemon, "build", tmp_path / "recipe", "--name", "app").returncode == 0
    assert image(daemon, "push", "app", f"{registry.host}/app:1").returncode == 0
    pulled = image(daemon, "pull", f"{registry.host}/app:1", "--name", "back")
    assert pulled.returncode == 0, pulled
    assert daemon.exec(daemon.machine(image="back"), "cat /one /two; ls /etc/group; echo $A")["stdout"] == "one\ntwo\nb\n"
