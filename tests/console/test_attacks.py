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
    tab.shown(".pending.ended [aria-label='Your answer']")
    tab.type("aA")
    for key in ("Tab", "Enter", "Tab", "Enter", "Tab", "a"):  # the buttons of the question that has ended
        tab.key(key)
    assert waits(daemon, request)


def test_tab_and_enter_after_a_desktop_that_ends_press_no_button(tab, daemon):
    """The rest of what was typed must not reach the buttons of the page either."""
    box = net_box(daemon)
    request = asks(daemon, box, "a.invalid")
    tab.evaluate("location.hash = '#/approvals'")
    tab.shown(".pending button:text('Approve once')")
    tab.evaluate("const x = document.createElement('input'); x.id = 'lost'; document.querySelector('h1').after(x); x.focus()")
    tab.key("x")
    tab.evaluate("document.querySelector('#lost').remove()")
    for key in ("Tab", "a", "A", "Enter"):
        tab.key(key)
    tab.evaluate("[...document.querySelectorAll('button')].find((b) => b.textContent === 'Approve once').focus()")
    for key in ("Enter", "Space"):
        tab.key(key)
    tab.reads("The keys of this page wait")
    assert waits(daemon, request)
    tab.evaluate("document.querySelector('.keys-off button').focus()")
    tab.key("b")
    tab.key("Enter")  # in the middle of a word
    tab.shown(".keys-off")
    tab.shown(".pending.current:not(.fresh)")
    daemon.until(lambda: tab.key("Shift") or tab.waitForTimeout(1100) or tab.key("Enter") or not tab.count(".keys-off"))
    tab.key("a")
    daemon.until(lambda: not waits(daemon, request))  # the control: these are the keys


def place(tab, host):
    """Where the page has the button that approves a request."""
    return tab.evaluate(f"""(() => {{
        const row = [...document.querySelectorAll('.pending')].find((p) => p.textContent.includes('{host}'));
        const {{ x, y, width, height }} = row.querySelector('button.primary').getBoundingClientRect();
        return [x + width / 2, y + height / 2];
    }})()""")


# A click in the instant in which the list has closed its gap.
CLICK = """new MutationObserver((_, self) => {
    if (document.querySelector('.ended')) return;
    self.disconnect();
    setTimeout(() => document.elementFromPoint(%f, %f).dispatchEvent(new MouseEvent('click', { bubbles: true, detail: 1 })), 20);
}).observe(document.querySelector('main'), { childList: true, subtree: true })"""


def test_a_click_never_decides_about_a_request_that_moved_under_the_pointer(tab, daemon):
    boxes = {host: net_box(daemon) for host in ("a.invalid", "b.invalid")}
    first, second = (asks(daemon, box, host) for host, box in boxes.items())
    tab.evaluate("location.hash = '#/approvals'")
    tab.shown(".pending:not([aria-busy=true]):has-text('b.invalid')")
    pressed, other = place(tab, "a.invalid"), place(tab, "b.invalid")
    tab.press(*pressed)
    tab.shown(".pending.ended:has-text('a.invalid') .badge:text('approved')")
    assert not waits(daemon, first) and place(tab, "b.invalid") == other
    tab.press(*pressed)  # the second click of a double click
    tab.evaluate(CLICK % tuple(pressed))
    tab.point(5, 5)
    tab.reads("Nothing was decided: the list moved")
    assert place(tab, "b.invalid") == pressed and waits(daemon, second)
    tab.shown(".pending:not([aria-busy=true]):has-text('b.invalid')")
    tab.press(*pressed)  # the control: it is the button
    tab.shown(".pending.ended:has-text('b.invalid')")
    assert not waits(daemon, second)


def test_a_request_that_others_decide_keeps_its_place_while_the_pointer_is_there(tab, daemon):
    boxes = {host: net_box(daemon) for host in ("a.invalid", "b.invalid")}
    first, _ = (asks(daemon, box, host) for host, box in boxes.items())
    tab.evaluate("location.hash = '#/approvals'")
    tab.hover(".pending:has-text('b.invalid') button:text('Approve once')")
    before = place(tab, "b.invalid")
    daemon.post(f"/v1/pending/{first}", {"decision": "deny"})
    tab.shown(".pending.ended:has-text('a.invalid') .badge:text('refused')")
    assert place(tab, "b.invalid") == before
    tab.point(5, 5)
    tab.gone(".pending.ended")


def test_a_question_that_is_answered_elsewhere_says_so(tab, daemon, box):
    daemon.background(box, ["carrel", "ask", "What is it called?"])
    daemon.background(daemon.machine(), ["carrel", "ask", "May it go?"])
    tab.evaluate("location.hash = '#/approvals'")
    tab.until("document.querySelectorAll('.pending').length === 2")
    tab.hover(".pending:has-text('called')")
    for item in daemon.get("/v1/pending")["pending"]:
        how = {"decision": "answer", "text": "Tom"} if "called" in item["question"] else {"decision": "deny"}
        daemon.post(f"/v1/pending/{item['id']}", how)
    tab.shown(".pending:has-text('called'):has-text('answered')")
    tab.shown(".pending:has-text('May it go'):has-text('refused')")


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
    tab.gone(".pending:not(.ended)")  # the control


HELD = "document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'a', repeat: true, bubbles: true }))"
# The second press of a key, when the page has just marked the next request.
TWICE = """new MutationObserver((_, self) => {
    if (!document.querySelector('.pending.current.fresh')?.textContent.includes('b.invalid')) return;
    self.disconnect();
    setTimeout(() => document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'a', bubbles: true })), 100);
}).observe(document.querySelector('main'), { childList: true, subtree: true, attributes: true })"""


def test_a_key_that_is_held_or_pressed_twice_decides_about_one_request(tab, daemon):
    boxes = {host: net_box(daemon) for host in ("a.invalid", "b.invalid")}
    first, second = (asks(daemon, box, host) for host, box in boxes.items())
    tab.evaluate("location.hash = '#/approvals'")
    tab.shown(".pending.current:not(.fresh):has-text('a.invalid')")
    tab.shown(".pending:has-text('b.invalid')")
    tab.evaluate(TWICE)
    tab.key("a")
    tab.reads("Nothing was decided: another request was marked")
    tab.shown(".pending.current:not(.fresh):has-text('b.invalid')")
    for _ in range(3):
        tab.evaluate(HELD)
    tab.waitForTimeout(300)  # long enough for a decision to reach the daemon
    assert (waits(daemon, first), waits(daemon, second)) == (False, True)
    tab.key("a")
    daemon.until(lambda: not waits(daemon, second))  # the control


def test_the_request_that_a_key_decides_about_is_in_view(tab, daemon):
    hosts = [f"{c}.invalid" for c in "abcdefgh"]
    box = net_box(daemon)
    for host in hosts:
        asks(daemon, box, host)
    tab.evaluate("location.hash = '#/approvals'")
    tab.until("document.querySelectorAll('.pending').length === 8")
    for _ in hosts:
        tab.key("j")
    tab.shown(".pending.current:has-text('h.invalid')")
    tab.until("document.querySelector('.current').getBoundingClientRect().bottom <= innerHeight + 1")


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
