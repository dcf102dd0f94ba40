"""Runs of the operator as tests make them: a list of turns, and what came of them."""
import json


def call(tool, **arguments):
    return {"tool": tool, "arguments": arguments}


def run(cmd, **arguments):
    return call("exec", cmd=cmd, **arguments)


def finish(status="done", **fields):
    usual = {"summary": "It is done.", "evidence": ["it was run"]} if status == "done" else {
        "summary": "Not all is done.", "open_issues": ["the rest"]}
    return call("finish", status=status, **{**usual, **fields})


def turns(*lists):
    """One turn a step: a list of calls, or a whole turn."""
    return [{"turn": i, **({"say": f"turn {i}", "calls": t} if isinstance(t, list) else t)} for i, t in enumerate(lists)]


def to_the_end(*lists):
    """With the check that is asked for before the end."""
    return turns(*lists, [finish()], [run("true")], [finish()])


class Runs:
    def __init__(self, daemon):
        self.daemon = daemon

    def start(self, script, task="Do it.", model="rehearsal/test", **fields):
        return self.daemon.post("/v1/runs", {"task": task, "model": model, "script": json.dumps({"turns": script}), **fields})

    def show(self, run):
        return self.daemon.get(f"/v1/runs/{run}")

    def wait(self, run, *states, seconds=60):
        states = states or ("ended", "interrupted")
        self.daemon.until(lambda: self.show(run)["state"] in states, seconds)
        return self.show(run)

    def play(self, script, seconds=60, **fields):
        """To its end; the view and the transcript."""
        started = self.start(script, **fields)
        view = self.wait(started["id"], seconds=seconds)
        return view, self.transcript(started["id"])

    def transcript(self, run):
        text = self.daemon.request("GET", f"/v1/runs/{run}/transcript", raw=True).decode()
        return [json.loads(line) for line in text.splitlines()]


def results(transcript):
    return [e for e in transcript if e["event"] == "result"]


def notes(transcript, kind=None):
    return [e["text"] for e in transcript if e["event"] == "note" and kind in (None, e["note"])]
