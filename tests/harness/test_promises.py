"""Every promise in SECURITY.md names tests, and every test it names exists."""
import pathlib, re

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
TEXT = (TOP / "SECURITY.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/.-]+::\w+)`", TEXT)))
# These sections say what is not promised, or are for people.
WITHOUT_TESTS = {"What a box does not defend against", "As an ordinary user", "Reporting a hole", "Known gaps"}


def promises():
    """(section, first words, text) of each bullet in a section that promises something."""
    for section in re.split(r"^## ", TEXT, flags=re.M)[1:]:
        title, _, body = section.partition("\n")
        if title not in WITHOUT_TESTS:
            for bullet in re.split(r"^\* ", body, flags=re.M)[1:]:
                yield title, bullet[:40].split("\n")[0], bullet


def test_there_are_promises():
    assert len(list(promises())) >= 8 and len(NAMED) >= 20


@pytest.mark.parametrize("promise", promises(), ids=lambda promise: promise[1])
def test_a_promise_names_its_tests(promise):
    assert re.search(r"`tests/[\w/.-]+::\w+`", promise[2])


@pytest.mark.parametrize("name", NAMED)
def test_a_named_test_exists(name):
    path, _, function = name.partition("::")
    word = "def" if path.endswith(".py") else "static void"
    assert re.search(rf"^{word} {function}\(", (TOP / path).read_text(), re.M)
