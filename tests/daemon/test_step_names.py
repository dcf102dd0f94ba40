"""Names that steps get later, and commands without a step."""
from test_events import journal, past
from test_steps import Box, refused


def events_of(daemon, machine):
    return [data for _, _, data in past(daemon, after=0) if data.get("machine") == machine]


def test_a_step_gets_a_name_later_which_can_be_changed_and_removed(daemon):
    b = Box(daemon)
    for i in range(3):
        b.sh(f"echo {i} > f")
    b.settled(3)
    name = lambda step, text: daemon.request("PATCH", f"{b.url}/steps/{step}", {"name": text})  # noqa: E731
    assert name(1, "good")["name"] == "good" and name("good", "better")["number"] == 1
    refused("exists", name, 2, "better")
    assert b.rewind("better")["what"] == "to better" and b.sh("cat f") == "0\n"
    assert "name" not in name("better", "") and "name" not in b.steps()[0]
    refused("not_found", name, "better", "x")
    name(2, "better")
    for wrong in ("7", "last", "s-x", "a b", "x" * 80):
        refused("invalid", name, 1, wrong)
    told = [e["detail"] for e in events_of(daemon, b.id) if e["type"] == "step.named"]
    assert [(d["number"], d.get("name")) for d in told] == [(1, "good"), (1, "better"), (1, None), (2, "better")]
    said = [r for r in journal(daemon, machine=b.id) if r["verb"] == "step.name" and r["kind"] == "intent"]
    assert [r["reason"] for r in said][:3] == ["step 1: good", "step 1: better", "step 2: better"]


def test_a_command_that_asks_for_no_step_makes_none(daemon):
    b = Box(daemon, steps="risky")
    b.sh("rm -rf /tmp/x", no_step=True)
    assert b.steps() == []
    b.sh("rm -rf /tmp/x")  # the control
    b.settled(1)
    b = Box(daemon)
    b.sh("echo one > f", no_step=True)
    b.sh("echo two > g")
    (step,) = b.settled(1)
    assert "two" in step["what"]
    b.sh("rm f g")
    b.rewind(1)
    assert b.sh("cat f g") == "one\ntwo\n"  # the next step has its changes
