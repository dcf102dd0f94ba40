"""A provider that repeats the owner's key in its answer, in any form and any pieces: the machine gets stars."""
import base64
import gzip
import json

import pytest

from scripted import Scripted, chat_answer, chat_stream, chunk, messages_stream
from test_gateway import OWNER, Gateway

CONTROL = "word-of-a-stranger"
FORMS = {"plain": str, "json": lambda s: "".join(f"\\u{ord(c):04x}" for c in s), "hex": lambda s: s.encode().hex(),
         "base64": lambda s: base64.b64encode(b"." + s.encode() + b".").decode()}


@pytest.fixture
def echo(tmp_path):
    """A gateway, and its provider, whose answers the test writes."""
    server = Scripted(None)
    gateway = Gateway(tmp_path / "gw", server.port, tokens=10**9)
    yield gateway, server.server
    gateway.process.kill()
    gateway.process.communicate()
    server.end()


def pieces(records, size):
    """A stream that arrives in pieces of this many bytes."""
    data = "".join(records).encode()
    return 200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}, [chunk(data[i:i + size]) for i in range(0, len(data), size)]


def is_in(text, answer, form):
    core = FORMS[form](text)
    return (core[4:-4] if form == "base64" else core) in answer


@pytest.mark.parametrize("form", FORMS)
def test_a_key_in_an_answer_is_masked(echo, form):
    """The control is another text in the same form. It arrives unchanged."""
    gateway, server = echo
    for status in (200, 400, 500):
        for text in (OWNER, CONTROL):
            body = json.dumps(chat_answer("TEXT")).replace("TEXT", FORMS[form](text)).encode()
            server.answer = lambda r: (status, {"Content-Type": "application/json", "Content-Length": str(len(body)), "Request-Id": text}, [body])
            got, answer, told = gateway.post("/v1/chat/completions", {"model": "m", "messages": []})
            assert got == status
            assert is_in(text, answer.decode(), form) == (text == CONTROL), answer
            assert told.headers["Request-Id"] == (CONTROL if text == CONTROL else "*" * len(OWNER))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [1, 7, 16, 100000])
def test_a_key_in_a_stream_is_masked_across_its_pieces(echo, form, size):
    """All of the stream but the key arrives, also without usage, which the gateway strips from Chat."""
    gateway, server = echo
    for path, records in (("/v1/chat/completions", chat_stream), ("/v1/messages", messages_stream)):
        for text in (OWNER, CONTROL):
            server.answer = lambda r: pieces([x.replace("TEXT", "<" + FORMS[form](text) + ">") for x in records("TEXT")], size)
            status, answer, _ = gateway.post(path, {"model": "m", "messages": [], "stream": True, "max_tokens": 100})
            assert status == 200
            assert is_in(text, answer.decode(), form) == (text == CONTROL), answer
            stars = answer.decode().count("*")
            assert (stars > 0) == (text == OWNER) and (b"[DONE]" in answer or b"message_stop" in answer)
            usual = "".join(records("TEXT")).encode()
            assert answer.split(b"TEXT")[0][:40] == usual[:40]


@pytest.mark.parametrize("stream", [False, True])
def test_a_compressed_answer_is_not_passed_on(echo, stream):
    """The gateway asks for none, and could not find the key in it. The control is not compressed."""
    gateway, server = echo
    plain = ("".join(chat_stream(OWNER)) if stream else json.dumps(chat_answer(OWNER))).encode()
    kind = "text/event-stream" if stream else "application/json"
    for coding in ("gzip", "GZIP", "identity, gzip", ("gzip", "identity"), "identity"):
        body = plain if coding == "identity" else gzip.compress(plain)
        fields = dict(zip(("Content-Encoding", "content-encoding"), [coding] if isinstance(coding, str) else coding))
        server.answer = lambda r: (200, {"Content-Type": kind, "Content-Length": str(len(body)), **fields}, [body])
        status, answer, _ = gateway.post("/v1/chat/completions", {"model": "m", "messages": [], "stream": stream})
        assert (status == 200 and b"***" in answer) == (coding == "identity"), (coding, status, answer)
        assert b"\x1f\x8b" not in answer


def test_the_usage_of_a_masked_stream_is_paid(echo):
    gateway, server = echo
    server.answer = lambda r: pieces(chat_stream(OWNER, tokens=(70, 30)), 5)
    gateway.post("/v1/chat/completions", {"model": "m", "messages": [], "stream": True})
    assert gateway.end()["tokens"] == 100
