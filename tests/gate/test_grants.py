"""Grants are objects: listed, journalled, with an end of their own, and taken back while the machine runs."""
import json
import os
import pathlib
import subprocess
import time

import pytest

from carrel import PROGRAM
from daemon import Refused


@pytest.fixture
def lent(gated, tmp_path):
    """A machine with two directories of the host, and the directories."""
    dirs = {}
    for name in ("one", "two"):
        dirs[name] = tmp_path / name
        dirs[name].mkdir()
        (dirs[name] / "note").write_text(name)
    fds = [os.open(d, os.O_RDONLY | os.O_DIRECTORY) for d in dirs.values()]
    box = gated.lend(*fds, dirs=[{"path": str(dirs["one"]), "at": "/one"}, {"path": str(dirs["two"]), "at": "/in/two", "mode": "ro"}])
    for fd in fds:
        os.close(fd)
    return box, dirs


def out(gated, box, line, **more):
    return gated.exec(box, line, **more)["stdout"]


def verbs(gated, box):
    """(kind, verb) of every line of the journal about the machine's grants."""
    text = gated.request("GET", "/v1/audit", raw=True, machine=box, verb="grant").decode()
    return [(n["kind"], n["verb"], (n.get("detail") or {}).get("kind")) for n in map(json.loads, text.splitlines())]


def carrel(gated, *words, **more):
    return subprocess.run([PROGRAM, *words], env=gated.env, capture_output=True, text=True, timeout=60, **more)


def token(gated, *scopes):
    return {"Authorization": "Bearer " + gated.post("/v1/tokens", {"scopes": scopes})["secret"]}.items()


# ---- one table ----


def test_all_it_was_handed_is_listed(gated, lent):
    box, dirs = lent
    gated.put("/v1/secrets/API_KEY", {"value": "some value of it"})
    gated.grant(box, "secret", "API_KEY", at="api.test", expires="1h")
    gated.grant(box, "env", "COLOUR", value="green")
    rows = gated.grants(box)
    assert [(g["kind"], g["what"], g.get("at"), g.get("mode")) for g in rows] == [
        ("dir", str(dirs["one"]), "/one", "cow"), ("dir", str(dirs["two"]), "/in/two", "ro"),
        ("secret", "API_KEY", "api.test", "header"), ("env", "COLOUR", None, None)]
    assert len({g["id"] for g in rows}) == 4 and all(g["id"].startswith("g-") for g in rows)
    assert 3_500_000 < rows[2]["expires_ms"] - time.time() * 1000 < 3_600_001 and "expires_ms" not in rows[0]
    assert verbs(gated, box)[:2] == [("note", "grant.add", "dir")] * 2
    gated.restart()
    assert gated.grants(box) == rows


def test_the_machine_reads_what_it_was_handed(gated, lent):
    """And nothing of where it lies on the host."""
    box, dirs = lent

    def told():
        return json.loads(out(gated, box, "cat /run/carrel/machine.json"))["grants"]
    two = {"kind": "dir", "path": "/in/two", "mode": "ro"}
    assert told() == [{"kind": "dir", "path": "/one", "mode": "cow"}, two]
    gated.grant(box, "env", "COLOUR", value="green")
    gated.delete(f"/v1/machines/{box}/grants/{gated.grants(box)[0]['id']}")
    assert told() == [two, {"kind": "env", "name": "COLOUR"}]
    assert str(dirs["two"]) not in out(gated, box, "cat /run/carrel/machine.json")


@pytest.mark.parametrize("fields,why", [
    ({"kind": "dir", "what": "/tmp"}, "kind"),
    ({"kind": "env", "what": "X"}, "requires a value"),
    ({"kind": "env", "what": "A=B", "value": "x"}, "not a valid name of an environment variable"),
    ({"kind": "file", "what": "/etc/hosts", "at": "/home/user/x"}, "the request passes no open file for '/etc/hosts': send its file descriptor with the request"),
    ({"kind": "file", "what": "/etc/hosts", "at": "/etc/hosts"}, "a grant cannot be placed at"),
    ({"kind": "file", "what": "/etc/hosts", "at": "/home/../etc"}, "a grant cannot be placed at"),
    ({"kind": "file", "what": "/etc/hosts", "at": "/home/a\nb"}, "a grant cannot be placed at"),
    ({"kind": "secret", "what": "NOBODY", "at": "api.test"}, "secret 'NOBODY' does not exist"),
    ({"kind": "env", "what": "X", "value": "x", "expires": 0}, "must be between"),
])
def test_bad_words(gated, fields, why):
    box = gated.machine()
    with pytest.raises(Refused) as refused:
        gated.post(f"/v1/machines/{box}/grants", fields)
    assert why in str(refused.value) and gated.grants(box) == []


def test_a_token_hands_nothing_over_and_takes_nothing_back(gated, lent):
    box, _ = lent
    one, env = gated.grants(box)[0]["id"], {"kind": "env", "what": "X", "value": "y"}
    for method, target, body in (("POST", f"/v1/machines/{box}/grants", env), ("DELETE", f"/v1/machines/{box}/grants/{one}", None),
                                 ("POST", "/v1/machines", {"grants": [env]})):
        with pytest.raises(Refused) as refused:
            gated.request(method, target, body, headers=token(gated, "read", "run"))
        assert refused.value.code == "denied"
    assert len(gated.grants(box)) == 2


def test_nobody_else_sees_them(gated, lent):
    box, _ = lent
    with pytest.raises(Refused) as refused:
        gated.delete(f"/v1/machines/{gated.machine()}/grants/{gated.grants(box)[0]['id']}")
    assert refused.value.code == "not_found" and len(gated.grants(box)) == 2


def test_grant_of_a_missing_machine_is_not_found(gated):
    """The daemon crashed here."""
    with pytest.raises(Refused) as refused:
        gated.delete("/v1/machines/missing/grants/g-aaaaaaaaaaaa")
    assert refused.value.code == "not_found"
    assert gated.get("/v1/machines")["machines"] is not None


# ---- directories ----


def test_a_directory_that_nobody_uses_goes_and_commands_go_on(gated, lent):
    box, dirs = lent
    sleeper = gated.background(box, "cd /; echo out; exec sleep 100")
    gated.until(lambda: gated.get(f"/v1/machines/{box}/execs/{sleeper}")["stdout_bytes"])
    one, two = (g["id"] for g in gated.grants(box))
    gated.delete(f"/v1/machines/{box}/grants/{one}")
    assert out(gated, box, "cat /one/note; cat /in/two/note") == "two"
    assert gated.get(f"/v1/machines/{box}/execs/{sleeper}")["state"] == "running"
    assert [g["id"] for g in gated.grants(box)] == [two]
    assert verbs(gated, box)[-2:] == [("intent", "grant.revoke", "dir"), ("result", "grant.revoke", "dir")]
    assert (dirs["one"] / "note").read_text() == "one"


@pytest.mark.parametrize("hold", ["exec 3</one/note; sleep 100", "cd /one; sleep 100",
                                  "python3 -c \"import mmap, os, time; f = open('/one/note'); m = mmap.mmap(f.fileno(), 0, prot=1); f.close(); time.sleep(100)\"",
                                  "python3 -c \"import os, socket, time; a, b = socket.socketpair(); f = os.open('/one/note', 0); socket.send_fds(a, [b'x'], [f]); os.close(f); time.sleep(100)\""],
                         ids=["open", "cwd", "mapped", "on its way"])
def test_who_has_it_open_ends(gated, lent, hold):
    box, _ = lent
    x = gated.background(box, hold)
    time.sleep(0.3)
    gated.delete(f"/v1/machines/{box}/grants/{gated.grants(box)[0]['id']}")
    assert gated.wait(box, x)["state"] == "exited"
    assert gated.get(f"/v1/machines/{box}")["state"] == "running"
    assert out(gated, box, "cat /one/note; cat /in/two/note") == "two"


def test_one_that_was_moved_inside_goes_too(gated, lent):
    box, _ = lent
    assert out(gated, box, "mkdir /home/hidden && mv /in /home/hidden/ && cat /home/hidden/in/two/note", user="root") == "two"
    gated.delete(f"/v1/machines/{box}/grants/{gated.grants(box)[1]['id']}")
    assert out(gated, box, "cat /home/hidden/in/two/note; cat /one/note") == "one"


def test_it_does_not_come_back(gated, lent):
    """By a rewind to a step in which it was there, or with another daemon."""
    box, _ = lent
    gated.exec(box, "touch x")
    gated.revoke(box, "dir")
    gated.exec(box, "touch y")
    gated.post(f"/v1/machines/{box}/rewind", {"step": "1"})
    assert out(gated, box, "cat /one/note /in/two/note") == ""
    gated.restart()
    gated.until(lambda: gated.exec(box, "true"))
    assert out(gated, box, "cat /one/note /in/two/note") == "" and gated.grants(box) == []


def test_one_in_another_is_revoked_first(gated, tmp_path):
    (tmp_path / "in").mkdir()
    fds = [os.open(tmp_path, os.O_RDONLY), os.open(tmp_path / "in", os.O_RDONLY)]
    box = gated.lend(*fds, dirs=[{"path": str(tmp_path), "at": "/o"}, {"path": str(tmp_path / "in"), "at": "/o/in"}])
    [os.close(fd) for fd in fds]
    outer, inner = (g["id"] for g in gated.grants(box))
    with pytest.raises(Refused) as refused:
        gated.delete(f"/v1/machines/{box}/grants/{outer}")
    assert inner in refused.value.error["remedy"]
    gated.delete(f"/v1/machines/{box}/grants/{inner}")
    gated.delete(f"/v1/machines/{box}/grants/{outer}")
    assert gated.grants(box) == []


def test_a_paused_machine_keeps_it(gated, lent):
    box, _ = lent
    gated.post(f"/v1/machines/{box}/pause")
    with pytest.raises(Refused) as refused:
        gated.delete(f"/v1/machines/{box}/grants/{gated.grants(box)[0]['id']}")
    assert refused.value.code == "busy"
    gated.post(f"/v1/machines/{box}/resume")
    gated.revoke(box, "dir")


# ---- files and variables ----


def test_a_file_is_copied_and_taken_back(gated, tmp_path):
    big = os.urandom(3 << 20)
    (tmp_path / "big").write_bytes(big)
    made = carrel(gated, "new", "--file", f"{tmp_path}/big:/home/user/data/big", "--env", "COLOUR=green")
    assert made.returncode == 0, made.stderr
    box = made.stdout.strip()
    assert gated.request("GET", f"/v1/machines/{box}/files", raw=True, path="/home/user/data/big") == big
    assert out(gated, box, "stat -c %U data/big; echo $COLOUR") == "user\ngreen\n"
    (tmp_path / "empty").write_bytes(b"")
    added = carrel(gated, "grant", "add", box, "--file", f"{tmp_path}/empty:/home/user/e", "-e", "SHAPE=round")
    assert added.returncode == 0, added.stderr
    assert out(gated, box, "wc -c <e; echo $SHAPE") == "0\nround\n"
    assert [g["kind"] for g in gated.grants(box)] == ["env", "file", "file", "env"]
    gated.revoke(box, "file")
    gated.revoke(box, "env")
    assert out(gated, box, "ls data e; echo ${COLOUR-none}${SHAPE-none}") == "data:\nnonenone\n"
    assert gated.grants(box) == []


@pytest.mark.parametrize("make,why", [
    (lambda p: os.mkfifo(p), "not a regular file"),
    (lambda p: p.mkdir(), "not a regular file"),
    (lambda p: None, "No such file"),
], ids=["a pipe", "a directory", "nothing"])
def test_only_files_are_copied(gated, tmp_path, make, why):
    make(tmp_path / "x")
    done = carrel(gated, "new", "--file", f"{tmp_path}/x:/home/user/x")
    assert done.returncode and why in done.stderr, done
    assert gated.machines() == []


def test_our_own_files_are_not_handed_over(gated):
    done = carrel(gated, "new", "--file", f"{gated.home}/carrel.db:/home/user/x")
    assert done.returncode and "Carrel's own directory" in done.stderr, done


# ---- their end ----


def test_they_end_when_their_time_has_come(gated, tmp_path):
    (tmp_path / "f").write_text("x")
    made = carrel(gated, "new", "--dir", f"{tmp_path}:/d", "--file", f"{tmp_path}/f:/home/user/f", "--env", "A=b", "--expires", "1.5s")
    box = made.stdout.strip()
    assert made.returncode == 0 and len(gated.grants(box)) == 3, made.stderr
    assert out(gated, box, "cat /d/f f; echo $A") == "xxb\n"
    gated.until(lambda: gated.grants(box) == [], 10)
    assert out(gated, box, "cat /d/f f; echo $A") == "\n"
    ends = sorted([(kind, "grant.expire", what) for what in ("dir", "file", "env") for kind in ("intent", "result")])
    # The last result is written after the grant has left the list.
    gated.until(lambda: sorted(v for v in verbs(gated, box) if v[1] == "grant.expire") == ends, 10)
    events = gated.request("GET", "/v1/events", raw=True, machine=box, follow="false").decode()
    assert events.count("event: grant.ended") == 3


def test_a_fork_has_what_its_files_hold(gated, lent, tmp_path):
    box, _ = lent
    gated.put("/v1/secrets/API_KEY", {"value": "some value of it"})
    gated.grant(box, "secret", "API_KEY", at="api.test", expires="1h")
    gated.grant(box, "env", "COLOUR", value="green")
    fork = gated.post(f"/v1/machines/{box}/fork")["machines"][0]["id"]
    mine, theirs = gated.grants(box), gated.grants(fork)
    assert [(g["kind"], g["what"], g.get("expires_ms"), g.get("detail")) for g in theirs] == [
        (g["kind"], g["what"], g.get("expires_ms"), g.get("detail")) for g in mine if g["kind"] != "dir"]
    assert not {g["id"] for g in mine} & {g["id"] for g in theirs}
    gated.revoke(fork, "env")
    assert out(gated, fork, "echo ${COLOUR-none}") == "none\n" and out(gated, box, "echo $COLOUR") == "green\n"


# ---- an account of its own ----


def test_an_identity_is_a_git_author_with_a_key(gated):
    made = carrel(gated, "new", "--identity", "Robin <robin@example.com>")
    box = made.stdout.strip()
    assert made.returncode == 0, made.stderr
    [g] = gated.grants(box)
    key = g["detail"]["public_key"]
    assert (g["kind"], g["what"], g["at"]) == ("identity", "Robin", "robin@example.com") and key.endswith(" robin@example.com")
    assert key in carrel(gated, "grants", box).stdout
    inside = out(gated, box, "stat -c %a%U .ssh/id_ed25519; ssh-keygen -y -f .ssh/id_ed25519; "
                             "git init -q r; cd r; git commit -q --allow-empty -m x; git log --format='%an <%ae>/%cn <%ce>'", cwd="/home/user")
    assert inside.splitlines()[0] == "600user" and inside.splitlines()[1].split()[:2] == key.split()[:2]
    assert inside.splitlines()[2] == "Robin <robin@example.com>/Robin <robin@example.com>"
    # The same account has the same key, another one another, and a new one after its key was removed.
    other = gated.machine(grants=[{"kind": "identity", "what": "Robin"}, ])
    assert gated.grants(other)[0]["detail"]["public_key"].split()[1] == key.split()[1]
    third = gated.machine()
    gated.grant(third, "identity", "Kim")
    assert gated.grants(third)[0]["detail"]["public_key"].split()[1] != key.split()[1]
    gated.delete("/v1/secrets/identity.Robin")
    assert gated.machine(grants=[{"kind": "identity", "what": "Robin"}]) and gated.grants(gated.machines()[0]["id"])[0]["detail"]["public_key"].split()[1] != key.split()[1]
    gated.revoke(box, "identity")
    assert out(gated, box, "ls .ssh; echo ${GIT_AUTHOR_NAME-none}", cwd="/home/user") == "none\n"


def test_the_private_half_is_told_to_nobody(gated):
    box = gated.machine(grants=[{"kind": "identity", "what": "Robin"}])
    secret = out(gated, box, "sed -n 2,6p /home/user/.ssh/id_ed25519 | tail -n 3 | head -n 1").strip()
    assert len(secret) > 30
    told = [gated.get("/v1/secrets"), gated.grants(box), gated.get(f"/v1/machines/{box}"), gated.request("GET", "/v1/audit", raw=True).decode()]
    assert secret not in str(told) and secret.encode() not in pathlib.Path(gated.home, "carrel.db").read_bytes()


@pytest.mark.parametrize("fields", [{"what": "a b"}, {"what": ""}, {"what": "x" * 50}, {"what": "ok", "at": "no mail"}, {"what": "ok", "at": "a@b\nc"}])
def test_bad_identities(gated, fields):
    with pytest.raises(Refused) as refused:
        gated.machine(grants=[{"kind": "identity", **fields}])
    assert refused.value.code == "invalid"


# ---- three things that must not come together ----


def test_private_data_strangers_and_a_way_out(gated, lent, tmp_path):
    box, dirs = lent
    assert "warnings" not in gated.get(f"/v1/machines/{box}/grants")
    gated.post(f"/v1/machines/{box}/net/rules", {"target": "https://ok.test", "methods": "GET"})
    gated.post(f"/v1/machines/{box}/net/rules", {"target": "https://api.test", "trusted": True})
    assert "warnings" not in gated.get(f"/v1/machines/{box}/net")  # it can only read, and there is one that is trusted
    told = gated.post(f"/v1/machines/{box}/net/rules", {"target": "*.example.com"})["warnings"]
    assert str(dirs["one"]) in told and "*.example.com" in told and "--guard" in told
    assert gated.get(f"/v1/machines/{box}")["warnings"] == told == gated.get(f"/v1/machines/{box}/grants")["warnings"]
    assert [v for v in verbs(gated, box) if v[1] == "grant.risk"] == [("note", "grant.risk", None)]
    gated.restart()
    assert gated.get(f"/v1/machines/{box}")["warnings"] == told
    rules = {r["target"]: r["id"] for r in gated.get(f"/v1/machines/{box}/net")["rules"]}
    way_out = next(n for target, n in rules.items() if "*.example.com" in target)
    gated.delete(f"/v1/machines/{box}/net/rules/{way_out}")
    assert "warnings" not in gated.get(f"/v1/machines/{box}")
    gated.post(f"/v1/machines/{box}/net/rules", {"target": "*.example.com"})
    assert gated.get(f"/v1/machines/{box}")["warnings"] == told
    gated.revoke(box, "dir")
    for path in ("/net", ""):
        assert "warnings" not in gated.get(f"/v1/machines/{box}{path}")


def test_a_guard_that_is_set_later_takes_the_warning_away(gated, lent):
    box, _ = lent
    assert gated.post(f"/v1/machines/{box}/net/rules", {"target": "*.example.com"})["warnings"]
    assert gated.post(f"/v1/machines/{box}/net/guard")["guarded"]
    gated.restart()
    assert gated.get(f"/v1/machines/{box}/net")["guarded"]
    for path in ("/net", ""):
        assert "warnings" not in gated.get(f"/v1/machines/{box}{path}")


def test_the_same_when_a_machine_is_made(gated, tmp_path):
    (tmp_path / "f").write_text("x")
    words = ["new", "--net", "ok.test", "--file", f"{tmp_path}/f:/home/user/f"]
    assert "network access (ok.test)" in carrel(gated, *words).stderr
    assert carrel(gated, *words, "--guard").stderr == ""
    assert carrel(gated, "new", "--net", "ok.test").stderr == ""
    assert carrel(gated, "new", "--file", f"{tmp_path}/f:/home/user/f").stderr == ""


def test_grants_are_counted_by_kind_and_by_what_became_of_them(gated, lent):
    def figures():
        lines = gated.request("GET", "/metrics", raw=True).decode().splitlines()
        return {line.split()[0]: int(line.split()[1]) for line in lines if line.startswith("carrel_grants")}
    before, (box, _) = figures(), lent
    gated.grant(box, "env", "COLOUR", value="green")
    gated.grant(box, "env", "SHADE", value="dark", expires="1s")
    gated.revoke(box, "dir")
    gated.until(lambda: figures()['carrel_grants_expired_total{kind="env"}'] > before['carrel_grants_expired_total{kind="env"}'], 20)
    after = figures()
    assert after['carrel_grants{kind="dir"}'] == 0 and after['carrel_grants{kind="env"}'] == 1
    changed = {k: after[k] - before[k] for k in after if "_total" in k and after[k] != before[k]}
    assert changed == {'carrel_grants_added_total{kind="env"}': 2, 'carrel_grants_revoked_total{kind="dir"}': 2, 'carrel_grants_expired_total{kind="env"}': 1}
