"""The package cache: what was downloaded and verified is delivered again, under the same rules, to the same owner only."""
import functools
import gzip
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

import pytest

import archives
from archives import DEB, LIST, REGISTRY, RELEASE
from carrel import BUILD, PROGRAM
from daemon import Daemon

HOST = archives.apt_host()
URL = f"http://{HOST}"
FILE = "big_1.0~a_all.deb"
MIB = 1 << 20

pytestmark = [
    pytest.mark.skipif(not HOST, reason="apt of this host names no server with a plain http:// URL"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may listen at the ports 80 and 443, which the presets name"),
    pytest.mark.skipif(not all(map(shutil.which, ("gpgv", "gpg", "dpkg-deb"))), reason="gpgv, gpg or dpkg-deb is not installed"),
]


@pytest.fixture(scope="module")
def signer():
    s = archives.Signer()
    yield s
    s.stop()


@pytest.fixture(scope="module")
def stranger():
    s = archives.Signer()
    yield s
    s.stop()


@pytest.fixture(scope="module")
def deb(tmp_path_factory):
    return archives.make_deb("big", "1.0~a", 20 * MIB, tmp_path_factory.mktemp("deb"))


@pytest.fixture
def archive():
    a = archives.Archive(80)
    yield a
    a.stop()


@pytest.fixture
def registry():
    a = archives.Archive(443, archives.make_context(CERTIFICATES))
    yield a
    a.stop()


CERTIFICATES = pathlib.Path(tempfile.mkdtemp(prefix="cg-", dir="/tmp"))


class Own(Daemon):
    """A daemon whose carrel-packages is a script of the test."""

    def __init__(self, where, script, *options, **more):
        shutil.copytree(BUILD / "libexec", where / "libexec", ignore=lambda d, names: [n for n in names if n.endswith(".p")])
        shutil.copy(BUILD / "carrel", where / "carrel")
        where.chmod(0o711)
        worker = where / "libexec/carrel-packages"
        worker.unlink()
        worker.write_text("#!/bin/sh\n" + script)
        worker.chmod(0o755)
        self.program = where / "libexec/carrel-daemon"
        super().__init__(*options, **more)


def make_daemon(signer, size, of=Daemon):
    (CERTIFICATES / "hosts").write_text(f"{archives.ADDRESS} {HOST} {REGISTRY} other.test\n")
    archives.make_context(CERTIFICATES)
    CERTIFICATES.chmod(0o711)
    return of("--listen", "127.0.0.1:0", conf=f"[gate]\nhosts = {CERTIFICATES}/hosts\nca = {CERTIFICATES}/ca.pem\npackage_cache = {size}\npackage_keyring = {signer.ring}\n"
                       "[journal]\nrefusals = 100000\n")


@pytest.fixture(scope="module")
def daemon_session(signer):
    d = make_daemon(signer, "128M")
    yield d
    d.stop()


@pytest.fixture
def d(daemon_session):
    daemon_session.delete("/v1/packages")
    yield daemon_session
    daemon_session.clear()


def machine(d, preset="apt", **more):
    return d.machine(net=[{"target": preset, "local": True, **more}], limits={"disk": "1G", "mem": "512M"})


def fetch(d, box, url, *words):
    """The digest that the machine computes of what it got, or the failure of curl."""
    done = d.exec(box, ["bash", "-c", 'set -o pipefail; curl -sS --fail --max-time 60 "$@" | sha256sum', "-", url, *words])
    return done["stdout"].split()[0] if done["exec"]["status"] == 0 else done["stderr"]


def kept(d):
    return d.get("/v1/packages")["packages"]


def learn(d, box, *paths):
    for path in paths or (RELEASE, LIST):
        fetch(d, box, URL + path)


def fill(d, box, count=1):
    """Downloads the documents and the package as apt does, and waits until the package is kept."""
    learn(d, box)
    first = fetch(d, box, URL + DEB)
    d.until(lambda: len(kept(d)) >= count)
    return first


def never_kept(d, box, archive):
    """Shows that nothing is kept. A later package of another, good archive is: so all before it was decided about."""
    fetch(d, box, f"{URL}/control/dists/stable/InRelease")
    fetch(d, box, f"{URL}/control/dists/stable/main/binary-all/Packages.xz")
    fetch(d, box, f"{URL}/control/pool/small.deb")
    d.until(lambda: any("/control/" in p["url"] for p in kept(d)))
    return [p["url"] for p in kept(d) if "/control/" not in p["url"]] == []


@pytest.fixture
def control(archive, signer):
    archives.publish(archive, signer, {"small.deb": ("small", "1", b"small" * 1000)}, root="/control")


def notes(d, box):
    import json
    text = d.request("GET", "/v1/audit", raw=True, machine=box, verb="net.allow").decode()
    return [json.loads(line)["detail"] for line in text.splitlines()]


# ---- apt ----


def apt_install(d, box, signer):
    return archives.apt_install(d, box, signer, f"{URL}/test")


@pytest.mark.parametrize("by_hash", [False, True], ids=["by name", "by hash"])
def test_second_install_gets_no_package_bytes_from_the_server(d, archive, signer, deb, by_hash):
    archives.publish(archive, signer, {FILE: ("big", "1.0~a", deb)}, by_hash)
    first = apt_install(d, machine(d), signer)
    d.until(lambda: kept(d))
    assert DEB in archive.paths()
    archive.forget()
    box = machine(d)
    assert apt_install(d, box, signer) == first
    assert not [p for p in archive.paths() if "/pool/" in p], archive.paths()
    assert archive.sent < 100_000  # documents are never delivered from the cache
    assert any(p.endswith("InRelease") for p in archive.paths())
    (note,) = [n for n in notes(d, box) if n.get("path") == DEB]
    assert note["from"] == "cache" and note["host"] == HOST and "address" not in note
    assert not any("from" in n for n in notes(d, box) if n.get("path") != DEB)


def test_package_list_without_a_good_signature_does_not_count(d, archive, signer, stranger, deb, control):
    archives.publish(archive, stranger, {FILE: ("big", "1.0~a", deb)})
    box = machine(d)
    learn(d, box)
    fetch(d, box, URL + DEB)
    assert never_kept(d, box, archive)


def test_changed_release_does_not_count(d, archive, signer, deb, control):
    """The signature of the text before the change is in it."""
    archives.publish(archive, signer, {FILE: ("big", "1.0~a", deb)}, signed=lambda text: text.replace(b"Suite: stable", b"Suite: steady"))
    box = machine(d)
    learn(d, box)
    fetch(d, box, URL + DEB)
    assert never_kept(d, box, archive)


def test_package_list_that_the_release_does_not_name_does_not_count(d, archive, signer, deb, control):
    archives.publish(archive, signer, {FILE: ("big", "1.0~a", b"other" * 1000)})
    good = archive.files[RELEASE]
    archives.publish(archive, signer, {FILE: ("big", "1.0~a", deb)})
    archive.files[RELEASE] = good
    box = machine(d)
    learn(d, box)
    fetch(d, box, URL + DEB)
    assert never_kept(d, box, archive)


def test_changed_package_is_not_kept(d, archive, signer, deb, control):
    archives.publish(archive, signer, {FILE: ("big", "1.0~a", deb)})
    archive.files[DEB] = deb[:-1] + bytes([deb[-1] ^ 1])
    box = machine(d)
    learn(d, box)
    fetch(d, box, URL + DEB)
    assert never_kept(d, box, archive)


def test_package_that_was_cut_off_is_not_kept(d, archive, signer, deb, control):
    def cut(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(deb)))
        handler.end_headers()
        handler.wfile.write(deb[:MIB])
        handler.close_connection = True
    archives.publish(archive, signer, {FILE: ("big", "1.0~a", deb)})
    archive.files[DEB] = cut
    box = machine(d)
    learn(d, box)
    assert "transfer closed" in fetch(d, box, URL + DEB) or "reset" in fetch(d, box, URL + DEB)
    assert never_kept(d, box, archive)


def test_slow_package_is_delivered_while_it_comes(d, archive, signer, control):
    """The machine gets the first bytes before the server sent the last ones."""
    import threading
    data, go_on = b"begin " * 1000 + b"end " * 1000, threading.Event()

    def slow(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data[:6000])
        handler.wfile.flush()
        go_on.wait(60)
        handler.wfile.write(data[6000:])
    archives.publish(archive, signer, {FILE: ("big", "1.0~a", data)})
    archive.files[DEB] = slow
    box = machine(d)
    learn(d, box)
    d.post(f"/v1/machines/{box}/execs", {"command": f"curl -sSN {URL}{DEB} -o /tmp/out", "background": True})
    d.until(lambda: d.exec(box, "stat -c %s /tmp/out 2>/dev/null")["stdout"].strip() == "6000")
    assert kept(d) == []
    go_on.set()
    d.until(lambda: kept(d))


def test_package_larger_than_a_quarter_of_the_cache_is_not_kept(signer, archive, deb, control):
    small = make_daemon(signer, "64M")
    try:
        archives.publish(archive, signer, {FILE: ("big", "1.0~a", deb)})
        box = machine(small)
        learn(small, box)
        fetch(small, box, URL + DEB)
        assert never_kept(small, box, archive)
    finally:
        small.clear()
        small.stop()


def test_packages_that_were_not_used_for_longest_are_deleted_first(signer, archive, tmp_path):
    small = make_daemon(signer, "16M")
    try:
        debs = {f"p{n}.deb": (f"p{n}", "1", bytes([n]) * 3 * MIB) for n in range(5)}
        archives.publish(archive, signer, debs)
        box = machine(small)
        learn(small, box)
        for n in range(3):
            fetch(small, box, f"{URL}/test/pool/p{n}.deb")
            small.until(lambda: any(f"/p{n}.deb" in p["url"] for p in kept(small)))
            time.sleep(0.02)
        archive.forget()
        fetch(small, box, f"{URL}/test/pool/p0.deb")  # used again
        assert archive.paths() == []
        for n in (3, 4):
            fetch(small, box, f"{URL}/test/pool/p{n}.deb")
            small.until(lambda: any(f"/p{n}.deb" in p["url"] for p in kept(small)))
            time.sleep(0.02)
        names = {p["url"].rsplit("/", 1)[1] for p in kept(small)}
        assert names == {"p0.deb", "p3.deb", "p4.deb"}, names
        listing = small.get("/v1/packages")
        assert listing["bytes"] <= 12 * MIB and listing["max_bytes"] == 16 * MIB
    finally:
        small.clear()
        small.stop()


# ---- who gets what ----


@pytest.fixture
def filled(d, archive, signer, deb):
    """A kept package, the digest of its bytes, and a machine that did not download it."""
    archives.publish(archive, signer, {FILE: ("big", "1.0~a", deb)})
    digest = fill(d, machine(d))
    archive.forget()
    return digest, machine(d)


def test_kept_package_is_delivered(d, archive, filled):
    digest, box = filled
    assert fetch(d, box, URL + DEB) == digest and archive.paths() == []


@pytest.mark.parametrize("words", [["-H", "Authorization: Basic eDp5"], ["-H", "Cookie: a=b"], ["-H", "X-Api-Key: k"], ["-r", "0-10"],
                                   ["-H", "If-None-Match: x"], ["-H", "If-Modified-Since: Tue, 17 Nov 2026 00:00:00 GMT"]], ids=lambda w: w[-1])
def test_request_that_is_not_plain_goes_to_the_server(d, archive, filled, words):
    digest, box = filled
    fetch(d, box, URL + DEB, *words)
    assert archive.paths() == [DEB]


def test_request_with_a_credential_fills_nothing(d, archive, signer, deb, control):
    archives.publish(archive, signer, {FILE: ("big", "1.0~a", deb)})
    box = machine(d)
    learn(d, box)
    fetch(d, box, URL + DEB, "-H", "Authorization: Basic eDp5")
    assert never_kept(d, box, archive)


def test_query_and_other_methods_go_to_the_server(d, archive, filled):
    _, box = filled
    fetch(d, box, URL + DEB + "?x")
    fetch(d, box, URL + DEB, "-I")
    fetch(d, box, URL + DEB, "-d", "x")
    assert archive.paths() == [DEB + "?x"]  # the test's server knows only GET, and the cache answered nothing
    assert [n["path"] for n in notes(d, box) if n.get("from")] == []


@pytest.mark.parametrize("url", [f"http://other.test{DEB}", f"{URL}/other/pool/{DEB.rsplit('/', 1)[1]}", f"{URL}/test/pool/x/..;/{DEB.rsplit('/', 1)[1]}"])
def test_other_host_or_path_is_another_package(d, archive, filled, url):
    digest, box = filled
    d.post(f"/v1/machines/{box}/net/rules", {"target": "http://other.test", "local": True})
    assert fetch(d, box, url) != digest or archive.paths() != []
    assert not any(n.get("from") for n in notes(d, box))


def test_rule_without_preset_does_not_use_the_cache(d, archive, filled):
    digest, _ = filled
    box = d.machine(net=[{"target": URL, "local": True}])
    assert fetch(d, box, URL + DEB) == digest and archive.paths() == [DEB]


def test_revoked_rule_refuses_a_kept_package(d, archive, filled):
    digest, box = filled
    assert fetch(d, box, URL + DEB) == digest
    for rule in d.get(f"/v1/machines/{box}/net")["rules"]:
        d.delete(f"/v1/machines/{box}/net/rules/{rule['id']}")
    assert "403" in fetch(d, box, URL + DEB)


def test_rule_for_public_addresses_does_not_get_what_a_local_one_got(d, archive, filled):
    """A server with a private address is refused by the rule, so its packages are too."""
    box = d.machine(net=[{"target": "apt"}])
    assert "403" in fetch(d, box, URL + DEB)


def test_byte_limit_counts_what_the_cache_delivers(d, archive, filled):
    digest, _ = filled
    box = machine(d, bytes="1M")
    assert fetch(d, box, URL + DEB) != digest and archive.paths() == []


def test_package_that_waits_for_approval_is_delivered_after_it(d, archive, filled):
    digest, _ = filled
    box = machine(d, action="ask")
    d.post(f"/v1/machines/{box}/execs", {"command": f"curl -sS {URL}{DEB} | sha256sum >/tmp/sum; mv /tmp/sum /tmp/done", "background": True})
    (item,) = d.until(lambda: [p for p in d.get("/v1/pending")["pending"] if p["machine"] == box])
    assert archive.paths() == []
    d.post(f"/v1/pending/{item['id']}", {"decision": "approve"})
    d.until(lambda: d.exec(box, "cat /tmp/done")["stdout"].startswith(digest))
    assert archive.paths() == []


def test_new_list_with_another_digest_ends_the_use_of_a_package(d, archive, signer, filled):
    digest, box = filled
    archives.publish(archive, signer, {FILE: ("big", "1.0~a", b"newer" * 1000)})
    learn(d, box)
    newer = d.until(lambda: (lambda found: found if found != digest else None)(fetch(d, box, URL + DEB)))
    assert len(newer) == 64 and DEB in archive.paths()


def test_other_owner_gets_nothing_from_the_cache(d, archive, filled):
    digest, _ = filled
    other = d.tcp(owner="somebody", scopes=["read", "run", "admin"])
    box = machine(other)
    assert fetch(other, box, URL + DEB) == digest and archive.paths() == [DEB]
    assert kept(other) == [] and len(kept(d)) == 1
    fill(other, box)
    other.delete("/v1/packages")
    assert kept(other) == [] and len(kept(d)) == 1
    other.delete(f"/v1/machines/{box}")


# ---- damage and crashes ----


def cache_files(d, kind):
    return sorted(pathlib.Path(d.home).glob(f"packages/*/{kind}-*"))


@pytest.mark.parametrize("at", [0, 5000, -1], ids=["head", "beginning", "last byte"])
def test_damaged_file_is_deleted_and_the_server_asked(d, archive, filled, at):
    digest, box = filled
    (path,) = cache_files(d, "o")
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    assert fetch(d, box, URL + DEB) == digest and archive.paths() == [DEB]
    archive.forget()
    d.until(lambda: (fetch(d, box, URL + DEB), archive.paths().clear() or archive.seen.clear())[0] == digest)


def test_cache_survives_a_killed_daemon_and_drops_what_was_unfinished(signer, archive, deb):
    d = make_daemon(signer, "128M")
    try:
        archives.publish(archive, signer, {FILE: ("big", "1.0~a", deb)})
        digest = fill(d, machine(d))
        (path,) = cache_files(d, "o")
        half = path.with_name("t-1")
        half.write_bytes(path.read_bytes()[:MIB])
        d.kill()
        d.start()
        archive.forget()
        assert fetch(d, machine(d), URL + DEB) == digest and archive.paths() == []
        assert not half.exists()
    finally:
        d.clear()
        d.stop()


def test_cache_can_be_turned_off(signer, archive, deb):
    d = make_daemon(signer, "0")
    try:
        archives.publish(archive, signer, {FILE: ("big", "1.0~a", deb)})
        box = machine(d)
        learn(d, box)
        for _ in range(2):
            fetch(d, box, URL + DEB)
        assert archive.paths().count(DEB) == 2 and cache_files(d, "[orlt]") == []
    finally:
        d.clear()
        d.stop()


@pytest.mark.parametrize("script,why", [("exit 1\n", "carrel-packages failed"), ("printf 'one\\ntwo\\n' >&2; exit 1\n", "one")], ids=["silent", "two lines"])
def test_log_says_why_a_document_was_not_verified(signer, archive, deb, tmp_path, script, why):
    d = make_daemon(signer, "128M", functools.partial(Own, tmp_path, script))
    try:
        archives.publish(archive, signer, {FILE: ("big", "1.0~a", deb)})
        learn(d, machine(d), RELEASE)
        line = d.until(lambda: [n for n in d.log().splitlines() if "verify package document" in n])[0]
        assert line.endswith(f"{RELEASE}': {why}"), line
    finally:
        d.clear()
        d.stop()


# ---- the command line ----


def carrel(d, *words):
    return subprocess.run([PROGRAM, *words], env=d.env, capture_output=True, text=True, timeout=60, check=True).stdout


def test_cache_is_listed_and_cleared(d, archive, filled):
    digest, box = filled
    assert f"{URL}:80/test/pool/{FILE}" in carrel(d, "image", "cache", "ls")
    (package,) = kept(d)
    assert package["digest"] == "sha256:" + digest and package["bytes"] > 20 * MIB
    assert carrel(d, "image", "cache", "clear").startswith("1 packages deleted (20")
    assert kept(d) == [] and cache_files(d, "[orl]") == []
    assert fetch(d, box, URL + DEB) == digest and archive.paths() == [DEB]


# ---- npm ----


def npm_machine(d, **more):
    return machine(d, "npm", methods="GET,HEAD", **more)


def npm_install(d, box, name):
    done = d.exec(box, f"mkdir -p w && cd w && npm install --no-audit --no-fund --cache /tmp/npm {name} && sha256sum node_modules/{name}/data", timeout=100)
    assert done["exec"]["status"] == 0, (done["stdout"], done["stderr"])
    return done["stdout"].splitlines()[-1]


@pytest.fixture
def npm(d):
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    box = machine(d, "npm")
    targets = [r["target"] for r in d.get(f"/v1/machines/{box}/net")["rules"]]
    if targets != [f"https://{REGISTRY}"]:
        pytest.skip(f"npm of this host uses {targets}")


@pytest.mark.parametrize("name", ["big-thing", "@scope/thing"])
def test_second_npm_install_gets_no_package_bytes_from_the_server(d, registry, npm, name):
    own = archives.npm_publish(registry, name, archives.make_tarball(name, 20 * MIB))
    first = npm_install(d, npm_machine(d), name)
    d.until(lambda: kept(d))
    assert own in registry.paths()
    registry.forget()
    box = npm_machine(d)
    assert npm_install(d, box, name) == first
    assert own not in registry.paths() and registry.paths() and registry.sent < 100_000, registry.paths()
    assert [n["from"] for n in notes(d, box) if n.get("path") == own] == ["cache"]


def npm_fetch(d, box, path):
    return fetch(d, box, f"https://{REGISTRY}{path}")


def test_packed_document_counts(d, registry, npm):
    own = archives.npm_publish(registry, "thing", archives.make_tarball("thing", 1000))
    registry.files["/thing"] = gzip.compress(registry.files["/thing"])
    registry.more["/thing"] = [("Content-Encoding", "gzip")]
    box = npm_machine(d)
    npm_fetch(d, box, "/thing")
    npm_fetch(d, box, own)
    d.until(lambda: kept(d))


def test_document_speaks_only_for_tarballs_of_its_own_package(d, registry, npm):
    """Somebody publishes a package whose document claims the path of a popular one."""
    popular = archives.npm_publish(registry, "popular", archives.make_tarball("popular", 1000))
    bad = archives.make_tarball("bad", 1000)
    own = archives.npm_publish(registry, "bad", bad, claims={popular: registry.files[popular]})
    box = npm_machine(d)
    npm_fetch(d, box, "/bad")
    npm_fetch(d, box, popular)
    npm_fetch(d, box, own)
    d.until(lambda: kept(d))
    assert [p["url"] for p in kept(d)] == [f"https://{REGISTRY}:443{own}"]


def test_changed_tarball_is_not_kept(d, registry, npm):
    own = archives.npm_publish(registry, "thing", archives.make_tarball("thing", 1000))
    other = archives.npm_publish(registry, "other", archives.make_tarball("other", 1000))
    registry.files[own] = archives.make_tarball("thing", 1000)
    box = npm_machine(d)
    for path in ("/thing", own, "/other", other):
        npm_fetch(d, box, path)
    d.until(lambda: kept(d))
    assert [p["url"] for p in kept(d)] == [f"https://{REGISTRY}:443{other}"]


def test_connection_that_is_not_terminated_is_not_seen_by_the_cache(d, registry, npm):
    """Without a rule about requests, TLS passes through the gate unread."""
    own = archives.npm_publish(registry, "thing", archives.make_tarball("thing", 1000))
    box = machine(d, "npm")
    for path in ("/thing", own, own):
        fetch(d, box, f"https://{REGISTRY}{path}", "-k")
    assert registry.paths().count(own) == 2 and kept(d) == []
