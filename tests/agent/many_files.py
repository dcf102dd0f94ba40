"""carrel agent on 100,000 files. Making them takes most of the time, so this file is not part of `make test` (`make test-agents`)."""
from conftest import git
from test_unusual import machine

FILES = 100000


def many_files(top):
    """Files in 100 folders, each with a number."""
    for folder in range(100):
        (top / f"d{folder}").mkdir()
        for n in range(FILES // 100):
            (top / f"d{folder}/f{n}").write_text(f"{n}\n")


def test_directory_with_100000_files_is_given_and_shipped(agents, folder):
    many_files(folder)
    done = agents.carrel("agent", "fake", "-p", "x", cwd=folder)
    assert done.returncode == 3 and "a copy of directory" in done.stderr, done
    count = agents.carrel("exec", machine(agents), "--", "sh", "-c", "find d* -type f | wc -l").stdout
    assert int(count) == FILES
    shipped = agents.carrel("ship", "-y", machine(agents), cwd=folder)
    assert shipped.returncode == 0 and (folder / "once.txt").read_text() == "once\n", shipped


def test_repository_with_100000_files_is_given_and_shipped(agents, repo):
    many_files(repo)
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "many")
    done = agents.carrel("agent", "fake", "-p", "x", cwd=repo)
    assert done.returncode == 3 and "a clone of repository" in done.stderr, done
    shipped = agents.carrel("ship", "-y", "--uncommitted", machine(agents), cwd=repo)
    assert shipped.returncode == 0, shipped
    assert git(repo, "show", f"carrel/{machine(agents)}:once.txt") == "once\n"
