"""What happened is told as it happens, again from any id, and counted."""
import json
import pathlib
import re
import threading


def parse(text):
    """Events of a finished SSE answer: id, type, data."""
    found = []
    for block in text.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and line[0] != ":")
        if "data" in fields:
            found.append((int(fields["id"]), fields.get("event"), json.loads(fields["data"])))
    return found


def past(daemon, **query):
    return parse(daemon.request("GET", "/v1/events", raw=True, follow=0, **query))


def test_events_are_resumed_by_id_and_filtered(daemon):
    mark = max([e[0] for e in past(daemon, after=0)], default=0)
    a, b = daemon.machine(steps="manual"), daemon.machine(steps="manual")
    daemon.exec(a, "exit 3")
    daemon.delete(f"/v1/machines/{b}")
    told = [e for e in past(daemon, after=mark) if e[1] != "exec.started"]  # of a command that does not end at once
    types = [(e[1], e[2]["machine"]) for e in told]
    assert types == [("machine.created", a), ("machine.created", b), ("exec.ended", a), ("machine.ended", b)]
    ids = [e[0] for e in told]
    assert ids == sorted(set(ids))
    assert [e for e in past(daemon, after=ids[1]) if e[1] != "exec.started"] == told[2:]
    assert [e[1] for e in past(daemon, after=mark, machine=b)] == ["machine.created", "machine.ended"]
    assert [e[2]["machine"] for e in past(daemon, after=mark, type="exec.ended")] == [a]
    c = daemon.connect()
    c.request("GET", "/v1/events?follow=0", headers={"Last-Event-ID": str(ids[2])})
    assert parse(c.getresponse().read()) == told[3:]
    c.close()


def test_a_command_that_runs_on_has_an_event_of_its_start(daemon):
    mark = max([e[0] for e in past(daemon, after=0)], default=0)
    m = daemon.machine(steps="manual")
    x = daemon.background(m, "sleep 1000")
    daemon.delete(f"/v1/machines/{m}/execs/{x}")
    daemon.wait(m, x)
    told = [(e[1], e[2]["detail"]["exec"]) for e in past(daemon, after=mark, machine=m) if e[1].startswith("exec.")]
    assert told == [("exec.started", x), ("exec.ended", x)]


def test_followers_hear_at_once_and_across_a_restart(fresh):
    d = fresh()
    heard, began = [], threading.Event()

    def follow(after):
        c = d.connect()
        c.request("GET", f"/v1/events?after={after}")
        answer = c.getresponse()
        began.set()
        try:
            for line in answer:
                if line.startswith(b"id: "):
                    heard.append(int(line[4:]))
        except OSError:
            pass
        c.close()

    t = threading.Thread(target=follow, args=(0,), daemon=True)
    t.start()
    assert began.wait(20)
    d.machine()
    d.until(lambda: heard)
    before = heard[-1]
    d.restart()
    t.join(20)
    d.machine()
    assert [e[0] for e in past(d, after=before)] == [before + 1]


def test_a_stream_without_events_has_heartbeats(daemon):
    """Pages and clients of SDKs take a silent connection for a lost one."""
    c = daemon.connect()
    c.request("GET", "/v1/events?type=none.such")
    answer = c.getresponse()
    assert [answer.readline() for _ in range(4)] == [b": carrel\n", b"\n", b":\n", b"\n"]
    c.close()


def metrics(d):
    text = d.get("/metrics").decode()
    return {name + (labels or ""): float(value)
            for name, labels, value in re.findall(r"^(\w+)(\{[^}]*\})? ([-+.\deE]+)$", text, re.M)}


def test_metrics_count_what_was_done(fresh):
    d = fresh()
    m = d.machine()
    for _ in range(3):
        d.exec(m, "true")
    d.exec(m, "sleep 100", timeout="100ms")
    d.put(f"/v1/machines/{m}/files", b"x", path="/home/user/f")
    found = metrics(d)
    assert found['carrel_machines{state="running"}'] == 1
    assert found['carrel_request_seconds_count{route="exec",kind="box"}'] == 4
    assert found['carrel_request_seconds_bucket{route="exec",kind="box",le="+Inf"}'] == 4
    assert found['carrel_request_seconds_count{route="machine_create",kind="box"}'] == 1
    assert found['carrel_request_seconds_count{route="file_write",kind="box"}'] == 1
    assert found['carrel_limits_hit_total{limit="time"}'] == 1
    assert found['carrel_limits_hit_total{limit="memory"}'] == 0
    assert "carrel_pool_ready" in found
    try:
        d.get("/v1/machines/none")
    except Exception:
        pass
    assert metrics(d)['carrel_failures_total{route="machine_show",code="not_found"}'] == 1


def test_metrics_count_the_second_best_ways(fresh):
    d = fresh()
    fallback = 'carrel_fallbacks_total{what="%s"}'
    m = d.machine(limits={"disk": "3G"})  # no box of this size waits, nor a root
    found = metrics(d)
    assert found[fallback % "box_not_ready"] >= 1
    assert found[fallback % "box_without_pool"] >= 1
    assert found[fallback % "step_copied"] == found[fallback % "step_without_restore_point"] == 0
    assert any(key.startswith('carrel_way{part="cgroup"') for key in found)
    d.exec(m, "sleep 100", background=True)
    d.exec(m, "touch /home/user/f")
    d.post(f"/v1/machines/{m}/steps", {})
    found = metrics(d)
    assert found[fallback % "step_without_restore_point"] == 1
    assert found[fallback % "step_copied"] == 1


def test_every_metric_is_documented(daemon):
    families = set(re.findall(r"^# TYPE (\w+)", daemon.get("/metrics").decode(), re.M))
    page = pathlib.Path(__file__).resolve().parents[2] / "docs/reference/daemon.md"
    assert families == set(re.findall(r"`(carrel_\w+)`", page.read_text()))


def journal(d, **query):
    return [json.loads(line) for line in d.request("GET", "/v1/audit", raw=True, **query).splitlines()]


def test_every_intent_has_its_result_and_no_value_of_a_variable(daemon):
    m = daemon.machine(env={"TOKEN": "value-of-machine"})
    x = daemon.background(m, "sleep 100", env={"KEY": "value-of-command"})
    daemon.post(f"/v1/machines/{m}/execs/{x}/signal", {"signal": "TERM"})
    daemon.wait(m, x)
    daemon.post(f"/v1/machines/{m}/pause")
    daemon.post(f"/v1/machines/{m}/resume")
    daemon.patch(f"/v1/machines/{m}", {"ttl": "1h"})
    daemon.put(f"/v1/machines/{m}/files", b"x", path="/home/user/f")
    daemon.delete(f"/v1/machines/{m}")
    records = journal(daemon, machine=m)
    intents = {r["seq"]: r for r in records if r["kind"] == "intent"}
    results = {r["intent"]: r for r in records if r["kind"] == "result"}
    assert set(results) == set(intents), [r["verb"] for s, r in intents.items() if s not in results]
    verbs = {r["verb"] for r in intents.values()}
    assert verbs >= {"machine.create", "exec", "exec.signal", "machine.pause", "machine.resume", "machine.update",
                     "file.write", "machine.destroy"}
    assert all(results[s]["seq"] > s for s in intents)
    assert "value-of" not in json.dumps(records)


def test_what_the_daemon_does_by_itself_is_written_down(daemon):
    m = daemon.machine(ttl="1s")
    daemon.until(lambda: daemon.get(f"/v1/machines/{m}")["state"] == "ended")
    ends = journal(daemon, machine=m, verb="machine.end")
    assert [(r["kind"], r["owner"], r["reason"]) for r in ends] == [
        ("intent", "carrel", "its ttl is over"), ("result", "carrel", "its ttl is over")]
