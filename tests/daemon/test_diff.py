"""What changed between two steps, through the API and the command line of a real daemon."""
import base64
import json
import re
import subprocess
import time

import pytest
from carrel import PROGRAM, ROOTLESS
from test_steps import Box, refused


def diff(b, *ends, **query):
    query |= dict(zip(("from", "to"), ends))
    return b.d.get(b.url + "/diff", **query)


def changes(answer):
    """By path, and only once each."""
    by_path = {c["path"]: c for c in answer["changes"]}
    assert len(by_path) == len(answer["changes"])
    assert answer["added"] + answer["modified"] + answer["deleted"] == len(by_path)
    assert "cut" not in answer
    return by_path


def kinds(answer, below="home/user/"):
    return {p[len(below):]: c["change"] for p, c in changes(answer).items() if p.startswith(below)}


def test_files_that_come_change_and_go(daemon):
    b = Box(daemon)
    b.sh("printf 'one\\ntwo\\nthree\\n' >kept; echo old >gone; mkdir d; echo x >d/f; ln -s a link; head -c 3000 /dev/urandom >bin")
    b.sh("printf 'one\\n2\\nthree\\n' >kept; rm gone; echo new >fresh; chmod 600 d/f; ln -sfn b link; head -c 3000 /dev/urandom >bin; mkdir e")
    d = changes(diff(b, 1, 2))
    home = {p[10:]: c for p, c in d.items() if p.startswith("home/user/")}
    assert {p: c["change"] for p, c in home.items()} == {
        "kept": "modified", "gone": "deleted", "fresh": "added", "d/f": "modified", "link": "modified",
        "bin": "modified", "e": "added"}
    assert home["kept"]["diff"] == "@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"
    assert (home["kept"]["lines_added"], home["kept"]["lines_removed"]) == (1, 1)
    assert home["gone"]["diff"] == "@@ -1,1 +0,0 @@\n-old\n" and "after" not in home["gone"]
    assert home["fresh"]["diff"] == "@@ -0,0 +1,1 @@\n+new\n" and "before" not in home["fresh"]
    assert "content" not in home["d/f"] and "diff" not in home["d/f"]
    assert (home["d/f"]["before"]["mode"], home["d/f"]["after"]["mode"]) == ("0644", "0600")
    assert (home["link"]["target_before"], home["link"]["target_after"]) == ("a", "b")
    assert home["bin"]["content"] == "binary" and home["bin"]["after"]["size"] == 3000
    assert home["e"]["after"]["type"] == "directory"


def test_backwards_is_the_same_the_other_way_round(daemon):
    b = Box(daemon)
    b.sh("mkdir d; echo 1 >d/a; echo 1 >b")
    b.sh("rm -r d; echo 2 >b; echo 1 >c")
    there, back = kinds(diff(b, 1, 2)), kinds(diff(b, 2, 1))
    assert there == {"d": "deleted", "d/a": "deleted", "b": "modified", "c": "added"}
    assert back == {"d": "added", "d/a": "added", "b": "modified", "c": "deleted"}


def test_start_and_now(daemon):
    b = Box(daemon, steps="manual")
    b.sh("echo 1 >a")
    first = b.snap("first")
    b.sh("echo 2 >b")
    assert kinds(diff(b)) == {"a": "added", "b": "added"}
    answer = diff(b, "first")
    assert kinds(answer) == {"b": "added"}
    assert answer["from"] == {"name": first["id"], "number": first["number"]} and answer["to"] == {"name": "now"}
    assert kinds(diff(b, "start", "first")) == {"a": "added"}
    assert diff(b, "first", "first")["changes"] == []
    refused("not_found", diff, b, 99)
    refused("invalid", b.snap, "now")
    refused("invalid", b.snap, "start")


def test_the_id_of_a_command_names_the_step_after_it(daemon):
    b = Box(daemon)
    b.sh("echo 1 >a")
    first = b.steps()[-1]
    b.sh("echo 2 >b")
    answer = diff(b, first["exec"])
    assert kinds(answer) == {"b": "added"} and answer["from"]["number"] == first["number"]
    refused("not_found", diff, b, "x-aaaaaaaaaaaa")


def test_a_path_alone(daemon):
    b = Box(daemon)
    b.sh("mkdir -p p/q p2; echo 1 | tee p/a p/q/b p2/c d >/dev/null")
    assert kinds(diff(b, path="/home/user/p")) == {"p": "added", "p/a": "added", "p/q": "added", "p/q/b": "added"}
    assert kinds(diff(b, path="home/user/p/q/b/")) == {"p/q/b": "added"}
    assert diff(b, path="/nowhere/at/all")["changes"] == []
    refused("invalid", diff, b, path="/home/../etc")


def test_renamed_and_replaced_directories(daemon):
    """What the layers alone do not tell: redirects, opaque directories, whiteouts."""
    b = Box(daemon)
    b.sh("mkdir -p tree/sub; for i in 1 2 3; do echo $i >tree/sub/$i; done; mkdir plain; echo 1 >plain/x")
    b.sh("mv tree moved; rm -r plain; mkdir plain; echo 2 >plain/y; echo 4 >moved/sub/4; rm moved/sub/1")
    assert kinds(diff(b, 1, 2)) == {
        "tree": "deleted", "tree/sub": "deleted", "tree/sub/1": "deleted", "tree/sub/2": "deleted",
        "tree/sub/3": "deleted", "moved": "added", "moved/sub": "added", "moved/sub/2": "added",
        "moved/sub/3": "added", "moved/sub/4": "added", "plain/x": "deleted", "plain/y": "added"}
    b.sh("rm moved/sub/2; rmdir plain 2>/dev/null; rm -r plain; echo file >plain")
    assert kinds(diff(b, 2, 3)) == {"moved/sub/2": "deleted", "plain": "modified", "plain/y": "deleted"}
    c = changes(diff(b, 2, 3))["home/user/plain"]
    assert (c["before"]["type"], c["after"]["type"]) == ("directory", "file")


def test_what_is_the_same_again_is_no_change(daemon):
    b = Box(daemon)
    b.sh("echo same >f; echo x >g; mkdir d; echo 1 >d/1")
    b.sh("echo other >f; touch g; rm -r d")
    b.sh("echo same >f; mkdir d; echo 1 >d/1; echo n >n; rm n")
    assert kinds(diff(b, 1, 3)) == {}


def test_usr_is_part_of_it(daemon):
    b = Box(daemon)
    b.sh("mkdir -p /usr/local/share/x; echo 1 >/usr/local/share/x/f; rm /usr/bin/env", user="root")
    d = changes(diff(b, path="/usr"))
    assert {p: c["change"] for p, c in d.items()} == {
        "usr/bin/env": "deleted", "usr/local/share/x": "added", "usr/local/share/x/f": "added"}
    assert d["usr/local/share/x/f"]["after"]["owner"] == 0


def test_merged_layers_show_the_same(daemon):
    b = Box(daemon)
    for i in range(40):
        b.sh(f"echo {i} >f{i % 7}; echo {i} >g{i}; rm -f g{i - 3}")
    b.settled(40)
    d = kinds(diff(b, 1, 40))
    assert d == {"g0": "deleted", "g37": "added", "g38": "added", "g39": "added",
                 "f0": "modified", **{f"f{i}": "added" for i in range(1, 7)}}


def test_hostile_names_and_contents(daemon):
    b = Box(daemon)
    b.sh(r"""mkdir h && cd h
printf 'x' >"$(printf 'new\nline')"; printf 'y' >"$(printf '\377\376')"; mkfifo pipe
ln -s /etc/passwd out; ln -s loop loop; printf 'a\0b' >nul; printf '\033[2Jhi\n' >esc
truncate -s 200G huge; mkdir -p $(seq -s/ 60); : >"$(printf %0255d 7)" """)
    d = {p[12:]: c for p, c in changes(diff(b, path="/home/user/h")).items() if p != "home/user/h"}
    assert d["new\nline"]["diff"] == "@@ -0,0 +1,1 @@\n+x\n\\ No newline at end of file\n"
    odd = next(c for c in d.values() if "path_base64" in c)
    assert base64.b64decode(odd["path_base64"]) == b"home/user/h/\xff\xfe"
    assert d["pipe"]["after"]["type"] == "fifo" and "content" not in d["pipe"]
    assert d["out"]["target_after"] == "/etc/passwd" and "diff" not in d["out"]
    assert d["loop"]["target_after"] == "loop"
    assert d["nul"]["content"] == "binary" and d["huge"]["content"] == "large"
    assert d["huge"]["after"]["size"] == 200 << 30
    assert d["esc"]["diff"] == "@@ -0,0 +1,1 @@\n+\x1b[2Jhi\n"
    assert "/".join(map(str, range(1, 61))) in d


def test_more_than_is_listed_is_counted_and_said(daemon):
    b = Box(daemon)
    b.sh("mkdir many; cd many; seq 6000 | xargs touch; mkdir deep; cd deep; for i in $(seq 300); do mkdir d; cd d; done")
    d = diff(b, path="/home/user/many")
    assert len(d["changes"]) == 5000 and d["added"] >= 6000 and d["cut"] in ("entries", "depth")
    d = diff(b, path="/home/user/many/deep")
    assert d["cut"] == "depth" and d["added"] >= 190


def test_texts_that_do_not_fit_are_said(daemon):
    b = Box(daemon)
    b.sh("for i in 1 2 3 4; do seq $((i*1000000)) $((i*1000000+40000)) >t$i; done; seq 300000 >big")
    d = {p[10:]: c for p, c in changes(diff(b)).items() if p.startswith("home/user/")}
    assert d["big"]["content"] == "large"
    assert [d[f"t{i}"]["content"] for i in (1, 2, 3, 4)] == ["text", "text", "cut", "cut"]
    assert d["t4"]["lines_added"] == 40001 and "diff" not in d["t4"]


def test_a_fork_starts_where_it_was_made(daemon):
    b = Box(daemon)
    b.sh("echo 1 >a")
    f = b.fork()[0]
    f.sh("echo 2 >b; rm a")
    assert kinds(diff(f)) == {"a": "deleted", "b": "added"}


def test_the_cost_of_a_fork_depends_on_what_changed(daemon):
    """All layers that differ are looked into, whichever machine has them on its disk."""
    b = Box(daemon)
    b.sh("mkdir many; cd many; seq 3000 | xargs touch")
    base = b.settled(1)[-1]
    b.sh("echo 1 >many/1; echo a >a")
    f = b.fork()[0]
    g = f.fork()[0]
    for machine in (b, f, g):
        machine.sh("echo 2 >many/2; rm many/3")
    time.sleep(0.2)  # for layers to be merged: none weighs as little as the next, so none is
    expected = {"many/2": "modified", "many/3": "deleted"}
    for machine, since in ((f, "start"), (f, "1"), (g, "1")):
        answer = diff(machine, since)
        assert kinds(answer) == expected and answer["looked"] < 100, answer["looked"]
    answer = diff(b, base["id"])
    assert kinds(answer) == {**expected, "many/1": "modified", "a": "added"} and answer["looked"] < 100, answer["looked"]


def test_others_and_the_dead_have_none(daemon):
    b = Box(daemon)
    b.sh("echo 1 >a")
    daemon.delete(b.url)
    refused("gone", diff, b)
    refused("not_found", daemon.get, "/v1/machines/nobody/diff")


def test_steps_say_what_they_changed(daemon):
    b = Box(daemon)
    b.sh("mkdir d; for i in $(seq 10); do echo $i >d/$i; done")
    b.sh("true")
    b.sh("rm d/1 d/2; echo more >>d/3")
    a, nothing, c = b.settled(3)[:3]
    assert all(s["counted"] for s in (a, nothing, c))
    assert a["files"] >= 10 and a["bytes"] >= 10 * 512 and nothing["files"] == 0
    assert 3 <= c["files"] < 10


@pytest.mark.parametrize("options", [[], ["--stat"]])
def test_people_read_it(daemon, options):
    def carrel(*args):
        return subprocess.run([PROGRAM, *args], env=daemon.env, capture_output=True, text=True, timeout=60)

    b = Box(daemon)
    b.sh(r"printf 'one\n' >f; printf x >$(printf 'e\033[1m')")
    b.sh("printf 'two\n' >f; chmod 600 f")
    r = carrel("diff", b.id, "1", *options)
    assert r.returncode == 0 and r.stderr == ""
    assert "M /home/user/f  (mode 0644 -> 0600)  +1 -1\n" in r.stdout
    assert ("-one\n+two\n" in r.stdout) == (not options)
    assert r.stdout.endswith("0 added, 1 modified, 0 deleted\n")
    shown = carrel("diff", b.id, *options).stdout
    assert "\x1b" not in shown and "\\x1b[1m" in shown
    assert json.loads(carrel("diff", b.id, "1", "2", "--json").stdout)["modified"] == 1
    bad = carrel("diff", b.id, "nothing")
    assert bad.returncode != 0 and "has no step 'nothing'" in bad.stderr


@pytest.mark.skipif(ROOTLESS, reason="another user's files cannot be read without root")
def test_a_paused_machine_is_compared_too(daemon):
    b = Box(daemon)
    b.sh("echo secret >f; chmod 000 f")
    daemon.post(b.url + "/pause", {})
    assert changes(diff(b))["home/user/f"]["diff"] == "@@ -0,0 +1,1 @@\n+secret\n"


def test_a_fork_of_what_nobody_has_touched(daemon):
    fork = daemon.post(f"/v1/machines/{daemon.machine()}/fork")["machines"][0]["id"]
    assert daemon.get(f"/v1/machines/{fork}/diff")["changes"] == []
    daemon.exec(fork, "echo a > a")
    daemon.exec(fork, "echo b > b")
    assert {c["path"].split("/")[-1] for c in daemon.get(f"/v1/machines/{fork}/diff", path="/home/user")["changes"]} >= {"a", "b"}
    daemon.post(f"/v1/machines/{fork}/rewind", {"step": "1"})
    assert daemon.exec(fork, "ls")["stdout"] == ""


def test_command_hides_what_carrel_wrote_for_the_network(daemon):
    def shown(m, *words):
        done = subprocess.run([PROGRAM, "diff", "--stat", *words, m], env=daemon.env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done
        return done.stdout.splitlines()

    b = Box(daemon, net=[{"target": "example.com"}])
    b.sh("true")
    line, = shown(b.id)
    hidden = re.fullmatch(r"0 added, 0 modified, 0 deleted; (\d+) of Carrel's own for the network are not shown \(--all\)", line)
    assert hidden, line
    assert len(shown(b.id, "--all")) == 1 + int(hidden[1])
    b.sh("echo mine >/tmp/cert9.db; mkdir -p .pki/nssdb; echo mine >.pki/nssdb/other")
    text = shown(b.id)
    assert text[:-1] == ["A /home/user/.pki/", "A /home/user/.pki/nssdb/", "A /home/user/.pki/nssdb/other  +1 -0", "A /tmp/cert9.db  +1 -0"], text
    assert text[-1].startswith("4 added, 0 modified, 0 deleted; "), text
    assert any("ca-certificates.crt" in line for line in shown(b.id, "--path", "/etc/ssl"))


def test_command_shows_changes_of_what_carrel_wrote(daemon):
    """A path of Carrel's own is not enough: an agent could hide its work there."""
    def shown(b):
        done = subprocess.run([PROGRAM, "diff", "--stat", b.id], env=daemon.env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done
        return {line.split()[1] for line in done.stdout.splitlines()[:-1]}

    def as_root(b, script):
        assert isinstance(b.sh(script, user="root"), str)

    b = Box(daemon, net=[{"target": "example.com"}])
    b.sh("true")
    assert shown(b) == set()  # the control
    as_root(b, "echo 'APT::Update::Pre-Invoke {\"id\";};' >>/etc/apt/apt.conf.d/90carrel; echo x >>/etc/ssl/certs/ca-certificates.crt;"
               "printf x >>/root/.pki/nssdb/cert9.db; chmod 777 /etc/brave/policies/managed; chmod 4644 /etc/chromium/policies/managed/carrel.json;"
               "chown 1000 /etc/opt/edge/policies/managed/carrel.json; ln -sf /tmp/x /usr/local/share/ca-certificates/carrel.crt")
    assert shown(b) >= {"/etc/apt/apt.conf.d/90carrel", "/etc/ssl/certs/ca-certificates.crt", "/root/.pki/nssdb/cert9.db", "/etc/brave/policies/managed/",
                        "/etc/chromium/policies/managed/carrel.json", "/etc/opt/edge/policies/managed/carrel.json",
                        "/usr/local/share/ca-certificates/carrel.crt"}
    plain = Box(daemon)  # without network rules Carrel writes nothing
    as_root(plain, "mkdir -p /etc/apt/apt.conf.d /etc/brave/policies/managed; echo mine >/etc/apt/apt.conf.d/90carrel; echo '{}' >/etc/brave/policies/managed/carrel.json")
    assert shown(plain) >= {"/etc/apt/apt.conf.d/90carrel", "/etc/brave/policies/managed/carrel.json"}
