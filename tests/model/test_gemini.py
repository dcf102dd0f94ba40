"""Gemini through the gateway: paths, usage, budgets and errors."""
import json
import os
import shutil
import subprocess

import pytest

from conftest import HERE
from scripted import event, stream, whole
from test_budget import world  # noqa: F401 (a fixture)

CONF = """[models]
provider = g format=gemini url=http://127.0.0.1:{port} key_env=OWNER_KEY
provider = other format=gemini url=http://127.0.0.1:{port} key_env=OWNER_KEY
alias = fast g/gemini-small
model = gemini-* in=1 out=10 cache_read=0.1
"""
BODY = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
PATH = "/v1beta/models/gemini-x:"
USAGE = {"promptTokenCount": 100, "cachedContentTokenCount": 60, "candidatesTokenCount": 20, "thoughtsTokenCount": 5, "totalTokenCount": 125}


def piece(text, finish=None, usage=None):
    candidate = {"index": 0, "content": {"role": "model", "parts": [{"text": text}]}}
    if finish:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], **({"usageMetadata": usage} if usage else {})}


def answer(r):
    if ":stream" in r.path:
        return stream([event(piece("a", usage={"promptTokenCount": 100, "candidatesTokenCount": 1})), event(piece("b", "STOP", USAGE))])
    if ":countTokens" in r.path:
        return whole({"totalTokens": 3})
    return whole(piece("ab", "STOP", USAGE))


def test_answers_whole_and_streamed_cost_what_is_reported(world):  # noqa: F811
    server, g = world(answer, conf=CONF, micro=10**9)
    status, body, _ = g.post(PATH + "generateContent", BODY, **{"x-goog-api-key": "of the client"})
    assert status == 200 and json.loads(body) == piece("ab", "STOP", USAGE)
    assert server.requests[0].path == PATH + "generateContent" and server.requests[0].body == BODY
    assert server.requests[0].fields["x-goog-api-key"] == "key-of-the-owner"
    status, body, _ = g.post(PATH + "streamGenerateContent?alt=sse", BODY)
    assert status == 200 and body.decode().count("data:") == 2
    assert server.requests[1].path == PATH + "streamGenerateContent?alt=sse"
    status, body, _ = g.post(PATH + "countTokens", BODY)
    assert status == 200 and json.loads(body) == {"totalTokens": 3}
    # 40 of input, 60 cached and 25 of output.
    assert g.end() == {"tokens": 250, "micro": 2 * (40 + 6 + 250), "held": 0, "calls": 2}


def test_names_of_models_in_the_path(world):  # noqa: F811
    server, g = world(answer, conf=CONF)
    for name, sent in (("fast", "gemini-small"), ("other/gemini-y", "gemini-y"), ("gemini-z", "gemini-z")):
        assert g.post(f"/v1beta/models/{name}:generateContent", BODY)[0] == 200
        assert server.requests[-1].path == f"/v1beta/models/{sent}:generateContent"
    for name in ("a%2Fb", "..", "x?y", "", "x" * 200, "g/../x"):
        assert g.post(f"/v1beta/models/{name}:generateContent", BODY)[0] in (400, 404), name
    assert len(server.requests) == 3


def test_refusals_have_the_shape_of_gemini(world):  # noqa: F811
    server, g = world(answer, conf=CONF, tokens=30)
    status, body, _ = g.post(PATH + "generateContent", dict(BODY, generationConfig={"maxOutputTokens": 500}))
    error = json.loads(body)["error"]
    assert status == error["code"] == 402 and error["status"] == "FAILED_PRECONDITION" and "carrel models raise m --tokens" in error["message"]
    for body, why in (({"contents": [], "generationConfig": {"candidateCount": 3}}, "one answer"), ([], "not a JSON object")):
        status, text, _ = g.post(PATH + "generateContent", body)
        assert status == 400 and why in json.loads(text)["error"]["message"]
    status, text, _ = g.post(PATH + "streamGenerateContent", BODY)
    assert status == 400 and "alt=sse" in json.loads(text)["error"]["message"]
    status, text, _ = g.post("/v1beta/elsewhere", BODY)
    assert status == 404 and json.loads(text)["error"]["status"] == "NOT_FOUND"
    assert not server.requests


def test_names_in_snake_case_have_the_same_limits(world):  # noqa: F811
    server, g = world(answer, conf=CONF, tokens=100_000)
    many = ({"generation_config": {"candidate_count": 3}}, {"generation_config": {"candidateCount": 3}}, {"generationConfig": {"candidate_count": 3}},
            {"n": 1, "generationConfig": {"candidateCount": 3}}, {"n": 3, "generationConfig": {"candidateCount": 1}})
    for more in many:
        status, text, _ = g.post(PATH + "generateContent", BODY | more)
        assert status == 400 and "one answer" in json.loads(text)["error"]["message"], more
    for more in ({"generation_config": {}, "generationConfig": {}}, {"generationConfig": {"maxOutputTokens": 5, "max_output_tokens": 10**6}}):
        status, text, _ = g.post(PATH + "generateContent", BODY | more)
        assert status == 400 and "both" in json.loads(text)["error"]["message"], more
    assert not server.requests
    assert g.post(PATH + "generateContent", BODY | {"generation_config": {"candidate_count": 1, "max_output_tokens": 50}})[0] == 200
    assert server.requests[0].body == BODY | {"generationConfig": {"candidateCount": 1, "maxOutputTokens": 50}}


def test_the_last_tokens_lower_a_limit_in_snake_case(world):  # noqa: F811
    server, g = world(answer, conf=CONF, tokens=2000)
    assert g.post(PATH + "generateContent", BODY | {"generation_config": {"max_output_tokens": 9000}})[0] == 200
    config = server.requests[0].body["generationConfig"]
    assert "generation_config" not in server.requests[0].body and list(config) == ["maxOutputTokens"] and 1900 < config["maxOutputTokens"] < 2000


def test_the_last_tokens_lower_the_limit_of_gemini(world):  # noqa: F811
    server, g = world(answer, conf=CONF, tokens=2000)
    status, _, answered = g.post(PATH + "generateContent", dict(BODY, generationConfig={"temperature": 0}))
    config = server.requests[0].body["generationConfig"]
    assert status == 200 and config["temperature"] == 0 and 1900 < config["maxOutputTokens"] < 2000
    assert answered.getheader("carrel-max-tokens") == str(config["maxOutputTokens"])


def test_a_stream_that_is_cut_costs_what_arrived(world):  # noqa: F811
    server, g = world(lambda _: stream([event(piece("y" * 4000, usage={"promptTokenCount": 100}))], cut=True), conf=CONF, micro=10**9)
    status, body, _ = g.post(PATH + "streamGenerateContent?alt=sse", BODY)
    last = json.loads(body.decode().strip().split("data: ")[-1])
    assert status == 200 and "cut off" in last["error"]["message"] and last["error"]["status"] == "INTERNAL"
    assert g.end()["tokens"] == 1100


SDK = "@google/genai@1"


@pytest.fixture(scope="module")
def package():
    """Google's client below the build folder, fetched once; never a part of the project."""
    where = HERE / "npm-google"
    if not shutil.which("npm") or not shutil.which("node"):
        pytest.skip("npm and node are not installed")
    if not (where / "node_modules/@google/genai").is_dir():
        where.mkdir(parents=True, exist_ok=True)
        (where / "package.json").write_text('{"private": true}\n')
        try:
            got = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--fetch-retries=1", "--fetch-timeout=20000", SDK],
                                 cwd=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=90, text=True)
        except subprocess.TimeoutExpired:
            pytest.skip("npm did not answer within 90 s")
        if got.returncode:
            pytest.skip(f"npm could not fetch {SDK}: " + got.stdout.strip().splitlines()[-1][:200])
    return where


def test_googles_client_works_unchanged(world, package):  # noqa: F811
    _, g = world(answer, conf=CONF)
    (package / "talk.mjs").write_text("""
import { GoogleGenAI } from "@google/genai";
const ai = new GoogleGenAI({ apiKey: "anything", httpOptions: { baseUrl: process.argv[2] } });
const out = { whole: (await ai.models.generateContent({ model: "gemini-x", contents: "hi" })).text, pieces: [] };
for await (const p of await ai.models.generateContentStream({ model: "gemini-x", contents: "hi" })) out.pieces.push(p.text);
out.count = (await ai.models.countTokens({ model: "gemini-x", contents: "hi" })).totalTokens;
try { await ai.models.generateContent({ model: "nobody/../x", contents: "hi" }); } catch (e) { out.status = e.status; }
console.log(JSON.stringify(out));
""")
    run = subprocess.run(["node", package / "talk.mjs", f"http://127.0.0.1:{g.port}"], env=dict(os.environ), capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) | {"status": 0} == {"whole": "ab", "pieces": ["a", "b"], "count": 3, "status": 0}
