"""The command line over the daemon: starts it on first use, and speaks for its machines."""
import contextlib
import json
import os
import pty
import re
import shutil
import signal
import subprocess

import pytest

from carrel import PROGRAM, Carrel, alive


@pytest.fixture
def machine(carrel):
    done = carrel("new", "--name", "tour", "--mem", "256M", "--meta", "a=b")
    assert done.returncode == 0, done
    yield done.stdout.decode().strip()
    carrel("rm", "tour")


def test_new_ls_show_rm(carrel, machine):
    assert machine.startswith("m-")
    rows = json.loads(carrel("ls", "--json").stdout)["machines"]
    assert [(m["id"], m["name"], m["state"]) for m in rows] == [(machine, "tour", "running")]
    assert b"tour" in carrel("ls").stdout
    assert json.loads(carrel("show", "--json", machine[:8]).stdout)["metadata"] == {"a": "b"}
    assert carrel("rm", "tour").returncode == 0
    assert carrel("show", "tour").returncode == 125


def test_new_reads_variables_from_options_and_files(carrel, tmp_path):
    (tmp_path / "env").write_text("# a comment\n\nA=1\nB=x=y z\r\n  TOKEN\nC=file\n")
    done = carrel("new", "-e", "C=option", "-e", "LANG", "--env-file", tmp_path / "env", env={"TOKEN": "from outside", "LANG": "C.UTF-8"})
    box = done.stdout.decode().strip()
    found = carrel("exec", box, "--", "sh", "-c", 'echo "$A|$B|$TOKEN|$C|$LANG"').stdout.decode()
    assert found == "1|x=y z|from outside|option|C.UTF-8\n", (done, found)
    assert carrel("rm", box).returncode == 0
    (tmp_path / "env").write_bytes(b"A=1\nB=\xff\n")
    for words, says in ((["-e", "NOT_SET_HERE"], "--env NOT_SET_HERE: the variable is not set"),
                        (["--env-file", tmp_path / "env"], f"--env-file {tmp_path}/env: line 2: --env B: the text is not UTF-8"),
                        (["--meta", "a"], "--meta a: write it as NAME=VALUE")):
        done = carrel("new", *words)
        assert (done.returncode, done.stderr.decode()) == (125, f"carrel: {says}\n")


def test_exec_and_steps_say_that_a_step_cannot_be_restored(carrel, machine):
    sh = lambda command, *options: carrel("exec", *options, "tour", "--", "sh", "-c", command)
    assert sh("echo one >f").stderr == b""
    left = sh("head -c 48000000 /dev/zero >big; sleep 300 >/dev/null 2>&1 &")
    assert left.returncode == 0
    assert left.stderr.decode().startswith("carrel: step 2 has no restore point: processes were running"), left
    assert f"carrel steps {machine}" in left.stderr.decode()
    assert sh("echo two >f").stderr == b"", "it is said once"
    listed = carrel("steps", "tour").stdout.decode()
    assert "cannot be restored: processes were running" in listed
    assert "2 steps without a restore point" in listed and "carrel rewind --stop-processes tour STEP" in listed
    assert ("carrel store init --btrfs" in listed) == (os.geteuid() == 0)
    assert carrel("rewind", "tour", "3").returncode == 125
    back = carrel("rewind", "--stop-processes", "tour", "3")
    assert back.returncode == 0 and b"to 1, the restore point before step 3" in back.stdout, back
    assert sh("cat f").stdout == b"one\n"
    assert carrel("rewind", "tour", "1").returncode == 0
    assert sh("head -c 48000000 /dev/zero >big; sleep 300 >/dev/null 2>&1 &", "-q").stderr == b""


def test_ls_filters_and_prints_ids(carrel, machine):
    other = carrel("new", "--meta", "a=c", "--meta", "d=e").stdout.decode().strip()
    ids = lambda *options: sorted(carrel("ls", "-q", *options).stdout.decode().split())
    assert ids() == sorted([machine, other])
    assert ids("--name", "tour") == [machine] and ids("--meta", "a=c") == [other]
    assert ids("--meta", "a=c", "--meta", "d=e") == [other] and ids("--meta", "d=e", "--meta", "a=b") == [] == ids("--meta", "a=c", "--meta", "d=f")
    assert carrel("stop", other).returncode == 0
    assert ids("--state", "stopped") == [other] and ids("--state", "running,paused") == [machine]
    assert carrel("rm", other).returncode == 0
    assert ids() == [machine] and {machine, other} <= set(ids("-a"))
    assert carrel("ps", "-aq").stdout == carrel("ls", "--all", "--quiet").stdout
    for words, says in ((["--meta", "a"], b"--meta a: write it as NAME=VALUE"), (["-a", "--state", "ended"], b"--all and --state exclude each other"),
                        (["--state", "asleep"], b"asleep"), (["x"], b"unexpected argument 'x'")):
        done = carrel("ls", *words)
        assert done.returncode == 125 and says in done.stderr, done


def test_other_lists_print_ids_only(carrel, machine):
    carrel("exec", "tour", "--", "touch", "f")
    rows = json.loads(carrel("logs", "--json", "tour").stdout)["execs"]
    assert carrel("logs", "-q", "tour").stdout.decode().split() == [row["id"] for row in rows] != []
    steps = json.loads(carrel("steps", "--json", "tour").stdout)["steps"]
    assert carrel("steps", "-q", "tour").stdout.decode().split() == [str(s["number"]) for s in reversed(steps)] != []


def test_lists_and_makers_print_ids_only(carrel, machine, tmp_path):
    lines = lambda *words: carrel(*words).stdout.decode().split()
    made = carrel("new", "-q").stdout.decode()
    assert re.fullmatch("m-[^ ]+\n", made) and carrel("rm", made.strip()).returncode == 0
    assert lines("snap", "-q", "tour", "mark") == [lines("steps", "-q", "tour")[-1]]
    forks = lines("fork", "-q", "-n", "2", "--run", "echo 1", "--score", "echo 2", "--keep-best", "tour")
    assert len(forks) == 1 and carrel("show", forks[0]).returncode == 0 and carrel("rm", *forks).returncode == 0
    carrel("token", "new")
    tokens = json.loads(carrel("token", "ls", "--json").stdout)["tokens"]
    assert lines("token", "ls", "-q") == [t["id"] for t in tokens] != []
    assert carrel("secret", "set", "ONE_SECRET", stdin=b"a value of it").returncode == 0
    assert "ONE_SECRET" in lines("secret", "ls", "-q") and "NAME" not in lines("secret", "-q", "ls")
    (tmp_path / "file").write_text("x")
    assert carrel("grant", "add", "tour", "--file", f"{tmp_path}/file:/home/user/f").returncode == 0
    grants = json.loads(carrel("grants", "--json", "tour").stdout)["grants"]
    assert lines("grants", "-q", "tour") == lines("grant", "ls", "-q", "tour") == [g["id"] for g in grants] != []
    assert carrel("net", "tour", "allow", "https://one.example").returncode == 0
    rules = json.loads(carrel("net", "tour", "--json").stdout)["rules"]
    assert lines("net", "tour", "-q") == [str(r["id"]) for r in rules] != []
    for words in (["pending", "-q"], ["do", "--ls", "-q"], ["expose", "-q", "tour"]):
        done = carrel(*words)
        assert (done.returncode, done.stdout) == (0, b""), done


def fields(text):
    """The lines "name  value" of a `show`."""
    return dict(line.split(None, 1) for line in text.decode().splitlines() if len(line.split(None, 1)) == 2)


TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC \((in )?\d+(\.\d)?(ms|[smhd])( \d+[smh])?( ago)?\)"


def test_each_object_is_shown_with_units(carrel, machine, tmp_path):
    token = json.loads(carrel("token", "new", "--note", "shown", "--mem", "1G", "--json").stdout)["id"]
    shown = fields(carrel("token", "show", token).stdout)
    assert (shown["note"], shown["mem"], shown["disk"], shown["max_ttl"]) == ("shown", "1G", "unlimited", "unlimited")
    assert re.fullmatch(TIME, shown["created"]) and "crl_" not in str(shown)
    assert carrel("secret", "set", "SHOWN", stdin=b"a value of it").returncode == 0
    shown = fields(carrel("secret", "show", "SHOWN").stdout)
    assert shown["name"] == "SHOWN" and shown["used"] == "never" and re.fullmatch(TIME, shown["created"])
    (tmp_path / "file").write_text("x")
    carrel("grant", "add", "tour", "--expires", "2h", "--file", f"{tmp_path}/file:/home/user/f")
    grant = carrel("grants", "-q", "tour").stdout.decode().split()[0]
    shown = fields(carrel("grant", "show", "tour", grant).stdout)
    assert (shown["id"], shown["kind"], shown["at"]) == (grant, "file", "/home/user/f") and re.fullmatch(TIME, shown["expires"])
    carrel("exec", "tour", "--", "sh", "-c", "echo one >g")
    number = carrel("steps", "-q", "tour").stdout.decode().split()[-1]
    shown = fields(carrel("steps", "tour", number).stdout)
    assert shown["number"] == number and shown["what"] == "sh -c echo one >g" and re.fullmatch(TIME, shown["created"])
    assert json.loads(carrel("steps", "--json", "tour", number).stdout)["number"] == int(number)
    for words, says in ((["token", "show", "t-none"], "token 't-none' does not exist: see carrel token ls"),
                        (["token", "show"], "carrel token show requires the id of a token: see carrel token --help"),
                        (["token", "ls", "x"], "unexpected argument 'x': see carrel token --help"),
                        (["secret", "show", "NONE"], "secret 'NONE' does not exist: see carrel secret ls"),
                        (["grant", "show", "tour", "g-none"], "machine 'tour' has no grant 'g-none': see carrel grants tour"),
                        (["expose"], "no machine given: see carrel ls"),
                        (["expose", "tour", "1", "2"], "unexpected argument '2': see carrel expose --help")):
        done = carrel(*words)
        assert (done.returncode, done.stderr.decode()) == (125, f"carrel: {says}\n")


def test_rm_all(carrel):
    assert carrel("new").returncode == 0 and carrel("new").returncode == 0
    done = carrel("rm", "--all", "x")
    assert done.returncode == 125 and b"--all and machine 'x' exclude each other" in done.stderr
    assert carrel("ls", "-q").stdout.count(b"\n") == 2
    assert carrel("rm", "--all").returncode == 0
    assert carrel("ls", "-q").stdout == b"" and carrel("rm", "--all", "-y").returncode == 0


def test_rm_of_a_machine_that_has_ended(carrel):
    """As in `carrel rm $(carrel ls -q)` directly after a `carrel run`, whose machine ends by itself."""
    m = carrel("new").stdout.decode().strip()
    assert carrel("rm", m).stderr.decode() == f"carrel: deleted machine '{m}'\n"
    again = carrel("rm", m)
    assert (again.returncode, again.stderr.decode()) == (0, f"carrel: machine '{m}' has already ended\n")
    never = carrel("rm", "m-aaaaaaaaaaaa")
    assert never.returncode == 125 and b"does not exist" in never.stderr


def test_set_and_rename(carrel, machine):
    done = carrel("set", "tour", "--mem", "512M", "--cpus", "0.5", "--pids", "99", "--ttl", "2h", "--on-ttl", "pause", "--idle", "30m", "--idle-action", "stop",
                  "--steps", "manual", "--meta", "x=y", "--json")
    told = json.loads(done.stdout)
    assert {**told["limits"], "disk": 0} == {"mem": 512 << 20, "cpus": 0.5, "pids": 99, "disk": 0} and told["metadata"] == {"x": "y"}
    assert (told["idle_ms"], told["idle_action"], told["steps"]) == (1800000, "stop", "manual") and told["expires"] and told["on_ttl"] == "pause"
    assert (carrel("rename", "tour", "trip").stdout, carrel("ls", "-q", "--name", "trip").stdout.decode().strip()) == (b"", machine)
    assert carrel("show", "tour").returncode == 125
    assert json.loads(carrel("rename", "--json", "trip", "tour").stdout)["name"] == "tour"
    for words, says in ((["set", "tour"], b"carrel set requires an option: see carrel set --help"), (["set"], b"no machine given"), (["rename", "tour"], b"no new name given"),
                        (["rename", "tour@", "x"], b"no step given: name a step as MACHINE@STEP"), (["rename", "@1", "x"], b"no machine given"),
                        (["set", "tour", "--mem", "1K"], b"--mem 1K: must be between 4M and 16T"), (["set", "tour", "x", "--mem", "1G"], b"unexpected argument 'x'")):
        done = carrel(*words)
        assert done.returncode == 125 and says in done.stderr, done


def test_show_has_units(carrel, machine):
    carrel("set", "tour", "--idle", "90m")
    lines = dict(line.split(None, 1) for line in carrel("show", "tour").stdout.decode().splitlines() if len(line.split(None, 1)) == 2)
    assert lines["mem"] == "256M" and lines["idle"] == "1h 30m" and lines["drifted"] == "no" and lines["cpus"] == "unlimited"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC \(\d+(\.\d)?[smh]( \d+[sm])? ago\)", lines["created"])
    assert re.fullmatch(r"[0-9.]+(us|ms|s|m)( \d+s)?", dict(line.split(None, 1) for line in carrel("stats", "tour").stdout.decode().splitlines()
                                                          if len(line.split(None, 1)) == 2)["cpu"])


def on_terminal(carrel, *words, **env):
    """What a command prints to a terminal as its standard output."""
    master, slave = pty.openpty()
    text = b""
    try:
        done = carrel.popen(*words, stdin=subprocess.DEVNULL, stdout=slave, stderr=subprocess.PIPE, env={"TERM": "xterm", "CARREL_PAGER": "", **env})
        os.close(slave)
        with done, contextlib.suppress(OSError):  # the terminal's end is an error
            while more := os.read(master, 65536):
                text += more
    finally:
        os.close(master)
    assert done.returncode == 0, (words, text)
    return text.decode().replace("\r\n", "\n")


def test_colours_on_a_terminal(carrel, machine):
    carrel("exec", "tour", "--", "sh", "-c", "echo one >f")
    assert "\x1b[32mrunning" in on_terminal(carrel, "ls") and "\x1b[1mMACHINE" in on_terminal(carrel, "ls")
    assert "\x1b[32mA\x1b[0m /home/user/f" in on_terminal(carrel, "diff", "tour") and "\x1b[32m+one\x1b[0m\n" in on_terminal(carrel, "diff", "tour")
    assert "\x1b[1mMachines:\x1b[0m" in on_terminal(carrel, "help")
    for plain in (on_terminal(carrel, "ls", NO_COLOR="1"), on_terminal(carrel, "ls", TERM="dumb"), carrel("ls").stdout.decode(),
                  on_terminal(carrel, "diff", "tour", NO_COLOR="1")):
        assert "\x1b" not in plain and plain
    assert "\x1b[32m" in on_terminal(carrel, "ls", NO_COLOR="")


def test_a_pager_on_a_terminal(carrel, machine):
    carrel("exec", "tour", "--", "sh", "-c", "echo one >f")
    mark = "sed s/^/P:/"
    for words in (["steps", "tour"], ["logs", "tour"], ["diff", "tour"], ["audit", "-n", "2"]):
        for env in ({"CARREL_PAGER": mark}, {"CARREL_PAGER": mark, "PAGER": "false"}):
            lines = on_terminal(carrel, *words, NO_COLOR="1", **env).splitlines()
            assert lines and all(line.startswith("P:") for line in lines), (words, lines)
        for env in ({"CARREL_PAGER": ""}, {"CARREL_PAGER": "cat"}, {"CARREL_PAGER": mark, "TERM": "dumb"}):
            assert "P:" not in on_terminal(carrel, *words, NO_COLOR="1", **env)
        assert not carrel(*words, env={"CARREL_PAGER": mark}).stdout.startswith(b"P:")
        assert not on_terminal(carrel, words[0], "--json", *words[1:], CARREL_PAGER=mark).startswith("P:")
    assert not on_terminal(carrel, "steps", "-q", "tour", CARREL_PAGER=mark).startswith("P:")


def test_exec_hands_its_streams_through(carrel, machine):
    done = carrel("exec", "tour", "--", "sh", "-c", "cat; echo err >&2; exit 4", stdin=b"in\0\xff\n")
    assert (done.stdout, done.stderr, done.returncode) == (b"in\0\xff\n", b"err\n", 4)


@pytest.mark.parametrize("args,status,word", [
    (["--timeout", "0.3", "tour", "--", "sleep", "100"], 124, b"time limit"),
    (["tour", "--", "/nope"], 127, b"No such file"),
    (["tour", "--", "sh", "-c", "kill -9 $$"], 137, b""),
    (["nobody", "--", "true"], 125, b"nobody"),
])
def test_how_exec_ends(carrel, machine, args, status, word):
    done = carrel("exec", *args)
    assert done.returncode == status and word in done.stderr, done


def test_signals_reach_the_command(carrel, machine):
    p = carrel.popen("exec", "tour", "--", "sh", "-c", "trap 'exit 9' INT; echo up; while :; do sleep 0.05; done",
                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert p.stdout.readline() == b"up\n"
    p.send_signal(signal.SIGINT)
    assert p.wait(20) == 9
    p.stdout.close()


def test_logs_pause_resume_stop_stats(carrel, machine):
    daemon_side = json.loads(carrel("stats", "--json").stdout)
    assert daemon_side["machines"]["running"] == 1 and daemon_side["box"]["boxes"] == 1
    assert carrel("pause", "tour").stdout.split() == [machine.encode(), b"paused", b"in", b"memory"]
    assert carrel("exec", "tour", "--", "true").returncode == 0, "a command of its owner wakes it"
    assert carrel("pause", "tour").returncode == 0
    assert carrel("resume", "tour").returncode == 0
    assert carrel("stop", "tour").returncode == 0
    assert carrel("resume", "tour").returncode == 0
    assert json.loads(carrel("stats", "--json", "tour").stdout)["mem_limit_bytes"] == 256 << 20
    carrel("exec", "tour", "--", "echo", "kept")
    rows = json.loads(carrel("logs", "--json", "tour").stdout)["execs"]
    assert rows[0]["argv"] == ["echo", "kept"] and rows[0]["status"] == 0


def test_audit_and_tokens(carrel, machine):
    carrel("exec", "tour", "--", "echo", "for the journal")
    lines = [json.loads(line) for line in carrel("audit", "--json", "--machine", machine).stdout.splitlines()]
    assert [r["argv"] for r in lines if r["verb"] == "exec" and r["kind"] == "intent"] == [["echo", "for the journal"]]
    found = carrel("audit", "--json", "--machine", machine, "--text", "MACHINE.CREATE").stdout.splitlines()
    assert found and len(found) < len(lines) and all(json.loads(line)["verb"] == "machine.create" for line in found)
    verified = carrel("audit", "verify").stdout
    assert b"the journal is complete" in verified and re.match(rb"\d+ records in 1 segment\n", verified), verified
    head = carrel("audit", "verify").stdout.split(b"head ")[1].split()[0].decode()
    assert carrel("audit", "verify", "--head", head).returncode == 0
    wrong = carrel("audit", "verify", "--head", head[:-4] + ("0000" if head[-4:] != "0000" else "1111"))
    assert wrong.returncode == 1, wrong
    secret = carrel("token", "new", "--note", "ci", "--scope", "read").stdout.strip()
    assert secret.startswith(b"crl_")
    listed = carrel("token", "ls").stdout
    assert b"ci" in listed and secret not in listed


def test_a_lent_directory(carrel, tmp_path):
    (tmp_path / "file").write_text("host\n")
    done = carrel("new", "--name", "lent", "--dir", f"{tmp_path}:/home/user/work")
    assert done.returncode == 0, done
    out = carrel("exec", "--cwd", "/home/user/work", "lent", "--", "sh", "-c", "cat file; echo changed >file; cat file")
    assert out.stdout == b"host\nchanged\n", out
    assert (tmp_path / "file").read_text() == "host\n"
    assert carrel("rm", "lent").returncode == 0


def test_snap_log_rewind(carrel, machine):
    assert carrel("exec", "tour", "--", "sh", "-c", "echo one >f").returncode == 0
    assert carrel("snap", "tour", "good").stdout == b"2\n"
    assert carrel("exec", "tour", "--", "sh", "-c", "rm f; echo two >g").returncode == 0
    log = carrel("steps", "tour").stdout.decode()
    assert "good" in log and "echo one >f" in log and len(log.splitlines()) == 4
    done = carrel("rewind", "tour", "good")
    assert done.returncode == 0 and b"rewind" in done.stdout, done
    assert carrel("exec", "tour", "--", "sh", "-c", "cat f; ls").stdout == b"one\nf\n"
    steps = json.loads(carrel("steps", "--json", "tour", "-n", "2").stdout)["steps"]
    assert len(steps) == 2 and steps[0]["number"] > steps[1]["number"]
    assert b"nonesuch" in carrel("rewind", "tour", "nonesuch").stderr


def test_fork_and_tournament(carrel, machine):
    assert carrel("exec", "tour", "--", "sh", "-c", "echo 5 >f").returncode == 0
    forks = carrel("fork", "tour", "-n", "2").stdout.decode().split()
    assert len(forks) == 2 and all(carrel("exec", f, "--", "cat", "f").stdout == b"5\n" for f in forks)
    assert carrel("rm", *forks).returncode == 0
    done = carrel("fork", "tour", "-n", "3", "--at", "1", "--run", "cut -c3-6 /etc/machine-id >score; sleep 0.2",
                  "--score", "printf '%d\n' 0x$(cat score)", "--keep-best", "--json")
    rows = json.loads(done.stdout)["forks"]
    best = [r for r in rows if r["best"]]
    assert done.returncode == 0 and len(best) == 1 and best[0]["score"] == max(r["score"] for r in rows), done
    left = {m["id"] for m in json.loads(carrel("ls", "--json").stdout)["machines"]}
    assert left == {machine, best[0]["machine"]}
    lost = carrel("fork", "tour", "--run", "true", "--score", "false", "--keep-best")
    assert lost.returncode == 125 and b"no fork has a score" in lost.stderr
    assert carrel("rm", *({m["id"] for m in json.loads(carrel("ls", "--json").stdout)["machines"]} - {machine}))\
        .returncode == 0


def test_an_installation_that_is_broken_is_not_taken_for_an_empty_one(carrel, machine, tmp_path):
    alone = shutil.copy(PROGRAM, tmp_path)
    for words in (["ls"], ["top", "--json"], ["show", "tour"]):
        done = subprocess.run([alone, *words], env=carrel.env, capture_output=True)
        assert done.returncode == 125 and b"carrel-" in done.stderr, done
        assert "error" in json.loads(done.stdout) if "--json" in words else not done.stdout, done


def test_bad_words_name_the_thing(carrel):
    for words, word in ((["new", "--mem", "x"], b"x"), (["new", "--name", "-bad"], b"-bad"), (["pause"], b"machine"),
                        (["pause", "nobody"], b"nobody"), (["logs", "nobody"], b"nobody"),
                        (["token", "make"], b"make"), (["new", "--steps", "s"], b"steps"), (["rewind", "nobody"], b"step"),
                        (["fork", "--keep-best", "nobody"], b"--keep-best requires --score"), (["snap"], b"machine")):
        done = carrel(*words)
        assert done.returncode == 125 and word in done.stderr, done


def test_the_daemon_leaves_when_it_has_nothing_to_do():
    c = Carrel()
    try:
        assert c("token", "ls").returncode == 0
        pid = int((c.run_dir / "carrel.pid").read_text())
        assert alive(pid)
    finally:
        c.stop()
    assert not alive(pid)
