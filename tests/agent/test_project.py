"""The project file .carrel/agent.conf: it has no effect before its owner accepted it, and a change must be accepted again."""
import json

import pytest

from conftest import git

ASKS = b"accept this file? [y/N]"
CONF = """# what agents need here
[agent]
setup = .carrel/setup.sh
[env]
PROJECT_MARK = from the file
[net]
allow = example.com tcp://db.example.com:5432
[budget]
tokens = 4321
[prompts]
check = run every test
[memory]
note = tests are in t/
note = never push
"""
SETUP = 'echo "setup in $PWD, $PROJECT_MARK"\ntouch ~/was-set-up\ncat\n'


def put(top, conf=CONF, setup=SETUP):
    (top / ".carrel").mkdir(exist_ok=True)
    (top / ".carrel/agent.conf").write_text(conf)
    if setup is not None:
        (top / ".carrel/setup.sh").write_text(setup)


@pytest.fixture
def owner(tmp_path):
    """Variables of an owner who has accepted nothing yet."""
    return {"XDG_DATA_HOME": str(tmp_path / "data")}


def accept(agents, where, owner):
    done = agents.carrel("agent", "accept", "-y", cwd=where, env=owner)
    assert done.returncode == 0, done
    return done


def run(agents, where, owner, *words, agent="project", task="x", stdin=""):
    return agents.carrel("agent", agent, "-p", task, *words, cwd=where, env=owner, stdin=stdin)


def the_machine(agents):
    (m,) = json.loads(agents.carrel("agent", "ls", "--json").stdout)["machines"]
    return agents.get(f"/v1/machines/{m['id']}")


def rules(agents):
    net = agents.get(f"/v1/machines/{the_machine(agents)['id']}/net")
    return {r["target"] for r in net["rules"]} - {"http://models.carrel"}


def test_nothing_takes_effect_before_it_was_accepted(agents, folder, owner):
    put(folder)
    done = run(agents, folder, owner)
    assert ".carrel/agent.conf is not accepted, so it has no effect; to review it: carrel agent accept" in done.stderr
    assert done.stdout == "task=x mark= setup=no\n"
    assert "budget tokens=70000" in done.stderr and rules(agents) == set()


def test_accepted_file_takes_effect(agents, folder, owner):
    put(folder)
    said = accept(agents, folder, owner).stdout
    for line in ("is not accepted yet", "    | touch ~/was-set-up", "network   example.com", "network   tcp://db.example.com:5432",
                 "budget    tokens=4321", "variable  PROJECT_MARK = from the file", "prompt    check = run every test", "note      never push"):
        assert line in said, said
    done = run(agents, folder, owner, task="@check", stdin="for the agent")
    assert done.stdout == "task=run every test mark=from the file setup=yes\n# Notes of .carrel/agent.conf\n\n* tests are in t/\n* never push\nfor the agent"
    assert f"setup in {folder}, from the file\n" in done.stderr and "budget tokens=4321" in done.stderr
    assert rules(agents) == {"example.com", "tcp://db.example.com:5432"}
    again = run(agents, folder, owner)
    assert "setup in" not in again.stderr and "not accepted" not in again.stderr  # the machine is set up once


@pytest.mark.parametrize("change", ["conf", "setup"])
def test_change_must_be_accepted_again(agents, folder, owner, change):
    put(folder)
    accept(agents, folder, owner)
    if change == "conf":
        put(folder, CONF + "[net]\nallow = evil.example\n")
    else:
        put(folder, setup=SETUP + "echo more\n")
    done = run(agents, folder, owner)
    assert "is not accepted, so it has no effect" in done.stderr and "mark= setup=no" in done.stdout and rules(agents) == set()
    assert "has changed since you accepted it" in accept(agents, folder, owner).stdout
    put(folder)
    assert "has changed since" in agents.carrel("agent", "accept", "-y", cwd=folder, env=owner).stdout


def test_terminal_shows_the_file_and_asks(agents, folder, owner):
    put(folder)
    t = agents.terminal("agent", "project", cwd=folder, env=owner)
    assert b"network   example.com" in t.expect(ASKS)
    t.type(b"n\n")
    t.expect(b"mark= setup=no")
    t.type(b"\n")
    t.close()
    agents.clear()
    t = agents.terminal("agent", "project", cwd=folder, env=owner)
    t.expect(ASKS)
    t.type(b"y\n")
    t.expect(b"mark=from the file setup=yes")
    t.type(b"\n")
    t.close()
    assert "setup=yes" in run(agents, folder, owner).stdout  # it was kept


def test_acceptance_is_of_one_directory(agents, folder, owner, tmp_path):
    put(folder)
    accept(agents, folder, owner)
    other = tmp_path / "other"
    other.mkdir()
    (other / "old.txt").write_text("x")
    put(other)
    assert "is not accepted" in run(agents, other, owner).stderr


def test_accepted_script_runs_and_not_that_of_the_machine(agents, folder, owner):
    """The text that was shown is the text that runs."""
    put(folder)
    accept(agents, folder, owner)
    done = run(agents, folder, owner)
    assert "setup in" in done.stderr
    agents.carrel("exec", the_machine(agents)["name"], "--", "sh", "-c", f"echo echo evil >{folder}/.carrel/setup.sh")
    done = run(agents, folder, owner, "--fresh", "-y")
    assert "evil" not in done.stderr and "setup in" in done.stderr


def test_failing_setup_is_told(agents, folder, owner):
    put(folder, setup="exit 7\n")
    accept(agents, folder, owner)
    done = run(agents, folder, owner)
    assert done.returncode == 125 and "the setup of .carrel/agent.conf failed with exit status 7" in done.stderr


def test_packages_are_installed_by_their_managers(agents, folder, owner):
    """A manager of the test's own comes first in the PATH."""
    put(folder, "[agent]\npackages = npm:a@1.2 npm:@s/b\n[env]\nPATH = %s/bin:/usr/bin:/bin\n" % folder, setup=None)
    (folder / "bin").mkdir()
    (folder / "bin/npm").write_text('#!/bin/sh\necho "npm got $*"\n')
    (folder / "bin/npm").chmod(0o755)
    said = accept(agents, folder, owner).stdout
    assert "package   npm:a@1.2\n" in said
    done = run(agents, folder, owner)
    assert "npm got install --global --prefix /home/user/.local -- a@1.2 @s/b" in done.stderr
    assert rules(agents), "the preset npm is allowed"


@pytest.mark.parametrize("update, end", [("exit 0", 0), ("exit 3", 125)], ids=["works", "fails"])
def test_packages_of_the_system_are_installed_by_root(agents, folder, owner, update, end):
    """A manager of the test's own comes first in the PATH. The setup comes after it, as the user."""
    put(folder, "[agent]\nsetup = .carrel/setup.sh\npackages = apt:a apt:b\n[env]\nPATH = %s/bin:/usr/bin:/bin\n" % folder, setup="echo setup by $(id -un)\n")
    (folder / "bin").mkdir()
    (folder / "bin/apt-get").write_text('#!/bin/sh\necho "apt-get got $* by $(id -un)"\ntest "$1" != update || %s\n' % update)
    (folder / "bin/apt-get").chmod(0o755)
    accept(agents, folder, owner)
    done = run(agents, folder, owner)
    assert done.returncode == end and "apt-get got update by root\n" in done.stderr
    assert ("apt-get got install -y -- a b by root\n" in done.stderr) == (end == 0)
    assert ("setup by user\n" in done.stderr) == (end == 0)
    assert ("failed with exit status 3" in done.stderr) == (end != 0)


@pytest.mark.parametrize("conf, said", [
    ("x\n", "line 1: it is not [section] or key = value"),
    ("[agent]\nimage = x\n", "line 2: [agent] has no key 'image'"),
    ("[secrets]\nA = b\n", "line 2: [secrets] has no key 'A': directories, volumes, secrets and exposed ports are given by options only"),
    ("[net]\nallow = *\n", "line 2: '*' is not a host"),
    ("[net]\nallow = a.example,local\n", "line 2: 'a.example,local' is not a host"),
    ("[net]\nexpose = 80\n", "line 2: [net] has no key 'expose'"),
    ("[agent]\nsetup = ../x\n", "line 2: '../x' is not the path of a script in the directory"),
    ("[agent]\nsetup = /etc/passwd\n", "is not the path of a script"),
    ("[agent]\nsetup = missing.sh\n", "script 'missing.sh' does not exist"),
    ("[agent]\npackages = npm:$(id)\n", "line 2: 'npm:$(id)' is not a package"),
    ("[agent]\npackages = npm:--global\n", "is not a package"),
    ("[agent]\npackages = gem:x\n", "use npm:NAME, pip:NAME or apt:NAME"),
    ("[env]\nA-B = c\n", "line 2: 'A-B' is not the name of a variable"),
    ("[budget]\ntokens = -1\n", "line 2: "),
    ("[budget]\nmoney = 0\n", "line 2: '0' must be greater than 0"),
    ("[memory]\nnote = \x1b[2Jx\n", "the file has an invisible character, at byte 16"),
    ("[memory]\nnote = a\u202eb\n", "the file has an invisible character"),
    ("#" * 40000, "is not a file of at most 32 KiB"),
    ("[memory]\n" + "note = x\n" * 33, "line 34: there are more than 32 values"),
    ("[memory]\nnote = " + "x" * 3000, "line 2: the value is longer than 2047 bytes"),
])
def test_hostile_file_is_refused_with_one_line(agents, folder, owner, conf, said):
    put(folder, conf, setup=None)
    for words in (("accept", "-y"), ("project", "-p", "x")):
        done = agents.carrel("agent", *words, cwd=folder, env=owner)
        assert done.returncode == 125 and said in done.stderr and len(done.stderr.splitlines()) == 1, done
    assert run(agents, folder, owner, "--no-project").stdout == "task=x mark= setup=no\n"


def test_links_do_not_lead_out_of_the_directory(agents, folder, owner, tmp_path):
    (tmp_path / "private").write_text("[memory]\nnote = private\n")
    (folder / ".carrel").mkdir()
    (folder / ".carrel/agent.conf").symlink_to(tmp_path / "private")
    done = agents.carrel("agent", "accept", "-y", cwd=folder, env=owner)
    assert done.returncode == 125 and "private" not in done.stdout, done
    (folder / ".carrel/agent.conf").unlink()
    put(folder, "[agent]\nsetup = link.sh\n", setup=None)
    (folder / "link.sh").symlink_to(tmp_path / "private")
    done = agents.carrel("agent", "accept", "-y", cwd=folder, env=owner)
    assert done.returncode == 125 and "private" not in done.stdout, done


def test_prompt_of_a_file_that_is_not_accepted_is_not_sent_as_a_task(agents, folder, owner):
    put(folder)
    done = run(agents, folder, owner, task="@check")
    assert done.returncode == 125 and done.stdout == "" and done.stderr == (
        "carrel: prompt 'check' is of file .carrel/agent.conf, which is not accepted: review the file: carrel agent accept\n")
    assert run(agents, folder, owner, task="@else").stdout == "task=@else mark= setup=no\n"


def test_unknown_prompt_is_told(agents, folder, owner):
    put(folder)
    accept(agents, folder, owner)
    done = run(agents, folder, owner, task="@nothing")
    assert done.returncode == 125 and "prompt 'nothing' does not exist in .carrel/agent.conf" in done.stderr


def test_notes_follow_the_file_until_the_agent_changes_them(agents, folder, owner):
    put(folder)
    accept(agents, folder, owner)
    assert "never push" in run(agents, folder, owner).stdout
    put(folder, CONF.replace("never push", "push often"))
    accept(agents, folder, owner)
    assert "push often" in run(agents, folder, owner).stdout
    agents.carrel("exec", the_machine(agents)["name"], "--", "sh", "-c", "echo mine >~/notes.md")
    assert run(agents, folder, owner).stdout.endswith("\nmine\n")


def test_change_by_the_agent_is_flagged(agents, repo, owner):
    put(repo)
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "with a project file")
    accept(agents, repo, owner)
    run(agents, repo, owner)
    name = the_machine(agents)["name"]
    agents.carrel("exec", name, "--", "sh", "-c", f"echo 'allow = evil.example' >>{repo}/.carrel/agent.conf")
    shown = agents.carrel("ship", "--uncommitted", "--stat", name, cwd=repo)
    assert "carrel agent obeys it after you accepted it" in shown.stdout + shown.stderr, shown


def test_directory_without_a_file_has_nothing_to_accept(agents, folder, owner):
    done = agents.carrel("agent", "accept", cwd=folder, env=owner)
    assert done.returncode == 125 and "has no file .carrel/agent.conf" in done.stderr
