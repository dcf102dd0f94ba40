"""A taint that cannot be stored refuses the flow: the next daemon would know nothing of it."""
import contextlib
import os
import pathlib
import sqlite3
import sys

import pytest

for folder in ("image", "gate"):
    sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / folder))

from daemon import Refused  # noqa: E402
from faulty import Faulty  # noqa: E402
from runs import Runs  # noqa: E402
from test_models_guard import CONF, Provider, Stranger, WithModels, attacks, end, plain, serve  # noqa: E402
from test_taint import FLOWS, WORD, begin_check, begin_sub_agent, end_sub_agent, freeze, lend, let, place, taint, tainted  # noqa: E402, F401
from trees import small_tree  # noqa: E402

SAID = "these are the words of a stranger"
# The rows that say that a machine, an image or a directory is tainted.
TRIGGERS = {"images": "1", "networks": "instr(NEW.policy, '\"tainted\":\"')", "taints": "1"}


class FaultyWithModels(Faulty, WithModels):
    """Its provider of models fetches what a request names."""


@pytest.fixture(scope="module")
def stranger():
    s = serve(Stranger)
    yield s
    end(s)


@pytest.fixture(scope="module")
def faulty(tmp_path_factory, stranger):
    provider = serve(Provider)
    d = FaultyWithModels(conf=CONF.format(port=provider.server_port))
    d.stranger = stranger
    d.image = d.request("POST", "/v1/images", small_tree(tmp_path_factory.mktemp("rootfs")).read_bytes(), name="small")["id"]
    yield d
    d.stop()
    end(provider)


@pytest.fixture
def daemon(faulty):
    yield faulty
    faulty.heal()
    faulty.clear()
    assert faulty.host.left_of_boxes() == []


@contextlib.contextmanager
def refusing(d, table):
    """Every other write succeeds, so that nothing else can be the reason of a refusal."""
    def change(sql):
        with contextlib.closing(sqlite3.connect(d.home / "carrel.db", timeout=60)) as db, db:
            db.execute(sql)

    change(f"CREATE TRIGGER refuse_taint BEFORE INSERT ON {table} WHEN {TRIGGERS[table]} BEGIN SELECT RAISE(ABORT, 'no room for a taint'); END")
    try:
        yield
    finally:
        change("DROP TRIGGER refuse_taint")


def stored(d, m, of="WORD"):
    return d.rows("SELECT json_extract(policy, '$.tainted') FROM networks WHERE machine = ?", m) == [(of,)]


def source(d, dirty, **fields):
    m = d.machine(**fields)
    return taint(d, m) if dirty else m


# ---- each prepares its source. Two functions: the flow, which returns whether the taint is stored then; and whether the data is there ----

def flow_untrusted(d, place, dirty):
    m = d.machine()

    def flow():
        d.post(f"/v1/machines/{m}/grants", {**WORD, "untrusted": dirty})
        return stored(d, m)

    return flow, lambda: "stranger" in d.exec(m, "echo $WORD")["stdout"]


def flow_untrusted_made(d, place, dirty):
    """Handed over when it is made."""
    before = set(x["id"] for x in d.machines())
    return lambda: stored(d, d.machine(grants=[{**WORD, "untrusted": dirty}])), lambda: new_machines(d, before)


def new_machines(d, before):
    return [x["id"] for x in d.machines() if x["id"] not in before]


def flow_fork(d, place, dirty):
    m = source(d, dirty)
    before = set(x["id"] for x in d.machines())
    return lambda: stored(d, d.post(f"/v1/machines/{m}/fork", {})["machines"][0]["id"]), lambda: new_machines(d, before)


def flow_image(d, place, dirty):
    m = source(d, dirty, image=d.image)
    name = f"of-{m}"
    assert d.exec(m, f"echo {m} > /theirs", user="root")["exec"]["status"] == 0

    def flow():
        made = d.post(f"/v1/machines/{m}/image", {"name": name})["id"]
        return d.rows("SELECT source FROM taints WHERE kind = 'image' AND key = ?", made) == [("WORD",)]

    return flow, lambda: [x for x in d.get("/v1/images")["images"] if x["name"] == name]


def flow_image_used(d, place, dirty):
    """A machine that is made from it."""
    m = source(d, dirty, image=d.image)
    assert d.exec(m, f"echo {m} > /theirs", user="root")["exec"]["status"] == 0
    image = d.post(f"/v1/machines/{m}/image", {"name": f"used-{m}"})["id"]
    before = set(x["id"] for x in d.machines())
    return lambda: stored(d, d.machine(image=image)), lambda: new_machines(d, before)


def flow_ship(d, place, dirty):
    """To a directory that a machine has."""
    has = lend(d, place)
    made = freeze(d, source(d, dirty))["id"]
    words = {"action": "ship", "target": str(place), "sha256": "0" * 64, "files": 1}

    def flow():
        d.post(f"/v1/changesets/{made}/ship", words)
        return stored(d, has) and d.rows("SELECT source FROM taints WHERE kind = 'dir' AND key = ?", str(place)) == [("WORD",)]

    return flow, lambda: made in d.request("GET", "/v1/audit", raw=True, verb="review.ship").decode()


def flow_handover(d, place, dirty):
    shipped(d, place, dirty)
    before = set(x["id"] for x in d.machines())
    return lambda: stored(d, lend(d, place)), lambda: new_machines(d, before)


def flow_handover_later(d, place, dirty):
    """One file of it, into a machine that runs."""
    (place / "file").write_text("x")
    shipped(d, place, dirty)
    m = d.machine()

    def flow():
        fd = os.open(place / "file", os.O_RDONLY)
        try:
            d.send([fd], f"/v1/machines/{m}/grants", {"kind": "file", "what": "/called/otherwise", "at": "/home/user/copy"})
        finally:
            os.close(fd)
        return stored(d, m)

    return flow, lambda: "copy" in d.exec(m, "ls /home/user")["stdout"]


def shipped(d, place, dirty):
    made = freeze(d, source(d, dirty))["id"]
    d.post(f"/v1/changesets/{made}/ship", {"action": "ship", "target": str(place), "sha256": "0" * 64, "files": 1})


def flow_shared(d, place, dirty):
    """The directory of both is marked, too."""
    one, other = lend(d, place, mode="rw"), lend(d, place, mode="ro")

    def flow():
        d.post(f"/v1/machines/{one}/grants", {**WORD, "untrusted": dirty})
        return stored(d, one) and stored(d, other)

    return flow, lambda: "stranger" in d.exec(one, "echo $WORD")["stdout"]


def flow_report(d, place, dirty, **spawn):
    runs = Runs(d)
    m, child, r = begin_sub_agent(d, runs, said=SAID, **spawn)
    if dirty:
        taint(d, child)
    told = {}

    def flow():
        told.update(end_sub_agent(d, runs, child, r))
        if told.get("failed"):
            raise Refused(507, told)
        return stored(d, m)

    def arrived():
        there = d.exec(m, "test -e work/file")["exec"]["status"] == 0
        return there if spawn else SAID in str(told)

    return flow, arrived


def flow_bring(d, place, dirty):
    return flow_report(d, place, dirty, bring="/home/user/work")


def flow_check(d, place, dirty):
    """Of a try that is tainted when the machine of its check is there already."""
    runs = Runs(d)
    tried, judge, r = begin_check(d, runs)
    if dirty:
        taint(d, tried)
    told = {}

    def flow():
        let(d, judge, "end")
        let(d, judge, "go")
        told.update(runs.wait(r, "ended")["report"]["tries"][0])
        if not told["good"]:
            raise Refused(507, str(runs.transcript(r)))
        return False

    return flow, lambda: told["good"]


def flow_provider(d, place, dirty):
    """A picture that the provider would fetch from a stranger."""
    m = d.machine(models={"allow": True})
    asks = attacks("chat", f"http://127.0.0.1:{d.stranger.server_port}/{m}")[1] if dirty else {}
    told = []

    def flow():
        status, text = d.ask(m, "chat", {**plain("chat"), **asks})
        if status != 200:
            raise Refused(status, text)
        told.append(text)
        return stored(d, m, "models.carrel")

    return flow, lambda: told and (not dirty or f"/{m}" in d.stranger.heard and "word-of-a-stranger" in told[0])


CASES = {(name[5:], table): fn for name, fn in list(globals().items()) if name.startswith("flow_")
         for table in {"ship": ("taints", "networks"), "shared": ("taints", "networks"), "image": ("taints",)}.get(name[5:], ("networks",))}


@pytest.mark.parametrize("name,table", sorted(CASES))
def test_a_flow_whose_taint_cannot_be_stored_delivers_nothing(daemon, place, name, table):  # noqa: F811
    """Of a source that is not tainted it is delivered meanwhile; of one that is, once the taint can be stored."""
    clean, dirty = place / "clean", place / "dirty"
    for path in (clean, dirty):
        path.mkdir()
    flow, arrived = CASES[name, table](daemon, clean, False)
    with refusing(daemon, table):
        assert not flow() and arrived(), "the control"
    flow, arrived = CASES[name, table](daemon, dirty, True)
    with refusing(daemon, table):
        with pytest.raises(Refused, match="no room for a taint"):
            flow()
        assert not arrived()
    if name not in ("report", "bring", "check"):  # which are over; test_taint.py has that half
        assert flow() and arrived()


def test_a_mark_that_was_refused_is_tried_again_by_the_next_daemon(daemon, place):  # noqa: F811
    """The machine itself is stored as tainted, and those who share a directory with it are not."""
    one, other = lend(daemon, place, mode="rw"), lend(daemon, place, mode="ro")
    with refusing(daemon, "taints"):
        with pytest.raises(Refused, match="no room for a taint"):
            daemon.post(f"/v1/machines/{one}/grants", WORD)
        assert stored(daemon, one) and not stored(daemon, other)
        daemon.kill()
    daemon.start()
    assert not tainted(daemon, other)
    daemon.post(f"/v1/machines/{one}/grants", WORD)
    assert stored(daemon, other)


def test_a_change_set_whose_words_cannot_be_written_is_none(daemon):
    """That it is tainted is one of them."""
    m = taint(daemon, daemon.machine())

    def kept():
        return {p.stem for p in daemon.home.glob("changesets/c-*.json")}

    before = kept()
    with daemon.failing(suffix=".part"), pytest.raises(Refused, match="No space left"):
        freeze(daemon, m)
    assert kept() == before
    made = freeze(daemon, m)
    assert made["tainted"] == "WORD" and kept() == before | {made["id"]}


def test_an_image_that_gets_no_name_is_tainted_by_then(daemon):
    m = taint(daemon, daemon.machine(image=daemon.image))
    assert daemon.exec(m, f"echo {m} > /theirs", user="root")["exec"]["status"] == 0
    before = set(daemon.rows("SELECT key FROM taints WHERE kind = 'image'"))
    with refusing(daemon, "images"), pytest.raises(Refused, match="no room"):
        daemon.post(f"/v1/machines/{m}/image", {"name": f"no-{m}"})
    left = set(daemon.rows("SELECT key FROM taints WHERE kind = 'image'")) - before
    assert left == {(daemon.post(f"/v1/machines/{m}/image", {"name": f"no-{m}"})["id"],)}


def test_every_flow_of_the_table_is_refused_somewhere():
    tried = {name for name, _ in CASES} | {"changeset"}
    assert FLOWS - tried == {"network",  # gate/test_taint.py
                             "tools",  # mcp/test_taint.py
                             "upload"}  # mcp/test_transfer.py
