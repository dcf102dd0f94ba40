"""What a machine could do to the user of its pages: keys that land elsewhere, content without an end, names in disguise."""
import json

from browser import need_browser
from console import show
from screens import SOCKET, server
from test_desktop_watch import Viewer

need_browser()

CANVAS = ".desktop canvas"
HASH = "location.hash"


def asks(daemon, machine, host):
    """A request of a machine that waits for its owner. Returns its id."""
    daemon.background(machine, ["curl", "-s", "-m", "600", f"http://{host}/"])
    found = lambda: [p["id"] for p in daemon.get("/v1/pending")["pending"] if p.get("host") == host]
    return daemon.until(lambda: found() and found()[0])


def waits(daemon, name):
    """Whether a request still waits: nobody decided."""
    return [p.get("approved", False) for p in daemon.get("/v1/pending")["pending"] if p["id"] == name] == [False]


def net_box(daemon):
    return daemon.machine(net=[{"action": "ask", "target": "http://*.invalid:80"}])


def plays(daemon, box, script):
    daemon.background(box, server(script), name="desktop")
    daemon.until(lambda: daemon.exec(box, f"test -S {SOCKET} && echo yes")["stdout"])


def test_what_is_typed_into_a_desktop_that_ends_is_no_shortcut(tab, daemon):
    """The screen asks to type "gaA": `g a` opens the approvals, `A` would approve the machine's request for ever."""
    box = net_box(daemon)
    request = asks(daemon, box, "a.invalid")
    plays(daemon, box, """
greet(c)
while True:
    kind = c.recv(1)
    if kind == b'\\4':
        os._exit(0)
    c.recv({b'\\0': 19, b'\\3': 9, b'\\5': 5}.get(kind, 1000))
""")
    show(tab, box, "desktop")
    tab.shown(CANVAS)
    tab.reads("The clipboard is not shared.")
    tab.evaluate(f"document.querySelector('{CANVAS}').focus()")
    before = tab.evaluate(HASH)
    tab.key("x")
    tab.gone(CANVAS)
    for key in "gaA":
        tab.key(key)
    assert (tab.evaluate(HASH), waits(daemon, request)) == (before, True)
    tab.reads("The keys of this page wait")
    tab.click("h1")
    tab.key("g")
    tab.key("a")
    tab.until("location.hash === '#/approvals'")  # the control: these are the keys
    assert waits(daemon, request)


def test_an_answer_to_a_question_that_is_withdrawn_is_no_shortcut(tab, daemon):
    box = net_box(daemon)
    request = asks(daemon, box, "a.invalid")
    asked = daemon.background(box, ["carrel", "ask", "What is it called?"])
    tab.evaluate("location.hash = '#/approvals'")
    tab.click("[aria-label='Your answer']")
    tab.type("the n")
    daemon.request("DELETE", f"/v1/machines/{box}/execs/{asked}")
    tab.gone("[aria-label='Your answer']")
    tab.type("ame and")
    tab.reads("The keys of this page wait")
    assert waits(daemon, request)


def test_a_key_never_decides_about_a_request_that_moved_into_place(tab, daemon):
    boxes = {host: net_box(daemon) for host in ("a.invalid", "b.invalid")}
    requests = {host: asks(daemon, box, host) for host, box in boxes.items()}
    tab.evaluate("location.hash = '#/approvals'")
    tab.until("document.querySelectorAll('.pending').length === 2")
    tab.shown(".pending.current:has-text('a.invalid')")  # the oldest one
    meant, other = boxes
    daemon.request("DELETE", f"/v1/machines/{boxes[meant]}")
    tab.gone(f".pending:has-text('{meant}')")
    for key in "aAd":
        tab.key(key)
    assert waits(daemon, requests[other])
    tab.key("j")
    tab.shown(f".pending.current:has-text('{other}')")
    tab.key("d")
    tab.gone(".pending")  # the control


def test_a_link_to_an_endless_file_is_not_read(tab, daemon, box):
    """The size of a link is that of its name."""
    daemon.exec(box, "truncate -s 1T endless; ln -s endless small.txt; echo hello >here.txt")
    tab.evaluate("window.read = 0; const fetch = window.fetch; window.fetch = (url, o) =>"
                 " { window.read += /files[?]path=.*small/.test(url); return fetch(url, o); }")
    show(tab, box, "files")
    tab.click("text=here.txt")
    tab.shown("textarea")
    tab.click("text=small.txt")
    tab.reads("This file is too large to show.")
    assert tab.evaluate("window.read") == 0


def test_a_page_that_leaves_a_silent_desktop_is_no_viewer_of_it(tab, daemon, box):
    plays(daemon, box, "time.sleep(600)")

    def count(kind):
        lines = daemon.request("GET", "/v1/audit?verb=desktop.watch", raw=True).splitlines()
        return sum(json.loads(line)["kind"] == kind for line in lines)

    for i in range(9):
        show(tab, box, "desktop")
        daemon.until(lambda: count("intent") > i)
        show(tab, box, "timeline")
    daemon.until(lambda: count("result") == count("intent"))
    viewers = [Viewer(daemon, box) for _ in range(8)]
    for viewer in viewers:
        viewer.cut()


def test_the_words_of_a_command_cannot_disguise_themselves(tab, daemon, box):
    daemon.exec(box, ["true", "a\u202eb\nc"])
    for part in ("commands", "timeline"):
        show(tab, box, part)
        tab.until("[...document.querySelectorAll('pre')].some((p) => p.textContent.includes('a\\\\u202eb\\nc'))")


SITE = """
import http.server
PAGE = b'<!doctype html><textarea id=t rows=9 cols=40></textarea><script>t.oninput = () => { t.remove(); parent.focus(); }</script>'
class Web(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Web).serve_forever()
"""


def test_what_is_typed_into_a_preview_that_gives_the_keyboard_back_is_no_shortcut(tab, daemon):
    """The page in the frame may focus the page around it."""
    box = net_box(daemon)
    request = asks(daemon, box, "a.invalid")
    daemon.background(box, ["python3", "-c", SITE])
    daemon.until(lambda: daemon.exec(box, "curl -s -o /dev/null http://127.0.0.1:8000/")["exec"]["status"] == 0)
    show(tab, box, "grants")
    tab.click("text=Expose a port")
    tab.fill("dialog input", "8000")
    tab.click("dialog button:text('Expose')")
    tab.click("[aria-label=Ports] button:text('Preview')")
    tab.shown("iframe.preview")
    assert tab.framed(f"http://8000-{box}.localhost", "document.readyState === 'complete'")
    before = tab.evaluate(HASH)
    tab.click("iframe.preview", {"position": {"x": 60, "y": 60}})
    tab.type("x")
    assert tab.framed(f"http://8000-{box}.localhost", "document.querySelector('textarea') === null")
    tab.type("gaA")
    assert (tab.evaluate(HASH), waits(daemon, request)) == (before, True)
