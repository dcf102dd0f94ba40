"""Links, sessions and tickets: each works for what it was made for, once, and for nothing else."""
import contextlib
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import urllib.parse

import pytest

from carrel import BUILD, ROOTLESS
from console import ConsoleDaemon, Page, raw, status_of
from daemon import Refused, TcpClient
from test_desktop_watch import Viewer
from test_terminal import Socket

needs_root = pytest.mark.skipif(ROOTLESS, reason="only root can become other users")
JSON = {"Content-Type": "application/json"}


class Peer(TcpClient):
    """Another user of the host, at the unix socket."""

    def __init__(self, daemon, uid):
        self.daemon, self.uid = daemon, uid

    def request(self, method, target, body=None, **kw):
        command = ["setpriv", "--reuid", str(self.uid), "--regid", str(self.uid), "--clear-groups", "curl", "-sS",
                   "--unix-socket", self.daemon.socket, "-X", method, "-d", json.dumps(body or {}),
                   "-w", "\n%{http_code}", "http://carrel" + target]
        text = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
        content, status = text.rsplit("\n", 1)
        if int(status) >= 300:
            raise Refused(int(status), json.loads(content))
        return json.loads(content)


# ---- links ----

def test_a_link_opens_a_session_with_the_rights_of_its_owner(daemon):
    page = daemon.open()
    machine = page.machine()
    assert page.post("/console/me")["owner"] == daemon.get(f"/v1/machines/{machine}")["owner"]
    page.post(f"/v1/machines/{machine}/net/rules", {"target": "a.example"})  # which a token without admin may not
    assert "a.example" in json.dumps(page.get(f"/v1/machines/{machine}/net"))


def test_a_link_works_once(daemon):
    link = daemon.link()
    page = Page(daemon.port, None)
    assert page.post("/console/open", {"link": link})["token"].startswith("console-")
    assert status_of(page.post, "/console/open", {"link": link}) == (401, "denied")


@pytest.mark.parametrize("link", ["", "0" * 64, "f" * 64, "console-" + "0" * 64, "x" * 10000, None, 7, ["a"]])
def test_a_forged_link_opens_nothing(daemon, link):
    daemon.link()
    assert status_of(Page(daemon.port, None).post, "/console/open", {"link": link}) == (401, "denied")


def test_unknown_callers_send_little(daemon):
    link = daemon.link()
    for n, status in ((8 << 20, 413), (20_000, 413), (10_000, 401)):
        head = {"Content-Type": "application/json", "Content-Length": str(n)}
        body = json.dumps({"link": "x" * (n - len(json.dumps({"link": ""})))}) if n < 30_000 else ""
        assert raw(daemon.port, "POST", "/console/open", body, head)[0] == status
    assert Page(daemon.port, None).post("/console/open", {"link": link})["token"]


def test_only_the_owner_at_the_socket_makes_links(daemon):
    page = daemon.open()
    token = daemon.post("/v1/tokens", {"scopes": ["read", "run", "admin"]})["secret"]
    assert status_of(Page(daemon.port, token).post, "/console/link") == (401, "denied")
    assert status_of(page.post, "/console/link") == (401, "denied")
    assert status_of(Page(daemon.port, None).post, "/console/link") == (401, "denied")
    assert daemon.post("/console/link")["url"]  # the control


def test_an_owner_has_few_links_and_the_oldest_one_ends(daemon):
    links = [daemon.link() for _ in range(17)]
    page = Page(daemon.port, None)
    assert status_of(page.post, "/console/open", {"link": links[0]}) == (401, "denied")
    assert page.post("/console/open", {"link": links[1]})["token"]


@needs_root
def test_an_owner_at_its_limit_does_not_hinder_another(daemon):
    mine, other = daemon.open(), Peer(daemon, 1001)
    link, ticket = daemon.link(), mine.with_ticket("/v1/status")
    pages = [daemon.open(other) for _ in range(18)]
    for page in pages[-4:]:
        for _ in range(300):
            page.ticket("/v1/machines")
    for _ in range(20):
        daemon.link(other)
    assert status_of(pages[1].get, "/v1/status") == (401, "denied"), "the control: more than it may have"
    assert pages[-1].get("/v1/status")["version"]
    assert raw(daemon.port, "GET", ticket)[0] == 200
    assert Page(daemon.port, None).post("/console/open", {"link": link})["token"]
    assert mine.get("/v1/status")["version"]


def test_a_session_in_use_outlives_idle_ones(daemon):
    used, idle = daemon.open(), daemon.open()
    for _ in range(15):
        daemon.open()
        assert used.get("/v1/status")["version"]
    assert status_of(idle.get, "/v1/status") == (401, "denied")


def test_everything_is_in_the_journal_and_no_key_is(daemon):
    link = daemon.link()
    told = Page(daemon.port, None).post("/console/open", {"link": link})
    page = Page(daemon.port, told["token"])
    ticket = page.ticket("/v1/status")
    page.post("/console/close")
    text = daemon.request("GET", "/v1/audit?verb=console", raw=True).decode()
    assert {"console.link", "console.open", "console.close"} <= {json.loads(line)["verb"] for line in text.splitlines()}
    secrets = (link, told["token"], told["token"].removeprefix("console-"), ticket)
    kept = [p for p in [*daemon.run_dir.glob("console*"), daemon.dir / "log"] if p.is_file()]
    assert any(p.name == "console.json" for p in kept)
    for secret in secrets:
        assert secret not in text
        for path in kept:
            assert secret not in path.read_text(errors="replace"), path


# ---- sessions ----

def test_a_session_ends_when_it_is_closed(daemon):
    page, other = daemon.open(), daemon.open()
    assert page.get("/v1/status")["version"]
    page.post("/console/close")
    assert status_of(page.get, "/v1/status") == (401, "denied")
    assert other.get("/v1/status")["version"]


def test_a_session_outlives_the_daemon(daemon):
    page = daemon.open()
    machine = page.machine()
    for hard in (True, False):
        daemon.restart(hard=hard)
        assert page.get(f"/v1/machines/{machine}")["id"] == machine  # on the same port
    page.post("/console/close")
    daemon.restart()
    assert status_of(page.get, "/v1/status") == (401, "denied")


def test_an_expired_session_is_over(daemon):
    page = daemon.open()
    path = daemon.run_dir / "console.json"
    daemon.kill()
    kept = json.loads(path.read_text())
    assert (path.stat().st_mode & 0o777, len(kept["sessions"]) > 0) == (0o600, True)
    for session in kept["sessions"]:
        session["expires_ms"] = 1000
    path.write_text(json.dumps(kept))
    daemon.start()
    assert status_of(page.get, "/v1/status") == (401, "denied")
    assert daemon.open().get("/v1/status")["version"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"port":"x","sessions":7}', '{"port":-1,"sessions":[{"hash":1}]}',
                                  '{"sessions":[{"hash":"' + "0" * 64 + '","owner":"' + "a" * 9000 + '"}]}', "\0" * 5000])
def test_a_damaged_file_of_sessions_means_that_there_are_none(daemon, text):
    page = daemon.open()
    daemon.kill()
    (daemon.run_dir / "console.json").write_text(text)
    daemon.start()
    daemon.link()
    assert status_of(Page(daemon.port, page.headers["Authorization"][7:]).get, "/v1/status") == (401, "denied")
    assert daemon.open().get("/v1/status")["version"]


def test_forged_sessions_are_refused(daemon):
    page = daemon.open()
    token = page.headers["Authorization"].removeprefix("Bearer ")
    for forged in (token[:-1] + ("0" if token[-1] != "0" else "1"), token + "0", token[:-1], "console-", "console-" + "0" * 64,
                   token.upper(), token.removeprefix("console-")):
        assert status_of(Page(daemon.port, forged).get, "/v1/status") == (401, "denied"), forged
    assert page.get("/v1/status")["version"]


def test_no_cookie_authenticates(daemon):
    token = daemon.open().headers["Authorization"].removeprefix("Bearer ")
    for cookie in (f"token={token}", f"Authorization=Bearer {token}", f"console={token}"):
        assert raw(daemon.port, "GET", "/v1/status", headers={"Cookie": cookie})[0] == 401
    for target in ("/v1/status?token=" + token, "/v1/status?ticket=" + token, "/v1/status?access_token=" + token):
        assert raw(daemon.port, "GET", target)[0] in (400, 401)
    status, headers, _ = raw(daemon.port, "GET", "/v1/status", headers={"Authorization": "Bearer " + token})
    assert status == 200 and "Set-Cookie" not in headers


# ---- other sites ----

@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:{port}", "http://127.0.0.1:1", "http://localhost:{port}",
                                    "http://127.0.0.1:{port}.evil.example", "http://127.0.0.1"])
def test_pages_of_other_sites_are_refused(daemon, origin):
    page = daemon.open()
    headers = {**page.headers, "Origin": origin.format(port=daemon.port)}
    link = daemon.link()
    assert raw(daemon.port, "POST", "/console/open", json.dumps({"link": link}), {**JSON, "Origin": headers["Origin"]})[0] == 403
    assert raw(daemon.port, "GET", "/v1/status", headers=headers)[0] == 403
    assert raw(daemon.port, "POST", "/console/ticket", '{"target":"/v1/status"}', headers)[0] == 403
    assert page.post("/console/ticket", {"target": "/v1/status"})["ticket"]  # the control
    assert Page(daemon.port, None).post("/console/open", {"link": link})["token"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", None,
                                  "text/plain; application/json", "application/jsonx", "application/json, text/plain", "; application/json"])
def test_a_form_of_another_site_cannot_open_a_link(daemon, kind):
    link = daemon.link()
    headers = {"Content-Type": kind} if kind else {}
    assert raw(daemon.port, "POST", "/console/open", json.dumps({"link": link}), headers)[0] == 400
    assert raw(daemon.port, "POST", "/console/open", json.dumps({"link": link}), JSON)[0] == 201


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON;charset=UTF-8", "application/json ; x=y"])
def test_json_with_parameters_is_json(daemon, kind):
    body = json.dumps({"link": daemon.link()})
    assert raw(daemon.port, "POST", "/console/open", body, {"Content-Type": kind})[0] == 201


def test_a_rebound_name_is_refused(daemon):
    daemon.link()
    assert raw(daemon.port, "GET", "/", headers={"Host": f"evil.example:{daemon.port}"})[0] == 403
    assert raw(daemon.port, "GET", "/", headers={"Host": f"127.0.0.1:{daemon.port}"})[0] in (200, 404)


# ---- tickets ----

def test_a_ticket_works_once(daemon):
    page = daemon.open()
    target = page.with_ticket("/v1/status")
    assert raw(daemon.port, "GET", target)[0] == 200
    assert raw(daemon.port, "GET", target)[0] == 401


def test_a_ticket_is_for_one_path_and_query(daemon):
    page = daemon.open()
    machine = page.machine()
    files = f"/v1/machines/{machine}/files?path=/etc/hostname"
    for other in ("/v1/status", "/v1/machines", files.replace("hostname", "passwd"), files + "&user=root",
                  files.replace("?", "/stat?")):
        ticket = page.ticket(files)
        assert raw(daemon.port, "GET", page.with_ticket(other, ticket))[0] == 401, other
        assert raw(daemon.port, "GET", page.with_ticket(files, ticket))[0] == 401, "it was shown to the wrong path"
    assert raw(daemon.port, "GET", page.with_ticket(files))[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "HEAD"])
def test_a_ticket_is_for_get_only(daemon, method):
    page = daemon.open()
    machine = page.machine()
    target = f"/v1/machines/{machine}"
    assert raw(daemon.port, method, page.with_ticket(target), "{}", JSON)[0] in (400, 401, 405)
    assert page.get(target)["state"] == "running"
    assert raw(daemon.port, "GET", page.with_ticket(target))[0] == 200


def test_a_ticket_ends_with_its_session(daemon):
    page = daemon.open()
    target = page.with_ticket("/v1/status")
    page.post("/console/close")
    assert raw(daemon.port, "GET", target)[0] == 401


def test_tickets_are_only_for_pages_and_the_api(daemon):
    page = daemon.open()
    token = daemon.post("/v1/tokens", {})["secret"]
    assert status_of(Page(daemon.port, token).post, "/console/ticket", {"target": "/v1/status"}) == (400, "invalid")
    assert status_of(daemon.post, "/console/ticket", {"target": "/v1/status"}) == (400, "invalid")
    for target in ("", "/", "/metrics", "//evil.example/v1/", "http://evil.example/v1/", "/v1/" + "x" * 9000, None):
        assert status_of(page.post, "/console/ticket", {"target": target}) == (400, "invalid"), target


def test_what_a_machine_made_comes_as_a_file_never_as_a_page(daemon):
    page = daemon.open()
    machine = page.machine()
    page.exec(machine, "echo '<script>alert(1)</script>' >/home/user/x.html")
    for target in (f"/v1/machines/{machine}/files?path=/home/user/x.html", f"/v1/machines/{machine}/files/tar?path=/home/user",
                   f"/v1/machines/{machine}"):
        status, headers, _ = raw(daemon.port, "GET", page.with_ticket(target))
        assert status == 200 and headers["Content-Disposition"] == "attachment"
        assert "sandbox" in headers["Content-Security-Policy"] and headers["X-Content-Type-Options"] == "nosniff"
        assert "html" not in headers["Content-Type"]


def test_a_ticket_opens_a_terminal(daemon):
    page = daemon.open()
    machine = page.machine()
    browser = TcpClient(daemon.port)
    target = f"/v1/machines/{machine}/pty?command=cat"
    with pytest.raises(AssertionError):
        Socket(browser, target)
    opened = Socket(browser, page.with_ticket(target))
    opened.type("hello\n")
    opened.until("hello")
    page.post("/console/close")
    opened.type("more\n")
    opened.until_closed()  # the session that it belongs to is over


def test_a_refused_socket_of_a_page_says_why(daemon):
    """A browser hides the answer to a WebSocket that was refused, so the reason is in its close frame."""
    page = daemon.open()
    target = f"/v1/machines/{page.machine()}/pty?exec=x-none"
    refused = Viewer(TcpClient(daemon.port), target=page.with_ticket(target))
    assert "x-none" in refused.closed_because()
    assert raw(daemon.port, "GET", target, headers={**page.headers, "Connection": "Upgrade", "Upgrade": "websocket",
               "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="})[0] == 404, "other clients read the answer"


# ---- two owners ----

@needs_root
def test_two_users_have_two_consoles(daemon):
    mine = daemon.open()
    theirs = daemon.open(Peer(daemon, 1001))
    machine, other = mine.machine(), theirs.machine()
    assert {m["id"] for m in theirs.get("/v1/machines")["machines"]} == {other}
    assert status_of(theirs.get, f"/v1/machines/{machine}")[0] == 404
    assert status_of(theirs.post, f"/v1/machines/{machine}/pause")[0] == 404
    assert not theirs.post("/console/me")["admin"] and mine.post("/console/me")["admin"]
    ticket = theirs.ticket(f"/v1/machines/{machine}/files?path=/etc/hostname")
    assert raw(daemon.port, "GET", mine.with_ticket(f"/v1/machines/{machine}/files?path=/etc/hostname", ticket))[0] == 404
    assert mine.get(f"/v1/machines/{machine}")["state"] == "running"


def test_a_page_grants_only_what_lies_below_a_root():
    """A page sends no descriptors, so its paths are opened by the daemon."""
    top = pathlib.Path(tempfile.mkdtemp(prefix="c-", dir="/tmp"))
    d = ConsoleDaemon(conf=f"[daemon]\nroots = {top}\n")
    try:
        (top / "in").mkdir()
        (top / "in/file").write_text("inside\n")
        (top / "out").symlink_to("/etc")
        page = d.open()

        def give(path):
            return page.post("/v1/machines", {"dirs": [{"path": str(path), "at": "/home/user/d", "mode": "cow"}]})["id"]

        machine = give(top / "in")
        assert page.exec(machine, "cat /home/user/d/file")["stdout"] == "inside\n"
        for path in ("/etc", top.parent, f"{top}/../etc", top / "out", top / "out/ssl"):
            assert status_of(give, path)[0] in (400, 403), path
        file = {"kind": "file", "what": str(top / "in/file"), "at": "/home/user/copy"}
        page.post(f"/v1/machines/{machine}/grants", file)
        assert page.exec(machine, "cat /home/user/copy")["stdout"] == "inside\n"
        assert status_of(page.post, f"/v1/machines/{machine}/grants", {**file, "what": "/etc/hostname"}) == (403, "denied")
        assert status_of(d.post, "/v1/machines", {"dirs": [{"path": str(top / "in")}]}) == (400, "invalid")  # no descriptor
    finally:
        d.stop()
        shutil.rmtree(top)


# ---- orders ----

def test_without_the_command_nothing_is_shipped(daemon):
    page = daemon.open()
    error = None
    with pytest.raises(Refused) as error:
        page.post("/console/order", {"machine": "m", "yes": True})
    assert error.value.code == "busy" and "carrel console" in error.value.error["remedy"]


def test_a_page_cannot_answer_orders(daemon):
    page = daemon.open()
    daemon.post("/console/work")
    order = page.post("/console/order", {"machine": "m"})["id"]
    assert status_of(page.post, "/console/work") == (401, "denied")
    assert status_of(page.post, "/console/done", {"id": order, "status": 0}) == (401, "denied")
    for scopes in (["read", "run"], ["read", "run", "admin"]):  # an order writes to any directory of the owner
        token = daemon.post("/v1/tokens", {"scopes": scopes})["secret"]
        assert status_of(Page(daemon.port, token).post, "/console/order", {"machine": "m"})[1] == "denied"
    assert daemon.post("/console/work")["order"] == {"machine": "m"}
    daemon.post("/console/done", {"id": order, "status": 3, "output": "said"})
    assert page.post("/console/result", {"id": order}) == {"id": order, "state": "done", "status": 3, "output": "said"}


def test_an_order_is_no_larger_than_the_command_reads(daemon):
    page = daemon.open()
    daemon.post("/console/work")
    assert status_of(page.post, "/console/order", {"machine": "m", "only": ["x" * 3000] * 60}) == (429, "limit")
    assert page.post("/console/order", {"machine": "m", "only": ["x" * 1000] * 60})["id"] == daemon.post("/console/work")["id"]


@needs_root
def test_the_results_of_one_owner_do_not_end_those_of_another(daemon):
    mine, other = daemon.open(), Peer(daemon, 1001)
    theirs = daemon.open(other)

    def ordered(page, worker):
        worker.post("/console/work")
        order = page.post("/console/order", {"machine": "m"})["id"]
        worker.post("/console/work")
        worker.post("/console/done", {"id": order, "status": 0})
        return order

    result = ordered(mine, daemon)
    more = [ordered(theirs, other) for _ in range(65)]
    assert mine.post("/console/result", {"id": result})["state"] == "done"
    assert status_of(theirs.post, "/console/result", {"id": more[-9]})[0] == 404, "an owner has the newest 8"
    assert theirs.post("/console/result", {"id": more[-8]})["state"] == "done"


def test_the_results_of_an_owner_have_a_limit_together(daemon):
    """Each is the difference of a whole directory, which a machine wrote. The oldest ones make room."""
    page, quotes = daemon.open(), '"' * (3 << 20)  # JSON writes each as two bytes

    def ordered(output):
        daemon.post("/console/work")
        order = page.post("/console/order", {"machine": "m"})["id"]
        daemon.post("/console/work")
        return order, status_of(daemon.post, "/console/done", {"id": order, "status": 0, "output": output})

    small, told = ordered("small")
    assert told == (200, None)
    results = [ordered(quotes) for _ in range(3)]
    assert [told for _, told in results] == [(200, None)] * 3
    assert status_of(page.post, "/console/result", {"id": small})[0] == 404
    assert status_of(page.post, "/console/result", {"id": results[0][0]})[0] == 404
    assert page.post("/console/result", {"id": results[2][0]})["output"] == quotes
    assert ordered("x" * ((4 << 20) + 1))[1] == (429, "limit")
    assert page.post("/console/result", {"id": results[2][0]})["state"] == "done"


@needs_root
def test_orders_of_others_do_not_exist(daemon):
    mine, other = daemon.open(), Peer(daemon, 1001)
    theirs = daemon.open(other)
    daemon.post("/console/work")
    order = mine.post("/console/order", {"machine": "m"})["id"]
    assert other.post("/console/work") == {}
    assert status_of(theirs.post, "/console/result", {"id": order})[0] == 404
    assert status_of(other.post, "/console/done", {"id": order, "status": 0})[0] == 404
    assert daemon.post("/console/work")["id"] == order


# ---- the command ----

def test_the_command_prints_a_link_and_ships_what_the_page_orders(daemon, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    (work / "old").write_text("old\n")
    carrel = str(BUILD / "carrel")
    env = {**daemon.env, "HOME": str(tmp_path)}
    machine = subprocess.run([carrel, "new", "--dir", f"{work}:cow"], env=env, cwd=work, capture_output=True, text=True, timeout=120)
    assert machine.returncode == 0, machine.stderr
    machine = machine.stdout.strip()
    daemon.exec(machine, ["sh", "-c", f"echo new >{work}/new"])
    command = subprocess.Popen([carrel, "console", "--print"], env=env, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        link = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/#link=([0-9a-f]{64})\n", command.stdout.readline())
        daemon.port = int(link[1])
        page = Page(daemon.port, Page(daemon.port, None).post("/console/open", {"link": link[2]})["token"])
        daemon.until(lambda: page.post("/console/me")["ships"])

        def result(order):
            done = daemon.until(lambda: (r := page.post("/console/result", {"id": order}))["state"] == "done" and r)
            return done["status"], done["output"]

        order = {"machine": machine, "path": str(work)}
        status, shown = result(page.post("/console/order", order)["id"])
        assert (status, "new" in shown) == (0, True), shown
        assert not (work / "new").exists()
        status, shown = result(page.post("/console/order", {**order, "yes": True})["id"])
        assert (status, (work / "new").read_text()) == (0, "new\n"), shown
        status, shown = result(page.post("/console/order", {"machine": "--help", "yes": True})["id"])
        assert status != 0 and "usage" not in shown

        names = [f"n{i}" for i in range(60)]
        whole = {**order, "only": ["new", *names[1:]], "hunks": [f"{n}:1" for n in names]}
        status, shown = result(page.post("/console/order", whole)["id"])
        assert status == 125 and "--only 'n1'" in shown, "as many as an order may have reach carrel ship"
        for wrong in (["x"] * 61, "new", [5]):
            status, shown = result(page.post("/console/order", {**order, "yes": True, "only": wrong})["id"])
            assert status == 125 and "field 'only' of the order" in shown
        assert command.poll() is None
    finally:
        command.terminate()
        command.wait(30)
        command.stdout.close()
        command.stderr.close()


def test_the_command_prints_json_and_returns(daemon):
    for words in (["--json"], ["--link"]):
        done = subprocess.run([str(BUILD / "carrel"), "console", *words], env=daemon.env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and "#link=" in done.stdout


LINK = r"http://127\.0\.0\.1:(\d+)/#link=([0-9a-f]{64})"
NO_DISPLAY = {"DISPLAY": "", "WAYLAND_DISPLAY": "", "SSH_CONNECTION": "", "SUDO_UID": "", "USER": "ann"}


@contextlib.contextmanager
def console_command(daemon, *words, **env):
    """`carrel console`, and what reads a line of its output or messages."""
    command = subprocess.Popen([str(BUILD / "carrel"), "console", *words], env={**daemon.env, **NO_DISPLAY, **env},
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield command
    finally:
        command.terminate()
        command.communicate(timeout=30)


def browser_program(folder, text):
    program = folder / "browser"
    program.write_text("#!/bin/sh\n" + text)
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize("display", ["DISPLAY", "WAYLAND_DISPLAY"])
@pytest.mark.parametrize("form", ["/no/such:{}", "{} --new %s"])
def test_the_command_opens_a_browser(daemon, tmp_path, display, form):
    program = browser_program(tmp_path, f'echo "$#:$*" >{tmp_path}/new; mv {tmp_path}/new {tmp_path}/told\n')
    with console_command(daemon, **{display: ":9", "BROWSER": form.format(program)}) as command:
        assert re.fullmatch(rf"carrel: opened the console in a browser \(browser\)\. Leave .*\n", command.stderr.readline())
        daemon.until((tmp_path / "told").exists)
        said = re.fullmatch("2:--new " + LINK if "%s" in form else "1:" + LINK, (tmp_path / "told").read_text().strip())
        assert Page(int(said[1]), None).post("/console/open", {"link": said[2]})["token"]
        command.terminate()
        assert command.stdout.read() == "", "the link is spent, so it is not shown"


@pytest.mark.parametrize("text, why", [("exit 3", "failed with exit status 3"), (None, None)])
def test_the_command_prints_a_link_if_the_browser_fails(daemon, tmp_path, text, why):
    program = browser_program(tmp_path, text) if text else "/no/such"
    with console_command(daemon, DISPLAY=":9", BROWSER=program) as command:
        link = re.fullmatch(LINK + r"\n", command.stdout.readline())
        assert Page(int(link[1]), None).post("/console/open", {"link": link[2]})["token"]
        if why:
            command.stderr.readline()
            assert why in command.stderr.readline()


@pytest.mark.parametrize("words, env", [(["--print"], {"DISPLAY": ":9"}), (["--link"], {"DISPLAY": ":9"}), ([], {}),
                                        ([], {"DISPLAY": ":9", "SUDO_UID": "1000"})])
def test_the_command_opens_no_browser_unless_it_can_show_the_page(daemon, tmp_path, words, env):
    if "SUDO_UID" in env and ROOTLESS:
        pytest.skip("only root acts for somebody else")
    program = browser_program(tmp_path, f"touch {tmp_path}/told\n")
    with console_command(daemon, *words, BROWSER=program, **env) as command:
        assert re.fullmatch(LINK + r"\n", command.stdout.readline())
        if words != ["--link"]:
            assert "this link works once, for 120 seconds" in command.stderr.readline()
        assert not (tmp_path / "told").exists()


@pytest.mark.parametrize("ssh, says", [("192.0.2.7 5000 192.0.2.1 22", "ssh -N -L {0}:127.0.0.1:{0} ann@192.0.2.1"),
                                       ("2001:db8::7 5000 2001:db8::1 2200", "ssh -N -p 2200 -L {0}:127.0.0.1:{0} ann@2001:db8::1")])
def test_the_command_says_how_to_reach_it_over_ssh(daemon, ssh, says):
    with console_command(daemon, SSH_CONNECTION=ssh) as command:
        port = re.fullmatch(LINK + r"\n", command.stdout.readline())[1]
        assert command.stderr.readline().endswith(" run there: " + says.format(port) + "\n")


@needs_root
def test_the_link_of_a_browser_is_of_no_use_to_other_users(daemon):
    """Every user sees the words of a browser in the list of processes."""
    def tries(link, uid):
        return subprocess.run(["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", "curl", "-sS", "-H",
                               "Content-Type: application/json", "-d", json.dumps({"link": link}),
                               f"http://127.0.0.1:{daemon.port}/console/open"], capture_output=True, text=True, timeout=60).stdout

    link, shown = daemon.link(), daemon.post("/console/link", {"own_user": True})["url"].rpartition("=")[2]
    refused = json.loads(tries(shown, 1001))["error"]
    assert "user who ran carrel console" in refused["message"] and "--print" in refused["remedy"]
    assert json.loads(tries(link, 1001))["token"], "the control: a link that was printed"
    theirs = Peer(daemon, 1001).post("/console/link", {"own_user": True})["url"].rpartition("=")[2]
    assert "error" in json.loads(tries(theirs, 0)) and json.loads(tries(theirs, 1001))["token"]
    assert json.loads(tries(shown, 0))["token"], "it was not spent"


# ---- the page ----

def test_the_page_has_a_strict_policy(daemon):
    daemon.link()
    for target in ("/", "/assets/no-such.js", "/assets/../../../etc/passwd", "/assets/%2e%2e/%2e%2e/etc/passwd", "/assets//etc/passwd"):
        status, headers, content = raw(daemon.port, "GET", target)
        assert status in (200, 404) and b"root:" not in content
        policy = headers["Content-Security-Policy"]
        for part in ("default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'",
                     "form-action 'none'", "require-trusted-types-for 'script'"):
            assert part in policy, part
        assert "unsafe" not in policy and "http" not in policy and "frame-src 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff" and headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin" and headers["Referrer-Policy"] == "no-referrer"
        assert "Access-Control-Allow-Origin" not in headers and "Set-Cookie" not in headers


def test_the_page_may_show_exposed_ports_in_frames_and_nothing_else(daemon):
    page = daemon.open()
    url = urllib.parse.urlsplit(daemon.post(f"/v1/machines/{daemon.machine()}/exposures", {"port": 8000})["url"])
    frames = f"http://*.localhost:{url.port}"
    assert url.hostname.endswith(".localhost") and page.post("/console/me")["frames"] == frames
    status, headers, _ = raw(daemon.port, "GET", "/")
    allowed = frames if status == 200 else "'none'"  # without the bundle there is nothing that has frames
    assert f"; frame-src {allowed}; " in headers["Content-Security-Policy"]


def test_without_the_bundle_the_daemon_says_how_to_get_it(daemon):
    daemon.link()
    status, headers, content = raw(daemon.port, "GET", "/")
    if (pathlib.Path(BUILD) / "libexec/console/index.html").exists():
        assert status == 200 and headers["Content-Type"].startswith("text/html") and b"<script" in content
        assert not re.search(rb"<script(?![^>]* src=)", content), "an inline script"
    else:
        assert status == 404 and b"make web" in content
    status, _, content = raw(daemon.port, "GET", "/assets/none.js")
    assert status == 404


