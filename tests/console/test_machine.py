"""The page of one machine: its steps, terminals and commands."""
from browser import need_browser
from console import show

need_browser()


def test_a_step_is_shown_gone_back_to_and_forked(tab, daemon, box):
    daemon.exec(box, "echo first >note")
    daemon.exec(box, "echo second >note; exit 3")
    show(tab, box, "timeline")
    tab.shown(".step:has-text('echo second'):has-text('exit 3')")
    tab.shown("td.deleted:has-text('first')")
    tab.click("text=Side by side")
    tab.reload()
    tab.shown("table.sides td.added:has-text('second')")  # it is remembered
    tab.click(".step:has-text('echo first')")
    tab.shown("h2:text('Step 1')")
    tab.click("section button:text('Rewind')")
    tab.shown("dialog:has-text('other processes end'):has-text('Granted directories, volumes and databases outside')")
    tab.click("dialog button:text('Rewind')")
    tab.reads("Back at step 1.")
    tab.shown(".step:has-text('rewind to 1')")
    assert daemon.exec(box, "cat note")["stdout"] == "first\n"
    tab.click(".step:has-text('echo second')")
    tab.click("section button:text('Fork')")
    tab.fill("dialog label:has-text('Optional') input", "try-two")
    tab.click("dialog button:text('Fork')")
    tab.until(f"location.hash.startsWith('#/machines/m-') && !location.hash.includes('{box}')")
    fork = tab.evaluate("location.hash.split('/')[2]")
    tab.shown("h1:text('try-two')")
    assert daemon.exec(fork, "cat note")["stdout"] == "second\n"
    tab.click(".family a:text('box')")
    tab.shown("h1:text('box')")
    tab.shown(f".family li li a[href='#/machines/{fork}']")


SLOW = """(() => { const real = fetch; window.fetch = async (...all) => {
    const answer = await real(...all);
    if (String(all[0]).includes("/steps")) await new Promise((done) => setTimeout(done, 2000));
    return answer;
}; })()"""


def test_the_timeline_is_current_while_a_machine_is_busy(tab, daemon, box):
    """An event during a load cut it off: of events that come faster than answers, none was shown."""
    show(tab, box, "timeline")
    tab.shown(".empty:has-text('A command that changes files makes one')")
    tab.evaluate(SLOW)
    with daemon.busy(box):
        tab.shown(".step:has-text('echo')")
    tab.selectOption("label:has-text('Compare') select", "now")
    tab.shown(".soft:has-text('0 added')")
    daemon.exec(box, "echo late >note")  # what is compared with now follows
    tab.shown(".change:has-text('note')")


def test_a_named_step_is_taken(tab, daemon):
    box = daemon.machine(steps="manual")
    daemon.exec(box, "echo x >note")
    show(tab, box, "timeline")
    tab.shown(".empty:has-text('This machine takes none by itself')")
    tab.click("text=Take a step")
    tab.fill("dialog input", "before-lunch")
    tab.key("Enter")
    tab.shown(".step:has-text('before-lunch')")
    assert daemon.get(f"/v1/machines/{box}/steps")["steps"][0]["name"] == "before-lunch"


def test_a_step_is_named_later_and_loses_its_name(tab, daemon, box):
    daemon.exec(box, "echo first >note")
    daemon.exec(box, "echo second >note")
    named = lambda: [(s["number"], s.get("name")) for s in daemon.get(f"/v1/machines/{box}/steps")["steps"]]  # noqa: E731
    show(tab, box, "timeline")
    tab.click(".step:has-text('echo first')")
    tab.key("n")
    tab.fill("dialog input", "a b")
    tab.key("Enter")
    tab.shown("dialog [role=alert]:has-text('is not a valid step name')")
    tab.fill("dialog input", "good")
    tab.shown(f"dialog code:has-text('carrel rename {box}@1 good')")
    tab.key("Enter")
    tab.shown(".step:has-text('good')")
    tab.shown("section pre:has-text('echo first')")  # what made it is still said
    assert named() == [(2, None), (1, "good")]
    daemon.request("PATCH", f"/v1/machines/{box}/steps/2", {"name": "newer"})
    tab.shown(".step:has-text('newer')")
    tab.click("section button:text('Rename')")
    tab.fill("dialog input", "")
    tab.key("Enter")
    tab.gone(".step:has-text('good')")
    assert named() == [(2, "newer"), (1, None)]


# ---- terminals ----

SCREEN = "document.querySelector('.xterm-rows')?.innerText"
CUT = """(([outer, inner]) => Math.max(0, inner.bottom - outer.bottom))(
    ['.shell', '.xterm'].map((s) => document.querySelector(s).getBoundingClientRect()))"""


def test_a_terminal_runs_what_is_typed_and_outlives_the_page(tab, daemon, box):
    show(tab, box, "terminals")
    tab.click("text=New terminal")
    tab.click(".xterm")
    tab.type("echo $((6 * 7))-is-it; stty size\n")
    tab.until(f"{SCREEN}.includes('42-is-it')")
    assert tab.evaluate(CUT) == 0
    tab.reload()
    tab.until(f"{SCREEN}?.includes('42-is-it')")
    tab.click(".xterm")
    tab.type("echo $((7 * 7))-again\n")
    tab.until(f"{SCREEN}.includes('49-again')")
    tab.click("text=Close terminal")
    tab.reads("No terminal is open.")
    assert daemon.get(f"/v1/machines/{box}/execs", state="running")["execs"] == []


def test_two_terminals_are_beside_each_other(tab, box):
    show(tab, box, "terminals")
    for name in ("one", "two"):
        tab.click("text=New terminal")
        tab.shown(f"[aria-pressed=true]:has-text('{2 if name == 'two' else 1}:')")
        tab.click(".xterm >> visible=true")
        tab.type(f"echo is-{name}\n")
        tab.until(f"[...document.querySelectorAll('.xterm-rows')].some((r) => r.innerText.includes('is-{name}'))")
    both = "document.querySelectorAll('.xterm-rows').length === 2"
    tab.click("button:has-text('1:')")
    tab.until(f"document.querySelectorAll('.xterm-rows')[0].checkVisibility() && {both}")
    for number in (2, 1):  # the one that was picked is picked again, and the other one is there
        tab.click(f"button:has-text('{number}:')")
        tab.reload()
        tab.shown(f"[aria-pressed=true]:has-text('{number}:')")
        tab.until(f"document.querySelectorAll('.xterm-rows')[{number - 1}]?.checkVisibility() && {both}")
        tab.until(f"[...document.querySelectorAll('.xterm-rows')].some((r) => r.innerText.includes('is-{'one' if number == 1 else 'two'}'))")


def test_the_keyboard_comes_out_of_a_terminal_and_passes_by_it(tab, box):
    show(tab, box, "terminals")
    tab.click("text=New terminal")
    tab.until("document.activeElement.closest('.xterm')")
    tab.key("Tab")  # it is the shell's
    tab.until("document.activeElement.closest('.xterm')")
    tab.key("Shift+Escape")
    tab.until("document.activeElement.matches('[aria-pressed=true]')")
    assert tab.go("#tab-terminals", "Shift+Tab") == []
    assert tab.go("#tab-timeline", "ArrowLeft") == []
    assert tab.go("#tab-files", "ArrowRight") == []  # past a terminal that opens


def test_a_terminal_goes_on_after_a_lost_connection(tab, daemon, box):
    show(tab, box, "terminals")
    tab.click("text=New terminal")
    tab.click(".xterm")
    tab.type("x=kept\n")
    tab.until(f"{SCREEN}.includes('x=kept')")
    daemon.kill()
    tab.shown("[role=status]:has-text('Not connected')")  # with one reason after the other
    daemon.start()
    tab.shown("[role=status]:has-text('Shift+Escape')")  # connected: keys before that go nowhere
    tab.click(".xterm")
    tab.type("echo still-$x\n")
    tab.until(f"{SCREEN}.includes('still-kept')")


def test_much_output_does_not_stop_the_page(tab, box):
    show(tab, box, "terminals")
    tab.click("text=New terminal")
    tab.click(".xterm")
    tab.type("seq 1 1000000; echo the-end\n")
    tab.until(f"{SCREEN}.includes('1000000')")
    tab.click("#tab-commands")
    tab.shown("[aria-label='Commands, newest first']")


def test_colours_and_sequences_of_a_machine_keep_the_policy(tab, box):
    """Styles that a terminal needs are not forbidden by the policy; the tab would have faults."""
    show(tab, box, "terminals")
    tab.click("text=New terminal")
    tab.click(".xterm")
    tab.type(r"printf '\033[38;2;120;10;20mred\033[0m \033[44mblue\033[0m \033]0;<img src=x>\007'; echo done" + "\n")
    tab.until("[...document.querySelectorAll('.xterm-rows span')].some((s) => getComputedStyle(s).color === 'rgb(120, 10, 20)')")


# ---- commands ----

def test_a_link_that_a_machine_writes_opens_nothing(tab, daemon, box):
    link = r"\033]8;;https://elsewhere.invalid/\033\\" + "press-this-link" + r"\033]8;;\033\\"
    daemon.post(f"/v1/machines/{box}/execs", {"command": f"printf '{link}\\n'; sleep 600", "terminal": True, "background": True})
    show(tab, box, "terminals")
    tab.until(f"{SCREEN}?.includes('press-this-link')")
    tab.hover(".xterm-screen", {"position": {"x": 30, "y": 8}})
    tab.shown(".xterm-cursor-pointer")  # it knows the link
    tab.click(".xterm-screen", {"position": {"x": 32, "y": 8}})
    assert tab.faults() == []


def test_a_command_is_run_and_its_output_comes_while_it_runs(tab, daemon, box):
    show(tab, box, "commands")
    tab.fill("[aria-label=Command]", "echo ready; echo wrong >&2; read -r x < <(sleep 1000)")
    tab.click("button:text('Run')")
    tab.shown(".output .stdout:has-text('ready')")
    tab.shown(".output .stderr:has-text('wrong')")
    tab.shown("section .badge:text('running')")
    tab.click("button:text('Kill')")
    tab.gone("section .badge:text('running')")


def test_output_is_text_whatever_it_contains(tab, daemon, box):
    daemon.exec(box, "printf '<img src=x onerror=alert(1)><script>alert(2)</script>'")
    show(tab, box, "commands")
    tab.shown(".output:has-text('<script>alert(2)</script>')")
    assert tab.count(".output img, .output script") == 0
