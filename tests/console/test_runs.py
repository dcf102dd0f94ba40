"""The pages Runs and Approvals: a run from its start to its report, questions, held requests."""
import base64
import json
import pathlib

from browser import need_browser
from console import decide, visit

need_browser()

HELLO = (pathlib.Path(__file__).resolve().parents[2] / "examples/hello.json").read_text()


def finish(status="partial", **more):
    return {"tool": "finish", "arguments": {"status": status, "summary": "It is over.", "evidence": [], "open_issues": ["more"], **more}}


def start(daemon, *turns, **more):
    return daemon.post("/v1/runs", {"task": "t", "model": "rehearsal/r", "script": json.dumps({"turns": turns}), **more})["id"]


# The second click of a double click, in the instant in which another question is there.
AGAIN = """new MutationObserver((_, self) => {
    if (!document.querySelector('.question')?.textContent.includes('delete')) return;
    self.disconnect();
    document.querySelector('.question .bar button').dispatchEvent(new MouseEvent('click', { bubbles: true, detail: 2 }));
}).observe(document.querySelector('main'), { childList: true, subtree: true, characterData: true })"""


def test_a_run_is_started_followed_and_exported(tab, daemon):
    visit(tab, "runs")
    tab.click("text=Start a run")
    tab.fill("label:has-text('Task') textarea", "Say hello.")
    tab.fill("label:has-text('Model') input", "rehearsal/hello")
    tab.fill("label:has-text('Script') textarea", HELLO)
    tab.click("summary:has-text('Limits')")
    tab.fill("label:has-text('Turns') input", "12")
    tab.click("dialog button:text('Start')")
    tab.shown(".said.owner:has-text('Say hello.')")
    tab.shown(".said.model:has-text('I greet.')")
    tab.shown(".report:has-text('The greeting is in /home/user/greeting.')")
    tab.shown(".budget:has-text('4 of 12')")
    tab.click(".call summary:has-text('cat greeting')")
    tab.shown(".call pre:has-text('stdout: hello')")
    [run] = daemon.get("/v1/runs")["runs"]
    kept = json.loads(base64.b64decode(tab.download("button:text('Export')")["base64"]))
    assert kept["schema_version"].startswith("ATIF") and run["id"] in json.dumps(kept)
    visit(tab, "runs")
    tab.shown(".row:has-text('Say hello.'):has-text('done')")


def test_the_form_says_what_a_mode_is_and_asks_for_the_menu_that_one_needs(tab, daemon):
    menu = (pathlib.Path(__file__).resolve().parents[2] / "examples/menu.json").read_text()
    visit(tab, "runs")
    tab.click("text=Start a run")
    tab.shown("small:has-text('reads every result')")
    tab.selectOption("label:has-text('Mode') select", "action-selector")
    tab.shown("small:has-text('calls that you wrote')")
    tab.fill("label:has-text('Task') textarea", "Look.")
    tab.fill("label:has-text('Model') input", "rehearsal/r")
    tab.fill("label:has-text('Script') textarea", json.dumps({"turns": [{"calls": [finish()]}]}))
    tab.fill("label:has-text('Menu') textarea", menu)
    tab.click("dialog button:text('Start')")
    tab.shown("p:has-text('action-selector')")
    assert "action-selector" in [run["mode"] for run in daemon.get("/v1/runs")["runs"]]


def test_a_question_of_a_run_is_answered(tab, daemon):
    ask = {"tool": "ask", "arguments": {"question": "Which <i>colour</i>?", "options": ["red", "blue"]}}
    plan = {"tool": "plan", "arguments": {"items": [{"text": "ask", "status": "doing"}, {"text": "paint", "status": "todo"}]}}
    run = start(daemon, {"turn": 0, "calls": [plan, ask]}, {"after": "blue", "calls": [finish()]}, {"calls": [finish()]})
    visit(tab, "runs", run)
    tab.shown(".plan .doing:has-text('ask')")
    tab.shown(".question:has-text('Which <i>colour</i>?')")
    tab.click(".question[aria-busy=false] button:text('blue')")
    tab.shown(".report")
    tab.gone(".question")
    assert "blue" in daemon.request("GET", f"/v1/runs/{run}/transcript", raw=True).decode()


def test_what_was_meant_for_one_question_answers_no_other(tab, daemon):
    """A model can ask something else, with the same options, at the moment in which the user presses."""
    asks = [{"tool": "ask", "arguments": {"question": q, "options": ["yes"]}} for q in ("May I look?", "May I delete all\u202e?")]
    run = start(daemon, {"turn": 0, "calls": asks[:1]}, {"turn": 1, "calls": asks[1:]}, {"calls": [finish()]})
    visit(tab, "runs", run)
    tab.fill(".question textarea", "look, but touch nothing")
    tab.shown(".question[aria-busy=false]:has-text('May I look?')")
    tab.evaluate(AGAIN)
    tab.click(".question button:text('yes')")
    tab.reads("Nothing was answered")
    tab.shown(r".question:has-text('May I delete all\\u202e?')")
    assert tab.inputValue(".question textarea") == ""
    assert daemon.get(f"/v1/runs/{run}")["question"]["question"].startswith("May I delete")
    tab.click(".question[aria-busy=false] button:text('yes')")  # the control
    tab.shown(".report")


def test_a_run_that_ended_is_continued_and_one_that_leaves_a_request_says_so(tab, daemon):
    machine = daemon.machine(net=[{"action": "ask", "target": "http://a.invalid:80"}])
    leave = {"tool": "exec", "arguments": {"cmd": "setsid curl -s -m 200 http://a.invalid/late >/dev/null 2>&1 &"}}
    run = start(daemon, {"turn": 0, "calls": [leave]}, {"turn": 1, "calls": [finish()]}, {"say": "I go on.", "calls": [finish()]},
                machine=machine, task="Ask for the page.\n\nThe whole of it.")
    visit(tab, "runs", run)
    tab.shown("h1:text-is('Ask for the page.')")
    tab.shown(".report")
    tab.shown(".warning:has-text('has ended'):has-text('1 request of its machine still waits')")
    tab.click("button:text('Continue')")
    tab.fill("dialog textarea", "once more")
    tab.click("dialog button:text('Continue')")
    tab.shown(".said.owner:has-text('once more')")
    tab.shown(".said.model:has-text('I go on.')")


def test_plans_and_waits_are_not_shown_as_json(tab, daemon):
    items = [{"text": "look", "status": "done"}, {"text": "paint", "status": "todo"}]
    machine = daemon.machine(net=[{"action": "ask", "target": "http://a.invalid:80"}])
    get = {"tool": "exec", "arguments": {"cmd": "curl -s -m 200 http://a.invalid/held"}}
    run = start(daemon, {"turn": 0, "calls": [{"tool": "plan", "arguments": {"items": items}}, get]}, {"calls": [finish()]}, machine=machine)
    visit(tab, "runs", run)
    tab.shown(".said:has-text('Waiting: your approval of GET http://a.invalid:80/held')")
    tab.click(".call summary:has-text('2 steps, 1 done')")
    tab.shown(".call pre:has-text('text: look')")
    assert "{" not in tab.evaluate("document.querySelector('.talk').textContent")
    visit(tab, "approvals")
    decide(tab, "Refuse")


def test_a_provider_without_a_key_is_said_and_the_secret_counts_at_once(daemon, browser):
    tab = browser.open(daemon.link_url())
    tab.shown("nav")
    visit(tab, "runs")
    tab.click("text=Start a run")
    tab.fill("label:has-text('Model') input", "anthropic/some")
    tab.shown("dialog .advice:has-text('ANTHROPIC_API_KEY'):has-text('environment')")
    tab.shown("dialog .advice code:has-text('key_secret=ANTHROPIC_API_KEY')")
    line = tab.evaluate("document.querySelector('dialog .advice .bar code').textContent")
    tab.key("Escape")
    before = daemon.conf.read_text()
    daemon.conf.write_text(f"[models]\n{line}\n{before}")
    daemon.restart()
    visit(tab, "models")
    tab.shown(".fact:has-text('anthropic'):has-text('not ready'):has-text('key: not set, from the secret ANTHROPIC_API_KEY')")
    visit(tab, "runs")
    tab.click("text=Start a run")
    tab.fill("dialog label:has-text('Task') textarea", "A long task.")
    tab.fill("dialog label:has-text('Model') input", "anthropic/some")
    tab.click("dialog .advice button:text('Store the key')")
    tab.fill("dialog[aria-label^=Store] label:has-text('Value') input", "not a real value")
    tab.click("dialog[aria-label='Store secret ANTHROPIC_API_KEY'] button[type=submit]")
    tab.gone("dialog .advice")
    assert tab.inputValue("dialog label:has-text('Task') textarea") == "A long task."
    tab.key("Escape")
    visit(tab, "models")
    tab.shown(".fact:has-text('anthropic') .badge:text-is('ready')")
    daemon.delete("/v1/secrets/ANTHROPIC_API_KEY")
    daemon.conf.write_text(before)
    daemon.restart()
    tab.done()


def test_many_tries_are_shown_side_by_side_and_leave_the_page_usable(tab, daemon):
    """A browser keeps six connections open: the tries must not use them up."""
    wait = {"tool": "exec", "arguments": {"cmd": "until [ -e go ]; do sleep .1; done; echo gone"}}
    run = start(daemon, {"turn": 0, "say": "I wait.", "calls": [wait]}, {"calls": [finish()]}, tries=6)
    visit(tab, "runs", run)
    for n in range(1, 7):
        tab.shown(f".tries .panel:has-text('Try {n}') .said:has-text('I wait.')")
    visit(tab, "machines")
    tab.until("document.querySelectorAll('.row.opens').length === 6")
    for machine in daemon.get("/v1/machines")["machines"]:
        daemon.exec(machine["id"], "touch go")
    visit(tab, "runs", run)
    for n in range(1, 7):
        tab.shown(f".tries .panel:has-text('Try {n}') .badge:has-text('partial')")


def test_a_run_goes_on_in_the_page_after_a_restart_of_the_daemon(tab, daemon):
    ask = {"tool": "ask", "arguments": {"question": "Go on?"}}
    run = start(daemon, {"turn": 0, "calls": [ask]}, {"calls": [finish()]})
    visit(tab, "runs", run)
    tab.shown(".question:has-text('Go on?')")
    daemon.restart(hard=True)
    tab.click("button:text('Resume')")
    tab.fill(".question textarea", "yes")
    tab.click(".question[aria-busy=false] button:text('Answer')")
    tab.shown(".report")


def test_a_reload_in_the_middle_keeps_what_waits(tab, daemon):
    run = start(daemon, {"turn": 0, "calls": [{"tool": "ask", "arguments": {"question": "Go on?"}}]}, {"calls": [finish()]})
    machine = daemon.machine(name="asks-for-a", net=[{"action": "ask", "target": "http://a.invalid:80"}])
    daemon.post(f"/v1/machines/{machine}/execs", {"command": "curl -s -m 60 http://a.invalid/", "background": True})
    visit(tab, "approvals")
    tab.shown(".pending pre:has-text('GET http://a.invalid:80/')")
    tab.reload()
    tab.shown(f".pending a[href='#/machines/{machine}']:text('asks-for-a')")
    decide(tab, "Approve once", ".pending:has-text('a.invalid')")
    visit(tab, "runs", run)
    tab.fill(".question textarea", "half of an ans")
    tab.reload()
    tab.fill(".question textarea", "yes")
    tab.click(".question[aria-busy=false] button:text('Answer')")
    tab.shown(".report")


def test_a_held_request_is_refused_or_allowed_always(tab, daemon):
    machine = daemon.machine(net=[{"action": "ask", "target": "http://a.invalid:80"}])
    get = {"command": "curl -s -m 60 http://a.invalid/path?x=1", "background": True}
    for press, rules in (("d", 1), ("A", 2)):
        daemon.post(f"/v1/machines/{machine}/execs", get)
        tab.shown("nav .count:has-text('1')")
        visit(tab, "approvals")
        tab.shown(".pending pre:has-text('GET http://a.invalid:80/path?x=1')")
        tab.shown(".pending:has-text('allow GET http://a.invalid:80/path?x=1')")
        tab.shown(".pending.current:not(.fresh)")
        tab.key(press)
        tab.gone(".pending")
        assert len(daemon.get(f"/v1/machines/{machine}/net")["rules"]) == rules
        visit(tab, "machines")


# Another window is in front, and each notification that the browser shows is known.
NOTES = """
document.hasFocus = () => false;
window.shownNotes = [];
window.Notification = class extends Notification {
  constructor(...words) {
    super(...words);
    this.addEventListener("show", () => window.shownNotes.push([this.title, this.body]));
    window.lastNote = this;
  }
};
"""


def test_the_browser_notifies_of_a_held_request(daemon, browser):
    tab = browser.open("about:blank", permissions=["notifications"])
    tab.addInitScript({"content": NOTES})
    tab.goto(daemon.link_url())
    tab.shown("nav")
    visit(tab, "approvals")
    tab.click("text=Notify me")
    tab.shown("button:text('Stop notifying')")
    machine = daemon.machine(net=[{"action": "ask", "target": "http://a.invalid:80"}])
    daemon.post(f"/v1/machines/{machine}/execs", {"command": "curl -s -m 60 http://a.invalid/path", "background": True})
    visit(tab, "machines")
    tab.until("window.shownNotes.length === 1")
    assert tab.evaluate("window.shownNotes[0]") == ["A machine waits for you", "GET http://a.invalid:80/path"]
    tab.evaluate("window.lastNote.dispatchEvent(new Event('click'))")
    tab.shown(".pending pre:has-text('GET http://a.invalid:80/path')")
    assert tab.evaluate("window.shownNotes.length") == 1
    tab.done()


def test_a_browser_that_forbids_notifications_is_told_of(daemon, browser):
    tab = browser.open(daemon.link_url(), permissions=[])
    tab.shown("nav")
    visit(tab, "approvals")
    tab.click("text=Notify me")
    tab.shown(".advice:has-text('forbids notifications'):has-text('settings of the site')")
    tab.done()


def test_a_program_asks_that_its_machine_becomes_a_vm(tab, daemon):
    machine = daemon.machine()
    x = daemon.post(f"/v1/machines/{machine}/execs", {"argv": ["carrel", "move", "to <b>mount</b>"], "background": True})["id"]
    visit(tab, "approvals")
    tab.shown(".pending .badge:has-text('move to a vm')")
    tab.shown(".pending pre:has-text('Become a vm: to <b>mount</b>')")
    assert tab.count(".pending textarea") == 0
    tab.click(".pending:not([aria-busy=true]) button:text('Approve and move')")
    tab.shown(f"dialog:has-text('Make {machine} a vm')")
    tab.click("dialog button:text('Cancel')")
    tab.shown(".pending.current:not(.fresh)")
    tab.key("d")
    tab.gone(".pending")
    daemon.until(lambda: daemon.get(f"/v1/machines/{machine}/execs/{x}")["state"] == "exited")


def test_a_program_in_a_machine_gets_an_answer(tab, daemon):
    machine = daemon.machine()
    x = daemon.post(f"/v1/machines/{machine}/execs", {"argv": ["carrel", "ask", "Which <b>port</b>?"], "background": True})["id"]
    visit(tab, "approvals")
    tab.shown(".pending:has-text('Which <b>port</b>?')")
    tab.fill(".pending textarea", "8080")
    decide(tab, "Answer")
    daemon.until(lambda: b"8080" in daemon.request("GET", f"/v1/machines/{machine}/execs/{x}/output", raw=True))


def test_a_run_goes_back_to_a_checkpoint_and_on_from_there(tab, daemon):
    write = lambda text: {"tool": "exec", "arguments": {"cmd": f"echo {text} >note"}}  # noqa: E731
    run = start(daemon, {"turn": 0, "calls": [write("wrong")]}, {"turn": 1, "calls": [finish()]},
                {"turn": 2, "calls": [{"tool": "exec", "arguments": {"cmd": "ls note; echo right >note"}}]},
                {"turn": 3, "calls": [finish()]})
    visit(tab, "runs", run)
    tab.shown(".report")
    machine = daemon.get(f"/v1/runs/{run}")["machine"]
    assert daemon.exec(machine, "cat note")["stdout"] == "wrong\n"
    tab.click(".said:has-text('Checkpoint') button:text('Resume from here')")
    tab.fill("dialog textarea", "use another word")
    tab.click("dialog button:text('Rewind and resume')")
    tab.shown(".said.owner:has-text('use another word')")
    tab.shown(".call:has-text('echo right')")
    daemon.until(lambda: daemon.get(f"/v1/runs/{run}")["state"] == "ended")
    transcript = daemon.request("GET", f"/v1/runs/{run}/transcript", raw=True).decode()
    assert "rewound to the checkpoint" in transcript and "No such file" in transcript  # the wrong note was undone
    assert daemon.exec(machine, "cat note")["stdout"] == "right\n"
