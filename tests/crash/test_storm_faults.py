"""The storm of failing writes in its short form; CARREL_SOAK=1 makes it the full one. A failure prints its seed."""
import os
import random
import signal

import pytest
import storm_faults
from carrel import ROOTLESS, SOAK
from patience import PATIENCE

OPERATIONS = 5000 if SOAK else 80
LIMIT_S = 5400 if SOAK else 240
SEED = int(os.environ.get("STORM_SEED") or random.SystemRandom().randrange(1 << 32))

pytestmark = pytest.mark.skipif(ROOTLESS, reason="a step switches no root without the privileges of root")


@pytest.mark.parametrize("mode", ["enospc", "eio"])
def test_nothing_is_acknowledged_that_is_not_written(mode):
    signal.alarm(int(LIMIT_S * PATIENCE))
    lines = []
    storm = storm_faults.run(mode, OPERATIONS, SEED, lines.append)
    print("\n".join(lines[-60:]))
    assert not storm.faults, f"seed {SEED}: {storm.faults[:3]}"
    assert sum(n for (_, how), n in storm.tally.items() if how == "done") > OPERATIONS / 8, f"seed {SEED}: {storm.tally}"
