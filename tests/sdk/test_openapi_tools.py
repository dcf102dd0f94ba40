"""The OpenAPI document is what tools that read OpenAPI accept."""
import copy
import json
import pathlib
import subprocess

import pytest

from conftest import PATIENCE, npm_packages, openapi

HERE = pathlib.Path(__file__).parent


@pytest.fixture(scope="module")
def validators():
    return npm_packages(HERE / "openapi")


def problems_of(validators, tmp_path, document):
    path = tmp_path / "openapi.json"
    path.write_text(json.dumps(document))
    done = subprocess.run(["node", validators / "check.mjs", path], capture_output=True, timeout=60 * PATIENCE)
    assert done.returncode == 0, done
    told = json.loads(done.stdout.splitlines()[-1])
    return told["paths"], told["problems"]


def test_two_validators_accept_the_document(validators, tmp_path):
    document = openapi()
    assert problems_of(validators, tmp_path, document) == (len(document["paths"]), [])


@pytest.mark.parametrize("fault", ["reference", "scheme", "parameter"])
def test_the_validators_find_a_fault(validators, tmp_path, fault):
    document = copy.deepcopy(openapi())
    operation = document["paths"]["/v1/machines/{machine}"]["get"]
    if fault == "reference":
        operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"] = "#/components/schemas/None"
    elif fault == "scheme":
        operation["security"] = [{"nothing": []}]
    else:
        operation["parameters"][0]["in"] = "nowhere"
    assert problems_of(validators, tmp_path, document)[1]
