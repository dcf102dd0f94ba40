"""The parts of the daemon's suite."""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
for path in (HERE.parent, HERE.parent / "daemon"):
    sys.path.insert(0, str(path))

import patience  # noqa: E402


time_limit = patience.time_limit(180)
