"""Files by URL: a ticket moves one file of one machine, once, for its owner, in one direction."""
import contextlib
import hashlib
import json
import os
import pathlib
import socket
import sqlite3
import subprocess
import threading
import urllib.parse

import pytest

import cells
from daemon import Refused, TcpClient
from mcp_client import ToolFailed
from patience import clock

BIG = os.urandom(1 << 20) * 24


@pytest.fixture
def agent(open_client):
    return open_client("http")


@pytest.fixture
def anybody(daemon):
    """A client without a token."""
    return TcpClient(daemon.port)


def ticket(agent, path, way, **more):
    return urllib.parse.urlsplit(agent.call("transfer", path=path, way=way, **more)["url"]).path


def own(agent):
    return agent.call("exec", cmd="true")["machine"]


def shell(agent, line):
    return agent.call("exec", cmd=line)["stdout"]


def refusal(call, *words, **named):
    with pytest.raises(Refused) as e:
        call(*words, **named)
    return e.value.status, e.value.code


def source(daemon, machine):
    return daemon.get(f"/v1/machines/{machine}/net").get("tainted")


def names(daemon, machine):
    return daemon.exec(machine, "ls -A")["stdout"].split()


def test_a_large_file_goes_in_and_out_by_curl(agent, tmp_path):
    """The commands are those of the tool's answers, run on the host as a client runs them."""
    (tmp_path / "in").write_bytes(BIG)
    for way, name in (("upload", "in"), ("download", "out")):
        command = agent.call("transfer", path="/home/user/big", way=way)["command"]
        subprocess.run(command.replace("FILE", name), shell=True, cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "out").read_bytes() == BIG
    assert shell(agent, "sha256sum <big").split()[0] == hashlib.sha256(BIG).hexdigest()


def test_a_client_of_lines_gets_a_command_that_works(open_client, tmp_path):
    lines = open_client("lines")
    shell(lines, "echo hello >note")
    told = lines.call("transfer", path="/home/user/note", way="download")
    subprocess.run(told["command"].replace("FILE", "note"), shell=True, cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "note").read_text() == "hello\n"
    assert told["method"] == "GET" and told["life_s"] == 600


def test_a_ticket_is_used_once(agent, daemon, anybody):
    shell(agent, "echo hello >note")
    down, up = ticket(agent, "/home/user/note", "download"), ticket(agent, "/home/user/got", "upload")
    assert anybody.request("GET", down, raw=True) == b"hello\n"
    assert anybody.put(up, b"data")["sha256"] == hashlib.sha256(b"data").hexdigest()
    assert refusal(anybody.request, "GET", down) == (404, "not_found")
    assert refusal(anybody.put, up, b"other") == (404, "not_found")
    assert shell(agent, "cat got") == "data"


def test_head_reads_and_uses_nothing(agent, daemon, anybody):
    """The file is larger than the disk: its bytes cannot all be read in the time of a test."""
    shell(agent, "truncate -s 4T huge; echo hello >note")
    for name, size in (("huge", 4 << 40), ("note", 6)):
        path = ticket(agent, "/home/user/" + name, "download")
        for _ in range(3):
            c = anybody.connect()
            c.request("HEAD", path)
            answer = c.getresponse()
            assert (answer.status, int(answer.headers["Content-Length"]), answer.read()) == (200, size, b"")
            assert answer.headers["Accept-Ranges"] == "bytes"
            c.close()
    assert anybody.request("GET", path, raw=True) == b"hello\n"


def test_a_cut_download_is_continued_with_the_same_ticket(agent, daemon, anybody):
    anybody.put(ticket(agent, "/home/user/big", "upload"), BIG)
    path = ticket(agent, "/home/user/big", "download")
    c = anybody.connect()
    c.request("GET", path)
    got = c.getresponse().read(100_000)
    c.sock.close()
    c.close()
    end = clock() + 60
    while True:  # until the daemon has seen that the client left
        try:
            rest = anybody.request("GET", path, raw=True, headers={"Range": f"bytes={len(got)}-"})
            break
        except Refused as e:
            assert e.code == "busy" and clock() < end, e
    assert got + rest == BIG
    assert refusal(anybody.request, "GET", path) == (404, "not_found")


def test_a_download_is_not_continued_with_another_file(agent, anybody):
    """The control continues with the file as it was."""
    for change, status in (("true", None), ("echo other >note", 409)):
        shell(agent, "echo hello >note")
        path = ticket(agent, "/home/user/note", "download")
        assert anybody.request("GET", path, raw=True, headers={"Range": "bytes=0-2"}) == b"hel"
        shell(agent, change)
        rest = {"headers": {"Range": "bytes=3-"}, "raw": True}
        if status:
            assert refusal(anybody.request, "GET", path, **rest)[0] == status
        else:
            assert anybody.request("GET", path, **rest) == b"lo\n"


def test_a_cut_upload_leaves_nothing_and_may_be_repeated(agent, daemon, anybody):
    machine = own(agent)
    shell(agent, "echo old >note")
    before = names(daemon, machine)
    path = ticket(agent, "/home/user/note", "upload")
    with socket.create_connection(("127.0.0.1", daemon.port)) as s:
        s.sendall(b"PUT %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n" % path.encode() + b"x" * 500_000)
        daemon.until(lambda: any(n.startswith(".carrel-put-") for n in names(daemon, machine)))
    daemon.until(lambda: names(daemon, machine) == before)
    assert shell(agent, "cat note") == "old\n"
    assert anybody.put(path, b"new")["size"] == 3
    assert shell(agent, "cat note") == "new"


def test_two_requests_cannot_share_a_ticket(agent, daemon, anybody):
    """One upload holds it. Of many at once afterwards, one is done."""
    path = ticket(agent, "/home/user/note", "upload")
    with socket.create_connection(("127.0.0.1", daemon.port)) as s:
        s.sendall(b"PUT %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nx" % path.encode())
        daemon.until(lambda: any(n.startswith(".carrel-put-") for n in names(daemon, own(agent))))
        assert refusal(anybody.put, path, b"other") == (409, "busy")
        s.sendall(b"yz")
        assert b" 200 " in s.recv(100)
    assert shell(agent, "cat note") == "xyz"
    path = ticket(agent, "/home/user/note", "upload")
    outcomes = []

    def send(k):
        try:
            anybody.put(path, str(k).encode() * 100_000)
            outcomes.append(k)
        except Refused as e:
            assert e.code in ("busy", "not_found"), e

    threads = [threading.Thread(target=send, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(outcomes) == 1
    assert shell(agent, f"wc -c <note; tr -d {outcomes[0]} <note | wc -c").split() == ["100000", "0"]


def test_a_ticket_has_one_direction(agent, anybody):
    shell(agent, "echo hello >note")
    down, up = ticket(agent, "/home/user/note", "download"), ticket(agent, "/home/user/note", "upload")
    assert refusal(anybody.put, down, b"evil") == (403, "denied")
    assert refusal(anybody.request, "GET", up) == (403, "denied")
    assert anybody.request("GET", down, raw=True) == b"hello\n"
    anybody.put(up, b"new")


def test_another_owner_cannot_use_a_ticket(agent, daemon, anybody):
    """Nor one whose token is wrong. The control has the owner's."""
    shell(agent, "echo hello >note")
    path = ticket(agent, "/home/user/note", "download")
    other = daemon.post("/v1/tokens", {"owner": "mallory", "scopes": ["read", "run", "admin"]})["secret"]
    assert refusal(TcpClient(daemon.port, other).request, "GET", path) == (404, "not_found")
    assert refusal(TcpClient(daemon.port, "wrong").request, "GET", path)[0] == 401
    assert daemon.request("GET", path, raw=True) == b"hello\n"


def test_a_ticket_ends_with_its_token_and_its_machine(agent, daemon, anybody, open_client):
    made = daemon.post("/v1/tokens", {"scopes": ["read", "run"]})
    agent.headers["Authorization"] = "Bearer " + made["secret"]
    agent.session = None
    agent.greet()
    shell(agent, "echo hello >note")
    path, kept = (ticket(agent, "/home/user/note", "download") for _ in range(2))
    assert anybody.request("GET", kept, raw=True) == b"hello\n"
    daemon.delete("/v1/tokens/" + made["id"])
    assert refusal(anybody.request, "GET", path) == (404, "not_found")
    second = open_client("http")
    machine = second.call("exec", cmd="echo hello >note")["machine"]
    path = ticket(second, "/home/user/note", "download")
    daemon.delete("/v1/machines/" + machine)
    assert refusal(anybody.request, "GET", path) == (404, "not_found")
    agent.session = None


def test_a_ticket_expires(agent, daemon, anybody):
    shell(agent, "echo hello >note")
    path = ticket(agent, "/home/user/note", "download", life_s=1)
    control = ticket(agent, "/home/user/note", "download")

    def is_over():
        try:
            anybody.request("HEAD", path)
        except Refused as e:
            return e.status == 404

    daemon.until(is_over)
    assert anybody.request("GET", control, raw=True) == b"hello\n"


def test_a_ticket_cannot_be_guessed_or_found_by_its_path(agent, daemon, anybody):
    shell(agent, "echo hello >note")
    path = ticket(agent, "/home/user/note", "download")
    assert len(path.rsplit("/", 1)[1]) == 64
    for wrong in (path[:-1] + ("0" if path[-1] != "0" else "1"), path[:-1], path + "0", path.upper().replace("/V1/TRANSFERS", "/v1/transfers"),
                  "/v1/transfers/..%2fmachines", "/v1/transfers/" + hashlib.sha256(path.rsplit("/", 1)[1].encode()).hexdigest()):
        assert refusal(anybody.request, "GET", wrong) == (404, "not_found"), wrong
    assert refusal(anybody.request, "GET", path + "?path=/etc/shadow")[0] == 400
    assert anybody.request("GET", path, raw=True) == b"hello\n"


def test_a_path_gives_no_more_than_its_user_has(agent, daemon, anybody):
    """Dots lead nowhere else, and links at the end are refused. The control writes its own file by dots."""
    with pytest.raises(ToolFailed, match="absolute"):
        agent.call("transfer", path="note", way="download")
    shell(agent, "ln -s /etc/shadow secret; ln -s note link; echo hello >note; ln -s . same")
    assert refusal(anybody.request, "GET", ticket(agent, "/home/user/../../etc/shadow", "download"))[0] in (403, 404)
    assert refusal(anybody.put, ticket(agent, "/home/user/../../etc/passwd", "upload"), b"x")[0] == 403
    for name in ("secret", "link"):
        assert refusal(anybody.request, "GET", ticket(agent, "/home/user/" + name, "download"))[1] == "invalid"
        assert refusal(anybody.put, ticket(agent, "/home/user/" + name, "upload", user="root"), b"x")[0] >= 400
    assert shell(agent, "cat note; readlink secret link") == "hello\n/etc/shadow\nnote\n"
    assert refusal(anybody.request, "GET", ticket(agent, "/dev/zero", "download"))[1] == "invalid"
    anybody.put(ticket(agent, "/home/user/same/../user/note", "upload"), b"new")
    assert shell(agent, "cat note") == "new"


def test_a_thousand_tickets_are_limited_and_all_of_them_work(open_client, daemon, anybody):
    agent = open_client("http")
    machines = [own(agent)] + [agent.call("machine_create")["machine"] for _ in range(4)]
    for m in machines:
        daemon.exec(m, f"echo {m} >note")
    made, why = [], set()
    for k in range(1000):
        m = machines[min(k // 100, 4)]
        try:
            made.append((m, ticket(agent, "/home/user/note", "download", machine=m)))
        except ToolFailed as e:
            why.add(str(e).split(" has ")[1].split(" open")[0])
    assert why == {"64", "256"} and len(made) == len(set(made)) == 256
    for m, path in made:
        assert anybody.request("GET", path, raw=True).decode() == m + "\n"
    assert ticket(agent, "/home/user/note", "download")


def test_uploads_of_strangers_taint_the_machine(agent, daemon, anybody, token):
    """The controls are uploads of the owner, by token and by socket, and a download."""
    machine = own(agent)
    TcpClient(daemon.port, token).put(ticket(agent, "/home/user/a", "upload"), b"x")
    daemon.put(ticket(agent, "/home/user/a", "upload"), b"x")
    anybody.request("GET", ticket(agent, "/home/user/a", "download"), raw=True)
    assert source(daemon, machine) is None
    anybody.put(ticket(agent, "/home/user/a", "upload"), b"x")
    assert source(daemon, machine) == "upload by URL"


def change(daemon, sql):
    with contextlib.closing(sqlite3.connect(daemon.home / "carrel.db", timeout=60)) as db, db:
        db.execute(sql)


def test_an_upload_whose_taint_cannot_be_stored_writes_nothing(agent, daemon, anybody):
    """The next daemon would know nothing of the taint. The control is an upload of the owner, which taints nothing."""
    machine, path = own(agent), ticket(agent, "/home/user/theirs", "upload")
    change(daemon, """CREATE TRIGGER refuse_taint BEFORE INSERT ON networks WHEN instr(NEW.policy, '"tainted":"')
                      BEGIN SELECT RAISE(ABORT, 'no room for a taint'); END""")
    try:
        daemon.put(ticket(agent, "/home/user/own", "upload"), b"x")
        with pytest.raises(Refused, match="no room for a taint"):
            anybody.put(path, b"x")
    finally:
        change(daemon, "DROP TRIGGER refuse_taint")
    assert "own" in names(daemon, machine) and "theirs" not in names(daemon, machine)
    anybody.put(path, b"x")
    assert source(daemon, machine) == "upload by URL"


def test_an_upload_brings_the_taint_of_its_conversation(agent, daemon, token):
    """The client may have got the bytes from a machine that it read after it asked for the ticket."""
    first, second, third = own(agent), *(agent.call("machine_create")["machine"] for _ in range(2))
    early, control = ticket(agent, "/home/user/a", "upload", machine=second), ticket(agent, "/home/user/a", "upload", machine=third)
    client = TcpClient(daemon.port, token)
    client.put(control, b"x")
    daemon.post(f"/v1/machines/{first}/grants", {"kind": "env", "what": "WORD", "value": "v", "untrusted": True})
    agent.call("exec", cmd="echo $WORD")
    client.put(early, b"x")
    assert (source(daemon, second), source(daemon, third)) == ("WORD", None)


def test_a_download_shows_no_taint_that_its_conversation_does_not_know(agent, daemon, anybody):
    shell(agent, "echo hello >note")
    machine, path = own(agent), ticket(agent, "/home/user/note", "download")
    other = agent.call("machine_create")["machine"]
    daemon.post(f"/v1/machines/{machine}/grants", {"kind": "env", "what": "WORD", "value": "v", "untrusted": True})
    assert refusal(anybody.request, "GET", path) == (403, "denied")
    assert anybody.request("GET", ticket(agent, "/home/user/note", "download"), raw=True) == b"hello\n"
    agent.call("write", machine=other, path="/home/user/after", content="x")
    assert source(daemon, other) == "WORD"


def test_a_ticket_is_in_no_log_and_its_use_is_in_the_journal(agent, daemon, anybody):
    path = ticket(agent, "/home/user/note", "upload")
    word = path.rsplit("/", 1)[1]
    machine = own(agent)
    anybody.put(path, b"hello")
    refusal(anybody.put, path, b"again")
    records = [json.loads(line) for line in daemon.request("GET", "/v1/audit", raw=True, machine=machine).splitlines()]
    verbs = [r["verb"] for r in records if r["verb"].startswith("transfer.") and r["kind"] == "intent"]
    assert verbs == ["transfer.new", "transfer.upload"]
    details = [r["detail"] for r in records if r["verb"] == "transfer.upload" and r["kind"] == "intent"]
    assert (details[0]["way"], details[0]["path"]) == ("upload", "/home/user/note")
    assert [r["bytes"] for r in records if r["verb"] == "transfer.upload" and r["kind"] == "result"] == [5]
    told = agent.ask("resources/read", {"uri": f"carrel://{machine}/transcript"})["contents"][0]["text"]
    assert '"transfer"' in told and word not in told
    files = [*(daemon.home / "journal").iterdir(), *daemon.home.glob("*.db*"), *daemon.run_dir.glob("*log*"), *daemon.dir.glob("*log*")]
    control = 0
    for p in filter(pathlib.Path.is_file, files):
        assert word.encode() not in p.read_bytes(), p
        control += b"transfer.upload" in p.read_bytes()
    assert control


def test_a_cell_machine_takes_and_gives_files_too(daemon, anybody, open_client):
    daemon.request("POST", "/v1/images", cells.image(), name="cells")
    machine = daemon.machine(kind="cell", image="cells")
    agent = open_client("http", "/mcp?machine=" + machine)
    anybody.put(ticket(agent, "/note", "upload"), b"hello")
    path = ticket(agent, "/note", "download")
    anybody.request("HEAD", path)
    assert anybody.request("GET", path, raw=True) == b"hello"
