"""The host image: what is in it, what is not, and that its programs and packages work."""
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest
from carrel import ROOTLESS


def there(program):
    return shutil.which(program, path="/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")


def test_top_level(carrel):
    names = set(carrel.sh("ls -A /").split())
    assert {"bin", "dev", "etc", "home", "lib", "opt", "proc", "root", "run", "sbin", "srv", "tmp", "usr", "var"} <= names
    assert not names & {"boot", "lost+found", "work", "initrd.img", "vmlinuz"}


def test_accounts_of_people_do_not_come_along(carrel):
    rows = [line.split(":") for line in carrel.sh("cat /etc/passwd").splitlines()]
    assert rows[0] == ["root", "x", "0", "0", "root", "/root", "/bin/bash"]
    assert ["user", "x", "1000", "1000", "user", "/home/user", "/bin/bash"] in rows
    assert all(int(r[2]) < 1000 or r[2] in ("1000", "65534") for r in rows)
    assert len({r[0] for r in rows}) == len(rows)


def test_shadow_holds_no_password(carrel):
    for name in "/etc/shadow", "/etc/gshadow":
        rows = [line.split(":") for line in carrel.sh(f"cat {name}", "-u", "root").splitlines()]
        assert len(rows) > 3 and all(r[1] == "*" for r in rows)
        assert carrel.run("--", "cat", name).returncode != 0


SECRETS = ["/etc/ssh/ssh_host_*", "/etc/ssh/sshd_config", "/etc/ssl/private/*", "/etc/shadow-", "/etc/passwd-", "/etc/krb5.keytab",
           "/etc/NetworkManager", "/etc/wireguard", "/etc/letsencrypt", "/etc/apt/auth.conf", "/etc/apt/auth.conf.d/*",
           "/var/lib/systemd/random-seed", "/var/lib/private", "/var/log/journal", "/var/log/syslog", "/var/spool/cron/crontabs", "/boot", "/root/.ssh",
           "/etc/security/opasswd", "/var/lib/carrel", "/run/systemd", "/run/dbus", "/etc/crontab"]


def test_keys_and_services_are_not_there(carrel):
    out = carrel.sh("for f in " + " ".join(SECRETS) + "; do if ls -d $f >/dev/null 2>&1; then echo $f; fi; done", "-u", "root")
    assert out == ""


def test_rules_of_sudo_are_ours(carrel):
    """Those of the host name its people."""
    assert carrel.sh("ls -A /etc/sudoers.d", "-u", "root").split() == ["carrel"]
    rules = {line.split()[0] for line in carrel.sh("[ ! -e /etc/sudoers ] || cat /etc/sudoers", "-u", "root").splitlines() if line}
    assert rules <= {"Defaults", "root", "%sudo", "@includedir"}


def test_homes_of_the_host_are_not_there(carrel):
    assert carrel.sh("ls -A /home; ls -A /root; ls -A /home/user", "-u", "root").split() == ["user", ".profile", ".profile"]


def test_the_store_is_not_there(carrel):
    assert carrel.sh(f"ls -d {carrel.home} {carrel.run_dir} 2>/dev/null || echo no", "-u", "root") == "no\n"


def test_names_and_numbers(carrel):
    assert carrel.sh("cat /etc/hosts; getent hosts localhost >/dev/null && echo found").endswith("found\n")
    assert carrel.sh("locale 2>&1 | grep -c C.UTF-8; ls /etc/ssl/certs 2>/dev/null | wc -l; cat /etc/machine-id | wc -c").split()[0] != "0"
    assert carrel.sh("cat /etc/resolv.conf").startswith("nameserver 127.0.0.1\n")


def test_ca_certificates(carrel):
    if not os.path.exists("/etc/ssl/certs/ca-certificates.crt"):
        pytest.skip("the host has no CA bundle")
    assert carrel.sh("cksum < /etc/ssl/certs/ca-certificates.crt") == subprocess.run(
        "cksum < /etc/ssl/certs/ca-certificates.crt", shell=True, stdout=subprocess.PIPE, text=True).stdout


def test_temporary_places(carrel):
    out = carrel.sh("stat -c '%a %u' /tmp /var/tmp /run/lock /dev/shm /home/user /root /proc /dev")
    assert out.split("\n")[:6] == ["1777 0", "1777 0", "1777 0", "1777 0", "755 1000", "700 0"]


def test_devices(carrel):
    names = carrel.sh("ls /dev").split()
    assert names == ["core", "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero"]
    assert carrel.sh("echo x > /dev/null; head -c 3 /dev/zero | od -An -tx1; head -c 8 /dev/urandom | wc -c; "
                     "echo x 2>/dev/null > /dev/full || echo full; echo y > /dev/stdout").split() == ["00", "00", "00", "8", "full", "y"]


def test_proc_shows_only_the_box(carrel):
    out = carrel.sh("ls /proc | grep -c '^[0-9]*$'; cat /proc/sys/kernel/hostname; head -1 /proc/meminfo; nproc").split()
    assert int(out[0]) < 10 and out[1] == "carrel" and out[2] == "MemTotal:"


def test_no_sys(carrel):
    assert carrel.sh("ls -A /sys") == ""


def test_languages(carrel):
    assert carrel.sh("python3 -c 'print(6*7)'; perl -e 'print 6*7, \"\\n\"'; echo $((6*7))") == "42\n42\n42\n"


def test_node(carrel):
    if not there("node"):
        pytest.skip("the host has no node")
    assert carrel.run("--", "node", "-e", "console.log(6*7)").stdout == b"42\n"


def test_a_compiler(carrel):
    if not there("gcc"):
        pytest.skip("the host has no gcc")
    script = "printf '#include <stdio.h>\\nint main(void){puts(\"compiled\");}' > a.c && gcc -O2 a.c && ./a.out"
    assert carrel.sh(script) == "compiled\n"


def test_threads_processes_and_pipes_in_python(carrel):
    script = ("import concurrent.futures as f, multiprocessing as m\n"
              "with f.ThreadPoolExecutor(4) as p: print(sum(p.map(lambda x: x * x, range(10))))\n"
              "if __name__ == '__main__':\n  with m.Pool(2) as p: print(sum(p.map(abs, range(-5, 5))))")
    done = carrel.run("--", "python3", "-c", script)
    assert done.stdout == b"285\n25\n", done


def test_a_server_on_loopback(carrel):
    script = ("import http.server, threading, urllib.request\n"
              "s = http.server.ThreadingHTTPServer(('127.0.0.1', 8000), http.server.SimpleHTTPRequestHandler)\n"
              "threading.Thread(target=s.serve_forever, daemon=True).start()\n"
              "print(urllib.request.urlopen('http://127.0.0.1:8000/').status)")
    done = carrel.run("-q", "--", "python3", "-c", script)
    assert done.stdout == b"200\n", done


def test_packages_are_listed(carrel):
    inside = carrel.sh("dpkg-query -W -f '${Package} ${Version}\\n'")
    outside = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Version}\n"], stdout=subprocess.PIPE, text=True).stdout
    assert inside == outside and "dpkg" in inside
    assert carrel.sh("dpkg -l bash | tail -1").startswith("ii")
    assert carrel.sh("apt-get --version; apt-cache policy bash 2>&1; dpkg -S /bin/sh 2>/dev/null || true").startswith("apt ")


def verified(text):
    """Lines of `dpkg -V`, without those of sudo's rules, which are ours."""
    return {line for line in text.splitlines() if not line.endswith(" /etc/sudoers")}


def test_image_agrees_with_its_package_database(carrel):
    """Of the packages of up to 5 MB: to read compilers and browsers twice takes minutes, and tells no more."""
    rows = subprocess.run(["dpkg-query", "-W", "-f", "${db:Status-Abbrev} ${Installed-Size} ${binary:Package}\\n"], stdout=subprocess.PIPE, text=True).stdout.splitlines()
    sized = [row for row in map(str.split, rows) if len(row) == 3]  # packages for cross compilers have no size
    small = [name for status, size, name in sized if status == "ii" and int(size) <= 5 << 10]
    outside = subprocess.run(["dpkg", "-V", *small], stdout=subprocess.PIPE, text=True).stdout
    inside = carrel.sh(f"dpkg -V {' '.join(small)} || true", "-u", "root")
    assert verified(inside) - verified(outside) == set()
    assert not [line for line in inside.splitlines() if line.startswith("missing") and " /usr/" not in line]
    assert carrel.sh("dpkg --audit", "-u", "root") == ""


def test_files_of_packages_outside_usr_are_as_shipped(carrel):
    """What a package ships unchanged is in the image, and nothing else of these directories."""
    rows = carrel.sh("find /etc/ssh /etc/cron.d /etc/init.d /etc/systemd /etc/cron.daily /var/lib/systemd -type f 2>/dev/null "
                     "| while read -r f; do printf '%s ' $(md5sum \"$f\"); echo; done", "-u", "root").splitlines()
    status = pathlib.Path("/var/lib/dpkg/status").read_text()
    sums = "".join(p.read_text() for p in pathlib.Path("/var/lib/dpkg/info").glob("*.md5sums"))
    assert rows and all(f" {path} {md5}" in status or f"{md5}  {path[1:]}\n" in sums for md5, path in map(str.split, rows)), rows


def test_service_of_an_installed_package_is_there(carrel):
    if not os.path.exists("/etc/init.d/postgresql") or not there("pg_createcluster"):
        pytest.skip("the host has no postgresql-common")
    script = ("v=$(ls /usr/lib/postgresql | tail -1) && pg_createcluster $v main >/dev/null && service postgresql start >/dev/null && "
              "su postgres -c \"psql -tAc 'select 6*7'\"")
    done = carrel.run("-q", "-u", "root", "--timeout", "100s", "--", "sh", "-c", script)
    assert done.stdout == b"42\n", done


@pytest.fixture(scope="module")
def package():
    with tempfile.TemporaryDirectory(prefix="deb-") as name:
        top = pathlib.Path(name, "tiny")
        (top / "DEBIAN").mkdir(parents=True)
        (top / "usr/bin").mkdir(parents=True)
        (top / "DEBIAN/control").write_text("Package: carrel-tiny\nVersion: 1\nArchitecture: all\nMaintainer: t <t@t>\nDescription: t\n")
        (top / "DEBIAN/postinst").write_text("#!/bin/sh\necho configured\nuseradd -r tiny-daemon || exit 1\n")
        (top / "DEBIAN/postinst").chmod(0o755)
        (top / "usr/bin/carrel-tiny").write_text("#!/bin/sh\necho tiny\n")
        (top / "usr/bin/carrel-tiny").chmod(0o755)
        subprocess.run(["dpkg-deb", "--root-owner-group", "-b", top, name], check=True, stdout=subprocess.DEVNULL)
        top = [p for p in pathlib.Path(name).glob("*.deb")]
        os.chmod(name, 0o755)
        yield pathlib.Path(name), top[0].name


def test_a_package_installs_and_goes_away_again(carrel, package):
    where, name = package
    out = carrel.sh(f"dpkg -i {where}/{name} && carrel-tiny && id tiny-daemon && dpkg -r carrel-tiny && ! carrel-tiny 2>/dev/null && echo gone",
                    "-u", "root", "-q", "--dir", f"{where}:ro")
    assert "configured" in out and "\ntiny\n" in out and out.endswith("gone\n")
    assert not os.path.exists("/usr/bin/carrel-tiny")


def test_apt_installs_a_local_package(carrel, package):
    where, name = package
    done = carrel.run("-u", "root", "-q", "--dir", f"{where}:ro", "--", "sh", "-c",
                      f"apt-get install -y {where}/{name} && carrel-tiny")
    assert done.returncode == 0 and done.stdout.endswith(b"tiny\n"), done


def test_a_package_cannot_be_installed_by_user(carrel, package):
    where, name = package
    assert carrel.run("-q", "--dir", f"{where}:ro", "--", "dpkg", "-i", f"{where}/{name}").returncode != 0


def test_a_machine_does_not_drift_by_itself(carrel):
    m = carrel.keep()
    row = next(r for r in carrel.status()["machines"] if r["id"] == m)
    assert carrel("rm", m).returncode == 0 and row["drifted"] is False


@pytest.mark.skipif(not ROOTLESS, reason="root maps the host's files to the box's own ids")
def test_rootless_the_hosts_files_can_be_replaced_but_not_changed_in_place(carrel):
    """Nobody in the box is their owner. Doctor says so."""
    script = "f=/usr/bin/env; stat -c %u $f; touch $f 2>/dev/null || echo kept; cp $f $f.new && mv $f.new $f && stat -c %u $f && rm $f && echo gone"
    assert carrel.sh(script, "-u", "root").split() == ["65534", "kept", "0", "gone"]
    assert "files of the image belong to nobody in a box" in carrel("doctor").stdout.decode()


# The network: every name has an address, and what no rule allows is refused where it can be read.


@pytest.mark.parametrize("script", [
    "python3 -c 'import socket; print(socket.gethostbyname(\"example.com\"))'", "getent hosts example.com"])
def test_a_lookup_is_answered_by_nobody_outside(carrel, script):
    done = carrel.run("--timeout", "20s", "--", "sh", "-c", script)
    assert done.returncode == 0 and done.stdout.startswith(b"198.18."), done


def test_a_refusal_says_what_to_do(carrel):
    done = carrel.run("--timeout", "20s", "--", "curl", "-sS", "http://example.com/")
    assert b"may not reach 'example.com:80'" in done.stdout and b"carrel net" in done.stdout, done


def test_no_hint_without_a_lookup(carrel):
    done = carrel.run("--", "sh", "-c", "exit 3")
    assert done.stderr == b""


def test_a_network_that_is_none_and_one_that_makes_no_sense(carrel):
    assert carrel.run("--net", "none", "--", "true").returncode == 0
    done = carrel.run("--net", "not a host", "--", "true")
    assert done.returncode == 125 and done.stderr.count(b"\n") == 1 and b"is not a valid target" in done.stderr
