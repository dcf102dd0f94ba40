"""A vendor on loopback with subscription logins: models of Claude and of ChatGPT, and an OAuth server whose refresh tokens work once."""
import base64
import json
import pathlib
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "model"))

from scripted import Scripted, event, messages_stream, stream, whole  # noqa: E402

CLAUDE = "sk-ant-oat01-token-of-the-owner-5581"
ACCOUNT = "acct-of-the-owner-9302"
MODELS = {"models": [{"slug": "gpt-x"}], "account": {"email": "owner@example.com"}}


def part(value):
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def jwt(name, seconds=3600):
    """An access token that ends in so many seconds."""
    claims = {"exp": int(time.time()) + seconds, "name": name, "https://api.openai.com/auth": {"chatgpt_account_id": ACCOUNT}}
    return f"{part({'alg': 'RS256'})}.{part(claims)}.signature-of-{name}"


def responses_events(model="m", tokens=(7, 3)):
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "Done.", "annotations": []}]}
    done = {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "error": None, "incomplete_details": None,
            "model": model, "output": [item], "usage": {"input_tokens": tokens[0], "input_tokens_details": {"cached_tokens": 0},
                                                        "output_tokens": tokens[1], "total_tokens": sum(tokens)}}
    events = [{"type": "response.created", "response": {**done, "status": "in_progress", "output": []}},
              {"type": "response.output_item.done", "output_index": 0, "item": item},
              {"type": "response.completed", "response": done}]
    return [event({**e, "sequence_number": n}, e["type"]) for n, e in enumerate(events)]


class Vendor:
    def __init__(self):
        self.lock = threading.Lock()
        self.reset()
        self.server = Scripted(self.answer)
        self.port = self.server.port

    def reset(self):
        """A login with one access token and one refresh token. `fault` replaces the next answers of the OAuth server."""
        self.count, self.valid, self.refresh, self.fault, self.lives = 0, {CLAUDE}, None, None, 3600
        self.calls, self.renewals = [], []

    def end(self):
        self.server.end()

    @property
    def conf(self):
        base = f"http://127.0.0.1:{self.port}"
        return f"[logins]\nclaude_url = {base}\ncodex_url = {base}/backend-api/codex\ncodex_token_url = {base}/oauth/token\n"

    def issue(self, seconds=3600):
        self.count += 1
        access, self.refresh = jwt(f"access-{self.count}", seconds), f"refresh-token-{self.count}-of-the-owner"
        self.valid.add(access)
        return access

    def auth_file(self, seconds=3600):
        """The file auth.json after a login."""
        access = self.issue(seconds)
        return json.dumps({"auth_mode": "chatgpt", "OPENAI_API_KEY": None, "last_refresh": "2026-01-01T00:00:00Z",
                           "tokens": {"id_token": access, "access_token": access, "refresh_token": self.refresh, "account_id": ACCOUNT}})

    def answer(self, r):
        with self.lock:
            if r.path == "/oauth/token":
                return self.renew(r)
            self.calls.append(r)
            if r.fields.get("authorization", "").removeprefix("Bearer ") not in self.valid:
                return whole({"type": "error", "error": {"type": "authentication_error", "message": "token expired"}}, status=401)
            if "/messages" in r.path:
                return stream(messages_stream("Done."))
            if r.path.startswith("/backend-api/codex/models"):
                return whole(MODELS)
            return stream(responses_events(r.body.get("model")))

    def renew(self, r):
        self.renewals.append(r.body)
        if self.fault:
            return self.fault(r)
        if r.body.get("refresh_token") != self.refresh:
            return whole({"error": {"code": "refresh_token_reused", "message": "already used"}}, status=401)
        access = self.issue(self.lives)
        return whole({"access_token": access, "refresh_token": self.refresh, "id_token": access})

    def secrets(self):
        """Texts that no machine, log or answer may contain."""
        return [CLAUDE, ACCOUNT, *(f"refresh-token-{n}-of" for n in range(1, self.count + 1)),
                *(f"signature-of-access-{n}" for n in range(1, self.count + 1))]
