"""A guest sends what no ordinary guest sends. Each attack has a control: the ordinary form, which works."""
import os
import socket

import pytest

from vm_lab import GATEWAY, GUEST


def answers(net, *frames):
    """How the network answers to frames; the control is a SYN that follows them."""
    return net.guest(f"print(answers(card(), {', '.join(frames)}))")


@pytest.mark.parametrize("source", ["198.18.0.3", GATEWAY, "198.18.0.0", "127.0.0.1", "8.8.8.8", "0.0.0.0",
                                    "255.255.255.255", "224.0.0.1", "10.0.0.1"])
def test_packets_with_another_source_are_dropped(net, source):
    assert answers(net, f"syn({source!r}, '192.0.2.7', 80)",
                   f"frame(ip({source!r}, GATEWAY, 17, udp({source!r}, GATEWAY, 53)))",
                   f"frame(ip({source!r}, '8.8.8.8', 17, udp({source!r}, '8.8.8.8', 53)))") == "[]"
    assert net.accepts_nothing()
    net.dns_udp.setblocking(False)
    with pytest.raises(BlockingIOError):
        net.dns_udp.recv(99)


@pytest.mark.parametrize("to", ["127.0.0.1", "127.1.2.3"])
def test_loopback_of_network_is_out_of_reach(net, to):
    """127.0.0.1:3129 is the listener itself."""
    assert answers(net, *(f"syn(GUEST, {to!r}, {port})" for port in (3129, 3128, 53))) == "[]"
    assert net.accepts_nothing()


def test_servers_of_host_are_out_of_reach(net):
    with socket.create_server(("127.0.0.1", 0)) as here, socket.create_server(("0.0.0.0", 0)) as everywhere:
        for listener in (here, everywhere):
            listener.settimeout(10)
            port = listener.getsockname()[1]
            for to in ("127.0.0.1", socket.gethostbyname(socket.gethostname()), GATEWAY, "0.0.0.0"):
                answers(net, f"syn(GUEST, {to!r}, {port})")
            socket.create_connection(("127.0.0.1", port), 10).close()  # the control, and the first to come
            assert listener.accept()[1][0] == "127.0.0.1"
            listener.setblocking(False)
            with pytest.raises(BlockingIOError):
                listener.accept()


def test_other_vms_are_out_of_reach(make_net):
    """Both guests have the same address: each reaches only its own network."""
    one, other = make_net(), make_net()
    server = other.guest_begins("l = socket.create_server(('0.0.0.0', 8000)); print(1)\n"
                                "for i in range(2):\n  s, peer = l.accept(); s.sendall(b'other')\n")
    assert one.guest("print(knock((GUEST, 8000)))") == "ECONNREFUSED"
    s = one.dial(8000)
    with pytest.raises(ConnectionRefusedError):
        s.recv(1)
    assert other.dial(8000).recv(9) == b"other"
    guest = one.guest_begins("s = knock(('198.18.0.6', 8000)); print(s)\nprint(s.recv(9))")
    s, to = one.accept()
    assert to == ("198.18.0.6", 8000)
    s.close()
    assert guest.communicate(timeout=20)[0].strip() == "b''"
    assert other.accepts_nothing()
    server.kill()
    server.wait()


def test_arp_cannot_claim_addresses_nor_fill_tables(net):
    """Entries of all namespaces of a host share one table."""
    net.guest("""
s = card()
evil = mac('02:66:66:66:66:66')
s.send(frame(arp(2, evil, GATEWAY, OURS, GATEWAY), 0x0806, b'\\xff' * 6, evil))
s.send(frame(arp(1, evil, GATEWAY, bytes(6), GATEWAY), 0x0806, b'\\xff' * 6, evil))
for i in range(2000):
    sender = '10.%d.%d.%d' % (i % 7, i // 250, i % 250)
    s.send(frame(arp(1, evil, sender, bytes(6), GATEWAY), 0x0806, b'\\xff' * 6, evil))
    s.send(frame(arp(2, evil, sender, THEIRS, GATEWAY), 0x0806))""")
    # The control: an ordinary question is answered, after all of these.
    assert net.guest("s = card()\ns.send(frame(arp(1, OURS, GUEST, bytes(6), GATEWAY), 0x0806, b'\\xff' * 6))\n"
                     "print(heard(s, 20, lambda d: d[12:14] == b'\\x08\\x06' and d[22:28] == THEIRS) is not None)") == "True"
    known = {line.split()[0] for line in net.in_vm_ns("ip", "neigh", "show").splitlines()}
    assert known == {GUEST}


def test_ipv6_is_dropped(net):
    """Router advertisement, neighbour solicitation, TCP to addresses of the host: nothing answers, nothing is configured."""
    before = net.in_vm_ns("ip", "-6", "route", "show", "table", "all")
    assert net.guest("""
s = card()
link, all_nodes = bytes.fromhex('fe80' + '00' * 13 + '01'), bytes.fromhex('ff02' + '00' * 13 + '01')
def ip6(source, to, kind, data):
    return struct.pack('!IHBB', 6 << 28, len(data), kind, 255) + source + to + data
def icmp6(kind, data, to):
    head = struct.pack('!BBH', kind, 0, 0) + data
    pseudo = link + to + struct.pack('!II', len(head), 58)
    return ip6(link, to, 58, head[:2] + struct.pack('!H', sum16(pseudo + head)) + head[4:])
prefix = struct.pack('!BBBBIII', 3, 4, 64, 0xc0, 9999, 9999, 0) + bytes.fromhex('20010db8' + '00' * 12)
s.send(frame(icmp6(134, struct.pack('!BBHII', 64, 0, 1800, 0, 0) + prefix, all_nodes), 0x86dd, mac('33:33:00:00:00:01')))
for target in (all_nodes, bytes.fromhex('fe80' + '00' * 13 + '02')):
    s.send(frame(icmp6(135, bytes(4) + target, all_nodes), 0x86dd, mac('33:33:00:00:00:01')))
s.send(frame(icmp6(128, b'echoecho', all_nodes), 0x86dd, mac('33:33:00:00:00:01')))
s.send(frame(ip6(link, bytes(15) + b'\\x01', 6, tcp(GUEST, GATEWAY, 3129)), 0x86dd))
print(answers(s))""") == "[]"
    assert net.in_vm_ns("ip", "-6", "address") == ""
    assert net.in_vm_ns("ip", "-6", "neigh") == ""
    assert net.in_vm_ns("ip", "-6", "route", "show", "table", "all") == before
    assert net.guest("""
s = socket.socket(socket.AF_INET6)
try: s.connect(('2001:db8::1', 80))
except OSError as e: print(errno.errorcode[e.errno])""") in ("ENETUNREACH", "EADDRNOTAVAIL")


def test_fragments_do_not_pass_rules(net):
    """A cut SYN is put together first and reaches the gate; so does no datagram, and no cut SYN to loopback."""
    assert net.guest("""
s = card()
def cut(to, protocol, data, number):
    s.send(frame(ip(GUEST, to, protocol, data[:8], 0x2000, number)))
    s.send(frame(ip(GUEST, to, protocol, data[8:], 1, number)))
cut('127.0.0.1', 6, tcp(GUEST, '127.0.0.1', 3129), 1)
cut('8.8.8.8', 17, udp(GUEST, '8.8.8.8', 53, b'12345678'), 2)
print(heard(s, 20, is_refusal) is not None)
cut('192.0.2.7', 6, tcp(GUEST, '192.0.2.7', 80), 3)
print(heard(s, 20, is_syn_ack) is not None)
for number in range(4, 4000):   # never completed
    s.send(frame(ip(GUEST, '192.0.2.8', 6, bytes(1200), 0x2000, number)))
print(knock(('192.0.2.9', 80), 20).__class__.__name__)""") == "True\nTrue\nsocket"
    memory = net.in_vm_ns("cat", "/proc/net/sockstat")
    used = int(memory.split("FRAG:")[1].split("memory")[1].split()[0])
    assert used <= 300000


@pytest.mark.parametrize("options", ["b'\\x83\\x07\\x04' + socket.inet_aton('127.0.0.1') + b'\\0'",
                                     "b'\\x89\\x07\\x04' + socket.inet_aton('10.0.0.1') + b'\\0'"])
def test_source_routes_are_ignored(net, options):
    assert answers(net, f"syn(GUEST, GATEWAY, 80, options={options})") == "[]"
    assert net.accepts_nothing()


@pytest.mark.parametrize("kind", [0x0806, 0x0800, 0x86dd, 0x8100, 0x8847, 0x88cc, 0x0000, 0x8863])
def test_malformed_frames_do_no_harm(net, kind):
    net.guest(f"""
import random
random.seed({kind})
s = card()
for i in range(300):
    data = bytearray(random.randbytes(random.randrange(0, 200)))
    if {kind} == 0x0800 and len(data) > 20:
        data[0] = 0x45; data[9] = random.choice([1, 6, 17]); data[12:16] = socket.inet_aton(GUEST)
        data[2:4] = struct.pack('!H', random.choice([len(data), 20, 65535]))
        data[10:12] = bytes(2); data[10:12] = struct.pack('!H', sum16(bytes(data[:20])))
    s.send(frame(bytes(data), {kind}))""")
    assert "no answer" not in answers(net)
    assert net.in_vm_ns("ip", "-o", "link").count("\n") == 2


def test_counters_tell_refused_packets(net):
    """The gate learns from them that packets were refused."""
    def refused():
        lines = [line for line in os.pread(net.counters, 4096, 0).decode().splitlines() if line.startswith("Icmp: ")]
        names, values = (line.split() for line in lines)
        return int(values[names.index("OutDestUnreachs")])
    before = refused()
    net.guest("s = card()\nfor i in range(30): s.send(frame(ip(GUEST, '8.8.8.8', 17, udp(GUEST, '8.8.8.8', 53))))\n"
              "for i in range(30): print(heard(s, 20, is_refusal) is not None)")
    assert refused() == before + 30
