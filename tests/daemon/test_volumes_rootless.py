"""Without root, volumes are refused, and nothing is left of them."""
import pytest

from carrel import ROOTLESS
from test_auth import refused

pytestmark = pytest.mark.skipif(not ROOTLESS, reason="as root, volumes work: test_volumes.py")


def test_volumes_are_unsupported_without_root(daemon):
    error = refused(501, "unsupported", daemon.post, "/v1/volumes", {"name": "data"})
    assert "root" in error["message"] and "--dir" in error["remedy"], error
    assert daemon.get("/v1/volumes")["volumes"] == []
    assert not list(daemon.home.glob("volumes/*"))
