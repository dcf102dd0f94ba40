"""Programs from npm that the tests drive: installed once into the build folder, never committed."""
import fcntl
import pathlib
import platform
import shutil
import subprocess

import pytest

from carrel import BUILD

ARCH = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), "none")
# The suite needs a newer node than stable distributions have; it is a package too.
PACKAGES = {
    "stable": ["@modelcontextprotocol/sdk@1.32.2", "@modelcontextprotocol/conformance@0.1.16",
               "@modelcontextprotocol/inspector@0.15.0", f"node-linux-{ARCH}@22"],
    "strict": ["@modelcontextprotocol/conformance@0.2.0-alpha.12"],
    "servers": ["@modelcontextprotocol/server-everything@2026.8.31", "@modelcontextprotocol/server-filesystem@2026.8.31", f"node-linux-{ARCH}@22"],
    "eras": ["@modelcontextprotocol/inspector@2.12.0"],
}
INSTALL_S = 240
failed = {}


def install(name):
    """The folder with node_modules in it; without a network the test is skipped, with the reason."""
    folder = BUILD / "npm-mcp" / name
    done = folder / "installed"
    if name in failed:
        pytest.skip(failed[name])
    if not shutil.which("npm"):
        pytest.skip("npm is not there")
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if done.exists() and done.read_text() == "\n".join(PACKAGES[name]):
            return folder
        try:
            run = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder),
                                  *PACKAGES[name]], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                 stdin=subprocess.DEVNULL, timeout=INSTALL_S)
            problem = run.stdout.strip().splitlines()[-1] if run.returncode else None
        except subprocess.TimeoutExpired:
            problem = f"it took more than {INSTALL_S} s"
        if problem:
            failed[name] = f"npm cannot install {name} packages: {problem}"
            pytest.skip(failed[name])
        done.write_text("\n".join(PACKAGES[name]))
    return folder


def node():
    return str(install("stable") / "node_modules" / f"node-linux-{ARCH}" / "bin/node")


def module(name, path):
    return str(install(name) / "node_modules" / path)


def modules(name):
    return str(install(name) / "node_modules")


def script(name):
    return str(pathlib.Path(__file__).resolve().parent / name)
