"""Requests that ask a server for another method or path than their first line says. Where a rule is about methods or paths they are refused; the control is
the same request to a host whose rule is about neither, which arrives."""
import json

import pytest

SCRIPT = """
import http.client, json, sys
host, port, rows = json.loads(sys.argv[1])
for row in rows:
    c = http.client.HTTPConnection(host, port, timeout=60)
    c.putrequest(row["method"], row["target"], skip_accept_encoding=True)
    body = row.get("body", "").encode()
    for name, value in row.get("headers", {}).items():
        c.putheader(name, value)
    if body:
        c.putheader("Content-Length", str(len(body)))
    c.endheaders()
    try:
        if body: c.send(body)
    except OSError: pass  # it is refused before all of it was read
    a = c.getresponse()
    text = a.read().decode()
    print(json.dumps([a.status, text if a.status == 403 else "fine"]))
    c.close()
"""

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
METHOD, PATH = "a rule checks methods", "a rule checks paths"
ROWS = [
    ({"method": "POST", "target": "/v1/x", "headers": {"X-HTTP-Method-Override": "DELETE"}}, METHOD),
    ({"method": "POST", "target": "/v1/x", "headers": {"X-Method-Override": "DELETE"}}, METHOD),
    ({"method": "GET", "target": "/v1/x", "headers": {"x_http_method": "PUT"}}, METHOD),
    ({"method": "POST", "target": "/v1/x?a=1&%5fmethod=DELETE"}, METHOD),
    ({"method": "POST", "target": "/v1/x", "headers": FORM, "body": "a=1&_method=DELETE"}, METHOD),
    ({"method": "POST", "target": "/v1/x", "headers": {"Content-Type": "multipart/form-data; boundary=b"},
      "body": '--b\r\nContent-Disposition: form-data; name="_method"\r\n\r\nDELETE\r\n--b--\r\n'}, METHOD),
    ({"method": "POST", "target": "/v1/x", "headers": {"Content-Type": "application/json"}, "body": '{"_method":"DELETE"}'}, METHOD),
    ({"method": "POST", "target": "/v1/x", "headers": {**FORM, "Content-Encoding": "deflate"}, "body": "x=1"}, "could hide a method"),
    ({"method": "GET", "target": "/v1/x", "headers": {"X-Original-URL": "/v2"}}, PATH),
    ({"method": "GET", "target": "/v1/x", "headers": {"X-Rewrite-URL": "/v2"}}, PATH),
    ({"method": "GET", "target": "/v1/x", "headers": {"X-Forwarded-Prefix": "/v2"}}, PATH),
    ({"method": "GET", "target": "/v1/..;/v2"}, "the path of the request is ambiguous"),
    ({"method": "GET", "target": "/v1/%c0%ae%c0%ae/v2"}, "the path of the request is ambiguous"),
    ({"method": "GET", "target": "/v1/%2e%2e/v2"}, "the path of the request is ambiguous"),
    ({"method": "GET", "target": "/v1/%252e%252e/v2"}, "the path of the request is ambiguous"),
]


def machine(gated, servers):
    return gated.machine(net=[{"target": f"http://ok.test:{servers.http}/v1", "methods": "GET,POST", "local": True},
                              {"target": f"http://other.test:{servers.http}", "local": True}])


def ask(gated, servers, box, host, rows):
    done = gated.exec(box, ["python3", "-c", SCRIPT, json.dumps([host, servers.http, rows])])
    assert done["exec"]["status"] == 0, done
    return [json.loads(line) for line in done["stdout"].splitlines()]


@pytest.mark.parametrize("rows", [ROWS[:5], ROWS[5:11], ROWS[11:]], ids=["methods", "forms and fields", "paths"])  # of more than ten a minute not all are explained
def test_what_overrides_a_method_or_a_path_is_refused(gated, servers, rows, count_attack):
    servers.forget()
    box, attacks = machine(gated, servers), [row for row, _ in rows]
    refused = ask(gated, servers, box, "ok.test", attacks)
    for (row, why), (status, text) in zip(rows, refused, strict=True):
        assert status == 403 and why in text, (row, status, text)
        count_attack()
    assert [seen for seen in servers.web.seen if seen["body"]] == [], "of a form that is refused while it comes nothing but the head arrives"
    assert [status for status, _ in ask(gated, servers, box, "other.test", attacks)] == [200] * len(attacks), "the control"
    plain = [{"method": "GET", "target": "/v1/x?method=1"}, {"method": "POST", "target": "/v1/x", "headers": FORM, "body": "a=_method&b=2"}]
    assert [status for status, _ in ask(gated, servers, box, "ok.test", plain)] == [200, 200]
