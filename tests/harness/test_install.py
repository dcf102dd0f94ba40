"""`make install`: the programs of Carrel and their manual, and no program of its tests; `make uninstall`: nothing is left."""
import os, pathlib, re, shutil, subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CARREL_BUILD") or TOP / "build")
PROGRAMS = {"carrel", "carrel-cell", "carrel-compare", "carrel-daemon", "carrel-guest", "carrel-image", "carrel-inside", "carrel-packages",
            "carrel-postgres", "carrel-registry", "carrel-spawn", "carrel-sqlite", "carrel-top"}


def test_install_copies_all_programs_and_no_test_program(tmp_path):
    subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", tmp_path],
                   check=True, stdout=subprocess.DEVNULL)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    programs = {path.name: path for path in files if os.access(path, os.X_OK)}
    assert set(programs) == PROGRAMS
    assert programs.pop("carrel").parent.name == "bin"
    assert {path.parent.name for path in programs.values()} == {"carrel"}


def test_install_says_if_it_has_no_page_of_the_console(tmp_path):
    page, to = tmp_path / "page", tmp_path / "to"
    page.mkdir()
    install = lambda: subprocess.run([TOP / "scripts/install-console", page, "libexec/carrel"], check=True, capture_output=True, text=True,
                                     env={**os.environ, "MESON_INSTALL_DESTDIR_PREFIX": str(to)}).stderr
    assert "`make web`" in install() and not to.exists()
    (page / "index.html").write_text("x")
    assert install() == "" and (to / "libexec/carrel/console/index.html").read_text() == "x"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    to = tmp_path_factory.mktemp("installed")
    subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", to], check=True, stdout=subprocess.DEVNULL)
    return to


def manual(installed):
    return {path.name: path for path in installed.rglob("man/man1/*")}


def test_every_command_has_a_page_of_the_manual(installed):
    overview = subprocess.check_output([BUILD / "carrel", "help"], text=True)
    commands = re.findall(r"^  (\S+) +\S", overview, re.M)
    assert len(commands) > 25
    assert set(manual(installed)) == {"carrel.1", *(f"carrel-{name}.1" for name in commands)}


def test_a_page_of_the_manual_lists_the_options(installed):
    for name, path in manual(installed).items():
        words = ["help"] if name == "carrel.1" else ["help", name.removeprefix("carrel-").removesuffix(".1")]
        told = subprocess.check_output([BUILD / "carrel", *words], text=True)
        page = path.read_text().replace("\\-", "-")
        for option in re.findall(r"^  (?:-\S,|   ) (--[a-z-]+)", told, re.M):
            assert f"\\fB{option}\\fR" in page, (name, option)


@pytest.mark.skipif(not shutil.which("groff"), reason="groff is not installed: apt-get install groff-base")
def test_the_manual_is_well_formed(installed, tmp_path):
    odd = tmp_path / "odd.1"
    odd.write_text(".TH ODD 1\n.SH NAME\nodd \\- \\[nonesuch]\n")
    said = {path.name: subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z", path], stderr=subprocess.PIPE, text=True).stderr
            for path in [odd, *manual(installed).values()]}
    assert "nonesuch" in said.pop("odd.1"), "the control: it does look"
    assert not any(said.values()), said


def test_uninstall_removes_every_file(installed):
    subprocess.run([TOP / "scripts/uninstall", BUILD, installed], check=True, stdout=subprocess.DEVNULL)
    assert [path for path in installed.rglob("*") if not path.is_dir()] == []
