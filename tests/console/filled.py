"""A daemon with something to see on every page of the console: for `make screenshots`, and for what is read aloud."""
import io
import json
import subprocess
import tarfile

from screens import HAS_DESKTOP
from worker import carrel

PROGRAM = "#include <stdio.h>\n\nint main(void) {\n    printf(\"hello\\n\");\n    return 0;\n}\n"


def fill(daemon, home):
    """Makes what there is to see. Returns the routes of the pages."""
    project, repo = home / "project", home / "library"
    (project / "src").mkdir(parents=True)
    (project / "src/main.c").write_text(PROGRAM)
    (project / "README").write_text("".join(f"Line {n} of the manual.\n" for n in range(60)))
    repo.mkdir()
    git = ["git", "-c", "user.name=Ann", "-c", "user.email=ann@example.invalid", "-C", repo]
    (repo / "api.txt").write_text("one\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    machine = carrel(daemon, home, "new", "--name", "webshop", "--dir", f"{project}:/home/user/project", "--repo", repo)
    for script in ("cd project && sed -i 's/hello/good morning/' src/main.c && printf 'all:\\n\\tcc src/main.c\\n' >Makefile",
                   "cd project && sed -i '4s/manual/handbook/; 50s/manual/handbook/' README",
                   "cd library && echo two >>api.txt && git commit -qam 'Describe the second call'", "false"):
        daemon.exec(machine, "cd /home/user && " + script)
    for name in ("crawler", "nightly-build", "report"):
        daemon.machine(name=name)
    asks = daemon.machine(name="mailer", net=[{"action": "ask", "target": "https://api.example.com:443"},
                                              {"action": "ask", "target": "http://a.invalid:80"}])
    daemon.post(f"/v1/machines/{asks}/execs", {"command": "curl -s -m 200 'http://a.invalid/v1/orders?since=monday'", "background": True})
    daemon.post(f"/v1/machines/{asks}/execs", {"argv": ["carrel", "ask", "Shall the mail go to all customers?"], "background": True})
    site = daemon.machine(name="site")
    daemon.post(f"/v1/machines/{site}/execs", {"argv": ["python3", "-m", "http.server", "8000"], "background": True})
    daemon.post(f"/v1/machines/{site}/exposures", {"port": 8000, "public": True})
    if HAS_DESKTOP:
        daemon.post(f"/v1/machines/{site}/desktop")
        daemon.background(site, "DISPLAY=:0 xmessage -geometry 500x300+50+60 'Shall the site go live?'")
    daemon.post(f"/v1/machines/{site}/execs", {"command": "PS1='$ ' bash --norc", "terminal": True, "background": True})
    plan = {"items": [{"text": "look at the program", "status": "done"}, {"text": "greet politely", "status": "doing"},
                      {"text": "prove it", "status": "todo"}]}
    turns = [{"turn": 0, "say": "I look at the program first, and change its greeting then.", "calls": [
                  {"tool": "plan", "arguments": plan}, {"tool": "exec", "arguments": {"cmd": "uname -a; ls -la"}}]},
             {"turn": 1, "say": "One command fails.", "calls": [{"tool": "exec", "arguments": {"cmd": "make check"}}]},
             {"calls": [{"tool": "finish", "arguments": {
                 "status": "partial", "summary": "The program greets politely. There are no tests.",
                 "open_issues": ["make check has no rule"]}}]}]
    run = daemon.post("/v1/runs", {"task": "Make the program greet politely.", "model": "rehearsal/demo", "turns": 20,
                                   "tokens": 40000, "script": json.dumps({"turns": turns})})["id"]
    daemon.until(lambda: daemon.get(f"/v1/runs/{run}")["state"] == "ended")
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as t:
        t.addfile(tarfile.TarInfo("etc/motd"))
    daemon.request("POST", "/v1/images?name=small", tar.getvalue())
    daemon.request("PUT", "/v1/secrets/API_KEY", {"value": "not a real value"})
    daemon.post("/v1/tokens", {"note": "ci", "scopes": ["read", "run"], "machines": 10})
    daemon.until(lambda: len(daemon.get("/v1/pending")["pending"]) == 2)
    return {**{p: p for p in ("machines", "approvals", "runs", "audit", "models", "images", "secrets", "tokens", "host")},
            "review": f"review/{machine}", "reviews": "review", "run": f"runs/{run}", "machine": f"machines/{machine}",
            **{tab: f"machines/{machine}?tab={tab}" for tab in ("files", "commands")},
            "network": f"machines/{asks}?tab=network", "terminals": f"machines/{site}?tab=terminals", "desktop": f"machines/{site}?tab=desktop",
            "grants": f"machines/{site}?tab=grants&preview=8000"}
