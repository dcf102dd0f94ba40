"""carrel reinstall of a vm: the same as of a box, and the vm boots with the files of its image."""


def test_a_vm_keeps_only_the_files_of_users(daemon):
    m = daemon.machine(kind="vm", name="anew")
    daemon.exec(m, "echo user >~/f")
    daemon.exec(m, "echo etc >/etc/of-root; echo tool >/usr/local/bin/tool; echo root >/root/f; sync", user="root")
    c = daemon.connect(timeout=300)
    view = daemon.post(f"/v1/machines/{m}/reinstall", {"keep_home": True}, connection=c)
    c.close()
    assert (view["kind"], view["state"]) == ("vm", "running")
    look = "cat /home/user/f /root/f; ls /etc/of-root /usr/local/bin/tool 2>/dev/null; true"
    assert daemon.exec(m, look, user="root")["stdout"] == "user\nroot\n"
    before, = [s for s in daemon.get(f"/v1/machines/{m}/steps")["steps"] if s["what"] == "before the reinstallation"]
    c = daemon.connect(timeout=300)
    daemon.post(f"/v1/machines/{m}/rewind", {"step": str(before["number"])}, connection=c)
    c.close()
    assert daemon.exec(m, look, user="root")["stdout"] == "user\nroot\n/etc/of-root\n/usr/local/bin/tool\n"
    daemon.delete(f"/v1/machines/{m}")
