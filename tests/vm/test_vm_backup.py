"""Backups of a vm while it runs, and once it is stopped. A vm of the image host is stored without the host's /usr."""

LOOK = "cd /home/user/d; sha256sum *; stat -c '%A %u %g %N' *; cat /usr/local/bin/mine"


def run(daemon, machine, script):
    done = daemon.exec(machine, script, user="root")
    assert done["exec"]["status"] == 0, done
    return done["stdout"]


def test_running_vm_is_backed_up_and_restored(daemon, vm):
    run(daemon, vm, "mkdir /home/user/d; cd /home/user/d; head -c 3000000 /dev/urandom >a; chmod 4711 a; ln -s a l; echo 'echo own' >/usr/local/bin/mine; sync")
    first = daemon.post(f"/v1/machines/{vm}/backups")
    assert first["bytes"] < 600 << 20, "the host's /usr is not in it"
    run(daemon, vm, "cd /home/user/d; head -c 100000 /dev/urandom >b; sync")
    wanted = run(daemon, vm, LOOK)
    second = daemon.post(f"/v1/machines/{vm}/backups")
    assert 100_000 < second["written_bytes"] < 3_000_000
    again = daemon.post(f"/v1/backups/{second['id']}/restore", {})
    assert again["kind"] == "vm"
    assert run(daemon, again["id"], LOOK) == wanted
    daemon.delete(f"/v1/machines/{again['id']}")
    # The kernel of a vm that is stopped runs on, so its files are copied as those of one that runs.
    run(daemon, vm, "echo late >/home/user/d/late")
    wanted = run(daemon, vm, LOOK)
    daemon.post(f"/v1/machines/{vm}/stop")
    try:
        third = daemon.post(f"/v1/machines/{vm}/backups")
        assert daemon.get(f"/v1/machines/{vm}")["state"] == "stopped"
    finally:
        daemon.post(f"/v1/machines/{vm}/resume")
    again = daemon.post(f"/v1/backups/{third['id']}/restore", {})
    assert run(daemon, again["id"], LOOK) == wanted
    daemon.delete(f"/v1/machines/{again['id']}")
    for backup in first, second, third:
        daemon.delete(f"/v1/backups/{backup['id']}")
