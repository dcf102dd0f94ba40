"""Programs that are started without standard streams: the next file they open is not taken for one."""
import json
import subprocess

from lab import counts

CLOSED = 'exec "$@" <&- >&- 2>&-'


def test_nothing_that_is_opened_becomes_a_standard_stream(make_lab, tmp_path):
    """Daemon and spawner are started by this command, too; their boxes are whole."""
    lab = make_lab()

    def bare(*words):
        return subprocess.run(["sh", "-c", CLOSED, "sh", lab.program, *map(str, words)], env=lab.env).returncode

    counts["attacks tried"] += 1
    assert bare("new", "--steps", "manual") == 0
    machine, = json.loads(lab("ls", "--json").stdout)["machines"]
    done = lab("exec", machine["id"], "--", "sh", "-c", "echo out; echo err >&2; cat", input=b"in\n")
    assert done.returncode == 0 and done.stdout == b"out\nin\n" and done.stderr == b"err\n", done
    assert bare("cp", f"{machine['id']}:/etc/passwd", tmp_path / "copy") == 0
    assert (tmp_path / "copy").read_bytes() == lab("exec", machine["id"], "--", "cat", "/etc/passwd").stdout
