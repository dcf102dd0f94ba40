"""The desktop of a machine on its page: a real X server in the machine, real clicks and keys in the browser."""
import re

from browser import need_browser
from console import show
from screens import SOCKET, needs_desktop, server
from test_desktop_watch import Viewer

need_browser()

CANVAS = ".desktop canvas"
# The colour of a pixel of the screen, as "18 52 222".
PIXEL = "[...document.querySelector('.desktop canvas').getContext('2d').getImageData({x}, {y}, 1, 1).data.slice(0, 3)].join(' ')"


def opened(tab, machine):
    show(tab, machine, "desktop")
    tab.click("text=Start desktop")
    tab.shown(CANVAS)
    tab.reads("The clipboard is not shared.")


def watch_events(daemon, machine):
    """Starts xev in a window that fills the screen, and waits for it; returns what it has reported."""
    daemon.background(machine, "DISPLAY=:0 stdbuf -oL xev -geometry 1200x700+20+40 >/tmp/events")
    events = lambda: daemon.exec(machine, "cat /tmp/events 2>&1")["stdout"]
    daemon.until(lambda: "Expose" in events())
    return events


@needs_desktop
def test_a_desktop_shows_what_programs_draw_and_takes_clicks_and_keys(tab, daemon, box):
    opened(tab, box)
    assert tab.evaluate(f"document.querySelector('{CANVAS}').width + ' ' + document.querySelector('{CANVAS}').height") == "1280 800"
    events = watch_events(daemon, box)
    tab.click(CANVAS)
    daemon.until(lambda: "ButtonRelease" in events())
    x, y = map(int, re.search(r"ButtonPress.*?root:\((\d+),(\d+)\)", events(), re.S).groups())
    assert abs(x - 640) < 8 and abs(y - 400) < 8, "the middle of the page's canvas is the middle of the screen"
    tab.type("aB")
    daemon.until(lambda: re.search(r"keysym 0x61, a\).*keysym 0x42, B\)", events(), re.S))
    tab.key("Control+F5")
    daemon.until(lambda: re.search(r"Control_L\).*, F5\)", events(), re.S))
    tab.fill("[aria-label='Text to type in the desktop']", "é")
    tab.click("button:text('Type')")
    daemon.until(lambda: ", eacute)" in events())
    daemon.background(box, "DISPLAY=:0 xmessage -geometry 500x300+50+60 -bg '#1234de' here")
    tab.until(f"{PIXEL.format(x=400, y=300)} === '18 52 222'")
    assert tab.axe() == []


@needs_desktop
def test_view_only_sends_nothing_and_the_keyboard_comes_back(tab, daemon, box):
    opened(tab, box)
    events = watch_events(daemon, box)
    tab.click(CANVAS)
    daemon.until(lambda: "ButtonRelease" in events())
    tab.key("Shift+Escape")
    tab.until("document.activeElement.type === 'checkbox'")
    tab.click("text=View only")
    tab.shown(f"{CANVAS}[aria-label$='view only']")
    tab.gone("button:text('Type')")
    tab.click(CANVAS)
    tab.key("q")
    tab.click("text=View only")
    tab.shown("button:text('Type')")
    tab.click(CANVAS)
    tab.key("w")
    daemon.until(lambda: ", w)" in events())
    assert ", q)" not in events()
    assert events().count("ButtonPress event") == 2


@needs_desktop
def test_it_goes_on_after_a_lost_connection_and_can_be_started_again(tab, daemon, box):
    opened(tab, box)
    daemon.kill()
    tab.shown("[role=status]:has-text('Trying again')")
    daemon.start()
    tab.reads("The clipboard is not shared.")
    events = watch_events(daemon, box)
    tab.click(CANVAS)
    daemon.until(lambda: "ButtonRelease" in events())
    daemon.exec(box, "kill -9 $(cat /tmp/.X0-lock)")
    tab.gone(CANVAS)
    tab.click("text=Start desktop")
    tab.shown(CANVAS)


@needs_desktop
def test_it_fits_the_page_of_a_phone(tab, daemon, box):
    opened(tab, box)
    width = f"document.querySelector('{CANVAS}').getBoundingClientRect().width"
    tab.setViewportSize({"width": 390, "height": 800})
    tab.until(f"{width} > 200 && {width} <= 390")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    tab.click("text=Fit to the page")
    tab.until(f"{width} === 1280")


def test_a_server_that_lies_is_cut_off_with_a_reason(tab, daemon, box):
    """The name of its screen and its clipboard stay away; an encoding that nobody asked for ends the connection."""
    lies = server(r"""
greet(c)
c.recv(10)
c.sendall(b'\3\0\0\0\0\0\0\3cut\0\0\0\1' + rect(0, 0, 8, 4, 7) + b'<img src=x onerror=alert(1)>')
""")
    daemon.background(box, lies, name="desktop")
    daemon.until(lambda: daemon.exec(box, f"test -S {SOCKET} && echo yes")["stdout"])
    show(tab, box, "desktop")
    tab.shown("[role=status]:has-text('an encoding that nobody asked for')")
    tab.shown("[role=status]:has-text('Trying again')")


def test_a_viewer_over_the_limit_reads_why_and_gets_in_later(tab, daemon, box):
    daemon.background(box, server("greet(c)\nc.recv(1000)"), name="desktop")
    daemon.until(lambda: daemon.exec(box, f"test -S {SOCKET} && echo yes")["stdout"])
    viewers = [Viewer(daemon, box) for _ in range(8)]
    show(tab, box, "desktop")
    tab.shown("[role=status]:has-text('already has 8 viewers of its desktop, the limit. Trying again')")
    for viewer in viewers:
        viewer.cut()
    tab.reads("The clipboard is not shared.")


def test_a_machine_without_the_packages_says_so(tab, daemon, box):
    daemon.exec(box, "rm -f /usr/bin/Xtigervnc", user="root")
    show(tab, box, "desktop")
    tab.click("text=Start desktop")
    tab.shown(":text('does not have both Xtigervnc and openbox')")
