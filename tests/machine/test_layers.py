"""A machine's root as layers: frozen, rewound, forked, looked at and let go of, with real boxes."""
import os
import signal
import time

import pytest
from carrel import ROOTLESS, signal_all, spawner_pids
from drive import Drive, Failed, fresh_id
from patience import clock

KILOBYTE = 1024


class Box:
    """A machine and the layers it has: what the store keeps of it in the daemon."""

    def __init__(self, drive, stack="", **options):
        self.drive, self.id, self.xid = drive, fresh_id(), 0
        words = [f"{key}={value}" for key, value in {"linger": 1, **options}.items()]
        drive("create", self.id, *words, *([f"stack={stack}"] if stack else []))
        self.stack, self.layer = stack, 2 if stack else 1

    def sh(self, script, mode="pipe"):
        self.xid += 1
        status, out = self.drive.run(self.id, self.xid, "sh", "-c", "cd /home/user; " + script, mode=mode)
        return out.decode() if status == 0 else status

    def root(self, stack, **options):
        words = [f"{key}={value}" for key, value in options.items()]
        changed = self.drive.fields("root", self.id, f"layer={self.layer + 1}", f"stack={stack}", *words)["changed"]
        if changed == "1" or not options.get("if_changed"):
            self.stack, self.layer = stack, self.layer + 1
        return changed == "1"

    def freeze(self, **options):
        """The stack that shows what the machine shows now."""
        self.root(f"{self.id}/{self.layer} {self.stack}".strip(), **options)
        return self.stack


@pytest.fixture
def box(drive):
    made = []

    def make(*stack, **options):
        made.append(Box(drive, *stack, **options))
        return made[-1]

    yield make
    for b in made:
        drive("destroy", b.id)


def refused(code, ask, *words):
    with pytest.raises(Failed) as e:
        ask(*words)
    assert e.value.code == code, e.value
    return e.value.text


def test_a_frozen_root_goes_on_where_it_was(box):
    b = box()
    b.sh("echo one > one; mkdir d; echo x > d/x; ln -s one link; chmod 600 one")
    b.freeze()
    assert b.sh("cat one d/x link; stat -c %a%U one; ls -d /proc/self /dev/null /dev/pts /run/carrel/machine.json")\
        .split() == ["one", "x", "one", "600user", "/dev/null", "/dev/pts", "/proc/self", "/run/carrel/machine.json"]
    b.sh("rm one; echo two > two; rm -r d; mkdir d; echo y > d/y")
    b.freeze()
    assert b.sh("ls; ls d").split() == ["d", "link", "two", "y"]


def test_a_rewind_brings_the_files_of_then_back(box):
    b = box()
    states = {}
    for i in range(12):
        b.sh(f"echo {i} > f{i % 4}; rm -f g; [ {i} = 7 ] || echo {i} > g; mkdir -p d{i}/e; rm -rf d{i - 2}")
        states[b.freeze()] = b.sh("tail -n+1 f* g 2>/dev/null; ls -R")
    for stack in [*states][::-1] + [*states][::3]:
        b.root(stack)
        assert b.sh("tail -n+1 f* g 2>/dev/null; ls -R") == states[stack]


def test_renamed_directories_survive_layers(box):
    b = box()
    b.sh("mkdir -p a/b/c; echo deep > a/b/c/f; echo top > a/t")
    first = b.freeze()
    assert b.sh("mv a moved && ls") == "moved\n"
    second = b.freeze()
    assert b.sh("cat moved/b/c/f moved/t") == "deep\ntop\n"
    b.root(first)
    assert b.sh("ls; cat a/b/c/f") == "a\ndeep\n"
    b.root(second)
    assert b.sh("cat moved/b/c/f; ls") == "deep\nmoved\n"


def test_usr_and_the_root_directory_itself_are_part_of_it(box):
    b = box()
    b.sh("true")
    as_root = b.drive.fields("exec", b.id, 900, "pipe", "sh", "-c", "true")
    assert as_root["status"] == "0"
    before = b.sh("stat -c '%a %u %g' /")
    first = b.freeze()
    assert b.sh("stat -c '%a %u %g' /") == before
    assert b.sh("touch /tmp/t && stat -c %a /tmp") == "1777\n"
    b.root(first)
    assert b.sh("ls /tmp/t 2>&1 || echo none") .endswith("none\n")


def test_nothing_written_is_no_layer(box):
    b = box()
    b.sh("echo x > x")
    assert b.freeze(if_changed=1)
    layer = b.layer
    b.sh("ls / > /dev/null")
    b.freeze(if_changed=1)
    assert b.layer == layer
    b.sh("echo y > y")
    b.freeze(if_changed=1)
    assert b.layer == layer + 1


def test_while_something_runs_nothing_is_frozen(box, drive):
    b = box()
    b.sh("echo x > x")
    drive("exec", b.id, 500, "null", "sh", "-c", "cd /home/user; (while sleep 0.05; do echo beat >> beats; done) & sleep 0.2")
    refused("busy", drive, "root", b.id, "layer=2", f"stack={b.id}/1")
    drive("exec", b.id, 501, "null", "sh", "-c", "cd /home/user; sleep 0.3; cp beats later; sleep 0.2; cmp beats later && exit 1; exit 0")
    drive("exec", b.id, 502, "null", "sh", "-c", "kill -9 -1")
    end = clock() + 10
    while True:
        try:
            b.freeze()
            break
        except Failed as e:
            assert e.code == "busy" and clock() < end
            time.sleep(0.01)
    assert b.sh("test -s later && cat x") == "x\n"


def test_a_layer_that_was_used_is_not_given_again(box, drive):
    b = box()
    b.sh("echo x > x")
    b.freeze()
    b.sh("echo y > y")
    b.freeze()
    refused("invalid", drive, "root", b.id, "layer=2", "stack=")
    refused("not_found", drive, "root", b.id, "layer=9", f"stack={fresh_id()}/1")
    refused("not_found", drive, "root", b.id, "layer=9", f"stack={b.id}/77")
    assert b.sh("cat x y && echo z > z && cat z") == "x\ny\nz\n", "a refusal changes nothing"
    assert drive("root", b.id, f"layer={b.layer}", "stack=").endswith("changed=1"), "what is so may be asked for again"
    assert b.sh("cat x y z") == "x\ny\nz\n"


def test_forks_share_layers_and_nothing_else(box, drive):
    b = box()
    b.sh("echo common > f; echo b > own")
    stack = b.freeze()
    forks = [box(stack) for _ in range(3)]
    for i, f in enumerate(forks):
        assert f.sh("cat f own; stat -c %U f") == "common\nb\nuser\n"
        f.sh(f"echo {i} > own; echo {i} >> f")
    for i, f in enumerate(forks):
        assert f.sh("cat own f") == f"{i}\ncommon\n{i}\n"
    assert b.sh("cat own f") == "b\ncommon\n"
    ids = {f.sh("cat /etc/machine-id /etc/hostname") for f in forks}
    assert len(ids) == 3
    if not ROOTLESS:
        assert len({f.sh("cat /proc/self/uid_map") for f in forks}) == 3


def test_a_fork_outlives_what_it_came_from(box, drive):
    b = box()
    b.sh("echo old > f")
    stack = b.freeze()
    child = box(stack)
    child.sh("echo child > c")
    below = child.freeze()
    drive("destroy", b.id)
    grandchild = box(below)
    assert grandchild.sh("cat f c") == "old\nchild\n"
    drive("destroy", child.id)
    grandchild.sh("echo g > g")
    grandchild.freeze()
    assert grandchild.sh("cat f c g") == "old\nchild\ng\n"
    refused("not_found", drive, "create", fresh_id(), f"stack={fresh_id()}/3")


def test_views_show_steps_with_ids_as_on_disk(box, drive):
    b = box()
    b.sh("echo 1 > one")
    first = b.freeze()
    b.sh("rm one; echo 2 > two")
    second = b.freeze()
    user = 1000 if not ROOTLESS else os.getuid()
    names = [drive("view", b.id, *stack).split() for stack in ([f"stack={first}"], [f"stack={second}"], [])]
    assert [[f"one:{user}" in n, f"two:{user}" in n] for n in names] == [[True, False], [False, True], [False, False]]
    assert all("xml:0" in n or ROOTLESS or not os.path.exists("/usr/local/share/xml") for n in names), "with /usr"


def test_layers_nobody_wants_are_removed(box, drive):
    b = box(disk=64 << 20)
    used = drive.stats(b.id)["disk"]
    b.sh("head -c 20000000 /dev/zero > big")
    b.freeze()
    b.sh("rm big; mkdir -p " + "/".join(["deep"] * 200))
    b.freeze()
    assert drive.stats(b.id)["disk"] > used + 15_000_000, "history counts"
    b.root(f"{b.id}/2")  # what is mounted is never removed
    drive("keep", b.id, "ranges=2-3")
    refused("not_found", drive, "root", b.id, "layer=9", f"stack={b.id}/1")
    end = clock() + 20
    while drive.stats(b.id)["disk"] > used + 5_000_000:
        assert clock() < end
        time.sleep(0.02)
    assert b.sh("ls") == "deep\n"
    refused("invalid", drive, "keep", b.id, "ranges=3-1")


def test_a_killed_spawner_leaves_roots_that_can_be_switched_again(carrel, drive, box):
    if ROOTLESS:
        pytest.skip("rootless: boxes of an earlier spawner live below another user namespace")
    b = box()
    b.sh("echo 1 > f")
    first = b.freeze()
    signal_all(spawner_pids(carrel.run_dir), signal.SIGKILL)
    b.sh("echo 2 > f")
    second = b.freeze()
    child = box(second)
    assert child.sh("cat f") == "2\n"
    b.root(first)
    assert b.sh("cat f") == "1\n"


def test_another_daemon_goes_on(carrel, drive, box):
    b = box()
    b.sh("echo 1 > f")
    b.freeze()
    other = Drive(carrel)
    other("adopt", b.id)
    assert other("root", b.id, "layer=2", f"stack={b.id}/1") == "changed=1"
    assert other.run(b.id, 700, "cat", "/home/user/f") == (0, b"1\n")
    other.quit()


def test_old_roots_leave_nothing_mounted(box):
    b = box()
    for i in range(20):
        b.sh(f"echo {i} > f{i}")
        b.freeze()
    mounts = b.sh("cat /proc/self/mountinfo").splitlines()
    assert len([line for line in mounts if " - overlay " in line]) == 2
    assert not [line for line in mounts if "held" in line.split(" - ")[0]]
    assert b.sh("ls | wc -l") == "20\n"


def usr_mount(b):
    """The number of the mount of /usr."""
    return [line.split()[0] for line in b.sh("cat /proc/self/mountinfo").splitlines() if line.split()[4] == "/usr"]


def opened(b):
    """A machine whose `user` may write to /usr/local/bin."""
    assert b.sh("chmod a+w /usr/local/bin", mode="root") == ""
    return b


needs_roots = pytest.mark.skipif(ROOTLESS, reason="a step switches no root without the privileges of root")


@needs_roots
def test_a_step_keeps_the_mount_of_usr_if_nothing_was_written_there(box):
    b = box()
    b.sh("echo 1 > f")
    b.freeze()
    before = usr_mount(b)
    for i in range(5):
        b.sh(f"echo {i} > f")
        b.freeze()
        assert usr_mount(b) == before, i
    b.root(b.stack.split(" ", 1)[1])
    assert usr_mount(b) != before, "a rewind makes another"


@needs_roots
def test_each_step_shows_the_usr_of_its_time(box):
    """Writes to /usr in some of many steps: every one shows what was there, whichever mount it was written through."""
    b = opened(box())
    stacks = []
    for i in range(8):
        b.sh(f"echo {i} > f" + (f"; echo {i} > /usr/local/bin/usr{i}; rm -f /usr/local/bin/usr{i - 3}" if i % 3 == 0 else ""))
        stacks.append((b.sh("cat f; ls /usr/local/bin; stat -c '%n %a %U' /usr /usr/local/bin"), b.freeze()))
    for wanted, stack in stacks + stacks[::-1]:
        b.root(stack)
        assert b.sh("cat f; ls /usr/local/bin; stat -c '%n %a %U' /usr /usr/local/bin") == wanted, stack
    b.sh("echo late > /usr/local/bin/late")
    for wanted, stack in stacks:
        fork = box(stack)
        assert fork.sh("cat f; ls /usr/local/bin; stat -c '%n %a %U' /usr /usr/local/bin") == wanted, "the step did not change"


@needs_roots
def test_what_is_written_to_usr_after_a_step_is_not_in_it(box, drive):
    b = opened(box())
    b.freeze()
    b.sh("echo 1 > f")
    first = b.freeze()
    b.sh("echo 2 > /usr/local/bin/two")
    second = b.freeze()
    b.root(first)
    assert b.sh("ls /usr/local/bin | grep -c two") == 1
    b.root(second)
    assert b.sh("cat /usr/local/bin/two") == "2\n"


@needs_roots
def test_usr_stays_whole_when_its_layers_are_merged_and_removed(box, drive):
    b = opened(box(disk=64 << 20))
    used = drive.stats(b.id)["disk"]
    b.sh("echo 1 > /usr/local/bin/one; head -c 20000000 /dev/zero > big")
    b.freeze()
    b.sh("rm big; echo 2 > f")
    b.freeze()
    b.sh("echo 3 > f")
    one = merged(drive, b, b.freeze(), 20_000_000)
    b.sh("echo 4 > f")
    b.root(f"{b.id}/{b.layer} {one}")  # the mount of /usr had layers that the new stack lacks
    drive("keep", b.id, f"ranges={b.layer - 1}-{b.layer} 20000000")
    end = clock() + 20
    while drive.stats(b.id)["disk"] > used + 5_000_000:
        assert clock() < end
        time.sleep(0.02)
    assert b.sh("cat /usr/local/bin/one f") == "1\n4\n"
    assert b.sh("rm /usr/local/bin/one; ls /usr/local/bin | grep -c one") == 1


@needs_roots
def test_a_step_with_a_writer_in_usr_is_refused_and_usr_stays_writable(box, drive):
    b = opened(box())
    b.sh("echo 1 > f")
    b.freeze()
    b.sh("echo 2 > f; (exec 9>/usr/local/bin/open; sleep 100) >/dev/null 2>&1 & sleep 0.3")
    stack = b.stack
    refused("busy", drive, "root", b.id, f"layer={b.layer + 1}", f"stack={b.id}/{b.layer} {stack}")
    assert b.sh("echo more > /usr/local/bin/more; cat /usr/local/bin/more f") == "more\n2\n"


def merged(drive, b, stack, layer):
    """The stack with its layers in one."""
    end = clock() + 20
    while True:
        try:
            drive("merge", b.id, f"layer={layer}", f"stack={stack}")
            return f"{b.id}/{layer}"
        except Failed as e:
            assert e.code == "busy" and clock() < end, e
            time.sleep(0.005)


OPERATIONS = [
    "mkdir -p {a}", "echo {n} > {a} 2>/dev/null", "rm -rf {a}", "mv -T {a} {b} 2>/dev/null", "mkdir -p {a}/{b}/{c}",
    "echo {n} > {a}/{c} 2>/dev/null", "ln -sf {b} {a} 2>/dev/null", "chmod 7{m}5 {a} 2>/dev/null",
    "rm -rf {a} && mkdir {a} && echo {n} > {a}/{b}", "mv {a} {b}/ 2>/dev/null", "cp -r {a} {b}/ 2>/dev/null",
    "ln {a} {b}.hard 2>/dev/null", "setfattr -n user.x -v {n} {a} 2>/dev/null", "mv -T {a}/{b} {c} 2>/dev/null",
    "touch -d @{n} {a} 2>/dev/null", "rm -f {a}/* 2>/dev/null",
]
ADDING = ["mkdir -p {a}/{b}/{c}", "echo {n} > {a}/{b}/{c} 2>/dev/null", "mkdir -p {b}{n}; echo {n} > {b}{n}/{c}",
          "mv -T {a}/{b} {a}{n} 2>/dev/null", "touch {a}/{n}"]
TREE = ("{ find . -type d -printf '%p d %m %T@\\n'; find . ! -type d -printf '%p %y %m %s %T@ %l\\n'; } | sort;"
        " find . -type f | sort | xargs -r md5sum; getfattr -R . 2>/dev/null; true")


@pytest.mark.parametrize("seed", range(4))
def test_merged_layers_show_the_same(box, drive, seed):
    """Random changes over many layers; every split of the stack, merged, shows what the originals do."""
    import random
    rng = random.Random(seed)
    b = box()
    b.sh("mkdir work; cd work; for a in p q r s t; do for b in u v w; do mkdir -p $a/$b/y; echo $a$b >$a/$b/z; done; done")
    stacks = []
    for i in range(12):
        words = {"m": 0}
        script = []
        for k in range(15):
            words.update(a=rng.choice("pqrst"), b=rng.choice("uvwxp"), c=rng.choice("yzq"), n=1000 * i + k, m=rng.choice("057"))
            script.append(rng.choice(OPERATIONS + ADDING * 3).format(**words))
        b.sh("cd work; " + "\n".join(script) + "\ntrue")
        stacks.append(b.freeze())
    whole = stacks[-1].split()
    b.root(stacks[-1])
    wanted = b.sh(f"cd work; {TREE}")
    assert len(wanted.splitlines()) > 12
    for number, (first, last) in enumerate([(0, 12), (0, 5), (5, 12), (3, 7), (10, 12)]):
        one = merged(drive, b, " ".join(whole[first:last]), 20_000_000 + number)
        b.root(" ".join(whole[:first] + [one] + whole[last:]))
        assert b.sh(f"cd work; {TREE}") == wanted, (first, last)
    b.root(stacks[5])
    assert b.sh("ls work") is not None
    b.root(stacks[-1])
    assert b.sh(f"cd work; {TREE}") == wanted, "the originals are as they were"


def test_merging_what_cannot_be(box, drive):
    b = box()
    for i in range(3):
        b.sh(f"echo {i} > f{i}")
        b.freeze()
    refused("invalid", drive, "merge", b.id, "layer=20000000", f"stack={b.id}/1")
    refused("invalid", drive, "merge", b.id, "layer=2", f"stack={b.id}/2 {b.id}/1")
    refused("invalid", drive, "merge", b.id, "layer=20000000", f"stack={fresh_id()}/2 {b.id}/1")
    one = merged(drive, b, f"{b.id}/2 {b.id}/1", 20_000_000)
    refused("exists", drive, "merge", b.id, "layer=20000000", f"stack={b.id}/3 {b.id}/2")
    with pytest.raises(AssertionError, match="not_found"):
        merged(drive, b, f"{b.id}/77 {b.id}/2", 20_000_001)
    b.root(f"{b.id}/3 {one}")
    assert b.sh("cat f0 f1 f2") == "0\n1\n2\n"
