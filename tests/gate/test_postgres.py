"""Throw-away databases on an owner's server: a copy of a template for one machine, and nothing of it left at the end."""
import contextlib
import errno
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import threading
import time

import pytest

import postgres
import tally
from carrel import PROGRAM
from daemon import Refused
from faulty import Faulty
from test_synced import Recorded

pytestmark = pytest.mark.skipif(not postgres.BIN, reason="there is no PostgreSQL server here (Debian: postgresql)")

PSQL = [str(postgres.BIN / "psql"), "-X", "-qAt"] if postgres.BIN else []


@pytest.fixture(scope="module")
def server():
    s = postgres.Server()
    s.sql("CREATE DATABASE shop")
    s.sql("CREATE TABLE goods (id serial PRIMARY KEY, name text); INSERT INTO goods(name) VALUES ('tea'), ('cup');"
          "CREATE FUNCTION whoami() RETURNS name LANGUAGE sql SECURITY DEFINER AS 'SELECT current_user';"
          "CREATE VIEW names AS SELECT name FROM goods", "shop")
    s.sql("CREATE ROLE maker LOGIN CREATEDB CREATEROLE PASSWORD 'maker''s'")
    s.sql("CREATE DATABASE parts TEMPLATE shop OWNER maker")
    s.sql("ALTER TABLE goods OWNER TO maker; ALTER VIEW names OWNER TO maker; ALTER SCHEMA public OWNER TO maker", "parts")
    yield s
    s.remove()


def carrel(gated, *words, ok=True, **more):
    done = subprocess.run([PROGRAM, *map(str, words)], env=gated.env, capture_output=True, text=True, timeout=100, **more)
    assert not ok or done.returncode == 0, done
    return done


def new(gated, server, *words):
    return carrel(gated, "new", "--db", "postgres:" + server.dsn, *words).stdout.strip()


def psql(gated, box, sql, *more):
    return gated.exec(box, [*PSQL, *more, "-c", sql], timeout="30s")


def one(gated, box, sql):
    done = psql(gated, box, sql)
    assert done["exec"]["status"] == 0, done
    return done["stdout"].strip()


@pytest.fixture(scope="module")
def shared(gated_session, server):
    """A machine with a database, for what leaves both as they are."""
    box = new(gated_session, server)
    yield box, gated_session.grants(box, "postgres")[0]


def gone(gated, server, seconds=20):
    return gated.until(lambda: server.left() == [], seconds) is not None


def test_a_copy_of_its_own_and_nothing_left_of_it(gated, server):
    box = new(gated, server)
    (grant,) = gated.grants(box, "postgres")
    name = grant["detail"]["database"]
    assert grant["what"] == f"shop on 127.0.0.1:{server.port}" and grant["at"] == grant["id"] + ".db.carrel"
    assert sorted(server.left()) == [name, name]
    assert one(gated, box, "SELECT string_agg(name, ' ' ORDER BY id) FROM goods") == "tea cup"
    one(gated, box, "INSERT INTO goods(name) VALUES ('pot'); ALTER TABLE goods ADD price int; DROP VIEW names; CREATE TABLE more (x int)")
    assert server.sql("SELECT count(*) FROM goods", "shop") == ["2"], "the template is as it was"
    # What it is told is enough for every client, and the owner's own is not among it.
    env = gated.exec(box, "env; cat /run/carrel/machine.json")["stdout"]
    assert f"PGHOST={grant['at']}\n" in env and f"PGDATABASE={name}\n" in env and f"PGPORT={server.port}\n" in env
    assert server.token not in env and "boss" not in env
    done = gated.exec(box, ["sh", "-c", f"env -u PGHOST -u PGUSER -u PGPASSWORD -u PGDATABASE -u PGPORT {postgres.BIN}/psql -XAtc 'select 1' \"$DATABASE_URL\""])
    assert done["stdout"] == "1\n", done
    told = carrel(gated, "diff", box).stdout
    assert f"database {grant['at']}: a copy of {grant['what']}, deleted with the machine: its changes are not shipped\n" in told and "nothing to ship" in told, told
    (set_,) = json.loads(carrel(gated, "diff", "--json", box).stdout)["changesets"]
    lines = set_["database"]["diff"].splitlines()
    assert set_["database"]["database"] == name and set_["files"] == [] and set_["database"]["same"] is False
    assert "+ table public.more (x integer)" in lines and [x for x in lines if x.startswith("- view public.names")], lines
    assert [x[0] for x in lines if "table public.goods" in x] == ["-", "+"] and [x.split()[3] for x in lines if "rows public.goods" in x] == ["2", "3"], lines
    # Frozen with an id as everything is: the machine goes on, and what was seen stays.
    one(gated, box, "DROP TABLE more")
    shown = carrel(gated, "ship", "-y", set_["changeset"]).stdout
    assert "+ table public.more (x integer)" in shown and "nothing to ship" in shown, shown
    undone = carrel(gated, "ship", "--undo", set_["changeset"], ok=False)
    assert undone.returncode == 125 and "nothing to undo" in undone.stderr and "was never shipped" in undone.stderr, undone
    gated.delete(f"/v1/machines/{box}")
    assert gone(gated, server)
    assert [n["verb"] for n in gated.notes(box, verb="database", count=2)] == ["database.make", "database.drop"]


def test_what_a_database_was_is_on_the_disk_before_its_machine_is_told(server):
    d = Recorded()
    try:
        box = d.synced(lambda: new(d, server), "databases")
        (grant,) = d.grants(box, "postgres")
        assert "public.goods" in (d.home / "databases" / grant["id"]).read_text(), "there is something to sync"
        d.delete(f"/v1/machines/{box}")
        assert gone(d, server)
    finally:
        d.stop()


def test_its_role_can_do_nothing_else(gated, server, count_attack):
    box = new(gated, server)
    flags = "SELECT rolsuper, rolcreatedb, rolcreaterole, rolreplication, rolbypassrls, rolconnlimit FROM pg_roles WHERE rolname = current_user"
    assert one(gated, box, flags) == "f|f|f|f|f|20"
    name = gated.grants(box, "postgres")[0]["detail"]["database"]
    assert one(gated, box, "SELECT whoami()") == name, "what runs as its owner runs as the machine's own role"
    for sql in ("CREATE ROLE another", "CREATE DATABASE another", "COPY goods TO PROGRAM 'id'", "SELECT pg_read_file('/etc/passwd')", "ALTER ROLE boss PASSWORD 'x'",
                "SET ROLE boss", "SELECT rolpassword FROM pg_authid"):
        done = psql(gated, box, sql)
        assert done["exec"]["status"] and "permission" in done["stderr"] or "must be" in done["stderr"], done
        count_attack()
    # The server would let it into these, which are everybody's there; the gate does not.
    assert gated.grants(box, "postgres")[0]["detail"]["others"] == ["parts", "postgres", "shop", "template1"]


def test_what_is_told_of_it_cannot_be_forged(gated, server, count_attack):
    """Functions and settings of the machine's choice are not asked, and names stay in their line."""
    box = new(gated, server)
    name = gated.grants(box, "postgres")[0]["detail"]["database"]
    one(gated, box, "CREATE FUNCTION public.md5(text) RETURNS text LANGUAGE sql AS 'SELECT ''forged''::text'; CREATE FUNCTION public.format(text, text, text) RETURNS text"
        " LANGUAGE sql AS 'SELECT ''forged''::text'; CREATE TABLE \"a\n- rows public.goods 2\" (x int)")
    one(gated, box, f"ALTER ROLE {name} SET search_path TO public, pg_catalog; INSERT INTO goods(name) VALUES ('pot')")
    (set_,) = json.loads(carrel(gated, "diff", "--json", box).stdout)["changesets"]
    lines = set_["database"]["diff"].splitlines()
    assert [x.split()[3] for x in lines if "rows public.goods" in x.split("\"")[0]] == ["2", "3"] and "forged" not in str(lines), lines
    assert any(x.startswith("+ table public.\"a\\n- rows") for x in lines), lines
    count_attack()


# What runs as whoever the author could get to run it: it makes its author a superuser, where that one is.
EVIL = """CREATE FUNCTION public.{name}({types}) RETURNS {gives} LANGUAGE plpgsql AS $f$ BEGIN
    IF (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN ALTER ROLE {author} SUPERUSER; END IF; {more} END $f$;"""
FORMAT = "SELECT format('SCHEMA %I', nspname) FROM pg_namespace"
HOSTILE = {  # what an author leaves in a template; and for the control, what a superuser then runs without care
    "functions": ("".join(EVIL.format(name="format", types=t, gives="text", author="{author}", more="RETURN 'TABLE public.goods';")
                          for t in ("text, name", "text, text, name", "text, text, regclass", "text, regprocedure", "text, text")), FORMAT),
    "operators": (EVIL.format(name="same", types="oid, regclass", gives="bool", author="{author}", more="RETURN true;") +
                  "CREATE OPERATOR public.= (LEFTARG = oid, RIGHTARG = regclass, FUNCTION = public.same);",
                  "SELECT count(*) FROM pg_depend WHERE classid = 'pg_class'::regclass"),
    "casts": (EVIL.format(name="told", types="public.goods", gives="text", author="{author}", more="RETURN 'x';") +
              "CREATE CAST (public.goods AS text) WITH FUNCTION public.told(public.goods) AS IMPLICIT;", "SELECT t::text FROM goods t"),
    "extensions": ("CREATE EXTENSION hstore; " + EVIL.format(name="format", types="text, name", gives="text", author="{author}", more="RETURN 'x';") +
                   "ALTER EXTENSION hstore ADD FUNCTION public.format(text, name);", FORMAT),
    "event triggers": (EVIL.format(name="on_command", types="", gives="event_trigger", author="{author}", more=""), "ALTER TABLE goods OWNER TO boss"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_the_author_of_a_template_becomes_nobody_else(gated, server, kind, count_attack):
    author = f"author_{os.urandom(6).hex()}"
    sql, careless = (text.replace("{author}", author) for text in HOSTILE[kind])
    is_super = f"SELECT rolsuper FROM pg_roles WHERE rolname = '{author}'"
    server.sql(f"CREATE ROLE {author}")
    server.sql(f"CREATE DATABASE {author} OWNER {author}")
    server.sql(f"SET ROLE {author}; CREATE TABLE goods (name text); INSERT INTO goods VALUES ('tea'); {sql}", author)
    if kind == "event triggers":  # its owner made it, for a function of somebody else's
        server.sql("CREATE EVENT TRIGGER watch ON ddl_command_end EXECUTE FUNCTION on_command()", author)
    box = carrel(gated, "new", "--db", "postgres:" + server.dsn.replace("/shop", f"/{author}")).stdout.strip()
    assert one(gated, box, "SELECT g.name FROM goods g") == "tea" and server.sql(is_super) == ["f"]
    count_attack()
    carrel(gated, "diff", box)
    gated.delete(f"/v1/machines/{box}")
    assert gone(gated, server) and server.sql(is_super) == ["f"]
    server.sql(careless, author)
    assert server.sql(is_super) == ["t"], "the control: a superuser who takes no care"
    server.sql(f"DROP DATABASE {author}")
    server.sql(f"DROP ROLE {author}")


def test_what_others_left_where_we_connect_is_not_asked(gated, server, count_attack):
    """The database that everybody is in by default, where anybody may write on older servers."""
    author = f"author_{os.urandom(6).hex()}"
    server.sql(f"CREATE ROLE {author}; GRANT CREATE ON SCHEMA public TO {author}")
    try:
        server.sql(f"SET ROLE {author}; " + EVIL.format(name="hashtextextended", types="text, integer", gives="bigint", author=author, more="RETURN 1;"))
        box = new(gated, server)
        gated.delete(f"/v1/machines/{box}")
        assert gone(gated, server) and server.sql(f"SELECT rolsuper FROM pg_roles WHERE rolname = '{author}'") == ["f"]
        count_attack()
        server.sql("SELECT hashtextextended('x', 20)")
        assert server.sql(f"SELECT rolsuper FROM pg_roles WHERE rolname = '{author}'") == ["t"], "the control"
    finally:
        server.sql(f"DROP OWNED BY {author} CASCADE; DROP ROLE {author}")


OTHER_BASE, OTHER_ROLE = "only the machine's own database may be used", "only the machine's own role may log in"
REPLICATES, NOT_ITS = "replication is not allowed", "the request would cancel a session that does not belong to the machine"
FIRST = "the first packet of the client is not a PostgreSQL packet"


@pytest.mark.parametrize("name,words,why", [
    ("a template", "dbname=shop", OTHER_BASE), ("everybody's", "dbname=postgres", OTHER_BASE), ("another case", "dbname={}", OTHER_BASE), ("the owner", "user=boss", OTHER_ROLE),
    ("the owner in its database", "user=boss dbname=$PGDATABASE", OTHER_ROLE), ("the log of all", "replication=true", REPLICATES), ("the log", "replication=database", REPLICATES)])
def test_no_other_database_and_nobody_else(gated_session, shared, name, words, why):
    box, grant = shared
    before = len(gated_session.notes(box, verb="net.deny", count=0))
    words = words.replace("{}", grant["detail"]["database"].upper())
    done = gated_session.exec(box, f'{postgres.BIN}/psql -XAtc "SELECT 1" "{words}"', timeout="30s")
    assert done["exec"]["status"] == 2 and f"FATAL:  {why}\n" in done["stderr"] and "the gate of the machine" in done["stderr"], done
    (note,) = gated_session.notes(box, verb="net.deny", count=before + 1)[before:]
    assert (note["detail"]["host"], note["detail"]["port"], note["reason"]) == (grant["at"], grant["detail"]["port"], why)
    tally.attack()


@pytest.mark.parametrize("name,packet,why", [
    ("the key of a session of others", "packet(80877102, struct.pack('>II', PID, KEY))", NOT_ITS), ("TLS at once", "b'\\x16\\x03\\x01\\x00\\x05aaaaa'", FIRST),
    ("an old version", "packet(2 << 16, b'u' * 288)", FIRST), ("two databases", "packet(3 << 16, b'user\\0NAME\\0database\\0NAME\\0database\\0shop\\0\\0')", FIRST),
    ("words that go on", "packet(3 << 16, b'user\\0NAME\\0\\0database\\0shop\\0\\0')", FIRST), ("a length without end", "b'\\x00\\xff\\xff\\xff'", FIRST),
    ("TLS again and again", "tls * 3", "the client sent too many requests for TLS")])
def test_first_packets_that_are_refused(gated_session, server, shared, name, packet, why):
    box, grant = shared
    before = len(gated_session.notes(box, verb="net.deny", count=0))
    pid = server.sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'")[0]
    packet = packet.replace("NAME", grant["detail"]["database"]).replace("PID", pid).replace("KEY", "4711")
    done = gated_session.python(box, f'''
import os, socket, struct
def packet(code, body): return struct.pack(">II", 8 + len(body), code) + body
tls = packet(80877103, b"")
s = socket.create_connection((os.environ["PGHOST"], int(os.environ["PGPORT"])), 10)
s.sendall({packet})
out = b""
while part := s.recv(4096): out += part
print(out)
''', timeout="30s")
    assert "SFATAL" in done["stdout"] and why.replace("'", "\\'") in done["stdout"] or why in done["stdout"], done
    (note,) = gated_session.notes(box, verb="net.deny", count=before + 1)[before:]
    assert (note["detail"]["host"], note["reason"]) == (grant["at"], why)
    tally.attack()


def test_it_may_stop_its_own_session(gated_session, shared):
    box, _ = shared
    before = time.monotonic()
    done = gated_session.exec(box, f"timeout -s INT 1 {postgres.BIN}/psql -XAtc 'SELECT pg_sleep(60)'", timeout="50s")
    assert "canceling statement due to user request" in done["stderr"] and time.monotonic() - before < 30, done


def test_much_goes_through_both_ways(gated_session, shared):
    box, _ = shared
    assert one(gated_session, box, "SELECT length(repeat('x', 5000000))") == "5000000"
    done = gated_session.exec(box, f"{postgres.BIN}/psql -XAtc \"SELECT repeat('x', 5000000)\" | wc -c; (echo \"SELECT length('\"; head -c 3000000 /dev/zero | tr '\\0' y; echo \"');\") | {postgres.BIN}/psql -XAt",
                      timeout="50s")
    assert done["stdout"].split() == ["5000001", "3000001"], done


def test_a_rate_is_kept_there_too(gated_session, shared):
    box, grant = shared
    gated_session.allow(box, f"tcp://{grant['at']}:{grant['detail']['port']}", rate="2M")
    began = time.monotonic()
    assert gated_session.exec(box, f"{postgres.BIN}/psql -XAtc \"SELECT repeat('x', 3000000)\" | wc -c", timeout="30s")["stdout"] == "3000001\n"
    assert 1 < time.monotonic() - began < 20


def test_tls_with_the_server_is_the_gates(gated, server, servers, tmp_path):
    """What the owner asks of the server's certificate holds for every session, and nothing of it is up to the machine."""
    secure = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
    dsn = server.dsn.replace("127.0.0.1", "localhost")
    boxes = {}
    server.speak_tls(servers.dir / "cert.pem", servers.dir / "key.pem")
    try:
        for mode in ("disable", "prefer", "require", "verify-ca", "verify-full"):
            boxes[mode] = carrel(gated, "new", "--db", f"postgres:{dsn}?sslmode={mode}").stdout.strip()
            assert one(gated, boxes[mode], secure) == ("f" if mode == "disable" else "t"), mode
        much = f"{postgres.BIN}/psql -XAtc \"SELECT repeat('x', 9000000)\" | wc -c"
        assert gated.exec(boxes["require"], much, timeout="30s")["stdout"] == "9000001\n"
        done = carrel(gated, "new", "--db", f"postgres:{server.dsn}?sslmode=verify-full", ok=False)
        assert done.returncode and "does not match host name" in done.stderr, done
        # Now it has a certificate that nobody knows, as somebody in its place would.
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
        server.speak_tls(tmp_path / "cert.pem", tmp_path / "key.pem")
        gated.until(lambda: psql(gated, boxes["verify-ca"], "SELECT 1")["exec"]["status"], 20)  # it has read it
        assert one(gated, boxes["require"], secure) == "t"
        for mode in ("verify-ca", "verify-full"):
            done = psql(gated, boxes[mode], "SELECT 1")
            assert done["exec"]["status"] == 2 and "FATAL:  the TLS handshake failed: self-signed certificate" in done["stderr"].replace("self signed", "self-signed"), done
            assert "the TLS handshake failed: self" in gated.notes(boxes[mode], verb="net.deny")[-1]["reason"]
        server.speak_tls(None, None)
        gated.until(lambda: psql(gated, boxes["require"], "SELECT 1")["exec"]["status"], 20)
        assert "the database server does not support TLS, which the owner requires" in psql(gated, boxes["require"], "SELECT 1")["stderr"]
        assert one(gated, boxes["prefer"], secure) == "f"
    finally:
        server.speak_tls(servers.dir / "cert.pem", servers.dir / "key.pem")
        gated.clear()
        assert gone(gated, server)  # that needs the certificate, too
        server.speak_tls(None, None)


def test_only_that_way_is_open(gated, server, count_attack):
    box = new(gated, server)
    reach = "import socket; s = socket.create_connection(({!r}, {}), 5); s.sendall(b'\\0\\0\\0\\x08\\x04\\xd2\\x16\\x2f'); print(s.recv(1))"
    assert gated.python(box, reach.format("127.0.0.1", server.port))["exec"]["status"], "that is its own loopback"
    for host, port in (("10.0.0.1", server.port), (gated.grants(box, "postgres")[0]["at"], server.port + 1), ("other.db.carrel", server.port)):
        before = len(gated.notes(box, verb="net.deny", count=0))
        done = gated.python(box, reach.format(host, port))
        assert done["exec"]["status"] and gated.notes(box, verb="net.deny", count=before + 1), done
        count_attack()
    other = gated.machine()
    done = gated.python(other, reach.format(gated.grants(box, "postgres")[0]["at"], server.port))
    assert done["exec"]["status"] and gated.notes(other, verb="net.deny")[-1]["detail"]["host"].endswith(".db.carrel"), done
    count_attack()


def test_the_owners_password_is_nowhere(gated, server):
    box = new(gated, server)
    carrel(gated, "grant", "revoke", box, gated.grants(box, "postgres")[0]["id"])
    assert gone(gated, server)
    journal = gated.request("GET", "/v1/audit", raw=True).decode()
    for secret in (server.token, server.dsn):
        assert secret not in journal and secret not in gated.log() and secret not in json.dumps(gated.get("/v1/secrets"))
        for path in pathlib.Path(gated.home).glob("carrel.db*"):
            assert secret.encode() not in path.read_bytes(), path
    # Of its own password the server saw, and logged, only what it can check it with.
    log = server.log()
    assert "SCRAM-SHA-256$" in log and "PASSWORD '" in log


def test_revoked_while_it_is_used(gated, server):
    box = new(gated, server)
    x = gated.background(box, [*PSQL, "-c", "SELECT pg_sleep(50)"])
    gated.until(lambda: server.sql("SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(50)%' AND usename LIKE 'carrel%'") == ["1"], 20)
    carrel(gated, "grant", "revoke", box, gated.grants(box, "postgres")[0]["id"])
    assert gated.wait(box, x, 20)["status"] != 0
    assert gone(gated, server) and gated.grants(box, "postgres") == []
    assert "PGHOST" not in gated.exec(box, "env")["stdout"]
    assert not [r for r in gated.get(f"/v1/machines/{box}/net")["rules"] if "db.carrel" in r["target"]]
    # And it can have another one.
    carrel(gated, "grant", "add", box, "--db", "postgres:" + server.dsn)
    assert one(gated, box, "SELECT count(*) FROM goods") == "2"


def test_it_expires(gated, server):
    box = new(gated, server, "--expires", "3s")
    assert "until" in server.sql("SELECT 'until' FROM pg_roles WHERE rolname LIKE 'carrel%' AND rolvaliduntil IS NOT NULL")
    assert gone(gated, server)
    assert gated.until(lambda: gated.grants(box, "postgres") == [], 10) is not None


def test_by_the_name_of_a_secret(gated, server):
    gated.put("/v1/secrets/SHOP_DB", {"value": server.dsn})
    box = carrel(gated, "new", "--db", "postgres:SHOP_DB").stdout.strip()
    assert one(gated, box, "SELECT count(*) FROM goods") == "2"
    names = [s["name"] for s in gated.get("/v1/secrets")["secrets"]]
    assert names.count("SHOP_DB") == 1 and not [n for n in names if n.startswith("postgres.")], "what is sealed for databases is nobody's to see"
    with pytest.raises(Refused, match="already has a database"):
        gated.grant(box, "postgres", "SHOP_DB")


def test_whoever_may_make_databases_is_enough(gated, server):
    box = carrel(gated, "new", "--db", f"postgres:host=127.0.0.1 port={server.port} user=maker password='maker\\'s' dbname=parts").stdout.strip()
    assert one(gated, box, "SELECT count(*) FROM goods") == "2"
    gated.delete(f"/v1/machines/{box}")
    assert gone(gated, server)


def test_a_fork_has_its_own(gated, server):
    box = new(gated, server)
    one(gated, box, "DELETE FROM goods")
    (fork,) = [m["id"] for m in gated.post(f"/v1/machines/{box}/fork", {})["machines"]]
    theirs, its = gated.grants(box, "postgres")[0], gated.grants(fork, "postgres")[0]
    assert its["id"] != theirs["id"] and one(gated, fork, "SELECT count(*) FROM goods") == "2"
    rules = [r["target"] for r in gated.get(f"/v1/machines/{fork}/net")["rules"]]
    assert rules == [f"tcp://{its['at']}:{server.port}"]
    gated.delete(f"/v1/machines/{fork}")
    gated.until(lambda: len(server.left()) == 2, 20)
    assert one(gated, box, "SELECT count(*) FROM goods") == "0"


def test_killed_while_it_is_used(gated, server):
    """The machine goes on with its database; one whose machine ended meanwhile is dropped."""
    box, other = new(gated, server), new(gated, server)
    gated.restart()
    assert one(gated, box, "SELECT count(*) FROM goods") == "2"
    gated.kill()
    # Ended by hand while no daemon looks: its row says so to the next one.
    gated.start()
    gated.delete(f"/v1/machines/{other}")
    gated.kill()
    gated.start()
    gated.until(lambda: len(server.left()) == 2, 30)
    gated.delete(f"/v1/machines/{box}")
    assert gone(gated, server)


def test_killed_while_it_is_made(gated, server):
    """At any moment of it: nothing is left in the end."""
    def make():  # by no command: one that finds no daemon would start another
        with contextlib.suppress(OSError, http.client.HTTPException, Refused):
            gated.machine(grants=[{"kind": "postgres", "what": "postgres", "value": server.dsn}])
    for pause in (0.02, 0.06, 0.12, 0.2):
        t = threading.Thread(target=make)
        t.start()
        time.sleep(pause)
        gated.kill()
        t.join()
        gated.start()
        for m in gated.machines():
            gated.delete(f"/v1/machines/{m['id']}")
        assert gone(gated, server, 40)


def test_a_server_that_is_away_is_waited_for(gated, server):
    box = new(gated, server)
    server.stop()
    try:
        told = carrel(gated, "diff", box).stdout
        assert "its changes are not known: cannot connect to the database" in told, told
        gated.delete(f"/v1/machines/{box}")
        notes = gated.notes(box, verb="database.stays", count=1, seconds=30)
        assert "connect to the server: " in notes[-1]["reason"]
        assert 'carrel_databases{state="to_drop"} 1' in gated.request("GET", "/metrics", raw=True).decode()
    finally:
        server.start()
    assert gone(gated, server, 60)
    gated.until(lambda: 'carrel_databases{state="to_drop"} 0' in gated.request("GET", "/metrics", raw=True).decode(), 10)


def test_a_password_that_has_changed_is_not_tried_for_ever(gated, server):
    """A server that says no is asked a few times; then it stays, is shown as that, and can be left to its owner."""
    server.sql("CREATE ROLE mover LOGIN SUPERUSER PASSWORD 'before'")
    box = carrel(gated, "new", "--db", f"postgres://mover:before@127.0.0.1:{server.port}/shop").stdout.strip()
    (grant,) = gated.grants(box, "postgres")
    server.sql("ALTER ROLE mover PASSWORD 'after'")
    gated.delete(f"/v1/machines/{box}")
    (note,) = gated.notes(box, verb="database.give_up", count=1, seconds=30)
    assert "refused the password" in note["reason"] and note["detail"]["grant"] == grant["id"]
    shown = carrel(gated, "grants", box).stdout
    assert f"{grant['id']}  postgres  given-up" in shown and "refused the password" in shown and "drop the database and its role on the server, then revoke this grant" in shown, shown
    tries = server.log().count('password authentication failed for user "mover"')
    assert tries == 4
    # Whoever keeps its address as a secret gives it another value, and that counts at once; for this one it is the same as before.
    gated.put("/v1/secrets/UNRELATED", {"value": "some value of it"})
    gated.until(lambda: server.log().count('password authentication failed for user "mover"') == 8, 20)
    gated.notes(box, verb="database.give_up", count=2)
    carrel(gated, "grant", "revoke", box, grant["id"])
    assert 'carrel_databases{state="to_drop"} 0' in gated.request("GET", "/metrics", raw=True).decode()
    assert "has ended" in carrel(gated, "grants", box, ok=False).stderr
    assert [n["kind"] for n in map(json.loads, gated.request("GET", "/v1/audit", raw=True, machine=box, verb="database.forget").decode().splitlines())] == ["intent", "result"]
    name = grant["detail"]["database"]
    assert sorted(server.left()) == [name, name], "it is the owner's to drop"
    server.sql(f"DROP DATABASE {name}")
    server.sql(f"DROP ROLE {name}")
    server.sql("DROP ROLE mover")


def test_a_secret_with_another_value_is_tried_at_once(gated, server):
    server.sql("CREATE ROLE mover LOGIN SUPERUSER PASSWORD 'before'")
    gated.put("/v1/secrets/MOVING", {"value": f"postgres://mover:before@127.0.0.1:{server.port}/shop"})
    box = carrel(gated, "new", "--db", "postgres:MOVING").stdout.strip()
    server.sql("ALTER ROLE mover PASSWORD 'after'")
    gated.delete(f"/v1/machines/{box}")
    gated.notes(box, verb="database.give_up", count=1, seconds=30)
    gated.put("/v1/secrets/MOVING", {"value": f"postgres://mover:after@127.0.0.1:{server.port}/shop"})
    assert gone(gated, server)
    server.sql("DROP ROLE mover")


def test_a_server_that_says_nothing_keeps_nobody_waiting(gated):
    """It takes the connection and is silent: only whoever asked for its database waits."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(8)
        waiting = [threading.Thread(target=carrel, args=(gated, "new", "--db", f"postgres://a:b@127.0.0.1:{s.getsockname()[1]}/x"), kwargs={"ok": False}) for _ in range(6)]
        for t in waiting:
            t.start()
        began = time.monotonic()
        box = gated.machine()
        assert gated.exec(box, "echo here")["stdout"] == "here\n"
        gated.put("/v1/secrets/OTHER", {"value": "some value of it"})
        assert time.monotonic() - began < 8
    for t in waiting:
        t.join(60)
    assert [m["id"] for m in gated.machines()] == [box]


def test_nothing_stays_of_one_that_could_not_be_made(gated, server):
    box = gated.machine()
    server.sql("CREATE ROLE poor LOGIN PASSWORD 'poor'")
    with pytest.raises(Refused, match="permission denied"):
        gated.grant(box, "postgres", "x", value=f"postgres://poor:poor@127.0.0.1:{server.port}/shop")
    assert gated.grants(box) == [] and "PG" not in gated.exec(box, "env")["stdout"] and gone(gated, server)
    server.sql("DROP ROLE poor")


@pytest.mark.parametrize("words,why", [
    ("postgres:", "that is not words"), ("postgres:host=/run/postgresql user=a dbname=b", "the host is missing"), ("postgres://a:b@127.0.0.1/", "the user or the template database is missing"),
    ("postgres:host=h user=a dbname=b passfile=/etc/shadow", "only host, port, user, password, dbname and sslmode"), ("postgres://a:b@h:70000/x", "the port"), ("postgres:NO_SUCH", "secret 'NO_SUCH' does not exist"),
    ("postgres://a:hidden@127.0.0.1:1/x", "connect to the server"), ("postgres://a:hidden@h/x?sslmode=maybe", "sslmode must be"), ("mysql://a:hidden@h/x", "--db mysql: unknown kind of database")])
def test_bad_words(gated, words, why):
    done = carrel(gated, "new", "--db", words, ok=False)
    assert done.returncode and (why in done.stderr or why == "that is not words"), done
    assert "hidden" not in done.stderr
    assert gated.machines() == []


# ---- a daemon that leaves in the middle ----

def own(d, box):
    return [g for g in d.grants(box, "postgres") if g["mode"] == "own"]


def held_by(d, box):
    """What it has of a database: the grant, that it was given, its variables, the rule."""
    grants = own(d, box)
    return [bool(grants), bool(grants) and "address" in grants[0]["detail"], "PGHOST=" in d.exec(box, "env")["stdout"],
            any(".db.carrel" in r["target"] for r in d.get(f"/v1/machines/{box}/net").get("rules", []))]


def ask(call, *args, **fields):
    with contextlib.suppress(OSError, http.client.HTTPException, Refused):
        call(*args, **fields)


@pytest.fixture
def faulty():
    d = Faulty()
    yield d
    d.stop()


@pytest.mark.parametrize("ends, skips", [(False, (6, 18, 24, 26, 28, 30)), (True, (0, 2, 4, 8))], ids=["given", "taken"])
def test_a_database_is_given_and_taken_whole(faulty, server, ends, skips):
    """The disk fails at some write of a grant or its end: the next daemon has all of the grant, or nothing of it."""
    d, box = faulty, faulty.machine()
    url = f"/v1/machines/{box}/grants"
    wanted = {"kind": "postgres", "what": "x", "value": server.dsn}
    for skip in skips:
        if ends and not own(d, box):
            d.post(url, wanted)
        elif not ends and own(d, box):
            d.revoke(box, "postgres")
        grant = f"{url}/{own(d, box)[0]['id']}" if ends else None
        d.fail(errno.EIO, skip=skip)
        ask(d.delete, grant) if ends else ask(d.post, url, wanted)
        d.heal()
        d.kill()
        d.start()
        d.until(lambda: held_by(d, box) in ([True] * 4, [False] * 4), 30)
    d.delete(f"/v1/machines/{box}")
    assert gone(d, server, 40)


def test_a_database_that_was_never_made_is_taken_back(faulty):
    """The daemon is killed while the server has not answered yet: nobody was told that the machine has it."""
    d, box = faulty, faulty.machine()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        asked = {"kind": "postgres", "what": "x", "value": f"postgres://a:b@127.0.0.1:{silent.getsockname()[1]}/x"}
        t = threading.Thread(target=ask, args=(d.post, f"/v1/machines/{box}/grants", asked))
        t.start()
        silent.settimeout(60)
        heard, _ = silent.accept()
        assert held_by(d, box) == [True, False, True, False]
        d.kill()
        t.join()
        d.start()
        d.until(lambda: held_by(d, box) == [False] * 4, 60)
        heard.close()
