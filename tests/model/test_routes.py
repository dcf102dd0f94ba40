"""The routes of the gateway, in every form that agents and SDKs use."""
import http.client
import json
import subprocess
import os

import pytest

from patience import clock
from scripted import answer_any, chat_answer, chat_stream, event, stream, whole
from test_budget import CHAT, MESSAGES, world  # noqa: F401 (a fixture)
from test_gateway import BODY
from test_sdks import packages  # noqa: F401 (a fixture)


def ask(g, method, path, **fields):
    c = http.client.HTTPConnection("127.0.0.1", g.port, timeout=30)
    c.request(method, path, headers={k.replace("_", "-"): v for k, v in fields.items()})
    answer = c.getresponse()
    return answer.status, answer.read(), answer


@pytest.mark.parametrize("path,sent", [
    ("/v1/messages", "/v1/messages"), ("/messages", "/v1/messages"), ("/v1/messages?beta=true", "/v1/messages?beta=true"),
    ("/v1/messages?x=1&beta=true", "/v1/messages?beta=true"), ("/v1/messages?nobeta=true", "/v1/messages"), ("/v1/messages?beta=trueish", "/v1/messages"),
    ("/v1/chat/completions", "/v1/chat/completions"), ("/chat/completions", "/v1/chat/completions")])
def test_paths_work_with_and_without_their_version(world, path, sent):  # noqa: F811
    server, g = world(answer_any())
    assert g.post(path, dict(BODY, max_tokens=10, stream=True))[0] == 200
    assert server.requests[0].path == sent


def test_counting_tokens_is_free_and_has_no_limit_added(world):  # noqa: F811
    server, g = world(lambda _: whole({"input_tokens": 17}), tokens=1)
    for path in ("/v1/messages/count_tokens", "/messages/count_tokens"):
        status, body, _ = g.post(path, BODY)
        assert status == 200 and json.loads(body) == {"input_tokens": 17}
    assert [r.path for r in server.requests] == ["/v1/messages/count_tokens"] * 2
    assert server.requests[0].body == BODY
    assert g.end() == {"tokens": 0, "micro": 0, "held": 0, "calls": 0}


def test_embeddings_cost_their_input(world):  # noqa: F811
    answer = {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}], "model": "m",
              "usage": {"prompt_tokens": 12, "total_tokens": 12}}
    server, g = world(lambda _: whole(answer), tokens=1000)
    status, body, _ = g.post("/v1/embeddings", {"model": "m", "input": ["a", "b"], "encoding_format": "float"})
    assert status == 200 and json.loads(body) == answer
    assert server.requests[0].path == "/v1/embeddings" and server.requests[0].body == {"model": "m", "input": ["a", "b"], "encoding_format": "float"}
    status, body, _ = g.post("/v1/embeddings", {"model": "m", "input": "x", "url": "http://elsewhere"})
    assert status == 400 and b"unknown member 'url'" in body
    assert g.post("/v1/embeddings", {"model": "m", "input": "x" * 10000})[0] == 402
    assert g.end() == {"tokens": 12, "micro": 36, "held": 0, "calls": 1}


def test_probes_and_web_sockets_are_answered(world):  # noqa: F811
    _, g = world(answer_any())
    for method, path in (("HEAD", "/api/hello"), ("GET", "/api/hello"), ("HEAD", "/")):
        assert ask(g, method, path)[0] == 200
    status, body, _ = ask(g, "GET", "/v1/responses", Connection="Upgrade", Upgrade="websocket", Sec_WebSocket_Version="13", Sec_WebSocket_Key="x" * 22 + "==")
    assert status == 426 and "HTTP" in json.loads(body)["error"]["message"]


def test_models_are_listed_for_all_vendors(world):  # noqa: F811
    _, g = world(answer_any())
    status, body, _ = ask(g, "GET", "/v1/models?limit=20")
    model, = json.loads(body)["data"]
    assert status == 200 and model["id"] == "m" and model["object"] == model["type"] == "model" and json.loads(body)["has_more"] is False
    assert json.loads(ask(g, "GET", "/v1/models/m")[1]) == model
    assert ask(g, "GET", "/models")[0] == 200
    gemini, = json.loads(ask(g, "GET", "/v1beta/models?pageSize=50")[1])["models"]
    assert gemini["name"] == "models/m" and "streamGenerateContent" in gemini["supportedGenerationMethods"]
    assert json.loads(ask(g, "GET", "/v1beta/models/m")[1]) == gemini
    assert ask(g, "GET", "/v1/models/free-*")[0] == 404


def test_requests_that_cost_nothing_are_limited(world):  # noqa: F811
    """Each is refused in the form of its vendor. The control is a call that costs something, which is not."""
    _, g = world(lambda r: whole({"input_tokens": 1}) if "count" in r.path else answer_any()(r))
    assert 240 <= sum(ask(g, "GET", "/v1/models")[0] == 200 for _ in range(400)) < 400

    def refused(method, path, **fields):
        """One request may be answered meanwhile."""
        for _ in range(50):
            status, body, answer = ask(g, method, path, **fields) if method != "POST" else g.post(path, {"model": "m", "messages": [], "contents": []})
            if status == 429:
                assert answer.headers["Retry-After"] == "1"
                return json.loads(body) if body else None
        raise AssertionError((path, status))

    assert refused("GET", "/v1/models")["error"]["code"] == "rate_limit_exceeded"
    assert refused("GET", "/codex/models")["error"]["code"] == "rate_limit_exceeded"
    assert refused("GET", "/v1/models", anthropic_version="2023-06-01")["error"]["type"] == "rate_limit_error"
    assert refused("GET", "/v1beta/models")["error"]["code"] == 429
    assert refused("POST", "/v1/messages/count_tokens")["type"] == "error"
    assert refused("POST", "/v1beta/models/m:countTokens")["error"]["code"] == 429
    assert refused("HEAD", "/api/hello") is None
    assert g.post(CHAT, BODY)[0] == 200
    end = clock() + 30
    while ask(g, "GET", "/v1/models")[0] != 200:
        assert clock() < end


def test_errors_have_the_shape_of_the_vendor(world):  # noqa: F811
    _, g = world(answer_any())
    status, body, _ = ask(g, "GET", "/v1/elsewhere", anthropic_version="2023-06-01")
    assert status == 404 and json.loads(body)["type"] == "error" and json.loads(body)["error"]["type"] == "not_found_error"
    status, body, _ = ask(g, "DELETE", "/v1/elsewhere")
    assert status == 404 and json.loads(body)["error"]["code"] == "model_not_found"
    status, body, _ = g.post("/messages", {})
    assert status == 400 and json.loads(body)["error"]["type"] == "invalid_request_error" and json.loads(body)["type"] == "error"


def test_usage_reaches_only_clients_that_asked(world):  # noqa: F811
    server, g = world(answer_any("hello"))
    asked = dict(BODY, stream=True, stream_options={"include_usage": True})
    plain = dict(BODY, stream=True, stream_options={"include_obfuscation": False})
    _, with_usage, _ = g.post(CHAT, asked)
    _, without, _ = g.post(CHAT, plain)
    records = chat_stream("hello")
    assert with_usage.decode() == "".join(records)
    assert without.decode() == "".join(records[:3] + records[4:]) and b"prompt_tokens" not in without
    assert server.requests[1].body["stream_options"] == {"include_obfuscation": False, "include_usage": True}
    assert g.end()["tokens"] == 20, "the usage is known in both cases"


def test_usage_beside_an_answer_is_not_removed(world):  # noqa: F811
    """Some servers send the usage with the last piece of the answer, or in another case of line ends."""
    record = {"id": "c", "choices": [{"index": 0, "delta": {"content": "all"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}
    records = [event(record).replace("\n", "\r\n"), ": ping\n\n", event({"choices": [], "usage": None}), event("[DONE]")]
    _, g = world(lambda _: stream(records))
    assert g.post(CHAT, dict(BODY, stream=True))[1].decode() == "".join(records)
    assert g.end()["tokens"] == 10


def test_fields_about_versions_and_betas_are_forwarded(world):  # noqa: F811
    server, g = world(answer_any())
    beta = ",".join(f"feature-{n}-2026-01-01" for n in range(60))
    g.post(MESSAGES, dict(BODY, max_tokens=9, stream=True), **{"anthropic-version": "2026-10-21", "anthropic-beta": beta, "x-api-key": "client"})
    got = server.requests[0].fields
    assert got["anthropic-version"] == "2026-10-21" and got["anthropic-beta"] == beta and got["x-api-key"] == "key-of-the-owner"
    g.post(CHAT, BODY, **{"OpenAI-Beta": "x=v1", "OpenAI-Organization": "of-the-client"})
    got = server.requests[1].fields
    assert got["openai-beta"] == "x=v1" and "openai-organization" not in got and "anthropic-version" not in got
    c = http.client.HTTPConnection("127.0.0.1", g.port, timeout=30)
    c.putrequest("POST", MESSAGES)
    text = json.dumps(dict(BODY, max_tokens=9, stream=True)).encode()
    for name, value in (("anthropic-beta", "a"), ("anthropic-beta", "b"), ("Content-Length", str(len(text)))):
        c.putheader(name, value)
    c.endheaders(text)
    assert c.getresponse().status == 200 and server.requests[2].fields["anthropic-beta"] == "a,b"
    status, body, _ = g.post(MESSAGES, BODY, **{"anthropic-beta": "x" * 5000})
    assert status == 400 and b"anthropic-beta" in body


def test_fields_of_the_answer_reach_the_client(world):  # noqa: F811
    _, g = world(lambda r: whole({"error": {"message": "slow down", "type": "rate_limit_error"}}, 429, request_id="req_1", retry_after="7",
                                 x_should_retry="true", set_cookie="a=b"))
    status, _, answer = g.post(CHAT, BODY)
    assert status == 429 and answer.getheader("retry-after") == "7" and answer.getheader("request-id") == "req_1"
    assert answer.getheader("x-should-retry") == "true" and answer.getheader("set-cookie") is None


def test_sdks_count_tokens_embed_and_list(world, packages):  # noqa: F811
    def answer(r):
        if r.path.endswith("count_tokens"):
            return whole({"input_tokens": 17})
        if r.path.endswith("embeddings"):
            return whole({"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}], "model": "m",
                          "usage": {"prompt_tokens": 12, "total_tokens": 12}})
        return whole(chat_answer())

    _, g = world(answer)
    script = packages / "routes.mjs"
    script.write_text("""
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
const base = process.argv[2];
const a = new Anthropic({ apiKey: "x", baseURL: base }), o = new OpenAI({ apiKey: "x", baseURL: base + "/v1" });
const out = { count: (await a.messages.countTokens({ model: "m", messages: [{ role: "user", content: "x" }] })).input_tokens };
out.embedding = (await o.embeddings.create({ model: "m", input: "x", encoding_format: "float" })).data[0].embedding;
out.openai = []; for await (const m of o.models.list()) out.openai.push(m.id);
out.anthropic = []; for await (const m of a.models.list()) out.anthropic.push(m.display_name);
console.log(JSON.stringify(out));
""")
    run = subprocess.run(["node", script, f"http://127.0.0.1:{g.port}"], env=dict(os.environ), capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == {"count": 17, "embedding": [0.5], "openai": ["m"], "anthropic": ["m"]}


def test_a_request_without_a_limit_stays_without(world):  # noqa: F811
    """Codex and Gemini send no limit, and an answer that reaches one counts as a failure for them."""
    server, g = world(answer_any(), tokens=100000)
    g.post(CHAT, BODY)
    assert server.requests[0].body == BODY
