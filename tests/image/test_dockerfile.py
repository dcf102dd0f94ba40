"""Dockerfiles: what is built from one, and what one cannot do to the host."""
import json
import os
import re

import pytest

from test_build import between, cli  # noqa: F401

DOCKERFILE = """# syntax=docker/dockerfile:1
ARG BASE=small
FROM ${BASE} AS only
ARG STAGE=test
ENV GREETING="hello $STAGE" \\
    # a comment between the lines
    SEARCH=/opt/bin:$PATH
WORKDIR /srv
WORKDIR app2
COPY --chown=app:staff conf tree/ ./
COPY ["with space", "/etc/with space"]
RUN echo "$GREETING" "$STAGE" >/greeting; pwd >/where; touch mine
RUN <<EOF
echo first >/script
echo second >>/script
EOF
EXPOSE 80/tcp
LABEL about="nothing"
USER app
RUN ["sh", "-c", "id -u >/tmp/me; pwd >/tmp/place"]
ENTRYPOINT ["cat"]
CMD ["/greeting"]
"""


@pytest.fixture
def context(small, tmp_path):
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    (tmp_path / ".dockerignore").write_text("# comment\n**/*.log\n!tree/kept.log\ntree/sub/no\n")
    (tmp_path / "conf").write_text("one\n")
    (tmp_path / "conf").chmod(0o640)
    (tmp_path / "with space").write_text("spaced\n")
    (tmp_path / "tree/sub/no").mkdir(parents=True)
    (tmp_path / "tree/sub/deep").write_text("deep\n")
    (tmp_path / "tree/sub/no/never").write_text("x\n")
    (tmp_path / "tree/gone.log").write_text("x\n")
    (tmp_path / "tree/kept.log").write_text("kept\n")
    (tmp_path / "tree/link").symlink_to("sub/deep")
    return tmp_path


def inside(daemon, line, image="app"):
    done = daemon.exec(daemon.machine(image=image), line)
    assert done["exec"]["status"] == 0, done
    return done["stdout"]


def test_dockerfile_becomes_an_image_that_runs(daemon, context):
    done = cli(daemon, "image", "build", "-f", context / "Dockerfile", context, "--name", "app", "--json", "--build-arg", "STAGE=live")
    assert done.returncode == 0, done
    assert re.search(r"line \d+ of the Dockerfile: EXPOSE has no effect; see carrel expose\n", done.stderr) and "LABEL has no effect" in done.stderr
    config = json.loads(done.stdout)["config"]
    assert config["entrypoint"] == ["cat"] and config["command"] == ["/greeting"] and config["user"] == "app", config
    assert config["workdir"] == "/srv/app2" and not [e for e in config["env"] if e.startswith("STAGE=")], config
    assert inside(daemon, "pwd; id -u; echo $GREETING; echo $SEARCH").split("\n")[:4] == [
        "/srv/app2", "1234", "hello live", "/opt/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
    assert inside(daemon, "cat /greeting /where /script '/etc/with space' /tmp/me /tmp/place").split("\n") == [
        "hello live live", "/srv/app2", "first", "second", "spaced", "1234", "/srv/app2", ""]
    assert inside(daemon, "stat -c '%n %u %g %a' conf sub/deep mine; readlink link; cat kept.log link").split("\n") == [
        "conf 1234 50 640", "sub/deep 1234 50 644", "mine 0 0 644", "sub/deep", "kept", "deep", ""]
    assert inside(daemon, "ls; ls sub").split() == ["conf", "kept.log", "link", "mine", "sub", "deep"]
    assert inside(daemon, "'%s' '%s'" % (config["entrypoint"][0], config["command"][0])) == "hello live live\n"


def test_unchanged_instructions_of_a_dockerfile_are_cached(daemon, context):
    first = json.loads(cli(daemon, "image", "build", context, "--json").stdout)
    (context / "tree/gone.log").write_text("an ignored file changes nothing\n")
    os.utime(context / "conf", (1, 1))
    again = cli(daemon, "image", "build", context, "--json")
    assert "0 instructions run, 5 cached" in again.stderr and json.loads(again.stdout)["id"] == first["id"], again
    (context / "tree/sub/deep").write_text("changed\n")
    changed = cli(daemon, "image", "build", context, "--name", "app")
    assert "5 instructions run, 0 cached" in changed.stderr, changed
    assert inside(daemon, "cat link") == "changed\n"


def test_directory_with_a_recipe_is_built_from_the_recipe(daemon, context):
    (context / "recipe").write_text("base small\nrun echo recipe >/made\n")
    assert cli(daemon, "image", "build", context, "--name", "app").returncode == 0
    assert inside(daemon, "cat /made") == "recipe\n"


def test_environment_user_and_entrypoint_of_the_base_are_kept(daemon, context):
    assert cli(daemon, "image", "build", context, "--name", "below").returncode == 0
    (context / "Dockerfile").write_text('FROM below\nENV SEARCH="/mine:$SEARCH"\nRUN id -u >/tmp/who; pwd >>/tmp/who\nCMD ["/script"]\n')
    done = cli(daemon, "image", "build", context / "Dockerfile", "--name", "app", "--json")
    assert done.returncode == 0, done
    config = json.loads(done.stdout)["config"]
    assert config["entrypoint"] == ["cat"] and config["command"] == ["/script"] and config["user"] == "app", config
    assert inside(daemon, "cat /tmp/who; echo $SEARCH").startswith("1234\n/srv/app2\n/mine:/opt/bin:/usr/local/sbin")


def test_working_directory_after_the_last_command_exists(daemon, small, tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM small\nRUN true\nWORKDIR /made/here\n")
    assert cli(daemon, "image", "build", tmp_path, "--name", "app").returncode == 0
    assert inside(daemon, "pwd") == "/made/here\n"


@pytest.mark.parametrize("text,said", [
    ("FROM small\nRUN --mount=type=cache,target=/x true\n", "line 2 of the Dockerfile: option --mount of RUN is not supported"),
    ("FROM small\n\nADD https://example.org/x /x\n", "line 3 of the Dockerfile: ADD https://example.org/x: ADD of a URL is not supported"),
    ("FROM small AS a\nRUN true\nFROM small\n", "line 3 of the Dockerfile: a second FROM"),
    ("FROM small\nCOPY missing /x\n", "line 2 of the Dockerfile: cannot read 'missing'"),
    ("FROM small\nCOPY *.nothing /x/\n", "no file matches '*.nothing'"),
    ("FROM small\nCOPY out.log /x\n", "'out.log' is excluded by .dockerignore"),
    ("FROM small\nCOPY conf tree /x\n", "end the destination with a slash"),
    ("FROM small\nCOPY --chown=nobody-here conf /x\n", "user 'nobody-here' does not exist in /etc/passwd of the image"),
    ("FROM small\nRUN echo broken >&2; exit 7\n", "line 2 of the Dockerfile: the command exited with status 7"),
    ("FORM small\n", "line 1 of the Dockerfile: FORM before FROM"),
    ("", "the Dockerfile has no FROM"),
    ("FROM small\nUSER nobody-here\nRUN true\n",
     "line 3 of the Dockerfile: the command did not start: there is no user 'nobody-here' in /etc/passwd of the machine\n"),
    ("FROM small\nRUN false\n", "status 1: see the output of the command; it reaches no network, unless --net allows it\n"),
    ("FROM example.org/a/nothing:1\n", "fetch it: carrel image pull example.org/a/nothing:1 --name example.org.a.nothing:1\n"),
    ("FROM debian:nothing\n", "or fetch it: carrel image pull debian:nothing\n"),
    ("FROM nothing\n", "image 'nothing' does not exist")])
def test_dockerfile_error_names_the_line_and_leaves_no_machine(daemon, context, text, said):
    (context / "Dockerfile").write_text(text)
    (context / ".dockerignore").write_text("*.log\n")
    (context / "out.log").write_text("x\n")
    done = cli(daemon, "image", "build", context)
    assert done.returncode == 125 and said in done.stderr, done
    assert daemon.machines() == []


@pytest.mark.parametrize("name", ["Dockerfile.test", "app.Dockerfile", "Containerfile"])
def test_names_of_dockerfiles_are_known(daemon, context, name):
    (context / name).write_text("RUN true\n")
    assert "of the Dockerfile: RUN before FROM" in cli(daemon, "image", "build", "-f", context / name, context).stderr


def test_build_arguments_without_effect_are_told(daemon, small, tmp_path):
    (tmp_path / "Dockerfile").write_text("ARG FIRST\nFROM small\nARG SECOND\nENV THIRD=x\n")
    done = cli(daemon, "image", "build", tmp_path, *(w for n in ("FIRST", "SECOND", "THIRD") for w in ("--build-arg", f"{n}=1")))
    assert done.returncode == 0 and re.findall("--build-arg .*", done.stderr) == [
        "--build-arg THIRD has no effect: the Dockerfile has no ARG THIRD"], done
    (tmp_path / "recipe").write_text("base small\n")
    assert "--build-arg: a recipe has no arguments" in cli(daemon, "image", "build", tmp_path, "--build-arg", "A=1").stderr


def test_run_without_a_command_runs_that_of_the_image(daemon, context):
    assert cli(daemon, "image", "build", context, "--name", "app").returncode == 0
    assert cli(daemon, "run", "--image", "app").stdout == "hello test test\n"
    assert cli(daemon, "run", "--image", "app", "--", "id", "-u").stdout == "1234\n"
    none = cli(daemon, "run", "--image", "small")
    assert none.returncode == 125 and none.stderr == (
        "carrel: image 'small' has no command of its own: carrel run --image small -- COMMAND [ARG...]\n")
    for words in ([], ["--image", "host"]):
        assert cli(daemon, "run", *words).stderr == "carrel: no command to run: carrel run -- COMMAND [ARG...]\n"
    assert "image 'nothing' does not exist" in cli(daemon, "run", "--image", "nothing").stderr


@pytest.fixture
def private(small, tmp_path):
    """A directory with files that .dockerignore is to keep out, and links to them."""
    for name in ("key", "open", "dir/key", "dir/open", "dir/deep/key", "only/key", "only/kept"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name + "\n")
    (tmp_path / "to-key").symlink_to("key")
    (tmp_path / "to-dir").symlink_to("dir")
    return tmp_path


EXCLUDES = {"plain": "**/key\nonly\n", "with a negated pattern": "**/key\nonly\n!only/kept\n!nothing\n",
            "by **NAME": "**ey\nonly\n", "all but": "*\n!open\n!dir\n!to-*\n**/key\n", "a BOM": "\ufeffkey\n**/key\nonly\n"}


SOURCES = [".", "*", "dir", "dir/", "to-dir", "d*", "key", "./key", "dir/key", "dir/../key", "*/key", "dir/k*", "to-key", "to-dir/key", "to-dir/deep", "only/key"]


@pytest.mark.parametrize("source,rules", [(s, "with a negated pattern") for s in SOURCES] + [(".", r) for r in EXCLUDES] + [("key", "plain"), ("to-key", "plain")])
def test_copy_takes_no_file_that_dockerignore_excludes(daemon, private, source, rules):
    (private / "Dockerfile").write_text(f"FROM small\nCOPY {source} /got/\n")
    (private / ".dockerignore").write_text(EXCLUDES[rules])
    done = cli(daemon, "image", "build", private, "--name", "app")
    if done.returncode:
        assert re.search("is excluded by .dockerignore|no file matches", done.stderr), done
        assert source not in SOURCES[:6], done
        return
    assert "key" not in inside(daemon, "cd /got; cat * */* */*/* 2>/dev/null; :").replace("to-key", "")


@pytest.mark.parametrize("source,got", [(".", "dir/open,only/kept,open"), ("only", "only/kept"), ("o*", "only/kept,open"), ("only/kept", "only/kept"), ("to-dir", "dir/open")])
def test_copy_takes_what_a_negated_pattern_includes_again(daemon, private, source, got):
    (private / "Dockerfile").write_text(f"FROM small\nCOPY {source} /got/\n")
    (private / ".dockerignore").write_text("**/key\nonly\n! only/kept\nDockerfile\n.dockerignore\nto-key\n")
    done = cli(daemon, "image", "build", private, "--name", "app")
    assert done.returncode == 0, done
    assert set(inside(daemon, "cd /got; cat * */* */*/* 2>/dev/null; :").split()) == set(got.split(","))


def test_directory_of_which_everything_is_excluded_is_refused(daemon, private):
    (private / "Dockerfile").write_text("FROM small\nCOPY only /got/\n")
    (private / ".dockerignore").write_text("only\n!open\n")
    done = cli(daemon, "image", "build", private)
    assert done.returncode == 125 and "'only' is excluded by .dockerignore" in done.stderr, done


def test_directory_without_recipe_and_dockerfile_is_refused(daemon, tmp_path):
    done = cli(daemon, "image", "build", tmp_path)
    assert done.returncode == 125 and "has no file named recipe or Dockerfile" in done.stderr, done


@pytest.mark.parametrize("path", ["inside/secret", "link/secret", "tree/sub/../../../host/secret", "one", "link/*", "tree"])
def test_copy_takes_nothing_from_outside_its_directory(daemon, context, tmp_path_factory, path):
    """The author of a Dockerfile may put links beside it that lead to files of this host."""
    host = tmp_path_factory.mktemp("host")
    (host / "secret").write_text("of the host\n")
    (context / "real").mkdir()
    (context / "real/secret").write_text("of the build\n")
    os.symlink(host, context / "link")
    os.symlink("real", context / "inside")
    os.symlink(host / "secret", context / "one")
    os.symlink(host / "secret", context / "tree/outward")
    (context / "Dockerfile").write_text(f"FROM small\nCOPY {path} /taken/\n")
    done = cli(daemon, "image", "build", context, "--name", "app")
    assert (context / "link/secret").read_text() == "of the host\n", "the control: without a check it can be read"
    if path == "inside/secret":
        assert done.returncode == 0 and inside(daemon, "cat /taken/secret") == "of the build\n", done
    elif path == "tree":  # a link below a directory is copied as a link
        assert done.returncode == 0 and inside(daemon, "readlink /taken/outward") == f"{host}/secret\n", done
    else:
        assert done.returncode == 125 and "leads out of the build's directory" in done.stderr, done


def test_pipe_in_a_copied_directory_does_not_hang_the_build(daemon, context):
    os.mkfifo(context / "tree/pipe")
    (context / "Dockerfile").write_text("FROM small\nCOPY tree /x\n")
    done = cli(daemon, "image", "build", context)
    assert done.returncode == 125 and "'tree/pipe' is not a file, a directory or a link" in done.stderr, done


def test_net_option_lets_commands_reach_a_host(daemon, context):
    (context / "Dockerfile").write_text("FROM small\nRUN cp /run/carrel/machine.json /rules\n")
    done = cli(daemon, "image", "build", context, "--name", "app", "--net", "mirror.test", "--net", "https://other.test")
    assert done.returncode == 0, done
    rules = json.loads(inside(daemon, "cat /rules"))["network"]["rules"]
    assert {r["target"] for r in rules} == {"mirror.test", "https://other.test"}, rules


@pytest.mark.parametrize("swapped", [False, True])
def test_file_that_changes_during_the_build_fails_it(daemon, context, between, swapped):  # noqa: F811
    """A step is found again by the hash of its files, so other bytes may not be in it."""
    (context / "Dockerfile").write_text("FROM small\nCOPY conf /conf\n")
    swap = between(b"POST /v1/images/builds", lambda: (context / "conf").write_text("two\n" if swapped else "one\n"))
    done = cli(daemon, "image", "build", context, "--name", "app", run=swap.run)
    assert swap.done and done.returncode == (125 if swapped else 0), done
    assert ("file 'conf' was changed during the build" in done.stderr) == swapped, done
