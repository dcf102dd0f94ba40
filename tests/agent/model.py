"""A model for real agents: it lets the agent run one shell command, and says "Done." when it has the result."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "model"))

from scripted import Scripted, event, stream, whole  # noqa: E402

KEY = "the-key-of-the-owner-5093"
USAGE = (1000, 20)
SHELLS = ("Bash", "bash", "shell", "shell_command", "exec_command", "run_shell_command")


def fill(schema, command):
    """Arguments for a shell tool, by the schema that the agent sent."""
    properties = schema.get("properties", {})
    given = {}
    for name in ("command", "cmd"):
        if name in properties:
            given[name] = ["sh", "-c", command] if properties[name].get("type") == "array" else command
    for name in schema.get("required", []):
        given.setdefault(name, "run it")
    return given


class Model:
    """Answers in the three formats. `refuse` is a status and body that every call gets instead."""

    def __init__(self, command="echo by-model >>old.txt", shells=SHELLS):
        self.command, self.shells, self.refuse = command, shells, None
        self.server = Scripted(self.answer)
        self.port = self.server.port

    @property
    def requests(self):
        return self.server.requests

    def end(self):
        self.server.end()

    def answer(self, r):
        if self.refuse:
            return whole(self.refuse[1], status=self.refuse[0])
        if "messages" in r.path:
            return self.messages(r.body)
        if "responses" in r.path:
            return self.responses(r.body)
        return self.gemini(r)

    # ---- Anthropic ----

    def messages(self, body):
        tool = next((t for t in body.get("tools", []) if t.get("name") in self.shells), None)
        blocks = [b for m in body["messages"] if isinstance(m["content"], list) for b in m["content"]]
        asks = tool and not any(b.get("type") == "tool_result" for b in blocks)
        block = {"type": "tool_use", "id": "toolu_1", "name": tool["name"], "input": {}} if asks else {"type": "text", "text": ""}
        delta = ({"type": "input_json_delta", "partial_json": json.dumps(fill(tool["input_schema"], self.command))} if asks
                 else {"type": "text_delta", "text": "Done."})
        if not tool:  # a call beside the conversation, such as for its title
            delta = {"type": "text_delta", "text": "A title"}
        usage = {"input_tokens": USAGE[0], "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0, "output_tokens": 1}
        events = [{"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"],
                                                        "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}},
                  {"type": "content_block_start", "index": 0, "content_block": block},
                  {"type": "content_block_delta", "index": 0, "delta": delta},
                  {"type": "content_block_stop", "index": 0},
                  {"type": "message_delta", "delta": {"stop_reason": "tool_use" if asks else "end_turn", "stop_sequence": None},
                   "usage": {"output_tokens": USAGE[1]}},
                  {"type": "message_stop"}]
        if body.get("stream"):
            return stream([event(e, e["type"]) for e in events])
        content = [{**block, "input": fill(tool["input_schema"], self.command)} if asks else {"type": "text", "text": delta["text"]}]
        return whole({"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "content": content,
                      "stop_reason": "tool_use" if asks else "end_turn", "usage": {**usage, "output_tokens": USAGE[1]}})

    # ---- OpenAI Responses ----

    def responses(self, body):
        tools = {t.get("name"): t for t in body.get("tools", []) if t.get("type") == "function"}
        for space in (t for t in body.get("tools", []) if t.get("type") == "namespace"):  # the tools of an MCP server
            tools |= {t["name"]: {**t, "namespace": space["name"]} for t in space["tools"]}
        tool = next((tools[n] for n in self.shells if n in tools), None)
        code = any(i.get("type") == "additional_tools" for i in body["input"])  # Codex lets newer models write JavaScript
        asks = (tool or code) and not any(i.get("type", "").endswith("_call_output") for i in body["input"])
        if asks and code:
            item = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "exec", "namespace": "functions",
                    "status": "completed", "input": f"await tools.exec_command({{cmd: {json.dumps(self.command)}}})"}
        elif asks:
            item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": tool["name"], "status": "completed",
                    "arguments": json.dumps(fill(tool["parameters"], self.command)),
                    **({"namespace": tool["namespace"]} if "namespace" in tool else {})}
        else:
            item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                    "content": [{"type": "output_text", "text": "Done.", "annotations": []}]}
        done = {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "error": None, "incomplete_details": None,
                "model": body["model"], "output": [item], "usage": {
                    "input_tokens": USAGE[0], "input_tokens_details": {"cached_tokens": 0}, "output_tokens": USAGE[1],
                    "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": sum(USAGE)}}
        events = [{"type": "response.created", "response": {**done, "status": "in_progress", "output": []}},
                  {"type": "response.output_item.added", "output_index": 0, "item": item},
                  {"type": "response.output_item.done", "output_index": 0, "item": item},
                  {"type": "response.completed", "response": done}]
        return stream([event({**e, "sequence_number": n}, e["type"]) for n, e in enumerate(events)])

    # ---- Gemini ----

    def gemini(self, r):
        body = r.body
        declared = [f for t in body.get("tools", []) for f in t.get("functionDeclarations", [])]
        tool = next((f for f in declared if f["name"] in self.shells), None)
        parts = [p for c in body["contents"] for p in c.get("parts", [])]
        asks = tool and not any("functionResponse" in p for p in parts)
        wants_json = body.get("generationConfig", {}).get("responseMimeType") == "application/json"
        if asks:
            part = {"functionCall": {"name": tool["name"],
                                     "args": fill(tool.get("parametersJsonSchema") or tool.get("parameters", {}), self.command)}}
        else:
            part = {"text": json.dumps({"reasoning": "x", "model_choice": "flash", "complexity_score": 1, "complexity_reasoning": "x"})
                    if wants_json else "Done."}
        answer = {"candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}],
                  "usageMetadata": {"promptTokenCount": USAGE[0], "candidatesTokenCount": USAGE[1], "totalTokenCount": sum(USAGE)}}
        return stream([event(answer)]) if "stream" in r.path else whole(answer)
