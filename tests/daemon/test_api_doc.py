"""docs/reference/api.md is what the table of routes says, and every curl line in it works."""
import io
import json
import pathlib
import re
import subprocess
import tarfile

import pytest

from carrel import BUILD, TOP

PAGE = (TOP / "docs/reference/api.md").read_text()
EXAMPLES = re.findall(r"^## ([A-Z]+ /\S+)\n.*?^Answer: (\d+),.*?^```sh\n(curl .*?)\n```", PAGE, re.M | re.S)


def test_the_page_is_printed_from_the_table():
    now = subprocess.run([BUILD / "tests/daemon/api-doc"], stdout=subprocess.PIPE, check=True).stdout.decode()
    assert PAGE == now, "run: build/tests/daemon/api-doc >docs/reference/api.md"


def test_the_sdks_have_the_types_of_the_document():
    done = subprocess.run([TOP / "sdk/generate", "--check", BUILD], stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr.decode()


def test_every_route_has_an_example(daemon):
    document = daemon.get("/v1/openapi.json")
    routes = {f"{method.upper()} {path}" for path, item in document["paths"].items() for method in item}
    assert routes == {route for route, _, _ in EXAMPLES}


def command_for(daemon, machine, route):
    """A command that the example can be about."""
    if route.endswith("/stdin"):
        return daemon.background(machine, "cat", stdin_open=True)
    if route.endswith("/resize"):
        return daemon.background(machine, "sleep 100", terminal=True)
    if route.endswith("/signal") or route.startswith("DELETE"):
        return daemon.background(machine, "sleep 100")
    x = daemon.background(machine, "echo hello")
    daemon.wait(machine, x)
    return x


def make_tar(path):
    with tarfile.open(path, "w") as tar:
        entry = tarfile.TarInfo("packed")
        entry.size = 5
        tar.addfile(entry, io.BytesIO(b"hello"))


def a_run(daemon, turn, state):
    run = daemon.post("/v1/runs", {"task": "t", "model": "rehearsal/r", "script": json.dumps({"turns": [turn]})})["id"]
    daemon.until(lambda: daemon.get(f"/v1/runs/{run}")["state"] == state)
    return run


def prepare_volumes(daemon, line):
    for v in sorted(daemon.get("/v1/volumes")["volumes"], key=lambda v: -len(v["name"])):
        daemon.delete("/v1/volumes/" + v["name"])
    if "/volumes/data" in line:
        daemon.post("/v1/volumes", {"name": "data", "size": "16M"})
    if "data@good" in line:
        daemon.post("/v1/volumes/data/snapshots", {"name": "good"})


def prepare(daemon, route, line, where):
    names = {"URL": "http://carrel", "S": daemon.socket, "PATH": "/usr/bin:/bin"}
    if "$M" in line:
        names["M"] = daemon.machine()
        daemon.exec(names["M"], "mkdir -p a old && echo hello >note && echo hello >a/note")
        daemon.until(lambda: daemon.get(f"/v1/machines/{names['M']}/steps")["steps"])
    if "$I" in line or route.endswith("/image") or "/builds" in route:
        names["I"] = "small"
        make_tar(where / "small.tar")
        daemon.request("POST", "/v1/images", (where / "small.tar").read_bytes(), name="small")
    if "$B" in line:  # one that waits for its files
        copy = {"what": "copy", "make": True, "archive": 0, "to": "/x", "as_file": True, "key": "1"}
        names["B"] = daemon.post("/v1/images/builds", {"base": "small", "steps": [copy]})["id"]
    if "/backups" in route:
        make_tar(where / "small.tar")
        daemon.request("POST", "/v1/images", (where / "small.tar").read_bytes(), name="small")
    if route.endswith("/image") or "/backups" in route:
        names["M"] = daemon.machine(image="small")
    if "$K" in line or route.endswith("/backups/prune"):
        names["K"] = daemon.post(f"/v1/machines/{names['M']}/backups")["id"]
    if "/net/rules/" in line:
        daemon.post(f"/v1/machines/{names['M']}/net/rules", {"target": "example.com"})
    if "/secrets" in line or "/grants" in line:
        daemon.put("/v1/secrets/API_KEY", {"value": "some value of it"})
    if "/volumes" in line:
        prepare_volumes(daemon, line)
    if "$TIMER" in line:
        names["TIMER"] = daemon.post(f"/v1/machines/{names['M']}/timers", {"argv": ["true"], "every": "1d"})["id"]
    if "$G" in line:
        names["G"] = daemon.grant(names["M"], "secret", "API_KEY", at="api.example.com")
    if "$DB" in line:
        names["DB"] = daemon.grant_database(names["M"], where / "shop.db")
    if "/exposures/" in line:
        daemon.post(f"/v1/machines/{names['M']}/exposures", {"port": 8000})
    if "$P" in line:
        names["P"] = daemon.held(daemon.machine())
    if "$X" in line:
        names["X"] = command_for(daemon, names["M"], route)
    if "$T" in line:
        names["T"] = daemon.post("/v1/tokens", {"note": "example"})["id"]
    if "$CDB" in line:
        box = daemon.machine()
        daemon.grant_database(box, where / "shop.db")
        names["CDB"] = daemon.post(f"/v1/machines/{box}/changesets", {"path": "/home/user/shop.db"})["id"]
    elif "$C" in line:
        names["C"] = daemon.post(f"/v1/machines/{daemon.machine()}/changesets", {"path": "/home/user"})["id"]
    if "$R" in line:  # one that was interrupted: its model has nothing to say
        names["R"] = a_run(daemon, {"turn": 99}, "interrupted")
    if "$ASKING" in line:
        names["ASKING"] = a_run(daemon, {"calls": [{"tool": "ask", "arguments": {"question": "Shall I?"}}]}, "waiting")
        names["Q"] = daemon.get(f"/v1/runs/{names['ASKING']}")["question"]["id"]
    if "$STRAY" in line:
        names["STRAY"] = daemon.stray()
    if "$TAR" in line:
        names["TAR"] = str(where / "some.tar")
        make_tar(names["TAR"])
        if "/backups" in route:
            backup = daemon.post(f"/v1/machines/{names['M']}/backups")["id"]
            pathlib.Path(names["TAR"]).write_bytes(daemon.request("GET", f"/v1/backups/{backup}/archive", raw=True))
    if "/forward/" in line:
        x = daemon.background(names["M"], "python3 -c 'import socket; s = socket.create_server((\"127.0.0.1\", 5432)); print(1, flush=True); s.accept()[0].recv(1)'")
        daemon.until(lambda: daemon.get(f"/v1/machines/{names['M']}/execs/{x}/output", raw=True))
    if "/desktop/watch" in line:
        daemon.post(f"/v1/machines/{names['M']}/desktop")
    if "/transfers/" in line:
        names["DOWNLOAD"], names["UPLOAD"] = (daemon.ticket(way) for way in ("download", "upload"))
    return names


@pytest.mark.parametrize("route,status,line", EXAMPLES, ids=[e[0] for e in EXAMPLES])
def test_the_example_works(daemon, tmp_path: pathlib.Path, route, status, line):
    if route in ("POST /v1/machines/{machine}/move", "GET /v1/machines/{machine}/serial"):
        pytest.skip("it boots a kernel, which not every host has: tests/vm sends it")
    names = prepare(daemon, route, line, tmp_path)
    script = 'curl() { command curl -sS --fail-with-body --unix-socket "$S" -w "%{stderr}<%{http_code}>" "$@"; }\n'
    done = subprocess.run(["bash", "-c", script + line], env=names, cwd=tmp_path, capture_output=True, timeout=30)
    expected = [0, 28] if "--max-time" in line else [0]  # 28: it would go on for ever
    assert done.returncode in expected, (line, done)
    assert f"<{status}>" in done.stderr.decode(), (line, done)
