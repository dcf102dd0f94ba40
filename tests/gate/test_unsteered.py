"""Where the kernel has no tproxy: the explicit proxy is the only way out, everything else fails at once, and the doctor says so."""
import json
import shutil
import subprocess

import pytest

from carrel import BUILD
from conftest import Gated
from tally import attack

PARTS = ("carrel-daemon", "carrel-guest", "carrel-sqlite", "carrel-postgres")


class Unsteered(Gated):
    """Its spawner is told by the kernel that there is no such thing as tproxy."""

    def __init__(self, ca, where):
        libexec = where / "libexec"
        libexec.mkdir()
        shutil.copy(BUILD / "carrel", where / "carrel")
        for part in PARTS:
            shutil.copy(BUILD / "libexec" / part, libexec / part)
        shutil.copy(BUILD / "libexec/carrel-spawn-weak", libexec / "carrel-spawn")
        self.program, self.cli = libexec / "carrel-daemon", where / "carrel"
        super().__init__(ca)

    def launch(self, env=()):
        return super().launch({"CARREL_WEAKEN": "tproxy", **dict(env)})


@pytest.fixture(scope="module")
def unsteered(servers, tmp_path_factory):
    d = Unsteered(servers.dir / "ca.pem", tmp_path_factory.mktemp("bin"))
    yield d
    d.stop()


@pytest.fixture
def box(unsteered, servers):
    return unsteered.machine(net=[{"target": f"http://ok.test:{servers.http}", "local": True}])


def curl(unsteered, box, *words):
    return unsteered.exec(box, ["curl", "-sS", "--max-time", "20", *words])


def test_the_proxy_leads_out_by_the_same_rules(unsteered, servers, box):
    proxy = ["-x", "http://127.0.0.1:3128"]
    assert json.loads(curl(unsteered, box, *proxy, f"http://ok.test:{servers.http}/here")["stdout"])["path"] == "/here"
    assert unsteered.notes(box, verb="net.allow")[-1]["detail"]["host"] == "ok.test"
    assert ": no rule allows the request; " in curl(unsteered, box, *proxy, f"http://other.test:{servers.http}/")["stdout"]
    note = unsteered.notes(box, verb="net.deny")[-1]
    assert (note["detail"]["host"], note["detail"]["port"], note["reason"]) == ("other.test", servers.http, "no rule allows the request")
    attack()


@pytest.mark.parametrize("kind", ["STREAM", "DGRAM"])
def test_nothing_else_does(unsteered, servers, box, kind):
    """Also not to where a rule would allow it; in the call itself, and the journal counts it."""
    script = f"""import errno, socket, time
for host in ("ok.test", "203.0.113.7"):
    began = time.monotonic()
    s = socket.socket(socket.AF_INET, socket.SOCK_{kind})
    try: s.connect((host, {servers.http})); print("reached")
    except OSError as e: print(errno.errorcode[e.errno], time.monotonic() - began < 1)
"""
    assert unsteered.python(box, script)["stdout"].split() == ["ENETUNREACH", "True"] * 2
    unsteered.delete(f"/v1/machines/{box}")
    notes = unsteered.notes(box)  # one, or one for each on a busy host
    assert {(n["verb"], n["reason"], n["detail"]["protocol"]) for n in notes} == {("net.refused", "no route to this address", "ipv4")}
    assert sum(n["detail"]["packets"] for n in notes) == notes[-1]["detail"]["total"] == 2
    attack(2)


def test_the_doctor_says_so(unsteered, box):
    done = subprocess.run([unsteered.cli, "doctor", "--json"], env=unsteered.env, capture_output=True, text=True, timeout=60)
    row = next(r for r in json.loads(done.stdout)["checks"] if r["name"] == "network")
    assert row["verdict"] == "less" and "no nf_tables tproxy" in str(row) and "127.0.0.1:3128" in str(row), row
