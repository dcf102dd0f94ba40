"""Image operations that run at the same time: how many, and that each ends with its client."""
import contextlib
import json

import pytest

from daemon import Refused
from test_layers import Held, put, snap
from trees import archive, entry

OWNER_MAX, HOST_MAX = 8, 32


def stall(client, name):
    """An import whose archive never comes."""
    c = client.connect()
    c.putrequest("POST", f"/v1/images?name={name}")
    c.putheader("Content-Length", "100000")
    for field in client.headers.items():
        c.putheader(*field)
    c.endheaders()
    return c


@contextlib.contextmanager
def stalled_imports(daemon, count):
    """Imports whose archives never come."""
    made = [stall(daemon, f"stalled{i}") for i in range(count)]
    daemon.until(lambda: len(staged(daemon)) == count)
    yield made
    for c in made:
        c.close()


def staged(daemon):
    """Directories of images that are not complete."""
    return [p.name for p in (daemon.home / "images").iterdir() if p.name.startswith("n-")]


def test_image_operations_of_an_owner_are_limited(daemon, small, rootfs):
    m = daemon.machine(image="small")
    with stalled_imports(daemon, OWNER_MAX) as made:
        for one_more in (lambda: snap(daemon, m, "made"), lambda: put(daemon, rootfs.read_bytes(), name="other"),
                         lambda: daemon.request("GET", "/v1/images/small/archive", raw=True, form="tar")):
            with pytest.raises(Refused) as refused:
                one_more()
            assert refused.value.status == 409 and refused.value.code == "busy", refused.value
            assert "image operations in progress (at most 8)" in refused.value.error["message"]
        made.pop().close()
        daemon.until(lambda: len(staged(daemon)) == OWNER_MAX - 1)
        assert snap(daemon, m, "made")["name"] == "made"
    daemon.until(lambda: staged(daemon) == [])


def test_image_operations_of_a_host_are_limited(fresh):
    daemon = fresh("--listen", "127.0.0.1:0")
    owners = [daemon.tcp(owner=f"o{i}", scopes=["read", "run"]) for i in range(HOST_MAX // OWNER_MAX)]
    other = daemon.tcp(owner="other", scopes=["read", "run"])
    made = [stall(o, f"stalled{i}") for o in owners for i in range(OWNER_MAX)]
    daemon.until(lambda: len(staged(daemon)) == HOST_MAX)
    with pytest.raises(Refused) as refused:
        put(other, archive(entry("f", b"x")), name="more")
    assert refused.value.code == "busy" and "this host has 32 image operations in progress (at most 32)" in refused.value.error["message"]
    for c in made:
        c.close()
    daemon.until(lambda: staged(daemon) == [])
    assert put(other, archive(entry("f", b"x")), name="more")["name"] == "more", "the control"


@pytest.mark.parametrize("step", [None, "then"])
def test_snapshot_of_a_machine_ends_when_its_client_disconnects(rootfs, tmp_path, step):
    held = Held(tmp_path, rootfs)
    d = held.d
    try:
        m = d.machine(image="base")
        d.post(f"/v1/machines/{m}/steps", {"name": "then"})
        held.hold.touch()
        c = d.connect()
        c.request("POST", f"/v1/machines/{m}/image", body=json.dumps({"name": "made", **({"step": step} if step else {})}))
        d.until(held.began.exists)
        assert len(staged(d)) == 1
        c.close()
        d.until(lambda: staged(d) == [])
        assert held.hold.exists(), "the worker was not allowed to go on"
        assert [i["name"] for i in d.get("/v1/images")["images"]] == ["base"]
        assert b"the image was cancelled before it was complete" in d.get("/v1/audit")
        held.hold.unlink()
        assert snap(d, m, "made")["name"] == "made", "the machine and its layers are as before"
    finally:
        held.hold.unlink(missing_ok=True)
        d.stop()
