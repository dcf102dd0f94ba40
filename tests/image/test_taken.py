"""A reader of archives that its archive took over (tests/image/taken.c): it names no image, hides nothing in one, and
ends with its job. The controls are programs that have what the reader must not have."""
import fcntl
import json
import os
import signal
import subprocess

import pytest

from carrel import BUILD, ROOTLESS
from daemon import Refused
from own import Own
from test_stacked import ordered
from trees import archive, entry
import patience

CHECKED = patience.sanitized(BUILD / "libexec/carrel-image")
FORGED_ID = "i-" + "a" * 52
REPORT = json.dumps({"id": FORGED_ID, "entries": 7, "bytes": 7, "disk": 7,
                     "config": {"image": {}, "uid": 0, "gid": 0, "name": "root", "home": "/"}})


class Taken(Own):
    def try_it(self, attack):
        """An archive takes its reader over."""
        self.work_by(BUILD / "libexec/carrel-image-taken")
        return self.take(attack.encode() + b"\n", name="taken")


@pytest.fixture(scope="module")
def own_of_all(tmp_path_factory):
    d = Taken(tmp_path_factory.mktemp("bin"))
    yield d
    d.stop()


@pytest.fixture
def own(own_of_all):
    yield own_of_all
    for image in own_of_all.get("/v1/images")["images"]:
        own_of_all.delete("/v1/images/" + image["name"])
    own_of_all.until(lambda: own_of_all.stored() == [])


def test_the_honest_one_works(own):
    own.work_by(BUILD / "libexec/carrel-image")
    image = own.take(archive(entry("a", b"x")), name="honest")
    assert own.stored() == [image["id"]] and image["bytes"] > 0


def test_a_reader_names_no_image(own):
    """What it is called is what is in it: the same tree has that id when nobody lies."""
    image = own.try_it("say " + REPORT)
    assert image["id"] != FORGED_ID and image["entries"] != 7 and own.stored() == [image["id"]], image
    own.delete("/v1/images/taken")
    own.until(lambda: own.stored() == [])
    assert own.try_it("nothing")["id"] == image["id"]


def test_a_reader_has_not_the_last_word(own):
    with pytest.raises(Refused) as refused:
        own.try_it("last " + REPORT)
    assert "too long" in refused.value.error["message"], refused.value
    assert own.stored() == [] and own.get("/v1/images")["images"] == []
    own.until(lambda: own.workers() == [])


def test_the_control_of_that_whoever_holds_the_pipe_is_believed(own):
    own.work_by_script(f"cat >/dev/null\necho '{REPORT}' >&4\n")
    assert own.take(b"x", name="forged")["id"] == FORGED_ID and own.stored() == [FORGED_ID]


def test_a_reader_of_a_layer_cannot_change_the_image_below(own):
    """It can read that image, and nothing else by way of it."""
    layers = [archive(entry("one", b"1")), archive(entry("two", b"2"))]
    own.work_by(BUILD / "libexec/carrel-image")
    own.take(ordered(layers[:1]), name="base", form="layers")
    before = own.request("GET", "/v1/images/base/archive", raw=True, form="tar")
    own.work_by(BUILD / "libexec/carrel-image-taken")
    assert own.take(ordered(layers), name="taken", form="layers")["layers"] == 2
    own.work_by(BUILD / "libexec/carrel-image")
    assert own.request("GET", "/v1/images/base/archive", raw=True, form="tar") == before


@pytest.mark.parametrize("name", ["root.erofs", "presets", "image.json", "below"])
def test_a_reader_leaves_nothing_beside_the_tree(own, name):
    """No id tells of it, but it would be mounted or read as the image's."""
    with pytest.raises(Refused) as refused:
        own.try_it("plant " + name)
    assert f"created '{name}' beside the image's files" in refused.value.error["message"], refused.value
    assert own.stored() == [] and own.get("/v1/images")["images"] == []


def test_the_control_of_that_such_a_file_is_taken_for_the_image(own):
    own.work_by_script(f"cat >/dev/null\n: >/proc/self/fd/3/root.erofs\necho '{REPORT}' >&4\n")
    assert own.take(b"x", name="forged")["stored"] == "erofs"


@pytest.fixture
def marks(own):
    """The store keeps attributes of users."""
    try:
        os.setxattr(own.home, "user.test", b"x")
        os.removexattr(own.home, "user.test")
    except OSError as e:
        pytest.skip(f"no attributes on this filesystem: {e}")


HIDDEN = [("user.note", "root"), ("user.overlay.opaque", "root"), ("system.posix_acl_default", "root"), ("user.overlay.opaque", "root/f")]


@pytest.mark.parametrize("name,place", HIDDEN, ids=[f"{name}-of-{place}" for name, place in HIDDEN])
def test_a_reader_hides_nothing_in_attributes(own, marks, name, place):
    """No id tells of them, but an overlay acts on some, and those who are let in by others do."""
    with pytest.raises(Refused) as refused:
        own.try_it(f"mark {name} {place}")
    shown = place.removeprefix("root").removeprefix("/")
    assert f"'/{shown}' has the attribute '{name}'" in refused.value.error["message"], refused.value
    assert own.stored() == [] and own.get("/v1/images")["images"] == []


def test_the_control_of_that_such_an_attribute_stays(own, marks):
    own.work_by_script("cat >/dev/null\npython3 -c \"import os; os.setxattr('/proc/self/fd/3/root', 'user.overlay.opaque', b'y')\" "
                       f"3<&3\necho '{REPORT}' >&4\n")
    assert own.take(b"x", name="forged")["id"] == FORGED_ID
    assert os.getxattr(own.home / "images" / FORGED_ID / "root", "user.overlay.opaque") == b"y"


@pytest.mark.parametrize("node", ["c 0", "c 1", "b 0"])
def test_reader_hides_no_device(own, node):
    """The kernel lets anybody make device 0:0, the mark of a deleted file, of which the id of a whole image does not tell."""
    with pytest.raises(Refused) as refused:
        own.try_it("node " + node)
    said = refused.value.error["message"]
    assert "'/node' is a device or socket" in said if node == "c 0" else "make 'c 1'" in said or "make 'b 0'" in said, said
    assert own.stored() == [] and own.get("/v1/images")["images"] == []


@pytest.mark.skipif(ROOTLESS, reason="only root gives a directory to somebody else")
def test_an_id_tells_the_mode_owner_and_time_of_directories(own):
    def id_of(looks):
        made = own.try_it("dir " + looks)["id"]
        own.delete("/v1/images/taken")
        own.until(lambda: own.stored() == [])
        return made

    ids = [id_of(looks) for looks in ("755 0 5", "755 0 5", "777 0 5", "755 7 5", "755 0 6")]
    assert ids[0] == ids[1] and len(set(ids)) == 4, ids


@pytest.mark.skipif(CHECKED, reason="whoever checks every access writes into the log")
def test_a_reader_writes_into_no_log(own):
    own.try_it("log a line of its own")
    assert "a line of its own" not in own.log() + (own.run_dir / "spawn.log").read_text()


@pytest.fixture
def victim():
    """Somebody else's process."""
    p = subprocess.Popen(["sleep", "1000"])
    yield p
    p.kill()
    p.wait()


@pytest.mark.skipif(CHECKED, reason="there is no filter of system calls where every access is checked")
def test_a_reader_signals_nobody(own, victim):
    """A descriptor can be told to send a signal to a process when it has something to read."""
    with pytest.raises(Refused) as refused:
        own.try_it(f"kill {victim.pid}")
    assert "signal another: Function not implemented" in refused.value.error["message"], refused.value
    assert victim.poll() is None


def test_the_control_of_that_a_descriptor_kills(victim):
    ours, theirs = os.pipe()
    fcntl.fcntl(ours, fcntl.F_SETOWN, victim.pid)
    fcntl.fcntl(ours, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(ours, fcntl.F_SETFL, os.O_ASYNC)
    os.write(theirs, b"x")
    assert victim.wait(60 * patience.PATIENCE) == -signal.SIGKILL
    os.close(ours)
    os.close(theirs)


@pytest.mark.parametrize("how", ["silent", "open"])
def test_a_reader_ends_with_its_job(own, how):
    own.work_by(BUILD / "libexec/carrel-image-taken")
    before = set(own.workers())
    c = own.connect()
    c.putrequest("POST", "/v1/images?name=stays")
    c.putheader("Content-Length", "100000")
    c.endheaders()
    c.send(f"stay {how}\n".encode())
    own.until(lambda: len(set(own.workers()) - before) == 2)
    c.close()
    own.until(lambda: set(own.workers()) <= before)
