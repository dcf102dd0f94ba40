"""vm-net-lab as an object: the gate's sockets, programs in the guest, frames as bytes."""
import os
import pathlib
import socket
import struct
import subprocess

from carrel import BUILD

LAB = BUILD / "tests/vm_net/vm-net-lab"
GUEST, GATEWAY = "198.18.0.2", "198.18.0.1"
GUEST_MAC, GATEWAY_MAC = "02:c6:12:00:00:02", "02:c6:12:00:00:01"
DOORS = ["steered", "proxy", "dns_udp", "dns_tcp"]


def missing():
    """What this host lacks to run the lab, which a test says when it skips; None: nothing."""
    if os.geteuid() != 0:
        return "the lab makes network namespaces as root"
    if not os.path.exists("/dev/net/tun"):
        return "this host has no /dev/net/tun"
    return None


class VmNet:
    def __init__(self, root="/"):
        self.sock, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(20)
        self.lab = subprocess.Popen([LAB, str(there.fileno()), root], pass_fds=[there.fileno()])
        there.close()
        answer, fds, _, _ = socket.recv_fds(self.sock, 300, 16)
        self.error = answer.decode() if answer != b"ok" else None
        if self.error:
            self.stop()
            return
        self.ns, self.guest_ns, self.counters, self.counters6 = fds[0], fds[1], fds[6], fds[7]
        for name, fd in zip(DOORS, fds[2:6]):
            setattr(self, name, socket.socket(fileno=fd))
            getattr(self, name).settimeout(10)
        self.in_guest("ip", "link", "set", "lo", "up")
        self.in_guest("ip", "link", "set", "eth0", "address", GUEST_MAC, "up")
        self.in_guest("ip", "address", "add", f"{GUEST}/30", "dev", "eth0")
        self.in_guest("ip", "route", "add", "default", "via", GATEWAY)

    def stop(self):
        self.sock.close()
        self.lab.wait(20)

    def ask(self, what):
        """The descriptor of the answer, or its error as text."""
        self.sock.send(what.encode())
        answer, fds, _, _ = socket.recv_fds(self.sock, 300, 1)
        return fds[0] if answer == b"ok" else answer.decode()

    def dial(self, port):
        fd = self.ask(f"dial {port}")
        assert isinstance(fd, int), fd
        s = socket.socket(fileno=fd)
        s.settimeout(10)
        return s

    def popen(self, ns, *argv, **kw):
        return subprocess.Popen(["nsenter", f"--net=/proc/self/fd/{ns}", *argv], pass_fds=[ns],
                                stdout=subprocess.PIPE, text=True, **kw)

    def run_in(self, ns, *argv):
        p = self.popen(ns, *argv)
        text = p.communicate(timeout=40)[0]
        assert p.returncode == 0, (argv, text)
        return text

    def in_guest(self, *argv):
        return self.run_in(self.guest_ns, *argv)

    def in_vm_ns(self, *argv):
        return self.run_in(self.ns, *argv)

    def guest(self, code):
        """What a Python program in the guest prints."""
        return self.in_guest("/usr/bin/python3", "-c", HELPERS + code).strip()

    def guest_begins(self, code):
        """A Python program in the guest that goes on; it has printed its first line."""
        p = self.popen(self.guest_ns, "/usr/bin/python3", "-uc", HELPERS + code)
        p.stdout.readline()
        return p

    def accept(self):
        """The next redirected connection, and its original destination."""
        s, _ = self.steered.accept()
        s.settimeout(10)
        return s, s.getsockname()

    def accepts_nothing(self):
        """True if no redirected connection waits. Sends one as a control, so the others came before it."""
        self.guest("knock(('192.0.2.99', 9))")
        s, target = self.accept()
        s.close()
        return target == ("192.0.2.99", 9)


# For programs in the guest.
HELPERS = f"""
import errno, select, socket, struct, sys, time
GUEST, GATEWAY = {GUEST!r}, {GATEWAY!r}
def knock(to, seconds=20):
    s = socket.socket()
    s.settimeout(seconds)
    try:
        s.connect(to)
        return s
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e))
def mac(text):
    return bytes(int(part, 16) for part in text.split(':'))
OURS, THEIRS = mac({GUEST_MAC!r}), mac({GATEWAY_MAC!r})
def sum16(data):
    data += b'\\0' * (len(data) % 2)
    total = sum(struct.unpack('!%dH' % (len(data) // 2), data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff
def ip(source, to, protocol, data, fragment=0, number=7, options=b''):
    head = bytearray(struct.pack('!BBHHHBBH4s4s', 0x45 + len(options) // 4, 0, 20 + len(options) + len(data), number,
                                 fragment, 64, protocol, 0, socket.inet_aton(source), socket.inet_aton(to))) + options
    head[10:12] = struct.pack('!H', sum16(bytes(head)))
    return bytes(head) + data
def tcp(source, to, port, flags=2, from_port=4000):
    head = bytearray(struct.pack('!HHIIBBHHH', from_port, port, 1000, 0, 5 << 4, flags, 65535, 0, 0))
    pseudo = socket.inet_aton(source) + socket.inet_aton(to) + struct.pack('!BBH', 0, 6, len(head))
    head[16:18] = struct.pack('!H', sum16(pseudo + bytes(head)))
    return bytes(head)
def udp(source, to, port, data=b'data', from_port=4000):
    return struct.pack('!HHHH', from_port, port, 8 + len(data), 0) + data
def frame(packet, kind=0x0800, to=THEIRS, source=OURS):
    return to + source + struct.pack('!H', kind) + packet
def card():
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    s.bind(('eth0', 0))
    return s
def heard(s, seconds, wanted):
    '''The first frame from the gateway that wanted() accepts, or None.'''
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if not select.select([s], [], [], left)[0]:
            break
        data, where = s.recvfrom(65536)
        if where[2] != socket.PACKET_OUTGOING and wanted(data):
            return data
    return None
def is_ip(data, protocol):
    return data[12:14] == b'\\x08\\0' and data[23] == protocol
def is_syn_ack(data):
    return is_ip(data, 6) and data[47] & 18 == 18
def is_refusal(data):
    return is_ip(data, 1) and data[34:36] == b'\\x03\\x0d'
def syn(source, to, port, **how):
    return frame(ip(source, to, 6, tcp(source, to, port), **how))
def answers(s, *frames):
    '''What the gateway answers to these frames, up to its answer to an ordinary SYN, the control, that follows them.'''
    for each in frames:
        s.send(each)
    s.send(frame(ip(GUEST, '192.0.2.99', 6, tcp(GUEST, '192.0.2.99', 9, from_port=4999))))
    found = []
    def is_last(data):
        last = is_syn_ack(data) and data[36:38] == struct.pack('!H', 4999)
        if not last and data[12:14] != b'\\x08\\x06':
            found.append(data)
        return last
    return found if heard(s, 20, is_last) else 'no answer to the control'
def arp(operation, sender_mac, sender, target_mac, target):
    return struct.pack('!HHBBH6s4s6s4s', 1, 0x0800, 6, 4, operation, sender_mac, socket.inet_aton(sender), target_mac,
                       socket.inet_aton(target))
"""
