"""The whole story in the browser: a machine with a slice of the host, a task, an approval, a review, the shipment
and the journal. Of the command line, only `carrel console` runs."""
import json
import pathlib
import shutil
import tempfile

import pytest

from browser import need_browser
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
