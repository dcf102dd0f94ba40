"""The systemd units say what systemd understands."""
import shutil
import subprocess

import pytest

from carrel import BUILD, PROGRAM

UNITS = {"system": BUILD / "packaging/carrel.service", "user": BUILD / "packaging/user/carrel.service"}


@pytest.mark.parametrize("kind", UNITS)
def test_the_unit_runs_the_installed_program(kind):
    text = UNITS[kind].read_text()
    assert "@" not in text and "ExecStart=/" in text and text.count("/bin/carrel serve\n") == 1
    assert "KillMode=process\n" in text  # machines outlive the daemon


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not there: apt-get install systemd")
@pytest.mark.parametrize("kind", UNITS)
def test_systemd_understands_the_unit(kind, tmp_path):
    text = UNITS[kind].read_text()
    start = next(line for line in text.splitlines() if line.startswith("ExecStart="))
    (tmp_path / "carrel.service").write_text(text.replace(start, f"ExecStart={PROGRAM} serve"))
    (tmp_path / "odd.service").write_text(text.replace(start, f"ExecStart={PROGRAM} serve").replace("KillMode=", "KilMode="))
    said = {name: subprocess.run(["systemd-analyze", "verify", "--man=no", str(tmp_path / f"{name}.service")], stderr=subprocess.PIPE).stderr.decode()
            for name in ("carrel", "odd")}
    assert "KilMode" in said["odd"], "the control: it does look"
    assert not [line for line in said["carrel"].splitlines() if "carrel.service" in line], said
