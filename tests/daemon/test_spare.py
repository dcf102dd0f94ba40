"""A full disk: layers that no step needs separately are merged before a step is dropped."""
from test_steps import Box

FULL = (100 << 20) // 100 * 80


def disk_bytes(b):
    return b.d.get(b.url + "/stats")["disk_bytes"]


def snap(b, number, command):
    """Each step replaces the same file."""
    b.sh(f"{command}; head -c 9000000 /dev/urandom >f; echo {number} >n; sha256sum f >sum")
    b.snap()


def test_full_disk_merges_layers_before_it_drops_a_step(fresh):
    """Layers of steps that were deleted for their number are below those that stay: the disk is full of old versions."""
    d = fresh(conf="[steps]\nkeep = 3\nkeep_age = 1d\n")
    b = Box(d, steps="manual", limits={"disk": "100M", "mem": "512M"})
    for i in range(1, 8):
        snap(b, i, ":")
    d.until(lambda: len(b.steps()) == 3)
    snap(b, 8, f"head -c {FULL - disk_bytes(b) - 8_000_000} /dev/urandom >more")
    d.until(lambda: len(b.steps()) <= 3)
    d.until(lambda: disk_bytes(b) < FULL)
    assert [s["number"] for s in b.steps()] == [6, 7, 8]
    for number in (6, 7):
        b.rewind(number)
        assert b.sh("cat n; sha256sum --quiet -c sum") == f"{number}\n"
    assert d.get("/v1/store/check")["whole"]
