#!/usr/bin/python3
"""The package cache: what the second install of 20 MB takes from the server, with apt and a signed archive on loopback.

The peer is the same install by a daemon whose cache is off. Runs as root, because the archive listens at port 80.
"""
import argparse
import os
import pathlib
import sys
import tempfile
import time

TESTS = pathlib.Path(__file__).resolve().parents[2] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "daemon"), str(TESTS / "gate")]
SIZE = 20 << 20


def install(daemon, archive, signer, url):
    """Seconds and bytes of packages from the server, for an install in a new machine."""
    box = daemon.machine(net=[{"target": "apt", "local": True}], limits={"disk": "1G", "mem": "512M"})
    archive.forget()
    began = time.monotonic()
    import archives
    archives.apt_install(daemon, box, signer, url)
    took = time.monotonic() - began
    fetched = sum(len(archive.files[p]) for p in archive.paths() if "/pool/" in p)
    daemon.delete(f"/v1/machines/{box}")
    return took, fetched


def measure(daemon, archive, signer, url, cached):
    first = install(daemon, archive, signer, url)
    if cached:
        daemon.until(lambda: daemon.get("/v1/packages")["packages"])
    return first, install(daemon, archive, signer, url)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table")
    o = parser.parse_args()
    os.environ.setdefault("CARREL_BUILD", str(pathlib.Path(__file__).resolve().parents[2] / "build"))
    import archives
    from daemon import Daemon
    host = archives.apt_host()
    if os.geteuid() != 0 or not host:
        print("requires root, and an apt of this host that uses http://")
        return 77
    where = pathlib.Path(tempfile.mkdtemp(prefix="cg-", dir="/tmp"))
    (where / "hosts").write_text(f"{archives.ADDRESS} {host}\n")
    signer, archive = archives.Signer(), archives.Archive(80)
    archives.publish(archive, signer, {"big_1.0~a_all.deb": ("big", "1.0~a", archives.make_deb("big", "1.0~a", SIZE, where))})
    found = {}
    for size in ("128M", "0"):
        daemon = Daemon(conf=f"[gate]\nhosts = {where}/hosts\npackage_cache = {size}\npackage_keyring = {signer.ring}\n")
        try:
            found[size] = measure(daemon, archive, signer, f"http://{host}/test", size != "0")
        finally:
            daemon.stop()
    signer.stop()
    archive.stop()
    (first, got), (again, took) = found["128M"]
    (_, _), (plain, plain_took) = found["0"]
    lines = ["| package bytes from the server | bar | measured | |", "|---|---|---|---|",
             f"| first install of 20 MiB, {first:.1f} s | | {got} | |",
             f"| second install, in a new machine, {again:.1f} s | 0 | {took} | {'pass' if took == 0 else 'MISS'} |",
             f"| second install with the cache off, {plain:.1f} s | | {plain_took} | |"]
    print("\n".join(lines))
    if o.table:
        pathlib.Path(o.table).write_text("\n".join(lines) + "\n")
    return 0


sys.exit(main())
