"""The pages Review and Audit lose their connection or their daemon: nothing is lost, and nothing is done twice."""
import json
import pathlib

import pytest

from browser import need_browser
from console import Page, visit
from daemon import stopped
from test_review import file
from worker import carrel, console_process

need_browser()


@pytest.fixture
def worker(daemon, tmp_path):
    with console_process(daemon, tmp_path) as (process, link):
        yield process, link


@pytest.fixture
def command(worker):
    return worker[0]


@pytest.fixture
def page(browser, worker):
    tab = browser.open(worker[1])
    tab.shown("nav")
    yield tab
    tab.done()


@pytest.fixture
def machine(daemon, tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / "project").mkdir(exist_ok=True)
        (tmp_path / "project" / name).write_text("old\n")
    m = carrel(daemon, tmp_path, "new", "--name", "work", "--dir", f"{tmp_path}/project:/home/user/project")
    assert daemon.exec(m, "cd /home/user/project && for f in a b c; do echo new >$f; done")["exec"]["status"] == 0
    return m


def shipments(daemon):
    """The results of shipments in the journal."""
    lines = daemon.request("GET", "/v1/audit?verb=review.ship&tail=1000", raw=True).decode().splitlines()
    return [r for r in map(json.loads, lines) if r["kind"] == "result"]


def test_a_review_stays_as_it_is_while_the_daemon_restarts(page, command, daemon, machine, tmp_path):
    before = len(shipments(daemon))
    visit(page, "review", machine)
    page.click(file("b", " .bar > input"))
    page.reads("Ship 2 of 3 files")
    frozen = page.getAttribute(".changeset", "aria-label")
    with stopped([command.pid]):
        daemon.restart(hard=True)
        page.shown(".warning:has-text('carrel console')")  # the new daemon has not seen the command yet
    page.gone(".warning:has-text('carrel console')")
    page.reads("Ship 2 of 3 files")
    assert page.getAttribute(".changeset", "aria-label") == frozen, "it was not frozen again"

    # The page is told to ship, and the daemon dies before the command has heard of it.
    with stopped([command.pid]):
        page.click("button:text('Ship 2 of 3 files')")
        page.click("dialog button:text('Ship')")
        page.shown("dialog button[aria-disabled=true]")
        daemon.restart(hard=True)
        page.gone(".lost")
    page.shown(".receipt:has-text('2 files shipped')")
    contents = [(tmp_path / "project" / name).read_text() for name in ("a", "b", "c")]
    assert contents == ["new\n", "old\n", "new\n"] and len(shipments(daemon)) == before + 1

    # The connection is lost, and comes back while the button is busy.
    page.offline(True)
    page.click(".receipt button:text('Undo')")
    page.shown(".receipt button[aria-busy=true]")
    page.offline(False)
    page.shown(".receipt:has-text('undone')")
    assert (tmp_path / "project/a").read_text() == "old\n"


def test_an_order_that_was_closed_is_not_sent_when_the_connection_is_back(page, daemon, machine, tmp_path):
    before = len(shipments(daemon))
    visit(page, "review", machine)
    page.shown(file("a"))
    page.offline(True)
    page.click("button:text('Ship 3 of 3 files')")
    page.click("dialog button:text('Ship')")
    page.shown("dialog button[aria-disabled=true]")
    page.click("dialog button:text('Cancel')")
    page.gone("dialog")
    page.offline(False)
    page.gone(".lost")
    page.waitForTimeout(1500)  # in which the order would be sent again
    assert (tmp_path / "project/a").read_text() == "old\n" and len(shipments(daemon)) == before


def test_a_comment_survives_and_is_sent_once(page, command, daemon):
    finish = {"tool": "finish", "arguments": {"status": "partial", "summary": "s", "open_issues": ["x"]}}
    run = daemon.post("/v1/runs", {"task": "t", "model": "rehearsal/r", "script": json.dumps({"turns": [{"calls": [finish]}]})})
    daemon.until(lambda: daemon.get(f"/v1/runs/{run['id']}")["state"] == "ended")
    visit(page, "review", run["machine"])
    page.click("text=Return to the model")
    page.fill("dialog textarea", "make it blue")
    with stopped([command.pid]):
        daemon.restart(hard=True)
        page.gone(".lost")
        assert page.inputValue("dialog textarea") == "make it blue"
    page.until("document.querySelector('dialog textarea').value === 'make it blue'")
    page.offline(True)
    page.click("dialog button:text('Send')")
    page.shown("dialog button[aria-disabled=true]")
    page.offline(False)
    page.gone("dialog")
    transcript = lambda: daemon.request("GET", f"/v1/runs/{run['id']}/transcript", raw=True).decode()  # noqa: E731
    daemon.until(lambda: "make it blue" in transcript())
    said = [e for e in map(json.loads, transcript().splitlines()) if "make it blue" in json.dumps(e)]
    assert len(said) == 1, said


def child_of(process):
    """The process that this one has started."""
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(children[0]) if children else None


def test_the_command_is_there_while_it_ships_and_does_nothing_twice(command, worker, daemon, machine, tmp_path):
    _, _, link = worker[1].partition("#link=")
    port = int(worker[1].split(":")[2].split("/")[0])
    page = Page(port, Page(port, None).post("/console/open", {"link": link})["token"])
    daemon.until(lambda: page.post("/console/me")["ships"])
    order = {"id": 7, "machine": machine, "path": "/home/user/project", "yes": True}

    def result():
        return daemon.until(lambda: (r := page.post("/console/result", {"id": 7}))["state"] == "done" and r)

    assert page.post("/console/order", order) == {"id": 7}
    child = daemon.until(lambda: child_of(command))
    with stopped([child]):
        daemon.restart(hard=True)
        daemon.until(lambda: page.post("/console/me")["ships"])
        assert page.post("/console/order", order) == {"id": 7}, "as a page does that knows of no result"
    told = result()
    (tmp_path / "project/a").write_text("mine\n")
    with stopped([command.pid]):  # in a test it does not wait for a daemon that is away
        daemon.restart(hard=True)
    daemon.until(lambda: page.post("/console/me")["ships"])
    for _ in range(2):
        assert page.post("/console/order", order) == {"id": 7}
    assert result() == told and (tmp_path / "project/a").read_text() == "mine\n"
    assert page.post("/console/order", {**order, "id": 8}) == {"id": 8}, "the control: another order is carried out"
    again = daemon.until(lambda: (r := page.post("/console/result", {"id": 8}))["state"] == "done" and r)
    assert again["output"] != told["output"]


def test_a_search_of_the_journal_goes_on_after_a_restart(tab, daemon):
    machine = daemon.machine(name="needle")
    visit(tab, "audit")
    tab.fill("#search", "needle")
    tab.shown(f".row.opens:has-text('{machine}')")
    daemon.kill()
    tab.reads("Connection lost")
    tab.fill("#search", "unheard-of")
    tab.reads("The daemon cannot be reached.")
    daemon.start()
    tab.reads("No record matches.")
    assert tab.count(".problem") == 0
    daemon.exec(machine, ["true", "unheard-of"])
    tab.shown(".row.opens:has-text('true unheard-of')")
    assert tab.inputValue("#search") == "unheard-of"
    tab.reload()
    tab.shown(".row.opens:has-text('true unheard-of')")
    assert tab.inputValue("#search") == "unheard-of"
