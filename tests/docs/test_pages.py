"""Every command of the tutorial and the how-to pages prints what the page shows."""
import re
import subprocess

import pytest

import pages
from carrel import ROOTLESS, TOP

PAGES = sorted([*(TOP / "docs/tutorial").glob("*.md"), *(TOP / "docs/howto").glob("*.md")])
# What a page needs besides a shell; without a row, no daemon and no network.
PLACES = {"from-docker": "online", "network-and-approvals": "online", "secrets": "online", "databases": "with_postgres",
          "images": "with_rootfs", "backups": "with_rootfs", "remote": "with_ssh", "volumes": "with_volumes",
          "sdk": "with_sdk", "e2b": "with_e2b", "ssh": "with_sshd", "desktop": "with_desktop"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_print_what_the_page_shows(page, request):
    place = request.getfixturevalue(PLACES.get(page.stem, "alone"))
    assert pages.play(page, place.env, place.dir) >= 5


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_no_command_that_is_not_run(page):
    """`sh make` blocks are the builds, of which make is asked whether it knows them."""
    assert {b.language for b in pages.blocks(page)} <= {"console", "text", "ini", "yaml", "sh"}
    for block in pages.blocks(page, "sh"):
        assert block.words == ("make",), block
        for line in block.text.splitlines():
            words = line.removeprefix("sudo ").split()
            assert words[0] == "make", line
            subprocess.run(["make", "-n", "SETUP=true", *words[1:]], cwd=TOP, check=True, stdout=subprocess.DEVNULL)


@pytest.mark.skipif(ROOTLESS, reason="a host may enforce no memory limit without root, and the table sets one")
def test_commands_of_the_table_for_docker_users_work(with_rootfs):
    """In their order, with a word in place of each placeholder. The machine is small: an image of it is made."""
    (with_rootfs.dir / "recipe").write_text("base small\n")
    (with_rootfs.dir / "first").write_text("base plain\ncommand echo\n")
    text = (TOP / "docs/tutorial/from-docker.md").read_text()
    rows = re.findall(r"^\| `docker.* \| `(carrel .*?)` \|", text, re.M)
    assert len(rows) > 20
    names = {"new --name": "new --image small --name", "CMD": "echo", "IMAGE": "small", "DIR:": ".:",
             "DIR": "layout", "/PATH": "/tmp/copy", "FILE": "rootfs.tar"}
    shell = pages.Shell(with_rootfs.env, with_rootfs.dir)
    try:
        for row in ["carrel image import FILE --name plain", "carrel image build first --name IMAGE", *rows]:
            if row.startswith(("carrel image pull", "carrel image push")):
                continue  # they need a registry: tests/image/test_registry.py
            command = re.sub("|".join(names), lambda m: names[m[0]], row)
            if row.startswith("carrel forward"):
                command += " & sleep 1; kill $!"  # it must still run then
            status, output = shell.type(command)
            assert status == 0, (command, output)
    finally:
        shell.close()


def test_the_ci_job_runs_commands_that_the_page_shows():
    page = TOP / "docs/howto/ci.md"
    typed = {t.command for b in pages.blocks(page, "console") for t in pages.typed(b)}
    job = [m[1] for b in pages.blocks(page, "yaml") for m in re.finditer(r"run: (carrel .*)", b.text)]
    assert job and set(job) <= typed
