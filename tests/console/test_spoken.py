"""What a screen reader says: each control has a name, headings are in order, and what is done is announced once."""
import json
import re

import pytest

from browser import need_browser
from console import decide, visit
from filled import fill
from screens import HAS_DESKTOP
from worker import carrel, console_command

need_browser()

CONTROLS = {"button", "link", "textbox", "searchbox", "spinbutton", "checkbox", "radio", "switch", "combobox", "listbox",
            "option", "slider", "tab", "menuitem", "DisclosureTriangle"}
NAMED = CONTROLS | {"dialog", "grid", "table", "tablist", "tabpanel", "region", "navigation", "image", "img", "meter", "Iframe",
                    "application", "columnheader", "heading", "article", "list"}

# What a page says: changes of live regions, and alerts that come. What comes in an element that was not there is
# said of alerts only.
HEAR = """(() => {
  const live = '[role=status], [role=alert], [role=log], [aria-live=polite], [aria-live=assertive]';
  window.heard = [];
  const say = (text) => text.trim() && window.heard.push(text.trim());
  new MutationObserver((all) => {
    const said = new Set();
    for (const m of all) {
      for (const node of m.addedNodes) {
        if (node.nodeType !== Node.ELEMENT_NODE) continue;
        for (const e of [node, ...node.querySelectorAll('[role=alert]')])
          if (e.matches('[role=alert]') && !e.parentElement?.closest(live)) said.add(e);
      }
      const at = m.target.nodeType === Node.TEXT_NODE ? m.target.parentElement : m.target;
      const region = at?.closest(live);
      const fresh = all.some((other) => [...other.addedNodes].some((n) => n.contains(region)));
      if (!region || fresh) continue;
      if (region.matches('.toasts')) for (const node of m.addedNodes) say(node.textContent);
      else said.add(region);
    }
    for (const e of said) say(e.textContent);
  }).observe(document.body, { childList: true, subtree: true, characterData: true });
})()"""


def wrong_of(nodes, single=True):
    """What a user of a screen reader would miss."""
    wrong = []
    for n in nodes:
        sought = n["role"] in NAMED and not (n["role"] == "list" and "tabpanel" not in n["inside"])
        unsaid = n["role"] in CONTROLS or n["name"] == ""
        if sought and unsaid and not re.search(r"\w", n["name"]):
            wrong.append(f"{n['role']} {n['name']!r} has no name, in {n['inside'][-3:]}")
        if n.get("focusable") and n["role"] in ("generic", "none", ""):
            wrong.append(f"{n['name'] or n['inside'][-3:]} takes the focus and has no role")
    levels = [n["level"] for n in nodes if n["role"] == "heading" and "Iframe" not in n["inside"]]
    if levels[:1] != [1] or single and levels.count(1) != 1 or any(b > a + 1 for a, b in zip(levels, levels[1:])):
        wrong.append(f"headings have the levels {levels}")
    around = {"row", "listitem", "region", "navigation"}  # says what the control is of
    buttons = [n["name"] for n in nodes if n["role"] in ("button", "link") and not set(n["inside"]) & around]
    wrong += [f"{name!r} is the name of {buttons.count(name)} controls" for name in sorted(set(buttons)) if buttons.count(name) > 1]
    return wrong


@pytest.fixture(scope="module")
def filled(server, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    with console_command(server, home):
        yield fill(server, home)


@pytest.fixture
def reader(filled, server, browser):
    tab = browser.open(server.link_url())
    tab.shown("nav")
    tab.evaluate(HEAR)
    yield tab
    tab.done()


def test_every_page_can_be_read_aloud(filled, reader):
    wrong = {}
    for page, place in filled.items():
        reader.evaluate(f"location.hash = '#/{place}'")
        reader.shown("main h1")
        reader.until("!document.querySelector('main').textContent.includes('Loading')")
        if page in ("models", "host"):
            reader.shown(".plot canvas")
        if page == "desktop" and HAS_DESKTOP:
            reader.reads("The clipboard is not shared.")
        if found := wrong_of(reader.spoken()):
            wrong[page] = found
    assert wrong == {}, json.dumps(wrong, indent=1)


DIALOGS = {  # where a dialog is opened, by what, and what has the focus then
    "machines": ("New machine", "textbox"),
    "runs": ("Start a run", "textbox"),
    "secrets": ("New secret", "textbox"),
    "tokens": ("New token", "textbox"),
    "network": ("Add a rule", "textbox"),
    "grants": ("Expose a port", "spinbutton"),
    "machine": ("Rewind", "button"),
    "run": ("Continue", "textbox"),
}


def test_every_dialog_is_named_and_returns_the_focus(filled, reader):
    for page, (button, role) in DIALOGS.items():
        reader.evaluate(f"location.hash = '#/{filled[page]}'")
        opener = f"main button:text-is('{button}')"
        reader.shown(f"{opener}:not([aria-disabled])")
        reader.focus(opener)
        reader.key("Enter")
        reader.shown("dialog[open]")
        nodes = reader.spoken()
        named = [n["name"] for n in nodes if n["role"] == "dialog"]
        focused = [n for n in nodes if n.get("focused") and n["role"] != "RootWebArea"]
        assert len(named) == 1 and named[0], page
        assert [n["role"] for n in focused] == [role] and "dialog" in focused[0]["inside"], (page, focused)
        assert [w for w in wrong_of(nodes, single=False) if "headings" not in w] == [], page
        reader.key("Escape")
        reader.gone("dialog")
        reader.until(f"document.activeElement.textContent === '{button}'")


def test_what_is_done_is_said_once(reader, server, tmp_path):
    heard = lambda: reader.evaluate("window.heard.splice(0)")  # noqa: E731
    (tmp_path / "work").mkdir()
    machine = carrel(server, tmp_path, "new", "--name", "spoken", "--dir", f"{tmp_path}/work:/home/user/work")
    server.exec(machine, "echo one >/home/user/work/new")
    visit(reader, "review", machine)
    reader.shown(".file[aria-label=new]")
    reader.key("j")
    heard()
    reader.key("x")
    reader.reads("Ship 0 of 1 file")
    reader.key("x")
    reader.reads("Ship 1 of 1 file")
    assert heard() == ["0 of 1 file picked", "1 of 1 file picked"]
    reader.click("button:text('Ship 1 of 1 file')")
    reader.click("dialog button:text('Ship')")
    reader.shown(".receipt")
    reader.click(".receipt button:text('Undo')")
    reader.shown(".receipt:has-text('undone')")
    assert heard() == ["Shipped.", "1 undone"]
    visit(reader, "machines", machine)
    reader.shown("h1:has-text('spoken')")
    heard()
    reader.click("button:text('Stop')")
    reader.shown(".badge:text-is('stopped')")
    assert [said for said in heard() if said != "stopping"] == ["stopped"]


def test_requests_are_said_together_and_keys_take_the_focus_along(reader, server):
    heard = lambda: reader.evaluate("window.heard.splice(0)")  # noqa: E731
    for item in server.get("/v1/pending")["pending"]:
        server.post(f"/v1/pending/{item['id']}", {"decision": "deny"})
    machines = [server.machine(name=f"asks-{n}") for n in range(2)]
    visit(reader, "approvals")
    reader.reads("Nothing waits.")
    heard()
    for n in range(8):
        server.background(machines[n % 2], ["carrel", "ask", f"Question {n}?"])
    reader.shown("nav .count:text-is('8')")
    said = heard()
    assert said[-1] == "8 requests for your decision" and len(said) <= 4, said
    names = reader.evaluate("[...document.querySelectorAll('.pending')].map((e) => e.getAttribute('aria-label'))")
    for key, name in (("k", names[0]), ("j", names[1]), ("k", names[0])):
        reader.key(key)
        reader.until(f"document.activeElement.matches('.pending.current[aria-label={json.dumps(name)}]')")
    held = server.held(server.machine(name="holds"))
    reader.shown(".pending:has-text('a.example')")
    reader.shown("nav .count:text-is('9')")
    heard()
    decide(reader, "Approve once", ".pending:has-text('a.example')")
    assert held and heard() in (["Approved.", "8 requests for your decision"], ["8 requests for your decision", "Approved."])
