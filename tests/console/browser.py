"""Debian's chromium, driven by Playwright: a browser with tabs, for a test against a real daemon."""
import functools
import json
import os
import pathlib
import shutil
import subprocess

import pytest

from carrel import BUILD

here = pathlib.Path(__file__).resolve().parent
top = here.parent.parent


@functools.cache
def missing():
    """Why there is no browser or no page here, or None. Builds the page if it is out of date."""
    if not (chromium := shutil.which("chromium")):
        return "chromium is not installed: scripts/setup browser"
    if subprocess.run([chromium, "--version"], capture_output=True, timeout=120).returncode:
        return "chromium does not start here"
    done = subprocess.run([top / "scripts/web", BUILD], capture_output=True, text=True, timeout=900)
    if done.returncode == 77:
        return done.stderr.strip().splitlines()[-1]
    assert done.returncode == 0, done.stdout + done.stderr
    return None


class BrowserError(AssertionError):
    pass


class Browser:
    def __init__(self):
        self.process = subprocess.Popen(["node", here / "bridge.mjs", BUILD / "web", shutil.which("chromium")],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, "NODE_OPTIONS": ""})
        self.tabs = self.calls = 0

    def call(self, tab, method, *args):
        self.calls += 1
        self.process.stdin.write(json.dumps({"call": self.calls, "tab": tab, "method": method, "args": args}) + "\n")
        self.process.stdin.flush()
        answer = {}
        while answer.get("call") != self.calls:  # a test that took too long left an answer behind
            line = self.process.stdout.readline()
            assert line, "the browser has ended"
            answer = json.loads(line)
        if "error" in answer:
            raise BrowserError(f"{method}{args}: {answer['error']}")
        return answer.get("value")

    def open(self, url, **options):
        self.tabs += 1
        tab = Tab(self, self.tabs)
        self.call(tab.name, "open", {"url": url, "options": options})
        return tab

    def stop(self):
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Tab:
    """Calls of this object are methods of a Playwright page, or of bridge.mjs: tab.click("text=Save")."""

    def __init__(self, browser, name):
        self.browser, self.name = browser, name

    def __getattr__(self, method):
        return functools.partial(self.browser.call, self.name, method)

    def reads(self, text):
        """Waits until the page shows a text."""
        self.shown(f":text({json.dumps(text)})")

    def done(self):
        """Closes the tab; it must have made no error and have kept its policy."""
        faults = self.faults()
        self.close()
        assert faults == [], faults


def need_browser():
    if why := missing():
        pytest.skip(why, allow_module_level=True)
