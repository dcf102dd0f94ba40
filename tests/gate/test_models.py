"""Models for those inside a machine, at http://models.carrel: the vendors' clients, the policy, the budget."""
import json
import pathlib
import re
import shutil
import subprocess

import pytest

import cells
from carrel import BUILD, PROGRAM
from daemon import Daemon, Refused
from kinds import PROXY

TOP = pathlib.Path(__file__).resolve().parents[2]
MODELS = BUILD / "tests/model"
KEY = "the-key-of-the-owner-7421"
FORMATS = ["anthropic", "chat", "responses"]
STORY = [
    {"turn": 0, "say": "I look. é ✓", "calls": [{"tool": "exec", "arguments": {"cmd": "ls"}}], "usage": {"in": 10, "out": 33}},
    {"turn": 1, "after": "ran exec", "say": "Done.", "usage": {"in": 10, "out": 55}},
]
CONF = """[models]
provider = a format=anthropic url=http://127.0.0.1:{port} key_env=OWNER_KEY
provider = c format=chat url=http://127.0.0.1:{port}/v1 key_env=OWNER_KEY
provider = r format=responses url=http://127.0.0.1:{port}/v1 key_env=OWNER_KEY
provider = s format=chat url=http://127.0.0.1:{port}/v1 key_secret=PROVIDER_KEY
model = m in=3 out=15 window=20000
owner_tokens = 1000000
"""
CHAT = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]}


class WithModels(Daemon):
    def __init__(self, port):
        self.key = {"OWNER_KEY": KEY}
        super().__init__("--listen", "127.0.0.1:0", conf=CONF.format(port=port))

    def start(self, env=()):
        super().start({**dict(env), **self.key})

    def ask(self, box, body=None, url="http://models.carrel/v1/chat/completions"):
        """Status and body of a request from inside."""
        done = self.exec(box, ["curl", "-sS", "--max-time", "30", "-w", "\\n%{http_code}", "-H", "Content-Type: application/json",
                               "-H", "Authorization: Bearer what-the-machine-thinks", "-d", json.dumps(body or CHAT), url])
        assert done["exec"]["status"] == 0, done
        text, status = done["stdout"].rsplit("\n", 1)
        return int(status), text

    def carrel(self, *words):
        return subprocess.run([PROGRAM, *words], env=self.env, capture_output=True, text=True, timeout=100)

    def notes(self, machine, verb):
        text = self.request("GET", "/v1/audit", raw=True, machine=machine, verb=verb).decode()
        return [n for n in map(json.loads, text.splitlines()) if n["kind"] == "note"]

    def spent(self, box):
        return self.get(f"/v1/machines/{box}/stats")["models"]


@pytest.fixture(scope="module")
def provider(tmp_path_factory):
    script = tmp_path_factory.mktemp("provider") / "script.json"
    script.write_text(json.dumps({"turns": STORY}))
    server = subprocess.Popen([MODELS / "rehearsal-server", script, KEY], stdout=subprocess.PIPE, text=True)
    yield int(server.stdout.readline())
    server.terminate()
    server.wait(20)
    server.stdout.close()


@pytest.fixture(scope="module")
def module_daemon(provider):
    d = WithModels(provider)
    yield d
    d.stop()


@pytest.fixture
def daemon(module_daemon):
    yield module_daemon
    module_daemon.clear()


def test_nothing_without_a_grant(daemon):
    box = daemon.machine()
    status, text = daemon.ask(box)
    assert status == 403 and f"carrel net {box} allow models.carrel" in text
    assert daemon.notes(box, "net.deny")[0]["detail"]["host"] == "models.carrel"
    assert daemon.notes(box, "model") == []
    # The same request passes once the owner has allowed it.
    daemon.post(f"/v1/machines/{box}/net/rules", {"target": "http://models.carrel"})
    assert daemon.ask(box)[0] == 200
    daemon.delete(f"/v1/machines/{box}/net/rules/1")
    assert daemon.ask(box)[0] == 403


def test_a_call_is_counted_and_written_down(daemon):
    box = daemon.machine(models={"tokens": 50000, "money": 1.5})
    status, text = daemon.ask(box)
    assert status == 200 and "I look." in json.loads(text)["choices"][0]["message"]["content"]
    spent = daemon.spent(box)
    assert (spent["calls"], spent["tokens"], spent["money"], spent["held_tokens"]) == (1, 43, 0.000525, 0)
    assert (spent["tokens_left"], spent["money_left"]) == (49957, 1.499475)
    note, = daemon.notes(box, "model.call")
    assert {k: note["detail"][k] for k in ("provider", "model", "status", "in", "out", "tokens", "micro", "exact")} == {
        "provider": "c", "model": "m", "status": 200, "in": 10, "out": 33, "tokens": 43, "micro": 525, "exact": True}
    crossing = daemon.notes(box, "net.allow")[0]["detail"]
    assert (crossing["host"], crossing["method"], crossing["path"]) == ("models.carrel", "POST", "/v1/chat/completions")
    metrics = daemon.request("GET", "/metrics", raw=True).decode()
    assert 'carrel_model_tokens_total{way="out"} ' in metrics and 'carrel_model_calls_total{outcome="made"} ' in metrics


def test_the_cost_of_calls_is_listed_by_day_model_and_machine(daemon):
    box = daemon.machine(models={"money": 1.5})
    before = {row["model"]: row for row in daemon.get("/v1/models/usage?by=model")["usage"]}
    assert daemon.ask(box)[0] == 200
    mine = [row for row in daemon.get("/v1/models/usage?by=machine")["usage"] if row["machine"] == box]
    assert [(row["calls"], row["tokens"], row["in"], row["out"], row["money"]) for row in mine] == [(1, 43, 10, 33, 0.000525)]
    after = {row["model"]: row for row in daemon.get("/v1/models/usage?by=model")["usage"]}
    assert after["m"]["calls"] == before.get("m", {"calls": 0})["calls"] + 1
    days = daemon.get("/v1/models/usage")["usage"]
    assert sum(row["tokens"] for row in days) == sum(row["tokens"] for row in after.values())
    assert daemon.get("/v1/models/usage?days=1")["currency"] == daemon.get("/v1/models")["currency"]


def test_the_cost_of_all_owners_is_listed_for_an_admin_only(daemon):
    """An admin may see what belongs to others; an owner sees its own row."""
    far = daemon.tcp(owner="far", scopes=["read", "run", "admin"])
    plain = daemon.tcp(owner="far", scopes=["read", "run"])
    box = far.machine(models={"money": 1.5})
    assert daemon.ask(box)[0] == 200
    assert daemon.ask(daemon.machine(models={"money": 1.5}))[0] == 200
    rows = {row["owner"]: row for row in daemon.get("/v1/models/usage?by=owner")["usage"]}
    assert len(rows) == 2 and (rows["far"]["calls"], rows["far"]["tokens"], rows["far"]["money"]) == (1, 43, 0.000525)
    assert {row["owner"] for row in far.get("/v1/models/usage?by=owner")["usage"]} == set(rows)
    assert [row["owner"] for row in plain.get("/v1/models/usage?by=owner")["usage"]] == ["far"]
    assert sum(row["tokens"] for row in plain.get("/v1/models/usage?by=machine")["usage"]) == 43
    table = daemon.carrel("models", "usage", "--by", "owner").stdout
    assert table.startswith("OWNER") and "\nfar " in table


@pytest.mark.parametrize("query,why", [("by=year", "usage cannot be listed by 'year'"), ("days=0", "days"), ("days=401", "days")])
def test_wrong_questions_about_usage_are_refused(daemon, query, why):
    with pytest.raises(Exception, match=why):
        daemon.get(f"/v1/models/usage?{query}")


def test_models_are_listed_without_keys(daemon):
    said = daemon.get("/v1/models")
    providers = {row["name"]: row for row in said["providers"]}
    assert providers["c"]["format"] == "chat" and providers["c"]["ready"] is True
    assert {"anthropic", "openai", "openai-responses", "google"} <= set(providers)
    assert KEY not in json.dumps(said)
    assert all(row["ready"] or row["missing"] for row in said["providers"])


def test_the_key_never_enters(daemon):
    box = daemon.machine(models={"allow": True})
    daemon.ask(box)
    done = daemon.exec(box, "env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; grep -a -rs the-key-of-the-owner /etc /run /tmp /home /root /var", user="root")
    assert "the-key-of-the-owner" not in done["stdout"] + done["stderr"]
    for path in daemon.home.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path


@pytest.mark.parametrize("limit,what", [({"tokens": 100}, "tokens"), ({"money": 0.001}, "money")])
def test_a_budget_is_hard(daemon, limit, what):
    box = daemon.machine(models=limit)
    status, text = daemon.ask(box)
    assert status == 402 and "this call may take" in text and f"carrel models raise {box} --{what} " in text
    note, = daemon.notes(box, "model.refuse")
    assert "budget" in note["reason"] and note["detail"]["tokens"] == 0
    assert daemon.spent(box)["calls"] == 0


def test_a_budget_is_changed_while_it_runs(daemon):
    box = daemon.machine(models={"tokens": 100})
    assert daemon.ask(box)[0] == 402
    daemon.patch(f"/v1/machines/{box}", {"models": {"tokens": 4000}})
    assert daemon.ask(box)[0] == 200 and daemon.spent(box)["tokens_left"] == 4000 - 43
    daemon.patch(f"/v1/machines/{box}", {"models": {"tokens": 10}})
    assert daemon.ask(box)[0] == 402
    token = daemon.post("/v1/tokens", {"scopes": ["read", "run"]})["secret"]
    with pytest.raises(Refused) as refused:
        daemon.request("PATCH", f"/v1/machines/{box}", {"models": {"tokens": 99999}}, headers={"Authorization": "Bearer " + token}.items())
    assert refused.value.code == "denied"
    with pytest.raises(Refused) as refused:
        daemon.patch(f"/v1/machines/{box}", {"models": {"allow": True}})
    assert "carrel net" in refused.value.error["remedy"]


def test_the_command_of_a_refusal_helps(daemon):
    box = daemon.machine(models={"money": 0.001})
    status, text = daemon.ask(box)
    words = re.search(r"(carrel models raise \S+ --money [0-9.]+)", text)[1].split()
    assert status == 402 and words[3] == box
    done = daemon.carrel(*words[1:])
    assert done.returncode == 0 and f"changed the model budget of machine '{box}'" in done.stderr, done
    assert daemon.ask(box)[0] == 200
    shown = daemon.carrel("models", "show", box, "--json")
    assert json.loads(shown.stdout)["money"] == 0.000525
    for wrong, why in ((["raise", box], "requires --money"), (["raise"], "takes 1 argument"), (["raise", box, "--money", "x"], "--money x")):
        done = daemon.carrel("models", *wrong)
        assert done.returncode != 0 and why in done.stderr, done


def test_lowered_calls_are_told(daemon):
    box = daemon.machine(models={"tokens": 2000})
    status, _ = daemon.ask(box, dict(CHAT, max_tokens=128000))
    assert status == 200
    note, = daemon.notes(box, "model.call")
    assert 1900 < note["detail"]["lowered_to"] < 2000
    events = daemon.request("GET", "/v1/events", raw=True, follow=0, machine=box).decode()
    assert events.count("event: model.lowered\n") == 1


def test_clients_find_the_models_by_their_environment(daemon):
    names = "ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN", "OPENAI_BASE_URL", "OPENAI_API_KEY", "GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY"

    def env(box, **more):
        said = dict(line.split("=", 1) for line in daemon.exec(box, ["env"], **more)["stdout"].splitlines() if "=" in line)
        return [said.get(n) for n in names]

    box = daemon.machine(models={"allow": True})
    urls = "http://models.carrel", "http://models.carrel/v1"
    assert env(box) == [urls[0], "carrel-placeholder", urls[1], "carrel-placeholder", urls[0], "carrel-placeholder"]
    assert env(box, env={"OPENAI_API_KEY": "mine"})[3] == "mine"
    done = daemon.exec(box, 'curl -sS -H "Authorization: Bearer $OPENAI_API_KEY" $OPENAI_BASE_URL/models; curl -sS $ANTHROPIC_BASE_URL/v1/models')
    assert done["stdout"].count('"id":"m"') == 2
    # A machine that may not call models has none of them, whatever else it may reach.
    other = daemon.machine(net=[{"target": "*"}])
    assert env(other) == [None] * 6
    daemon.post(f"/v1/machines/{other}/net/rules", {"target": "http://models.carrel"})
    assert env(other)[0] == urls[0]
    daemon.post(f"/v1/machines/{other}/net/rules", {"target": "http://models.carrel", "action": "deny"})
    assert env(other) == [None] * 6


def test_probes_of_agents_are_answered_inside(daemon):
    box = daemon.machine(models={"allow": True})
    head = daemon.exec(box, ["curl", "-sSI", "http://models.carrel/api/hello"])["stdout"]
    assert head.startswith("HTTP/1.1 200"), head
    done = daemon.exec(box, ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-H", "Connection: Upgrade", "-H", "Upgrade: websocket",
                             "-H", "Sec-WebSocket-Version: 13", "-H", "Sec-WebSocket-Key: eHh4eHh4eHh4eHh4eHh4eA==", "http://models.carrel/v1/responses"])
    assert done["stdout"] == "426", done


def test_a_fork_shares_what_is_left(daemon):
    box = daemon.machine(models={"tokens": 4000})
    first, second = [m["id"] for m in daemon.post(f"/v1/machines/{box}/fork", {"count": 2})["machines"]]
    third = daemon.post(f"/v1/machines/{first}/fork", {})["machines"][0]["id"]
    for m in (box, first, second, third):
        assert daemon.spent(m)["tokens_left"] == 4000
    for n, m in enumerate((third, first, box), 1):
        assert daemon.ask(m)[0] == 200
        assert {daemon.spent(x)["tokens_left"] for x in (box, first, second, third)} == {4000 - 43 * n}
    # Spend on until the estimate of a call no longer fits: then it fits for none of them.
    left = 4000 - 43 * 3
    while daemon.ask(second)[0] == 200:
        left -= 43
    assert daemon.spent(box)["tokens_left"] == left
    assert [daemon.ask(m)[0] for m in (box, first, third)] == [402] * 3


def test_an_account_outlives_the_daemon(daemon):
    box = daemon.machine(models={"tokens": 50000})
    assert daemon.ask(box)[0] == 200
    daemon.restart()
    daemon.until(lambda: daemon.get(f"/v1/machines/{box}/net")["listening"])
    assert daemon.spent(box)["tokens"] == 43
    assert daemon.ask(box)[0] == 200
    assert daemon.spent(box)["tokens_left"] == 50000 - 86


def test_a_key_may_be_a_secret(daemon):
    box = daemon.machine(models={"allow": True})
    status, text = daemon.ask(box, dict(CHAT, model="s/m"))
    assert status == 403 and "carrel secret set PROVIDER_KEY" in text
    daemon.put("/v1/secrets/PROVIDER_KEY", {"value": KEY})
    assert daemon.ask(box, dict(CHAT, model="s/m"))[0] == 200
    daemon.put("/v1/secrets/PROVIDER_KEY", {"value": "another value"})
    status, text = daemon.ask(box, dict(CHAT, model="s/m"))
    assert status == 403 and "rejected the key that the owner of this machine set" in text
    daemon.delete("/v1/secrets/PROVIDER_KEY")
    assert daemon.ask(box, dict(CHAT, model="s/m"))[0] == 403


def test_it_may_ask_first(daemon):
    box = daemon.machine(net=[{"target": "http://models.carrel", "action": "ask"}])
    x = daemon.background(box, ["curl", "-sS", "-d", json.dumps(CHAT), "http://models.carrel/v1/chat/completions"])
    item = daemon.until(lambda: [p for p in daemon.get("/v1/pending")["pending"] if p["machine"] == box])[0]
    assert item["path"] == "/v1/chat/completions"
    daemon.post(f"/v1/pending/{item['id']}", {"decision": "approve"})
    assert daemon.wait(box, x, 60)["status"] == 0
    assert daemon.spent(box)["calls"] == 1


def test_through_the_proxy_and_inside_tls(daemon):
    box = daemon.machine(net=[{"target": "models.carrel"}])
    done = daemon.exec(box, ["curl", "-sS", "-x", f"http://{PROXY}:3128", "http://models.carrel/v1/models"])
    assert json.loads(done["stdout"])["data"][0]["id"] == "m"
    done = daemon.exec(box, ["curl", "-sS", "https://models.carrel/v1/models"])
    assert json.loads(done["stdout"])["data"][0]["id"] == "m"


def test_nobody_else_is_called_so(daemon):
    """The name leads here even if its owner allows everything: it is never looked up."""
    box = daemon.machine(net=[{"target": "*"}])
    assert daemon.exec(box, ["curl", "-sS", "http://models.carrel/v1/models"])["stdout"].startswith('{"object":"list"')


def test_a_token_cannot_grant_itself_models(daemon):
    d = daemon.post("/v1/tokens", {"scopes": ["read", "run"]})
    with pytest.raises(Refused) as e:
        daemon.request("POST", "/v1/machines", {"models": {"allow": True}}, headers={"Authorization": "Bearer " + d["secret"]}.items())
    assert e.value.status == 403


def test_streams_pass_as_they_come(daemon):
    box = daemon.machine(models={"allow": True})
    status, text = daemon.ask(box, dict(CHAT, stream=True))
    assert status == 200 and text.count("data:") > 3 and "[DONE]" in text
    assert daemon.spent(box)["tokens"] == 43


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """The vendors' clients, below the build folder and never a part of the project."""
    where = MODELS / "npm"
    if not shutil.which("npm") or not shutil.which("node"):
        pytest.skip("npm and node are not installed")
    if not (where / "node_modules/openai").is_dir() or not (where / "node_modules/@anthropic-ai/sdk").is_dir():
        where.mkdir(parents=True, exist_ok=True)
        (where / "package.json").write_text('{"private": true}\n')
        try:
            got = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--fetch-retries=1", "--fetch-timeout=20000",
                                  "openai@6", "@anthropic-ai/sdk"], cwd=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 timeout=90, text=True)
        except subprocess.TimeoutExpired:
            pytest.skip("npm did not answer within 90 s")
        if got.returncode:
            pytest.skip("npm could not fetch openai and @anthropic-ai/sdk: " + got.stdout.strip().splitlines()[-1][:200])
    shutil.copy(TOP / "tests/model/sdk.mjs", where / "sdk.mjs")
    packed = tmp_path_factory.mktemp("sdk") / "sdk.tar"
    subprocess.run(["tar", "-cf", packed, "-C", where, "."], check=True)
    return packed.read_bytes()


@pytest.mark.parametrize("form", FORMATS)
def test_the_vendors_clients_work_unchanged_inside(daemon, packages, form):
    box = daemon.machine(models={"money": 1})
    daemon.exec(box, "mkdir sdk")
    daemon.put(f"/v1/machines/{box}/files/tar", packages, path="/home/user/sdk")
    done = daemon.exec(box, ["node", "/home/user/sdk/sdk.mjs", form, "http://models.carrel"], env={"KEY": "anything"}, timeout=60)
    assert done["exec"]["status"] == 0, done
    seen = json.loads(done["stdout"])
    assert "error" not in seen and [t["text"] for t in seen["turns"]] == ["I look. é ✓", "Done."], seen
    assert (daemon.spent(box)["calls"], daemon.spent(box)["tokens"]) == (2, 108)


def test_program_of_a_cell_asks_a_model_within_its_budget(daemon):
    daemon.request("POST", "/v1/images", cells.image(), name="programs")
    make = lambda **fields: daemon.machine(kind="cell", image="programs", **fields)

    def ask(machine, body=CHAT):
        done = daemon.exec(machine, ["model"], stdin=json.dumps(body))
        assert done["exec"]["status"] == 0, done
        return -int(done["stdout"][0]), done["stdout"][1:]
    m = make(allow="model", models={"tokens": 50000})
    code, text = ask(m)
    assert code == 0 and "I look." in json.loads(text)["choices"][0]["message"]["content"]
    assert daemon.spent(m)["tokens"] == 43
    assert daemon.notes(m, "model.call")[0]["detail"]["tokens"] == 43
    code, text = ask(make(allow="model"))  # the capability alone does not reach a model
    assert code == -5 and text.startswith("status 403: "), text
    code, text = ask(make(allow="model", models={"tokens": 1}))
    assert code == -5 and text.startswith("status 4"), text
