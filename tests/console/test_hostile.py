"""Texts that machines and models control are shown as text, on every page that shows them."""
import io
import json
import pathlib
import sys
import tarfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "image"))

from browser import need_browser
from hostile import STRINGS, as_name
from trees import small_tree
from worker import carrel, console_command

need_browser()

ALL = "\n".join(STRINGS)


@pytest.fixture
def home(tmp_path):
    return tmp_path


@pytest.fixture
def page(daemon, browser, home):
    with console_command(daemon, home) as link:
        tab = browser.open(link)
        tab.shown("nav")
        tab.evaluate("window.pwn = () => { window.pwned = true; }")
        yield tab
        assert tab.evaluate("window.pwned") is None
        assert tab.evaluate("location.hash").startswith("#/")
        tab.done()


def visit(page, *parts, query=""):
    page.evaluate(f"location.hash = {json.dumps('#/' + '/'.join(parts) + query)}")


def has_all(page, texts):
    """Each text is on the page as it is, and so is not HTML."""
    shown = page.evaluate("document.querySelector('main').textContent")
    missing = [t for t in texts if t not in shown]
    assert missing == []


def visible(text):
    """As ui/format.ts shows a text on one line."""
    hidden = [*range(0x20), *range(0x7f, 0xa0), 0xad, 0x61c, 0x180e, *range(0x200b, 0x2010), *range(0x2028, 0x202f), *range(0x2060, 0x206a), 0xfeff]
    tags = {c: f"\\u{{{c:x}}}" for c in range(0xe0000, 0xe0080)}
    return text.translate({**{c: f"\\u{c:04x}" for c in hidden}, **tags})


def test_names_and_contents_of_files(page, daemon, home):
    project = home / "project"
    project.mkdir()
    machine = carrel(daemon, home, "new", "--name", "work", "--dir", f"{project}:/home/user/project")
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as t:
        for text in STRINGS:
            content = f"{text}\n{ALL}\n".encode()
            entry = tarfile.TarInfo(as_name(text))
            entry.size = len(content)
            t.addfile(entry, io.BytesIO(content))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, STRINGS[2]
        t.addfile(link)
    daemon.request("PUT", f"/v1/machines/{machine}/files/tar?path=/home/user/project", tar.getvalue())
    visit(page, "review", machine)
    page.until(f"document.querySelectorAll('.file').length >= {len(STRINGS)}")
    has_all(page, [visible(as_name(text)) for text in STRINGS])
    page.evaluate("document.querySelectorAll('.fold[aria-expanded=false]').forEach((b) => b.click())")
    page.until("document.querySelectorAll('.file .diff').length > 20")
    has_all(page, [visible(line) for line in STRINGS if "\t" not in line])
    visit(page, "machines", machine, query="?tab=files")
    page.shown("main")
    visit(page, "machines", machine)
    page.shown("main")


def test_a_model_and_its_tools(page, daemon):
    plan = {"tool": "plan", "arguments": {"items": [{"text": t, "status": "doing"} for t in STRINGS[:100]]}}
    command = {"tool": "exec", "arguments": {"cmd": "cat <<'END'\n" + ALL + "\nEND", "cwd": "/home/user"}}
    finish = {"tool": "finish", "arguments": {
        "status": "partial", "summary": ALL, "evidence": STRINGS[:40], "open_issues": STRINGS[40:80], "outputs": STRINGS[80:180]}}
    turns = [{"turn": 0, "say": ALL, "calls": [plan, command]}, {"calls": [finish]}]
    run = daemon.post("/v1/runs", {"task": ALL, "model": "rehearsal/" + as_name(STRINGS[2]), "script": json.dumps({"turns": turns})})
    visit(page, "runs", run["id"])
    page.shown(".report")
    page.evaluate("document.querySelectorAll('main details').forEach((d) => { d.open = true; })")
    has_all(page, [visible(text) for text in STRINGS if "\t" not in text])
    assert page.evaluate("/[\\u202a-\\u202e\\u2066-\\u2069\\u001b]/.test(document.querySelector('main').textContent)") is False
    visit(page, "runs")
    page.shown(".row.opens")


def test_questions_commands_and_the_journal(page, daemon):
    for i in range(0, len(STRINGS), 30):  # a machine asks one question at a time, of at most 2,000 bytes
        asker = daemon.machine()
        question = "\n".join(STRINGS[i:i + 30])
        daemon.post(f"/v1/machines/{asker}/execs", {"argv": ["carrel", "ask", question], "background": True})
    machine = daemon.machine(net=[{"action": "ask", "target": "http://a.invalid:80"}])
    request = ["curl", "-s", "-A", STRINGS[2], "http://a.invalid/%3Cimg%20src=x%20onerror=pwn()%3E"]
    daemon.post(f"/v1/machines/{machine}/execs", {"argv": request, "background": True})
    for text in STRINGS[::8]:
        daemon.exec(machine, ["true", text])
    daemon.exec(machine, ["echo", ALL])
    visit(page, "approvals")
    page.until("document.querySelectorAll('.pending').length >= 10")
    has_all(page, [visible(text) for text in STRINGS])
    visit(page, "audit")
    page.shown(".row.opens")
    page.fill("#search", "onerror")
    page.click(".row.opens >> nth=0")
    page.shown("dialog pre")
    page.key("Escape")
    for tab in ("timeline", "commands", "files", "network"):
        visit(page, "machines", machine, query=f"?tab={tab}")
        page.shown("main h1")


def test_the_question_of_a_run_and_its_options(page, daemon):
    for at in range(0, 60, 20):  # a question of at most 4,000 bytes, with at most 20 options
        options = STRINGS[at:at + 20] if at < 40 else STRINGS[-20:]
        asked = {"tool": "ask", "arguments": {"question": "\n".join(options), "options": options}}
        run = daemon.post("/v1/runs", {"task": "t", "model": "rehearsal/r", "script": json.dumps({"turns": [{"calls": [asked]}]})})
        visit(page, "runs", run["id"])
        page.until("document.querySelectorAll('.question .bar button').length === 20")
        has_all(page, [visible(text) for text in options])


def test_grants_reviews_and_hosts(page, daemon, home):
    named = {}
    for text in (STRINGS[2], STRINGS[30], "in\u00advisible \u202e<img src=x onerror=pwn()>"):
        place = home / as_name(text)
        place.mkdir()
        machine = carrel(daemon, home, "new", "--dir", f"{place}:/p/{as_name(text)}")
        named[machine] = [visible(str(place)), visible(f"/p/{as_name(text)}")]
        daemon.exec(machine, "echo x >x")
        daemon.post(f"/v1/machines/{machine}/changesets", {"path": f"/p/{as_name(text)}", "changes_only": True})
    for machine, texts in named.items():
        visit(page, "machines", machine, query="?tab=grants")
        page.shown("[aria-label=Grants] li")
        page.until(f"document.querySelector('main').textContent.includes({json.dumps(texts[1])})")
        has_all(page, texts)
    visit(page, "review")
    page.until("document.querySelectorAll('.row.opens').length >= 3")
    has_all(page, [text for texts in named.values() for text in texts])
    machine = daemon.machine(net=[{"action": "allow", "target": "http://a.invalid:80"}])
    for text in STRINGS[:40]:
        daemon.exec(machine, ["curl", "-s", "-m", "5", "-H", f"Host: {text}", f"http://b.invalid/{as_name(text)}"])
    visit(page, "machines", machine, query="?tab=network")
    page.shown("[aria-label='Reached and refused'] li")


def test_the_log_of_a_build(page, daemon, home):
    daemon.request("POST", "/v1/images", small_tree(home).read_bytes(), name="small")
    says = {"what": STRINGS[2], "make": True, "command": "cat <<'END'\n" + ALL + "\nEND\nexit 1", "user": "root", "cwd": "/"}
    build = daemon.post("/v1/images/builds", {"base": "small", "name": "x", "steps": [says]})["id"]
    daemon.until(lambda: "ended" in daemon.get(f"/v1/images/builds/{build}"))
    visit(page, "images")
    page.click("[aria-label=Builds] .row.opens")
    page.until(f"document.querySelector('dialog pre').textContent.includes({json.dumps(STRINGS[2])})")
    shown = page.evaluate("document.querySelector('dialog pre').textContent")
    assert [text for text in STRINGS if visible(text) not in shown and "\t" not in text] == []
    assert [c for c in shown if visible(c) != c and c not in "\n\t"] == [], "no character of a log hides or turns others around"
