"""More of the page of one machine: files, network, grants and ports."""
import base64
import subprocess

from browser import need_browser
from console import show
from worker import carrel

need_browser()


# ---- files ----

def test_a_file_is_viewed_edited_and_saved(tab, daemon, box):
    daemon.exec(box, "echo before >note; mkdir folder; echo deep >folder/inner; ln -s folder link")
    show(tab, box, "files")
    tab.click(".row:has-text('link (link)')")
    tab.shown(".row:has-text('inner')")
    tab.goBack()
    tab.click(".row:has-text('note')")
    tab.shown("textarea")
    assert tab.inputValue("textarea") == "before\n"
    tab.fill("textarea", "after\n")
    tab.click("button:text('Save')")
    tab.reads("Saved 6 B.")
    assert daemon.exec(box, "cat note")["stdout"] == "after\n"


def test_files_begin_where_the_commands_of_the_machine_start(tab, daemon, tmp_path):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/granted.txt").write_text("x")
    shop = carrel(daemon, tmp_path, "new", "--dir", f"{tmp_path}/shop:/shop")
    daemon.exec(shop, "echo hello >~/in-home")
    assert daemon.exec(shop, "pwd")["stdout"].strip() == "/shop"
    show(tab, shop, "files")
    tab.shown(".row:has-text('granted.txt')")
    tab.click("button:text-is('Home')")
    tab.shown(".row:has-text('in-home')")
    tab.gone("button:text-is('Home')")


def test_files_do_not_begin_in_what_was_granted_later(tab, daemon, box, tmp_path):
    """Commands start only in what the machine was created with."""
    subprocess.run(["git", "init", "-q", tmp_path / "later"], check=True, timeout=60)
    subprocess.run(["git", "-C", tmp_path / "later", "-c", "user.name=a", "-c", "user.email=a@b.invalid", "commit", "-q",
                    "--allow-empty", "-m", "first"], check=True, timeout=60)
    carrel(daemon, tmp_path, "grant", "add", box, "--repo", tmp_path / "later")
    assert daemon.get(f"/v1/machines/{box}/grants")["grants"][0]["kind"] == "repo"
    assert daemon.exec(box, "echo hello >~/in-home; pwd")["stdout"].strip() == "/home/user"
    show(tab, box, "files")
    tab.shown(".row:has-text('in-home')")
    tab.gone("button:text-is('Home')")


def test_a_save_overwrites_what_somebody_else_wrote_only_when_told(tab, daemon, box):
    daemon.exec(box, "echo before >note")
    show(tab, box, "files")
    tab.click(".row:has-text('note')")
    tab.fill("textarea", "mine")
    daemon.exec(box, "echo it is theirs >note")
    tab.shown(".warning:has-text('it had 7 B and has 13 B now')")
    tab.click("button:text('Save')")
    tab.shown("dialog:has-text('has changed in the machine'):has-text('13 B, changed'):has-text('4 B')")
    tab.click("dialog button:text('Cancel')")
    assert daemon.exec(box, "cat note")["stdout"] == "it is theirs\n"
    assert tab.inputValue("textarea") == "mine"
    tab.click("button:text('Save')")
    tab.shown("dialog:has-text('13 B, changed')")
    daemon.exec(box, "echo and once more >note")  # while the question is asked
    tab.click("dialog button:text('Overwrite')")
    tab.shown("dialog .problem:has-text('changed once more')")
    tab.click("dialog button:text('Cancel')")
    tab.click("button:text('Save')")
    tab.click("dialog:has-text('14 B') button:text('Overwrite')")
    tab.reads("Saved 4 B.")
    assert daemon.exec(box, "cat note")["stdout"] == "mine"
    tab.gone(".warning")


def test_a_view_follows_the_file_and_keeps_what_is_typed(tab, daemon, box):
    daemon.exec(box, "printf 'one\\r\\n' >note")
    show(tab, box, "files")
    tab.click(".row:has-text('note')")
    tab.shown("textarea")
    daemon.exec(box, "printf 'one\\r\\ntwo\\r\\n' >note")
    tab.until("document.querySelector('textarea').value === 'one\\ntwo\\n'")
    tab.fill("textarea", "one\nthree\n")
    daemon.kill()
    tab.shown(".lost")
    daemon.start()
    tab.gone(".lost")
    assert tab.inputValue("textarea") == "one\nthree\n"
    tab.click("button:text('Save')")
    tab.reads("Saved 12 B.")
    assert daemon.exec(box, "cat note")["stdout"] == "one\r\nthree\r\n"  # the ends of lines stay
    daemon.exec(box, "rm note")
    tab.shown(".warning:has-text('deleted in the machine')")
    tab.click("button:text('Save')")
    tab.click("dialog:has-text('been deleted') button:text('Make it')")
    tab.reads("Saved 12 B.")
    assert daemon.exec(box, "cat note")["stdout"] == "one\r\nthree\r\n"


def test_text_that_is_not_saved_is_not_dropped_without_a_question(tab, daemon, box):
    daemon.exec(box, "echo before >note; echo other >other")
    show(tab, box, "files")
    tab.click(".row:has-text('other')")
    tab.shown("textarea")
    tab.click(".row:has-text('note')")  # without changes there is no question
    tab.until("document.querySelector('textarea')?.value === 'before\\n'")
    tab.fill("textarea", "mine")
    leaves = {"another file": ".row:has-text('other')", "close": "[aria-label=File] button:text('Close')", "part": "#tab-network",
              "page": "nav a:has-text('Images')", "folder": ".crumbs button:text('home/')", "log out": "text=Log out"}
    for name, selector in leaves.items():
        tab.click(selector)
        tab.shown("dialog:has-text('Discard your changes?'):has-text('/home/user/note')")
        tab.click("dialog button:text('Cancel')")
        tab.gone("dialog")
        assert tab.inputValue("textarea") == "mine", name
    tab.evaluate("history.back()")
    tab.click("dialog button:text('Cancel')")
    assert tab.inputValue("textarea") == "mine"
    assert "note" in tab.evaluate("location.hash")
    closes = "!dispatchEvent(new Event('beforeunload', { cancelable: true }))"  # the browser asks
    assert tab.evaluate(closes)
    tab.evaluate("history.back()")
    tab.click("dialog button:text('Discard them')")
    tab.until("document.querySelector('textarea')?.value === 'other\\n'")
    assert not tab.evaluate(closes)
    assert daemon.exec(box, "cat note")["stdout"] == "before\n"


def test_an_upload_asks_before_it_overwrites(tab, daemon, box):
    daemon.exec(box, "echo kept >note; mkdir folder")
    show(tab, box, "files")
    mine = base64.b64encode(b"mine").decode()
    tab.upload("button:text('Upload')", "note", mine)
    tab.shown("dialog:has-text('Overwrite 1 file?'):has-text('note'):has-text('5 B in the machine'):has-text('yours has 4 B')")
    tab.click("dialog button:text('Cancel')")
    assert daemon.exec(box, "cat note")["stdout"] == "kept\n"
    tab.upload("button:text('Upload')", "note", mine)  # the same file again
    tab.click("dialog button:text('Overwrite')")
    tab.reads("Uploaded 1 file.")
    assert daemon.exec(box, "cat note")["stdout"] == "mine"
    tab.upload("button:text('Upload')", "folder", mine)
    tab.shown(".toast.bad:has-text('a folder of this name')")


def test_a_deletion_says_if_a_step_can_bring_the_file_back(tab, daemon, tmp_path):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/granted").write_text("x")
    shop = carrel(daemon, tmp_path, "new", "--dir", f"{tmp_path}/shop:/home/user/shop")
    daemon.exec(shop, "echo x >~/own")
    tab.evaluate(f"location.hash = '#/machines/{shop}?tab=files&dir=/home/user/shop'")
    tab.click("[title='Delete granted']")
    tab.shown("dialog:has-text('no rewind brings it back. Your own file stays until you ship')")
    tab.click("dialog button:text('Cancel')")
    tab.click("button:text-is('Home')")
    tab.click("[title='Delete own']")
    tab.shown("dialog:has-text('may still have it')")
    tab.click("dialog button:text('Delete')")
    tab.gone(".row:has-text('own')")
    assert (tmp_path / "shop/granted").read_text() == "x"


def test_files_go_up_and_come_down(tab, daemon, box):
    content = bytes(range(256)) * 300
    show(tab, box, "files")
    tab.upload("button:text('Upload')", "up.bin", base64.b64encode(content).decode())
    tab.click(".row:has-text('up.bin')")
    tab.reads("This file is not text.")
    came = tab.download("section button:text('Download')")
    assert (came["name"], base64.b64decode(came["base64"])) == ("up.bin", content)
    tab.click("[title='Delete up.bin']")
    tab.click("dialog button:text('Delete')")
    tab.gone(".row:has-text('up.bin')")
    assert daemon.exec(box, "test -e up.bin")["exec"]["status"] == 1


def test_a_hostile_file_name_and_content_are_text(tab, daemon, box):
    name = "<img src=x onerror=alert(1)>.html"
    daemon.exec(box, f"echo '<script>alert(1)</script>' >'{name}'")
    show(tab, box, "files")
    tab.click(".row:has-text('onerror')")
    tab.shown("textarea")
    assert tab.inputValue("textarea") == "<script>alert(1)</script>\n"
    assert tab.count("main img, main script") == 0


# ---- network, grants, ports ----

def test_a_refused_host_is_allowed_with_the_rule_that_is_shown(tab, daemon, box):
    daemon.exec(box, "curl -sS -m 9 https://wanted.example/x; true")
    show(tab, box, "network")
    tab.click("li:has-text('https://wanted.example') button:text('Allow')")
    tab.reads("carrel net box allow https://wanted.example")
    tab.click("text=Add this rule")
    tab.shown("[aria-label=Rules] li:has-text('https://wanted.example')")
    [rule] = daemon.get(f"/v1/machines/{box}/net")["rules"]
    assert (rule["action"], rule["target"]) == ("allow", "https://wanted.example")
    tab.click(f"[title='Delete rule {rule['id']}']")
    tab.reads("No rule: the machine reaches nothing.")


def test_a_secret_is_granted_by_its_name_and_revoked(tab, daemon, box):
    daemon.put("/v1/secrets/PAGE_TOKEN", {"value": "hidden-value-1234567890"})
    try:
        show(tab, box, "grants")
        tab.click("text=Grant a secret")
        tab.selectOption("dialog select", "PAGE_TOKEN")
        tab.fill("dialog input", "api.example")
        tab.click("dialog button:text('Grant')")
        tab.shown("[aria-label=Grants] li:has-text('PAGE_TOKEN → api.example')")
        assert "hidden-value" not in tab.content()
        tab.click("button:text('Revoke')")
        tab.reads("Nothing is granted to this machine.")
        assert daemon.get(f"/v1/machines/{box}/grants")["grants"] == []
    finally:
        daemon.delete("/v1/secrets/PAGE_TOKEN")


def test_a_port_is_exposed_at_another_origin_and_closed(tab, daemon, box):
    show(tab, box, "grants")
    tab.click("text=Expose a port")
    tab.fill("dialog input", "8000")
    tab.click("dialog button:text('Expose')")
    tab.shown("[aria-label=Ports] a:text('Open')")
    host = tab.evaluate("document.querySelector('[aria-label=Ports] a').host")
    assert host.startswith(f"8000-{box}.") and host != tab.evaluate("location.host")
    tab.click("[title='Close port 8000']")
    tab.reads("No port can be reached from outside.")


SITE = """
import http.server
PAGE = b'''<!doctype html><title>shop</title><p id=told>nothing</p><script>
const tries = { parent: () => parent.document.title, top: () => { top.location = "/gone"; }, open: () => open("/").name, storage: () => parent.sessionStorage };
const done = [];
for (const [name, run] of Object.entries(tries)) try { run(); done.push(name); } catch {}
fetch("/api", { method: "POST", body: "x" }).then((a) => a.text()).then((text) => { told.textContent = `${text}; done: ${done}`; });
</script>'''
class Web(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = PAGE if self.command == "GET" else b"saved"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    do_POST = do_GET
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Web).serve_forever()
"""


def test_a_preview_shows_the_port_and_keeps_it_out_of_the_page(tab, daemon, box):
    """The page of the machine works in its frame, with its own requests, and reaches nothing of the console."""
    daemon.put(f"/v1/machines/{box}/files", SITE.encode(), path="/home/user/site.py")
    daemon.post(f"/v1/machines/{box}/execs", {"argv": ["python3", "/home/user/site.py"], "background": True})
    daemon.until(lambda: daemon.exec(box, "curl -s -o /dev/null http://127.0.0.1:8000/")["exec"]["status"] == 0)
    show(tab, box, "grants")
    tab.click("text=Expose a port")
    tab.fill("dialog input", "8000")
    tab.click("dialog button:text('Expose')")
    tab.click("[aria-label=Ports] button:text('Preview')")
    tab.shown("iframe.preview")
    assert tab.framed(f"http://8000-{box}.localhost", "told.textContent !== 'nothing' && told.textContent") == "saved; done: "
    assert tab.evaluate("location.hash").startswith(f"#/machines/{box}")
    assert tab.axe() == []
    tab.click("[aria-label='Preview of port 8000'] button:text('Close')")
    tab.gone("iframe")
    tab.click("text=Log out")
    tab.reads("You are logged out.")
    assert tab.evaluate("sessionStorage.length") == 0
    assert all("sandboxed" in fault for fault in tab.faults())  # what the page tried, and the browser refused


def test_no_part_has_serious_findings_of_axe(tab, daemon, box):
    daemon.exec(box, "echo one >note; curl -sS -m 9 https://wanted.example/x; true")
    parts = {"timeline": ".step", "terminals": ".bar button:text('New terminal')", "commands": ".command",
             "files": ".row:has-text('note')", "network": "[aria-label='Reached and refused'] li", "grants": "h2:text('Ports')"}
    for name, part in parts.items():
        show(tab, box, name)
        tab.shown(part)
        assert tab.axe() == [], name


def test_a_held_request_is_listed_under_network_until_it_is_decided(tab, daemon):
    machine = daemon.machine(name="waits")
    item = daemon.held(machine)
    show(tab, machine, "network")
    tab.shown("[aria-label='Held'] li:has-text('held')")
    daemon.post(f"/v1/pending/{item}", {"decision": "deny"})
    tab.gone("[aria-label='Held']")
    tab.shown("[aria-label='Reached and refused'] .badge:has-text('refused')")


def test_a_machine_is_guarded_and_a_name_that_is_unknown_is_not_called_refused(tab, daemon):
    machine = daemon.machine(net=[{"target": "http://nowhere.invalid"}])
    show(tab, machine, "network")
    tab.click("button:text('Guard…')")
    tab.shown("dialog:has-text('cannot be undone')")
    tab.click("dialog button:text('Guard')")
    tab.shown(".bar .badge:text-is('guarded')")
    assert daemon.get(f"/v1/machines/{machine}/net")["guarded"] is True
    daemon.exec(machine, "curl -s -m 60 http://nowhere.invalid/; curl -s -m 60 http://forbidden.invalid/; true")
    tab.shown("[aria-label='Reached and refused'] li:has-text('nowhere.invalid') .badge:text-is('not reached')")
    tab.shown("[aria-label='Reached and refused'] li:has-text('forbidden.invalid') .badge:text-is('refused')")
