"""Wire calls of E2B's clients: what their SDKs send, written down from the contract."""
import http.client
import json
import urllib.parse

from daemon import Refused


class E2bError(Exception):
    def __init__(self, status, body):
        super().__init__(status, body)
        self.status, self.body = status, body
        self.message = body.get("message", "")


class E2b:
    def __init__(self, url, key, header="X-API-Key"):
        self.url, self.key, self.header = urllib.parse.urlsplit(url), key, header

    @classmethod
    def of(cls, daemon):
        made = daemon.post("/e2b/key")
        return cls(made["url"], made["key"])

    def find(self, daemon):
        """After a start of the daemon: another program may have its port."""
        self.url = urllib.parse.urlsplit(daemon.post("/e2b/key")["url"])

    def send(self, method, target, body=None, headers=(), chunked=True):
        """The status, headers and bytes. Bodies come in chunks, without a length, as from the SDK."""
        c = http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=120)
        own = {self.header: self.key} if self.key else {}
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        if data is not None and chunked:
            data = iter([data])
            own["Transfer-Encoding"] = "chunked"
        c.request(method, target, body=data, headers={**own, "Content-Type": "application/json", **dict(headers)},
                  encode_chunked=chunked)
        answer = c.getresponse()
        content = answer.read()
        c.close()
        return answer.status, answer.headers, content

    def call(self, method, target, body=None, status=None, **more):
        got, headers, content = self.send(method, target, body, **more)
        if got >= 300:
            error = json.loads(content)
            assert error["code"] == got and headers["Content-Type"] == "application/json"
            raise E2bError(got, error)
        assert status is None or got == status
        return json.loads(content) if content else None

    def create(self, **fields):
        return self.call("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 300, **fields}, 201)

    def info(self, sandbox):
        return self.call("GET", f"/sandboxes/{sandbox['sandboxID']}", status=200)

    def kill(self, sandbox):
        return self.call("DELETE", f"/sandboxes/{sandbox['sandboxID']}", status=204)

    def post(self, sandbox, verb, body=None, status=None, version=""):
        return self.call("POST", f"{version}/sandboxes/{sandbox['sandboxID']}/{verb}", body or {}, status)

    def list(self, **query):
        """One page: the sandboxes, and the token of the next page."""
        status, headers, content = self.send("GET", "/v2/sandboxes?" + urllib.parse.urlencode(query))
        if status != 200:
            raise E2bError(status, json.loads(content))
        return json.loads(content), headers["X-Next-Token"]


def metadata_filter(**pairs):
    """As the SDK writes it: each text percent-encoded, and then all of it as a form."""
    quoted = {urllib.parse.quote(k, safe=""): urllib.parse.quote(v, safe="") for k, v in pairs.items()}
    return urllib.parse.urlencode(quoted)


def machine_of(sandbox):
    return "m-" + sandbox["sandboxID"][1:]


def status_of(call, *words, **named):
    """The status of the refusal that the call must end with."""
    try:
        call(*words, **named)
    except (E2bError, Refused) as refusal:
        return refusal.status
    raise AssertionError("it was not refused")
