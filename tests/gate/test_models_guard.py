"""A provider of models is trusted, whom it asks is not: what makes it fetch taints, and a guarded machine that is tainted may not."""
import http.server
import json
import re
import threading
import urllib.request

import pytest

from daemon import Daemon

DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
KEY = "the-key-of-the-owner-7421"
PATHS = {"anthropic": "/v1/messages", "chat": "/v1/chat/completions", "responses": "/v1/responses"}
ANSWERS = {
    "/messages": {"id": "a", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
                  "content": [{"type": "text", "text": "WORD"}], "usage": {"input_tokens": 1, "output_tokens": 1}},
    "/chat/completions": {"id": "a", "model": "m", "choices": [{"index": 0, "finish_reason": "stop", "message": {
        "role": "assistant", "content": "WORD"}}], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}},
    "/responses": {"id": "a", "object": "response", "status": "completed", "model": "m", "output": [
        {"type": "message", "id": "b", "role": "assistant", "status": "completed", "content": [
            {"type": "output_text", "text": "WORD", "annotations": []}]}], "usage": {"input_tokens": 1, "output_tokens": 1}},
}
CONF = """[models]
provider = a format=anthropic url=http://127.0.0.1:{port} key_env=OWNER_KEY
provider = c format=chat url=http://127.0.0.1:{port}/v1 key_env=OWNER_KEY
provider = r format=responses url=http://127.0.0.1:{port}/v1 key_env=OWNER_KEY
alias = either c/down c/web-search
alias = any c/down c/web-search c/plain
"""


class Stranger(http.server.BaseHTTPRequestHandler):
    """Hears what stands in the address, and answers with a word of its own."""

    def do_GET(self):
        self.server.heard.append(self.path)
        body = b"word-of-a-stranger"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Provider(Stranger):
    """Fetches every address that a request names, as those with such tools do, and says what it found."""

    def do_POST(self):
        asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.heard.append(json.loads(asked)["model"])
        found = [DIRECT.open(url, timeout=60).read().decode() for url in re.findall(r'http://127[^"\\]+', asked)]
        answer = next(a for end, a in ANSWERS.items() if self.path.endswith(end))
        body = json.dumps(answer).replace("WORD", " ".join(found) or "nothing").encode()
        self.send_response(503 if self.server.heard[-1] == "down" else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def serve(handler):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.heard = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def end(server):
    server.shutdown()
    server.server_close()


class WithModels(Daemon):
    def start(self, env=()):
        super().start({**dict(env), "OWNER_KEY": KEY})

    def ask(self, box, form, body):
        """Status and body of a request from inside."""
        done = self.exec(box, ["curl", "-sS", "-w", "\\n%{http_code}", "-H", "Content-Type: application/json",
                               "-d", json.dumps(body), "http://models.carrel" + PATHS[form]])
        assert done["exec"]["status"] == 0, done
        text, status = done["stdout"].rsplit("\n", 1)
        return int(status), text

    def tainted(self, box):
        return self.get(f"/v1/machines/{box}/net").get("tainted")


@pytest.fixture(scope="module")
def stranger():
    s = serve(Stranger)
    yield s
    end(s)


@pytest.fixture(scope="module")
def module_daemon():
    provider = serve(Provider)
    d = WithModels(conf=CONF.format(port=provider.server_port))
    d.provider = provider
    yield d
    d.stop()
    end(provider)


@pytest.fixture
def daemon(module_daemon):
    yield module_daemon
    module_daemon.clear()


def plain(form):
    said = {"input": "hi"} if form == "responses" else {"messages": [{"role": "user", "content": "hi"}]}
    return {"model": "m", ("max_output_tokens" if form == "responses" else "max_tokens"): 50, **said}


def attacks(form, url):
    """Ways to make the provider fetch an address: a tool of its own, and a picture."""
    if form == "anthropic":
        return [{"mcp_servers": [{"type": "url", "name": "a", "url": url}]},
                {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": url}}]}]}]
    if form == "chat":
        return [{"tools": [{"type": "mcp", "server_url": url}]},
                {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]}]
    return [{"tools": [{"type": "mcp", "server_label": "a", "server_url": url}]},
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]}]


@pytest.mark.parametrize("form", PATHS)
def test_a_provider_fetches_nothing_for_a_machine_that_a_taint_has_closed(daemon, stranger, form):
    free, box = daemon.machine(models={"allow": True}), daemon.machine(models={"allow": True}, guard=True)
    for machine in (free, box):
        assert daemon.ask(machine, form, plain(form))[0] == 200 and daemon.tainted(machine) is None
        daemon.post(f"/v1/machines/{machine}/grants", {"kind": "env", "what": "WORD", "value": "x", "untrusted": True})
        assert daemon.tainted(machine) == "WORD"
    for n, more in enumerate(attacks(form, f"http://127.0.0.1:{stranger.server_port}/{form}-SECRET-")):
        sent = json.dumps({**plain(form), **more})
        status, text = daemon.ask(free, form, json.loads(sent.replace("SECRET", f"{free}-{n}")))
        assert status == 200 and "word-of-a-stranger" in text, "the control: nobody guards it"
        assert f"/{form}-{free}-{n}-" in stranger.heard
        status, text = daemon.ask(box, form, json.loads(sent.replace("SECRET", f"{box}-{n}")))
        assert status == 403 and "could make the provider reach somebody else" in text, text
    assert not [path for path in stranger.heard if box in path]
    assert daemon.ask(box, form, plain(form))[0] == 200, "what reaches nobody else still goes on"


@pytest.mark.parametrize("form", PATHS)
def test_what_a_provider_fetched_taints(daemon, stranger, form):
    for n, more in enumerate(attacks(form, f"http://127.0.0.1:{stranger.server_port}/SECRET")):
        box = daemon.machine(models={"allow": True}, guard=True)
        assert daemon.ask(box, form, plain(form))[0] == 200 and daemon.tainted(box) is None
        body = json.loads(json.dumps({**plain(form), **more}).replace("SECRET", f"{box}-{n}"))
        status, text = daemon.ask(box, form, body)
        assert status == 200 and "word-of-a-stranger" in text and daemon.tainted(box) == "models.carrel"
        assert daemon.ask(box, form, body)[0] == 403, "it has been tainted by the first one"
        assert stranger.heard.count(f"/{box}-{n}") == 1


def test_the_next_model_of_an_alias_is_checked_too(daemon):
    """A model that searches is not tried for a machine that a taint has closed, and taints others."""
    heard = daemon.provider.heard
    free, box, fresh = daemon.machine(models={"allow": True}), *(daemon.machine(models={"allow": True}, guard=True) for _ in range(2))
    for machine in (free, box):
        daemon.post(f"/v1/machines/{machine}/grants", {"kind": "env", "what": "WORD", "value": "x", "untrusted": True})
    for machine, alias, status, models in ((free, "either", 200, ["down", "web-search"]), (box, "either", 503, ["down"]),
                                           (box, "any", 200, ["down", "plain"]), (fresh, "either", 200, ["down", "web-search"])):
        del heard[:]
        assert (daemon.ask(machine, "chat", {**plain("chat"), "model": alias})[0], heard) == (status, models)
    assert daemon.tainted(fresh) == "models.carrel"
