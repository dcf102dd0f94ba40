"""Boxes and cells: each verb has the same answer for both, and a cell refuses what it cannot do with `unsupported`."""
import io
import pathlib
import re
import tarfile

import pytest

import cells
from daemon import Refused

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/reference/cell-machines.md"
IMAGE = "kinds"


class Kind:
    """A machine of one kind, its directory for the test, and how a program in it writes "kept\\n" to a file there."""

    def __init__(self, daemon, kind):
        self.d, self.kind = daemon, kind
        self.dir = "/data" if kind == "cell" else "/home/user/data"
        if kind == "cell" and IMAGE not in [i["name"] for i in daemon.get("/v1/images")["images"]]:
            daemon.request("POST", "/v1/images", cells.image(), name=IMAGE)

    def make(self, **fields):
        self.m = self.d.machine(**({"kind": "cell", "image": IMAGE} if self.kind == "cell" else {}), **fields)
        self.at = f"/v1/machines/{self.m}"
        if self.kind == "box":
            self.post("files/mkdir", {"path": self.dir})
        return self

    def write(self, name):
        words = ["put", f"data/{name}"] if self.kind == "cell" else ["sh", "-c", f"echo kept >{self.dir}/{name}"]
        return self.d.exec(self.m, words)["exec"]

    def get(self, path="", /, **query):
        return self.d.get(f"{self.at}/{path}".rstrip("/"), **query)

    def post(self, path, body=None, /):
        return self.d.post(f"{self.at}/{path}", body)

    def put(self, name, content=b"x\n"):
        return self.d.put(f"{self.at}/files", content, path=f"{self.dir}/{name}")

    def names(self, machine=None):
        entries = self.d.get(f"/v1/machines/{machine or self.m}/files/list", path=self.dir)["entries"]
        return sorted(e["name"] for e in entries)

    def refusal(self, call, *args, **fields):
        with pytest.raises(Refused) as why:
            call(*args, **fields)
        return why.value.code


# ---- verbs: a function gives what the caller sees, and must give the same for both kinds ----

def files(k):
    k.make()
    k.put("one", b"1\n")
    k.post("files/mkdir", {"path": k.dir + "/dir"})
    k.post("files/move", {"from": k.dir + "/one", "to": k.dir + "/dir/two"})
    k.post("files/chmod", {"path": k.dir + "/dir/two", "mode": "640"})
    k.post("files/symlink", {"target": "dir/two", "path": k.dir + "/link"})
    stat = k.get("files/stat", path=k.dir + "/dir/two")
    seen = [k.names(), k.get("files", path=k.dir + "/link"), stat["type"], stat["size"], stat["mode"]]
    k.d.delete(f"{k.at}/files", path=k.dir + "/link")
    return seen + [k.names(), k.refusal(k.get, "files", path=k.dir + "/none"), k.refusal(k.put, "none/x"),
                   k.refusal(k.post, "files/move", {"from": k.dir + "/none", "to": k.dir + "/x"})]


def archives(k):
    k.make()
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as t:
        info = tarfile.TarInfo("in/file")
        info.size = 3
        t.addfile(info, io.BytesIO(b"abc"))
    k.d.request("PUT", f"{k.at}/files/tar", data.getvalue(), path=k.dir)
    out = k.d.request("GET", f"{k.at}/files/tar", raw=True, path=k.dir + "/in")
    with tarfile.open(fileobj=io.BytesIO(out)) as t:
        return [(m.name.strip("./"), m.size) for m in t.getmembers() if m.isfile()], k.names()


def commands(k):
    k.make()
    x = k.write("a")
    kept = k.get(f"execs/{x['id']}")
    return [x["state"], x["status"], x["reason"], kept["state"], kept["status"], len(k.get("execs")["execs"]),
            sorted(set(x["usage"]) - {"fuel"}), k.get("files", path=k.dir + "/a"), k.refusal(k.get, "execs/x-000000000000"),
            k.refusal(k.post, "execs", {}), k.refusal(k.post, "execs", {"argv": []})]


def steps(k):
    k.make(steps="manual")
    k.write("a")
    first = k.post("steps", {"name": "first"})
    k.write("b")
    k.post("steps", {"name": "second"})
    listed = [(s["name"], s["kind"]) for s in k.get("steps")["steps"] if s.get("name")]
    changes = sorted((c["path"].removeprefix(k.dir.strip("/")), c.get("change", c.get("kind"))) for c in k.get("diff", **{"from": "first"})["changes"])
    k.post("rewind", {"step": "first"})
    return [listed, changes, k.names(), first["name"], k.refusal(k.post, "rewind", {"step": "none"}),
            k.refusal(k.post, "steps", {"name": "a b"}), k.refusal(k.get, "diff", **{"from": "none"})]


def forks(k):
    k.make(steps="manual")
    k.write("a")
    k.post("steps", {"name": "first"})
    k.write("b")
    made = k.post("fork", {"step": "first", "count": 2})["machines"]
    late = k.post("fork", {})["machines"][0]["id"]
    names = [k.names(f["id"]) for f in made] + [k.names(late), k.names()]
    k.d.delete(k.at)
    return names, k.names(late), {f["kind"] == k.kind for f in made}, k.refusal(k.post, "fork", {"step": "none"})


def rest(k):
    k.make()
    k.write("a")
    seen = []
    for verb in ("pause", "stop"):
        seen += [k.post(verb)["state"], k.get()["state"], k.post("resume")["state"], k.names()]
    k.post("stop")
    return seen + [k.write("b")["status"], k.names()]  # a command wakes it


def limits(k):
    k.make(limits={"mem": 64 << 20, "disk": 32 << 20, "cpus": 1}, name=f"limited-{k.kind}")
    before = k.get()["limits"]
    after = k.d.patch(k.at, {"limits": {"mem": 96 << 20, "cpus": 2}})["limits"]
    large = k.refusal(k.put, "large", bytes(40 << 20))
    stats = k.get("stats")
    return [[{n: v for n, v in seen.items() if n in ("mem", "disk", "cpus")} for seen in (before, after)], large,
            stats["disk_bytes"] > 0, k.refusal(k.d.machine, name=f"limited-{k.kind}"),
            k.refusal(k.d.patch, k.at, {"limits": {"mem": 1}})]


def lifetimes(k):
    k.make(idle=0.3, idle_action="stop")
    k.d.until(lambda: k.get()["state"] == "stopped")
    seen = [k.write("a")["status"]]
    k.make(ttl=1)
    k.d.until(lambda: k.m not in [m["id"] for m in k.d.machines()])
    return seen + [k.refusal(k.put, "late"), k.refusal(k.post, "execs", {"argv": ["hello"]})]


def budgets(k):
    k.make(models={"tokens": 5000})
    before = k.get("stats")["models"]
    assert "5000" in str(before)
    k.d.patch(k.at, {"models": {"tokens": 7000}})
    return [before, k.get("stats")["models"], k.refusal(k.d.patch, k.at, {"models": {"tokens": -1}})]


def ends(k):
    k.make()
    k.write("a")
    k.d.delete(k.at)
    return [k.get()["state"] if k.d.machines(all=1) else None, k.refusal(k.put, "x"), k.refusal(k.post, "steps", {}),
            k.refusal(k.post, "resume")]


VERBS = [files, archives, commands, steps, forks, rest, limits, lifetimes, budgets, ends]


@pytest.mark.parametrize("verb", VERBS, ids=lambda f: f.__name__)
def test_verb_has_the_same_answer_for_a_box_and_a_cell(daemon, verb):
    box, cell = (verb(Kind(daemon, kind)) for kind in ("box", "cell"))
    assert box == cell


# ---- what a cell cannot do: the table of the page, and a request for each row ----

def execs(**fields):
    return lambda k: k.post("execs", fields)


def made(**fields):
    return lambda k: k.make(**fields)


UNSUPPORTED = {
    "a command line for a shell": [execs(command="echo hi")],
    "terminals": [execs(argv=["hello"], terminal=True, background=True)],
    "`--cwd`, `--user`": [execs(argv=["hello"], user="user"), execs(argv=["hello"], cwd="/data")],
    "`--dir`, `--file`, `--repo`, `--db`, `--volume`, `carrel grant`": [
        made(grants=[{"kind": "env", "what": "A", "value": "b"}]), made(volumes=[{"name": "data", "at": "/data"}]),
        lambda k: k.post("grants", {"kind": "env", "what": "A", "value": "b"})],
    "`--guard`, `carrel expose`, `carrel forward`": [
        made(guard=True), lambda k: k.post("exposures", {"port": 80}),
        lambda k: k.d.request("GET", f"{k.at}/forward/80", headers={"Connection": "Upgrade", "Upgrade": "websocket"})],
    "`--pids`": [made(limits={"pids": 9}), lambda k: k.d.patch(k.at, {"limits": {"pids": 9}})],
}


def test_page_lists_what_a_cell_refuses(daemon):
    part = PAGE.read_text().split("## What a cell cannot do")[1].split("\n## ")[0]
    rows = [re.split(r"(?<!\\)\|", line)[1].strip() for line in part.splitlines() if line.startswith("| ")][1:]
    assert {r.split(" (")[0] for r in rows} == set(UNSUPPORTED)
    for row, requests in UNSUPPORTED.items():
        for request in requests:
            k = Kind(daemon, "cell").make()
            assert k.refusal(request, k) == "unsupported", row
