"""The pages Audit, Models, Images, Secrets, Tokens and Host, and what all pages have in common."""
import base64
import io
import json
import tarfile

import pytest

from browser import need_browser
from console import Page, visit
from daemon import Refused

need_browser()

PAGES = ["machines", "review", "approvals", "runs", "audit", "models", "images", "secrets", "tokens", "host"]


def test_the_journal_is_searched_followed_and_verified(tab, daemon):
    machine = daemon.machine(name="seen")
    visit(tab, "audit")
    tab.fill("[aria-label='Action']", "machine.create")  # it filters while one types
    tab.shown(f".row.opens:has-text('{machine}')")
    tab.until("location.hash.includes('verb=machine.create')")
    tab.gone(".row.opens:has-text('console.open')")
    tab.fill("[aria-label='Machine']", "see")
    tab.reads("No machine has the name or id see.")
    tab.fill("[aria-label='Machine']", "seen")
    tab.shown(f".row.opens:has-text('{machine}')")
    tab.evaluate("location.hash = '#/audit'")  # a link to the page without filters
    tab.shown(".row.opens:has-text('console.open')")
    tab.reads("Numbers that are not listed are signatures of the journal: nothing is missing.")
    tab.until("document.querySelector('[aria-label=Action]').value === ''")
    assert not tab.evaluate("[...document.querySelectorAll('.row.opens')].some((row) => row.innerText.includes('{\"'))")
    tab.fill("#search", "unheard-of")
    tab.reads("No record matches.")
    daemon.exec(machine, ["true", "unheard-of"])
    tab.click(".row.opens:has-text('true unheard-of')")
    tab.shown("dialog pre:has-text('unheard-of')")
    tab.key("Escape")
    visit(tab, "machines", machine)
    tab.click("main a:text('Audit')")
    tab.shown(f".row.opens:has-text('machine.create'):has-text('{machine}')")
    assert tab.inputValue("[aria-label='Machine']") == machine
    tab.click("text=Verify the journal")
    tab.click("button:text('Verify')")
    tab.shown(".verified .badge:text('complete')")
    tab.fill(".field:has-text('Head') input", "1:" + "0" * 64)
    tab.click("button:text('Verify')")
    tab.shown(".verified .badge:text('damaged')")


def test_spend_is_shown_by_day_model_machine_and_owner(tab, daemon):
    finish = {"tool": "finish", "arguments": {"status": "partial", "summary": "s", "open_issues": ["x"]}}
    visit(tab, "models")
    tab.reads("Providers")
    run = daemon.post("/v1/runs", {"task": "t", "model": "rehearsal/costly", "script": json.dumps({"turns": [{"calls": [finish]}]})})
    tab.shown(f"[aria-label='Usage by machine'] .row:has-text('{run['machine']}')")
    tab.shown("[aria-label='Usage by model'] .row:has-text('costly')")
    tab.shown(f"[aria-label='Usage by owner'] .row:has-text('{daemon.get('/v1/machines/' + run['machine'])['owner']}')")
    tab.shown(".plot canvas")


def test_secrets_are_stored_replaced_and_deleted_and_never_shown(tab, daemon):
    visit(tab, "secrets")
    tab.click("button:text('New secret')")
    tab.fill("label:has-text('Name') input", "API_KEY")
    tab.reads("At least 8 characters.")
    tab.fill("label:has-text('Value') input", "a value that is secret")
    tab.click("dialog button:text('Store')")
    tab.shown(".row:has-text('API_KEY')")
    before = daemon.get("/v1/secrets")["secrets"][0]
    tab.click(".row:has-text('API_KEY') button:text('Replace')")
    tab.fill("label:has-text('Value') input", "another value")
    tab.click("dialog button:text('Store')")
    daemon.until(lambda: daemon.get("/v1/secrets")["secrets"][0]["changed_ms"] > before["changed_ms"])
    assert "value" not in tab.evaluate("document.querySelector('main').textContent").replace("puts the value", "")
    machine = daemon.machine(name="other")
    tab.click(".row:has-text('API_KEY') a:text('Audit')")
    tab.shown(".row.opens:has-text('secret.'):has-text('API_KEY')")
    assert tab.count(f".row.opens:has-text('{machine}')") == 0
    visit(tab, "secrets")
    tab.click(".row:has-text('API_KEY') button:text('Delete')")
    tab.click("dialog button:text('Delete')")
    tab.gone(".row:has-text('API_KEY')")
    assert daemon.get("/v1/secrets")["secrets"] == []


def test_a_token_is_shown_once_and_revoked(tab, daemon):
    visit(tab, "tokens")
    tab.click("text=New token")
    tab.fill("label:has-text('Note') input", "for ci")
    tab.click("label:has-text('make and use') input")
    tab.click("dialog button:text('Create')")
    tab.shown("dialog pre")
    secret = tab.evaluate("document.querySelector('dialog pre').textContent")
    client = Page(daemon.port, secret)
    assert client.get("/v1/machines")["machines"] == []
    with pytest.raises(Refused):
        client.post("/v1/machines")
    tab.click("dialog button:text('Done')")
    tab.shown(".row:has-text('for ci')")
    assert secret not in tab.evaluate("document.body.textContent")
    tab.click(".row:has-text('for ci') button:text('Revoke')")
    tab.click("dialog button:text('Revoke')")
    tab.shown(".row:has-text('for ci'):has-text('revoked')")
    with pytest.raises(Refused):
        client.get("/v1/machines")


def test_images_are_listed_named_downloaded_and_deleted(tab, daemon):
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as t:
        t.addfile(tarfile.TarInfo("etc/made"))
    daemon.request("POST", "/v1/images?name=mine", tar.getvalue())
    visit(tab, "images")
    tab.shown(".row:has-text('mine')")
    tab.click(".row:has-text('mine') button:text('Name')")
    tab.fill("label:has-text('Name') input", "other")
    tab.click("dialog button:text('Add')")
    tab.shown(".row:has-text('other')")
    assert b"oci-layout" in base64.b64decode(tab.download(".row:has-text('mine') button:text('Download')")["base64"])
    for name in ("mine", "other"):
        tab.click(f".row:has(strong:text-is('{name}')) button:text('Delete')")
        tab.click("dialog button:text('Delete')")
        tab.gone(f".row:has(strong:text-is('{name}'))")


def test_the_host_is_shown_with_plots(tab, daemon):
    daemon.machine()
    visit(tab, "host")
    tab.shown(".facts:has-text('limits by cgroup')")
    tab.shown(".u-series:has-text('running') .u-value:text-is('1')")
    tab.until("document.querySelectorAll('.plot canvas').length >= 6")
    tab.click("text=Check the store")
    tab.shown("[role=status] .badge:text('complete')")


LONG = "a" * 150  # a word that a machine or a model makes


def test_pages_are_accessible_and_fit_a_phone(daemon, browser):
    machine = daemon.machine(name="phone", net=[{"action": "ask", "target": "http://a.invalid:80"}])
    daemon.post(f"/v1/machines/{machine}/execs", {"command": "curl -s -m 60 http://a.invalid/" + LONG, "background": True})
    finish = {"tool": "finish", "arguments": {"status": "partial", "summary": "s", "open_issues": ["x"]}}
    run = daemon.post("/v1/runs", {"task": "t", "model": "rehearsal/r", "script": json.dumps({"turns": [{"say": "Hi.", "calls": [finish]}]})})["id"]
    ask = {"tool": "ask", "arguments": {"question": "Which? " + LONG, "options": ["one of the words " * 9, LONG]}}
    asks = daemon.post("/v1/runs", {"task": LONG, "model": "rehearsal/r", "script": json.dumps({"turns": [{"say": LONG, "calls": [ask]}]})})["id"]
    daemon.until(lambda: daemon.get(f"/v1/runs/{asks}")["state"] == "waiting")
    tab = browser.open(daemon.link_url(), colorScheme="dark", viewport={"width": 390, "height": 800})
    tab.shown(".menu")
    tab.click(".waits:text('1')")  # the list of pages is closed on a phone
    tab.until("location.hash === '#/approvals'")
    for parts in [[p] for p in PAGES] + [["machines", machine], ["runs", run], ["runs", asks]]:
        visit(tab, *parts)
        tab.shown("main h1")
        tab.until("!document.querySelector('main').textContent.includes('Loading')")
        assert tab.axe() == [], parts
        assert tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), parts
    tab.selectOption("[aria-label='Theme']", "light")
    for parts in (["approvals"], ["host"], ["runs", run]):
        visit(tab, *parts)
        tab.shown("main h1")
        assert tab.axe() == [], parts
    tab.done()


CUT = "[...document.querySelectorAll('.rows [role=gridcell]:nth-child(3)')].filter((c) => c.scrollWidth > c.clientWidth).map((c) => c.textContent)"


def test_a_phone_shows_whole_actions_and_no_page_is_wider_than_it(daemon, browser):
    machine = daemon.machine(name="site", net=[{"action": "ask", "target": "https://a-long-name.example.com:443"}])
    phone = browser.open(daemon.link_url(), viewport={"width": 390, "height": 800})
    phone.shown("main h1")
    for place in ("machines", "audit", "runs", "secrets", "images", "tokens", "approvals", f"machines/{machine}",
                  f"machines/{machine}?tab=network"):
        visit(phone, place)
        phone.until("!document.querySelector('main').textContent.includes('Loading')")
        assert phone.evaluate("document.documentElement.scrollWidth") <= 390, place
        if place == "audit":
            phone.shown(".row:has-text('machine.create')")
            assert phone.evaluate(CUT) == []
    tops = phone.evaluate("[...document.querySelectorAll('.acts > *')].map((e) => Math.round(e.getBoundingClientRect().bottom))")
    assert len(tops) == 5 and len(set(tops)) == 1  # the actions of the machine are beside each other
    assert phone.axe() == []
    for width in (800, 1000, 1200):
        phone.setViewportSize({"width": width, "height": 800})
        for place in ("machines", "audit", "runs"):
            visit(phone, place)
            phone.until("!document.querySelector('main').textContent.includes('Loading')")
            assert phone.evaluate("document.documentElement.scrollWidth") <= width, place
    phone.done()


def test_an_event_reads_one_machine_and_not_the_list(tab, daemon):
    """With a thousand machines, each command of each of them would read all thousand."""
    lists = "performance.getEntriesByType('resource').filter((e) => e.name.includes('/v1/machines?')).length"
    visit(tab, "machines")
    kept = daemon.machine(name="kept", steps="manual")
    tab.shown(".row:has-text('kept'):has-text('running')")
    before = tab.evaluate(lists)
    made = daemon.machine(name="made", steps="manual")
    tab.shown(".row:has-text('made'):has-text('running')")
    daemon.post(f"/v1/machines/{kept}/pause")
    tab.shown(".row:has-text('kept'):has-text('paused')")
    daemon.post(f"/v1/machines/{kept}/resume")
    tab.shown(".row:has-text('kept'):has-text('running')")
    daemon.patch(f"/v1/machines/{made}", {"name": "renamed"})
    tab.shown(".row:has-text('renamed')")
    daemon.delete(f"/v1/machines/{made}")
    tab.gone(".row:has-text('renamed')")
    assert tab.evaluate(lists) == before
    assert tab.count(".row:has-text('kept')") == 1
