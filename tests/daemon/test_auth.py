"""Who may do what: tokens over TCP, owners by uid on the unix socket, and nobody's deputy."""
import grp
import http.client
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import traceback

import pytest

from carrel import ROOTLESS, stop_spawner
from daemon import DAEMON, Daemon, Refused, TcpClient, UnixConnection
from test_terminal import Socket

ALICE, BOB = 1001, 1002
needs_root = pytest.mark.skipif(ROOTLESS, reason="only root can become other users")


@pytest.fixture(scope="module")
def server():
    d = Daemon("--listen", "127.0.0.1:0")
    yield d
    d.stop()


@pytest.fixture
def tcp(server):
    """Makes clients with tokens; what they made ends with the test."""
    yield server.tcp
    server.clear()


def refused(status, code, do, *args, **kw):
    with pytest.raises(Refused) as e:
        do(*args, **kw)
    assert (e.value.status, e.value.code) == (status, code), e.value
    return e.value.error


# ---- tokens ----

def test_tcp_needs_a_token(server):
    for token in (None, "nonsense", "ct_" + "a" * 40):
        client = TcpClient(server.port, token)
        assert "token" in refused(401, "denied", client.get, "/v1/machines")["message"]
        refused(401, "denied", client.machine)
        refused(401, "denied", client.get, "/v1/status")
        refused(401, "denied", client.get, "/metrics")
        assert client.get("/healthz") == b"ok\n"


@pytest.mark.parametrize("header", ["Basic Zm9vOmJhcg==", "Bearer", "Bearer ", "bearer\tx", "Token x"])
def test_other_ways_to_say_who_are_refused(server, header):
    client = TcpClient(server.port)
    client.headers = {"Authorization": header}
    refused(401, "denied", client.get, "/v1/machines")


def test_two_authorizations_are_none(server):
    secret = server.post("/v1/tokens", {})["secret"]
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        s.sendall(f"GET /v1/machines HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\r\n"
                  f"Authorization: Bearer {secret}x\r\nConnection: close\r\n\r\n".encode())
        answer = http.client.HTTPResponse(s)
        answer.begin()
        assert answer.status in (400, 401), answer.read()


def test_the_scope_read_only_looks(server, tcp):
    reader, runner = tcp(scopes=["read"]), tcp(scopes=["read", "run"])
    m = runner.machine()
    x = runner.exec(m, "echo hello")["exec"]["id"]
    assert reader.get(f"/v1/machines/{m}")["id"] == m
    assert reader.get(f"/v1/machines/{m}/execs/{x}/output") == b"hello\n"
    assert reader.get(f"/v1/machines/{m}/files", path="/etc/hostname")
    for method, path, body in [("POST", "/v1/machines", {}), ("PATCH", f"/v1/machines/{m}", {"ttl": 60}),
                               ("DELETE", f"/v1/machines/{m}", None), ("POST", f"/v1/machines/{m}/pause", None),
                               ("POST", f"/v1/machines/{m}/resume", None), ("POST", f"/v1/machines/{m}/stop", None),
                               ("POST", f"/v1/machines/{m}/execs", {"command": "true"}),
                               ("POST", "/v1/run", {"exec": {"command": "true"}}),
                               ("DELETE", f"/v1/machines/{m}/execs/{x}", None),
                               ("POST", f"/v1/machines/{m}/execs/{x}/signal", {"signal": "TERM"}),
                               ("POST", f"/v1/machines/{m}/execs/{x}/resize", {"rows": 1, "cols": 1}),
                               ("POST", f"/v1/machines/{m}/execs/{x}/stdin", b"x"),
                               ("PUT", f"/v1/machines/{m}/files?path=/home/user/f", b"x"),
                               ("DELETE", f"/v1/machines/{m}/files?path=/home/user", None),
                               ("POST", f"/v1/machines/{m}/files/mkdir", {"path": "/home/user/d"}),
                               ("POST", f"/v1/machines/{m}/files/move", {"from": "/a", "to": "/b"}),
                               ("POST", f"/v1/machines/{m}/files/chmod", {"path": "/home/user", "mode": "700"}),
                               ("POST", f"/v1/machines/{m}/files/chown", {"path": "/home/user", "owner": 0}),
                               ("POST", f"/v1/machines/{m}/files/symlink", {"target": "/a", "path": "/home/user/l"}),
                               ("PUT", f"/v1/machines/{m}/files/tar?path=/home/user", b"x"),
                               ("GET", f"/v1/machines/{m}/changes", None)]:
        error = refused(403, "denied", reader.request, method, path, body)
        assert "'run'" in error["message"], (method, path, error)
    assert runner.get(f"/v1/machines/{m}")["state"] == "running"


def test_only_administrators_see_others_and_make_tokens(server, tcp):
    plain, other = tcp(owner="ann"), tcp(owner="ben")
    admin = tcp(owner="boss", scopes=["read", "run", "admin"])
    m = plain.machine(name="hers")
    for ref in (m, "hers", m[:8]):
        refused(404, "not_found", other.get, f"/v1/machines/{ref}")
        refused(404, "not_found", other.exec, ref, "true")
        refused(404, "not_found", other.delete, f"/v1/machines/{ref}")
    assert other.machines() == [] and [x["id"] for x in plain.machines()] == [m]
    refused(403, "denied", other.get, "/v1/machines", all=1)
    assert [x["id"] for x in admin.machines(all=1)] == [m]
    assert admin.get(f"/v1/machines/{m}")["owner"] == "ann"
    for client in (plain, other):
        for call in (client.post, client.get):
            assert "'admin'" in refused(403, "denied", call, "/v1/tokens")["message"]
        refused(403, "denied", client.delete, "/v1/tokens/t-000000000000")
    refused(403, "denied", plain.post, "/v1/tokens", {"owner": "ben"})
    narrow = tcp(owner="boss", scopes=["read", "admin"])  # nobody gives away what they do not have
    refused(403, "denied", narrow.post, "/v1/tokens", {"scopes": ["run"]})
    made = admin.post("/v1/tokens", {"owner": "ben", "scopes": ["read"]})
    assert TcpClient(server.port, made["secret"]).machines() == []
    assert all("secret" not in t for t in admin.get("/v1/tokens")["tokens"])


def test_audit_and_events_are_apart(server, tcp):
    ann, ben = tcp(owner="ann"), tcp(owner="ben")
    m = ann.machine()
    lines = ben.get("/v1/audit").decode() + ben.get("/v1/events", follow=0, after=0).decode()
    assert m not in lines
    assert m in ann.get("/v1/audit").decode() and m in ann.get("/v1/events", follow=0, after=0).decode()
    for owner in ("ann", "root"):
        try:
            assert m not in ben.get("/v1/audit", owner=owner).decode()
        except Refused as e:
            assert e.status == 403, e


def test_a_revoked_token_is_nobody(server, tcp):
    made = server.post("/v1/tokens", {"note": "short"})
    client = TcpClient(server.port, made["secret"])
    kept = client.connect()
    client.request("GET", "/v1/machines", connection=kept)
    server.delete(f"/v1/tokens/{made['id']}")
    refused(401, "denied", client.request, "GET", "/v1/machines", connection=kept)
    refused(401, "denied", client.get, "/v1/machines")
    kept.close()
    assert [t for t in server.get("/v1/tokens")["tokens"] if t["id"] == made["id"]][0]["revoked"]
    server.restart()
    refused(401, "denied", TcpClient(server.port, made["secret"]).get, "/v1/machines")


def test_a_token_is_kept_hashed(server, tcp):
    secret = server.post("/v1/tokens", {"note": "hidden"})["secret"]
    found = subprocess.run(["grep", "-rlaF", secret, str(server.dir)], stdout=subprocess.PIPE).stdout
    assert found == b""


# ---- quotas ----

def limit(do, *words, **kw):
    error = refused(429, "limit", do, **kw)
    assert all(w in error["message"] for w in ("quota of this token", *words)), error


def test_quota_of_machines(tcp):
    client = tcp(owner="q1", machines=2)
    a, _ = client.machine(key="first"), client.machine()
    limit(client.machine, "machine quota of this token is 2: 2 in use, 1 more requested")
    assert client.machine(key="first") == a  # a repeated request is no second machine
    tcp(owner="q1").machine()  # another token of the same owner has a quota of its own
    client.delete(f"/v1/machines/{a}")
    client.machine()


def test_quota_of_memory_and_disk(tcp):
    client = tcp(owner="q2", mem="512M", disk="2G")
    m = client.machine(limits={"mem": "256M", "disk": "1G"})
    limit(client.machine, "memory quota of this token is 512M: 256M in use, 257M more requested", limits={"mem": "257M", "disk": "100M"})
    limit(client.machine, "disk quota of this token is 2G: 1G in use, 1025M more requested", limits={"mem": "100M", "disk": "1025M"})
    error = refused(429, "limit", client.patch, f"/v1/machines/{m}", {"limits": {"mem": "600M"}})
    assert "memory quota of this token is 512M: 0 in use, 600M more requested" in error["message"], error
    assert client.get(f"/v1/machines/{m}")["limits"]["mem"] == 256 << 20
    assert client.patch(f"/v1/machines/{m}", {"limits": {"mem": "512M"}})["limits"]["mem"] == 512 << 20
    limit(client.machine, "memory quota of this token is 512M: 512M in use, 16M more requested", limits={"mem": "16M", "disk": "100M"})


def test_quota_of_cpus(tcp):
    client = tcp(owner="q3", cpus=1)
    limit(client.machine, "cpu quota of this token is 1, but the machine has no cpu limit")
    m = client.machine(limits={"cpus": 0.6})
    limit(client.machine, "cpu quota of this token is 1: 0.6 in use, 0.5 more requested", limits={"cpus": 0.5})
    client.machine(limits={"cpus": 0.4})
    refused(429, "limit", client.patch, f"/v1/machines/{m}", {"limits": {"cpus": 0.7}})


def test_quota_of_lifetime(tcp):
    client = tcp(owner="q4", max_ttl="1h")
    limit(client.machine, "ttl quota of this token is 1h, but the machine's ttl is unlimited")
    limit(client.machine, "ttl quota of this token is 1h, but the machine's ttl is 2h", ttl="2h")
    m = client.machine(ttl="30m")
    for ttl in ("2h", 0):
        error = refused(429, "limit", client.patch, f"/v1/machines/{m}", {"ttl": ttl})
        assert "ttl quota of this token is 1h, but the machine's ttl is" in error["message"], error
    client.patch(f"/v1/machines/{m}", {"ttl": "40m"})


def test_run_is_under_the_quota_too(tcp):
    client = tcp(owner="q5", mem="64M")
    error = refused(429, "limit", client.post, "/v1/run", {"exec": {"command": "true"}})
    assert "memory quota of this token is 64M: 0 in use, 2G more requested" in error["message"]
    machine = {"limits": {"mem": "64M"}}
    assert client.post("/v1/run", {"machine": machine, "exec": {"command": "echo x"}})["stdout"] == "x\n"


# ---- pages that are not ours ----

@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "evil.example:80", "127.0.0.1.evil.example",
                                  "bad.cafe", "face.de:80", "dead.beef.cc", "2130706433", "127.1"])
def test_a_foreign_name_is_refused(server, tcp, host):
    client = tcp()
    error = refused(403, "denied", client.request, "GET", "/v1/machines", headers={"Host": host})
    assert host.split(":")[0] in error["message"]
    refused(403, "denied", client.request, "GET", "/v1/openapi.json", headers={"Host": host})


def test_own_names_are_taken(server, tcp):
    client = tcp()
    for host in ("localhost", f"127.0.0.1:{server.port}", "[::1]:80", "LOCALHOST:1"):
        client.request("GET", "/v1/machines", headers={"Host": host})


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://localhost", "http://localhost:1"])
def test_a_foreign_origin_is_refused(server, tcp, origin):
    headers = {"Host": f"localhost:{server.port}", "Origin": origin}
    refused(403, "denied", tcp().request, "GET", "/v1/machines", headers=headers)
    refused(403, "denied", server.request, "GET", "/v1/machines", headers=headers)


def test_ones_own_origin_is_taken(server, tcp):
    here = f"localhost:{server.port}"
    tcp().request("GET", "/v1/machines", headers={"Host": here, "Origin": "http://" + here})


# ---- listening ----

def start_refused(place, where):
    env = {"PATH": "/usr/bin:/bin", "HOME": str(place), "CARREL_RUN": str(place / "run"),
           "CARREL_HOME": str(place / "home")}
    try:
        done = subprocess.run([DAEMON, "--conf", str(place / "none"), "--listen", where], env=env,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
    finally:
        stop_spawner(place / "run")
    assert done.returncode != 0
    return done.stderr.decode()


def test_nobody_listens_to_the_world_without_a_token():
    place = pathlib.Path(tempfile.mkdtemp(prefix="cd-", dir="/tmp"))
    for sub in ("run", "home"):
        (place / sub).mkdir(mode=0o700)
    (place / "none").write_text("")
    try:
        for where in ("0.0.0.0:0", "[::]:0", "10.1.2.3:0"):
            said = start_refused(place, where)
            assert "no token" in said and "carrel token new" in said, said
        assert "ADDRESS:PORT" in start_refused(place, "nonsense")
    finally:
        shutil.rmtree(place)


def test_with_a_token_it_may(fresh):
    d = fresh()
    secret = d.post("/v1/tokens", {})["secret"]
    d.options = ["--listen", "0.0.0.0:0"]
    d.restart()
    assert TcpClient(d.port, secret).machines() == []


# ---- owners by uid ----

def as_user(uid, do):
    """What do() returns as JSON, done by a process of that user."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(ours)
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            try:
                told = {"value": do()}
            except Refused as e:
                told = {"refused": [e.status, {"error": e.error}]}
            except BaseException:
                told = {"failed": traceback.format_exc()}
            os.write(theirs, json.dumps(told).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as end:
        told = json.loads(end.read())
    os.waitpid(pid, 0)
    if "refused" in told:
        raise Refused(*told["refused"])
    assert "failed" not in told, told["failed"]
    return told["value"]


@pytest.fixture
def shared(fresh):
    """Root's daemon, which every user can reach."""
    d = fresh()
    d.dir.chmod(0o711)
    return d


@needs_root
def test_each_uid_sees_only_its_own(shared):
    d = shared
    m = as_user(ALICE, lambda: d.machine(name="hers"))
    x = as_user(ALICE, lambda: d.exec(m, "echo secret >f; echo secret"))["exec"]["id"]
    t = as_user(ALICE, lambda: d.post("/v1/tokens", {"note": "hers"}))["id"]
    assert [r["id"] for r in as_user(ALICE, d.machines)] == [m]
    assert as_user(BOB, d.machines) == []
    assert [r["owner"] for r in d.machines(all=1)] == [as_user(ALICE, lambda: d.get(f"/v1/machines/{m}"))["owner"]]
    refused(403, "denied", as_user, BOB, lambda: d.machines(all=1))
    base = f"/v1/machines/{m}"
    for method, path, body in [("GET", "", None), ("DELETE", "", None), ("PATCH", "", {"ttl": 1}),
                               ("POST", "/pause", None), ("POST", "/stop", None), ("GET", "/stats", None),
                               ("GET", "/changes", None), ("GET", "/execs", None), ("GET", f"/execs/{x}", None),
                               ("GET", f"/execs/{x}/output", None), ("GET", f"/execs/{x}/events", None),
                               ("POST", f"/execs/{x}/signal", {"signal": "KILL"}), ("DELETE", f"/execs/{x}", None),
                               ("POST", "/execs", {"command": "true"}), ("GET", "/files?path=/home/user/f", None),
                               ("GET", "/files/list?path=/", None), ("GET", "/files/stat?path=/", None),
                               ("GET", "/files/tar?path=/home/user", None), ("GET", "/files/watch?path=/home", None),
                               ("PUT", "/files?path=/home/user/g", b"x"), ("PUT", "/files/tar?path=/home", b"x"),
                               ("DELETE", "/files?path=/home/user/f", None),
                               ("POST", "/files/mkdir", {"path": "/home/user/d"})]:
        for ref in (m, "hers"):
            refused(404, "not_found", as_user, BOB, lambda: d.request(method, f"/v1/machines/{ref}{path}", body))
    refused(404, "not_found", as_user, BOB, lambda: d.delete(f"/v1/tokens/{t}"))
    assert as_user(BOB, lambda: d.get("/v1/tokens"))["tokens"] == []
    refused(403, "denied", as_user, BOB, lambda: d.post("/v1/tokens", {"scopes": ["admin"]}))
    seen = as_user(BOB, lambda: (d.get("/v1/audit") + d.get("/v1/events", follow=0)).decode())
    assert m not in seen and "secret" not in seen
    assert d.get(base)["state"] == "running"
    assert as_user(BOB, lambda: d.machine(name="hers")) != m  # names are each owner's own


@needs_root
def test_a_uid_never_shares_an_owner_by_name(shared):
    d = shared
    d.post("/v1/tokens", {"owner": f"uid-{BOB}"})
    m = as_user(BOB, d.machine)
    assert d.get(f"/v1/machines/{m}")["owner"] not in (f"uid-{BOB}", "root")


@needs_root
def test_nobody_lends_what_is_not_theirs(shared):
    """Bob may open Alice's directory and read it, but it is not his to hand over."""
    top = pathlib.Path(tempfile.mkdtemp(prefix="cd-lend-", dir="/tmp"))
    top.chmod(0o755)
    try:
        hers = top / "hers"
        hers.mkdir(mode=0o755)
        (hers / "file").write_text("hers\n")
        os.chown(hers, ALICE, ALICE)

        def give():
            fd = os.open(hers, os.O_RDONLY | os.O_DIRECTORY)
            return shared.lend(fd, dirs=[{"path": str(hers), "at": "/home/user/d", "mode": "ro"}])

        error = refused(403, "denied", as_user, BOB, give)
        assert "another user" in error["message"]
        m = as_user(ALICE, give)
        assert as_user(ALICE, lambda: shared.exec(m, "cat /home/user/d/file"))["stdout"] == "hers\n"
        error = refused(400, "invalid", as_user, ALICE, lambda: shared.machine(dirs=[{"path": str(hers)}]))
        assert "descriptors" in error["message"]
    finally:
        shutil.rmtree(top)


@needs_root
@pytest.mark.parametrize("mode", ["ro", "cow"])
def test_a_lent_directory_gives_no_rights_over_others_files(shared, mode):
    """In Bob's directory lies a file that he may not read: neither may his machine, not even as root."""
    top = pathlib.Path(tempfile.mkdtemp(prefix="cd-lend-", dir="/tmp"))
    try:
        os.chown(top, BOB, BOB)
        for name, owner in (("hers", ALICE), ("roots", 0), ("his", BOB)):
            (top / name).write_text(f"of {name}\n")
            (top / name).chmod(0o600)
            os.chown(top / name, owner, owner)

        def give():
            fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
            return shared.lend(fd, dirs=[{"path": str(top), "at": "/home/user/d", "mode": mode}])

        m = as_user(BOB, give)
        assert as_user(BOB, lambda: shared.exec(m, "cat /home/user/d/his"))["stdout"] == "of his\n"
        for user in ("user", "root", "1001", "0"):
            for name in ("hers", "roots"):
                r = as_user(BOB, lambda: shared.exec(m, f"cat {name}; chmod 666 {name}; cat {name}",
                                                     user=user, cwd="/home/user/d"))
                assert f"of {name}" not in r["stdout"], (user, name, r)

                def read():
                    return shared.get(f"/v1/machines/{m}/files", path=f"/home/user/d/{name}", user=user).decode()

                try:
                    assert f"of {name}" not in as_user(BOB, read)
                except Refused as e:
                    assert e.code in ("denied", "not_found", "invalid"), e
        assert (top / "hers").read_text() == "of hers\n" and (top / "hers").stat().st_mode & 0o777 == 0o600
    finally:
        shutil.rmtree(top)


def test_a_token_names_only_what_lies_under_a_root(fresh):
    top = pathlib.Path(tempfile.mkdtemp(prefix="cd-root-", dir="/tmp"))
    try:
        (top / "in").mkdir()
        (top / "in/file").write_text("inside\n")
        (top / "out").symlink_to("/etc")
        d = fresh("--listen", "127.0.0.1:0", conf=f"[daemon]\nroots = {top}\n")
        client = d.tcp()

        def give(path):
            return client.machine(dirs=[{"path": path, "at": "/home/user/d", "mode": "ro"}])

        m = give(str(top / "in"))
        assert client.exec(m, "cat /home/user/d/file")["stdout"] == "inside\n"
        for path in ("/etc", "/tmp", str(top) + "x", "relative"):
            refused(403 if path.startswith("/") else 400, "denied" if path.startswith("/") else "invalid", give, path)
        for path in (f"{top}/../etc", f"{top}/in/../../etc", f"{top}/out", f"{top}/out/ssl"):
            with pytest.raises(Refused) as e:
                give(path)
            assert e.value.code in ("invalid", "denied", "not_found"), e.value
        owner = d.tcp(scopes=["run", "read", "admin"])

        def copy(path):
            return owner.machine(grants=[{"kind": "file", "what": path, "at": "/home/user/copy"}])

        assert owner.exec(copy(str(top / "in/file")), "cat copy")["stdout"] == "inside\n"
        for path in ("/etc/hostname", f"{top}/out/hostname", f"{top}/in", f"{top}/../etc/hostname"):
            with pytest.raises(Refused):
                copy(path)
    finally:
        shutil.rmtree(top)


def test_a_terminal_takes_nothing_more_from_a_token_that_was_revoked(server, tcp):
    """It was opened while the token was good. That of another token, the control, goes on."""
    made = [server.post("/v1/tokens", {"scopes": ["read", "run"]}) for _ in range(2)]
    m = server.machine()
    gone, kept = (Socket(TcpClient(server.port, t["secret"]), f"/v1/machines/{m}/pty") for t in made)
    for n, t in enumerate((gone, kept)):
        t.type(f"touch /tmp/opened{n}; echo rea''dy\n")
        t.until("ready")
    server.delete(f"/v1/tokens/{made[0]['id']}")
    gone.type("touch /tmp/owned\n")
    gone.until_closed()
    kept.type("echo st''ill\n")
    kept.until("still")
    assert server.exec(m, "ls /tmp/opened0 /tmp/opened1")["exec"]["status"] == 0
    assert server.exec(m, "test -e /tmp/owned")["exec"]["status"] == 1
    for t in (gone, kept):
        t.cut()


def numbers(client):
    """Its machines that run, its commands, and the names of all it is told: by the status, and by the metrics."""
    status = client.get("/v1/status")
    text = client.get("/metrics").decode()
    shown = {line.split(" ")[0].split("{")[0] for line in text.splitlines() if not line.startswith("#")}
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    running = (status["machines"]["running"], int(found['carrel_machines{state="running"}']))
    return running, (status["commands"], int(found["carrel_commands"])), set(status["box"]), shown


def test_numbers_over_all_owners_are_shown_only_to_who_may_list_all(fresh):
    d = fresh("--listen", "127.0.0.1:0")
    anne, ben = (d.tcp(owner=name, scopes=["read", "run"]) for name in ("anne", "ben"))
    m = [anne.machine() for _ in range(2)]
    anne.background(m[0], "sleep 1000")
    ben.machine()
    assert ben.exec(ben.machines()[0]["id"], "true")["exec"]["status"] == 0
    over_all = {"boxes", "alive", "created", "fallbacks", "pool"}
    own = {"carrel_machines", "carrel_commands", "carrel_machine_disk_bytes", "carrel_machine_steps"}
    for client, machines, commands in ((anne, 2, 1), (ben, 1, 0)):
        running, at_work, box, shown = numbers(client)
        assert (running, at_work) == ((machines,) * 2, (commands,) * 2)
        assert not box & over_all and box, box
        assert shown == own
    # The control: whoever has admin sees all that was left out.
    for client in (d, d.tcp(owner="anne", scopes=["read", "admin"])):
        running, at_work, box, shown = numbers(client)
        assert (running, at_work) == ((3, 3), (1, 1))
        assert box >= over_all and shown > own


@needs_root
def test_a_group_of_carrel_conf_may_use_the_daemon_and_nobody_else(fresh):
    """`nogroup` has this number in Debian; as_user() gives each user the group of the same number."""
    group = grp.getgrgid(65534)
    d = fresh(conf=f"[daemon]\ngroup = {group.gr_name}\n")
    d.dir.chmod(0o711)
    assert as_user(group.gr_gid, lambda: d.get("/v1/machines")) == {"machines": []}
    assert as_user(ALICE, lambda: unreachable(d)) == "PermissionError"
    d.end()
    d.conf.write_text("[daemon]\ngroup = no-such-group\n")
    with d.launch() as ready:
        assert b"no group 'no-such-group'" in ready.read()
    assert d.process.wait() == 1
    d.conf.write_text("")
    d.start()
    assert as_user(ALICE, lambda: d.get("/v1/machines")) == {"machines": []}, "the control"


def unreachable(d):
    try:
        d.get("/v1/machines")
    except OSError as e:
        return type(e).__name__
    return "reached"
