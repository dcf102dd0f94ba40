"""A daemon with a console: links, tokens and tickets of it, as a browser gets them."""
import contextlib
import http.client
import json
import pathlib
import random
import socket
import threading
import urllib.parse

from daemon import Daemon, Refused, TcpClient


class Page(TcpClient):
    """What the page may do: a client with the token of a session."""

    def __init__(self, port, token):
        super().__init__(port, token)
        self.headers = {"Content-Type": "application/json", "Origin": f"http://127.0.0.1:{port}"}
        if token:
            self.headers["Authorization"] = "Bearer " + token

    def ticket(self, target):
        return self.post("/console/ticket", {"target": target})["ticket"]

    def with_ticket(self, target, ticket=None):
        """The target as a browser requests it: with a ticket, without a token."""
        ticket = ticket or self.ticket(target)
        return target + ("&" if "?" in target else "?") + "ticket=" + ticket


def raw(port, method, target, body=None, headers=()):
    """The whole answer: status, headers and bytes."""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    c.request(method, target, body=body, headers=dict(headers))
    answer = c.getresponse()
    content = answer.read()
    c.close()
    return answer.status, answer.headers, content


def quiet_port():
    """A port that no daemon takes as its usual one, and no client as a random one, while a daemon restarts."""
    first = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.sample(range(10_000, max(first, 11_000)), 100):
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


class ConsoleDaemon(Daemon):
    port = None

    def furnish(self):
        super().furnish()
        # Open pages know only this port. Other suites start daemons that would take the usual one just then.
        (self.run_dir / "console.json").write_text(json.dumps({"port": quiet_port(), "sessions": []}))

    def start(self, env=()):
        super().start(env)
        self.dir.chmod(0o711)  # other users of the test reach the socket

    def link(self, client=None):
        """A one-time link, and the port of the console."""
        url = urllib.parse.urlsplit((client or self).post("/console/link")["url"])
        self.port = url.port
        assert (url.scheme, url.hostname, url.path, url.query) == ("http", "127.0.0.1", "/", "")
        return url.fragment.removeprefix("link=")

    def link_url(self, client=None):
        link = self.link(client)
        return f"http://127.0.0.1:{self.port}/#link={link}"

    @contextlib.contextmanager
    def busy(self, machine):
        """The machine runs one command after the other, each of which makes a step."""
        over = threading.Event()

        def run():
            while not over.wait(0.1):
                self.exec(machine, "echo x >>note")

        one = threading.Thread(target=run)
        one.start()
        try:
            yield
        finally:
            over.set()
            one.join()

    def open(self, client=None):
        link = self.link(client)
        told = Page(self.port, None).post("/console/open", {"link": link})
        return Page(self.port, told["token"])


def visit(tab, *parts):
    """Goes to a page, and returns once it is drawn: until then the page before it is there."""
    tab.evaluate(f"""((place) => location.hash === place || new Promise((done) => {{
        addEventListener("hashchange", () => requestAnimationFrame(() => setTimeout(done)), {{ once: true }});
        location.hash = place;
    }}))({json.dumps("#/" + "/".join(parts))})""")


def show(tab, machine, name):
    """Opens a part of the page of a machine."""
    tab.evaluate(f"location.hash = '#/machines/{machine}?tab={name}'")
    tab.shown(f"#tab-{name}[aria-selected=true]")


def decide(tab, button, which=".pending"):
    """Presses a button of a request on the page Approvals. What has just moved cannot be pressed."""
    tab.click(f"{which}:not([aria-busy=true]) button:text('{button}')")
    tab.gone(f"{which}:not(.ended)")


def status_of(do, *args, **kw):
    try:
        do(*args, **kw)
    except Refused as e:
        return e.status, e.code
    return 200, None


