"""The agent loop from outside: a rehearsal plays the model, everything else is real."""
import contextlib
import json
import subprocess
import time

import pytest

from carrel import BUILD
from daemon import Refused
from runs import call, finish, notes, results, run, to_the_end, turns


def outcome(result):
    return json.loads(result["text"])


def test_a_task_from_beginning_to_end(runs, daemon):
    view, t = runs.play(to_the_end(
        [run("echo hi > f; cat f")],
        [call("write", path="/home/user/g", content="one\n"), call("read", path="/home/user/f")],
        [call("edit", path="/home/user/g", edits=[{"old": "one", "new": "one two"}])]), task="Write two files.")
    assert (view["state"], view["status"]) == ("ended", "done")
    assert view["report"]["evidence"] == ["it was run"] and view["turns"] == 6 and view["calls"] == 7
    assert daemon.exec(view["machine"], "cat f g")["stdout"] == "hi\none two\n"
    assert [e["event"] for e in t][0] == "start" and t[-1]["event"] == "end" and t[-1]["status"] == "done"


def test_the_journal_has_every_intent_and_result(runs, daemon):
    view, t = runs.play(to_the_end([run("echo hi")]))
    lines = daemon.request("GET", "/v1/audit", raw=True, verb="run").decode().splitlines()
    records = [json.loads(line) for line in lines]
    mine = [r for r in records if r.get("detail", {}).get("run") == view["id"] and r["kind"] == "intent"]
    assert {r["verb"] for r in mine} == {"run.start", "run.ask", "run.call", "run.end"}
    seqs = {r["seq"] for r in mine}
    assert seqs <= {r.get("intent") for r in records if r["kind"] == "result"}
    daemon.get("/v1/audit/verify")


def test_calls_that_only_look_are_made_at_once(runs):
    view, t = runs.play(to_the_end([call("search", pattern="x", path="/etc", glob="passwd"), call("read", path="/etc/hostname"),
                                    run("echo later")]))
    kinds = [(e["event"], e.get("index", 0)) for e in t if e["event"] in ("call", "result")][:6]
    assert kinds[:2] == [("call", 0), ("call", 1)]
    assert set(kinds[2:4]) == {("result", 0), ("result", 1)} and kinds[4:] == [("call", 2), ("result", 2)]


def test_done_needs_evidence_that_was_run(runs):
    view, t = runs.play(turns([finish()], [finish()], [finish()], [finish()]))
    assert (view["status"], view["report"]["reason"]) == ("partial", "the model was asked to run a check and did not")
    texts = [r["text"] for r in results(t)]
    assert "Not accepted yet" in texts[0] and "you have run nothing since you were asked for evidence" in texts[1]
    view, t = runs.play(to_the_end([run("true")]))
    assert view["status"] == "done"


def test_partial_and_blocked_are_accepted_at_once(runs):
    for status in ("partial", "blocked"):
        view, _ = runs.play(turns([finish(status)]))
        assert view["status"] == status and view["report"]["open_issues"] == ["the rest"]


# ---- bad answers ----

@pytest.mark.parametrize("bad,words", [
    ({"tool": "exec", "raw": "{\"cmd\": \"l"}, "not JSON"),
    (call("exec", cmd=5), "cmd"),
    (call("exec", cmd="true", wings=2), "wings"),
    (call("read"), "path"),
    (call("approve", id="p-1"), "There is no tool 'approve'"),
    (call("machine_create"), "There is no tool 'machine_create'"),
    (call("finish", status="done", summary="x"), "evidence"),
])
def test_a_call_that_cannot_be_made_is_told_in_words(runs, bad, words):
    view, t = runs.play(to_the_end([bad]))
    first = results(t)[0]
    assert first["failed"] and words in first["text"] and view["status"] == "done"


def test_answers_that_cannot_be_read_three_times_end_it(runs):
    bad = [{"tool": "exec", "raw": "{oops"}]
    view, t = runs.play(turns(bad, bad, bad, [finish()]))
    assert view["status"] == "format_error" and len(results(t)) == 3


def test_fifty_megabytes_are_no_burden(runs):
    view, t = runs.play(to_the_end([run("head -c 50000000 /dev/zero | tr '\\0' x; echo; echo the end", max_output=1000000)]))
    first = results(t)[0]
    assert view["status"] == "done" and len(first["text"]) < 100000 and first["bytes"] > 900000
    assert "the end" in first["text"] and "bytes left out" in first["text"]


def test_a_model_that_loops_is_told_rewound_and_stopped(runs, daemon):
    loop = {"calls": [run("echo again; exit 1")]}
    view, t = runs.play([{"turn": 0, "calls": [run("echo x > mine")]}, *[{"turn": i, **loop} for i in range(1, 10)],
                         {"calls": [finish("partial")]}])
    assert view["status"] == "stuck" and view["report"]["claimed"] == "partial"
    assert len(notes(t, "stuck")) == 3 and view["report"]["rewinds"] == 1
    assert "try another approach" in notes(t, "stuck")[0] and "All files were rewound to the last checkpoint" in notes(t, "stuck")[1]
    assert len([e for e in t if e["event"] == "call"]) == 10
    assert daemon.exec(view["machine"], "ls")["stdout"] == "", "the rewind took back what was made"


def test_a_model_that_goes_back_and_forth(runs):
    a, b = [run("echo a")], [run("echo b")]
    view, t = runs.play(turns(a, b, a, b, a, b, [finish("partial")]))
    assert "you alternate between the same two calls" in notes(t, "stuck")[0] and view["status"] == "partial"


def test_a_model_that_stops_early(runs):
    view, t = runs.play([{"say": "I am done."}])
    assert (view["status"], view["report"]["reason"]) == ("partial", "the model stopped without a report")
    assert len(notes(t, "nudge")) == 2
    view, t = runs.play(turns({"say": "Hm."}, [finish("partial")]))
    assert view["status"] == "partial" and "reason" not in view["report"]


def test_a_model_that_refuses(runs):
    view, _ = runs.play([{"say": "No.", "stop": "refused"}])
    assert view["status"] == "refused"


# ---- budgets ----

def test_turns(runs):
    view, t = runs.play([*[{"turn": i, "calls": [run(f"echo {i}")]} for i in range(10)], {"calls": [finish("partial")]}], turns=10)
    assert (view["status"], view["turns"], view["report"]["claimed"]) == ("budget", 11, "partial")
    assert len(notes(t, "warn_turns")) == 1 and len(notes(t, "budget")) == 1


def test_only_finish_is_left_when_a_budget_is_spent(runs):
    view, t = runs.play([{"calls": [run("echo more")]}], turns=2)
    assert view["status"] == "budget" and "only finish can be called" in results(t)[-1]["text"]
    assert "claimed" not in view["report"]


def test_tokens(runs):
    # The estimate of a call is held before it: a budget that is too small for one allows none.
    view, t = runs.play([{"calls": [run("echo more")]}], tokens=2000)
    assert (view["status"], view["turns"]) == ("budget", 0) and notes(t, "spent")
    usage = {"in": 30000, "out": 1000}
    view, t = runs.play([{"calls": [run("echo more")], "usage": usage}], tokens=100000)
    assert view["status"] == "budget" and view["tokens"] < 150000 and view["turns"] >= 2


def test_money(runs):
    usage = {"in": 100000, "out": 10000}  # 0.12 at the price of `cheap`
    view, t = runs.play([{"calls": [run("echo more")], "usage": usage}], model="rehearsal/cheap", money_micro=500000)
    assert view["status"] == "budget" and 360000 <= view["cost_micro"] <= 620000
    with pytest.raises(Refused) as e:
        runs.start(turns([finish()]), money_micro=1)
    assert "has no price" in e.value.error["message"]


def test_wall(runs):
    view, t = runs.play([{"turn": 0, "calls": [run("sleep 100", yield_ms=50000)]}, {"calls": [finish("partial")]}], timeout=1)
    assert view["status"] == "budget" and 900 <= view["wall_ms"] < 20000
    assert "budget of time" in results(t)[0]["text"]


# ---- the provider ----

@pytest.mark.parametrize("fault", [{"kind": "status", "status": 429, "retry_after_ms": 20, "times": 2},
                                   {"kind": "status", "status": 500}, {"kind": "garbage"}, {"kind": "cut"}, {"kind": "reset"}])
def test_a_fault_that_passes_is_not_seen(runs, fault):
    view, t = runs.play([{"turn": 0, "calls": [run("echo once >> f; cat f")], "fault": fault}, *to_the_end([])[1:]])
    assert view["status"] == "done" and outcome(results(t)[0])["stdout"] == "once\n"


@contextlib.contextmanager
def wire(where, script):
    """The rehearsal as a server; what a run must know of it."""
    file = where / "script.json"
    file.write_text(json.dumps({"turns": script}))
    server = subprocess.Popen([BUILD / "tests/model/rehearsal-server", file, "the-key"], stdout=subprocess.PIPE, text=True)
    try:
        base = f"http://127.0.0.1:{int(server.stdout.readline())}"
        yield {"ANTHROPIC_API_KEY": "the-key", "ANTHROPIC_BASE_URL": base, "OPENAI_API_KEY": "the-key",
               "OPENAI_BASE_URL": base + "/v1"}
    finally:
        server.terminate()
        server.wait(20)
        server.stdout.close()


def test_a_fault_that_stays_interrupts(runs, tmp_path):
    fault = {"kind": "status", "status": 401, "times": 1}
    with wire(tmp_path, turns([run("echo hi")], {"fault": fault, "calls": [finish("partial")]})) as keys:
        started = runs.daemon.post("/v1/runs", {"task": "t", "model": "openai/m", "keys": keys})
        view = runs.wait(started["id"])
        assert view["state"] == "interrupted" and view["reason"]
        assert runs.transcript(view["id"])[-1]["event"] == "stopped"
        with pytest.raises(Refused) as e:  # keys are not kept
            runs.daemon.post(f"/v1/runs/{view['id']}/resume")
        assert e.value.code == "denied"
        # Who resumes goes on where it was: the model's next turn, and nothing before it again.
        runs.daemon.post(f"/v1/runs/{view['id']}/resume", {"keys": keys})
        view = runs.wait(view["id"], "ended")
    assert view["status"] == "partial" and len([e for e in runs.transcript(view["id"]) if e["event"] == "call"]) == 1


@pytest.mark.parametrize("provider", ["anthropic", "openai", "openai-responses"])
def test_over_the_wire_in_each_format(runs, tmp_path, provider):
    script = to_the_end([run("echo wire")], [call("read", path="/nowhere")])
    with wire(tmp_path, script) as keys:
        started = runs.daemon.post("/v1/runs", {"task": "t", "model": f"{provider}/m", "keys": keys})
        view = runs.wait(started["id"])
    t = runs.transcript(view["id"])
    assert view["status"] == "done" and outcome(results(t)[0])["stdout"] == "wire\n" and results(t)[1]["failed"]
    assert "the-key" not in json.dumps(t)


def test_a_provider_without_its_key_is_refused(runs):
    with pytest.raises(Refused) as e:
        runs.daemon.post("/v1/runs", {"task": "t", "model": "anthropic/m"})
    assert e.value.code == "denied"


# ---- context ----

def test_old_results_are_pruned_and_a_long_run_is_handed_over(runs):
    """`small` has a window of 12,000 tokens, and the rehearsal's usage says that eight bytes are one."""
    talk = [{"turn": i, "say": "s" * 2500, "calls": [run(f"seq {i} 900", max_output=4000)]} for i in range(24)]
    view, t = runs.play([*talk, {"calls": [finish("partial")]}], model="rehearsal/small")
    kinds = [e["event"] for e in t]
    assert view["status"] == "partial" and "prune" in kinds
    assert any(e["event"] == "answer" and e["purpose"] == "hand_over" for e in t)


def test_the_transcript_can_be_read_by_the_model(runs):
    view, t = runs.play(to_the_end([run("echo a-word-to-find")], [call("read", path="/run/carrel/transcript.jsonl")]))
    assert "a-word-to-find" in results(t)[1]["text"]


# ---- ask, cancel, resume ----

def test_the_time_of_an_answer_is_not_the_run_s(runs, daemon):
    r = runs.start(turns([call("ask", question="Which?")], [finish("partial")]), timeout="1s")["id"]
    runs.wait(r, "waiting")
    time.sleep(1.3)
    assert runs.show(r)["state"] == "waiting" and runs.show(r)["wall_ms"] < 1000
    daemon.post(f"/v1/runs/{r}/answer", {"question": runs.show(r)["question"]["id"], "answer": "this"})
    view = runs.wait(r)
    assert view["status"] == "partial" and view["wall_ms"] < 1000


def test_a_run_as_a_trajectory(runs, daemon):
    view, t = runs.play(turns([run("echo hi"), {"tool": "exec", "raw": "{oops"}], {"say": "Hm."}, [finish("partial")]))
    out = daemon.get(f"/v1/runs/{view['id']}/export")
    assert out["schema_version"] == "ATIF-v1.4" and out["session_id"] == view["id"]
    assert out["agent"]["model_name"] == "rehearsal/test" and out["agent"]["name"] == "carrel"
    assert [s["source"] for s in out["steps"]] == ["user", "agent", "agent", "system", "agent"]
    assert [s["step_id"] for s in out["steps"]] == [1, 2, 3, 4, 5] and out["steps"][0]["message"] == "Do it."
    first = out["steps"][1]
    assert [c["arguments"] for c in first["tool_calls"]] == [{"cmd": "echo hi"}, {"raw": "{oops"}]
    ids = [c["tool_call_id"] for c in first["tool_calls"]]
    results = {o["source_call_id"]: o["content"] for o in first["observation"]["results"]}
    assert list(results) == ids and json.loads(results[ids[0]])["stdout"] == "hi\n"
    assert first["metrics"] == {"prompt_tokens": 100, "completion_tokens": 20, "cached_tokens": 0, "cost_usd": 0.0}
    assert out["final_metrics"]["total_prompt_tokens"] == 300 and out["final_metrics"]["total_steps"] == 5
    assert out["extra"]["status"] == "partial" and out["extra"]["report"]["open_issues"] == ["the rest"]


def test_ask_waits_for_its_answer(runs):
    r = runs.start(turns([call("ask", question="Which?", options=["a", "b"])], [run("echo go")], [finish("partial")]))
    view = runs.wait(r["id"], "waiting")
    asked = view["question"]["id"]
    assert view["question"] == {"id": asked, "question": "Which?", "options": ["a", "b"]}
    runs.daemon.post(f"/v1/runs/{r['id']}/answer", {"question": asked, "answer": "b"})
    runs.wait(r["id"], "ended")
    assert outcome(results(runs.transcript(r["id"]))[0]) == {"action": "accept", "answer": "b"}
    with pytest.raises(Refused) as late:
        runs.daemon.post(f"/v1/runs/{r['id']}/answer", {"question": asked, "answer": "b"})
    assert (late.value.status, late.value.code) == (409, "busy")
    with pytest.raises(Refused) as unknown:
        runs.daemon.post("/v1/runs/r-01k9zzzzzzzzzzzzzzzzzzzzzz/answer", {"question": asked, "answer": "b"})
    assert unknown.value.status == 404


def test_an_answer_is_only_for_the_question_that_it_names(runs):
    """Two look at one question. The answer of the second one comes when the run asks another: nobody gave that answer."""
    r = runs.start(turns([call("ask", question="Shall I look?")], [call("ask", question="Shall I delete it?")], [finish("partial")]))["id"]

    def answer(question, status=None):
        try:
            runs.daemon.post(f"/v1/runs/{r}/answer", {"answer": "yes", **({"question": question} if question else {})})
            return None
        except Refused as e:
            return e.status

    first = runs.wait(r, "waiting")["question"]["id"]
    assert answer(None) == 400, "no question is named"
    assert answer(first) is None
    runs.daemon.until(lambda: (runs.show(r).get("question") or {}).get("question") == "Shall I delete it?")
    assert answer(first) == 409
    second = runs.show(r)["question"]
    assert second["question"] == "Shall I delete it?" and second["id"] != first
    assert answer(second["id"]) is None
    assert runs.wait(r, "ended")["state"] == "ended"
    assert [outcome(o)["answer"] for o in results(runs.transcript(r))[:2]] == ["yes", "yes"]


def test_cancel_ends_what_runs(runs, daemon):
    r = runs.start(turns([run("sleep 1000", yield_ms=50000)]))
    machine = r["machine"]
    daemon.until(lambda: daemon.get(f"/v1/machines/{machine}")["commands"] == 1)
    view = daemon.post(f"/v1/runs/{r['id']}/cancel")
    assert (view["state"], view["status"]) == ("ended", "cancelled")
    daemon.until(lambda: daemon.get(f"/v1/machines/{machine}")["commands"] == 0)
    with pytest.raises(Refused) as e:
        daemon.post(f"/v1/runs/{r['id']}/resume")
    assert e.value.code == "gone"


def test_events_follow_a_run(runs, daemon):
    r = runs.start(to_the_end([run("sleep 0.5; echo x")]))
    c = daemon.connect()
    c.request("GET", f"/v1/runs/{r['id']}/events")
    text = c.getresponse().read().decode()  # it ends with the run
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    assert [e["event"] for e in events] == [e["event"] for e in runs.transcript(r["id"])]
    ids = [int(line[4:]) for line in text.splitlines() if line.startswith("id: ")]
    rest = daemon.request("GET", f"/v1/runs/{r['id']}/events", raw=True, after=ids[2], follow=0).decode()
    assert [int(line[4:]) for line in rest.splitlines() if line.startswith("id: ")] == ids[3:]


# ---- no tool widens anything ----

def test_a_run_has_the_scopes_read_and_run_and_one_machine(runs, daemon):
    """Started by the owner over the unix socket, which may do everything."""
    other = daemon.machine(name="other")
    wanted = ["approve", "grant", "net", "secret", "token", "ship", "machine_create", "machine_destroy", "fork"]
    view, t = runs.play(turns(*[[call(name)] for name in wanted], [run("true", machine=other)], [finish("partial")]))
    got = results(t)
    assert all("There is no tool" in r["text"] for r in got[:len(wanted)])
    assert "does not exist or is not yours" in got[len(wanted)]["text"] and got[len(wanted)]["failed"]
    records = [json.loads(line) for line in daemon.request("GET", "/v1/audit", raw=True, machine=view["machine"]).decode().splitlines()]
    verbs = {r["verb"] for r in records}
    assert not [v for v in verbs if v.startswith(("token", "grant", "net", "pending", "secret", "ship"))]


def test_runs_are_their_owners(runs, daemon):
    view, _ = runs.play(turns([finish("partial")]))
    stranger = daemon.tcp(owner="stranger", scopes=["read", "run"])
    for method, path in (("GET", ""), ("GET", "/transcript"), ("POST", "/cancel")):
        with pytest.raises(Refused) as e:
            stranger.request(method, f"/v1/runs/{view['id']}{path}")
        assert e.value.code == "not_found"
    assert stranger.get("/v1/runs")["runs"] == [] and daemon.get("/v1/runs")["runs"][0]["id"] == view["id"]
    reader = daemon.tcp(scopes=["read"])
    with pytest.raises(Refused) as e:
        reader.post("/v1/runs", {"task": "t"})
    assert e.value.code == "denied"


@pytest.mark.parametrize("body,words", [
    ({"task": "", "model": "rehearsal/r"}, "task is empty"), ({"task": "t", "model": "nobody/m"}, "nobody"), ({"task": "t"}, "model"),
    ({"task": "t", "model": "rehearsal/r"}, "script"), ({"task": "t", "model": "rehearsal/r", "script": "{"}, "script"),
    ({"task": "t", "model": "rehearsal/r", "script": "{\"turns\":[{}]}", "machine": "m-nowhere"}, "machine"),
    ({"task": "t", "turns": 0}, "turns"), ({"task": "t", "wings": 1}, "wings"),
])
def test_a_request_that_makes_no_sense(daemon, body, words):
    with pytest.raises(Refused) as e:
        daemon.post("/v1/runs", body)
    assert words in e.value.error["message"] + e.value.error.get("remedy", "")


@pytest.mark.parametrize("run_id", ["r-aaaaaaaaaaaa", "..%2Fetc", "x"])
def test_a_run_that_is_not_there(daemon, run_id):
    with pytest.raises(Refused) as e:
        daemon.get(f"/v1/runs/{run_id}")
    assert e.value.code == "not_found"
