"""Imports are under the disk quota while they unpack, whatever an archive takes disk for."""
import gzip
import socket
import tarfile

import pytest

from daemon import Daemon, Refused
from conftest import left_over
from trees import archive, entry, hard, layout, link

QUOTA = 4 << 20


def pax(name, **headers):
    return entry(name, b"", pax_headers=headers)


# Each of them is small as it is sent, and takes more than the quota on the disk.
GREEDY = {
    "contents": lambda: archive(entry("f", bytes(3 * QUOTA))),
    "blocks of small files": lambda: archive(*(entry(f"f{i}", b"x") for i in range(1200))),
    "directories that are only implied": lambda: archive(*(entry(f"{i}/" + "d/" * 60 + "f", b"") for i in range(20))),
    "targets of links": lambda: archive(*(link(f"l{i}", "t" * 3000) for i in range(1200))),
    "attributes": lambda: archive(*(pax(f"f{i}", **{"SCHILY.xattr.user.a": "v" * 3000}) for i in range(1200)), format=tarfile.PAX_FORMAT),
    "layers that are laid aside": lambda: layout([archive(entry("f", bytes(3 * QUOTA)))]),
}


@pytest.fixture(scope="module")
def server():
    d = Daemon("--listen", "127.0.0.1:0")
    yield d
    d.stop()


@pytest.fixture
def tcp(server):
    """Makes clients with tokens; machines and images of theirs end with the test."""
    made = []

    def make(**token):
        made.append(server.tcp(**token))
        return made[-1]

    yield make
    server.clear()
    for client in made:
        for image in client.get("/v1/images")["images"]:
            client.delete("/v1/images/" + image["name"])
    server.until(lambda: left_over(server) == [])


@pytest.mark.parametrize("what", GREEDY)
def test_an_import_ends_at_the_disk_quota(tcp, what):
    data = gzip.compress(GREEDY[what]())
    assert len(data) < QUOTA / 8
    owner = f"q{list(GREEDY).index(what)}"
    with pytest.raises(Refused) as why:
        tcp(owner=owner, disk=str(QUOTA)).request("POST", "/v1/images", data, name="greedy")
    assert why.value.code == "limit" and "larger than the rest of the disk quota" in str(why.value), why.value
    # The control: the same archive is an image where there is no quota.
    assert tcp(owner=owner + "free").request("POST", "/v1/images", data, name="greedy")["name"] == "greedy"


def test_blocks_count_that_the_reader_of_the_archive_does_not(server, tcp):
    """More names of a file cost nothing by the reader's rule, but a directory full of them has its blocks."""
    names = [f"d/{i:05}" + "n" * 240 for i in range(5000)]
    data = gzip.compress(archive(entry("d/f", b""), *(hard(n, "d/f") for n in names)))
    # The control: where there is no quota it is an image, and its tree shows what it takes.
    image = tcp(owner="namesfree").request("POST", "/v1/images", data, name="names")
    takes = (server.home / "images" / image["id"] / "root/d").stat().st_blocks * 512
    client = tcp(owner="names", disk="1M")
    if takes <= 1 << 20:  # a filesystem whose directories have few blocks or none
        client.request("POST", "/v1/images", data, name="names")
        return
    with pytest.raises(Refused) as why:
        client.request("POST", "/v1/images", data, name="names")
    assert why.value.code == "limit" and "larger than the rest of the disk quota" in str(why.value), why.value
    assert client.get("/v1/images")["images"] == []


def test_images_count_where_machines_do(tcp):
    client = tcp(owner="counted", disk="64M")
    client.request("POST", "/v1/images", gzip.compress(archive(entry("f", bytes(40 << 20)))), name="large")
    with pytest.raises(Refused) as why:
        client.machine(limits={"disk": "32M"})
    assert why.value.code == "limit" and "disk quota of this token is 64M: " in str(why.value), why.value
    client.delete("/v1/images/large")
    client.machine(limits={"disk": "32M"})


def test_room_of_an_import_under_way_is_held(server, tcp):
    client = tcp(owner="held", disk="64M")
    head = (f"POST /v1/images?name=slow HTTP/1.1\r\nHost: localhost\r\nAuthorization: {client.headers['Authorization']}\r\n"
            f"Content-Length: 100000\r\n\r\n").encode()
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        s.sendall(head + archive(entry("f", b"x"))[:1024])

        def is_held():
            try:
                m = client.machine(limits={"disk": "32M"})
            except Refused as why:
                return why.code == "limit" and "disk quota of this token is 64M: " in str(why)
            client.delete(f"/v1/machines/{m}")  # the request had not come yet
            return False

        server.until(is_held)
        tcp(owner="held", disk="64M").machine(limits={"disk": "32M"})  # another token has room of its own
    server.until(lambda: can_make(client))


def can_make(client):
    try:
        return client.machine(limits={"disk": "32M"})
    except Refused as why:
        assert why.code == "limit", why
        return None
