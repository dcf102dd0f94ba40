"""process.Process: commands as E2B's SDK starts, follows, feeds and ends them."""
import itertools
import signal
import time

import pytest

from envd import Failed, Result, Sandbox, b64, envelope


def next_of(events, kind):
    return next(value for name, value in events if name == kind)


def refused(code, call, *args, **fields):
    with pytest.raises(Failed) as e:
        call(*args, **fields)
    assert e.value.code == code, e.value
    return e.value


def test_output_and_end_of_a_command(sandbox):
    r = sandbox.run("echo out; echo err >&2")
    assert (r.stdout, r.stderr) == (b"out\n", b"err\n")
    assert r.end == {"exited": True, "status": "exit status 0"}
    r = sandbox.run("exit 3")
    assert r.end == {"exitCode": 3, "exited": True, "status": "exit status 3", "error": "exit status 3"}


def test_first_event_is_the_pid_that_the_command_has(sandbox):
    events = sandbox.start("echo $$; exec sleep 1000").events()
    name, start = next(events)
    assert name == "start"
    r = Result([next(events)])
    assert int(r.stdout) == start["pid"]
    assert sandbox.run(f"kill -0 {start['pid']}").end["status"] == "exit status 0"


def test_default_user_directory_and_variables(sandbox):
    r = sandbox.run('echo "$USER $HOME $PWD $LOGNAME $A"; id -un', envs={"A": "b c"})
    assert r.stdout == b"user /home/user /home/user user b c\nuser\n"
    r = sandbox.run('echo "$USER $HOME $PWD"; id -un', user="root")
    assert r.stdout == b"root /root /root\nroot\n"


def test_directory_is_relative_to_home_and_must_exist(sandbox):
    assert sandbox.run("pwd", cwd="/tmp/").stdout == b"/tmp\n"
    sandbox.run("mkdir ~/some")
    assert sandbox.run("pwd", cwd="some").stdout == b"/home/user/some\n"
    assert sandbox.run("pwd", cwd="~/some/..").stdout == b"/home/user\n"
    e = refused("invalid_argument", sandbox.run, "pwd", cwd="/nowhere")
    assert e.message == "cwd '/nowhere' does not exist"
    refused("invalid_argument", sandbox.run, "pwd", cwd="/etc/passwd")


def test_unknown_user_is_unauthenticated(sandbox):
    refused("unauthenticated", sandbox.run, "true", user="nobody-here")


def test_program_that_does_not_exist(sandbox):
    stream = sandbox.open("process.Process/Start", {"process": {"cmd": "/no/such"}})
    e = refused("invalid_argument", list, stream)
    assert "/no/such" in e.message


def test_standard_input_is_empty_unless_asked_for(sandbox):
    assert sandbox.run("cat", stdin=False).end["exited"]
    events = sandbox.start("cat; echo end", stdin=True).events()
    pid = next_of(events, "start")["pid"]
    assert sandbox.process("SendInput", pid, input={"stdin": b64("some ")}) == {}
    assert sandbox.process("SendInput", pid, input={"stdin": ""}) == {}
    assert sandbox.process("SendInput", pid, input={"stdin": b64("text\n")}) == {}
    assert sandbox.process("CloseStdin", pid) == {}
    assert Result(events).stdout == b"some text\nend\n"
    refused("not_found", sandbox.process, "SendInput", pid, input={"stdin": b64("late")})


def test_standard_input_is_closed_once_and_for_all(sandbox):
    events = sandbox.start("cat; sleep 1000", stdin=True).events()
    pid = next_of(events, "start")["pid"]
    for _ in range(2):
        assert sandbox.process("CloseStdin", pid) == {}
    refused("internal", sandbox.process, "SendInput", pid, input={"stdin": b64("late")})
    refused("internal", sandbox.process, "SendInput", pid, input={"pty": b64("x")})
    refused("invalid_argument", sandbox.process, "SendInput", pid, input={"stdin": "%%%"})
    refused("invalid_argument", sandbox.process, "SendInput", pid, input={})


def test_a_lot_of_input_waits_for_its_reader(sandbox):
    events = sandbox.start("sleep 0.2; wc -c", stdin=True).events()
    pid = next_of(events, "start")["pid"]
    sandbox.process("SendInput", pid, input={"stdin": b64(b"x" * 3_000_000)})
    sandbox.process("CloseStdin", pid)
    assert int(Result(events).stdout) == 3_000_000


def test_signals(sandbox):
    events = sandbox.start("trap 'echo got; exit 9' TERM; echo up; while :; do sleep 0.05; done").events()
    pid = next_of(events, "start")["pid"]
    next_of(events, "data")
    assert sandbox.process("SendSignal", pid, signal="SIGNAL_SIGTERM") == {}
    r = Result(events)
    assert r.stdout == b"got\n" and r.end["exitCode"] == 9
    events = sandbox.start("sleep 1000 & wait").events()
    pid = next_of(events, "start")["pid"]
    refused("unimplemented", sandbox.process, "SendSignal", pid, signal="SIGNAL_UNSPECIFIED")
    sandbox.process("SendSignal", pid, signal="SIGNAL_SIGKILL")
    assert Result(events).end == {"exitCode": -1, "status": "signal: killed", "error": "signal: killed"}
    refused("not_found", sandbox.process, "SendSignal", pid, signal="SIGNAL_SIGKILL")


def test_end_by_any_signal_has_its_name(sandbox):
    for number, name in ((signal.SIGSEGV, "segmentation fault"), (signal.SIGHUP, "hangup")):
        assert sandbox.run(f"kill -{int(number)} $$").end["status"] == "signal: " + name


def test_background_processes_belong_to_the_stream_until_they_close_it(sandbox):
    assert sandbox.run("(sleep 0.5; echo late) & echo soon").stdout == b"soon\nlate\n"


def test_list_has_what_runs(sandbox):
    assert sandbox.call("process.Process/List") == {"processes": []}
    events = sandbox.start("sleep 1000", cwd="/tmp", tag="mine").events()
    pid = next_of(events, "start")["pid"]
    assert sandbox.call("process.Process/List") == {"processes": [{
        "config": {"cmd": "/bin/bash", "args": ["-l", "-c", "sleep 1000"], "cwd": "/tmp"}, "pid": pid, "tag": "mine"}]}
    sandbox.call("process.Process/SendSignal", {"process": {"tag": "mine"}, "signal": "SIGNAL_SIGKILL"})
    Result(events)
    assert sandbox.call("process.Process/List") == {"processes": []}
    refused("not_found", sandbox.call, "process.Process/SendSignal", {"process": {"tag": "mine"}, "signal": 9})


def test_connect_follows_from_now_on(sandbox):
    first = sandbox.start("echo one; read; echo two; exit 4", stdin=True).events()
    pid = next_of(first, "start")["pid"]
    next_of(first, "data")
    second = sandbox.open("process.Process/Connect", {"process": {"pid": pid}}).events()
    assert next(second) == ("start", {"pid": pid})
    sandbox.process("SendInput", pid, input={"stdin": b64("\n")})
    for events in (first, second):
        r = Result(events)
        assert r.stdout == b"two\n" and r.end["exitCode"] == 4
    late = Result(sandbox.open("process.Process/Connect", {"process": {"pid": pid}}).events())
    assert late.pid == pid and late.stdout == b"" and late.end["exitCode"] == 4


def test_connect_to_nothing(sandbox):
    refused("not_found", list, sandbox.open("process.Process/Connect", {"process": {"pid": 4_000_000}}))
    refused("not_found", list, sandbox.open("process.Process/Connect", {"process": {"tag": "none"}}))
    refused("invalid_argument", list, sandbox.open("process.Process/Connect", {}))
    for pid in (0, -1, 2**40):
        refused("not_found", sandbox.process, "SendSignal", pid, signal="SIGNAL_SIGKILL")


def test_a_command_outlives_its_client(sandbox):
    stream = sandbox.start("sleep 0.3; echo done >/tmp/done; sleep 1000")
    pid = next_of(stream.events(), "start")["pid"]
    stream.close()
    sandbox.daemon.until(lambda: sandbox.run("cat /tmp/done").stdout == b"done\n")
    assert [p["pid"] for p in sandbox.call("process.Process/List")["processes"]] == [pid]


def test_time_limit_of_the_request_ends_the_command(sandbox):
    r = sandbox.run("sleep 1000", headers={"Connect-Timeout-Ms": "300"})
    assert r.end["exitCode"] == -1
    assert sandbox.run("true", headers={"Connect-Timeout-Ms": "0"}).end["exited"]
    refused("invalid_argument", sandbox.run, "true", headers={"Connect-Timeout-Ms": "soon"})


def test_terminal(sandbox):
    message = {"process": {"cmd": "/bin/bash", "args": ["-i", "-l"], "envs": {"TERM": "xterm-256color"}},
               "pty": {"size": {"cols": 100, "rows": 30}}}
    events = sandbox.open("process.Process/Start", message).events()
    pid = next_of(events, "start")["pid"]
    sandbox.process("SendInput", pid, input={"pty": b64("stty size\n")})
    seen = Result([])

    def until(text):
        for name, value in events:
            seen.__init__(itertools.chain([("data", {"pty": b64(bytes(seen.out["pty"]))})], [(name, value)]))
            if text in seen.out["pty"]:
                return
    until(b"30 100")
    assert sandbox.process("Update", pid, pty={"size": {"cols": 81, "rows": 25}}) == {}
    sandbox.process("SendInput", pid, input={"pty": b64("stty size\n")})
    until(b"25 81")
    refused("internal", sandbox.process, "SendInput", pid, input={"stdin": b64("x")})
    refused("failed_precondition", sandbox.process, "CloseStdin", pid)
    refused("invalid_argument", sandbox.process, "Update", pid, pty={"size": {"cols": 0, "rows": 25}})
    sandbox.process("SendInput", pid, input={"pty": b64("exit 5\n")})
    assert Result(events).end["exitCode"] == 5


def test_keepalive_comes_while_nothing_else_does(sandbox):
    events = sandbox.start("sleep 1000", headers={"Keepalive-Ping-Interval": "1"}).events()
    assert [next(events)[0] for _ in range(3)] == ["start", "keepalive", "keepalive"]


def test_end_of_the_machine_cuts_the_stream(sandbox):
    events = sandbox.start("sleep 1000").events()
    next_of(events, "start")
    sandbox.daemon.delete(f"/v1/machines/{sandbox.machine}")
    with pytest.raises(Exception) as e:
        list(events)
    assert type(e.value).__name__ in ("EOFError", "IncompleteRead", "ConnectionResetError"), e.value


def test_all_output_reaches_a_slow_client(sandbox):
    stream = sandbox.start("head -c 40000000 /dev/zero | tr '\\0' x")
    time.sleep(0.5)
    assert len(Result(stream.events()).stdout) == 40_000_000


def test_client_that_never_reads_holds_up_only_its_command(sandbox):
    stream = sandbox.start("yes")
    assert sandbox.run("echo still here").stdout == b"still here\n"
    pid = sandbox.call("process.Process/List")["processes"][0]["pid"]
    sandbox.process("SendSignal", pid, signal="SIGNAL_SIGKILL")
    sandbox.daemon.until(lambda: not sandbox.call("process.Process/List")["processes"])
    stream.close()


def test_clients_that_never_read_cost_little_memory(e2b, daemon):
    sandboxes = [Sandbox(e2b, daemon) for _ in range(4)]
    sandboxes[0].run("true")
    before = daemon.memory_kb()
    streams = [sandboxes[i % 4].start("yes" if i % 8 < 4 else "yes >&2") for i in range(100)]

    def printed():
        rows = [x for s in sandboxes for x in daemon.get(f"/v1/machines/{s.machine}/execs")["execs"]]
        return [x["stdout_bytes"] + x["stderr_bytes"] for x in rows if x["state"] == "running"]

    def all_wait():
        seen = printed()
        time.sleep(0.2)
        return len(seen) == 100 and seen == printed()

    try:
        daemon.until(all_wait)
        assert len(sandboxes[0].run("head -c 20000000 /dev/zero").stdout) == 20_000_000  # control: it reads
        assert daemon.memory_kb() - before < 100 * 160
        assert max(printed()) < 8 << 20  # its window, and what sockets hold
    finally:
        for s in sandboxes:  # first: without their streams, the commands would print freely
            daemon.delete(f"/v1/machines/{s.machine}")
        for s in streams:
            s.close()


@pytest.mark.parametrize("end", ["kill", "end"])
def test_output_waits_for_its_reader_also_in_the_next_daemon(e2b, daemon, sandbox, end):
    """Until the reader comes back, loses nothing and leaves. Nobody comes back for the other, which is set free."""
    streams = [sandbox.start("yes"), sandbox.start("yes >&2")]

    def printed():
        rows = daemon.get(f"/v1/machines/{sandbox.machine}/execs")["execs"]
        return {x["pid"]: x["stdout_bytes"] + x["stderr_bytes"] for x in rows}

    def rests():
        before = printed()
        time.sleep(0.2)
        return before == printed() and all(before.values())

    daemon.until(rests)
    before = printed()
    getattr(daemon, end)()
    for s in streams:
        s.close()
    time.sleep(0.3)
    daemon.start()
    e2b.find(daemon)
    sandbox.call("process.Process/List")
    assert sorted(printed().values()) == sorted(before.values())
    assert max(before.values()) < 8 << 20
    pid = next(p["pid"] for p in sandbox.call("process.Process/List")["processes"] if p["config"]["args"][-1] == "yes")
    again = sandbox.open("process.Process/Connect", {"process": {"pid": pid}})
    daemon.until(lambda: sum(printed().values()) > sum(before.values()))
    daemon.until(rests)
    data = bytes(next(Result([e]).stdout for e in again.events() if e[0] == "data"))
    assert data and not data.strip(b"y\n")
    waits = min(printed().values())
    again.close()
    daemon.until(lambda: max(printed().values()) > 64 << 20)
    assert waits in before.values()
    if end == "kill":
        daemon.until(lambda: min(printed().values()) > 64 << 20)


@pytest.mark.parametrize("body,code", [
    (b"", "invalid_argument"), (b"\0\0\0", "invalid_argument"), (b"\0\0\0\0\x09{}", "invalid_argument"),
    (envelope({}) + envelope({}), "invalid_argument"), (envelope(b"[]"), "invalid_argument"),
    (envelope(b"{"), "invalid_argument"), (envelope({}, flags=1), "unimplemented"),
    (envelope({}, flags=2), "invalid_argument"), (b"\0\x7f\xff\xff\xff{}", "resource_exhausted"),
    (b"\0\xff\xff\xff\xff", "resource_exhausted"), (envelope({}), "invalid_argument"),
    (envelope({"process": {"cmd": "sh", "args": [1]}}), "invalid_argument"),
    (envelope({"process": {"cmd": "sh", "envs": {"A": 1}}}), "invalid_argument"),
    (envelope({"process": {"cmd": "sh", "cwd": "~root"}}), "invalid_argument"),
    (envelope({"process": {"cmd": "sh", "cwd": "/" + "a/" * 4000}}), "invalid_argument"),
    (envelope({"process": {"cmd": "sh"}, "pty": {"size": {"cols": 70000, "rows": 1}}}), "invalid_argument"),
])
def test_malformed_request_for_a_stream(sandbox, body, code):
    refused(code, list, sandbox.open("process.Process/Start", body))


def test_message_that_is_too_large_is_refused_before_it_is_read(sandbox):
    c = sandbox.connect()
    c.putrequest("POST", "/process.Process/SendInput")
    for name, value in {**sandbox.headers, "Content-Type": "application/json", "Content-Length": "100000000"}.items():
        c.putheader(name, value)
    c.endheaders()
    assert c.getresponse().status == 429
    c.close()


def test_what_is_not_a_procedure(sandbox):
    json_type = {"Content-Type": "application/json"}
    assert sandbox.call_raw("POST", "/process.Process/Nonsense", "{}", json_type)[0] == 404
    assert sandbox.call_raw("GET", "/process.Process/List")[0] == 405
    assert sandbox.call_raw("POST", "/process.Process/List", "{}", {"Content-Type": "application/proto"})[0] == 415
    assert sandbox.call_raw("POST", "/process.Process/Start", "{}", json_type)[0] == 415
    assert sandbox.call_raw("GET", "/health")[0] == 204
