"""Images: what they are called, machines on them, and the way out and in again."""
import hashlib
import json
import lzma
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tarfile

import pytest

from carrel import BUILD, PROGRAM, ROOTLESS
from daemon import Refused
from own import Own
from patience import PATIENCE
from trees import archive, directory, docker_archive, entry, hard, layout, link, packed


def put(daemon, data, **query):
    return daemon.request("POST", "/v1/images", data, **query)


def cli(daemon, *words, **kw):
    env = {"PATH": os.environ["PATH"], "CARREL_HOME": str(daemon.home), "CARREL_RUN": str(daemon.run_dir)}
    kw.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run([PROGRAM, *map(str, words)], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, **kw)


# ---- what an image is ----


def test_the_same_tree_is_the_same_image_however_it_comes(daemon, rootfs):
    data = rootfs.read_bytes()
    zst = subprocess.run(["zstd", "-q", "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout
    xz = lzma.compress(data, preset=0)
    ids = {put(daemon, x, name=n)["id"] for n, x in
           {"plain": data, "gz": packed(data), "zst": zst, "xz": xz, "oci": layout([data]), "docker": docker_archive([data])}.items()}
    assert len(ids) == 1 and ids.pop().startswith("i-")
    assert len(list((pathlib.Path(daemon.home) / "images").glob("i-*"))) == 1


@pytest.mark.parametrize("change", [{"mode": 0o600}, {"uid": 7}, {"gid": 7}, {"mtime": 5}, {"data": b"y"}])
def test_any_difference_is_another_image(daemon, change):
    data = change.pop("data", b"x")
    a = put(daemon, archive(entry("a", b"x")), name="a")["id"]
    b = put(daemon, archive(entry("a", data, **change)), name="b")["id"]
    assert a != b


def test_layers_lie_over_each_other_as_they_should(daemon, rootfs):
    """Whiteouts hide what is below, and nothing of their own layer, wherever they stand in it."""
    below = archive(directory("d"), entry("d/old", b"1"), entry("d/kept", b"1"), entry("gone", b"1"), directory("o"), entry("o/old", b"1"),
                    directory("was-dir"), entry("was-dir/x", b"1"), entry("was-file", b"1"))
    above = archive(entry("d/.wh.old", b""), entry(".wh.gone", b""), directory("o"), entry("o/new", b"2"), entry("o/.wh..wh..opq", b""),
                    entry("was-dir", b"2"), directory("was-file"), entry("was-file/x", b"2"), entry("d/again", b"2"))
    image = put(daemon, layout([rootfs.read_bytes(), below, above]))
    m = daemon.machine(image=image["id"])
    out = daemon.exec(m, "ls /d /o; cat /was-dir; ls /was-file; ls /gone 2>/dev/null || echo away")["stdout"].split()
    assert out == ["/d:", "again", "kept", "/o:", "new", "2x", "away"], out


def test_hard_links_stay_links_and_attributes_stay(daemon, rootfs):
    info, data = entry("one", b"x" * 100)
    info.pax_headers = {"SCHILY.xattr.user.note": "kept", "SCHILY.xattr.security.selinux": "left out"}
    image = put(daemon, layout([rootfs.read_bytes(), archive((info, data), hard("two", "one"), link("three", "/one"))]), name="build:links")
    m = daemon.machine(image=image["id"])
    assert daemon.exec(m, "stat -c %h /one; cat /three | stat -c %s /two")["stdout"].split() == ["2", "100"]
    where = pathlib.Path(daemon.home, "images", image["id"], "root/one")
    assert os.getxattr(where, "user.note") == b"kept" and "security.selinux" not in os.listxattr(where)


# ---- names ----


def test_a_command_line_runs_in_sh_where_the_image_has_no_bash(daemon, small):
    m = daemon.machine(image="small")
    assert daemon.exec(m, ["ls", "/bin/bash"])["exec"]["status"] != 0
    r = daemon.exec(m, "echo $0 ${BASH_VERSION-none}; exit 3")
    assert (r["stdout"], r["exec"]["status"]) == ("/bin/sh none\n", 3), r


def test_names_and_ids_find_it(daemon, small):
    for ref in ("small", small["id"], small["id"][:14]):
        assert daemon.get("/v1/images/" + ref)["id"] == small["id"]
    for ref in ("big", "i-", small["id"][:4], "i-" + "a" * 52):
        with pytest.raises(Refused) as refused:
            daemon.get("/v1/images/" + ref)
        assert refused.value.code == "not_found" and "carrel image ls" in refused.value.error["remedy"]


@pytest.mark.parametrize("name", ["host", "i-abc", "a b", "-a", "a/", "../a", "a/b", "x" * 64, "ä"])
def test_a_name_that_cannot_be_one(daemon, name):
    with pytest.raises(Refused) as refused:
        put(daemon, archive(directory("a")), name=name)
    assert refused.value.code == "invalid"


def test_a_name_with_a_dot_and_a_colon(daemon):
    put(daemon, archive(directory("a")), name="team.web:2")
    assert daemon.get("/v1/images/team.web:2")["name"] == "team.web:2"
    assert cli(daemon, "image", "show", "team.web:2").returncode == 0


def test_a_name_moves_to_what_was_imported_last(daemon, small):
    again = put(daemon, archive(directory("a")), name="small")
    assert again["id"] != small["id"] and daemon.get("/v1/images/small")["id"] == again["id"]
    daemon.until(lambda: not pathlib.Path(daemon.home, "images", small["id"]).exists())


def test_without_a_name_it_gets_one(daemon):
    image = put(daemon, archive(directory("a")))
    assert image["name"] == "image-" + image["id"][2:14]


def test_it_is_told_and_written_down(daemon, small):
    daemon.delete("/v1/images/small")
    events = daemon.get("/v1/events", follow=0).decode()
    assert events.rindex("image.removed") > events.rindex("image.created") > 0
    journal = daemon.get("/v1/audit").decode()
    assert "image.import" in journal and "image.remove" in journal


# ---- machines on them ----


def test_a_machine_on_an_image_is_that_image_and_nothing_of_the_host(daemon, small):
    m = daemon.machine(image="small")
    shown = daemon.get("/v1/machines/" + m)
    assert shown["image"] == "small" and shown["image_id"] == small["id"] and shown["drifted"] is False
    out = daemon.exec(m, "ls /usr/bin | cat; id -u; pwd; echo $HOME; cat /etc/resolv.conf")["stdout"]
    assert "python3" not in out and "\n0\n/\n/root\nnameserver 127.0.0.1\n" in out, out


def test_user_directory_and_environment_are_the_images(daemon, rootfs):
    config = {"User": "app:staff", "WorkingDir": "/srv/app", "Env": ["A=1", "PATH=/usr/bin", "B=x=y"]}
    m = daemon.machine(image=put(daemon, layout([rootfs.read_bytes()], config), name="app")["id"], env={"A": "2"})
    out = daemon.exec(m, "id -u; id -g; pwd; echo $HOME $USER $A $B $PATH", env={"C": "3"})["stdout"].split()
    assert out == ["1234", "50", "/srv/app", "/srv/app", "app", "2", "x=y", "/usr/bin:/run/carrel/bin"], out
    assert daemon.exec(m, "id -u; pwd", user="root")["stdout"].split() == ["0", "/srv/app"]
    assert daemon.exec(m, "pwd", cwd="/etc")["stdout"] == "/etc\n"


def test_steps_rewind_and_fork_work_on_it(daemon, small):
    m = daemon.machine(image="small")
    daemon.exec(m, "echo 1 >/one; rm /usr/bin/cp")
    step = daemon.post(f"/v1/machines/{m}/steps", {"name": "good"})
    daemon.exec(m, "rm -rf /one /usr/bin/touch; echo 2 >/two")
    fork = daemon.post(f"/v1/machines/{m}/fork", {"step": "good"})["machines"][0]
    daemon.post(f"/v1/machines/{m}/rewind", {"step": str(step["number"])})
    for x in (m, fork["id"]):
        out = daemon.exec(x, "cat /one; ls /two /usr/bin/cp 2>/dev/null; ls /usr/bin/touch")["stdout"].split()
        assert out == ["1", "/usr/bin/touch"], (x, out)
    assert fork["image_id"] == small["id"]


def test_two_machines_on_one_image_do_not_meet(daemon, small):
    a, b = daemon.machine(image="small"), daemon.machine(image="small")
    daemon.exec(a, "echo a >/etc/motd; echo a >>/etc/passwd")
    assert daemon.exec(b, "cat /etc/motd 2>/dev/null; cat /etc/passwd")["stdout"].count("a\n") == 0


def test_a_removed_image_stays_until_its_last_machine_is_gone(daemon, small):
    m = daemon.machine(image="small")
    assert daemon.delete("/v1/images/small")["machines"] == 1
    tree = pathlib.Path(daemon.home, "images", small["id"])
    assert tree.exists() and daemon.exec(m, "echo still")["stdout"] == "still\n"
    with pytest.raises(Refused):
        daemon.machine(image="small")
    fork = daemon.post(f"/v1/machines/{m}/fork", {})["machines"][0]["id"]
    daemon.delete("/v1/machines/" + m)
    assert daemon.exec(fork, "echo and its fork")["stdout"] == "and its fork\n"
    daemon.delete("/v1/machines/" + fork)
    daemon.until(lambda: not tree.exists())


def test_an_image_that_is_not_there(daemon):
    with pytest.raises(Refused) as refused:
        daemon.machine(image="nothing")
    assert refused.value.code == "not_found" and "nothing" in refused.value.error["message"]


def test_a_machine_on_an_image_outlives_the_daemon(fresh, rootfs):
    d = fresh()
    put(d, rootfs.read_bytes(), name="small")
    m = d.machine(image="small")
    d.exec(m, "echo kept >/file")
    d.delete("/v1/images/small")
    d.kill()
    d.start()
    assert d.exec(m, "cat /file; pwd")["stdout"].split() == ["kept", "/"]
    d.post(f"/v1/machines/{m}/rewind", {"step": "1"})
    assert d.get("/v1/machines/" + m)["image_id"].startswith("i-")


def test_trees_that_nobody_knows_go_at_the_start(fresh, rootfs):
    d = fresh()
    image = put(d, rootfs.read_bytes(), name="small")
    d.kill()
    images = pathlib.Path(d.home, "images")
    (images / ("n-" + "a" * 12) / "root").mkdir(parents=True)
    (images / ("i-" + "a" * 52) / "root").mkdir(parents=True)
    d.start()
    d.until(lambda: sorted(p.name for p in images.glob("[in]-*")) == [image["id"]])


# ---- out, and in again ----


@pytest.mark.parametrize("form", ["tar", "tar.zst", "oci", "packs"])
def test_what_goes_out_comes_in_as_the_same(daemon, rootfs, form):
    config = {"User": "app", "WorkingDir": "/srv/app", "Env": ["A=1"], "Cmd": ["sh"], "Entrypoint": ["/bin/env"]}
    odd = archive(entry("e", b""), hard("f", "e"), link("g", "nowhere"), directory("h", mode=0o1777, mtime=7),
                  entry("ü" * 60, b"x"), entry("p", type=tarfile.FIFOTYPE), entry("s", b"x", mode=0o6711, uid=65535, gid=3),
                  entry("grp", b"x", gid=65535))
    first = put(daemon, layout([rootfs.read_bytes(), odd], config), name="first")
    out = daemon.request("GET", "/v1/images/first/archive", raw=True, form=form)
    again = daemon.request("GET", "/v1/images/first/archive", raw=True, form=form)
    assert hashlib.sha256(out).digest() == hashlib.sha256(again).digest()
    second = put(daemon, out, name="second")
    assert second["id"] == first["id"] and second["config"] == first["config"]


def test_export_of_an_image_that_does_not_exist_creates_no_directory(daemon, tmp_path):
    for option in ("--oci", "--packs"):
        done = cli(daemon, "image", "export", "nothing", option, tmp_path / "new")
        assert done.returncode == 125 and b"image 'nothing' does not exist" in done.stderr and not (tmp_path / "new").exists(), done


@pytest.mark.parametrize("name", ["builds", "prune"])
def test_name_of_a_route_is_refused(daemon, small, rootfs, name):
    for ask in (lambda: daemon.request("POST", "/v1/images", rootfs.read_bytes(), name=name),
                lambda: daemon.post("/v1/images/small/names", {"name": name}),
                lambda: daemon.post("/v1/images/builds", {"base": "small", "steps": [], "name": name})):
        with pytest.raises(Refused) as refused:
            ask()
        assert refused.value.code == "invalid" and f"an image cannot have the name '{name}'" in refused.value.error["message"], refused.value
    assert daemon.post("/v1/images/small/names", {"name": name + "-1"})["name"] == name + "-1", "the control"


def test_export_compresses_on_all_processors(tmp_path):
    """The client does not read, so the worker waits for it, with all its threads."""
    d = Own(tmp_path)
    try:
        d.work_by(BUILD / "libexec/carrel-image")
        put(d, archive(entry("noise", os.urandom(48 << 20))), name="noise")
        d.until(lambda: d.workers() == [])
        c = d.connect()
        c.request("GET", "/v1/images/noise/archive?form=tar.zst")
        d.until(lambda: [threads_of(pid) for pid in d.workers()] == [1 + min(8, len(os.sched_getaffinity(0)))])
        c.close()
    finally:
        d.stop()


def threads_of(pid):
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except FileNotFoundError:
        return 0


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this host has one processor")
def test_export_has_equal_bytes_on_one_processor(tmp_path):
    """A second worker, which may use one processor, writes the same archive."""
    d = Own(tmp_path)
    try:
        d.work_by(BUILD / "libexec/carrel-image")
        put(d, archive(entry("text", b"".join(b"line %d\n" % i for i in range(3 << 20)))), name="text")
        d.until(lambda: d.workers() == [])
        many = d.request("GET", "/v1/images/text/archive", raw=True, form="tar.zst")
        cpu = min(os.sched_getaffinity(0))
        shutil.copy(BUILD / "libexec/carrel-image", d.libexec / "real")
        d.work_by_script(f'exec taskset -c {cpu} {d.libexec}/real "$@"\n')
        assert d.request("GET", "/v1/images/text/archive", raw=True, form="tar.zst") == many
    finally:
        d.stop()


def test_an_export_in_a_form_that_is_none(daemon, small):
    with pytest.raises(Refused) as refused:
        daemon.get("/v1/images/small/archive", form="zip")
    assert refused.value.code == "invalid"


def test_a_machine_becomes_an_image(daemon, small):
    m = daemon.machine(image="small")
    daemon.exec(m, "echo mine >/mine; rm /usr/bin/cp; mkdir /box && echo x >/box/y")
    made = daemon.post(f"/v1/machines/{m}/image", {"name": "mine", "env": {"A": "1"}, "workdir": "/box"})
    assert made["origin"] == "machine " + m and made["config"]["env"] == ["A=1"]
    other = daemon.machine(image="mine")
    assert daemon.get(f"/v1/machines/{other}")["cwd"] == "/box"
    out = daemon.exec(other, "pwd; echo $A; cat /mine y; ls /usr/bin/cp 2>/dev/null || echo away")["stdout"].split()
    assert out == ["/box", "1", "mine", "x", "away"], out


def test_a_machine_that_changed_nothing_is_the_image_it_came_from(daemon, small):
    m = daemon.machine(image="small")
    daemon.exec(m, "echo x >/x")
    assert daemon.post(f"/v1/machines/{m}/image", {"name": "after"})["id"] != small["id"]
    fresh_one = daemon.machine(image="small")
    assert daemon.post(f"/v1/machines/{fresh_one}/image", {"name": "same"})["id"] == small["id"]


def test_an_earlier_step_becomes_an_image(daemon, small):
    m = daemon.machine(image="small")
    daemon.exec(m, "echo 1 >/one")
    daemon.post(f"/v1/machines/{m}/steps", {"name": "then"})
    daemon.exec(m, "echo 2 >/two")
    daemon.post(f"/v1/machines/{m}/image", {"name": "was", "step": "then"})
    assert daemon.exec(daemon.machine(image="was"), "ls /one /two 2>/dev/null")["stdout"] == "/one\n"


def test_an_image_of_a_machine_in_which_something_runs(daemon, small):
    m = daemon.machine(image="small")
    daemon.exec(m, "echo here >/here")
    daemon.background(m, "sleep 100")
    daemon.post(f"/v1/machines/{m}/image", {"name": "busy"})
    assert daemon.exec(daemon.machine(image="busy"), "cat /here")["stdout"] == "here\n"
    assert daemon.get(f"/v1/machines/{m}")["commands"] == 1, "it goes on"


# ---- the command line ----


def test_snap_to_an_image_shows_how_long_it_takes(daemon, rootfs):
    put(daemon, rootfs.read_bytes(), name="c")
    m = daemon.machine(image="c")
    env = {**os.environ, "CARREL_HOME": str(daemon.home), "CARREL_RUN": str(daemon.run_dir)}
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        with subprocess.Popen([PROGRAM, "snap", m, "--image", "slow"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as snap:
            line = snap.stderr.readline()
            daemon.process.send_signal(signal.SIGCONT)
            out = snap.communicate(timeout=60 * PATIENCE)[0]
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    assert re.fullmatch(rb"making an image of '%s'  \d+ s\n" % m.encode(), line) and out.startswith(b"slow i-"), (line, out)


def test_the_command_line_does_all_of_it(daemon, rootfs, tmp_path):
    assert cli(daemon, "image", "import", rootfs, "--name", "c").stdout.startswith(b"c i-")
    listed = cli(daemon, "image", "ls").stdout.decode()
    assert listed.splitlines()[1].split()[0] == "c"
    first = json.loads(cli(daemon, "image", "show", "c", "--json").stdout)
    assert cli(daemon, "image", "export", "c", "--oci", tmp_path / "oci").returncode == 0
    assert sorted(os.listdir(tmp_path / "oci")) == ["blobs", "index.json", "oci-layout"]
    assert cli(daemon, "image", "export", "c", "--tar", tmp_path / "c.tar.zst").returncode == 0
    for i, source in enumerate((tmp_path / "oci", tmp_path / "c.tar.zst")):
        done = cli(daemon, "image", "import", source, "--name", f"c{i}")
        assert done.stdout.split()[1].decode() == first["id"], done
    with open(rootfs, "rb") as stream:
        assert cli(daemon, "image", "import", "-", "--name", "c3", stdin=stream).stdout.split()[1].decode() == first["id"]
    done = cli(daemon, "run", "--image", "c", "--", "ls", "/srv")
    assert (done.returncode, done.stdout) == (0, b"app\n"), done
    m = cli(daemon, "new", "--image", "c").stdout.decode().strip()
    assert cli(daemon, "exec", m, "--", "touch", "/t").returncode == 0
    assert cli(daemon, "snap", m, "--image", "snapped").stdout.startswith(b"snapped i-")
    assert b"c0: name deleted; its files are kept while 1 machine uses them\n" in cli(daemon, "image", "rm", "c", "c0", "c1", "c3").stdout
    assert cli(daemon, "image", "prune").stdout.startswith(b"0 intermediate images deleted")


@pytest.mark.parametrize("words,said", [
    (["image"], b"carrel image requires a subcommand"), (["image", "grow"], b"unknown subcommand 'grow'"), (["image", "import"], b"missing argument: file"),
    (["image", "import", "/nowhere"], b"cannot open image archive or OCI layout '/nowhere'"), (["image", "import", "/etc"], b"'/etc' is not an OCI layout"),
    (["image", "export", "x"], b"carrel image export requires --oci DIR, --packs DIR or --tar FILE"), (["image", "show", "x"], b"image 'x' does not exist"),
    (["image", "rm"], b"missing argument: image"), (["image", "ls", "x"], b"unexpected argument"), (["new", "--image", "x"], b"image 'x' does not exist")])
def test_what_makes_no_sense_is_said_in_one_line(daemon, words, said):
    done = cli(daemon, *words)
    assert done.returncode == 125 and said in done.stderr and done.stderr.count(b"\n") == 1, done


def test_an_export_does_not_write_over_anything(daemon, small, tmp_path):
    (tmp_path / "x").write_text("mine")
    done = cli(daemon, "image", "export", "small", "--oci", tmp_path)
    assert done.returncode == 125 and b"is not empty" in done.stderr and (tmp_path / "x").read_text() == "mine"


# ---- ready boxes ----

def box_pid(daemon, machine):
    return int(re.search(r"^pid=(\d+)", (daemon.run_dir / "boxes" / machine / "box").read_text(), re.M).group(1))


def ready(daemon, least=1):
    """Guests of boxes of images that wait, once there are so many."""
    def pool():
        return daemon.get("/v1/status")["box"]["pool"]

    daemon.until(lambda: pool()["ready_of_images"] >= least and pool()["ready"] == pool()["ready_wanted"])
    return set(daemon.host.ready().values())


def test_boxes_of_an_image_that_is_asked_for_wait_ready(daemon, small):
    first = daemon.machine(image="small")
    waiting = ready(daemon)
    m = daemon.machine(image="small", name="named", limits={"pids": 50}, env={"A": "b"})
    assert box_pid(daemon, m) in waiting
    assert daemon.exec(m, "echo $A; hostname; echo x >/x; cat /x")["stdout"].split()[-1] == "x"
    daemon.exec(m, "echo y >/y")
    daemon.post(f"/v1/machines/{m}/rewind", {"step": "1"})
    assert daemon.exec(m, "ls /x /y 2>/dev/null")["stdout"] == "/x\n"
    fork = daemon.post(f"/v1/machines/{m}/fork", {})["machines"][0]["id"]
    assert daemon.exec(fork, "cat /x")["stdout"] == "x\n"
    assert daemon.exec(first, "ls /x 2>/dev/null || echo apart")["stdout"] == "apart\n"


def start_build(daemon, command):
    build = daemon.post("/v1/images/builds", {"base": "small", "steps": [{"what": "x", "make": True, "command": command, "user": "root", "cwd": "/"}]})["id"]
    return daemon.until(lambda: [m["id"] for m in daemon.get("/v1/machines")["machines"] if m.get("metadata", {}).get("build") == build and m["state"] == "running"])[0]


@pytest.mark.skipif(ROOTLESS, reason="disks of an ordinary user are in memory")
def test_box_of_a_build_waits_ready(daemon, small):
    """Its disk is larger than the default one. A box of another size is not used."""
    def size(machine):
        return int(daemon.exec(machine, "stat -f -c '%S %b' / | { read s b; echo $((s * b >> 20)); }")["stdout"])

    first = start_build(daemon, "sleep 1000")
    waiting = ready(daemon)
    other = daemon.machine(image="small", limits={"disk": "3G"})
    second = start_build(daemon, "sleep 1001")
    assert box_pid(daemon, second) in waiting and box_pid(daemon, other) not in waiting
    assert 7000 < size(first) == size(second) <= 8192 and 2500 < size(other) <= 3072


def test_an_image_goes_though_boxes_of_it_wait(daemon, small):
    daemon.machine(image="small")
    ready(daemon)
    daemon.clear()
    daemon.delete("/v1/images/small")
    daemon.until(lambda: not list((daemon.home / "images").glob("i-*")))
    assert daemon.get("/v1/status")["box"]["pool"]["ready_of_images"] == 0


# ---- metrics and taint ----


def metric(daemon, line):
    text = daemon.request("GET", "/metrics", raw=True).decode()
    return int(next(row.split()[-1] for row in text.splitlines() if row.startswith(line + " ")))


def test_metrics_tell_of_images(daemon, rootfs):
    work = 'carrel_image_work_total{work="import"}'
    before, names = metric(daemon, work), metric(daemon, 'carrel_images{of="names"}')
    put(daemon, rootfs.read_bytes(), name="build:counted")
    cached = metric(daemon, 'carrel_image_build_instructions_total{way="cached"}')
    daemon.get("/v1/images/build:counted")
    assert metric(daemon, 'carrel_image_build_instructions_total{way="cached"}') == cached + 1
    assert metric(daemon, work) == before + 1
    assert metric(daemon, 'carrel_images{of="names"}') == names + 1
    assert metric(daemon, "carrel_images_bytes") > 0
    failed = 'carrel_image_failures_total{work="import"}'
    was = metric(daemon, failed)
    with pytest.raises(Refused):
        put(daemon, b"no archive at all", name="broken")
    assert metric(daemon, failed) == was + 1


def test_an_image_of_a_tainted_machine_taints_what_is_made_from_it(daemon, small):
    """The control is the image that it was made from itself."""
    m = daemon.machine(image=small["id"])
    daemon.post(f"/v1/machines/{m}/grants", {"kind": "env", "what": "WORD", "value": "of a stranger", "untrusted": True})
    assert daemon.post(f"/v1/machines/{m}/image", {"name": "unchanged"})["id"] == small["id"]
    assert daemon.exec(m, "echo theirs > /theirs", user="root")["exec"]["status"] == 0
    made = daemon.post(f"/v1/machines/{m}/image", {"name": "theirs"})
    daemon.post(f"/v1/images/{made['id']}/names", {"name": "called-otherwise"})
    for image, source in ((small["id"], None), ("theirs", "WORD"), (made["id"], "WORD"), ("called-otherwise", "WORD")):
        one = daemon.machine(image=image)
        assert daemon.get(f"/v1/machines/{one}/net").get("tainted") == source, image
    daemon.restart()
    again = daemon.machine(image="theirs")
    assert daemon.get(f"/v1/machines/{again}/net").get("tainted") == "WORD"


def told(client, machine):
    """All that an owner is told of images, except ids and what the image itself consists of."""
    views = [*client.get("/v1/images")["images"], client.get(f"/v1/machines/{machine}")]
    return json.dumps([views, client.get("/v1/status"), client.request("GET", "/metrics", raw=True).decode()])


def test_owner_is_told_nothing_of_another_owner_with_the_same_image(fresh, rootfs):
    """Both have the same files, so both have the same tree on the disk."""
    daemon = fresh("--listen", "127.0.0.1:0")
    theirs, mine, admin = (daemon.tcp(owner=o, scopes=s) for o, s in (
        ("theirs", ["read", "run"]), ("mine", ["read", "run"]), ("admin", ["read", "run", "admin"])))
    for client, name in ((theirs, "a-secret"), (theirs, "build:theirs"), (mine, "mine"), (mine, "build:mine")):
        put(client, rootfs.read_bytes(), name=name)
    for _ in range(3):
        theirs.machine(image="a-secret")
    m = mine.machine(image="mine")
    assert mine.get(f"/v1/machines/{m}")["image"] in ("mine", "build:mine")
    assert [i["machines"] for i in mine.get("/v1/images")["images"]] == [1, 1]
    assert [i["machines"] for i in theirs.get("/v1/images")["images"]] == [3, 3], "the control"
    assert mine.get("/v1/images/mine")["machines"] == 1
    assert "secret" not in told(mine, m) and "theirs" not in told(mine, m)
    assert "cgroups" not in mine.get("/v1/status")["box"] and "cgroups" in admin.get("/v1/status")["box"]
    # A machine outlives the names of its image.
    mine.delete("/v1/images/mine")
    mine.delete("/v1/images/build:mine")
    daemon.restart()
    mine.port = theirs.port = daemon.port
    assert mine.get(f"/v1/machines/{m}")["image"].startswith("i-")
    assert "secret" not in told(mine, m)
    assert "secret" in told(theirs, theirs.machines()[0]["id"]), "the control"


def test_machines_of_another_owner_do_not_keep_build_steps_of_mine(fresh, rootfs):
    daemon = fresh("--listen", "127.0.0.1:0")
    theirs, mine = (daemon.tcp(owner=o, scopes=["read", "run"]) for o in ("theirs", "mine"))
    for client in (theirs, mine):
        put(client, rootfs.read_bytes(), name="build:step")
    m = theirs.machine(image="build:step")
    assert mine.post("/v1/images/prune")["removed"] == 1
    assert theirs.post("/v1/images/prune")["removed"] == 0, "the control"
    assert theirs.exec(m, "echo works")["stdout"] == "works\n"


# ---- files of machines belong to the image's user ----


@pytest.fixture(params=[None, "app", "0", "77:88"])
def owned(request, daemon, rootfs):
    """A machine whose image has this user, and the ids of that user."""
    put(daemon, layout([rootfs.read_bytes()], config={"User": request.param} if request.param else {}), name="owned")
    m = daemon.machine(image="owned")
    assert daemon.exec(m, "mkdir -m 777 /open", user="root")["exec"]["status"] == 0
    return m, {"app": (1234, 1235), "77:88": (77, 88)}.get(request.param, (0, 0))


def ids_of(daemon, machine, *paths):
    out = daemon.exec(machine, "stat -c '%u %g' " + " ".join(paths), user="root")
    assert out["exec"]["status"] == 0, out
    return [tuple(map(int, line.split())) for line in out["stdout"].splitlines()]


def test_copies_belong_to_the_user_of_the_image(daemon, owned, tmp_path):
    machine, ids = owned
    (tmp_path / "file").write_text("one\n")
    (tmp_path / "tree/sub").mkdir(parents=True)
    (tmp_path / "tree/sub/deep").write_text("two\n")
    for source, to in (("file", "file"), ("tree", "tree")):
        done = cli(daemon, "cp", tmp_path / source, f"{machine}:/open/{to}")
        assert done.returncode == 0, done
    assert ids_of(daemon, machine, "/open/file", "/open/tree", "/open/tree/sub", "/open/tree/sub/deep") == [ids] * 4
    # A file that only this user may read is copied out again.
    daemon.exec(machine, "chmod 600 /open/file; chmod 700 /open/tree", user="root")
    for source, to in (("file", "back"), ("tree", "back-tree")):
        assert cli(daemon, "cp", f"{machine}:/open/{source}", tmp_path / to).returncode == 0
    assert (tmp_path / "back").read_text() == "one\n" and (tmp_path / "back-tree/sub/deep").read_text() == "two\n"


def test_files_by_url_belong_to_the_user_of_the_image(daemon, owned):
    machine, ids = owned

    def by_url(method, body=None):
        c = daemon.connect()
        c.request(method, "/v1/transfers/" + daemon.ticket("upload" if body else "download", machine, "/open/file"), body=body)
        answer = c.getresponse()
        text = answer.read()
        c.close()
        assert answer.status == 200, text
        return text

    by_url("PUT", b"one\n")
    assert ids_of(daemon, machine, "/open/file") == [ids]
    daemon.exec(machine, "chmod 600 /open/file", user="root")
    assert by_url("GET") == b"one\n"


def test_relative_path_of_a_copy_starts_at_the_home_of_the_user(daemon, owned, tmp_path):
    machine, ids = owned
    home = daemon.get(f"/v1/machines/{machine}")["home"]
    assert home == daemon.exec(machine, "echo $HOME")["stdout"].strip()
    daemon.exec(machine, f"mkdir -p {home}; chmod 777 {home}", user="root")
    (tmp_path / "file").write_text("one\n")
    done = cli(daemon, "cp", tmp_path / "file", f"{machine}:there")
    assert done.returncode == 0, done
    assert daemon.exec(machine, f"cat {home}/there")["stdout"] == "one\n"


def test_file_routes_act_as_the_user_of_the_image(daemon, owned):
    machine, ids = owned
    files = f"/v1/machines/{machine}/files"
    daemon.request("PUT", files, b"x", path="/open/put")
    daemon.post(files + "/mkdir", {"path": "/open/a/b"})
    daemon.post(files + "/symlink", {"path": "/open/link", "target": "put"})
    assert ids_of(daemon, machine, "/open/put", "/open/a", "/open/a/b", "/open/link") == [ids] * 4
    daemon.post(files + "/chmod", {"path": "/open/put", "mode": "600"})
    daemon.post(files + "/move", {"from": "/open/put", "to": "/open/a/put"})
    assert daemon.request("GET", files, raw=True, path="/open/a/put") == b"x"
    assert [e["name"] for e in daemon.get(files + "/list", path="/open/a")["entries"]] == ["b", "put"]
    daemon.delete(files, path="/open/a", recursive=1)


def test_user_of_a_request_replaces_that_of_the_image(daemon, owned):
    """An image's user is no reason to act as root: an unprivileged user that was asked for stays one."""
    machine, _ = owned
    files = f"/v1/machines/{machine}/files"
    for user, ids in (("user", (1000, 1000)), ("5", (5, 5)), ("root", (0, 0))):
        daemon.request("PUT", files, b"x", path=f"/open/{user}", user=user)
        assert ids_of(daemon, machine, f"/open/{user}") == [ids]
    with pytest.raises(Refused) as why:
        daemon.request("PUT", files, b"x", path="/etc/mine", user="user")
    assert why.value.code == "denied", why.value
