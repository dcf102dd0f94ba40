"""The page of one machine: its steps, terminals, files, commands, network, grants and ports."""
import base64

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


# ---- terminals ----

SCREEN = "document.querySelector('.xterm-rows')?.innerText"


def test_a_terminal_runs_what_is_typed_and_outlives_the_page(tab, daemon, box):
    show(tab, box, "terminals")
    tab.click("text=New terminal")
    tab.click(".xterm")
    tab.type("echo $((6 * 7))-is-it; stty size\n")
    tab.until(f"{SCREEN}.includes('42-is-it')")
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
    tab.click("button:has-text('1:')")
    tab.until("document.querySelectorAll('.xterm-rows')[0].checkVisibility() && document.querySelectorAll('.xterm-rows').length === 2")


def test_a_terminal_goes_on_after_a_lost_connection(tab, daemon, box):
    show(tab, box, "terminals")
    tab.click("text=New terminal")
    tab.click(".xterm")
    tab.type("x=kept\n")
    tab.until(f"{SCREEN}.includes('x=kept')")
    daemon.kill()
    tab.reads("Connection lost")
    daemon.start()
    tab.gone("[role=status]:has-text('lost')")
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


# ---- files ----

def test_a_file_is_viewed_edited_and_saved(tab, daemon, box):
    daemon.exec(box, "echo before >note; mkdir folder; echo deep >folder/inner; ln -s folder link")
    show(tab, box, "files")
    tab.click(".row:has-text('link (link)')")
    tab.shown(".row:has-text('inner')")
    tab.goBack()
    tab.click(".row:has-text('note')")
    tab.shown("textarea")
    assert tab.inputValue("textarea") == "before\n"
    tab.fill("textarea", "after\n")
    tab.click("button:text('Save')")
    tab.reads("Saved 6 B.")
    assert daemon.exec(box, "cat note")["stdout"] == "after\n"


def test_a_save_does_not_overwrite_what_somebody_else_wrote(tab, daemon, box):
    daemon.exec(box, "echo before >note")
    show(tab, box, "files")
    tab.click(".row:has-text('note')")
    tab.fill("textarea", "mine")
    daemon.exec(box, "echo theirs >note")
    tab.click("button:text('Save')")
    tab.shown(".toast.bad")
    assert daemon.exec(box, "cat note")["stdout"] == "theirs\n"


def test_files_go_up_and_come_down(tab, daemon, box):
    content = bytes(range(256)) * 300
    show(tab, box, "files")
    tab.upload("button:text('Upload')", "up.bin", base64.b64encode(content).decode())
    tab.click(".row:has-text('up.bin')")
    tab.reads("This file is not text.")
    came = tab.download("section button:text('Download')")
    assert (came["name"], base64.b64decode(came["base64"])) == ("up.bin", content)
    tab.click("[title='Delete up.bin']")
    tab.click("dialog button:text('Delete')")
    tab.gone(".row:has-text('up.bin')")
    assert daemon.exec(box, "test -e up.bin")["exec"]["status"] == 1


def test_a_hostile_file_name_and_content_are_text(tab, daemon, box):
    name = "<img src=x onerror=alert(1)>.html"
    daemon.exec(box, f"echo '<script>alert(1)</script>' >'{name}'")
    show(tab, box, "files")
    tab.click(".row:has-text('onerror')")
    tab.shown("textarea")
    assert tab.inputValue("textarea") == "<script>alert(1)</script>\n"
    assert tab.count("main img, main script") == 0


# ---- network, grants, ports ----

def test_a_refused_host_is_allowed_with_the_rule_that_is_shown(tab, daemon, box):
    daemon.exec(box, "curl -sS -m 9 https://wanted.example/x; true")
    show(tab, box, "network")
    tab.click("li:has-text('https://wanted.example') button:text('Allow')")
    tab.reads("carrel net box allow https://wanted.example")
    tab.click("text=Add this rule")
    tab.shown("[aria-label=Rules] li:has-text('https://wanted.example')")
    [rule] = daemon.get(f"/v1/machines/{box}/net")["rules"]
    assert (rule["action"], rule["target"]) == ("allow", "https://wanted.example")
    tab.click(f"[title='Delete rule {rule['id']}']")
    tab.reads("No rule: the machine reaches nothing.")


def test_a_secret_is_granted_by_its_name_and_revoked(tab, daemon, box):
    daemon.put("/v1/secrets/PAGE_TOKEN", {"value": "hidden-value-1234567890"})
    try:
        show(tab, box, "grants")
        tab.click("text=Grant a secret")
        tab.selectOption("dialog select", "PAGE_TOKEN")
        tab.fill("dialog input", "api.example")
        tab.click("dialog button:text('Grant')")
        tab.shown("[aria-label=Grants] li:has-text('PAGE_TOKEN → api.example')")
        assert "hidden-value" not in tab.content()
        tab.click("button:text('Revoke')")
        tab.reads("Nothing is granted to this machine.")
        assert daemon.get(f"/v1/machines/{box}/grants")["grants"] == []
    finally:
        daemon.delete("/v1/secrets/PAGE_TOKEN")


def test_a_port_is_exposed_at_another_origin_and_closed(tab, daemon, box):
    show(tab, box, "grants")
    tab.click("text=Expose a port")
    tab.fill("dialog input", "8000")
    tab.click("dialog button:text('Expose')")
    tab.shown("[aria-label=Ports] a:text('Open')")
    host = tab.evaluate("document.querySelector('[aria-label=Ports] a').host")
    assert host.startswith(f"8000-{box}.") and host != tab.evaluate("location.host")
    tab.click("[title='Close port 8000']")
    tab.reads("No port can be reached from outside.")


@pytest.mark.parametrize("name", ["timeline", "terminals", "commands", "files", "network", "grants"])
def test_no_part_has_serious_findings_of_axe(tab, daemon, box, name):
    daemon.exec(box, "echo one >note; curl -sS -m 9 https://wanted.example/x; true")
    show(tab, box, name)
    tab.shown({"timeline": ".step", "commands": ".command", "files": ".row:has-text('note')"}.get(name, ".bar"))
    assert tab.axe() == []
