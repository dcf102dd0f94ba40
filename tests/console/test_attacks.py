"""What a machine could do to the user of its pages: content without an end, commands in disguise."""
import json

from browser import need_browser
from console import show
from screens import SOCKET, server
from test_desktop_watch import Viewer

need_browser()


def plays(daemon, box, script):
    daemon.background(box, server(script), name="desktop")
    daemon.until(lambda: daemon.exec(box, f"test -S {SOCKET} && echo yes")["stdout"])


def test_a_link_to_an_endless_file_is_not_read(tab, daemon, box):
    """The size of a link is that of its name."""
    daemon.exec(box, "truncate -s 1T endless; ln -s endless small.txt; echo hello >here.txt")
    tab.evaluate("window.read = 0; const fetch = window.fetch; window.fetch = (url, o) =>"
                 " { window.read += /files[?]path=.*small/.test(url); return fetch(url, o); }")
    show(tab, box, "files")
    tab.click("text=here.txt")
    tab.shown("textarea")
    tab.click("text=small.txt")
    tab.reads("This file is too large to show.")
    assert tab.evaluate("window.read") == 0


def test_a_page_that_leaves_a_silent_desktop_is_no_viewer_of_it(tab, daemon, box):
    plays(daemon, box, "time.sleep(600)")

    def count(kind):
        lines = daemon.request("GET", "/v1/audit?verb=desktop.watch", raw=True).splitlines()
        return sum(json.loads(line)["kind"] == kind for line in lines)

    for i in range(9):
        show(tab, box, "desktop")
        daemon.until(lambda: count("intent") > i)
        show(tab, box, "timeline")
    daemon.until(lambda: count("result") == count("intent"))
    viewers = [Viewer(daemon, box) for _ in range(8)]
    for viewer in viewers:
        viewer.cut()


def test_the_words_of_a_command_cannot_disguise_themselves(tab, daemon, box):
    daemon.exec(box, ["true", "a\u202eb\nc"])
    for part in ("commands", "timeline"):
        show(tab, box, part)
        tab.until("[...document.querySelectorAll('pre')].some((p) => p.textContent.includes('a\\\\u202eb\\nc'))")
