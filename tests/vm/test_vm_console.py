"""The console in a browser: what a vm hands over is reviewed and shipped as that of a box."""
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "console"))

from browser import Browser, missing  # noqa: E402
from worker import carrel, console_command  # noqa: E402


@pytest.fixture
def page(daemon, tmp_path):
    if why := missing():
        pytest.skip(why)
    browser = Browser()
    with console_command(daemon, tmp_path) as link:
        tab = browser.open(link)
        tab.shown("nav")
        yield tab
        tab.done()
    browser.stop()


def test_a_vm_is_frozen_reviewed_and_shipped_in_the_browser(page, daemon, vm, tmp_path):
    repo = tmp_path / "repo"
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.invalid", "-C", repo]
    repo.mkdir()
    (repo / "f").write_text("one\n")
    for words in (["init", "-q"], ["add", "f"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True, timeout=60)
    carrel(daemon, tmp_path, "grant", "add", vm, "--repo", repo)
    done = daemon.exec(vm, "cd /home/user/repo && echo two >f && git commit -qam 'say two'")
    assert done["exec"]["status"] == 0, done
    page.evaluate(f"location.hash = '#/machines/{vm}'")
    page.shown("h1:has-text('shared')")
    page.click("main a:text-is('Review')")
    page.shown(".changeset pre:has-text('say two')")
    page.shown(".file[aria-label=f] .added:has-text('two')")
    page.click(".changeset button:text('Ship')")
    page.click("dialog button:text('Ship')")
    page.shown(".receipt:has-text('carrel/shared')")
    assert subprocess.run([*git, "show", "carrel/shared:f"], capture_output=True, text=True, timeout=60).stdout == "two\n"
