"""A model for real agents: it lets the agent run shell commands, one after the other, and says `last` after the last result."""
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
    """Answers in the three formats. `refuse` is a status and body that every call gets instead.

    usage: tokens of input and output that each answer reports, or a function of the request and the text of the answer.
    """

    def __init__(self, command="echo by-model >>old.txt", shells=SHELLS):
        self.commands, self.shells, self.refuse, self.usage = [command], shells, None, USAGE
        self.last = "Done."
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
            return self.messages(r)
        if "responses" in r.path:
            return self.responses(r)
        return self.gemini(r)

    def next(self, tool, results):
        """The command that follows these results; None: there is none, or the agent cannot run it."""
        done = len(list(results))
        return self.commands[done] if tool and done < len(self.commands) else None

    def used(self, r, said):
        return self.usage(r, said) if callable(self.usage) else self.usage

    # ---- Anthropic ----

    def messages(self, r):
        body = r.body
        tool = next((t for t in body.get("tools", []) if t.get("name") in self.shells), None)
        blocks = [b for m in body["messages"] if isinstance(m["content"], list) for b in m["content"]]
        results = [b for b in blocks if b.get("type") == "tool_result"]
        asks = self.next(tool, results)
        block = {"type": "tool_use", "id": f"toolu_{len(results)}", "name": tool["name"], "input": {}} if asks else {"type": "text", "text": ""}
        delta = ({"type": "input_json_delta", "partial_json": json.dumps(fill(tool["input_schema"], asks))} if asks
                 else {"type": "text_delta", "text": self.last})
        if not tool:  # a call beside the conversation, such as for its title
            delta = {"type": "text_delta", "text": "A title"}
        used = self.used(r, json.dumps(delta))
        usage = {"input_tokens": used[0], "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0, "output_tokens": 1}
        events = [{"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"],
                                                        "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}},
                  {"type": "content_block_start", "index": 0, "content_block": block},
                  {"type": "content_block_delta", "index": 0, "delta": delta},
                  {"type": "content_block_stop", "index": 0},
                  {"type": "message_delta", "delta": {"stop_reason": "tool_use" if asks else "end_turn", "stop_sequence": None},
                   "usage": {"output_tokens": used[1]}},
                  {"type": "message_stop"}]
        if body.get("stream"):
            return stream([event(e, e["type"]) for e in events])
        content = [{**block, "input": fill(tool["input_schema"], asks)} if asks else {"type": "text", "text": delta["text"]}]
        return whole({"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "content": content,
                      "stop_reason": "tool_use" if asks else "end_turn", "usage": {**usage, "output_tokens": used[1]}})

    # ---- OpenAI Responses ----

    def responses(self, r):
        body = r.body
        tools = {t.get("name"): t for t in body.get("tools", []) if t.get("type") == "function"}
        for space in (t for t in body.get("tools", []) if t.get("type") == "namespace"):  # the tools of an MCP server
            tools |= {t["name"]: {**t, "namespace": space["name"]} for t in space["tools"]}
        tool = next((tools[n] for n in self.shells if n in tools), None)
        code = any(i.get("type") == "additional_tools" for i in body["input"])  # Codex lets newer models write JavaScript
        results = [i for i in body["input"] if i.get("type", "").endswith("_call_output")]
        asks = self.next(tool or code, results)
        n = len(results)
        if asks and code:
            item = {"type": "custom_tool_call", "id": f"ctc_{n}", "call_id": f"call_{n}", "name": "exec", "namespace": "functions",
                    "status": "completed", "input": f"text(await tools.exec_command({{cmd: {json.dumps(asks)}}}))"}
        elif asks:
            item = {"type": "function_call", "id": f"fc_{n}", "call_id": f"call_{n}", "name": tool["name"], "status": "completed",
                    "arguments": json.dumps(fill(tool["parameters"], asks)),
                    **({"namespace": tool["namespace"]} if "namespace" in tool else {})}
        else:
            item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                    "content": [{"type": "output_text", "text": self.last, "annotations": []}]}
        used = self.used(r, json.dumps(item))
        done = {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "error": None, "incomplete_details": None,
                "model": body["model"], "output": [item], "usage": {
                    "input_tokens": used[0], "input_tokens_details": {"cached_tokens": 0}, "output_tokens": used[1],
                    "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": sum(used)}}
        if not body.get("stream"):
            return whole(done)
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
        asks = self.next(tool, (p for p in parts if "functionResponse" in p))
        wants_json = body.get("generationConfig", {}).get("responseMimeType") == "application/json"
        if asks:
            part = {"functionCall": {"name": tool["name"],
                                     "args": fill(tool.get("parametersJsonSchema") or tool.get("parameters", {}), asks)}}
        else:
            part = {"text": json.dumps({"reasoning": "x", "model_choice": "flash", "complexity_score": 1, "complexity_reasoning": "x"})
                    if wants_json else self.last}
        used = self.used(r, json.dumps(part))
        answer = {"candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}],
                  "usageMetadata": {"promptTokenCount": used[0], "candidatesTokenCount": used[1], "totalTokenCount": sum(used)}}
        return stream([event(answer)]) if "stream" in r.path else whole(answer)
