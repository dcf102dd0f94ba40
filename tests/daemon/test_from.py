"""carrel new --from: a machine from a machine, a step or an image, with what the command adds."""
import json
import tarfile

import pytest


def new(carrel, *options):
    done = carrel("new", *options)
    assert done.returncode == 0, done
    return done.stdout.decode().split()[-1]


def sh(carrel, machine, line):
    done = carrel("exec", machine, "--", "sh", "-c", line)
    assert done.returncode == 0, done
    return done.stdout.decode()


def refused(carrel, *options):
    done = carrel("new", *options)
    assert done.returncode != 0, done
    return done.stderr.decode()


@pytest.fixture(scope="module")
def source(carrel):
    m = new(carrel, "--name", "source", "--mem", "300M", "--env", "KEPT=old", "--env", "CHANGED=old", "--meta", "for=test", "--net", "one.example.com")
    sh(carrel, m, "echo first >~/f")
    assert carrel("snap", m, "first").returncode == 0
    sh(carrel, m, "echo second >~/f")
    yield m
    carrel("rm", m)


def shown(carrel, machine):
    return json.loads(carrel("show", "--json", machine).stdout)


def test_a_copy_has_the_files_and_what_the_command_adds(carrel, source, tmp_path):
    (tmp_path / "there").write_text("there\n")
    m = new(carrel, "--from", "source", "--name", "copy", "--dir", f"{tmp_path}:/data:ro", "--env", "CHANGED=new", "--meta", "by=me", "--net", "two.example.com", "--pids", "77")
    assert sh(carrel, m, "cat ~/f /data/there; echo $KEPT $CHANGED") == "second\nthere\nold new\n"
    view = shown(carrel, m)
    assert view["limits"]["mem"] == 300 << 20 and view["limits"]["pids"] == 77 and view["name"] == "copy"
    assert {k: view["metadata"].get(k) for k in ("for", "by", "forked_from")} == {"for": "test", "by": "me", "forked_from": source}
    rules = carrel("net", m).stdout.decode()
    assert "one.example.com" in rules and "two.example.com" in rules
    assert "two.example.com" not in carrel("net", "source").stdout.decode()
    grants = {(g["kind"], g["what"]) for g in json.loads(carrel("grants", "--json", m).stdout)["grants"]}
    assert {("env", "CHANGED"), ("env", "KEPT"), ("dir", str(tmp_path))} <= grants
    # The source is as before.
    assert sh(carrel, "source", "cat ~/f; echo $CHANGED; ls /data 2>&1 | tail -c 10") == "second\nold\ndirectory\n"
    carrel("rm", m)


def test_a_step_can_be_the_source(carrel, source):
    m = new(carrel, "--from", "source@first")
    assert sh(carrel, m, "cat ~/f") == "first\n"
    carrel("rm", m)
    assert "'nosuch'" in refused(carrel, "--from", "source@nosuch")


def test_an_image_can_be_the_source(carrel, tmp_path):
    (tmp_path / "mark").write_text("of the image\n")
    with tarfile.open(tmp_path / "base.tar", "w") as tar:
        tar.add(tmp_path / "mark", "mark")
    assert carrel("image", "import", tmp_path / "base.tar", "--name", "base").returncode == 0
    m = new(carrel, "--from", "base")
    assert carrel("cp", f"{m}:/mark", tmp_path / "out").returncode == 0
    assert (tmp_path / "out").read_text() == "of the image\n"
    view = shown(carrel, m)
    assert view["image"] == "base" and "forked_from" not in (view.get("metadata") or {})
    carrel("rm", m)
    carrel("image", "rm", "base")


def test_a_machine_with_the_name_of_an_image_is_not_taken_for_it(carrel, tmp_path):
    """An agent may give its machine any name. By its id, or as a step, the machine is the source: the control."""
    (tmp_path / "mark").write_text("of the image\n")
    with tarfile.open(tmp_path / "base.tar", "w") as tar:
        tar.add(tmp_path / "mark", "mark")
    assert carrel("image", "import", tmp_path / "base.tar", "--name", "both").returncode == 0
    for name in ("both", "host"):
        m = new(carrel, "--name", name)
        assert f"both a machine and an image have the name '{name}'" in refused(carrel, "--from", name)
        assert f"--from {m}" in refused(carrel, "--from", name)
        for source in (m, name + "@start"):
            copy = new(carrel, "--from", source)
            assert shown(carrel, copy)["metadata"]["forked_from"] == m
            carrel("rm", copy)
        carrel("rm", m)
    carrel("image", "rm", "both")


@pytest.mark.parametrize("options,why", [
    (["--from", "nosuch"], "neither a machine nor an image has the name 'nosuch'"),
    (["--from", "source", "--image", "host"], "give 'from' or 'image', not both"),
    (["--from", "source", "--kind", "cell"], "is a box, so a copy of it is one too"),
    (["--from", "source", "--fuel", "9"], "does not support limits of fuel"),
    (["--from", "@first"], "is not a machine, MACHINE@STEP or an image"),
    (["--from", "source@"], "is not a machine, MACHINE@STEP or an image"),
])
def test_wrong_sources_are_refused(carrel, source, options, why):
    before = json.loads(carrel("ls", "--json").stdout)["machines"]
    assert why in refused(carrel, *options)
    assert json.loads(carrel("ls", "--json").stdout)["machines"] == before


def test_a_name_that_is_taken_leaves_no_machine(carrel, source):
    before = {m["id"] for m in json.loads(carrel("ls", "--json").stdout)["machines"]}
    assert "source" in refused(carrel, "--from", "source", "--name", "source")
    assert {m["id"] for m in json.loads(carrel("ls", "--json").stdout)["machines"]} == before
