"""Machines of the kind cell: commands are WebAssembly programs of the image, the rest is as in a box."""
import base64
import json
import pathlib
import subprocess

import pytest

import cells
from carrel import BUILD, PROGRAM, Terminal
from daemon import Refused

IMAGE = "programs"


@pytest.fixture
def cell(daemon):
    """Makes cell machines of an image with the programs of tests/cells.py and a native program."""
    if IMAGE not in [i["name"] for i in daemon.get("/v1/images")["images"]]:
        native = pathlib.Path(BUILD / "libexec/carrel-guest").read_bytes()
        daemon.request("POST", "/v1/images", cells.image(native=native, script=b"#!/native\n"), name=IMAGE)

    def make(**fields):
        return daemon.machine(**{"kind": "cell", "image": IMAGE, **fields})
    return make


def run(daemon, machine, *argv, **fields):
    """Exit status, standard output and standard error."""
    r = daemon.exec(machine, list(argv), **fields)
    out, err = (r[s] if s in r else base64.b64decode(r[s + "_base64"]).decode() for s in ("stdout", "stderr"))
    return r["exec"]["status"], out, err


def refused(call, *args, **fields):
    with pytest.raises(Refused) as why:
        call(*args, **fields)
    return why.value


# ---- commands ----

def test_exec_runs_a_program_by_name_with_its_words_input_and_variables(daemon, cell):
    m = cell(env={"OF": "machine"})
    assert run(daemon, m, "hello") == (3, "hello\n", "")
    assert run(daemon, m, "args", "one", "two words") == (0, "args\0one\0two words\0", "")
    assert run(daemon, m, "cat", stdin="given\n") == (0, "given\n", "")
    assert run(daemon, m, "env", env={"OWN": "x"})[1] == "OF=machine\0OWN=x\0"
    assert run(daemon, m, "/bin/hello.wasm") == (3, "hello\n", "")


def test_exec_record_has_the_callers_words_and_the_fuel(daemon, cell):
    m = cell()
    first, second = (daemon.exec(m, ["hello"])["exec"] for _ in range(2))
    assert first["argv"] == ["hello"]
    assert first["usage"]["fuel"] == second["usage"]["fuel"] > 0
    kept, = [x for x in daemon.get(f"/v1/machines/{m}/execs")["execs"] if x["id"] == first["id"]]
    assert kept["usage"]["fuel"] == first["usage"]["fuel"]


def test_failures_have_the_exit_status_of_a_shell_and_a_reason(daemon, cell):
    m = cell(limits={"mem": 64 << 20, "fuel": 5_000_000})
    for words, status, reason in [
            (["nothing"], 127, "program 'nothing' does not exist in this machine"),
            (["/data/none"], 127, "program '/data/none' does not exist"),
            (["/data"], 126, "'/data' is not a file"),
            (["strange"], 126, "imports carrel.log, which was not granted"),
            (["large"], 125, "--mem is "),
            (["grow"], 134, "trap: unreachable"),
            (["trap"], 134, "trap: unreachable"),
            (["spin"], 152, "out of fuel: 5000000 spent")]:
        got, _, said = run(daemon, m, *words)
        assert (got, reason in said) == (status, True), (words, got, said)


def test_fuel_of_a_program_that_was_killed_is_known(daemon, cell):
    m = cell()
    x = daemon.exec(m, ["spin"], timeout=0.5)["exec"]
    assert x["reason"] == "timeout" and x["usage"]["fuel"] > 1_000_000
    running = daemon.post(f"/v1/machines/{m}/execs", {"argv": ["spin"], "background": True})["id"]
    daemon.post(f"/v1/machines/{m}/execs/{running}/signal", {"signal": "KILL"})
    killed = daemon.wait(m, running)
    assert (killed["reason"], killed["signal"]) == ("signal", 9)
    assert run(daemon, m, "hello")[0] == 3


def test_fuel_rate_slows_a_program_down(daemon, cell):
    """At most two seconds' worth of fuel is used in one second."""
    m = cell(limits={"fuel_rate": 1_000_000})
    x = daemon.exec(m, ["spin"], timeout=1)["exec"]
    assert x["reason"] == "timeout" and 0 < x["usage"]["fuel"] <= 2_000_000


def test_fuel_limit_can_be_changed(daemon, cell):
    m = cell()
    assert daemon.get(f"/v1/machines/{m}")["limits"]["fuel"] == 100_000_000_000
    assert daemon.patch(f"/v1/machines/{m}", {"limits": {"fuel": 1000}})["limits"]["fuel"] == 1000
    assert daemon.exec(m, ["spin"])["exec"]["usage"]["fuel"] == 1000
    most = 2 ** 50
    assert daemon.patch(f"/v1/machines/{m}", {"limits": {"fuel": most, "fuel_rate": most}})["limits"]["fuel"] == most
    assert run(daemon, m, "hello")[0] == 3
    assert refused(daemon.patch, f"/v1/machines/{m}", {"limits": {"fuel": most + 1}}).code == "invalid"
    assert refused(cell, limits={"fuel_rate": most + 1}).code == "invalid"


def test_running_program_is_found_again_by_the_next_daemon(fresh):
    d = fresh()
    d.request("POST", "/v1/images", cells.image(), name=IMAGE)
    m = d.machine(kind="cell", image=IMAGE)
    x = d.post(f"/v1/machines/{m}/execs", {"argv": ["spin"], "background": True, "timeout": 3})["id"]
    d.restart()
    done = d.wait(m, x)
    assert done["reason"] == "timeout" and done["usage"]["fuel"] > 1_000_000


# ---- capabilities ----

def test_programs_have_the_capabilities_of_their_machine(daemon, cell):
    m = cell(allow="result,args", name="capable")
    assert daemon.get(f"/v1/machines/{m}")["allow"] == "args,result"
    assert run(daemon, m, "echo", "one", "two words") == (0, '["one","two words"]\n', "")
    status, out, said = run(daemon, m, "caller")
    assert (status, out) == (126, "") and "imports carrel.1.call, which was not granted" in said
    command = said.split("grant it: ")[1].split()
    assert command == ["carrel", "set", "capable", "--allow", "args,result,call"]
    assert daemon.patch(f"/v1/machines/{m}", {"allow": command[-1]})["allow"] == "args,result,call"
    assert run(daemon, m, "caller") == (0, "7\n", "")
    assert "allow" not in daemon.patch(f"/v1/machines/{m}", {"allow": ""})
    assert run(daemon, m, "echo")[0] == 126


def test_cell_has_no_capabilities_by_default_and_a_box_never(daemon, cell):
    m = cell()
    assert "allow" not in daemon.get(f"/v1/machines/{m}")
    status, _, said = run(daemon, m, "echo")
    assert status == 126 and f"carrel set {m} --allow args,result" in said
    assert refused(daemon.machine, allow="log").code == "unsupported"
    assert refused(daemon.patch, f"/v1/machines/{daemon.machine()}", {"allow": "log"}).code == "unsupported"
    why = refused(cell, allow="log,fly")
    assert why.code == "invalid" and "capability 'fly' does not exist" in str(why)


def test_fork_and_the_next_daemon_keep_the_capabilities(fresh):
    d = fresh()
    d.request("POST", "/v1/images", cells.image(), name=IMAGE)
    m = d.machine(kind="cell", image=IMAGE, allow="args,result")
    fork, = d.post(f"/v1/machines/{m}/fork", {})["machines"]
    d.restart()
    for id in (m, fork["id"]):
        assert d.get(f"/v1/machines/{id}")["allow"] == "args,result"
        assert run(d, id, "echo", "x")[:2] == (0, '["x"]\n')


def test_called_program_uses_the_fuel_of_the_command(daemon, cell):
    m = cell(allow="args,result,call")
    fuel = lambda *words: daemon.exec(m, list(words))["exec"]["usage"]["fuel"]
    assert fuel("caller") > fuel("echo", "7") + 2000
    daemon.patch(f"/v1/machines/{m}", {"limits": {"fuel": 4000}})
    assert daemon.exec(m, ["caller"])["exec"]["usage"]["fuel"] <= 4000


def test_steps_rewind_and_fork_keep_the_keys_of_a_cell(daemon, cell):
    m = cell(allow="kv,result")
    count = lambda id: run(daemon, id, "count")
    assert [count(m) for _ in "ab"] == [(0, "1\n", ""), (0, "2\n", "")]
    step = daemon.post(f"/v1/machines/{m}/steps", {"name": "two"})["id"]
    assert count(m)[1] == "3\n"
    fork = daemon.post(f"/v1/machines/{m}/fork", {"step": step})["machines"][0]["id"]
    assert [count(fork)[1] for _ in "ab"] == ["3\n", "4\n"] and count(m)[1] == "4\n"
    daemon.post(f"/v1/machines/{m}/rewind", {"step": step})
    assert count(m)[1] == "3\n"
    assert count(cell(allow="kv,result"))[1] == "1\n"  # another machine has its own keys


# ---- native programs ----

def test_native_programs_never_run_in_a_cell(daemon, cell):
    m = cell()
    box = daemon.machine(image=IMAGE)
    native = ["tool", "sha256", "/bin/hello.wasm"]
    # control: the same files of the same image run in a box
    assert run(daemon, box, "/native", *native)[0] == 0
    assert run(daemon, box, "native", *native, env={"PATH": "/"})[0] == 0
    daemon.put(f"/v1/machines/{m}/files", pathlib.Path(BUILD / "libexec/carrel-guest").read_bytes(), path="/bin/own.wasm")
    daemon.post(f"/v1/machines/{m}/files/chmod", {"path": "/bin/own.wasm", "mode": "755"})
    daemon.post(f"/v1/machines/{m}/files/symlink", {"target": "/native", "path": "/bin/link.wasm"})
    for words, status, said in [(["/native"], 126, "is a native program"), (["own"], 126, "is a native program"),
                                (["link"], 126, "is a native program"), (["../native"], 126, "is a native program"),
                                (["/script"], 126, "is a script"), (["native"], 127, "does not exist")]:
        got = run(daemon, m, *words, *native, env={"PATH": "/"})
        assert got[0] == status and said in got[2] and got[1] == "", (words, got)


def test_cell_is_never_made_of_a_box_that_is_kept_ready(daemon, cell):
    """Its guest would run files of the image as native programs."""
    cell()
    for _ in range(2):
        daemon.machine(image=IMAGE)
    pool = daemon.get("/v1/status")["box"]["pool"]
    if not pool["ready_wanted"]:
        pytest.skip("this host keeps no boxes ready")
    daemon.until(lambda: daemon.get("/v1/status")["box"]["pool"]["ready_of_images"] > 0)
    m = cell()
    assert run(daemon, m, "hello")[0] == 3
    assert run(daemon, m, "/native")[0] == 126


def test_programs_see_only_the_files_of_the_machine(daemon, cell):
    m = cell()
    assert run(daemon, m, "look", "bin/hello.wasm")[0] == 0
    for path in ("proc/self/status", "dev/null", "run/carrel/machine.json", "usr/bin/env", "etc/passwd"):
        assert run(daemon, m, "look", path)[0] == cells.NOENT, path
    assert run(daemon, m, "look", "../../etc/passwd")[0] != 0


# ---- what a cell cannot do ----

def test_command_on_a_terminal_runs_without_one(daemon, cell):
    m = cell()

    class At:
        @staticmethod
        def popen(*words, env, **kw):
            return subprocess.Popen([PROGRAM, *words], env={**daemon.env, **env}, **kw)

    assert Terminal(At, "exec", m, "--", "hello").close() == (3, b"hello\r\n")
    for words in (["exec", "--tty", m, "--", "hello"], ["sh", m]):
        status, text = Terminal(At, *words).close()
        assert status == 125 and b"a cell machine does not support terminals: run a program with carrel exec, without --tty" in text, text


def test_help_of_cell_describes_its_verbs():
    done = subprocess.run([PROGRAM, "cell", "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "carrel cell check FILE [OPTIONS]\n  validate a program" in done.stdout, done


def test_unsupported_operations_say_so(daemon, cell):
    m = cell()
    execs = f"/v1/machines/{m}/execs"
    for call, args in [(daemon.post, (execs, {"command": "echo hi"})),
                       (daemon.post, (execs, {"argv": ["hello"], "terminal": True, "background": True})),
                       (daemon.post, (execs, {"argv": ["hello"], "user": "user"})),
                       (daemon.post, (execs, {"argv": ["hello"], "cwd": "/data"})),
                       (daemon.post, (f"/v1/machines/{m}/exposures", {"port": 80})),
                       (daemon.post, (f"/v1/machines/{m}/grants", {"kind": "env", "what": "A", "value": "b"})),
                       (daemon.patch, (f"/v1/machines/{m}", {"limits": {"pids": 9}}))]:
        why = refused(call, *args)
        assert (why.code, why.status) == ("unsupported", 501), (args, why)
    for fields in ({"limits": {"pids": 9}}, {"guard": True},
                   {"grants": [{"kind": "env", "what": "A", "value": "b"}]}):
        assert refused(cell, **fields).code == "unsupported", fields
    assert refused(cell, volumes=[{"name": "data", "at": "/data"}]).code == "unsupported"
    assert refused(daemon.machine, limits={"fuel": 5}).code == "unsupported"
    assert refused(daemon.machine, kind="cell").code == "invalid"


# ---- as in a box ----

def test_files_written_by_a_program_are_the_machines_files(daemon, cell):
    m = cell()
    assert run(daemon, m, "put", "data/kept")[0] == 0
    assert daemon.get(f"/v1/machines/{m}/files", path="/data/kept") == b"kept\n"
    daemon.put(f"/v1/machines/{m}/files", b"mine\n", path="/data/mine")
    assert run(daemon, m, "look", "data/mine")[0] == 0
    changes = daemon.get(f"/v1/machines/{m}/diff")["changes"]
    assert {c["path"] for c in changes} == {"data/kept", "data/mine"}, changes


def test_steps_rewind_and_fork_keep_the_files_of_a_cell(daemon, cell):
    m = cell()
    assert run(daemon, m, "put", "data/one")[0] == 0
    step = daemon.post(f"/v1/machines/{m}/steps", {"name": "first"})["id"]
    assert run(daemon, m, "put", "data/two")[0] == 0
    fork = daemon.post(f"/v1/machines/{m}/fork", {"step": step})["machines"][0]["id"]
    shown = daemon.get(f"/v1/machines/{fork}")
    assert (shown["kind"], shown["limits"]["fuel"]) == ("cell", 100_000_000_000)
    assert [run(daemon, fork, "look", f"data/{n}")[0] for n in ("one", "two")] == [0, cells.NOENT]
    daemon.post(f"/v1/machines/{m}/rewind", {"step": step})
    assert [run(daemon, m, "look", f"data/{n}")[0] for n in ("one", "two")] == [0, cells.NOENT]
    # native programs do not run in the new roots, either
    assert run(daemon, m, "/native")[0] == run(daemon, fork, "/native")[0] == 126


def test_pause_stop_and_resume_keep_a_cell(daemon, cell):
    m = cell()
    assert run(daemon, m, "put", "data/one")[0] == 0
    for verb in ("pause", "stop"):
        daemon.post(f"/v1/machines/{m}/{verb}")
        daemon.post(f"/v1/machines/{m}/resume")
        assert run(daemon, m, "look", "data/one")[0] == 0
        assert run(daemon, m, "/native")[0] == 126


def test_directories_are_copied_in_and_out_and_shipped(carrel, tmp_path):
    (tmp_path / "programs.tar").write_bytes(cells.image())
    assert carrel("image", "import", tmp_path / "programs.tar", "--name", IMAGE).returncode == 0
    assert carrel("new", "--kind", "cell", "--image", IMAGE, "--name", "c").returncode == 0
    (tmp_path / "in").mkdir()
    (tmp_path / "in/one").write_text("1\n")
    assert carrel("cp", tmp_path / "in", "c:/tree").returncode == 0
    assert carrel("exec", "c", "--", "put", "tree/two").returncode == 0
    assert carrel("cp", "c:/tree", tmp_path / "out").returncode == 0
    assert {f.name: f.read_text() for f in (tmp_path / "out").iterdir()} == {"one": "1\n", "two": "kept\n"}
    (tmp_path / "shipped").mkdir()
    assert carrel("ship", "c:/tree", tmp_path / "shipped", "--yes").returncode == 0
    assert (tmp_path / "shipped/two").read_text() == "kept\n"
    assert b"tree/two" in carrel("logs", "c").stdout
    assert json.loads(carrel("stats", "c", "--json").stdout)["disk_bytes"] > 0
    assert carrel("rm", "c").returncode == 0


def test_image_of_programs_is_built_without_running_anything(carrel, tmp_path):
    (tmp_path / "programs.tar").write_bytes(cells.image())
    assert carrel("image", "import", tmp_path / "programs.tar", "--name", "base").returncode == 0
    (tmp_path / "recipe").mkdir()
    (tmp_path / "recipe/again.wasm").write_text(cells.PROGRAMS["hello"])
    (tmp_path / "recipe/Dockerfile").write_text("FROM base\nCOPY again.wasm /bin/\nENV OF=image\n")
    assert carrel("image", "build", tmp_path / "recipe", "--name", "more").returncode == 0
    assert carrel("new", "--kind", "cell", "--image", "more", "--name", "m").returncode == 0
    again, env = (carrel("exec", "m", "--", name) for name in ("again", "env"))
    assert (again.returncode, again.stdout) == (3, b"hello\n")
    said = [carrel("exec", *options, "m", "--", "again") for options in (["--verbose"], ["--json"])]
    assert f"; fuel {json.loads(said[1].stdout)['usage']['fuel']}\n".encode() in said[0].stderr
    assert b"OF=image" in env.stdout.split(b"\0")
    assert carrel("rm", "m").returncode == 0


def test_ttl_and_idle_end_and_wake_a_cell(daemon, cell):
    m = cell(ttl=1)
    daemon.until(lambda: m not in [x["id"] for x in daemon.machines()])
    m = cell(idle=0.3, idle_action="stop")
    daemon.until(lambda: daemon.get(f"/v1/machines/{m}")["state"] == "stopped")
    assert run(daemon, m, "hello")[0] == 3
