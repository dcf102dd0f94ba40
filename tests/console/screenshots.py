#!/usr/bin/python3
"""make screenshots: writes every page of the console to a folder, light, dark and on a phone, with a real daemon.

Usage: screenshots.py FOLDER
"""
import pathlib
import sys
import tempfile

here = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(here), str(here.parent), str(here.parent / "daemon")]

from browser import Browser, missing  # noqa: E402
from console import ConsoleDaemon  # noqa: E402
from filled import fill  # noqa: E402
from screens import HAS_DESKTOP  # noqa: E402
from worker import console_command  # noqa: E402

LOOKS = {
    "light": {"colorScheme": "light", "viewport": {"width": 1360, "height": 860}},
    "dark": {"colorScheme": "dark", "viewport": {"width": 1360, "height": 860}},
    "phone": {"colorScheme": "light", "viewport": {"width": 390, "height": 800}},
}


def shoot(browser, link, look, routes, folder):
    tab = browser.open(link, **LOOKS[look])
    tab.shown("main h1")
    for name, where in routes.items():
        tab.evaluate(f"location.hash = '#/{where}'")
        tab.shown("main h1")
        tab.until("!document.querySelector('main').textContent.includes('Loading')")
        if name in ("models", "host"):
            tab.until("document.querySelectorAll('.plot canvas').length > 1")
        if name == "desktop" and HAS_DESKTOP:
            tab.reads("The clipboard is not shared.")
        if name == "host":
            tab.waitForTimeout(5000)  # a plot needs some samples
        tab.waitForTimeout(300)
        tab.screenshot({"path": str(folder / f"{name}-{look}.png")})
    tab.close()


def main(folder):
    if why := missing():
        sys.exit(f"screenshots: {why}")
    folder.mkdir(parents=True, exist_ok=True)
    daemon, browser = ConsoleDaemon(), Browser()
    try:
        with tempfile.TemporaryDirectory() as home, console_command(daemon, home):
            routes = fill(daemon, pathlib.Path(home))
            for look in LOOKS:
                shoot(browser, daemon.link_url(), look, routes, folder)
    finally:
        browser.stop()
        daemon.stop()
    print(f"screenshots: {folder}")


main(pathlib.Path(sys.argv[1]))
