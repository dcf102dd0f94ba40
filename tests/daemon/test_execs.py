"""An honest exec: streams by offset, exit status from the kernel, at most once, nothing lost."""
import hashlib
import json
import subprocess
import threading
import time

import pytest

from carrel import PROGRAM
from daemon import Refused


def test_the_result_of_a_command(daemon, box):
    r = daemon.exec(box, ["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (r["stdout"], r["stderr"], r["exec"]["status"]) == ("out\n", "err\n", 3)
    assert r["exec"]["reason"] == "exit" and r["exec"]["usage"]["wall_us"] > 0


def test_a_client_that_leaves_before_the_result_harms_nobody(daemon, box):
    c = daemon.connect()
    c.request("POST", f"/v1/machines/{box}/execs", body=json.dumps({"command": "while [ ! -e go ]; do sleep 0.05; done; echo on >still"}))
    x = daemon.until(lambda: [x["id"] for x in daemon.get(f"/v1/machines/{box}/execs")["execs"] if x["state"] == "running"])[0]
    c.close()
    assert daemon.exec(box, "touch go")["exec"]["status"] == 0
    assert daemon.wait(box, x)["status"] == 0 and daemon.exec(box, "cat still")["stdout"] == "on\n"


@pytest.mark.parametrize("fields,out", [
    ({"argv": ["printf", "%s|", "a b", "$HOME", ""]}, "a b|$HOME||"),
    ({"command": "echo $FOO", "env": {"FOO": "b ar"}}, "b ar\n"),
    ({"command": "pwd", "cwd": "/tmp"}, "/tmp\n"),
    ({"command": "id -un; pwd", "user": "root"}, "root\n/root\n"),
    ({"command": "id -u", "user": "4321"}, "4321\n"),
    ({"command": "cat", "stdin": "in\n"}, "in\n"),
    ({"command": "cat | od -An -tx1 | tr -d '\\n'", "stdin_base64": "AP8K"}, " 00 ff 0a"),
    ({"command": "cat; echo eof"}, "eof\n"),
])
def test_what_a_command_gets(daemon, box, fields, out):
    assert daemon.post(f"/v1/machines/{box}/execs", fields)["stdout"] == out


BASH = 'a=(1 2); [[ ${#a[@]} == 2 ]] && echo "$0 ${BASH_VERSION:+bash}"'


def test_a_command_line_runs_in_bash(daemon, box):
    r = daemon.exec(box, BASH)
    assert (r["stdout"], r["stderr"]) == ("/bin/bash bash\n", "")
    assert daemon.exec(box, ["sh", "-c", "echo $0"])["stdout"] == "sh\n", "only a command line is for bash"


@pytest.mark.parametrize("make", ["true", "mkdir /bin/bash", ": >/bin/bash", ": >/bin/bash; chmod 755 /bin/bash",
                                  "ln -s bash /bin/bash", "echo '#!/nowhere' >/bin/bash; chmod 755 /bin/bash"])
def test_a_command_line_runs_in_sh_where_bash_is_missing_or_broken(daemon, box, make):
    assert daemon.exec(box, ["sh", "-c", f"rm -f /bin/bash; {make}"], user="root")["exec"]["status"] == 0
    r = daemon.exec(box, "echo $0; exit 3")
    assert (r["stdout"], r["exec"]["status"]) == ("/bin/sh\n", 3), r


@pytest.mark.parametrize("fields,status,reason", [
    ({"command": "kill -9 $$"}, 137, "signal"),
    ({"command": "kill -TERM $$"}, 143, "signal"),
    ({"command": "sleep 100", "timeout": 0.2}, 124, "timeout"),
    ({"argv": ["/nonexistent"]}, 127, "run '/nonexistent': No such file"),
    ({"argv": ["/etc/passwd"]}, 126, "run '/etc/passwd': Permission denied"),
    ({"command": "true", "cwd": "/nowhere"}, 125, "enter '/nowhere': No such file"),
])
def test_how_it_ended(daemon, box, fields, status, reason):
    x = daemon.post(f"/v1/machines/{box}/execs", fields)["exec"]
    assert x["status"] == status and reason in x["reason"], x


def test_bytes_that_are_no_text_come_as_base64(daemon, box):
    r = daemon.exec(box, "printf '\\377\\000x'")
    assert "stdout" not in r and r["stdout_base64"] == "/wB4"


def test_events_come_while_it_runs(daemon, box):
    events = []
    for e in daemon.stream("POST", f"/v1/machines/{box}/execs",
                           {"command": "for i in 1 2 3; do echo o$i; sleep 0.1; echo e$i >&2; sleep 0.1; done; exit 5"}):
        events.append((time.monotonic(), e))
    kinds = [e["type"] for _, e in events]
    assert kinds[0] == "start" and kinds[-1] == "exit"
    assert [e["data"] for _, e in events[1:-1]] == ["o1\n", "e1\n", "o2\n", "e2\n", "o3\n", "e3\n"]
    assert [e["offset"] for _, e in events[1:-1]] == [0, 0, 3, 3, 6, 6]
    assert events[-1][1]["exec"]["status"] == 5
    assert events[-1][0] - events[1][0] > 0.3, "they came all at once"


def test_server_sent_events(daemon, box):
    text = daemon.request("POST", f"/v1/machines/{box}/execs", {"command": "echo hi"},
                          headers={"Accept": "text/event-stream"}).decode()
    assert [line for line in text.splitlines() if line.startswith("event")] == \
        ["event: start", "event: stdout", "event: exit"]


def test_characters_are_not_cut(daemon, box):
    script = r"printf '\303'; sleep 0.2; printf '\244\n'"
    data = [e["data"] for e in daemon.stream("POST", f"/v1/machines/{box}/execs", {"command": script})
            if e["type"] == "stdout"]
    assert "".join(data) == "ä\n"


def test_output_is_read_again_by_offset(daemon, box):
    x = daemon.exec(box, "seq 1 1000")["exec"]["id"]
    whole = "".join(f"{i}\n" for i in range(1, 1001)).encode()
    base = f"/v1/machines/{box}/execs/{x}/output"
    assert daemon.get(base) == whole
    assert daemon.get(base, offset=100, limit=50) == whole[100:150]
    assert daemon.get(base, stream="stderr") == b""
    assert daemon.get(base, offset=10**6) == b""


def test_followed_from_anywhere_while_it_runs(daemon, box):
    x = daemon.background(box, "for i in 1 2 3 4 5; do echo $i; sleep 0.1; done")
    base = f"/v1/machines/{box}/execs/{x}"
    assert daemon.get(f"{base}/output", follow=1) == b"1\n2\n3\n4\n5\n"
    events = list(daemon.stream("GET", f"{base}/events?stdout=4"))
    assert "".join(e.get("data", "") for e in events) == "3\n4\n5\n"


def test_a_vanished_reader_costs_nothing(daemon, box):
    x = None
    for e in daemon.stream("POST", f"/v1/machines/{box}/execs", {"command": "echo a; sleep 0.3; echo b; exit 4"}):
        x = e["exec"]
        break
    assert daemon.wait(box, x)["status"] == 4
    assert daemon.get(f"/v1/machines/{box}/execs/{x}/output") == b"a\nb\n"


def test_a_slow_reader_gets_all_that_was_kept(daemon):
    """What it has not taken stays in the log, not in the daemon's memory, and it is not cut off."""
    m, size = daemon.machine(), 60 << 20
    events = daemon.stream("POST", f"/v1/machines/{m}/execs", {"command": f"head -c {size} /dev/zero | tr '\\0' x"})
    x = next(events)["exec"]
    before = daemon.memory_kb()
    assert daemon.wait(m, x)["stdout_bytes"] == size
    assert daemon.memory_kb() < before + 8192
    counted = {"gap": 0, "stdout": 0}
    for e in events:
        counted["gap"] += e.get("bytes", 0) if e["type"] == "gap" else 0
        counted["stdout"] += len(e["data"]) if e["type"] == "stdout" else 0
    assert sum(counted.values()) == size and counted["stdout"] >= 32 << 20, counted


def test_output_beyond_its_cap_has_head_and_tail_and_says_the_gap(daemon):
    m = daemon.machine(limits={"mem": "1G"})
    x = daemon.exec(m, "seq 1 20000000 | head -c 150000000", output_max=1000)["exec"]
    assert x["stdout_bytes"] == 150000000 and x["status"] == 0
    c = daemon.connect(timeout=120)
    c.request("GET", f"/v1/machines/{m}/execs/{x['id']}/events?follow=0", headers={"Accept": "application/x-ndjson"})
    gap = kept = 0
    last = b""
    for line in c.getresponse():
        e = json.loads(line)
        if e["type"] == "gap":
            gap += e["bytes"]
        elif e["type"] == "stdout":
            kept += len(e["data"])
            last = e["data"]
    c.close()
    assert gap > 0 and gap + kept == 150000000
    assert kept <= 64 << 20
    # As bytes: an answer has no hole, the next one says what is missing before it.
    whole = subprocess.run("seq 1 20000000 | head -c 150000000", shell=True, capture_output=True).stdout
    at = told = 0
    while True:
        c = daemon.connect(timeout=120)
        c.request("GET", f"/v1/machines/{m}/execs/{x['id']}/output?offset={at}")
        answer = c.getresponse()
        left_out, start = (int(answer.headers[name]) for name in ("Carrel-Left-Out", "Carrel-Offset"))
        data = answer.read()
        c.close()
        assert start == at + left_out and data == whole[start:start + len(data)]
        told += left_out
        at = start + len(data)
        if not data:
            break
    assert at == 150000000 and told == gap
    logs = subprocess.run([PROGRAM, "logs", m, x["id"]], env=daemon.env, capture_output=True, timeout=60)
    assert logs.stdout == whole[:24 << 20] + whole[-(24 << 20):], len(logs.stdout)
    assert logs.stderr == b"carrel: %dM of output at this place were not kept\n" % round(gap / (1 << 20)), logs.stderr


def test_stdin_is_streamed(daemon, box):
    x = daemon.background(box, "sha256sum; exit 3", stdin_open=True)
    base = f"/v1/machines/{box}/execs/{x}/stdin"
    data = b"".join(b"%d\n" % i for i in range(300000))
    daemon.request("POST", base, data[:1000000])
    daemon.request("POST", base + "?offset=500000&eof=1", data[500000:])  # what it has is skipped
    assert daemon.wait(box, x)["status"] == 3
    out = daemon.get(f"/v1/machines/{box}/execs/{x}/output").decode()
    assert out.split()[0] == hashlib.sha256(data).hexdigest()


def test_a_hole_in_stdin_is_refused(daemon, box):
    x = daemon.background(box, "cat", stdin_open=True)
    with pytest.raises(Refused) as e:
        daemon.request("POST", f"/v1/machines/{box}/execs/{x}/stdin?offset=5", b"x")
    assert e.value.code == "invalid"
    daemon.delete(f"/v1/machines/{box}/execs/{x}")


def test_signals_and_kill(daemon, box):
    x = daemon.background(box, "trap 'echo got; exit 9' TERM; echo up; while :; do sleep 0.05; done")
    daemon.until(lambda: daemon.get(f"/v1/machines/{box}/execs/{x}")["stdout_bytes"])
    daemon.post(f"/v1/machines/{box}/execs/{x}/signal", {"signal": "TERM"})
    assert daemon.wait(box, x)["status"] == 9
    x = daemon.background(box, "(setsid sleep 500 &) ; sleep 500")
    daemon.delete(f"/v1/machines/{box}/execs/{x}")
    assert daemon.wait(box, x)["reason"] == "killed"
    daemon.until(lambda: daemon.get(f"/v1/machines/{box}/stats")["pids"] == 0)
    with pytest.raises(Refused) as e:
        daemon.delete(f"/v1/machines/{box}/execs/{x}")
    assert e.value.code == "gone"


def test_a_key_runs_at_most_once(daemon, box):
    body = {"command": "echo run >>/home/user/count; echo $RANDOM$RANDOM", "key": "once"}
    a = daemon.post(f"/v1/machines/{box}/execs", body)
    b = daemon.post(f"/v1/machines/{box}/execs", body)
    assert a["exec"]["id"] == b["exec"]["id"] and a["stdout"] == b["stdout"]
    assert daemon.exec(box, "cat count")["stdout"] == "run\n"
    with pytest.raises(Refused) as e:
        daemon.post(f"/v1/machines/{box}/execs", {**body, "cwd": "/"})
    assert e.value.code == "invalid"


def test_many_at_once(daemon, box):
    results = {}

    def one(i):
        results[i] = daemon.exec(box, f"sleep 0.0{i % 10}; echo {i}; exit {i}")

    threads = [threading.Thread(target=one, args=(i,)) for i in range(40)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert {i: (r["stdout"], r["exec"]["status"]) for i, r in results.items()} == \
        {i: (f"{i}\n", i) for i in range(40)}


def test_run_is_a_machine_for_one_command(daemon):
    r = daemon.post("/v1/run", {"machine": {"limits": {"mem": "128M"}}, "exec": {"command": "hostname; exit 6"}})
    assert r["exec"]["status"] == 6 and r["stdout"] == "carrel\n"
    daemon.until(lambda: daemon.machines() == [])


def test_run_ends_with_its_client(daemon):
    for e in daemon.stream("POST", "/v1/run", {"exec": {"command": "sleep 1000"}}):
        assert e["type"] == "start"
        break
    daemon.until(lambda: daemon.machines() == [])


def test_the_list_of_commands_and_what_is_kept_after_the_end(daemon, box):
    ids = [daemon.exec(box, f"echo {i}")["exec"]["id"] for i in range(3)]
    assert [x["id"] for x in daemon.get(f"/v1/machines/{box}/execs")["execs"]] == ids[::-1]
    daemon.delete(f"/v1/machines/{box}")
    assert daemon.get(f"/v1/machines/{box}/execs/{ids[1]}/output") == b"1\n"
    assert daemon.get(f"/v1/machines/{box}/execs/{ids[1]}")["status"] == 0


@pytest.mark.parametrize("other", ["missing", "m-aaaaaaaaaaaa", "ended"])
def test_command_of_another_machine_name_is_not_found(daemon, other):
    """The daemon, which all owners share, crashed here."""
    box = daemon.machine(name="ended")
    x = daemon.exec(box, "echo out")["exec"]["id"]
    if other == "ended":
        daemon.delete(f"/v1/machines/{box}")
    for path in ("", "/output"):
        with pytest.raises(Refused) as e:
            daemon.get(f"/v1/machines/{other}/execs/{x}{path}")
        assert e.value.code == "not_found"
    assert daemon.get(f"/v1/machines/{box}/execs/{x}/output") == b"out\n"


def test_name_of_a_running_command_is_its_own(daemon, box):
    x = daemon.background(box, "read x", name="work", stdin_open=True)
    assert daemon.get(f"/v1/machines/{box}/execs/{x}")["name"] == "work"
    with pytest.raises(Refused) as e:
        daemon.background(box, "true", name="work")
    assert e.value.code == "exists" and "already runs a command with the name 'work'" in e.value.error["message"]
    other = daemon.machine()
    assert daemon.exec(other, "true", name="work")["exec"]["name"] == "work"
    daemon.request("POST", f"/v1/machines/{box}/execs/{x}/stdin?eof=1", b"")
    daemon.wait(box, x)
    assert daemon.exec(box, "true", name="work")["exec"]["name"] == "work"
    assert "name" not in daemon.exec(box, "true")["exec"]


def test_repeated_request_with_a_name_gets_its_command(daemon, box):
    body = {"command": "sleep 60", "background": True, "name": "work", "key": "once"}
    first, again = (daemon.post(f"/v1/machines/{box}/execs", body)["id"] for _ in range(2))
    assert first == again


@pytest.mark.parametrize("name", ["x-work", "m-work", "a b", "a/b", "-a"])
def test_bad_name_of_a_command(daemon, box, name):
    with pytest.raises(Refused) as e:
        daemon.exec(box, "true", name=name)
    assert e.value.code == "invalid"


def test_list_of_commands_by_state(daemon, box):
    done = daemon.exec(box, "true")["exec"]["id"]
    x = daemon.background(box, "sleep 60")
    assert [e["id"] for e in daemon.get(f"/v1/machines/{box}/execs", state="running")["execs"]] == [x]
    assert [e["id"] for e in daemon.get(f"/v1/machines/{box}/execs", state="exited")["execs"]] == [done]
    with pytest.raises(Refused) as e:
        daemon.get(f"/v1/machines/{box}/execs", state="nonsense")
    assert e.value.code == "invalid"


def test_name_outlives_the_daemon(fresh):
    d = fresh()
    m = d.machine()
    x = d.background(m, "sleep 60", name="work")
    d.kill()
    d.start()
    assert d.get(f"/v1/machines/{m}/execs/{x}")["name"] == "work"
    with pytest.raises(Refused) as e:
        d.background(m, "true", name="work")
    assert e.value.code == "exists"


def test_pid_of_a_background_command_is_the_one_it_sees(fresh):
    d = fresh()
    m = d.machine()
    x = d.background(m, ["sh", "-c", "echo $$; exec sleep 1000"])
    d.until(lambda: d.get(f"/v1/machines/{m}/execs/{x}/output"))
    pid = int(d.get(f"/v1/machines/{m}/execs/{x}/output"))
    assert pid > 1 and d.get(f"/v1/machines/{m}/execs/{x}")["pid"] == pid
    d.restart(True)
    assert d.get(f"/v1/machines/{m}/execs/{x}")["pid"] == pid
    d.delete(f"/v1/machines/{m}/execs/{x}")
    assert d.wait(m, x)["pid"] == pid
    d.delete(f"/v1/machines/{m}")
    assert d.get(f"/v1/machines/{m}/execs/{x}")["pid"] == pid


def test_pid_of_a_command_in_the_foreground_is_not_reported(daemon, box):
    assert daemon.exec(box, "true")["exec"]["pid"] == 0
