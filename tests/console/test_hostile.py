"""Texts that machines and models control are shown as text, on every page that shows them."""
import io
import json
import tarfile

import pytest

from browser import need_browser
from hostile import STRINGS, as_name
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
    hidden = [*range(0x20), *range(0x7f, 0xa0), 0x61c, *range(0x200b, 0x2010), *range(0x2028, 0x202f), *range(0x2060, 0x206a), 0xfeff]
    return "".join(f"\\u{ord(c):04x}" if ord(c) in hidden else c for c in text)


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
    has_all(page, STRINGS)
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
