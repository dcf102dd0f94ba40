"""The frame of the page: how it is opened, kept, lost and left, and the list of machines."""
from browser import need_browser
from test_keys import Peer, needs_root

need_browser()


def test_a_link_opens_the_page_once_and_leaves_the_address_bar(daemon, browser):
    url = daemon.link_url()
    tab = browser.open(url)
    tab.shown("nav")
    assert tab.evaluate("location.href") == url.partition("#")[0]
    tab.done()
    again = browser.open(url)
    again.reads("this link was used already, has expired, or is not valid")
    again.done()


def test_a_reload_keeps_the_session_and_the_place(tab, daemon):
    machine = daemon.machine(name="kept")
    tab.click(":text('kept')")
    tab.until(f"location.hash === '#/machines/{machine}'")
    tab.reload()
    tab.shown("h1:has-text('kept')")


def test_a_machine_is_created_listed_and_deleted(tab, daemon):
    tab.reads("There are no machines yet.")
    tab.click("text=New machine")
    tab.fill("label:has-text('Name') input", "from-page")
    tab.fill("label:has-text('Network') input", "pip, a.example")
    tab.reads("carrel new --name from-page --net pip --net a.example")
    tab.click("button:text('Create')")
    tab.shown("h1:has-text('from-page')")
    [machine] = daemon.get("/v1/machines")["machines"]
    assert machine["name"] == "from-page"
    tab.goBack()
    tab.click("[aria-label='Select all']")
    tab.click("button:text('Delete')")
    tab.click("dialog:has-text('from-page: their files') button:text('Delete')")
    tab.reads("There are no machines yet.")
    assert daemon.get("/v1/machines")["machines"] == []


def test_the_list_follows_what_others_do(tab, daemon):
    machine = daemon.machine(name="other")
    tab.shown(".row:has-text('other'):has-text('running')")
    daemon.post(f"/v1/machines/{machine}/pause")
    tab.shown(".row:has-text('other'):has-text('paused')")
    daemon.delete(f"/v1/machines/{machine}")
    tab.gone(".row:has-text('other')")


def test_the_page_catches_up_after_a_restart_of_the_daemon(tab, daemon):
    daemon.machine(name="before")
    tab.reads("before")
    daemon.kill()
    tab.reads("Connection lost")
    daemon.start()
    tab.gone(".lost")
    daemon.machine(name="after")
    tab.reads("after")


@needs_root
def test_a_link_of_another_owner_changes_the_session_only_if_the_user_says_so(daemon, browser):
    tab = browser.open(daemon.link_url())
    tab.shown(".who")
    mine = tab.textContent(".who")
    other = Peer(daemon, 1001)
    opened = lambda client=None: tab.evaluate(f"location.hash = 'link={daemon.link(client)}'")
    opened(other)
    tab.reads("Change who you are?")
    assert tab.textContent(".who") == mine
    tab.click("dialog button:text('Cancel')")
    tab.gone("dialog")
    tab.reload()
    tab.shown(".who")
    assert tab.textContent(".who") == mine, "the link is spent, and nothing has changed"
    tab.evaluate(f"location.href = '/?reload#link={daemon.link(other)}'")
    tab.reads("Change who you are?")
    tab.click("dialog button.danger")
    tab.gone(f".who:text-is('{mine}')")
    tab.shown(".who")
    assert tab.textContent(".who") != mine
    opened()
    tab.click("dialog button.danger")
    tab.shown(f".who:text-is('{mine}')")
    opened()
    tab.until("location.hash === ''")
    assert tab.count("dialog") == 0, "the control: the same owner is not asked"
    tab.evaluate("location.hash = 'link=' + '0'.repeat(64)")
    tab.reads("The link was not opened")
    assert tab.textContent(".who") == mine
    tab.done()


def test_the_title_names_the_machine_and_the_page(tab, daemon):
    machine = daemon.machine(name="titled")
    tab.until("document.title === 'Machines · Carrel'")
    tab.evaluate(f"location.hash = '#/machines/{machine}'")
    tab.until("document.title === 'titled · Machines · Carrel'")
    tab.evaluate("location.hash = '#/runs'")
    tab.until("document.title === 'Runs · Carrel'")


def test_log_out_ends_the_session(daemon, browser):
    tab = browser.open(daemon.link_url())
    tab.click("text=Log out")
    tab.reads("You are logged out.")
    tab.reload()
    tab.reads("carrel console")
    tab.done()


def test_keys_reach_the_pages_and_the_rows(tab, daemon):
    machine = daemon.machine(name="keyed")
    tab.reads("keyed")
    tab.key("?")
    tab.reads("Create a machine")
    tab.key("Escape")
    tab.gone("dialog")
    tab.focus("[data-row='0']")
    tab.key("Enter")
    tab.until(f"location.hash === '#/machines/{machine}'")
    tab.key("g")
    tab.key("m")
    tab.until("location.hash === '#/machines'")


FOCUS = "document.activeElement"


def test_the_keyboard_begins_in_a_dialog_and_comes_back(tab, daemon):
    machine = daemon.machine(name="keyed")
    tab.focus("button:text('New machine')")
    tab.key("Enter")
    tab.until(f"{FOCUS}.closest('label')?.textContent.startsWith('Name')")
    tab.click("dialog button:text('Cancel')")
    tab.until(f"{FOCUS}.textContent === 'New machine'")
    tab.key("g")
    tab.key("r")
    tab.until(f"location.hash === '#/runs' && {FOCUS}.id === 'main'")  # not behind the list of pages
    tab.key("n")
    tab.until(f"{FOCUS}.closest('label')?.textContent.startsWith('Task')")
    tab.key("Escape")
    tab.until(f"{FOCUS}.id === 'main'")
    tab.evaluate(f"location.hash = '#/machines/{machine}'")
    tab.click("button:text('Delete')")
    tab.until(f"{FOCUS}.closest('dialog') && {FOCUS}.textContent === 'Cancel'")  # it cannot be undone
    tab.key("Enter")
    tab.until(f"{FOCUS}.textContent === 'Delete'")
    assert [m["id"] for m in daemon.machines()] == [machine]


def test_a_number_that_is_none_creates_no_machine(tab, daemon):
    tab.click("text=New machine")
    processors = "label:has-text('Processors') input"
    for wrong in ("1e", "-1"):
        tab.fill(processors, "")
        tab.focus(processors)
        tab.type(wrong)
        tab.click("dialog button:text('Create')")
        tab.until(f"{FOCUS}.matches(':invalid')")
    assert daemon.machines() == []
    tab.fill(processors, "0.5")
    tab.click("dialog button:text('Create')")
    tab.gone("dialog")
    assert [m["limits"]["cpus"] for m in daemon.machines()] == [0.5]


def test_the_first_load_is_small(tab, daemon):
    daemon.machine(name="first")
    tab.reload()
    tab.reads("first")
    sizes = tab.evaluate("performance.getEntriesByType('resource').filter((e) => e.name.includes('/assets/')).map((e) => e.encodedBodySize)")
    assert 1 < len(sizes) < 6 and sum(sizes) < 300_000, sizes


def test_names_cannot_disguise_themselves(tab, daemon):
    machine = daemon.machine(metadata={"note": "a\u202eb<img src=x onerror=alert(1)>"})
    tab.click(f":text('{machine}')")
    tab.click("summary:text('Details')")
    tab.reads("a\\u202eb<img src=x onerror=alert(1)>")
    assert tab.count("main img") == 0


def test_the_page_has_no_serious_findings_of_axe(tab, daemon):
    daemon.machine(name="seen")
    tab.reads("seen")
    for theme in ("dark", "light"):
        tab.selectOption("[aria-label=Theme]", theme)
        assert tab.axe() == []


def test_only_visible_rows_are_elements_and_the_last_is_reached(tab, daemon):
    first = daemon.machine(name="first")
    daemon.post(f"/v1/machines/{first}/fork", {"count": 59})
    tab.until("document.querySelector('[role=grid]')?.ariaRowCount === '61'")
    assert tab.count(".rows .row") < 45
    tab.focus("[data-row='0']")
    tab.key("End")
    tab.shown(".row:has-text('first')")


def test_a_row_shows_what_the_machine_does_and_its_budget(tab, daemon):
    machine = daemon.machine(name="busy", models={"money": "2.50"})
    daemon.post(f"/v1/machines/{machine}/execs", {"command": "while :; do :; done # spins", "background": True})
    tab.shown(".row:has-text('busy') .now:has-text('2.50 left')")
    tab.shown(".row:has-text('busy') .now:has-text('# spins')")
    tab.shown(".row:has-text('busy') svg[aria-label^='CPU: ']")


ASKED = "performance.getEntriesByType('resource').map((e) => new URL(e.name)).filter((u) => u.pathname.endsWith('/stats'))"


def test_one_request_has_what_all_rows_in_view_do_now(tab, daemon):
    first = daemon.machine(name="first")
    others = [m["id"] for m in daemon.post(f"/v1/machines/{first}/fork", {"count": 19})["machines"]]
    tab.until("document.querySelectorAll('.row .now').length === 20")
    asked = tab.evaluate(f"{ASKED}.map((u) => u.pathname + u.search)")
    assert all(target.startswith("/v1/stats?machines=m-") for target in asked) and max(t.count("m-") for t in asked) == 20
    before = len(asked)
    x = daemon.background(others[7], "sleep 1000 # here")
    tab.shown(f".row:has-text('{others[7]}') .now:has-text('# here')")
    daemon.delete(f"/v1/machines/{others[7]}/execs/{x}")
    tab.gone(".now:has-text('# here')")
    assert tab.evaluate(f"{ASKED}.length") - before < 8  # two events and a few periods, not twenty rows


def test_the_form_says_how_a_directory_may_be_handed_over(tab, daemon, tmp_path):
    """The line that it shows is written into carrel.conf, and counts without a restart."""
    conf = daemon.conf.read_text()
    tab.click("text=New machine")
    tab.shown(f"dialog .advice:has-text('{daemon.conf}')")
    tab.fill("label:has-text('Directory') input", str(tmp_path))
    tab.shown(f"dialog .advice code:text-is('roots = {tmp_path}')")
    tab.click("dialog button:text('Create')")
    tab.shown(f"dialog .problem:has-text('{daemon.conf}'):has-text('roots = {tmp_path}')")
    daemon.conf.write_text(f"[daemon]\nroots = {tmp_path}\n{conf}")
    tab.gone("dialog .advice")
    tab.shown(f"label:has-text('Directory') small:has-text('below {tmp_path}')")
    tab.click("dialog button:text('Create')")
    tab.shown("#tab-timeline")
    daemon.conf.write_text(conf)


@needs_root
def test_another_user_sees_only_what_is_theirs(tab, daemon, browser):
    mine, other = daemon.machine(name="mine"), Peer(daemon, 65534)
    theirs = other.post("/v1/machines", {"name": "theirs"})["id"]
    tab.reads("mine")
    second = browser.open(daemon.link_url(other))
    second.reads("theirs")
    assert second.count(".row:has-text('mine')") == 0
    second.evaluate(f"location.hash = '#/machines/{mine}'")
    second.shown("[role=alert]")
    other.delete(f"/v1/machines/{theirs}")
    second.done()
