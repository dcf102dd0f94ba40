"""What the options of run and exec promise: environment, directory, user, JSON."""
import json
import re

import pytest


def environment(carrel, *options, **kw):
    out = carrel.sh("env -0", *options, **kw)
    return dict(line.split("=", 1) for line in out.split("\0") if line)


def test_a_clean_environment(carrel):
    found = environment(carrel, env={"SECRET_TOKEN": "x", "LD_PRELOAD": "", "TERM": "xterm"})
    found.pop("PWD", None), found.pop("_", None), found.pop("SHLVL", None), found.pop("OLDPWD", None)
    assert found == {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/run/carrel/bin", "LANG": "C.UTF-8",
        "PAGER": "cat", "DEBIAN_FRONTEND": "noninteractive", "GIT_TERMINAL_PROMPT": "0",
        "PIP_NO_INPUT": "1", "NPM_CONFIG_YES": "true", "SHELL": "/bin/bash", "USER": "user",
        "LOGNAME": "user", "HOME": "/home/user", "TERM": "dumb"}


def test_env_sets_and_passes_on(carrel):
    found = environment(carrel, "--env", "A=1", "-e", "B=x=y z", "-eEMPTY=", "--env=TOKEN", "-e", "PATH=/bin",
                        env={"TOKEN": "from outside"})
    assert (found["A"], found["B"], found["EMPTY"], found["TOKEN"], found["PATH"]) == (
        "1", "x=y z", "", "from outside", "/bin")


def test_env_keeps_odd_bytes(carrel):
    assert environment(carrel, "-e", "V=a\nb\té")["V"] == "a\nb\té"


def test_env_of_a_variable_that_is_not_set(carrel):
    done = carrel.run("--env", "NOT_SET_HERE", "--", "true")
    assert (done.returncode, done.stderr) == (125, b"carrel: --env NOT_SET_HERE: the variable is not set\n")


def test_env_file(carrel, tmp_path):
    (tmp_path / "env").write_text("# a comment\n\nA=1\nB=x=y z\r\n  TOKEN\nC=file\n")
    found = environment(carrel, "-e", "C=option", "--env-file", tmp_path / "env", env={"TOKEN": "from outside"})
    assert (found["A"], found["B"], found["TOKEN"], found["C"]) == ("1", "x=y z", "from outside", "option")


def test_env_file_that_is_not_usable(carrel, tmp_path):
    (tmp_path / "env").write_text("A=1\n=2\n")
    done = carrel.run("--env-file", tmp_path / "env", "--", "true")
    assert (done.returncode, done.stderr.decode()) == (125, f"carrel: --env-file {tmp_path}/env: line 2: --env '=2' has no name\n")
    done = carrel.run("--env-file", tmp_path / "none", "--", "true")
    assert (done.returncode, done.stderr.decode()) == (125, f"carrel: --env-file {tmp_path}/none: No such file or directory\n")


def test_options_of_docker_run(carrel):
    done = carrel.run("--rm", "-i", "-w", "/tmp", "-e", "A=1", "--", "sh", "-c", "pwd; echo $A; cat", stdin=b"in")
    assert (done.returncode, done.stdout) == (0, b"/tmp\n1\nin"), done
    done = carrel.run("--rm", "--keep", "--", "true")
    assert (done.returncode, done.stderr) == (125, b"carrel: --keep and --rm exclude each other\n")


def test_many_variables(carrel):
    options = [f"-eV{i}={'x' * 3000}" for i in range(60)]
    assert len(environment(carrel, *options)["V59"]) == 3000


@pytest.mark.parametrize("options, want", [
    ([], "/home/user"), (["--cwd", "/tmp"], "/tmp"), (["--cwd=/"], "/"), (["-u", "root"], "/root"),
    (["-u", "root", "--cwd", "/var"], "/var"), (["-u", "1234"], "/")])
def test_the_working_directory(carrel, options, want):
    assert carrel.sh("pwd", *options) == want + "\n"


@pytest.mark.parametrize("user, want", [
    ("user", "1000 1000 1000 user"), ("root", "0 0 0 root"), ("0", "0 0 0 root"), ("1000", "1000 1000 1000 user"),
    ("33", "33 33 33 www-data"), ("4321", "4321 4321 4321 4321")])
def test_the_user(carrel, user, want):
    assert carrel.sh("echo $(id -u) $(id -g) $(id -G) $(id -un 2>/dev/null)", "--user", user).strip() == want.strip()


@pytest.mark.parametrize("user", ["-1", "65535", "4294967296", "", "user;id"])
def test_a_user_with_an_invalid_name(carrel, user):
    done = carrel.run("--user=" + user, "--", "id")
    assert done.returncode == 125 and done.stderr.count(b"\n") == 1 and f"--user {user}: not a valid name of a user".encode() in done.stderr


@pytest.mark.parametrize("user", ["nobody-here", "1e3"])
def test_no_such_user(carrel, user):
    done = carrel.run("--user=" + user, "--", "id")
    assert (done.returncode, done.stdout) == (125, b"")
    assert done.stderr.count(b"\n") == 1 and f"there is no user '{user}' in /etc/passwd of the machine".encode() in done.stderr


def test_user_may_write_where_users_write_and_nowhere_else(carrel):
    carrel.sh("touch ~/x /tmp/x /var/tmp/x /dev/shm/x && ! touch /etc/x 2>/dev/null && ! touch /usr/x 2>/dev/null")


def test_root_may_change_the_system_inside(carrel):
    carrel.sh("echo x >/etc/x; echo x >/usr/x; rm /etc/passwd; rm -r /usr/share/doc; chown 7:7 /etc/x; "
              "test $(stat -c %u /etc/x) = 7", "-u", "root")
    assert carrel.sh("ls /etc/x /usr/x 2>&1; cat /etc/passwd | head -1; ls -d /usr/share/doc; true").split("\n")[2:4] == [
        "root:x:0:0:root:/root:/bin/bash", "/usr/share/doc"]


def test_words_reach_the_command_as_they_are(carrel):
    words = ["a b", "", "*", "$HOME", "'\"", "\n", "--", "-x", "é", "--keep"]
    out = carrel.run("--", "printf", "[%s]", *words).stdout
    assert out.decode() == "".join(f"[{w}]" for w in words)


def test_options_stop_at_the_first_word(carrel):
    assert carrel.run("echo", "-q", "--keep", "--").stdout == b"-q --keep --\n"


def test_letters_together(carrel):
    assert carrel.run("-qvT", "-uroot", "--", "id", "-un").stdout == b"root\n"


def test_json_is_one_object_with_all_of_it(carrel):
    done = carrel.run("--json", "--", "sh", "-c", "printf 'out\\n\\377\\0'; printf err >&2; exit 3")
    assert done.returncode == 3 and done.stderr == b"" and done.stdout.count(b"\n") == 1
    told = json.loads(done.stdout)
    assert told["machine"].startswith("m-") and len(told["machine"]) == 14
    assert told["stdout"] == "out\n\ufffd\0" and told["stderr"] == "err"
    assert (told["exit_status"], told["timed_out"], told["out_of_memory"], told["truncated"]) == (
        3, False, False, False)
    assert set(told["usage"]) == {"user_us", "system_us", "wall_us", "max_rss_kb"}
    assert set(told) == {"machine", "exit_status", "timed_out", "out_of_memory", "usage", "stdout", "stderr",
                         "truncated"}


def test_json_is_capped_and_says_so(carrel):
    told = json.loads(carrel.run("--json", "--", "sh", "-c", "head -c 20000000 /dev/zero | tr '\\0' a; exit 2").stdout)
    assert told["truncated"] is True and len(told["stdout"]) == 8 << 20 and told["exit_status"] == 2


def test_json_takes_stdin_too(carrel):
    told = json.loads(carrel.run("--json", "--", "tr", "a-z", "A-Z", stdin=b"hello").stdout)
    assert told["stdout"] == "HELLO"


def test_help_shows_no_escaped_characters(carrel):
    names = re.findall(r"^  ([a-z]+) ", carrel("help").stdout.decode(), re.M)
    assert {"net", "sh"} <= set(names)
    for name in names:
        assert b"\\x" not in carrel(name, "--help").stdout, name


def test_help_lists_every_option(carrel):
    for words in (["run", "--help"], ["help", "run"], ["run", "-h"]):
        done = carrel(*words)
        assert done.returncode == 0 and done.stderr == b""
        for option in ("--dir", "--apply", "--keep", "--unreviewed", "--mem", "--cpus", "--pids", "--disk", "--env",
                       "--cwd", "--user", "--timeout", "--tty", "--no-tty", "--json", "--quiet", "--verbose"):
            assert option in done.stdout.decode()


def test_a_hostname_of_its_own(carrel):
    assert carrel.sh("hostname; cat /etc/hostname") == "carrel\ncarrel\n"
