"""How long tests wait. A test states its times for an ordinary host; where the processor is emulated or
every access is checked, CARREL_PATIENCE says how many times slower that is (make test-vm and asan set it)."""
import os
import time

PATIENCE = float(os.environ.get("CARREL_PATIENCE") or 1)


def clock():
    """Seconds as an ordinary host would count them: for deadlines, and for what must not take longer."""
    return time.monotonic() / PATIENCE
