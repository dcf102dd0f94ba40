"""A guest that was taken over answers whatever it likes. A program that speaks the protocol in its place answers
the daemon's first question, TABLE, with every kind of message there is: the machine is lost, the daemon is not."""
import http.client
import json
import os
import socket
import struct
import threading
import time

import pytest

from carrel import stop_daemon
from guestlink import HEAD, NAMES, TYPES, VERSION, exec_payload, s
from lab import counts, read
from patience import PATIENCE, clock

WILD = 0x4141414141414141  # read as a pointer, it leads nowhere


def wild(count):
    return struct.pack(f"<{count}Q", *[WILD] * count)


# A well-formed message of every kind that carries something; wherever a number is free it is a wild one.
PATH = struct.pack("<4I", 0, 0, 0, 0) + s("/x")
ENTRY = struct.pack("<4I3Q", 0o100644, 0, 0, 1, WILD, WILD, WILD) + s("x") + s("")
PAYLOADS = {
    "HELLO": struct.pack("<IIQ", VERSION, 0, 99),
    "OK": wild(1),
    "ERROR": struct.pack("<II", 1, 0) + s("no"),
    "EXEC": exec_payload(["true"]),
    "EXEC_STARTED": struct.pack("<II", 1, 4096),
    "EXEC_FAILED": struct.pack("<II", 2, 7),
    "STDIN": wild(1) + b"data", "STDOUT": wild(1) + b"data", "STDERR": wild(1) + b"data",
    "CREDIT": struct.pack("<BQ", 0, WILD),
    "EXIT": struct.pack("<II4Q", 0, 0, WILD, WILD, WILD, WILD),
    "SIGNAL": struct.pack("<IB", 9, 0), "RESIZE": struct.pack("<HH", 1, 1), "ATTACH": wild(2),
    "TABLE_ROWS": struct.pack("<I", 0),
    "BUSY_STATE": struct.pack("<B3I", 0, 0, 0, 0),
    "LOG_WAIT": wild(2) + b"\3", "LOG_GREW": wild(2) + b"\3",
    "STAT": PATH, "MKDIR": PATH, "REMOVE": PATH, "CHMOD": PATH, "WATCH": PATH,
    "ENTRY": ENTRY,
    "LIST": struct.pack("<IIQI", 0, 0, 0, 1) + s("/x"),
    "LIST_PAGE": struct.pack("<QI", WILD, 1) + struct.pack("<I", len(ENTRY)) + ENTRY,
    "READ": struct.pack("<IIQI", 0, 0, 0, 1) + s("/x"),
    "READ_DATA": struct.pack("<3QI", WILD, WILD, WILD, 0) + b"data",
    "WRITE": struct.pack("<4IQ", 0, 0, 0, 0, 0) + s("/x"),
    "MOVE": struct.pack("<3I", 0, 0, 0) + s("/x") + s("/y"), "SYMLINK": struct.pack("<3I", 0, 0, 0) + s("/x") + s("/y"),
    "CHOWN": struct.pack("<5I", 0, 0, 0, 0, 0) + s("/x"),
    "EVENT": struct.pack("<II", 1, 1) + s("x"),
    "CLONE_ID": s("h") + s("") + struct.pack("<I", 32) + bytes(32),
    "DEADLINE": wild(1), "SPARES_WANT": b"\1\1", "SPARES": b"\1\1",
}
RIGHT = "TABLE_ROWS"
# What a guest answers; the daemon asks some of it (BUSY) whenever it likes.
HONEST = {"HELLO": "HELLO", "TABLE": RIGHT, "BUSY": "BUSY_STATE", "EXEC": "EXEC_FAILED", "STAT": "ENTRY", "LIST": "LIST_PAGE",
          "READ": "READ_DATA", "LOG_WAIT": "LOG_GREW"}


class FakeGuest(threading.Thread):
    """In the place of a machine's guest from now on: honest but for the answers given, a kind each."""

    def __init__(self, machine, payloads=(), **answers):
        super().__init__(daemon=True)
        self.answers, self.payloads = {**HONEST, **answers}, {**PAYLOADS, **dict(payloads)}
        self.asked = threading.Event()  # for TABLE
        self.fds = []  # it keeps all descriptors that it gets
        self.listener = socket.socket(socket.AF_UNIX)
        fd = os.open(machine.socket.parent, os.O_PATH)  # the path may be too long for a socket
        try:
            self.listener.bind(f"/proc/self/fd/{fd}/fake.sock")
            self.listener.listen(8)
            os.rename("fake.sock", "guest.sock", src_dir_fd=fd, dst_dir_fd=fd)
        finally:
            os.close(fd)
        self.start()

    def run(self):
        try:
            while True:
                conn, _ = self.listener.accept()
                threading.Thread(target=self.serve, args=(conn,), daemon=True).start()
        except OSError:
            pass  # closed by the test

    def serve(self, conn):
        held = b""
        try:
            while (received := socket.recv_fds(conn, 1 << 20, 8))[0]:
                held += received[0]
                self.fds += received[1]
                while len(held) >= HEAD.size and len(held) >= HEAD.size + HEAD.unpack_from(held)[0]:
                    n, type_, _, id_, tag = HEAD.unpack_from(held)
                    held = held[HEAD.size + n:]
                    conn.sendall(self.answer(NAMES[type_], id_, tag))
        except ConnectionError:
            pass
        finally:
            conn.close()

    def answer(self, type_, id_, tag):
        kind = self.answers.get(type_, "OK")
        if type_ == "TABLE":
            self.asked.set()
        if tag == 0 and type_ != "HELLO":
            return b""
        payload = self.payloads.get(kind, b"")
        return HEAD.pack(len(payload), TYPES[kind], 0, id_, tag) + payload

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for fd in self.fds:
            os.close(fd)


class ExitingGuest(FakeGuest):
    """Says of every command that it has ended."""

    def answer(self, type_, id_, tag):
        if type_ != "EXEC":
            return super().answer(type_, id_, tag)
        payload = struct.pack("<II4Q", 0, 0, 0, 0, 0, 0)
        return HEAD.pack(len(payload), TYPES["EXIT"], 0, id_, 0) + payload


def get(lab, target):
    """The status and body of an answer; a body that is cut short raises."""
    c = http.client.HTTPConnection("carrel", timeout=60 * PATIENCE)
    c.sock = socket.socket(socket.AF_UNIX)
    c.sock.settimeout(60 * PATIENCE)
    c.sock.connect(str(lab.run_dir / "carrel.sock"))
    c.request("GET", target)
    answer = c.getresponse()
    return answer.status, answer.read()


def running(lab):
    """The machines that the daemon holds to be running."""
    done = lab("ls", "--json")
    assert done.returncode == 0, done
    return {m["id"] for m in json.loads(done.stdout)["machines"] if m["state"] == "running"}


def test_every_kind_of_answer_to_the_first_question(make_lab):
    """Before this was checked, LOG_GREW for TABLE made the daemon read where the guest said, at every start."""
    lab = make_lab()
    honest = lab.keep()
    wrong = sorted(set(TYPES) - {RIGHT, "ERROR"})  # ERROR is an answer: it is asked again
    machines = {kind: lab.keep() for kind in [RIGHT, *wrong]}
    stop_daemon(lab.run_dir)
    fakes = {kind: FakeGuest(machine, TABLE=kind) for kind, machine in machines.items()}
    counts["attacks tried"] += len(wrong)
    try:
        assert honest.exec("true").returncode == 0  # starts the next daemon
        end = clock() + 60
        while (left := running(lab) - {honest.id, machines[RIGHT].id}) and clock() < end:
            time.sleep(0.05)
        assert not left, {kind for kind, m in machines.items() if m.id in left}
        assert all(fake.asked.wait(60) for fake in fakes.values())
        assert {honest.id, machines[RIGHT].id} <= running(lab)  # the control: the fake that answers right is believed
        stop_daemon(lab.run_dir)
        assert honest.exec("true").returncode == 0  # and again, with what is left
        assert {honest.id, machines[RIGHT].id} <= running(lab)
    finally:
        for fake in fakes.values():
            fake.close()
    log = read(lab.run_dir / "daemon.log")
    assert "AddressSanitizer" not in log and "Assertion" not in log, log


def read_data(size, data):
    return struct.pack("<3QI", size, 1, 1, 0o100644) + data


@pytest.mark.parametrize("size, data, got", [(3, b"x" * 4096, b"xxx"), (0, b"x" * 4096, b""), (3, b"abc", b"abc")])
def test_a_file_that_is_longer_than_it_says(make_lab, size, data, got):
    """No more is written than was announced; it met an assertion once, and the daemon was gone."""
    lab = make_lab()
    machine = lab.keep()
    stop_daemon(lab.run_dir)
    fake = FakeGuest(machine, {"READ_DATA": read_data(size, data)}, READ="READ_DATA")
    counts["attacks tried"] += 1
    try:
        assert machine.id in running(lab)
        before = read(lab.run_dir / "carrel.pid")
        assert fake.asked.wait(60 * PATIENCE)
        status, body = get(lab, f"/v1/machines/{machine.id}/files?path=/x")
        assert status == 200 and body == got
        assert get(lab, "/v1/machines")[0] == 200 and read(lab.run_dir / "carrel.pid") == before
    finally:
        fake.close()


@pytest.mark.parametrize("target, request_, kind", [
    ("files?path=/x", "READ", "ENTRY"), ("files/stat?path=/x", "STAT", "LOG_GREW"), ("files/list?path=/x", "LIST", "TABLE_ROWS")])
def test_a_wrong_answer_to_a_client_is_an_error(make_lab, target, request_, kind):
    lab = make_lab()
    machine, honest = lab.keep(), lab.keep()
    stop_daemon(lab.run_dir)
    fake = FakeGuest(machine, **{request_: kind})
    counts["attacks tried"] += 1
    try:
        assert {machine.id, honest.id} <= running(lab)
        before = read(lab.run_dir / "carrel.pid")
        assert fake.asked.wait(60 * PATIENCE)
        status, _ = get(lab, f"/v1/machines/{machine.id}/{target}")
        assert status >= 400
        assert honest.exec("true").returncode == 0 and read(lab.run_dir / "carrel.pid") == before
    finally:
        fake.close()


def test_exec_ends_though_the_guest_keeps_its_output_open(make_lab, tmp_path):
    """The guest promises to close the client's pipe when the command ends (MSG_EXEC_COPY), and does not."""
    lab = make_lab()
    machine = lab.keep()
    stop_daemon(lab.run_dir)
    fake = ExitingGuest(machine, payloads={"HELLO": struct.pack("<IIQ", VERSION, 32, 99)})
    counts["attacks tried"] += 1
    try:
        with open(tmp_path / "out", "wb") as out, open(tmp_path / "err", "wb") as err:
            done = lab("exec", machine.id, "--", "true", stdout=out, stderr=err)
        assert len(fake.fds) >= 3, "stdout, stderr and the log"
        assert done.returncode == 125 and "output of the command was lost" in (tmp_path / "err").read_text(), done
    finally:
        fake.close()
