"""A PostgreSQL server of the test's own: Debian's binaries, run as an ordinary user in a directory of its own, on loopback."""
import os
import pathlib
import secrets
import shutil
import socket
import subprocess
import tempfile
import urllib.parse

BINS = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/postgres"))
BIN = BINS[-1].parent if BINS else None


class Server:
    def __init__(self, port=0):
        """port: 0 for one of the kernel's choice."""
        self.token = secrets.token_hex(8)  # to be found wherever the password went
        self.password = f"the owner's own: p@ss/{self.token}"
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="cg-pg-", dir="/tmp"))
        with socket.socket() as s:
            s.bind(("127.0.0.1", port))
            self.port = s.getsockname()[1]
        (self.dir / "pw").write_text(self.password)
        self.as_user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.getuid() == 0 else []
        if self.as_user:
            for path in (self.dir, self.dir / "pw"):
                os.chown(path, 65534, 65534)
        self.run("initdb", "-N", "-A", "scram-sha-256", "-U", "boss", f"--pwfile={self.dir}/pw", "--locale=C", "-E", "UTF8", "-D", f"{self.dir}/data")
        self.start()

    def run(self, program, *words, **more):
        return subprocess.run([*self.as_user, str(BIN / program), *words], check=True, capture_output=True, text=True, timeout=100, cwd="/", **more)

    def start(self):
        options = f"-h 127.0.0.1 -p {self.port} -k {self.dir} -c fsync=off -c max_connections=50 -c shared_buffers=4MB -c log_statement=all"
        # Its own files are its log's: pg_ctl's children would keep our pipes open.
        subprocess.run([*self.as_user, str(BIN / "pg_ctl"), "-w", "-D", f"{self.dir}/data", "-l", f"{self.dir}/log", "-o", options, "start"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=100, cwd="/")

    def stop(self):
        subprocess.run([*self.as_user, str(BIN / "pg_ctl"), "-w", "-m", "immediate", "-D", f"{self.dir}/data", "stop"],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=100, cwd="/")

    def remove(self):
        self.stop()
        shutil.rmtree(self.dir, ignore_errors=True)

    def sql(self, text, database="postgres"):
        env = {"PGPASSWORD": self.password, "PATH": "/usr/bin:/bin"}
        done = subprocess.run([str(BIN / "psql"), "-X", "-qAt", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", str(self.port), "-U", "boss", "-d", database, "-c", text],
                              capture_output=True, text=True, timeout=60, env=env, check=True)
        return done.stdout.splitlines()

    def speak_tls(self, cert, key):
        """From now on, with that certificate; None: no more."""
        if cert:
            for name, path in (("server.crt", cert), ("server.key", key)):
                to = self.dir / "data" / name
                to.write_bytes(pathlib.Path(path).read_bytes())
                to.chmod(0o600)
                if self.as_user:
                    os.chown(to, 65534, 65534)
        self.sql(f"ALTER SYSTEM SET ssl = {'on' if cert else 'off'}")
        self.sql("SELECT pg_reload_conf()")

    def left(self):
        """Databases and roles of ours."""
        return self.sql("SELECT datname FROM pg_database WHERE datname LIKE 'carrel%' UNION ALL SELECT rolname FROM pg_roles WHERE rolname LIKE 'carrel%'")

    def log(self):
        return (self.dir / "log").read_text()

    @property
    def dsn(self):
        password = urllib.parse.quote(self.password, safe="'")
        return f"postgres://boss:{password}@127.0.0.1:{self.port}/shop"
