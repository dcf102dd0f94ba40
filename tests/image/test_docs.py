"""Every command of docs/reference/images.md works as it stands there, in this order."""
import re
import shutil
import subprocess

import pages
from carrel import BUILD, TOP


def test_the_commands_of_the_page_work(daemon, rootfs, tmp_path):
    lines = pages.blocks(TOP / "docs/reference/images.md", "sh")[0].text
    shutil.copy(rootfs, tmp_path / "rootfs.tar")
    env = {"PATH": f"{BUILD}:/usr/bin:/bin", "CARREL_HOME": str(daemon.home), "CARREL_RUN": str(daemon.run_dir)}
    done = subprocess.run(["bash", "-exc", lines], env=env, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    out = done.stdout.decode()
    assert "\n/made-here\n" in out and len(re.findall(r"^(?:mine|again) (i-\w+)$", out, re.M)) == 2, out
