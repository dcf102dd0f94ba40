"""The faults in tests/mutants stay usable: each has its header, and its diff applies to this tree."""
import importlib.machinery, importlib.util, pathlib, subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
PATCHES = sorted((TOP / "tests/mutants").glob("*.patch"))


def mutate():
    loader = importlib.machinery.SourceFileLoader("mutate", str(TOP / "scripts/mutate"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutate", loader))
    loader.exec_module(module)
    return module


@pytest.mark.parametrize("area", sorted({path.name.split("-")[0] for path in PATCHES}))
def test_mutants_apply_to_the_tree(area):
    parse = mutate().parse
    for path in PATCHES:
        if not path.name.startswith(area + "-"):
            continue
        fields, diff = parse(path)
        words = fields["tests"].split()
        if words[0] == "unit":
            assert len(list(TOP.glob(f"tests/unit/**/test_{words[1]}.c"))) == 1, f"{path.name}: no unit test {words[1]}"
        else:
            assert (TOP / words[0]).exists(), f"{path.name}: no test {words[0]}"
        ran = subprocess.run(["git", "apply", "-C1", "--check", "-"], cwd=TOP, input=diff, text=True, stderr=subprocess.PIPE)
        assert ran.returncode == 0, f"{path.name}: {ran.stderr}"
