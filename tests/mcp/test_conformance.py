"""The official conformance suite: against the fixture, and what fits of it against the real tools."""
import re
import subprocess

import pytest

import npm
from carrel import BUILD
from mcp_client import Door

SUITE = "@modelcontextprotocol/conformance/dist/index.js"


def passed(output):
    """Scenario -> (checks passed, failed)."""
    rows = re.findall(r"^[✓✗] ([a-z0-9-]+): (\d+) passed, (\d+) failed", output, re.M)
    return {name: (int(good), int(bad)) for name, good, bad in rows}


def run_suite(name, url, *options):
    done = subprocess.run([npm.node(), npm.module(name, SUITE), "server", "--url", url, *options], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=150, stdin=subprocess.DEVNULL)
    return done.returncode, passed(done.stdout), done.stdout


@pytest.fixture
def fixture_url():
    process = subprocess.Popen([BUILD / "tests/mcp/carrel-mcp-fixture", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    yield process.stdout.readline().strip()
    process.terminate()
    assert process.wait(20) == 0
    process.stdout.close()


def test_all_scenarios_of_the_stable_suite_pass(fixture_url):
    status, rows, output = run_suite("stable", fixture_url, "--suite", "all")
    assert status == 0 and len(rows) == 32, output
    assert all(bad == 0 and good > 0 for good, bad in rows.values()), rows
    assert sum(good for good, _ in rows.values()) >= 44


def test_the_stricter_suite_passes_wire_checks_included(fixture_url):
    npm.node()
    status, rows, output = run_suite("strict", fixture_url, "--requirements", "2025-11-25")
    assert status == 0 and len(rows) >= 30, output
    assert all(bad == 0 and good > 0 for good, bad in rows.values()), rows


def test_the_stateless_requirements_pass(fixture_url):
    """Exit status 0: all scored scenarios pass. Extensions and pending scenarios run, but are not scored."""
    npm.node()
    status, rows, output = run_suite("strict", fixture_url, "--requirements", "2026-07-28")
    scored = {name: row for name, row in rows.items() if not name.startswith("tasks-") and
              name not in ("json-schema-2020-12", "http-custom-header-server-validation")}
    assert status == 0 and len(scored) >= 37, output
    assert all(bad == 0 and good > 0 for good, bad in scored.values()), scored


@pytest.mark.parametrize("scenario", ["server-initialize", "ping", "logging-set-level", "tools-list", "resources-list",
                                      "prompts-list", "server-session-lifecycle", "server-sse-multiple-streams"])
def test_the_wire_checks_hold_for_the_real_tools(daemon, token, scenario):
    npm.node()
    door = Door(daemon.port, token)
    status, rows, output = run_suite("strict", door.url, "--scenario", scenario)
    door.listener.close()
    assert status == 0, output
