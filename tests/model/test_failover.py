"""Several providers and keys in order, and aliases for models."""
import json
import threading
import time

import pytest

from patience import PATIENCE
from scripted import Scripted, answer_any, chat_stream, stream, whole
from test_budget import CHAT, MESSAGES, send, until
from test_gateway import BODY, Gateway
from test_routes import ask

CONF = """[models]
provider = one format=chat url=http://127.0.0.1:{port}/v1 key_env=OWNER_KEY
provider = two format=chat url=http://127.0.0.1:{second}/v1 key_env=SECOND_KEY
provider = unset format=chat url=http://127.0.0.1:{second}/v1 key_env=NOT_SET
provider = claude format=anthropic url=http://127.0.0.1:{second} key_env=OWNER_KEY
alias = fast unset/small one/small two/tiny claude/little
alias = strong claude/big
model = small in=1 out=1
model = tiny in=100 out=100
"""


def failing(status):
    return lambda _: whole({"error": {"message": "not now", "type": "server_error"}}, status, retry_after="3")


@pytest.fixture
def pair(tmp_path, monkeypatch):
    """pair(first, second) gives two scripted providers and a gateway that knows both."""
    made = []
    monkeypatch.setenv("SECOND_KEY", "key-of-the-second")

    def make(first, second, **budget):
        servers = Scripted(first), Scripted(second)
        conf = CONF.replace("{second}", str(servers[1].port))
        g = Gateway(tmp_path / f"gw{len(made)}", servers[0].port, conf=conf, **budget)
        made.append((servers, g))
        return *servers, g

    yield make
    for servers, g in made:
        if g.process.poll() is None:
            g.process.kill()
            g.process.communicate()
        for s in servers:
            s.end()


@pytest.mark.parametrize("status", [429, 500, 503, 529])
def test_the_next_provider_answers_if_one_cannot(pair, status):
    one, two, g = pair(failing(status), answer_any(tokens=(7, 3)))
    got, body, answer = g.post(CHAT, dict(BODY, stream=True))
    assert got == 200 and b"[DONE]" in body and answer.getheader("retry-after") is None
    assert [len(s.requests) for s in (one, two)] == [1, 1]
    assert two.requests[0].fields["authorization"] == "Bearer key-of-the-second"
    assert two.requests[0].body == one.requests[0].body, "a plain name is the same for all providers"
    assert g.end() == {"tokens": 10, "micro": 0, "held": 0, "calls": 2}


def test_a_provider_that_is_not_there_is_passed_over(pair):
    one, two, g = pair(failing(500), answer_any())
    one.end()
    assert g.post(CHAT, BODY)[0] == 200 and len(two.requests) == 1


def test_the_last_failure_reaches_the_client(pair):
    one, two, g = pair(failing(500), failing(429))
    status, body, answer = g.post(CHAT, BODY)
    assert status == 429 and b"not now" in body and answer.getheader("retry-after") == "3"
    assert [len(s.requests) for s in (one, two)] == [1, 1] and g.end()["tokens"] == 0


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_other_failures_stay_with_their_provider(pair, status):
    one, two, g = pair(failing(status), answer_any())
    # A key that the provider rejects is the owner's, and agents repeat a call that got 401.
    assert g.post(CHAT, BODY)[0] == (403 if status == 401 else status) and not two.requests


def test_a_provider_that_is_named_is_the_only_one(pair):
    one, two, g = pair(failing(500), answer_any())
    assert g.post(CHAT, dict(BODY, model="one/m"))[0] == 500 and not two.requests


def test_a_stream_that_has_begun_stays_with_its_provider(pair):
    one, two, g = pair(lambda _: stream(chat_stream()[:2], cut=True), answer_any())
    status, body, _ = g.post(CHAT, dict(BODY, stream=True))
    assert status == 200 and b"cut off" in body and not two.requests


def test_an_alias_stands_for_its_models_in_order(pair):
    """The provider without a key is skipped, and so is the model of another format."""
    one, two, g = pair(failing(503), answer_any(tokens=(7, 3)), micro=10**9)
    assert g.post(CHAT, dict(BODY, model="fast"))[0] == 200
    assert (one.requests[0].body["model"], two.requests[0].body["model"]) == ("small", "tiny")
    # It costs what the model costs that has answered.
    assert g.end()["micro"] == 1000


def test_an_alias_chooses_the_model_by_the_format(pair):
    one, two, g = pair(answer_any(), answer_any())
    assert g.post(MESSAGES, dict(BODY, model="fast", max_tokens=9, stream=True))[0] == 200
    assert two.requests[0].path == "/v1/messages" and two.requests[0].body["model"] == "little" and not one.requests
    status, body, _ = g.post(CHAT, dict(BODY, model="strong"))
    assert status == 400 and b"path that ends in /v1/messages" in body
    listed = [m["id"] for m in json.loads(ask(g, "GET", "/v1/models")[1])["data"]]
    assert listed == ["fast", "strong", "small", "tiny"]
    assert json.loads(ask(g, "GET", "/v1/models/fast")[1])["id"] == "fast"


def test_the_next_model_is_held_for_as_well(pair):
    """tiny costs a hundred times as much, and does not fit."""
    one, two, g = pair(failing(500), answer_any(), micro=10000)
    status, body, _ = g.post(CHAT, dict(BODY, model="fast", max_tokens=4000))
    assert status == 402 and b"budget 0.01 USD" in body and not two.requests
    assert g.end()["micro"] == 0


def test_a_client_that_left_ends_the_attempts(pair):
    go = threading.Event()

    def answer(_):
        assert go.wait(30 * PATIENCE)
        return failing(500)(None)

    one, two, g = pair(answer, answer_any())
    s = send(g, CHAT, BODY)
    until(lambda: one.requests)
    s.close()
    time.sleep(0.3)
    go.set()
    time.sleep(0.5)
    assert not two.requests and g.end()["tokens"] == 0
