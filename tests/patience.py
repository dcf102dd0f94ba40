"""How long tests wait. A test states its times for an ordinary host; where the processor is emulated or
every access is checked, CARREL_PATIENCE says how many times slower that is (make test-vm and asan set it)."""
import os
import pathlib
import signal
import time

import pytest

PATIENCE = float(os.environ.get("CARREL_PATIENCE") or 1)


def clock():
    """Seconds as an ordinary host would count them: for deadlines, and for what must not take longer."""
    return time.monotonic() / PATIENCE


def sanitized(program):
    """Is every access of this program checked? Then its memory cannot be limited, and freed memory is kept."""
    return b"__asan_init" in pathlib.Path(program).read_bytes()


def time_limit(seconds):
    """A fixture for a suite's conftest: a test that hangs fails alone, instead of taking the suite's time."""
    def too_long(*_):
        raise TimeoutError("this test takes too long")

    @pytest.fixture(autouse=True)
    def limit():
        signal.signal(signal.SIGALRM, too_long)
        signal.alarm(int(seconds * PATIENCE))
        yield
        signal.alarm(0)
    return limit
