"""Pages of documentation: lines are short, links lead somewhere, tables say what the source says."""
import json, os, pathlib, re, subprocess

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CARREL_BUILD") or TOP / "build")
PAGES = sorted((TOP / "docs").glob("**/*.md"))
WIDTH = 100


def lines(text):
    """Lines with their numbers, without code blocks."""
    in_code, before = False, ""
    for number, line in enumerate(text.splitlines(), 1):
        indented = line.startswith("    ") and not before.strip()
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and not indented:
            yield number, line
        before = line


def too_long(text):
    """A table cannot be wrapped, nor a line of one word."""
    return [number for number, line in lines(text)
            if len(line) > WIDTH and " " in line.strip() and not line.lstrip().startswith("|")]


def test_a_long_line_is_found():
    words = "word " * 21
    assert too_long(f"short\n{words}\n") == [2]
    assert too_long(f"```\n{words}\n```\n| {words} |\n{'x' * 120}\n\n    {words}\n") == []


def test_lines_are_wrapped():
    found = [f"{page.relative_to(TOP)}:{number}" for page in PAGES for number in too_long(page.read_text())]
    assert not found, f"longer than {WIDTH} characters, run scripts/wrap-docs: " + ", ".join(found)


def anchors(page):
    """Names of the headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_lead_somewhere():
    bad = []
    for page in [*PAGES, *TOP.glob("*.md")]:
        text = "\n".join(line for _, line in lines(page.read_text()))
        for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text):
            if re.match(r"\w+:", target):
                continue
            to = page.parent / target if target else page
            if not to.exists() or (anchor and to.suffix == ".md" and anchor not in anchors(to)):
                bad.append(f"{page.relative_to(TOP)}: {target}#{anchor}")
    assert not bad, bad


def rows(text, heading):
    """Rows of the table whose first heading is this, as lists of cells."""
    table = re.search(rf"^\| {heading} \|.*\n\|---.*\n((?:\|.*\n)+)", text, re.M)[1]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()]


def test_each_error_code_is_listed_with_its_status():
    codes = re.findall(r"^    ERR_(\w+)", (TOP / "src/base/err.h").read_text(), re.M)
    statuses = dict(re.findall(r"\{ERR_(\w+), (\d{3})\}", (TOP / "src/api/call.c").read_text()))
    listed = rows((TOP / "docs/reference/errors.md").read_text(), "code")
    assert len(codes) > 10 and set(codes) == set(statuses)
    assert [(row[0], row[1]) for row in listed] == [(f"`{code.lower()}`", statuses[code]) for code in codes]
    assert all(len(row) == 4 and row[2] and row[3] for row in listed)


def test_installed_paths_are_those_of_the_page():
    plan = json.loads(subprocess.check_output(["meson", "introspect", "--installed", BUILD]))
    page = (TOP / "docs/reference/files-and-places.md").read_text()
    for row in rows(page.split("## Programs\n")[1], "path"):
        for path in re.findall(r"`DIR/([^`]+)`", row[0]):
            assert any(f"/{path}" in target for target in plan.values()), path
