"""Volumes of E2B's clients, on the wire and by their SDK: kept apart from others, and of one sandbox at a time."""
import os
import shutil
import subprocess

import pytest

import patience
from carrel import ROOTLESS
from e2b_client import E2b, machine_of, status_of
from test_npm import HERE, project  # noqa: F401

pytestmark = pytest.mark.skipif(ROOTLESS, reason="volumes need a daemon that runs as root")


@pytest.fixture
def daemon(server):
    yield server
    server.clear()
    for v in server.get("/v1/volumes")["volumes"]:
        server.delete("/v1/volumes/" + v["name"])


def make(e2b, name="data"):
    return e2b.call("POST", "/volumes", {"name": name}, 201)


def listed(e2b):
    return e2b.call("GET", "/volumes", status=200)


def test_files_in_a_volume_outlive_their_sandbox(e2b, daemon):
    volume = make(e2b)
    mounts = [{"name": "data", "path": "/mnt/data"}]
    one = e2b.create(volumeMounts=mounts)
    assert e2b.info(one)["volumeMounts"] == mounts
    assert status_of(e2b.create, volumeMounts=mounts) == 409
    assert status_of(e2b.call, "DELETE", "/volumes/" + volume["volumeID"]) == 409
    assert daemon.exec(machine_of(one), "id -un; echo kept >/mnt/data/file", user="user")["stdout"] == "user\n"
    e2b.kill(one)
    two = e2b.create(volumeMounts=mounts)
    assert daemon.exec(machine_of(two), "cat /mnt/data/file")["stdout"] == "kept\n"
    fork = e2b.post(two, "fork", {}, 201)[0]["sandbox"]
    assert e2b.info(fork)["volumeMounts"] == []
    e2b.kill(two)
    e2b.call("DELETE", "/volumes/" + volume["volumeID"], status=204)
    assert listed(e2b) == []


def test_clients_see_only_volumes_of_clients(e2b, daemon):
    daemon.post("/v1/volumes", {"name": "mine", "size": "16M"})
    volume = make(e2b)
    daemon.post("/v1/volumes/e2b.data/snapshots", {"name": "s"})
    assert listed(e2b) == [{"volumeID": volume["volumeID"], "name": "data"}]
    assert e2b.call("GET", "/volumes/" + volume["volumeID"], status=200) == volume
    other = E2b(e2b.url.geturl(), daemon.post("/v1/tokens", {"owner": "stranger"})["secret"])
    ids = {v["name"]: v["id"].replace("-", "", 1) for v in daemon.get("/v1/volumes")["volumes"]}
    assert ids["e2b.data"] == volume["volumeID"] and listed(other) == []
    for client, known in ((e2b, ids["mine"]), (e2b, ids["e2b.data@s"]), (other, ids["e2b.data"]), (e2b, "v0")):
        assert status_of(client.call, "GET", "/volumes/" + known) == status_of(client.call, "DELETE", "/volumes/" + known) == 404
    assert status_of(e2b.create, volumeMounts=[{"name": "mine", "path": "/m"}]) == 404
    assert len(daemon.get("/v1/volumes")["volumes"]) == 3
    daemon.delete("/v1/volumes/e2b.data@s")


def test_what_is_no_volume_is_refused(e2b, daemon):
    for name in ("", "a b", "a.b", "../x", "a@b", "x" * 61, 1, None):
        assert status_of(make, e2b, name) == 400, name
    make(e2b)
    assert status_of(make, e2b) == 409
    for mounts in ([{"name": "data"}], [{"name": "data", "path": "relative"}], [{"name": "a@b", "path": "/m"}], {"a": "b"},
                   ["data"], [{"name": "data", "path": "/m"}] * 17):
        assert status_of(e2b.create, volumeMounts=mounts) in (400, 429), mounts
    assert status_of(e2b.create, volumeMounts=[{"name": "none", "path": "/m"}]) == 404
    assert e2b.send("GET", "/volumecontent/v/file?path=x")[0] == 401
    assert daemon.machines() == []


def test_volumes_by_the_sdk(project, e2b, daemon):  # noqa: F811
    where, node = project
    url = e2b.url.geturl()
    env = {**os.environ, "E2B_API_KEY": e2b.key, "E2B_API_URL": url, "E2B_SANDBOX_URL": url, "E2B_VOLUME_API_URL": url}
    shutil.copy(HERE / "volumes.mjs", where)
    done = subprocess.run([node, "volumes.mjs"], cwd=where, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=100 * patience.PATIENCE)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stdout + done.stderr
