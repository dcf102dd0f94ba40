"""A small internet for the pages: a network namespace of the test's own in which example.com is this host.

Pages name addresses and ports as readers would write them (https://api.example.com, port 7070). In a
namespace of its own the test has all of them, whatever else runs on the host.
"""
import ctypes
import fcntl
import http.server
import os
import socket
import socketserver
import ssl
import struct
import threading

from servers import make_certificate

ADDRESS = "93.184.215.14"  # one that counts as public; it is never dialled outside the namespace
NAMES = ["example.com", "www.example.com", "api.example.com"]
KEY = "kf-3141592653589793"  # what docs/howto/secrets.md stores

CLONE_NEWNET = 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK = 0x8913, 0x8914, 0x8916, 0x891C
IFF_UP = 1


def leave_network():
    """This process and its later children have no network but a loopback, which has ADDRESS too."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "make a network namespace")

    def address(text):
        return struct.pack("16sHH4s8x", b"lo:1", socket.AF_INET, 0, socket.inet_aton(text))

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        flags = struct.unpack("16xH", fcntl.ioctl(s, SIOCGIFFLAGS, struct.pack("16sH22x", b"lo", 0))[:18])[0]
        fcntl.ioctl(s, SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", flags | IFF_UP))
        fcntl.ioctl(s, SIOCSIFADDR, address(ADDRESS))
        fcntl.ioctl(s, SIOCSIFNETMASK, address("255.255.255.255"))


class Site(http.server.BaseHTTPRequestHandler):
    """example.com: greets, takes orders, and knows one key."""
    protocol_version = "HTTP/1.1"

    def answer(self):
        host = self.headers["Host"].partition(":")[0]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        status, text = 200, f"hello from {host}\n"
        if self.path == "/whoami":
            known = self.headers.get("Authorization") == f"Bearer {KEY}"
            status, text = (200, "you are the shop's agent\n") if known else (401, "who are you?\n")
        elif self.path == "/echo":
            text = f"you sent: {self.headers.get('Authorization')}\n"
        elif self.command == "POST":
            text = f"ordered: {body}\n"
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    do_GET = do_POST = do_DELETE = answer

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True

    def __init__(self, port, context=None):
        super().__init__((ADDRESS, port), Site)
        if context:
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_):
        pass


class World:
    """Servers of example.com, and what a daemon needs to find and to trust them."""

    def __init__(self, directory):
        leave_network()
        make_certificate(directory, NAMES)
        os.chmod(directory, 0o711)  # its certificates are everybody's, as a host's are
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory / "cert.pem", directory / "key.pem")
        (directory / "hosts").write_text(f"{ADDRESS} {' '.join(NAMES)}\n")
        self.conf = f"[gate]\nhosts = {directory}/hosts\nca = {directory}/ca.pem\ningress = 127.0.0.1:7071\n"
        self.servers = [Server(80), Server(443, context)]

    def stop(self):
        for s in self.servers:
            s.shutdown()
            s.server_close()
