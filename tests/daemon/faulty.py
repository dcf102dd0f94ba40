"""A daemon whose writes to its database can be made to fail, and a look into that database."""
import contextlib
import errno
import itertools
import sqlite3

from carrel import BUILD
from daemon import Daemon

WAL = "carrel.db-wal"
FAULTS = itertools.count()


class Faulty(Daemon):
    """Whoever starts it again by start() has it with the same faults, until they are taken back."""

    @property
    def fault(self):
        return self.dir / "fault"

    def preload(self):
        return {"LD_PRELOAD": str(BUILD / "tests/daemon/libfail-write.so"), "FAIL_WRITE": str(self.fault)}

    def start(self, env=()):
        super().start({**self.preload(), **dict(env)})

    def fail(self, number=errno.ENOSPC, percent=100, window_ms=0, suffix=WAL, pause_ms=0, skip=0):
        """The first `skip` writes from now on pass. The last number makes each text another, so that they are counted anew."""
        new = self.dir / "fault.new"
        new.write_text(f"{number} {percent} {window_ms} {suffix} {pause_ms} {skip} {next(FAULTS)}\n")
        new.rename(self.fault)

    def heal(self):
        self.fault.unlink(missing_ok=True)

    @contextlib.contextmanager
    def failing(self, *how, **options):
        self.fail(*how, **options)
        try:
            yield
        finally:
            self.heal()

    def rows(self, sql, *values):
        with contextlib.closing(sqlite3.connect(f"file:{self.home}/carrel.db?mode=ro", uri=True, timeout=30)) as c:
            return c.execute(sql, values).fetchall()

    def taking(self, machine):
        """Steps that were begun: their intent is written down, and no result."""
        return self.rows("SELECT id FROM steps WHERE machine = ? AND state = 1", machine)

    def stop(self):
        self.heal()
        super().stop()
