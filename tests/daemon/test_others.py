"""What one owner's client is told holds no id of another owner's machine: it would be a handle on it, and a count."""
import json

import pytest

from daemon import Daemon, Refused

FOREVER = ("/events", "/watch", "/pty")  # streams; events of others are test_events.py's


@pytest.fixture(scope="module")
def server():
    d = Daemon("--listen", "127.0.0.1:0")
    yield d
    d.stop()


def told(client, method, target, body=None):
    """Whatever is answered, as text."""
    try:
        return str(client.request(method, target, body, raw=True))
    except Refused as e:
        return json.dumps(e.args[1]) if isinstance(e.args[1], dict) else str(e.args[1])


def test_nobody_learns_the_machines_of_another_owner(server):
    ann, ben = server.tcp(owner="ann"), server.tcp(owner="ben")
    secret = ann.machine(name="same")
    step = ann.post(f"/v1/machines/{secret}/steps", {"name": "kept"})
    forks = [f["id"] for f in ann.post(f"/v1/machines/{secret}/fork", {})["machines"]]
    run = ann.exec(secret, "true")["exec"]["id"]
    mine = ben.machine(name="same")
    ids = [secret, *forks]
    said = []
    for path, methods in server.get("/v1/openapi.json")["paths"].items():
        if "get" not in methods or path.endswith(FOREVER):
            continue
        for given in (mine, secret, "same", run, step["id"]):
            target = path
            while "{" in target:
                target = target[:target.index("{")] + given + target[target.index("}") + 1:]
            text = told(ben, "GET", target)
            # Who asks by an id may hear it again; nobody may hear one that he did not say.
            said += [(target, text) for i in ids if i in text and i not in target]
            if "{" not in path:
                break
    for given in ("same", run, step["id"]):
        for method, target, body in (("POST", "/v1/machines", {"image": given}), ("POST", "/v1/machines", {"name": given}),
                                     ("POST", f"/v1/machines/{given}/fork", {}), ("DELETE", f"/v1/images/{given}", None),
                                     ("POST", f"/v1/machines/{mine}/rewind", {"to": given})):
            text = told(ben, method, target, body)
            said += [(target, text) for i in ids if i in text]
    assert said == []
    assert secret in told(ann, "GET", "/v1/machines"), "the control: its owner is told"
    server.clear()
