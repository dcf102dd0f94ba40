"""tests/pages.py plays a page, and notices what a page shows wrongly."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import pages  # noqa: E402


@pytest.fixture
def play(tmp_path):
    def play(*blocks):
        page = tmp_path / "page.md"
        page.write_text("# A page\n\n" + "\n".join(f"```{kind}\n{text}```\n" for kind, text in blocks))
        return pages.play(page, {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "TMPDIR": str(tmp_path)}, tmp_path)
    return play


TRUE = r"""
$ echo hello; echo problem >&2
hello
problem
$ x=5; cd /
$ echo $x $PWD
5 /
$ cat >"$TMPDIR/file" <<'EOF'
$ not a command
EOF
$ echo one \
  two
one two
$ echo 'a
b'
a
b
$ seq 9
1
…
8
9
$ date +%Y
20…
$ echo 'name   age'
name      …
$ false
$ echo $?
1
$ printf 'm-%s c-%s\n' abcdefgh2345 zzzzzzzzzzzz
m-4kq2x7w3n5ab c-4kq2x7w3n5ab
$ test m-4kq2x7w3n5ab = m-abcdefgh2345
""".lstrip().replace("m-abcdefgh2345", "m-abcdefgh''2345")


def test_a_page_that_is_true(play):
    assert play(("sh", "exit 1\n"), ("console", TRUE), ("text", "$ exit 1\n")) == 13


@pytest.mark.parametrize("text", [
    "$ echo hello\nhullo\n", "$ echo hello\n", "$ true\nhello\n", "$ false\n", "$ seq 3\n1\n…\n4\n", "$ echo a b\nab\n",
    "$ echo m-abcdefgh''2345 m-zzzzzz''zzzzzz\nm-4kq2x7w3n5ab m-4kq2x7w3n5ab\n",
    "$ echo m-abcdefgh''2345\nc-4kq2x7w3n5ab\n", "$ echo m-4kq2x7w3n5ab\nm-4kq2x7w3n5ab\n", "hello\n", "$ exit 0\n"],
    ids=["other-text", "text-not-shown", "text-not-printed", "failure", "other-end", "no-blank", "two-ids-shown-as-one", "other-kind-of-id",
         "an-id-that-nobody-printed", "no-command", "end-of-the-shell"])
def test_a_page_that_is_not_true(play, text):
    with pytest.raises(AssertionError):
        play(("console", text))


def test_again_waits_for_what_a_background_job_does(play):
    assert play(("console", "$ (sleep 0.5; echo done >file) &\n"), ("console again", "$ cat file\ndone\n")) == 2
