"""A daemon with a directory of programs of its own."""
import os
import shutil

from carrel import BUILD
from daemon import Daemon


class Own(Daemon):
    """A daemon whose worker of archives is the test's to choose."""

    def __init__(self, where, **options):
        self.libexec = where / "libexec"
        self.libexec.mkdir()
        for part in ("carrel-daemon", "carrel-guest", "carrel-spawn"):
            shutil.copy(BUILD / "libexec" / part, self.libexec / part)
        shutil.copy(BUILD / "carrel", where / "carrel")
        self.program = self.libexec / "carrel-daemon"
        super().__init__(**options)

    def work_by(self, program):
        """Renamed, because the one before may still be running."""
        shutil.copy(program, self.libexec / "next")
        os.rename(self.libexec / "next", self.libexec / "carrel-image")

    def work_by_script(self, text):
        (self.libexec / "script").write_text("#!/bin/sh\n" + text)
        (self.libexec / "script").chmod(0o755)
        self.work_by(self.libexec / "script")

    def take(self, data, **query):
        return self.request("POST", "/v1/images", data, **query)

    def stored(self):
        return sorted(p.name for p in (self.home / "images").iterdir() if p.name.startswith("i-"))

    def workers(self):
        """Its workers that are alive."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                exe = os.readlink(f"/proc/{pid}/exe")
            except OSError:
                continue
            if exe.removesuffix(" (deleted)") in (str(self.libexec / "carrel-image"), str(self.libexec / "next")):
                found.append(int(pid))
        return found
