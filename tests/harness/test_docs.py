"""What every page of the documentation keeps to."""
import pathlib
import re

TOP = pathlib.Path(__file__).resolve().parents[2]
DOCS = TOP / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


def test_the_glossary_has_each_word_once_in_order_with_one_sentence():
    text = (DOCS / "glossary.md").read_text()
    entries = [" ".join(e.split()) for e in re.split(r"^\* ", text, flags=re.M)[1:]]
    rows = [re.fullmatch(r"\*\*([\w ]+)\*\*: ([A-Z].*\.)", e) for e in entries]
    assert all(rows), [e for e, row in zip(entries, rows) if not row]
    words = [row[1] for row in rows]
    assert len(words) > 40 and words == sorted(set(words))
    assert not [row[1] for row in rows if re.search(r"[.!?] ", row[2])]


def test_reference_and_internals_pages_begin_with_what_they_are_for():
    for page in [*DOCS.glob("reference/*.md"), *DOCS.glob("internals/*.md")]:
        first = page.read_text().split("\n\n")[1]
        assert re.match(r"This page \w+ ", first), (page, first)


def test_no_page_has_markers_of_a_merge_conflict():
    pages = [*PAGES, *TOP.glob("*.md")]
    assert not [str(p) for p in pages if re.search(r"^(?:<{7}|={7}|>{7})(?: |$)", p.read_text(), re.M)]


def test_the_index_names_every_page():
    named = set(re.findall(r"\]\(([^)#]+\.md)", (DOCS / "README.md").read_text()))
    assert not [str(p.relative_to(DOCS)) for p in PAGES if p.name != "README.md" and str(p.relative_to(DOCS)) not in named]


def test_pictures_are_small_readable_on_dark_and_light_and_used():
    texts = "".join(p.read_text() for p in [*PAGES, TOP / "README.md"])
    pictures = sorted((DOCS / "pictures").glob("*.svg"))
    assert len(pictures) >= 3
    for picture in pictures:
        text = picture.read_text()
        assert len(text) < 8192 and "prefers-color-scheme: dark" in text and "<title>" in text, picture
        assert f"pictures/{picture.name}" in texts, picture


def test_every_table_of_a_benchmark_has_a_place_on_the_page():
    """scripts/bench-docs refuses to write the page without one."""
    names = {n for p in (TOP / "bench").rglob("meson.build") for n in re.findall(r"bench-([\w-]+)\.md", p.read_text())}
    text = (DOCS / "benchmarks.md").read_text()
    assert len(names) > 5
    assert not [n for n in names if not re.search(rf"^<!-- {n} -->\n.+?^<!-- end of {n} -->$", text, re.M | re.S)]
