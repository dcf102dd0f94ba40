"""docs/reference/agents.md says which versions are pinned, and what may be answered: as the code does."""
import re

from carrel import TOP

PAGE = (TOP / "docs/reference/agents.md").read_text()


def test_versions_on_the_page_are_those_of_the_table():
    table = (TOP / "src/cli/agent/table.c").read_text()
    known = dict(re.findall(r'\.name = "(\w+)",\s+\.version = "([\d.]+)"', table))
    assert len(known) == 4
    assert dict(re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", PAGE, re.M)) == known
    for name, version in known.items():
        assert f"@{version}" in table or name == "gemini", name


def test_answers_on_the_page_are_those_of_the_question():
    code = (TOP / "src/cli/agent/after.c").read_text()
    assert re.findall(r"^\| `(\w)` \|", PAGE, re.M) == re.findall(r"^    \{'(\w)', \"", code, re.M)


def test_tests_on_the_page_run_with_every_agent():
    page, code = re.findall(r"`(test_\w+)`", PAGE), (TOP / "tests/agent/real_agents.py").read_text()
    assert len(set(page)) == 7
    for name in set(page):
        assert re.search(r'parametrize\("name", (NAMES|list\(SCREENS\))\)\n(@.*\n)*def ' + name + r"\(", code), name
