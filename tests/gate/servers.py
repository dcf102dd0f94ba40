"""What machines talk to in these tests: plain HTTP, TLS and bytes, on loopback ports of the kernel's choice."""
import base64
import gzip
import http.server
import json
import pathlib
import re
import socket
import socketserver
import ssl
import subprocess
import tempfile
import threading


class Web(http.server.BaseHTTPRequestHandler):
    """Tells what it was asked, and remembers."""
    protocol_version = "HTTP/1.1"

    def answer(self):
        length = self.headers.get("Content-Length")
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(length)) if length else b""
        self.server.seen.append({"method": self.command, "path": self.path, "headers": self.headers.items(),
                                 "body": body})
        if self.path == "/redirect":
            self.send_response(302)
            self.send_header("Location", "http://169.254.169.254/latest/meta-data/")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if self.path.startswith("/pieces/"):
            key = self.headers["X-Key"]
            text, size = f"before {key} after {key}{key[:7]}".encode(), int(self.path[8:])
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for at in range(0, len(text), size):
                part = text[at:at + size]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
            return
        if self.path.startswith("/as/"):  # the key, in a shape of the test's choice
            return self.give(self.path[4:], self.headers["X-Key"].encode())
        if self.path.startswith("/big/"):
            content = b"x" * int(self.path[5:])
        elif self.path == "/chunks":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for part in (b"one ", b"two ", b"three"):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")
            return
        else:
            content = json.dumps({"method": self.command, "path": self.path, "host": self.headers["Host"],
                                  "headers": dict(self.headers.items()), "body": body.decode("latin-1")}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def give(self, shape, key):
        """A key that a server gives back: in other shapes, in pieces, encoded, or after an upgrade."""
        body = {"base64": base64.b64encode(b"user:" + key), "hex": key.hex().encode(), "gzip": gzip.compress(key)}.get(shape, key)
        part = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        upgrade = self.headers.get("Upgrade") == "websocket"
        self.send_response(101 if upgrade else 206 if part or shape == "part" else 200)
        if upgrade:
            self.send_header("Connection", "Upgrade")
            self.send_header("Upgrade", "websocket")
            self.close_connection = True
        if part:
            body = body[int(part[1]):int(part[2]) + 1]
        if shape == "gzip":
            self.send_header("Content-Encoding", "gzip")
        if not upgrade:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_OPTIONS = answer

    def log_message(self, *_):
        pass


class Threaded(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, context=None):
        self.seen = []
        super().__init__(("127.0.0.1", 0), Web)
        if context:
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_):
        pass


class Echo(socketserver.ThreadingTCPServer):
    """Says hello first, as ssh and databases do; then gives everything back."""
    daemon_threads = True
    request_queue_size = 1024

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.sendall(b"hello\n")
            while data := self.request.recv(65536):
                self.request.sendall(data)

    def __init__(self):
        super().__init__(("127.0.0.1", 0), self.Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


def make_certificate(directory, names):
    """An authority of the test's own, and a certificate for its names."""
    names = ",".join("DNS:" + n for n in names)
    for line in (
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -days 2"
            " -subj /CN=test-authority",
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out req.pem -subj /CN=test",
            f"x509 -req -in req.pem -CA ca.pem -CAkey ca.key -CAcreateserial -out cert.pem -days 2 -extfile ext"):
        (directory / "ext").write_text(f"subjectAltName={names}\n")
        subprocess.run(["openssl", *line.split()], cwd=directory, check=True, capture_output=True)


class Servers:
    def __init__(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="cg-", dir="/tmp"))
        make_certificate(self.dir, ["ok.test", "other.test", "api.test", "*.ok.test", "localhost"])
        self.dir.chmod(0o711)  # its certificates are everybody's, as a host's are
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.dir / "cert.pem", self.dir / "key.pem")
        self.web, self.tls, self.echo = Threaded(), Threaded(context), Echo()
        self.ca = (self.dir / "ca.pem").read_text()

    @property
    def http(self):
        return self.web.server_address[1]

    @property
    def https(self):
        return self.tls.server_address[1]

    @property
    def tcp(self):
        return self.echo.server_address[1]

    def forget(self):
        self.web.seen.clear()
        self.tls.seen.clear()

    def stop(self):
        for s in (self.web, self.tls, self.echo):
            s.shutdown()
            s.server_close()
