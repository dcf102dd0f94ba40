"""tests/unit mirrors src: a unit test lies in the folder of the code it tests, and has a row in meson.build."""
import pathlib

TOP = pathlib.Path(__file__).resolve().parents[2]
TESTS = sorted((TOP / "tests/unit").glob("**/test_*.c"))


def test_unit_tests_lie_in_folders_of_src():
    assert TESTS
    for path in TESTS:
        folder = path.parent.relative_to(TOP / "tests/unit")
        assert folder.parts and (TOP / "src" / folder).is_dir(), f"{path.name}: src/{folder} does not exist"


def test_every_unit_test_is_built():
    rows = (TOP / "tests/unit/meson.build").read_text()
    for path in TESTS:
        assert f"    '{path.stem.removeprefix('test_')}': [" in rows, f"{path.name} has no row in tests/unit/meson.build"
