"""doctor, version, help; and every kind of bad input: one line, exit 125, nothing left."""
import json
import os
import pathlib
import re
import subprocess

import pytest
from carrel import PROGRAM, ROOTLESS, Carrel
from patience import PATIENCE

CHECKS = ["kernel", "boxes", "privilege", "cgroups", "favordynmods", "userns", "overlay", "idmapped", "seccomp", "disk limit", "network",
          "vm", "kvm", "criu", "btrfs", "images", "daemon", "room", "unknown boxes"]


def test_version(carrel):
    for words in (["version"], ["--version"]):
        done = carrel(*words)
        name, version = done.stdout.decode().split()
        assert done.returncode == 0 and name == "carrel" and version.count(".") == 2


def test_overview(carrel):
    for words in (["help"], ["--help"], ["-h"]):
        done = carrel(*words)
        assert done.returncode == 0 and done.stderr == b""
        for name in ("run", "exec", "ls", "rm", "doctor", "version"):
            assert f"\n  {name} " in done.stdout.decode()
        groups = re.findall(r"^(\S.*):$", done.stdout.decode(), re.M)
        assert groups == ["Run commands", "Machines", "Steps (snapshots)", "Agents", "Network and grants", "Images and storage", "This host",
                          "Other"]


def test_words_of_docker_are_understood(carrel):
    assert carrel("ps", "--json").stdout == carrel("ls", "--json").stdout
    done = carrel("inspect", "no-such")
    assert (done.returncode, done.stderr) == (125, carrel("show", "--json", "no-such").stderr) and done.stderr


def test_no_command_shows_the_overview_as_an_error(carrel):
    done = carrel()
    assert done.returncode == 125 and done.stdout == b"" and b"usage: carrel" in done.stderr


@pytest.mark.parametrize("name", ["run", "exec", "ls", "rm", "doctor"])
def test_help_of_a_command(carrel, name):
    first, second = carrel(name, "--help"), carrel("help", name)
    assert first.returncode == 0 and first.stdout == second.stdout and first.stdout.startswith(b"usage: carrel " + name.encode())


LIKE_DOCKER = {("image", "recipe")}  # `docker build -f`: elsewhere -f is --follow


def options_of(carrel):
    """Each row of an option table: command, letter, name, value."""
    for line in carrel("help").stdout.decode().splitlines():
        command = line.split()[0] if line.startswith("  ") else ""
        for row in carrel(command, "--help").stdout.decode().splitlines() if command not in ("", "cell", "wast") else ():
            if found := re.match(r"  (?:-(.),|   ) --([a-z-]+)(?: (\S+))?( |$)", row):
                letter, name, value = found.groups()[:3]
                yield command, None if (command, name) in LIKE_DOCKER else letter, name, value


def test_an_option_means_the_same_in_every_command(carrel):
    rows = list(options_of(carrel))
    assert len(rows) > 100
    for _, letter, name, value in rows:
        assert {n for _, le, n, _ in rows if le == letter} == {name} or letter is None, (letter, name)
        if name != "resume":  # do: a run by its id; agent: the session of this directory
            assert {bool(v) for _, _, n, v in rows if n == name} == {bool(value)}, name
    assert not {"lifetime", "tail", "take-steps", "wall"} & {name for _, _, name, _ in rows}
    assert {value for _, _, name, value in rows if name == "steps"} == {"every|risky|manual"}


def test_the_table_of_options_is_true(carrel):
    page = (pathlib.Path(__file__).parents[2] / "docs/reference/cli.md").read_text()
    rows = re.findall(r"^\| (`-.*?) \| .* \| (.*) \|$", page, re.M)
    assert len(rows) > 15
    told = {}
    for options, commands in rows:
        for command in (words.split()[0] for words in re.findall(r"`([^`]*)`", commands)):
            told.setdefault(command, carrel(command, "--help").stdout.decode())
            for option in re.findall(r"`(--?[A-Za-z-]+)", options):
                assert re.search(rf"{re.escape(option)}\b", told[command]), (command, option)


def test_doctor_table(carrel):
    done = carrel("doctor")
    text = done.stdout.decode()
    assert done.returncode == 0 and done.stderr == b""
    for name in CHECKS:
        assert any(line.startswith(name) for line in text.splitlines()), name


def test_doctor_json(carrel):
    told = json.loads(carrel("doctor", "--json").stdout)
    rows = {c["name"]: c for c in told["checks"]}
    assert list(rows) == CHECKS
    for row in rows.values():
        assert set(row) == {"name", "verdict", "found", "used", "fix"} and row["verdict"] in ("ok", "less", "missing")
        assert row["found"] and row["used"]
        assert row["fix"] or row["verdict"] == "ok" or row["name"] in ("idmapped", "criu"), row
    assert not rows["criu"]["fix"], "no version of Carrel uses it, on whatever kernel"
    assert rows["boxes"]["verdict"] == "ok"
    assert (rows["privilege"]["verdict"] == "ok") != ROOTLESS


def test_doctor_tells_what_cannot_start(tmp_path):
    """Where no spawner can start, doctor still answers, and fails."""
    env = {"PATH": "/usr/bin:/bin", "CARREL_RUN": "/proc/nowhere", "CARREL_HOME": str(tmp_path)}
    done = subprocess.run([PROGRAM, "doctor"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 1 and b"no box can start" in done.stdout


def test_change_sets_of_an_empty_place_are_an_empty_list(tmp_path):
    env = {"PATH": "/usr/bin:/bin", "CARREL_RUN": str(tmp_path / "run"), "CARREL_HOME": str(tmp_path / "home")}
    for words, said in ((["ship", "--ls"], b""), (["ship", "--ls", "--json"], b'{"changesets":[]}\n')):
        done = subprocess.run([PROGRAM, *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert (done.returncode, done.stdout) == (0, said), done
    assert subprocess.run([PROGRAM, "ship", "--ls", "m-1"], env=env, capture_output=True).returncode == 125
    assert not (tmp_path / "home").exists()


BAD = [
    (["run"], "no command"), (["run", "--"], "no command"), (["run", "--no-such", "--", "true"], "--no-such"),
    (["run", "-Z", "--", "true"], "-Z"), (["run", "--mem"], "--mem requires a value: SIZE"), (["run", "-m"], "-m requires a value: SIZE"),
    (["run", "--quiet=yes", "--", "true"], "--quiet takes no value"), (["run", "--mem", "lots", "--", "true"], "'lots' is not a size"),
    (["run", "--mem", "-1", "--", "true"], "'-1' is not a size"), (["run", "--mem", "0", "--", "true"], "--mem"),
    (["run", "--mem", "1M", "--", "true"], "carrel: --mem 1M: must be between 4M and 16T\n"), (["run", "--mem", "99999999999999999999", "--", "true"], "not a size"),
    (["run", "--mem", "4000T", "--", "true"], "carrel: --mem 4000T: must be between 4M and 16T\n"), (["run", "--mem", "1.5X", "--", "true"], "not a size"),
    (["run", "--mem", "", "--", "true"], "not a size"), (["run", "--mem", "1 G", "--", "true"], "not a size"),
    (["run", "--cpus", "none", "--", "true"], "not a number"), (["run", "--cpus", "0", "--", "true"], "--cpus"),
    (["run", "--cpus", "100000", "--", "true"], "carrel: --cpus 100000: must be between 0.01 and 1024\n"), (["run", "--cpus", "nan", "--", "true"], "not a number"),
    (["run", "--pids", "x", "--", "true"], "not a number"), (["run", "--pids", "0", "--", "true"], "--pids"),
    (["run", "--pids", "4294967296", "--", "true"], "not a number"), (["run", "--pids", "1.5", "--", "true"], "not a number"),
    (["run", "--disk", "x", "--", "true"], "not a size"), (["run", "--disk", "1K", "--", "true"], "carrel: --disk 1K: must be between 1M and 64T\n"),
    (["run", "--disk", "9000000T", "--", "true"], "--disk: '9000000T' is not a size"), (["run", "--timeout", "soon", "--", "true"], "not a time"),
    (["run", "--timeout", "0", "--", "true"], "--timeout"), (["run", "--timeout", "-5s", "--", "true"], "not a time"),
    (["run", "--timeout", "9999999999999999d", "--", "true"], "not a time"), (["run", "--ttl", "x", "--", "true"], "not a time"),
    (["run", "--env", "=x", "--", "true"], "has no name"), (["run", "--user", "no body", "--", "true"], "--user no body: not a valid name of a user"),
    (["run", "--dir", "/no/such/directory", "--", "true"], "/no/such/directory"), (["run", "--dir", "/etc/hostname:/w", "--", "true"], "Not a directory"),
    (["exec"], "no machine"), (["exec", "m-aaaaaaaaaaaa"], "no command"), (["exec", "--no-such", "x"], "--no-such"),
    (["no-such-command"], "no-such-command"), (["ls", "--no-such"], "--no-such"), (["doctor", "--no-such"], "--no-such"),
    (["rm"], "no machine"), (["rm", "--no-such"], "--no-such"), (["run", "--user", "a\nb", "--", "true"], "\\x0a"),
    (["run", *(["-e", "A=1"] * 65), "--", "true"], "--env can be given at most 64 times"), (["run", "-e", "A=" + "x" * 5000, "--", "true"], "too long"),
    (["version", "extra"], "unexpected argument 'extra'"), (["help", "no-such"], "no-such"),
    (["stpes"], "unknown command 'stpes': did you mean 'carrel steps'?"), (["images"], "unknown command 'images': use carrel image ls"),
    (["log", "x"], "unknown command 'log': use carrel steps MACHINE, or carrel logs MACHINE"),
    (["run", "--memroy", "1G", "--", "true"], "unknown option '--memroy': did you mean '--mem'?"),
    (["run", "--volume=/a:/b", "--", "true"], "--volume /a:/b: '/a' is a path, not a volume: for a directory of this host: --dir /a:/b"),
    (["ls", "--jsno"], "unknown option '--jsno': did you mean '--json'?"),
    (["image", "imprt"], "unknown subcommand 'imprt': did you mean 'import'?"), (["image"], "carrel image requires a subcommand"),
    (["token", "lst"], "unknown subcommand 'lst': did you mean 'ls'?"), (["secret", "get", "x"], "did you mean 'set'?"),
    (["grant", "revok"], "did you mean 'revoke'?"), (["secret", "set"], "carrel secret set takes 1 argument: see carrel secret --help"),
    (["image", "pull"], "missing argument: name of an image in a registry"),
    (["image", "push", "x"], "missing argument: image, and its name in a registry"),
    (["store", "prune"], "unknown subcommand 'prune': use check, init, boxes or adopt; see carrel store --help"),
]


@pytest.mark.parametrize("words, says", BAD, ids=[" ".join(w)[:50].replace("\n", "?") for w, _ in BAD])
def test_bad_input_is_one_line_and_125(carrel, words, says):
    created = carrel.status().get("created")  # none: no daemon runs, and none is started for this
    done = carrel(*words)
    text = done.stderr.decode()
    assert done.returncode == 125 and done.stdout == b"" and text.count("\n") == 1 and text.startswith("carrel: "), done
    assert any(s in text for s in says.split("|")), text
    assert carrel.status().get("created") == created


def test_a_command_line_that_is_too_long_for_a_message(carrel):
    done = carrel.run("-q", "--", "true", *(["x" * 120000] * 16))
    assert done.returncode == 125 and done.stderr.count(b"\n") == 1


def test_long_arguments_that_fit(carrel):
    assert carrel.run("--", "sh", "-c", "echo ${#1}", "sh", "x" * 100000).stdout == b"100000\n"


def outside(env, *words):
    return subprocess.run([PROGRAM, *words], env={"PATH": "/usr/bin:/bin", "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", ""), **env}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=60 * PATIENCE)


def refused(done, *says):
    assert done.returncode == 125 and done.stdout == b"" and done.stderr.count(b"\n") == 1, done
    assert all(s.encode() in done.stderr for s in says), done.stderr


def test_a_run_directory_that_cannot_be_made(tmp_path):
    refused(outside({"CARREL_RUN": "/proc/x/run", "CARREL_HOME": str(tmp_path / "home")}, "run", "--", "true"), "/proc/x")
    refused(outside({"CARREL_RUN": str(tmp_path / "run"), "CARREL_HOME": "/proc/x/home"}, "run", "--", "true"), "/proc/x")


def test_a_run_directory_that_is_too_long(tmp_path):
    refused(outside({"CARREL_RUN": "/tmp/" + "r" * 120, "CARREL_HOME": str(tmp_path)}, "run", "--", "true"), "too long", "CARREL_RUN")
    assert not os.path.exists("/tmp/" + "r" * 120)


def test_a_run_directory_that_others_may_write(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(0o777)
    refused(outside({"CARREL_RUN": str(tmp_path / "run"), "CARREL_HOME": str(tmp_path / "home")}, "run", "--", "true"),
            "not a private directory", "CARREL_RUN")


def test_a_run_directory_that_is_a_link(tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "run").symlink_to("real")
    refused(outside({"CARREL_RUN": str(tmp_path / "run"), "CARREL_HOME": str(tmp_path / "home")}, "run", "--", "true"),
            "not a private directory")


def test_a_store_on_a_full_filesystem():
    """/dev/full as a directory is none; the reason is told, not a crash."""
    refused(outside({"CARREL_RUN": "/dev/full/run", "CARREL_HOME": "/tmp"}, "run", "--", "true"), "/dev/full")


def test_too_little_privilege(fresh):
    """Root of a user namespace that holds one id only: no box can be made, and nothing is left."""
    done = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child",
                           PROGRAM, "run", "-q", "--", "true"], env=fresh.env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60 * PATIENCE)
    refused(done, "carrel: ")
    assert fresh.run("-q", "--", "true").returncode == 0  # clears away what was killed with its namespace


def test_ls_and_rm_without_a_daemon_start_none(fresh):
    assert json.loads(fresh("ls", "--json").stdout) == {"machines": []}
    assert fresh("ls").stdout == b"MACHINE         NAME          STATE     MEM    AGE\n"
    assert fresh("rm", "m-aaaaaaaaaaaa").returncode == 125
    assert not fresh.run_dir.exists()
