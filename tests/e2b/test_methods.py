"""The table of methods in the documentation names all that the packages of E2B export, and what it promises is driven."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

import patience
from test_npm import HERE, project  # noqa: F401

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs/reference/e2b-methods.md").read_text()
NAME = re.compile(r"`(\w+)`")


def rows(section):
    """The classes and methods of each row in this part of the page."""
    text = re.split(r"^## ", PAGE, flags=re.M)
    (part,) = [t for t in text if t.startswith(section)]
    for line in part.splitlines():
        cells = line.split("|")[1:-1]
        if len(cells) > 1 and NAME.search(cells[0]):
            yield NAME.findall(cells[0]), NAME.findall(cells[1])


@pytest.fixture(scope="module")
def exported(project, server, e2b):  # noqa: F811
    where, node = project
    url = e2b.url.geturl()
    shutil.copy(HERE / "walk.mjs", where)
    done = subprocess.run([node, "walk.mjs"], cwd=where, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100 * patience.PATIENCE,
                          env={**os.environ, "E2B_API_KEY": e2b.key, "E2B_API_URL": url, "E2B_SANDBOX_URL": url})
    assert done.returncode == 0, done.stderr
    yield json.loads(done.stdout)
    server.clear()


def test_the_page_names_each_method_that_the_packages_export(exported):
    """A class may be in several rows. `new` and the methods of Object need no row, but the class does."""
    listed = {}
    for section in ("Supported", "Refused", "Not for programs"):
        for classes, methods in rows(section):
            for c in classes:
                listed.setdefault(c, set()).update(methods)
    missing = {c: sorted(set(methods) - listed.get(c, set()) - {"new", "constructor"}) for c, methods in exported.items()}
    assert {c: m for c, m in missing.items() if m or c not in listed} == {}
    words = set().union(*map(set, exported.values())) | {"metadata", "mcp", "iam"}
    assert {c: sorted(m - words) for c, m in listed.items() if m - words} == {}, "methods that no package has any more"


def test_each_supported_method_is_driven_by_a_program():
    programs = "".join(p.read_text() for p in HERE.glob("*.mjs") if p.name != "walk.mjs")
    names = {m for classes, methods in rows("Supported") for m in methods + classes}
    hidden = {"new", "toString", "Commands", "CommandHandle", "Filesystem", "WatchHandle", "Pty", "Git", "Paginator", "ReadyCmd", "error", "LogEntry",
              "LogEntryStart", "LogEntryEnd"}
    assert sorted(n for n in names - hidden if not re.search(rf"\b{n}\b", programs)) == []
