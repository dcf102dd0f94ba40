"""The whole story in the browser: a machine with a slice of the host, a task, an approval, a review, the shipment
and the journal. Of the command line, only `carrel console` runs."""
import json
import pathlib
import shutil
import tempfile

import pytest

from browser import BrowserError, need_browser
from console import ConsoleDaemon, decide
from worker import console_command

need_browser()

WORK = "printf 'polite\\n' > greeting && curl -s -m 100 -o /dev/null -w '%{http_code}' http://a.invalid/check; echo asked"


@pytest.fixture
def projects():
    """A root of carrel.conf: directories below it may be granted from a page."""
    top = pathlib.Path(tempfile.mkdtemp(prefix="c-"))
    top.chmod(0o755)
    yield top
    shutil.rmtree(top)


@pytest.fixture
def owner(projects):
    d = ConsoleDaemon(conf=f"[daemon]\nroots = {projects}\n")
    yield d
    d.stop()


def visit(page, title):
    page.click(f"nav a:has-text('{title}')")
    page.shown(f"h1:has-text('{title}')")


def script():
    proof = "grep -x polite greeting"
    finish = {"tool": "finish", "arguments": {"status": "done", "summary": "It greets politely.",
                                              "evidence": [proof + " printed polite"], "outputs": ["greeting"]}}
    turns = [{"turn": 0, "say": "I write the greeting.", "calls": [{"tool": "exec", "arguments": {"cmd": WORK}}]},
             {"turn": 1, "calls": [finish]},
             {"turn": 2, "calls": [{"tool": "exec", "arguments": {"cmd": proof}}]},
             {"turn": 3, "calls": [finish]}]
    return json.dumps({"turns": turns})


def test_from_an_empty_page_to_a_verified_journal(owner, browser, projects, tmp_path):
    shop = projects / "shop"
    shop.mkdir()
    (shop / "greeting").write_text("rude\n")
    with console_command(owner, tmp_path) as link:
        page = browser.open(link)
        page.click("text=New machine")
        page.fill("label:has-text('Name') input", "shop")
        page.fill("label:has-text('Directory') input", str(shop))
        page.click("dialog button:text('Create')")
        page.shown("h1:has-text('shop')")
        page.click("[role=tab]:has-text('Network')")
        page.click("text=Add a rule")
        page.selectOption("label:has-text('Action') select", "ask")
        page.fill("label:has-text('Target') input", "http://a.invalid:80")
        page.click("text=Add this rule")
        page.gone("dialog[open]")

        visit(page, "Runs")
        page.click("text=Start a run")
        page.fill("label:has-text('Task') textarea", "Make the greeting polite.")
        page.selectOption("label:has-text('Machine') select", {"label": "shop"})
        page.fill("label:has-text('Model') input", "rehearsal/mission")
        page.fill("label:has-text('Script') textarea", script())
        page.click("dialog button:text('Start')")
        page.shown(".said.model:has-text('I write the greeting.')")
        page.shown(".warning a:text('approval')")
        page.click(".warning a:text('approval')")
        page.shown(".pending:has-text('GET http://a.invalid:80/check')")
        decide(page, "Approve once")

        visit(page, "Runs")
        page.click(".row:has-text('Make the greeting polite.'):has-text('shop')")
        page.shown(".report:has-text('It greets politely.')")
        page.click("text=Review changes")
        page.shown(".file[aria-label=greeting] .added:has-text('polite')")
        page.shown(".file[aria-label=greeting] .deleted:has-text('rude')")
        assert (shop / "greeting").read_text() == "rude\n"
        page.click("button:text('Ship 1 of 1 file')")
        page.click("dialog button:text('Ship')")
        page.shown(".receipt:has-text('1 file shipped')")
        assert (shop / "greeting").read_text() == "polite\n"

        visit(page, "Audit")
        page.fill("#search", "review.ship")
        page.shown(".row.opens:has-text('review.ship')")
        page.click("text=Verify the journal")
        page.click("button:text('Verify')")
        page.shown(".verified .badge:text('complete')")
        page.done()


class Keys:
    """A user without a pointer: goes to things with Tab, and must see where the focus is at any time."""

    def __init__(self, page):
        self.page, self.wrong = page, []

    def press(self, *keys):
        for key in keys:
            self.page.key(key)

    def kept(self, where):
        """Something of the page has the focus, not nothing."""
        try:
            self.page.until("document.activeElement !== document.body")
        except BrowserError:
            self.wrong.append(f"the focus is lost: {where}")

    def to(self, selector, text="", key="Tab"):
        """Goes to an element, and types into it, or presses Enter."""
        self.wrong += self.page.go(selector, key)
        if text:
            self.page.type(text)
        else:
            self.page.key("Enter")
            self.kept(selector)


def test_the_same_story_by_keyboard_alone(owner, browser, projects, tmp_path):
    shop = projects / "shop"
    shop.mkdir()
    (shop / "greeting").write_text("rude\n")
    with console_command(owner, tmp_path) as link:
        page = browser.open(link)
        page.shown("nav")
        keys = Keys(page)
        keys.press("n")
        page.until("document.activeElement.closest('label')?.textContent.startsWith('Name')")
        page.type("shop")
        keys.to("label:has(input[placeholder^='/srv'])", str(shop))
        keys.press("Enter")
        page.shown("h1:has-text('shop')")
        keys.kept("a new machine")
        keys.wrong += page.go("#tab-timeline", "Tab")
        keys.wrong += page.go("#tab-network", "ArrowRight")
        keys.to("main .panel button")
        page.until("document.activeElement.closest('label')?.textContent.startsWith('Target')")
        page.type("http://a.invalid:80")
        keys.to("dialog select", "ask", key="Shift+Tab")
        keys.to("dialog button[type=submit]")
        page.gone("dialog[open]")
        page.shown("[aria-label=Rules] li:has-text('a.invalid')")
        keys.kept("a new rule")

        keys.press("g", "r")
        page.shown("h1:has-text('Runs')")
        keys.press("n")
        page.until("document.activeElement.matches('dialog textarea')")
        page.type("Make the greeting polite.")
        keys.to("dialog select", "shop")
        keys.to("dialog input[list]", "rehearsal/mission")
        keys.to("dialog textarea", script())
        keys.to("dialog button[type=submit]")
        page.shown(".said.model:has-text('I write the greeting.')")
        page.shown(".warning a:text('approval')")
        keys.kept("a new run")
        keys.to(".warning a")
        page.shown(".pending:has-text('GET http://a.invalid:80/check')")
        page.shown(".pending:not([aria-busy=true])")
        keys.to(".pending button.primary")
        page.shown(".pending.ended")
        keys.kept("a decision")

        keys.press("g", "r")
        page.shown(".row:has-text('Make the greeting polite.'):has-text('done')")
        keys.to(".row.opens")
        page.shown(".report:has-text('It greets politely.')")
        keys.to("a[href^='#/review/']")
        page.shown(".file[aria-label=greeting] .added:has-text('polite')")
        keys.press("j")
        page.until("document.activeElement.matches('.file[aria-label=greeting]')")
        keys.press("S")
        page.until("document.activeElement.matches('dialog button.primary')")
        keys.press("Enter")
        page.shown(".receipt:has-text('1 file shipped')")
        assert (shop / "greeting").read_text() == "polite\n"
        keys.kept("a shipment")

        keys.press("g", "j")
        page.shown("#search")
        keys.press("/")
        page.until("document.activeElement.id === 'search'")
        page.type("review.ship")
        page.shown(".row.opens:has-text('review.ship')")
        keys.to("details > summary")
        keys.to("details button.primary")
        page.shown(".verified .badge:text('complete')")
        keys.kept("a verification")
        assert keys.wrong == []
        page.done()
