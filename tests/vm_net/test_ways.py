"""What a guest reaches: the gate and nothing else, and how each refusal looks."""
import errno
import hashlib
import os
import pathlib
import socket

import pytest

from vm_lab import GATEWAY, GUEST, VmNet, missing


@pytest.mark.parametrize("target", [("1.2.3.4", 80), ("8.8.8.8", 53), ("10.0.0.1", 22), ("198.18.1.1", 443),
                                    (GATEWAY, 9999), (GATEWAY, 3129), ("169.254.169.254", 80)])
def test_tcp_reaches_gate_with_original_destination(net, target):
    guest = net.guest_begins(f"s = knock({target}); print(s)\nprint(s.recv(9), s.getpeername())")
    s, to = net.accept()
    assert to == target and s.getpeername()[0] == GUEST
    s.sendall(b"hello")
    assert guest.communicate(timeout=20)[0].strip() == f"b'hello' {target}"


def test_large_transfers_arrive_whole(net):
    guest = net.guest_begins("s = knock(('192.0.2.1', 80)); print(s)\nimport hashlib, sys\n"
                             "data = b''.join(iter(lambda: s.recv(1 << 16), b''))\nprint(hashlib.sha256(data).hexdigest())")
    data = os.urandom(3 << 20)
    s, _ = net.accept()
    s.sendall(data)
    s.shutdown(socket.SHUT_WR)
    assert guest.communicate(timeout=40)[0].strip() == hashlib.sha256(data).hexdigest()


def test_name_server_and_proxy_are_at_gateway(net):
    guest = net.guest_begins("u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.sendto(b'query', (GATEWAY, 53)); print(1)\n"
                             "u.settimeout(10); print(u.recvfrom(99))")
    query, client = net.dns_udp.recvfrom(99)
    assert query == b"query"
    net.dns_udp.sendto(b"reply", client)
    assert guest.communicate(timeout=20)[0].strip() == f"(b'reply', ('{GATEWAY}', 53))"
    for door, port in ((net.dns_tcp, 53), (net.proxy, 3128)):
        guest = net.guest_begins(f"s = knock((GATEWAY, {port})); print(s)\nprint(s.recv(9))")
        s, _ = door.accept()
        s.sendall(b"here")
        assert guest.communicate(timeout=20)[0].strip() == "b'here'"


@pytest.mark.parametrize("target", [("8.8.8.8", 53), ("1.2.3.4", 443), (GATEWAY, 54), (GATEWAY, 3129)])
def test_datagrams_are_refused_at_once_however_many(net, target):
    """More than the kernel would refuse with its usual limit, which is a few per second."""
    assert net.guest(f"""
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect({target})
s.settimeout(10)
seen = set()
for i in range(40):
    try:
        s.send(b'x'); s.recv(1)
    except OSError as e:
        seen.add(errno.errorcode.get(e.errno, str(e)))
print(*seen)""") == "EHOSTUNREACH"


@pytest.mark.parametrize("protocol", [1, 2, 4, 41, 47, 50, 51, 132, 136, 255])
def test_other_protocols_are_refused_at_once(net, protocol):
    """The kernel refuses only packets with a right checksum, and drops others."""
    data = {1: "b'\\x08\\0\\xf7\\xfd\\0\\1\\0\\1'"}.get(protocol, "b'\\xff\\xff' + bytes(6)")
    assert net.guest(f"""
s = card()
for to in ('8.8.8.8', GATEWAY):
    s.send(frame(ip(GUEST, to, {protocol}, {data})))
    print(heard(s, 15, is_refusal) is not None)""") == "True\nTrue"


def test_without_gate_connections_are_refused_at_once(net):
    for door in (net.steered, net.proxy, net.dns_udp, net.dns_tcp):
        door.close()
    assert net.guest("print(knock(('1.2.3.4', 80)), knock((GATEWAY, 53)), knock((GATEWAY, 3128)))") == " ".join(["ECONNREFUSED"] * 3)
    assert net.guest("""
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(10); s.connect((GATEWAY, 53)); s.send(b'x')
try: s.recv(1)
except OSError as e: print(errno.errorcode[e.errno])""") == "ECONNREFUSED"


def test_dial_reaches_servers_of_guest(net):
    server = net.guest_begins("l = socket.create_server(('0.0.0.0', 8000)); print(1)\n"
                              "s, peer = l.accept(); s.sendall(s.recv(9).upper()); print(peer[0])")
    s = net.dial(8000)
    s.settimeout(10)
    s.sendall(b"dialled")
    assert s.recv(9) == b"DIALLED"
    assert server.communicate(timeout=20)[0].strip() == GATEWAY
    s = net.dial(8001)
    with pytest.raises(ConnectionRefusedError):
        s.recv(1)


def test_settings_of_host_are_not_inherited(net):
    wanted = {"ip_forward": 0, "conf/all/rp_filter": 0, "conf/tap0/rp_filter": 0, "conf/all/route_localnet": 0,
              "conf/tap0/route_localnet": 0, "conf/all/log_martians": 0, "conf/tap0/log_martians": 0,
              "conf/tap0/accept_source_route": 0, "conf/tap0/forwarding": 0, "conf/tap0/proxy_arp": 0}
    names = list(wanted)
    found = net.in_vm_ns("cat", *(f"/proc/sys/net/ipv4/{name}" for name in names)).split()
    assert dict(zip(names, map(int, found))) == wanted
    assert net.in_vm_ns("ip", "-6", "address") == ""


def test_network_is_found_again_through_its_tap(net):
    inode = os.fstat(net.ns).st_ino
    assert os.fstat(net.ask("found")).st_ino == inode
    assert "not a tap" in net.ask("not a tap")
    assert os.fstat(net.ask("fresh")).st_ino != inode


def test_device_ends_with_its_descriptor(net):
    assert "tap0" in net.in_vm_ns("ip", "-o", "link")
    net.lab.kill()
    net.lab.wait()
    links = net.in_vm_ns("ip", "-o", "link")
    assert "tap0" not in links and "lo" in links
    assert GUEST not in net.in_vm_ns("ip", "route", "show", "table", "local")


def test_host_without_tun_is_named(tmp_path):
    if os.geteuid() != 0:
        pytest.skip(missing())
    net = VmNet(str(tmp_path))
    assert net.error == "this host has no /dev/net/tun, which the network of a vm needs"
