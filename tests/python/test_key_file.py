"""A key file: items that others put into shared servers and segments are not used."""

import os
import socket
import time
import uuid

import pytest
from PIL import Image

import headrace
import headrace.transforms as T
from headrace.torch import DataLoader
from servers import Memcached, Servers

COUNT = 24


@pytest.fixture
def root(tmp_path):
    below = tmp_path / "data" / "class"
    below.mkdir(parents=True)
    for i in range(COUNT):
        Image.new("RGB", (40, 40), (i * 10, 0, 255 - i * 10)).save(below / f"{i:02d}.png")
    time.sleep(0.05)  # files that were just written are not cached
    return tmp_path / "data"


def key_file(tmp_path, name, mode=0o600):
    path = tmp_path / name
    path.write_bytes(os.urandom(32))
    path.chmod(mode)
    return path


def epoch(root, cache):
    """Returns the bytes that an epoch read from storage; checks its images."""
    dataset = headrace.ImageFolder(root, T.Compose([T.CenterCrop(32), T.PILToTensor()]))
    with DataLoader(dataset, 4, cache=cache, num_workers=2, return_index=True) as loader:
        for images, _, indices in loader:
            for image, i in zip(images, indices.tolist(), strict=True):
                assert image[:, 0, 0].tolist() == [i * 10, 0, 255 - i * 10]
        return loader.stats()["bytes_read"]


class Server:
    """An attacker who can reach the server."""

    def __init__(self, server):
        self.link = socket.create_connection(("127.0.0.1", server.port))
        self.file = self.link.makefile("rwb")

    def ask(self, text):
        self.file.write(text)
        self.file.flush()

    def lines(self):
        while (line := self.file.readline().strip()) != b"END":
            yield line

    def keys(self):
        self.ask(b"lru_crawler metadump all\r\n")
        return [line.split()[0][4:].decode().replace("%3A", ":") for line in self.lines()]

    def get(self, key):
        self.ask(f"get {key}\r\n".encode())
        length = int(self.file.readline().split()[3])
        value = self.file.read(length)
        self.file.read(2)
        assert self.file.readline().strip() == b"END"
        return value

    def set(self, key, value):
        self.ask(f"set {key} 0 0 {len(value)}\r\n".encode() + value + b"\r\n")
        assert self.file.readline().strip() == b"STORED"

    def close(self):
        self.file.close()
        self.link.close()


def test_servers(root, tmp_path, caplog):
    mine, theirs = key_file(tmp_path, "mine"), key_file(tmp_path, "theirs")
    with Servers([Memcached()]) as servers:
        plain = servers.text()
        with_mine, with_theirs = servers.text(key_file=mine), servers.text(key_file=theirs)
        total = epoch(root, with_mine)
        assert total > 0 and epoch(root, with_mine) == 0
        # Users with another key, or none, have items of their own.
        assert epoch(root, with_theirs) == total and epoch(root, plain) == total
        assert epoch(root, with_mine) == epoch(root, with_theirs) == epoch(root, plain) == 0
    with Servers([Memcached()]) as servers:
        text = servers.text(key_file=mine)
        assert epoch(root, text) == total
        attacker = Server(servers[0])
        keys = [key for key in attacker.keys() if key.startswith("hr1:")]
        assert len(keys) == COUNT
        first, second = attacker.get(keys[0]), attacker.get(keys[1])
        attacker.set(keys[0], second)
        attacker.set(keys[1], first[:-1] + bytes([first[-1] ^ 1]))
        attacker.close()
        caplog.clear()
        assert 0 < epoch(root, text) < total
        assert caplog.text.count("not stored with this key file") == 1
        # They were stored again.
        assert epoch(root, text) == 0


def test_segments(root, tmp_path):
    mine, theirs = key_file(tmp_path, "mine"), key_file(tmp_path, "theirs")
    text = f"shm:key-{uuid.uuid4().hex[:12]}?size=64MiB&share=0.3"
    total = epoch(root, f"{text}&key_file={mine}")
    assert total > 0 and epoch(root, f"{text}&key_file={mine}") == 0
    assert epoch(root, f"{text}&key_file={theirs}") == epoch(root, text) == total
    assert epoch(root, f"{text}&key_file={mine}") == 0


def test_a_file_that_is_no_secret(root, tmp_path):
    path = key_file(tmp_path, "open", 0o644)
    for text in ("shm:key?size=1MiB", "memcached:127.0.0.1:1?size=1MiB"):
        with pytest.raises(PermissionError, match="chmod 600") as caught:
            epoch(root, f"{text}&key_file={path}")
        assert path.read_bytes().hex() not in str(caught.value)
