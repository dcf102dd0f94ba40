"""`make install`: the programs of Carrel, and no program of its tests."""
import os, pathlib, subprocess

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CARREL_BUILD") or TOP / "build")
PROGRAMS = {"carrel", "carrel-cell", "carrel-compare", "carrel-daemon", "carrel-guest", "carrel-image", "carrel-postgres",
            "carrel-spawn", "carrel-sqlite", "carrel-top"}


def test_install_copies_all_programs_and_no_test_program(tmp_path):
    subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", tmp_path],
                   check=True, stdout=subprocess.DEVNULL)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    programs = {path.name: path for path in files if os.access(path, os.X_OK)}
    assert set(programs) == PROGRAMS
    assert programs.pop("carrel").parent.name == "bin"
    assert {path.parent.name for path in programs.values()} == {"carrel"}
