"""Users of commands: the machine's own passwd and group files decide, and they are hostile."""
import pytest

# The files of the host's image are replaced: the host may have accounts with the same names and ids.
ACCOUNTS = r"""
mkdir -p /srv/db && chown 109:117 /srv/db && chmod 700 /srv/db
echo 'root:x:0:0:root:/root:/bin/bash
user:x:1000:1000::/home/user:/bin/bash
postgres:x:109:117:PostgreSQL:/srv/db:/bin/dash
lost:x:110:117::/no/such/home:/no/such/shell' >/etc/passwd
echo 'root:x:0:
user:x:1000:
postgres:x:117:
ssl-cert:x:112:lost,postgres
near:x:113:postgresql
docker:x:114:user' >/etc/group
"""
SHOW = 'echo "$(id -u):$(id -g):$(id -G):$HOME:$SHELL:$USER:$LOGNAME:$(pwd)"'


@pytest.fixture
def accounts(daemon, box):
    assert daemon.exec(box, ACCOUNTS, user="root")["exec"]["status"] == 0
    return box


def shown(daemon, box, **fields):
    r = daemon.exec(box, SHOW, **fields)
    assert r["exec"]["status"] == 0, r
    return r["stdout"].rstrip("\n")


@pytest.mark.parametrize("fields, want", [
    ({"user": "postgres"}, "109:117:117 112:/srv/db:/bin/dash:postgres:postgres:/srv/db"),
    ({"user": "109"}, "109:117:117 112:/srv/db:/bin/dash:postgres:postgres:/srv/db"),
    ({"user": "postgres", "cwd": "/tmp", "env": {"HOME": "/h", "SHELL": "/s"}},
     "109:117:117 112:/h:/s:postgres:postgres:/tmp"),
    # like login: a home that does not exist is the root directory
    ({"user": "lost"}, "110:117:117 112:/no/such/home:/no/such/shell:lost:lost:/"),
    # a number without an account
    ({"user": "4321"}, "4321:4321:4321:/:/bin/sh:4321:4321:/"),
    # the users that every machine has also get their groups
    ({"user": "user"}, "1000:1000:1000 114:/home/user:/bin/bash:user:user:/home/user"),
    ({}, "1000:1000:1000 114:/home/user:/bin/bash:user:user:/home/user"),
    ({"user": "root"}, "0:0:0:/root:/bin/bash:root:root:/root"),
])
def test_a_command_gets_ids_groups_home_and_shell_of_its_user(daemon, accounts, fields, want):
    assert shown(daemon, accounts, **fields) == want


def test_an_unknown_user_is_an_error_that_names_the_file(daemon, box):
    x = daemon.exec(box, "true", user="nobody-of-that-name")["exec"]
    assert x["status"] == 125 and x["reason"] == "there is no user 'nobody-of-that-name' in /etc/passwd of the machine"


@pytest.mark.parametrize("make", [
    "mkfifo /etc/passwd", "mkdir /etc/passwd", "ln -s /dev/zero /etc/passwd", "ln -s passwd /etc/passwd",
    "ln -s /proc/self/mem /etc/passwd", "true", ": >/etc/passwd",
    "truncate -s 2M /etc/passwd; echo postgres:x:0:0::/:/bin/sh | dd of=/etc/passwd conv=notrunc status=none",
    "head -c 900000 /dev/urandom >/etc/passwd", "yes a:x:1:1:: | tr -d '\\n' | head -c 900000 >/etc/passwd",
    "printf 'postgres:x:4294967296:0::/:/bin/sh\\npostgres:x:-1:0::/:/bin/sh\\npostgres:x' >/etc/passwd"])
def test_hostile_files_have_no_users_and_hold_nothing_up(daemon, box, make):
    script = f"rm -f /etc/passwd /etc/group; ({make}) && (cp -a /etc/passwd /etc/group || true)"
    assert daemon.exec(box, script, user="root")["exec"]["status"] == 0
    assert daemon.exec(box, "true", user="postgres")["exec"]["status"] == 125
    # the users that every machine has do not need the files
    assert shown(daemon, box) == "1000:1000:1000:/home/user:/bin/bash:user:user:/home/user"
    assert shown(daemon, box, user="root").startswith("0:0:0:/root:")


def test_an_account_cannot_make_user_another_user(daemon, box):
    """`user` is uid 1000 also for files, so an account of that name with another uid does not count."""
    script = "sed -i 's/^user:x:1000:1000/user:x:0:0/' /etc/passwd && grep -q ^user:x:0:0 /etc/passwd"
    assert daemon.exec(box, script, user="root")["exec"]["status"] == 0
    assert shown(daemon, box, user="user").startswith("1000:1000:1000:/home/user")


def test_more_groups_than_the_kernel_needs_are_capped(daemon, box):
    script = ("echo many:x:200:200::/:/bin/sh >/etc/passwd; "
              "for i in $(seq 2000); do echo g$i:x:$((i+3000)):many; done >/etc/group")
    assert daemon.exec(box, script, user="root")["exec"]["status"] == 0
    groups = daemon.exec(box, "id -G", user="many")["stdout"].split()
    assert len(groups) == 1024 and groups[0] == "200" and "3001" in groups
