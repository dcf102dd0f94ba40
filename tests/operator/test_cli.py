"""carrel do, as a person uses it."""
import json
import os
import pty
import re
import signal
import subprocess
import time

import pytest

from carrel import PROGRAM
from runs import Runs, call, finish, run, to_the_end, turns


@pytest.fixture
def carrel(daemon, tmp_path):
    def start(*args, turns=None, **kw):
        if turns is not None:
            script = tmp_path / "script.json"
            script.write_text(json.dumps({"turns": turns}))
            args = ("--provider", "rehearsal", "--script", script, *args)
        kw = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **kw}
        return subprocess.Popen([PROGRAM, "do", *map(str, args)], env=daemon.env, text=True, **kw)

    def ran(*args, **kw):
        p = start(*args, **kw)
        out, err = p.communicate(timeout=60)
        return p.returncode, out, err

    ran.start = start
    return ran


def test_one_line_a_step_and_a_report(carrel):
    status, out, err = carrel("Say hello.", turns=to_the_end([run("echo hello")], [call("read", path="/nowhere")]))
    assert status == 0, err
    lines = out.splitlines()
    assert lines[0].startswith("run r-") and "model rehearsal/script" in lines[0]
    assert any("exec" in line and "echo hello" in line and "exit 0" in line for line in lines)
    assert any("read" in line and "/nowhere" in line and "failed" in line for line in lines)
    assert "hello" not in [line.strip() for line in lines] and "Evidence:" in out and "  - it was run" in out
    assert "turns" in lines[-2] and "tokens" in lines[-2]
    machine = lines[0].split()[4].rstrip(",")
    assert lines[-1].startswith(f"Next: carrel sh {machine} ")


def test_a_refused_end_says_why(carrel):
    """The first `done` is not accepted, because nothing was checked. The second one, the control, is."""
    status, out, err = carrel("Say hello.", turns=to_the_end([run("echo hello")]))
    assert status == 0, err
    lines = out.splitlines()
    refused, = [i for i, line in enumerate(lines) if "not accepted" in line]
    assert "finish" in lines[refused] and lines[refused + 1].startswith("      | Not accepted yet. Read the task again")
    assert len([line for line in lines if " finish " in line and " accepted  " in line and "not" not in line]) == 1


def test_a_retried_model_call_is_shown(carrel, daemon):
    fault = {"kind": "status", "status": 429, "retry_after_ms": 20, "times": 2}
    status, out, err = carrel("x", turns=[{"turn": 0, "calls": [run("true")], "fault": fault}, *to_the_end([])[1:]])
    assert status == 0, err
    shown = [line for line in out.splitlines() if "to call the model failed" in line]
    assert [line.split()[1] for line in shown] == ["1", "2"] and "limits the rate of requests" in shown[0], out
    retries = [e for e in Runs(daemon).transcript(out.split()[1]) if e["event"] == "retry"]
    assert [(e["attempt"], e["wait_ms"] > 0) for e in retries] == [(1, True), (2, True)]


def test_calls_are_counted_by_tool(carrel, daemon):
    """In the report, of the run, of its machine and of the daemon."""
    before = {t["tool"]: t for t in daemon.get("/v1/status").get("tools", [])}
    m = daemon.machine(name="counted")
    status, out, err = carrel("counted", "x", turns=to_the_end([run("sleep 0.2")], [call("read", path="/nowhere")], [call("nonsense")]))
    assert status == 0, err
    rows = {line.split()[0]: line.split()[1:4] for line in out.split("TOOL ", 1)[1].splitlines()[1:] if len(line.split()) >= 5}
    assert rows["exec"] == ["2", "0", "0"] and rows["read"] == ["1", "1", "0"] and rows["nonsense"] == ["1", "1", "0"], out
    run_id = out.split()[1]
    told = [e for e in Runs(daemon).transcript(run_id) if e["event"] == "result"]
    assert told[0]["took_ms"] >= 200 and "took_ms" not in told[2], "a tool that does not exist was never called"
    tools = {t["tool"]: t for t in daemon.get(f"/v1/machines/{m}/stats")["tools"]}
    assert (tools["exec"]["calls"], tools["read"]["failed"]) == (2, 1) and tools["exec"]["wall_ms"] >= 200 and "nonsense" not in tools
    after = {t["tool"]: t for t in daemon.get("/v1/status")["tools"]}
    assert after["exec"]["calls"] - before.get("exec", {"calls": 0})["calls"] == 2
    metrics = daemon.request("GET", "/metrics", raw=True).decode()
    assert f'carrel_tool_calls_total{{tool="exec"}} {after["exec"]["calls"]}\n' in metrics
    for words in (["stats", "counted"], ["stats"], ["do", "--show", run_id]):
        shown = subprocess.run([PROGRAM, *words], env=daemon.env, text=True, capture_output=True, timeout=60)
        assert "TOOL " in shown.stdout and "\nexec " in shown.stdout, (words, shown)


def test_a_call_that_woke_its_machine_says_so(carrel, daemon):
    """The control: the next call finds it awake."""
    m = daemon.machine(name="sleepy", idle="1s", idle_action="pause")
    daemon.until(lambda: daemon.get(f"/v1/machines/{m}")["state"] == "paused")
    status, out, err = carrel("sleepy", "x", turns=turns([call("read", path="/etc/hostname")], [call("read", path="/etc/passwd")], [finish("partial")]))
    lines = [line for line in out.splitlines() if " read " in line]
    assert len(lines) == 2 and lines[0].endswith("; the machine was woken") and "woken" not in lines[1], (out, err)


def test_the_end_names_the_command_that_comes_next(carrel, daemon, tmp_path):
    (tmp_path / "work").mkdir()
    script = turns([run("echo x > made")], [finish("partial")])
    _, out, err = carrel("--dir", f"{tmp_path}/work:/home/user/work", "x", turns=script)
    assert re.search(r"\nNext: carrel ship m-\w+   \(or, to send it back: carrel ship m-\w+ --return COMMENT\)\n$", out), (out, err)
    _, out, err = carrel("x", turns=turns([run("echo x > made")], [finish("partial", outputs=["/home/user/made"])]))
    assert re.search(r"\nNext: carrel cp m-\w+:/home/user/made \.\n$", out), (out, err)


def test_a_call_is_shown_up_to_its_last_character(carrel):
    status, out, err = carrel("Say hello.", turns=to_the_end([run("echo caf\u00e9")]))
    assert status == 0 and any("echo caf\u00e9" in line for line in out.splitlines()), (out, err)


def test_verbose_shows_output_and_words(carrel):
    status, out, _ = carrel("-v", "Say hello.", turns=to_the_end([run("echo hello; echo worse >&2")]))
    assert status == 0 and "      | hello\n" in out and "      | worse\n" in out and "      | turn 0\n" in out


def test_json_is_the_run(carrel, daemon):
    machine = daemon.machine(name="mine")
    status, out, _ = carrel("--json", "mine", "Say hello.", turns=turns([run("echo x > made")], [finish("blocked")]))
    view = json.loads(out)
    assert (status, view["machine"], view["status"]) == (1, machine, "blocked")
    assert daemon.exec(machine, "cat made")["stdout"] == "x\n"


def test_what_a_terminal_shows_cannot_repaint_it(carrel):
    _, out, _ = carrel("-v", "x", turns=turns([run("printf '\\033[2Jgone'")], [finish("partial", summary="\x1b[2J")]))
    assert "\x1b" not in out


def test_budgets_by_words(carrel):
    status, out, _ = carrel("--turns", "2", "--timeout", "1m", "x", turns=[{"calls": [run("echo more")]}])
    assert status == 1 and "\nbudget: The budget of turns is used up (2 of 2)." in out
    status, _, err = carrel("--money", "lots", "x", turns=turns([finish()]))
    assert status == 125 and "--money lots: must be an amount such as 1.50" in err


@pytest.mark.parametrize("args,words", [((), "no task"), (("a", "b", "c"), "unexpected argument"), (("--resume", "r-aaaaaaaaaaaa"), "does not exist"),
                                        (("--provider", "x", "task"), "--provider requires --model"), (("--script", "/nowhere", "t"), "/nowhere"),
                                        (("--ls", "task"), "unexpected argument 'task'")])
def test_words_that_make_no_sense(carrel, args, words):
    status, out, err = carrel(*args)
    assert status == 125 and words in err and err.count("\n") == 1


def test_interrupted_and_resumed(carrel, daemon):
    """The daemon dies in the middle; the command says how to go on."""
    p = carrel.start("x", turns=turns([run("echo once >> f")], [run("sleep 5; echo twice >> f", yield_ms=50000)],
                                      [run("cat f")], [finish("partial")]))
    first = p.stdout.readline()
    run_id, machine = first.split()[1], first.split()[4].rstrip(",")
    daemon.until(lambda: daemon.get(f"/v1/machines/{machine}")["commands"] == 1 and
                 len(Runs(daemon).transcript(run_id)) >= 7)
    daemon.restart()
    _, err = p.communicate(timeout=30)
    assert p.returncode in (2, 125) and f"carrel do --resume {run_id}" in err
    assert daemon.get(f"/v1/runs/{run_id}")["state"] == "interrupted"
    status, out, err = carrel("-v", "--resume", run_id)
    assert status == 1 and "      | once\n      | twice\n" in out, (out, err)


def test_ls_and_cancel(carrel, daemon):
    p = carrel.start("A long task.", turns=turns([run("sleep 100", yield_ms=50000)]))
    run_id = p.stdout.readline().split()[1]
    status, out, _ = carrel("--ls")
    assert status == 0 and run_id in out and "running" in out and "A long task." in out
    assert carrel("--cancel", run_id)[0] == 0
    p.communicate(timeout=30)
    assert p.returncode == 1
    assert "cancelled" in carrel("--ls")[1]


def test_one_interrupt_lets_go_and_two_cancel(carrel, daemon):
    script = turns([run("sleep 100", yield_ms=50000)])
    p = carrel.start("x", turns=script)
    run_id = p.stdout.readline().split()[1]
    time.sleep(0.5)
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=30)
    assert f"carrel do --resume {run_id}" in err and daemon.get(f"/v1/runs/{run_id}")["state"] == "running"
    p = carrel.start("--resume", run_id)
    p.stdout.readline()
    time.sleep(0.5)
    for _ in range(2):
        p.send_signal(signal.SIGINT)
        time.sleep(0.3)
    p.communicate(timeout=30)
    assert p.returncode == 1 and daemon.get(f"/v1/runs/{run_id}")["status"] == "cancelled"


def test_a_person_is_asked(carrel):
    main, side = pty.openpty()
    p = carrel.start("-v", "x", turns=turns([call("ask", question="Which colour?", options=["red", "blue"])], [finish("partial")]),
                     stdin=side)
    os.close(side)
    os.write(main, b"blue\n")
    out, err = p.communicate(timeout=30)
    os.close(main)
    assert "Question 1: Which colour?\n  1. red\n  2. blue\n" in out and "      | blue\n" in out, (out, err)


def test_an_answer_is_chosen_by_its_number(carrel):
    """A number that no option has, the control, is an answer in words."""
    main, side = pty.openpty()
    asks = [call("ask", question="Which colour?", options=["red", "blue"])]
    p = carrel.start("-v", "x", turns=turns(asks, asks, [finish("partial")]), stdin=side)
    os.close(side)
    os.write(main, b"2\n3\n")
    out, err = p.communicate(timeout=30)
    os.close(main)
    assert "Question 2: Which colour?" in out, (out, err)
    assert re.findall(r"      \| (blue|red|\d)\n", out) == ["blue", "3"], out


def test_without_a_terminal_nobody_is_asked(carrel):
    _, out, _ = carrel("x", turns=turns([call("ask", question="Which?")], [finish("blocked")]))
    assert "blocked" in out


def test_a_machine_without_a_task_is_asked_for_one(carrel, daemon):
    """Its name was taken for the task of a new machine. A word that names no machine, the control, is a task."""
    m = daemon.machine(name="fix")
    before = len(daemon.machines())
    status, _, err = carrel("fix", turns=to_the_end([run("true")]))
    assert status == 125 and "no task given for machine 'fix': use: carrel do fix \"TASK\"" in err, err
    near, far = pty.openpty()
    p = carrel.start("fix", turns=to_the_end([run("true")]), stdin=far, stderr=far)
    os.close(far)
    asked = b""
    while not asked.endswith(b"task for machine 'fix': "):
        asked += os.read(near, 4096)
    os.write(near, b"Look around.\n")
    out, _ = p.communicate(timeout=60)
    os.close(near)
    assert p.returncode == 0, out
    shown, = [r for r in daemon.get("/v1/runs")["runs"] if r["machine"] == m]
    assert shown["task"] == "Look around." and len(daemon.machines()) == before
    status, out, err = carrel("Look", turns=to_the_end([run("true")]))
    assert status == 0, err
