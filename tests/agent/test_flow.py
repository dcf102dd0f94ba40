"""carrel agent with an agent of carrel.conf: the machine, the terminal, the review, and every way to end."""
import json
import os

from conftest import git

LEAVE = b"\x1d\x1d\x1d"
QUESTION = b"what happens to the changes?"


def machines(agents):
    return json.loads(agents.carrel("agent", "ls", "--json").stdout)["machines"]


def ended(agents, where, *words):
    """An agent that has been started, has changed files, and has ended: its terminal, at the question."""
    t = agents.terminal("agent", "fake", *words, cwd=where)
    t.expect(b"begun")
    t.type(b"bye\n")
    t.expect(b"read bye")
    t.expect(QUESTION)
    return t


def test_repository_comes_with_uncommitted_files_at_the_same_path(agents, repo):
    t = agents.terminal("agent", "fake", "--", "x", "y z", cwd=repo)
    first = t.expect(b"begun").decode()
    assert f"a clone of repository {repo} with 1 changed or untracked file; ignored files stayed out" in first
    assert "budget tokens=70000" in first
    assert f"task= args=x y z in {repo}" in t.expect(b"\n").decode()
    t.type(b"\n")
    assert b"untracked.txt" in t.expect(QUESTION)
    t.type(b"k\n")
    t.close()
    name = machines(agents)[0]["name"]
    inside = agents.carrel("exec", name, "--", "sh", "-c", "cat untracked.txt; ls; echo $FAKE_MARK-").stdout
    assert "u\n" in inside and "secret.log" not in inside and "seven" not in inside  # the variable is the agent's alone


def test_ship_brings_a_branch_and_leaves_the_working_tree(agents, repo):
    t = ended(agents, repo)
    t.type(b"s\n")
    assert t.close()[0] == 0
    branch = git(repo, "branch", "--list", "carrel/*").strip()
    assert git(repo, "show", f"{branch}:new.txt") == "new\n"
    assert git(repo, "show", f"{branch}:old.txt") == "one\nby-agent\n"
    assert (repo / "old.txt").read_text() == "one\n" and not (repo / "new.txt").exists()


def test_ship_writes_the_files_of_a_plain_directory(agents, folder):
    t = ended(agents, folder)
    t.type(b"s\n")
    assert t.close()[0] == 0
    assert (folder / "old.txt").read_text() == "one\nby-agent\n"
    assert (folder / "new.txt").read_text() == "new\n"


def test_keep_ships_nothing_and_the_next_call_uses_the_same_machine(agents, folder):
    t = ended(agents, folder)
    t.type(b"k\n")
    assert b"to continue: carrel agent fake --resume" in t.close()[1]
    assert (folder / "old.txt").read_text() == "one\n"
    before = machines(agents)
    t = agents.terminal("agent", "fake", "--resume", cwd=folder)
    t.expect(b"again task=\r\n")
    t.type(b"\n")
    t.expect(QUESTION)
    t.type(b"s\n")
    t.close()
    assert (folder / "new.txt").read_text() == "new\nmore\n"
    assert [m["id"] for m in machines(agents)] == [m["id"] for m in before]


def test_discard_asks_and_deletes_the_machine(agents, folder):
    t = ended(agents, folder)
    t.type(b"x\n")
    t.expect(b"[y/N]")
    t.type(b"n\n")
    t.expect(QUESTION)
    assert machines(agents)
    t.type(b"x\n")
    t.expect(b"[y/N]")
    t.type(b"y\n")
    assert t.close()[0] == 0
    assert machines(agents) == [] and (folder / "old.txt").read_text() == "one\n"


def test_return_starts_the_agent_again_with_the_comment(agents, folder):
    t = ended(agents, folder)
    t.type(b"r\n")
    t.expect(b"comment for the agent:")
    t.type(b"use fewer words\n")
    t.expect(b"again task=use fewer words")
    t.type(b"\n")
    t.expect(QUESTION)
    t.type(b"s\n")
    assert t.close()[0] == 0
    assert (folder / "new.txt").read_text() == "new\nmore\n"


def test_end_of_input_at_the_question_keeps_the_changes(agents, folder):
    t = ended(agents, folder)
    t.type(b"\x04")
    assert b"the changes stay in machine" in t.close()[1]
    assert machines(agents) and (folder / "old.txt").read_text() == "one\n"


LINES = [f"line {n}" for n in range(1, 31)]


def picked(agents, top):
    """Picks the second of two hunks and the new file, and not the deletion."""
    t = agents.terminal("agent", "hunks", cwd=top)
    t.expect(b"begun")
    t.type(b"\n")
    t.expect(QUESTION)
    t.type(b"p\n")
    t.expect(b"gone.txt")
    t.expect(b"ship this file [y,n,q,?]?")
    t.type(b"n\n")
    assert b"first-line 1" in t.expect(b"(1/2) ship this hunk [y,n,a,d,q,?]?")
    t.type(b"?\n")
    t.expect(b"do not ship this hunk or any later hunk")
    t.expect(b"(1/2) ship this hunk")
    t.type(b"n\n")
    assert b"\x1b[32m+last-line 30" in t.expect(b"(2/2) ship this hunk")  # with colour
    t.type(b"y\n")
    t.expect(b"ship this file")
    t.type(b"y\n")
    t.expect(QUESTION)  # about the rest
    t.type(b"k\n")
    assert t.close()[0] == 0


def test_hunks_of_a_directory_are_picked(agents, folder):
    (folder / "long.txt").write_text("\n".join(LINES) + "\n")
    (folder / "gone.txt").write_text("g\n")
    picked(agents, folder)
    assert (folder / "long.txt").read_text() == "\n".join([*LINES[:-1], "last-line 30"]) + "\n"
    assert (folder / "new.txt").read_text() == "new\n" and (folder / "gone.txt").exists()


def test_hunks_of_a_repository_are_picked_as_one_commit(agents, repo):
    (repo / "long.txt").write_text("\n".join(LINES) + "\n")
    (repo / "gone.txt").write_text("g\n")
    (repo / "untracked.txt").unlink()
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "second")
    picked(agents, repo)
    branch = git(repo, "branch", "--list", "carrel/*").strip()
    assert git(repo, "show", f"{branch}:long.txt") == "\n".join([*LINES[:-1], "last-line 30"]) + "\n"
    assert git(repo, "show", f"{branch}:gone.txt") == "g\n" and git(repo, "show", f"{branch}:new.txt") == "new\n"
    assert git(repo, "rev-list", "--count", f"main..{branch}").strip() == "1"
    assert git(repo, "status", "--porcelain") == ""


def test_what_a_diff_does_not_show_is_said_before_the_question(agents, repo):
    (repo / "long.txt").write_text("\n".join(LINES) + "\n")
    (repo / "gone.txt").write_text("g\n")
    (repo / "untracked.txt").unlink()
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "second")
    t = agents.terminal("agent", "odd", cwd=repo)
    t.expect(b"begun")
    t.type(b"\n")
    t.expect(QUESTION)
    t.type(b"p\n")
    for path, said in ((b"a-link", b"link to /etc/passwd]"), (b"b-bytes", b"3 bytes that are not shown]"),
                       (b"gone.txt", b"mode 100644 becomes 100755]")):
        t.expect(path)
        assert said in t.expect(b"ship this file [y,n,q,?]?"), path
        t.type(b"n\n")
    assert b"mode 100644 becomes 100755]" in t.expect(b"(1/2) ship this hunk")
    t.type(b"y\n")
    t.expect(b"(2/2) ship this hunk")
    t.type(b"n\n")
    t.expect(QUESTION)
    t.type(b"k\n")
    t.close()
    branch = git(repo, "branch", "--list", "carrel/*").strip()
    line = git(repo, "ls-tree", branch, "long.txt")
    assert line.startswith("100644 "), "a chosen hunk does not bring the mode along"
    assert git(repo, "show", f"{branch}:long.txt").startswith("xline 1\n")


def test_quitting_the_pick_ships_only_what_was_chosen(agents, folder):
    (folder / "long.txt").write_text("\n".join(LINES) + "\n")
    (folder / "gone.txt").write_text("g\n")
    t = agents.terminal("agent", "hunks", cwd=folder)
    t.expect(b"begun")
    t.type(b"\n")
    t.expect(QUESTION)
    t.type(b"p\n")
    t.expect(b"ship this file")
    t.type(b"y\n")
    t.expect(b"(1/2) ship this hunk")
    t.type(b"q\n")
    t.expect(QUESTION)
    t.type(b"k\n")
    t.close()
    assert not (folder / "gone.txt").exists() and not (folder / "new.txt").exists()
    assert (folder / "long.txt").read_text() == "\n".join(LINES) + "\n"


def test_pick_requires_a_terminal(agents, folder):
    agents.carrel("agent", "fake", "-p", "x", cwd=folder)
    done = agents.carrel("ship", "--pick", machines(agents)[0]["name"], cwd=folder)
    assert done.returncode == 125 and "--pick requires a terminal" in done.stderr
    assert not (folder / "once.txt").exists()


def test_unknown_answer_explains_the_answers(agents, folder):
    t = ended(agents, folder)
    t.type(b"what\n")
    t.expect(b"delete the machine")
    t.expect(QUESTION)
    t.type(b"d\n")
    t.expect(b"+by-agent")
    t.expect(QUESTION)
    t.type(b"k\n")
    t.close()


def test_agent_that_was_left_running_is_returned_to(agents, folder):
    t = agents.terminal("agent", "fake", cwd=folder)
    t.expect(b"begun")
    t.type(LEAVE)
    assert b"the agent continues" in t.close()[1]
    t = agents.terminal("agent", "fake", cwd=folder)
    t.expect(b"still running")
    t.type(b"back\n")
    t.expect(b"read back")
    t.expect(QUESTION)
    t.type(b"k\n")
    t.close()
    assert (folder / "old.txt").read_text() == "one\n"


def test_one_task_has_the_agents_status_and_names_the_review(agents, repo):
    done = agents.carrel("agent", "fake", "-p", "a 'task'", "--", "x", cwd=repo, stdin="from a pipe")
    assert done.returncode == 3
    assert done.stdout == "did a 'task', 1 more\nfrom a pipe"
    name = machines(agents)[0]["name"]
    assert f"to review the changes: carrel ship --uncommitted {name}" in done.stderr
    shown = agents.carrel("ship", "--uncommitted", "--stat", name)
    assert "once.txt" in shown.stdout


def test_agent_without_changes_asks_nothing(agents, folder):
    t = agents.terminal("agent", "idle", cwd=folder)
    t.expect(b"mark=\r\n")  # the variable belongs to another agent
    t.type(b"\n")
    assert b"changed nothing" in t.close()[1]


def test_two_agents_on_one_directory_have_two_machines(agents, folder):
    agents.carrel("agent", "only-once", "-p", "x", cwd=folder)
    done = agents.carrel("agent", "fake", "-p", "x", cwd=folder)
    assert "agent only-once has its own copy of this directory, in machine only-once-plain-" in done.stderr
    assert len({m["id"] for m in machines(agents)}) == 2
    listed = agents.carrel("agent", "ls").stdout
    assert listed.count(str(folder)) == 2


def test_subdirectory_of_a_repository_is_where_the_agent_starts(agents, repo):
    (repo / "sub").mkdir()
    (repo / "sub" / "kept").write_text("x")
    t = agents.terminal("agent", "fake", "--keep", cwd=repo / "sub")
    t.expect(f"in {repo}/sub".encode())
    t.type(b"\n")
    assert b"the changes stay in machine" in t.close()[1]
    assert len(machines(agents)) == 1
    agents.carrel("agent", "fake", "-p", "x", cwd=repo)
    assert len(machines(agents)) == 1


def test_budget_of_the_option_is_that_of_the_machine(agents, folder):
    done = agents.carrel("agent", "only-once", "-p", "x", "--budget", "tokens=123", cwd=folder)
    assert "budget tokens=123" in done.stderr
    again = agents.carrel("agent", "only-once", "-p", "x", "--budget", "tokens=124", cwd=folder)
    assert again.returncode == 125 and "are for a new one" in again.stderr


def test_path_with_quotes_and_spaces_works(agents, tmp_path):
    top = tmp_path / "it's \"a\" $dir"
    top.mkdir()
    (top / "old.txt").write_text("one\n")
    done = agents.carrel("agent", "only-once", "-p", "x", cwd=top)
    assert done.stdout == "one\n", done
    assert os.listdir(top) == ["old.txt"]
