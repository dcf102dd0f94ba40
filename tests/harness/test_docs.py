"""What every page of the documentation keeps to."""
import pathlib
import re

TOP = pathlib.Path(__file__).resolve().parents[2]
DOCS = TOP / "docs"


def test_the_glossary_has_each_word_once_in_order_with_one_sentence():
    text = (DOCS / "glossary.md").read_text()
    entries = [" ".join(e.split()) for e in re.split(r"^\* ", text, flags=re.M)[1:]]
    rows = [re.fullmatch(r"\*\*([\w ]+)\*\*: ([A-Z].*\.)", e) for e in entries]
    assert all(rows), [e for e, row in zip(entries, rows) if not row]
    words = [row[1] for row in rows]
    assert len(words) > 40 and words == sorted(set(words))
    assert not [row[1] for row in rows if re.search(r"[.!?] ", row[2])]
