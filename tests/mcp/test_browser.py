"""The tool browser: a real Chromium in a machine, pages that fight it, and a Chromium that lies."""
import base64
import shlex
import time

import pytest

from mcp_client import ToolFailed
from screens import decoded, needs_chromium

SHOP = """<title>Shop</title><body style="background:#123456"><h1>Fruit</h1><p>Ripe <b>pears</b></p>
<a href=/two target=_blank>Two</a> <button onclick="this.after(' bought')">Buy</button> <button onclick="window.open('/two?popup')">Pop</button>
<form action=/two><label>Name <input name=n value=old></label><select name=c aria-label=Colour><option>red<option>green</select>
<input type=checkbox name=ok aria-label=Agree><input type=password aria-label=Key value=hidden-key><textarea aria-label=Notes></textarea><input type=submit value=Send></form>
<a href=#a>Same</a><a href=#b>Same</a><div onclick="alert('hey')">Warn</div><div style="display:none">unseen</div><img alt="a cat">
<button disabled>Off</button><iframe srcdoc="<button onclick=&quot;parent.document.title='inner'&quot;>Inner</button>"></iframe>
<div style="height:3000px"></div><button onclick="document.title='deep'">Deep</button>
<div style="position:relative"><button>Under</button><div style="position:absolute;inset:0">Cover</div></div>"""

# Pages that a browser must survive, and what the result must say: a text, or a function of the result.
HOSTILE = {
    "title": ("<script>document.title = 'x'.repeat(1e7)</script>short", lambda r: len(r["title"]) == 300 and r["text"] == "short"),
    "huge": ("<script>for (let i = 0; i < 30000; i++) document.body.append(Object.assign(document.createElement('button'), {textContent: 'b' + i}))</script>",
             lambda r: not r["whole"] and r["left_out"] > 0 and len(r["text"]) <= 1000 and "[button: b7]" in r["text"]),
    "deep": ("<script>let e = document.body; for (let i = 0; i < 5000; i++) e = e.appendChild(document.createElement('b')); e.append('end')</script>top", "top"),
    "names": ("<form name=title><input name=children><input name=attributes aria-label=In></form><img name=documentElement><img name=getElementById><p>seen</p>"
              "<script>Node.prototype.appendChild = Element.prototype.getAttribute = () => { throw 1 }; Array.prototype.map = null; window.performance = null</script>", "[textbox: In]"),
    "files": ("stays<script>location = 'file:///etc/passwd'; setTimeout(() => location = 'chrome://settings', 50); fetch('file:///etc/passwd').then(r => r.text()).then(t => document.body.append(t))</script>",
              lambda r: r["url"].startswith("http://127.0.0.1") and "root:" not in r["text"]),
    "popups": ("one<script>for (let i = 0; i < 50; i++) window.open('/two?' + i)</script>", lambda r: r["url"].endswith("popups.html") and r["text"] == "one"),
    "dialogs": ("<script>for (let i = 0; i < 5; i++) alert('n' + i + 'x'.repeat(100000)); document.write(confirm('sure?'))</script>",
                lambda r: r["text"] == "false" and r["dialogs"].startswith("n0xx") and "sure?" in r["dialogs"] and len(r["dialogs"]) < 2000),
    "frames": ("all<script>for (let i = 0; i < 60; i++) document.body.append(document.createElement('iframe'))</script>", "all"),
    "words": ("<p>caf\u00e9</p><script>document.title = 'a\\0b'; document.body.append('\\ud800\\u202e' + String.fromCharCode(0, 27) + '\\u{e0041}end'); alert('c\\0d')</script>",
              lambda r: r["text"] == "caf\u00e9\n\ufffdend" and r["title"] == "a b" and r["dialogs"] == "c\n"),
}


def site(client, **pages):
    """Serves pages on a port of the client's machine: /NAME.html, and /two, whose answer /slow gives late."""
    for name, text in {"index": SHOP, **pages}.items():
        client.call("write", path=f"/tmp/site/{name}.html", content=text)
    client.call("write", path="/tmp/site/server.py", content="""
import http.server, time
class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        if self.path.startswith("/slow"):
            time.sleep(60)
        if self.path.startswith("/two"):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<title>Two</title>second " + self.path.encode())
        else:
            super().do_GET()
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever()""")
    client.call("exec", cmd="cd /tmp/site && python3 server.py", yield_ms=0)
    client.call("exec", cmd="for i in $(seq 200); do curl -so /dev/null http://127.0.0.1:8000/ && break; sleep 0.1; done", yield_ms=30000)


@pytest.fixture
def lines(open_client):
    return open_client("lines")


def use(client, action, seconds=150, **more):
    return client.call("browser", seconds=seconds, action=action, **more)


@needs_chromium
def test_a_client_reads_clicks_fills_and_looks(lines):
    site(lines)
    ports = lambda: lines.call("exec", cmd="awk '$4 == \"0A\" {print $2}' /proc/net/tcp /proc/net/tcp6 | sort", user="root")["stdout"]
    before = ports()
    page = use(lines, "open", url="127.0.0.1:8000")
    assert (page["title"], page["url"], page["fresh"], page["loading"], page["whole"]) == ("Shop", "http://127.0.0.1:8000/", True, False, True)
    for shown in ("# Fruit\nRipe pears\n[link: Two] [button: Buy] [button: Pop]\n", 'Name [textbox: Name = "old"]', '[combobox: Colour = "red" of red, green]',
                  "[checkbox: Agree off]", "[textbox: Key = (hidden)]", "[textbox: Notes]", "[button: Send]", "a cat", "[button: Off disabled]", "[button: Inner]"):
        assert shown in page["text"], (shown, page["text"])
    assert "unseen" not in page["text"] and "hidden-key" not in page["text"]
    assert "[button: Buy] bought" in use(lines, "click", name="Buy")["text"]
    assert use(lines, "click", name="warn")["dialogs"] == "hey\n"
    assert use(lines, "click", name="[button: Inner]")["title"] == "inner"
    assert use(lines, "click", name="Deep")["title"] == "deep"
    assert use(lines, "click", name="Same", nth=2)["url"].endswith("#b")
    for name, why in [("Same", "2 elements are named so: [link: Same] [link: Same]; choose with nth"), ("Nothing", "no element is named 'nothing'; the page has [link: Two]"),
                      ("Under", "is covered by [div: Cover]"), ("button: Two", "no element is named 'two'")]:
        with pytest.raises(ToolFailed) as refused:
            use(lines, "click", name=name)
        assert why in str(refused.value)
    image = lines.result("browser", action="screenshot")["content"][1]
    width, height, at = decoded(base64.b64decode(image["data"]))
    assert image["mimeType"] == "image/png" and width > 1000 and at(width - 30, 5) == (0x12, 0x34, 0x56)
    use(lines, "fill", name="Name", text="Ann <b>\u00e9</b>")
    use(lines, "fill", name="Colour", text="green")
    use(lines, "click", name="Agree")
    filled = use(lines, "fill", name="Notes", text="one\ntwo")["text"]
    assert 'Name = "Ann <b>\u00e9</b>"]' in filled and '"green"' in filled and "Agree on" in filled and r'Notes = "one\ntwo"]' in filled
    for name, why in [("Agree", "cannot be filled: click it"), ("Colour", "has no option 'blue'")]:
        with pytest.raises(ToolFailed, match=why):
            use(lines, "fill", name=name, text="blue")
    sent = use(lines, "fill", name="Name", text="Bob", enter=True)
    assert (sent["title"], sent["fresh"]) == ("Two", False) and "n=Bob&c=green&ok=on" in sent["text"]
    use(lines, "open", url="http://127.0.0.1:8000/")
    assert use(lines, "click", name="Two")["url"] == "http://127.0.0.1:8000/two"
    use(lines, "open", url="http://127.0.0.1:8000/")
    assert use(lines, "click", name="Pop")["url"] == "http://127.0.0.1:8000/two?popup"
    for url, why in [("chrome://version", "must start with http://"), ("view-source:http://127.0.0.1:8000/", "must start with"), ("javascript:alert(1)", "invalid URL"),
                     ("http://127.0.0.1:8001/", "ERR_CONNECTION_REFUSED")]:
        with pytest.raises(ToolFailed) as refused:
            use(lines, "open", url=url)
        assert why in str(refused.value)
    assert use(lines, "read", max_output=200)["fresh"] is False
    assert ports() == before and ":1F40" in before, "the browser listens on no port"
    closed = lines.result("browser", action="close")
    assert closed["content"][0]["text"] == "[the browser has ended]\n"
    assert use(lines, "open", url="http://127.0.0.1:8000/two")["fresh"] is True


@needs_chromium
def test_hostile_pages_harm_only_themselves(lines):
    endless = {"alerts": "<script>for (;;) alert('again')</script>", "stuck": "<script>for (;;);</script>"}
    site(lines, **{name: "<!doctype html><meta charset=utf-8><body>" + text for name, (text, _) in HOSTILE.items()}, **endless)
    stuck = lines.call("fork", count=1)["machines"][0]["machine"]
    lines.call("exec", machine=stuck, cmd="cd /tmp/site && python3 server.py", yield_ms=500)
    hangs = lines.begin("tools/call", {"name": "browser", "arguments": {"machine": stuck, "action": "open", "url": "http://127.0.0.1:8000/stuck.html"}})
    for name, (_, wanted) in HOSTILE.items():
        page = use(lines, "open", url=f"http://127.0.0.1:8000/{name}.html", max_output=1000)
        assert wanted(page) if callable(wanted) else wanted in page["text"], (name, ascii(page)[:1000])
    with pytest.raises(ToolFailed, match="opened dialogs without end"):
        use(lines, "open", url="http://127.0.0.1:8000/alerts.html")
    assert use(lines, "open", url="http://127.0.0.1:8000/two")["fresh"] is True
    slow = lines.begin("tools/call", {"name": "browser", "arguments": {"action": "open", "url": "http://127.0.0.1:8000/slow"}})
    time.sleep(1)  # it has begun
    with pytest.raises(ToolFailed, match="used by another call"):
        use(lines, "read")
    lines.call("exec", cmd="pkill -9 -f type=renderer; pkill -9 -o chromium", user="root")
    killed = lines.wait(slow)
    assert killed["isError"] and "the browser of machine" in killed["content"][0]["text"]
    assert use(lines, "open", url="http://127.0.0.1:8000/two")["fresh"] is True
    said = lines.wait(hangs, seconds=200)
    assert said["isError"] and "did not answer within 30 seconds" in said["content"][0]["text"]
    assert use(lines, "open", machine=stuck, url="http://127.0.0.1:8000/two")["text"] == "second /two"


# A Chromium that answers by a table; `more` changes it. It reads requests from 3 and writes to 4, as the real one.
LIAR = """#!/usr/bin/python3
import json, os, sys
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TAB = dict(type="page", targetId="AB12")
page = dict(text="honest", left=0, whole=True, url="http://x/", title="t")
answers = {"Target.getTargets": dict(targetInfos=[TAB]), "Target.attachToTarget": dict(sessionId="CD34"), "Page.createIsolatedWorld": dict(executionContextId=7),
           "Runtime.evaluate": dict(result=dict(value=page)), "Page.captureScreenshot": dict(data=PNG), "Page.navigate": dict(frameId="AB12")}
def send(message): raw(json.dumps(message).encode())
def raw(data):
    data += b"\\0"
    while data: data = data[os.write(4, data):]
def answer(id, method, message): send(dict(id=id, result=answers.get(method, {}), **({"sessionId": message["sessionId"]} if "sessionId" in message else {})))
MORE
buffer = b""
while part := os.read(3, 65536):
    *requests, buffer = (buffer + part).split(b"\\0")
    for text in filter(None, requests):
        message = json.loads(text)
        open("/tmp/asked", "ab").write(text + b"\\n")
        answer(message["id"], message["method"], message)
"""
LIES = {
    "": "honest",
    "answers['Target.getTargets']['targetInfos'][0]['targetId'] = '../../x\"'; answers['Target.createTarget'] = dict(targetId='a' * 100000)": "its answer is malformed",
    "answers['Target.getTargets'] = dict(targetInfos=[TAB, *[dict(TAB, targetId='%x' % i, openerId='AB12') for i in range(4000)]])": "honest",
    "answers['Target.getTargets'] = 7": "its answer is malformed",
    "answers['Target.attachToTarget'] = dict(sessionId='CD34 ')": "its answer is malformed",
    "answers['Target.attachToTarget'] = dict(sessionId=['CD34'])": "its answer is malformed",
    "answers['Page.createIsolatedWorld'] = dict(executionContextId='7')": "cannot be read",
    "answers['Runtime.evaluate'] = dict(result=dict(value='text'))": "cannot be read",
    "answers['Runtime.evaluate'] = dict(result=dict(value=dict(error='e' * 1000000)))": "eeee",
    "answers['Runtime.evaluate'] = dict(result=dict(value=dict(page, text=7, left=-5, whole='yes', url=None)))": "",
    "page.update(text='honest' + 'y' * 5000000, title='t' * 1000000, url='u' * 1000000)": "honest",
    "answers['Runtime.evaluate'] = dict(result=dict(value=dict(page, text='y' * 9000000)))": "it sent a line that is too long",
    "page.update({str(i): i for i in range(30000)})": "too many values",
    "raw(b'[' * 15000)\nsend(dict(method=['x'], params=5))\nsend([1])\nsend(dict(id=2**70))\nraw(b'\\xff\\xfe{}')": "honest",
    "was = answer\ndef answer(id, method, message):\n    for forged in (id - 1, id + 1, str(id), -id, id + 0.5): send(dict(id=forged, result=dict(targetInfos=[], sessionId='EE', result=dict(value=dict(page, text='forged')))))\n"
    "    send(dict(id=id, sessionId='OTHER', result=dict(result=dict(value=dict(page, text='forged')))))\n    was(id, method, message)": "honest",
    "was = answer\ndef answer(id, method, message):\n    if method == 'Runtime.evaluate':\n        while True: send(dict(method='Page.frameStartedLoading', params=dict(frameId='z' * 100000)))\n    was(id, method, message)": "too many messages",
    "was = answer\ndef answer(id, method, message):\n    if method == 'Page.enable':\n        for i in range(50): send(dict(method='Page.javascriptDialogOpening', sessionId='CD34', params=dict(message='m', type=5)))\n    was(id, method, message)":
        "dialogs without end",
    "was = answer\ndef answer(id, method, message): sys.exit('no more') if method == 'Page.enable' else was(id, method, message)": "no more",
}


def fake(client, more):
    client.call("write", path="/usr/local/bin/chromium", content=LIAR.replace("MORE", more), mode="755", user="root")
    client.call("exec", cmd="rm -f /tmp/asked")


def test_a_browser_that_lies_is_not_believed(lines):
    for more, wanted in LIES.items():
        fake(lines, more)
        result = lines.result("browser", action="read", max_output=1000)
        text = result["content"][0]["text"]
        assert wanted in text and "forged" not in text and len(text) < 20000, (more, text[:2000])
        assert bool(result.get("isError")) == (wanted not in ("honest", "")), (more, text[:2000])
        use(lines, "close")
    for lie, action, wanted in [("answers['Page.captureScreenshot'] = dict(data='bm8=')", "screenshot", "the browser sent none"),
                                ("answers['Page.captureScreenshot'] = dict(data=PNG[:40] + 'A' * 6000000)", "screenshot", "larger one than 4 MiB"),
                                ("page.update(x=1e300, y=5)", "click", "outside of the window"), ("page.update(x=-1, y='5')", "click", "outside of the window"),
                                ("answers['Page.navigate'] = dict(errorText='n' * 100000)", "open", "cannot open 'http://a'")]:
        fake(lines, lie)
        with pytest.raises(ToolFailed) as refused:
            use(lines, action, name="a", url="http://a")
        assert wanted in str(refused.value) and len(str(refused.value)) < 3000
        use(lines, "close")
    fake(lines, "")
    assert lines.result("browser", action="screenshot")["content"][1]["mimeType"] == "image/png"
    until = "for i in $(seq 200); do tail -n 1 /tmp/asked | grep -q detachFromTarget && break; sleep 0.1; done"
    assert lines.call("exec", cmd=f"{until}; tail -n 1 /tmp/asked", yield_ms=30000)["stdout"].count('"Target.detachFromTarget"') == 1, "no events come between calls"



def test_a_tainted_machine_and_one_without_chromium(lines, daemon):
    own = lines.call("exec", cmd="true")["machine"]
    seen = lines.call("machine_create")["machine"]
    daemon.post(f"/v1/machines/{own}/grants", {"kind": "env", "what": "WORD", "value": "of a stranger", "untrusted": True})
    fake(lines, "")
    assert use(lines, "read")["text"] == "honest"
    lines.call("exec", machine=seen, cmd="true")
    assert daemon.get(f"/v1/machines/{seen}/net")["tainted"] == "WORD"
    paths = " ".join(shlex.quote(f"{folder}/{name}") for folder in ("/usr/bin", "/usr/local/bin") for name in ("chromium", "chromium-browser", "google-chrome"))
    lines.call("exec", machine=seen, cmd=f"rm -f {paths}", user="root")
    with pytest.raises(ToolFailed, match="does not have Chromium\ninstall the Debian package chromium"):
        use(lines, "read", machine=seen)
    with pytest.raises(ToolFailed, match="the action fill needs the argument 'text'"):
        use(lines, "fill", name="x")
