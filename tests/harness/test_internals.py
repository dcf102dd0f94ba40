"""docs/internals names functions and files of src/, CONTRIBUTING.md files to touch; each of them exists."""
import pathlib, re

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
CODE = {p.relative_to(TOP).as_posix(): p.read_text() for p in sorted((TOP / "src").rglob("*.[ch]"))}
WORDS = {word for text in CODE.values() for word in re.findall(r"\w+", text)}
FOLLOW_CODE = ("exec.md", "steps.md")  # every name of these pages is one of src/
DEFINITION = r"(?m)^(?!static_assert)[a-z][\w \t*]*\b%s\([^;{}]*\) \{$"


def mentions(text, follows_code):
    """(line number, name) of every function() and path that a page mentions, or of every name of C at all."""
    pattern = r"(?<![\w.])[\w./-]+\.[ch]\b|\b\w+(?=\(\))"
    if follows_code:
        pattern += r"|\b[a-z]\w*_\w+\b|\b[A-Z]+_[A-Z_]+\b"
    for number, line in enumerate(text.splitlines(), 1):
        for name in re.findall(pattern, line):
            yield number, re.sub(r"^(\.\./)+", "", name)


def places(text):
    """(line number, function, file) of every line of a drawing that says where a function is."""
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r"\s+([a-z]\w+)\s+([\w/]+\.c)\b", line)
        if found:
            yield number, found[1], found[2]


def files_called(path):
    return [text for name, text in CODE.items() if f"/{name}".endswith(f"/{path}")]


def is_defined(function, path):
    return any(re.search(DEFINITION % function, text) for text in files_called(path))


def missing(text, follows_code=True):
    """The mentions of a page that src/ does not have, as 'line: name'."""
    gone = [f"{n}: {name}" for n, name in mentions(text, follows_code)
            if not (files_called(name) if name.endswith((".c", ".h")) else name in WORDS)]
    return gone + [f"{n}: {function} in {path}" for n, function, path in places(text) if not is_defined(function, path)]


@pytest.mark.parametrize("page", sorted((TOP / "docs/internals").glob("*.md")), ids=lambda p: p.name)
def test_internals_name_what_exists(page):
    assert missing(page.read_text(), page.name in FOLLOW_CODE) == []


@pytest.mark.parametrize("name", FOLLOW_CODE)
def test_internals_pages_that_follow_code_mention_it(name):
    text = (TOP / "docs/internals" / name).read_text()
    assert len(set(mentions(text, True))) > 20


def test_internals_page_of_steps_lists_every_file():
    rows = re.findall(r"^\| (`\w+\.c`.*?) \|", (TOP / "docs/internals/steps.md").read_text(), re.M)
    listed = [name for row in rows for name in re.findall(r"`(\w+\.c)`", row)]
    assert sorted(listed) == sorted(p.name for p in (TOP / "src/service/steps").glob("*.c"))


@pytest.mark.parametrize("text,wrong", [
    ("It calls `service_exec()`.", []),
    ("It calls `no_such_function()`.", ["1: no_such_function"]),
    ("It calls `nosuchfunction()`.", ["1: nosuchfunction"]),
    ("`STEP_TAKING`, then `STEP_NEVER`", ["1: STEP_NEVER"]),
    ("See\n`src/service/exec/exec.h` and `base/nothing.h`.", ["2: base/nothing.h"]),
    ("[frames](../../src/base/wire/frame.h), [none](../../src/base/none.h)", ["1: src/base/none.h"]),
    ("  service_exec   service/exec/start.c   begins", []),
    ("  service_exec   service/create.c   begins", ["1: service_exec in service/create.c"]),
])
def test_internals_check_finds_wrong_names(text, wrong):
    assert missing(text) == wrong


def touched(text):
    """Paths of the tree that a page mentions; a word in capitals is a placeholder."""
    found = re.findall(r"`((?:src|tests|docs|scripts|bench|packaging)/[^`\s]*)", text)
    return [re.sub(r"[A-Z]{3,}", "*", path).rstrip("/") for path in found]


def test_contributing_names_files_that_exist():
    paths = touched((TOP / "CONTRIBUTING.md").read_text())
    assert len(paths) > 30
    assert [path for path in paths if not any(TOP.glob(path))] == []


def test_contributing_check_reads_paths_and_placeholders():
    assert touched("`src/a/NAME.c` and `tests/x_AREA.py:` but not `make`") == ["src/a/*.c", "tests/x_*.py:"]
