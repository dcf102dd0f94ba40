"""The page of one machine: its steps, terminals, files, commands, network, grants and ports."""
from browser import need_browser
import pytest

need_browser()


@pytest.fixture
def box(daemon):
    return daemon.machine(name="box")


def show(tab, machine, name):
    tab.evaluate(f"location.hash = '#/machines/{machine}?tab={name}'")
    tab.shown(f"#tab-{name}[aria-selected=true]")


def test_a_step_is_shown_gone_back_to_and_forked(tab, daemon, box):
    daemon.exec(box, "echo first >note")
    daemon.exec(box, "echo second >note; exit 3")
    show(tab, box, "timeline")
    tab.shown(".step:has-text('echo second'):has-text('exit 3')")
    tab.shown("td.deleted:has-text('first')")
    tab.shown("td.added:has-text('second')")
    tab.click(".step:has-text('echo first')")
    tab.shown("h2:text('Step 1')")
    tab.click("section button:text('Rewind')")
    tab.click("dialog button:text('Rewind')")
    tab.reads("Back at step 1.")
    assert daemon.exec(box, "cat note")["stdout"] == "first\n"
    tab.click(".step:has-text('echo second')")
    tab.click("section button:text('Fork')")
    tab.click("dialog button:text('Fork')")
    tab.until(f"location.hash.startsWith('#/machines/m-') && !location.hash.includes('{box}')")
    fork = tab.evaluate("location.hash.split('/')[2]")
    assert daemon.exec(fork, "cat note")["stdout"] == "second\n"


def test_a_named_step_is_taken(tab, daemon, box):
    show(tab, box, "timeline")
    tab.click("text=Take a step")
    tab.fill("dialog input", "before-lunch")
    tab.key("Enter")
    tab.shown(".step:has-text('before-lunch')")
    assert daemon.get(f"/v1/machines/{box}/steps")["steps"][0]["name"] == "before-lunch"
