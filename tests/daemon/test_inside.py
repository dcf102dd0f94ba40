"""The command `carrel` in a machine: what it tells, questions to the owner, and what hostile callers can do with it."""
import json
import subprocess

import pytest

from carrel import PROGRAM
from test_auth import ALICE, BOB, as_user, needs_root, refused, server, shared, tcp  # noqa: F401

# Speaks to the socket as any program can: PACKETS..., then prints each answer as status and text.
RAW = r"""
import socket, sys
def call(*packets, fds=()):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.settimeout(20)
    s.connect("\0carrel")
    for p in packets:
        if fds:
            socket.send_fds(s, [p], fds)
        else:
            s.send(p)
    got = s.recv(65536)
    s.close()
    return got[:1], got[1:].decode()
"""


def inside(d, m, line, **fields):
    r = d.exec(m, line, **fields)
    return r["exec"]["status"], r["stdout"], r["stderr"]


def told(d, m, line, **fields):
    status, out, err = inside(d, m, line, **fields)
    assert status == 0 and err == "", (status, out, err)
    return out


def questions(d, m=None):
    return [p for p in d.get("/v1/pending")["pending"] if p["protocol"] == "question" and m in (None, p["machine"])]


def asking(d, m, words):
    """A command that asks; its question, once it waits."""
    x = d.background(m, f"carrel ask {words}")
    return x, d.until(lambda: questions(d, m))[0]



def carrel(d, *words, **kw):
    return subprocess.run([PROGRAM, *words], env=d.env, capture_output=True, text=True, timeout=60, **kw)


# ---- what it tells ----

def test_me_tells_limits_network_and_grants(daemon, tmp_path):
    m = daemon.machine(limits={"mem": "64M", "pids": 99}, ttl="1h", net=[{"target": "https://example.com/a", "methods": "GET"},
                                                                  {"target": "ask.example", "action": "ask"}],
                       models={"tokens": 500})
    text = told(daemon, m, "carrel me")
    for part in (f"Machine {m} (a box, image host)", "memory 64M, disk 1G, 99 processes; the machine is deleted in ",
                 "allow GET https://example.com/a\n", "ask ask.example (your owner decides each time)\n", "500 tokens left"):
        assert part in text, text
    card = json.loads(told(daemon, m, "carrel me --json"))
    assert card["machine"] == m and card["rights"]["limits"]["processes"] == 99 and card["models"]["tokens_left"] == 500
    assert 3000 < card["seconds_left"] <= 3600


def test_me_works_without_a_network(daemon):
    m = daemon.machine()
    assert "Network: closed. Every connection is refused." in told(daemon, m, "carrel me")
    assert "seconds_left" not in told(daemon, m, "carrel me --json")


def test_me_tells_of_models_only_if_they_can_be_reached(daemon):
    closed, other, allowed = daemon.machine(), daemon.machine(net=[{"target": "example.com"}]), daemon.machine(models={"allow": True})
    assert "Models:" not in told(daemon, closed, "carrel me") and "models" not in json.loads(told(daemon, closed, "carrel me --json"))
    assert "Models:" not in told(daemon, other, "carrel me")
    assert "Models: http://models.carrel; 0 tokens used in 0 calls.\n" in told(daemon, allowed, "carrel me"), told(daemon, allowed, "carrel me")
    daemon.post(f"/v1/machines/{closed}/net/rules", {"target": "http://models.carrel/v1", "action": "ask"})
    assert "Models: http://models.carrel" in told(daemon, closed, "carrel me")


def test_status_is_short(daemon):
    m = daemon.machine(limits={"mem": "64M"})
    assert told(daemon, m, "carrel status").startswith("time left: no limit\nmemory: ")
    status = json.loads(told(daemon, m, "carrel status --json"))
    assert status["mem_limit_bytes"] == 64 << 20 and status["held_requests"] == 0 and 0 <= status["disk_bytes"] < 64 << 20


def test_status_counts_requests_that_wait(daemon):
    m = daemon.machine(net=[{"target": "http://ask.example", "action": "ask"}])
    daemon.background(m, "curl -s http://ask.example/")
    daemon.until(lambda: json.loads(told(daemon, m, "carrel status --json"))["held_requests"] == 1)


def test_secret_is_never_told(daemon):
    daemon.put("/v1/secrets/SHOP_KEY", {"value": "value-of-the-secret"})
    m = daemon.machine(secrets=[{"name": "SHOP_KEY", "host": "shop.example"}])
    text = told(daemon, m, "carrel me; carrel me --json")
    assert "variable SHOP_KEY is a placeholder for a secret" in text and "shop.example" in text
    assert "value-of-the-secret" not in text
    daemon.delete("/v1/secrets/SHOP_KEY")


def test_wrong_words_get_the_usage(daemon):
    m = daemon.machine()
    assert told(daemon, m, "carrel").startswith("usage: carrel me")
    for words in ("nothing", "me twice", "me --json x", "status x", "ask", "ask a b", "ask a --timeout", "ask a --timeout 2d", "''"):
        status, out, err = inside(daemon, m, f"carrel {words}")
        assert status == 2 and out == "" and err.startswith("usage: carrel "), words


def test_command_is_read_only_and_found_last(daemon):
    m = daemon.machine()
    status, _, err = inside(daemon, m, "echo x >/run/carrel/bin/carrel || rm -f /run/carrel/bin/carrel", user="root")
    assert status != 0 and "Read-only" in err, err
    daemon.exec(m, "printf '#!/bin/sh\\necho own\\n' >/usr/local/bin/carrel; chmod +x /usr/local/bin/carrel", user="root")
    assert told(daemon, m, "carrel me") == "own\n"
    assert "Machine" in told(daemon, m, "/run/carrel/bin/carrel me", user="root")


# ---- questions ----

def test_owner_answers_with_a_command(daemon):
    m = daemon.machine()
    x, q = asking(daemon, m, '"which colour?"; echo status $?')
    assert q["question"] == "which colour?" and q["id"].startswith("q-")
    shown = carrel(daemon, "pending").stdout
    assert f"carrel answer {q['id']} TEXT\n    which colour?\n" in shown
    done = carrel(daemon, "answer", q["id"], "blue, and\nnothing else")
    assert done.returncode == 0 and f"answered question '{q['id']}'" in done.stderr, done
    daemon.wait(m, x)
    assert carrel(daemon, "logs", m, x).stdout == "blue, and\nnothing else\nstatus 0\n"
    assert questions(daemon) == []
    late = carrel(daemon, "answer", q["id"], "red")
    assert late.returncode == 125 and "no question with the id" in late.stderr


def test_question_is_an_event_and_the_answer_is_in_the_journal(daemon):
    m = daemon.machine()
    x, q = asking(daemon, m, "why")
    daemon.post(f"/v1/pending/{q['id']}", {"decision": "answer", "text": "because"})
    daemon.wait(m, x)
    past = carrel(daemon, "events", m, "--past", "--json").stdout
    assert '"machine.ask"' in past and q["id"] in past and '"machine.answered"' in past
    assert '"machine.answer"' in carrel(daemon, "audit", "--json").stdout


def test_owner_can_refuse_to_answer(daemon):
    m = daemon.machine()
    x, q = asking(daemon, m, "why 2>&1; echo status $?")
    assert carrel(daemon, "deny", q["id"]).returncode == 0
    daemon.wait(m, x)
    assert carrel(daemon, "logs", m, x).stdout == "carrel: the owner does not answer this question\nstatus 1\n"


def test_question_that_nobody_answers_ends(daemon):
    m = daemon.machine()
    status, out, err = inside(daemon, m, "carrel ask hello --timeout 1")
    assert status == 1 and out == "" and "nobody answered in time" in err
    assert questions(daemon) == []


def test_question_ends_with_its_caller(daemon):
    m = daemon.machine()
    x, q = asking(daemon, m, "hello")
    daemon.delete(f"/v1/machines/{m}/execs/{x}")
    daemon.until(lambda: questions(daemon) == [])
    refused(404, "not_found", daemon.post, f"/v1/pending/{q['id']}", {"decision": "answer", "text": "x"})


def test_question_outlives_the_daemon(daemon):
    m = daemon.machine()
    x, _ = asking(daemon, m, "hello")
    daemon.restart()
    q = daemon.until(lambda: questions(daemon, m))[0]
    daemon.post(f"/v1/pending/{q['id']}", {"decision": "answer", "text": "still here"})
    daemon.wait(m, x)
    assert carrel(daemon, "logs", m, x).stdout == "still here\n"
    assert told(daemon, m, "carrel me").startswith("Machine ")


def test_decision_must_fit_a_question(daemon):
    m = daemon.machine()
    _, q = asking(daemon, m, "hello")
    for body in ({"decision": "approve"}, {"decision": "answer"}, {"decision": "deny", "text": "x"}):
        refused(400, "invalid", daemon.post, f"/v1/pending/{q['id']}", body)
    refused(400, "invalid", daemon.post, f"/v1/pending/{q['id']}", {"decision": "answer", "text": ""})
    refused(400, "invalid", daemon.post, "/v1/pending/a-000000000000", {"decision": "answer", "text": "x"})
    wrong = carrel(daemon, "answer", "q-1", "x")
    assert wrong.stderr == "carrel: 'q-1' is not the id of a question: list questions with: carrel pending\n"
    assert questions(daemon, m)


# ---- hostile callers ----

def test_escapes_in_a_question_do_not_reach_the_terminal(daemon):
    m = daemon.machine()
    _, q = asking(daemon, m, r'''"$(printf 'a\033]0;title\007\033[2J\342\200\256b')"''')
    assert "\x1b" in q["question"]
    for words in (["pending"], ["pending", "--json"], ["events", m, "--past"]):
        shown = carrel(daemon, *words).stdout
        assert "\x1b" not in shown and "\u202e" not in shown and "title" in shown, words


def test_questions_are_few_and_small(daemon):
    m = daemon.machine()
    for n in range(4):
        daemon.background(m, f"carrel ask q{n}")
    daemon.until(lambda: len(questions(daemon, m)) == 4)
    status, _, err = inside(daemon, m, "carrel ask more")
    assert status == 1 and "too many questions" in err
    assert len(questions(daemon, m)) == 4
    other = daemon.machine()
    for size, said in ((2001, "at most 2000 bytes"), (5000, "the arguments are too long")):
        status, _, err = inside(daemon, other, f"carrel ask $(head -c {size} /dev/zero | tr '\\0' x)")
        assert status != 0 and said in err
    status, _, err = inside(daemon, other, r"""carrel ask "$(printf '\377')" """)
    assert status == 1 and "text in UTF-8" in err
    assert questions(daemon, other) == []


def test_questions_that_are_taken_back_do_not_flood_the_owner(daemon):
    m = daemon.machine()
    daemon.exec(m, "for i in $(seq 12); do timeout 0.3 carrel ask hello$i; done", timeout=60)
    past = carrel(daemon, "events", m, "--past", "--json").stdout
    assert 1 <= past.count('"machine.ask"') <= 5, past


def test_flood_of_calls_delays_only_its_machine(daemon):
    m, other = daemon.machine(), daemon.machine()
    loop = RAW + "while True:\n    try: call(b'me\\0')\n    except OSError: pass\n"
    for _ in range(3):
        daemon.post(f"/v1/machines/{m}/execs", {"argv": ["python3", "-c", loop], "background": True})
    for _ in range(5):
        assert told(daemon, other, "carrel me").startswith(f"Machine {other}")
    assert daemon.get(f"/v1/machines/{m}")["state"] == "running"
    daemon.delete(f"/v1/machines/{m}")


def test_callers_that_say_nothing_take_no_place_for_ever(daemon):
    m = daemon.machine()
    hold = RAW + ("import time\nheld = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(40)]\n"
                  "for s in held:\n    s.setblocking(False)\n    try: s.connect('\\0carrel')\n    except OSError: pass\n"
                  "print('held', flush=True)\ntime.sleep(3)\n")
    x = daemon.post(f"/v1/machines/{m}/execs", {"argv": ["python3", "-c", hold], "background": True})["id"]
    daemon.wait(m, x)
    assert told(daemon, m, "carrel me").startswith("Machine ")


@pytest.mark.parametrize("call, status", [
    ("call(b'x')", 2), ("call(b'\\0' * 4096)", 2), ("call(b'x' * 5000)", 2), ("call(b'a\\0' * 17)", 2), ("call(b'me\\0more')", 2),
    ("call(b'me\\0', fds=[0, 1, 2])", 0), ("call(b'ask\\0\\0')", 1), ("call(b'ask\\0hello\\0--machine\\0m-other\\0')", 2),
])
def test_odd_packets_are_answered(daemon, call, status):
    m = daemon.machine()
    r = daemon.post(f"/v1/machines/{m}/execs", {"argv": ["python3", "-c", RAW + f"print(ord({call}[0]))"]})
    assert r["stdout"] == f"{status}\n", r
    assert told(daemon, m, "carrel me").startswith("Machine ")


def test_machine_cannot_speak_for_another(daemon):
    """The name of the socket is taken in each machine, and leads to its own guest."""
    one, two = daemon.machine(name="one"), daemon.machine(name="two")
    take = "import socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.bind('\\0carrel'); print('taken')"
    for m in (one, two):
        r = daemon.post(f"/v1/machines/{m}/execs", {"argv": ["python3", "-c", take], "user": "root"})
        assert "Address already in use" in r["stderr"] and r["stdout"] == "", r
        assert json.loads(told(daemon, m, "carrel me --json"))["machine"] == m
    free = take.replace("0carrel", "0carrel-other")  # the control
    assert daemon.post(f"/v1/machines/{one}/execs", {"argv": ["python3", "-c", free]})["stdout"] == "taken\n"
    _, q = asking(daemon, two, "hello")
    assert q["machine"] == two


@needs_root
def test_only_the_owner_answers(shared):  # noqa: F811
    m = as_user(ALICE, lambda: shared.machine())
    as_user(ALICE, lambda: shared.background(m, "carrel ask hello"))
    q = as_user(ALICE, lambda: shared.until(lambda: questions(shared, m)))[0]
    answer = (f"/v1/pending/{q['id']}", {"decision": "answer", "text": "x"})
    assert as_user(BOB, lambda: questions(shared)) == []
    refused(404, "not_found", as_user, BOB, lambda: shared.post(*answer))
    as_user(ALICE, lambda: shared.post(*answer))
    assert as_user(ALICE, lambda: questions(shared)) == []


def test_token_that_may_only_run_commands_does_not_answer(server, tcp):  # noqa: F811
    m = server.machine()
    _, q = asking(server, m, "hello")
    refused(403, "denied", tcp(scopes=["run"]).post, f"/v1/pending/{q['id']}", {"decision": "answer", "text": "x"})
    assert questions(server, m)
