"""The tools of the desktop, as a client of MCP has them."""
import base64

from mcp_client import ToolFailed
from screens import needs_desktop, pixels

import pytest

TOOLS = {"screenshot", "click", "move", "scroll", "type", "key"}


@needs_desktop
def test_a_client_looks_and_acts(client):
    tools = client.tools()
    assert TOOLS <= set(tools)
    assert tools["screenshot"]["annotations"]["readOnlyHint"]
    result = client.ask("tools/call", {"name": "screenshot", "arguments": {}})
    image = [c for c in result["content"] if c["type"] == "image"][0]
    assert image["mimeType"] == "image/png"
    assert pixels(base64.b64decode(image["data"]))[:2] == (1280, 800)
    seen = result["structuredContent"]
    assert (seen["width"], seen["height"], seen["display"]) == (1280, 800, ":0")
    client.call("exec", cmd="DISPLAY=:0 stdbuf -oL xev -geometry 400x300+100+100 >/tmp/events", yield_ms=0)
    wait = "for i in $(seq 600); do grep -q '{}' /tmp/events && break; sleep 0.1; done; cat /tmp/events"
    client.call("exec", cmd=wait.format("Expose"), yield_ms=50000)
    client.call("click", x=200, y=210)
    client.call("move", x=220, y=230)
    client.call("scroll", x=220, y=230, direction="up", amount=1)
    client.call("type", text="a")
    client.call("key", keys="F2")
    said = client.call("exec", cmd=wait.format(", F2)"), yield_ms=50000, max_output=100000)["stdout"]
    places = [said.index(text) for text in ("root:(200,210)", "root:(220,230)", "button 4", ", a)", ", F2)")]
    assert places == sorted(places)
    with pytest.raises(ToolFailed) as refused:
        client.call("click", x=3000, y=10)
    assert "outside of the screen" in str(refused.value)


@needs_desktop
def test_a_screenshot_of_a_tainted_machine_taints_the_next_one(client, daemon):
    own = client.call("exec", cmd="true")["machine"]
    clean, seen = (client.call("machine_create")["machine"] for _ in range(2))
    daemon.post(f"/v1/machines/{own}/grants", {"kind": "env", "what": "WORD", "value": "of a stranger", "untrusted": True})
    source = lambda machine: daemon.get(f"/v1/machines/{machine}/net").get("tainted")
    client.call("exec", machine=clean, cmd="true")
    assert source(clean) is None
    client.call("screenshot")
    client.call("exec", machine=seen, cmd="true")
    assert source(seen) == "WORD"
