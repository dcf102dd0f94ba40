"""The scripts that decide between green and red: a failure must not get past them."""
import json, os, pathlib, re, shutil, signal, subprocess, time

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]


def report(tmp_path, *tests):
    """Closing line and exit status for a log of (name, result, stdout)."""
    (tmp_path / "meson-logs").mkdir()
    (tmp_path / "meson-logs/testlog.json").write_text("".join(
        json.dumps({"name": f"carrel:unit / {name}", "result": result, "stdout": out}) + "\n"
        for name, result, out in tests))
    ran = subprocess.run([TOP / "scripts/test-report", tmp_path], stdout=subprocess.PIPE, text=True)
    return ran.stdout.splitlines()[-1], ran.returncode


def pytest_run(tmp_path, source):
    (tmp_path / "test_it.py").write_text("import pytest\n" + source)
    ran = subprocess.run([TOP / "scripts/run-pytest", tmp_path], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    return ran.stdout, ran.returncode


def test_report_counts_points_and_plain_tests(tmp_path):
    assert report(tmp_path, ("a", "OK", "1..3\nok 1 - x\nok 2 - y # SKIP no kvm\nok 3 - a # b\n"), ("b", "OK", "words"),
                  ("c", "SKIP", "no kvm")) == ("3 passed, 0 failed, 2 skipped", 0)


def test_report_fails_on_a_failing_point(tmp_path):
    assert report(tmp_path, ("a", "FAIL", "1..2\nok 1 - x\nnot ok 2 - y\n")) == ("1 passed, 1 failed, 0 skipped", 1)


def test_report_fails_on_a_crash_after_good_points(tmp_path):
    assert report(tmp_path, ("a", "FAIL", "1..9\nok 1 - x\n")) == ("1 passed, 1 failed, 0 skipped", 1)


def test_report_fails_on_a_timeout(tmp_path):
    assert report(tmp_path, ("a", "OK", ""), ("b", "TIMEOUT", "")) == ("1 passed, 1 failed, 0 skipped", 1)


def test_report_shows_what_a_failed_test_said(tmp_path):
    (tmp_path / "t").mkdir()
    out, _ = pytest_run(tmp_path / "t", "def test_a(): assert 1 == 2, 'one is not two'\ndef test_b(): pass\n")
    (tmp_path / "meson-logs").mkdir()
    (tmp_path / "meson-logs/testlog.json").write_text(json.dumps({"name": "carrel:x / x", "result": "FAIL", "stdout": out}))
    ran = subprocess.run([TOP / "scripts/test-report", tmp_path], stdout=subprocess.PIPE, text=True)
    failed, *said, _ = ran.stdout.splitlines()
    assert failed.startswith("FAILED  x: ") and failed.endswith("::test_a")
    assert said[0].split() == ["AssertionError:", "one", "is", "not", "two"], said


def test_report_fails_when_nothing_ran(tmp_path):
    assert report(tmp_path) == ("0 passed, 0 failed, 0 skipped", 1)


def test_pytest_points_match_outcomes(tmp_path):
    out, status = pytest_run(tmp_path, "def test_a(): pass\ndef test_b(): assert 1 == 2\n"
                             "def test_c(): pytest.skip('no\\nkvm')\n")
    assert status == 1
    assert [line for line in out.splitlines() if not line.startswith("#")] == [
        "ok 1 - test_it.py::test_a", "not ok 2 - test_it.py::test_b",
        "ok 3 - test_it.py::test_c # SKIP no kvm", "1..3"]


def test_pytest_fails_on_a_module_that_does_not_load(tmp_path):
    out, status = pytest_run(tmp_path, "import no_such_module\n")
    assert status != 0 and "not ok 1" in out


def test_pytest_fails_when_it_finds_no_test(tmp_path):
    assert pytest_run(tmp_path, "")[1] != 0


SOURCE = "import pathlib\n" \
         "def test_good(): pass\n" \
         "@pytest.fixture\ndef end():\n    yield\n    seen = pathlib.Path(__file__).with_name('over')\n    assert seen.exists() or seen.touch()\n" \
         "def test_unsteady(end):\n    seen = pathlib.Path(__file__).with_name('seen')\n    assert seen.exists() or seen.touch()\n" \
         "@pytest.mark.parametrize('n', range(4))\ndef test_broken(n): assert n >= %d\n"


def test_a_file_that_is_skipped_whole_is_a_point_and_no_tests_at_all_an_error(tmp_path):
    out, status = pytest_run(tmp_path, "pytest.skip('no display', allow_module_level=True)\n")
    assert "# SKIP no display\n1..1\n" in out and status == 0
    assert pytest_run(tmp_path, "") == ("1..0\n", 5)


def again(tmp_path, broken):
    """Closing line and exit status of test-again after a suite with an unsteady test and some broken ones."""
    build = tmp_path / "build"
    (build / "meson-logs").mkdir(parents=True)
    out, status = pytest_run(tmp_path, SOURCE % broken)
    assert status == 1
    (build / "meson-logs/testlog.json").write_text(json.dumps(
        {"name": "carrel:x / x", "result": "ERROR", "returncode": status, "stdout": out, "env": {}, "command": [str(TOP / "scripts/run-pytest"), str(tmp_path)]}))
    ran = subprocess.run([TOP / "scripts/test-again", build], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    return ran.stdout.splitlines()[-1:], ran.returncode


def test_again_passes_a_test_that_passes_alone(tmp_path):
    assert again(tmp_path, 0) == (["7 passed, 0 failed, 0 skipped"], 0)


def test_again_fails_a_test_that_fails_twice(tmp_path):
    assert again(tmp_path, 1)[1] == 1


def hangs_once(tmp_path, then):
    """What a suite said that was ended in its second test, and test-again after it: closing line and status."""
    source = "import pathlib, time\ndef test_good(): pass\n" \
             "def test_hangs():\n    seen = pathlib.Path(__file__).with_name('seen')\n" \
             "    if not seen.exists():\n        seen.touch()\n        time.sleep(1000)\n" \
             f"    assert {then}\n"
    (tmp_path / "test_it.py").write_text(source)
    command = [str(TOP / "scripts/run-pytest"), str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    while not (tmp_path / "seen").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.terminate()
    out = process.communicate()[0]
    (tmp_path / "build/meson-logs").mkdir(parents=True)
    (tmp_path / "build/meson-logs/testlog.json").write_text(json.dumps(
        {"name": "carrel:x / x", "result": "TIMEOUT", "returncode": 1, "stdout": out, "env": {}, "command": command}))
    ran = subprocess.run([TOP / "scripts/test-again", tmp_path / "build"], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    return out, ran.stdout.splitlines()[-1], ran.returncode


def test_a_suite_that_takes_too_long_names_its_test_and_runs_again(tmp_path):
    out, line, status = hangs_once(tmp_path, True)
    assert re.search(r"^not ok 2 - \S+::test_hangs$", out, re.M) and "time.sleep(1000)" in out, out
    assert (line, status) == ("2 passed, 0 failed, 0 skipped", 0)


def test_a_suite_that_fails_when_it_runs_again_fails(tmp_path):
    assert hangs_once(tmp_path, False)[1:] == ("1 passed, 1 failed, 0 skipped", 1)


def test_again_gives_up_on_many_failures(tmp_path):
    assert again(tmp_path, 4) == ([], 1)


def test_setup_refuses_a_group_it_does_not_know():
    ran = subprocess.run([TOP / "scripts/setup", "no-such-group"], stderr=subprocess.PIPE, text=True)
    assert ran.returncode == 1 and "no-such-group" in ran.stderr


def layers(tmp_path, files, rows="a:\nb: a\n", drawn="src/a/  one, and deep/\nsrc/b/\n"):
    """What check-layers says of a tree with two layers, b above a, that keeps all rules but for `files`."""
    files = {"src/a/a.h": "", "src/a/deep/d.h": "", "src/b/b.c": '#include "a/a.h"\n', "docs/layers": rows,
             "docs/architecture.md": drawn, **files}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "scripts").mkdir()
    shutil.copy(TOP / "scripts/check-layers", tmp_path / "scripts")
    return subprocess.run([tmp_path / "scripts/check-layers"], stdout=subprocess.DEVNULL).returncode


def test_layers_allow_what_is_listed_and_main(tmp_path):
    assert layers(tmp_path, {"src/b/x.c": '#include "a/a.h"\n', "src/carrel.c": '#include "b/b.h"\n'}) == 0


def test_layers_refuse_an_upward_include(tmp_path):
    assert layers(tmp_path, {"src/a/x.c": '#include "b/b.h"\n'}) == 1


def test_layers_refuse_an_upward_include_in_a_subfolder(tmp_path):
    assert layers(tmp_path, {"src/a/deep/x.c": '#include "b/b.h"\n'}) == 1


def test_layers_allow_an_inner_header_in_its_own_folder(tmp_path):
    assert layers(tmp_path, {"src/a/deep/x.c": '#include "a/deep/inner.h"\n#include "a/deep/y_inner.h"\n'}) == 0


def test_layers_refuse_an_inner_header_of_another_layer(tmp_path):
    assert layers(tmp_path, {"src/b/x.c": '#include "a/inner.h"\n'}) == 1


def test_layers_refuse_an_inner_header_of_a_subfolder(tmp_path):
    assert layers(tmp_path, {"src/a/x.c": '#include "a/deep/inner.h"\n'}) == 1


def test_layers_refuse_an_inner_header_of_the_folder_above(tmp_path):
    assert layers(tmp_path, {"src/a/deep/x.c": '#include "a/x_inner.h"\n'}) == 1


@pytest.mark.parametrize("header", ["a/state.h", "a/deep/live.h"])
def test_layers_keep_the_state_of_a_layer_inside_it(tmp_path, header):
    assert layers(tmp_path, {"src/b/x.c": f'#include "{header}"\n'}) == 1


def test_layers_allow_the_state_of_a_layer_in_its_subfolders(tmp_path):
    assert layers(tmp_path, {"src/a/deep/x.c": '#include "a/state.h"\n#include "a/live.h"\n'}) == 0


def test_layers_refuse_a_folder_that_is_not_listed(tmp_path):
    assert layers(tmp_path, {"src/c/x.c": ""}, drawn="src/a/  deep/\nsrc/b/\nsrc/c/\n") == 1


def test_layers_refuse_a_row_without_a_folder(tmp_path):
    assert layers(tmp_path, {}, rows="a:\nb: a\nc:\n") == 1


def test_layers_refuse_an_arrow_that_nothing_uses(tmp_path):
    assert layers(tmp_path, {"src/b/b.c": ""}) == 1


def test_layers_refuse_an_arrow_that_points_down(tmp_path):
    assert layers(tmp_path, {"src/a/x.c": '#include "b/b.h"\n'}, rows="a: b\nb: a\n") == 1


def test_layers_refuse_a_folder_that_the_architecture_page_leaves_out(tmp_path):
    assert layers(tmp_path, {}, drawn="src/a/  deep/\n") == 1


def test_layers_refuse_a_folder_that_only_the_architecture_page_has(tmp_path):
    assert layers(tmp_path, {}, drawn="src/a/  deep/\nsrc/b/\nsrc/c/\n") == 1


@pytest.mark.parametrize("line", ["src/a/  one", "src/a/  deep/ and flat/"])
def test_layers_refuse_subfolders_that_differ_from_the_architecture_page(tmp_path, line):
    assert layers(tmp_path, {}, drawn=f"{line}\nsrc/b/\n") == 1


@pytest.mark.parametrize("row,status", [("| `exec/` | commands |\n", 0), ("| `steps/` | steps |\n", 1), ("", 1)])
def test_layers_compare_the_folders_of_the_service_with_their_table(tmp_path, row, status):
    drawn = f"src/a/  deep/\nsrc/b/\nsrc/service/  exec/\n{row}"
    assert layers(tmp_path, {"src/service/exec/x.c": ""}, rows="a:\nb: a\nservice:\n", drawn=drawn) == status


def symbols(tmp_path, files):
    """What check-symbols says of these files."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "scripts").mkdir()
    shutil.copy(TOP / "scripts/check-symbols", tmp_path / "scripts")
    return subprocess.run([tmp_path / "scripts/check-symbols"], stdout=subprocess.DEVNULL).returncode


def test_symbols_allow_the_same_static_name_and_declarations(tmp_path):
    assert symbols(tmp_path, {"src/a/x.c": "static int f(void) {\n}\nint g(void);\nint g(void) {\n}\n",
                              "src/b/x.c": "static int f(void) {\n}\nint g(void);\n"}) == 0


def test_symbols_refuse_a_name_that_two_files_define(tmp_path):
    assert symbols(tmp_path, {"src/a/x.c": "int f(void) {\n}\n", "src/b/x.c": "enum e f(int a,\n       int b) {\n}\n"}) == 1


def test_symbols_refuse_a_decision_by_the_text_of_an_error(tmp_path):
    assert symbols(tmp_path, {"src/a/x.c": 'static int f(void) {\n    return !strstr(err->text, "busy");\n}\n'}) == 1


def sizes(tmp_path, files):
    """What check-sizes prints for these files, and its exit status."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "scripts").mkdir()
    shutil.copy(TOP / "scripts/check-sizes", tmp_path / "scripts")
    ran = subprocess.run([tmp_path / "scripts/check-sizes"], stdout=subprocess.PIPE, text=True)
    return ran.stdout.splitlines(), ran.returncode


def function(name, lines):
    return f"static int {name}(int a,\n    int b) {{\n" + "    a++;\n" * (lines - 3) + "}\n"


def test_sizes_allow_files_folders_and_functions_at_their_limits(tmp_path):
    files = {f"src/a/f{n}.c": function(f"f{n}", 60) for n in range(64)}
    assert sizes(tmp_path, {**files, "src/a/x.h": "\n" * 700, "src/a/deep/y.c": ""}) == ([], 0)


def test_sizes_refuse_a_long_file(tmp_path):
    assert sizes(tmp_path, {"src/a/x.c": "\n" * 701}) == (["src/a/x.c: 701 lines, at most 700: split it by idea"], 1)


def test_sizes_allow_the_interpreter_its_length(tmp_path):
    assert sizes(tmp_path, {"src/wasm/interp.c": function("interp_loop", 701)}) == ([], 0)


def test_sizes_refuse_a_folder_of_many_files(tmp_path):
    files = {f"src/a/f{n}.h": "" for n in range(66)}
    assert sizes(tmp_path, files) == (["src/a: 66 files, at most 65: make a subfolder"], 1)


def test_sizes_refuse_a_long_function(tmp_path):
    assert sizes(tmp_path, {"src/a/x.c": function("f", 61)}) == (["src/a/x.c: f() has 61 lines, at most 60"], 1)


def test_sizes_refuse_a_row_for_a_function_that_is_short(tmp_path):
    text = function("interp_loop", 60) + "\n" * 700
    assert sizes(tmp_path, {"src/wasm/interp.c": text}) == (
        ["scripts/check-sizes: interp_loop() of src/wasm/interp.c is not long any more: remove its row"], 1)


def test_sizes_refuse_a_name_that_many_functions_share(tmp_path):
    files = {f"src/a/x{n}.c": "static void finish(void) {\n}\n\nstruct s *other%d(int a) {\n}\n" % n for n in range(5)}
    assert sizes(tmp_path, files) == (
        ["src: 5 of 10 functions have a name that 5 or more share, at most 4 %: finish (5)"], 1)


def test_sizes_allow_four_functions_to_share_a_name(tmp_path):
    assert sizes(tmp_path, {f"src/a/x{n}.c": "static void finish(void) {\n}\n" for n in range(4)}) == ([], 0)


def having(text):
    """Processes with this text in their environment."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if text in (process / "environ").read_bytes():
                found.append(process.name)
        except OSError:
            pass  # it has ended, or belongs to somebody else
    return found


def busy(tmp_path, *command):
    """scripts/test-busy with one busy loop, and the text that all its processes carry."""
    mark = f"BUSY_TEST={tmp_path}"
    process = subprocess.Popen(
        [TOP / "scripts/test-busy", *command], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True,
        env={**os.environ, "LOOPS": "1", "TMPDIR": str(tmp_path), "BUSY_TEST": str(tmp_path)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    return process, mark.encode()


def test_busy_passes_input_output_and_status_on(tmp_path):
    process, mark = busy(tmp_path, "sh", "-c", "cat; exit 7")
    assert process.communicate("words", timeout=120)[0] == "words"
    assert (process.returncode, having(mark), list(tmp_path.iterdir())) == (7, [], [])


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_busy_ends_all_its_processes_on_a_signal(tmp_path, number, status):
    process, mark = busy(tmp_path, "sh", "-c", "sleep 1000 & echo started; wait")
    assert process.stdout.readline() == "started\n"
    assert len(having(mark)) >= 4  # the script, its loop, the command and its child
    process.send_signal(number)
    process.communicate(timeout=120)
    assert (process.returncode, having(mark), list(tmp_path.iterdir())) == (status, [], [])


def test_each_row_of_the_skips_of_vms_names_a_test_and_a_reason():
    for line in (TOP / "tests/vm_skips.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        pattern, reason = line.split(None, 1)
        path, _, name = pattern.partition("::")
        assert len(reason) > 10, line
        text = (TOP / "tests" / path).read_text()
        assert not name or re.search(rf"^def {name.split('[')[0].rstrip('*')}", text, re.M), line
