"""Hosts as network namespaces: what make bench-hosts counts and limits is what happens."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

import limits
import namespaces

SEND = """
import socket, sys
connection = socket.create_connection((sys.argv[1], 11211))
connection.sendall(b"set k 0 0 %d\\r\\n" % int(sys.argv[2]) + bytes(int(sys.argv[2])) + b"\\r\\n")
assert connection.recv(100) == b"STORED\\r\\n"
"""


@pytest.fixture
def network(tmp_path):
    if not shutil.which("memcached"):
        pytest.skip("there is no memcached")
    try:
        made = namespaces.Network(2, tmp_path)
    except limits.Unavailable as reason:
        pytest.skip(str(reason))
    with made:
        yield made
    assert not os.path.exists(f"/sys/class/net/{made.bridge}")
    assert not left(os.getpid())


def left(pid):
    there = os.listdir(namespaces.RUN) if os.path.isdir(namespaces.RUN) else []
    return [name for name in there if namespaces.owner_of(name) == pid]


def send(network, receiver, length):
    """Stores so many bytes at a host's server from the first host; returns the bytes on the links,
    and seconds."""
    before, begun = network.sent_bytes(), time.monotonic()
    subprocess.run(network.hosts[0].command([sys.executable, "-c", SEND,
                                             network.hosts[receiver].address, str(length)]),
                   check=True)
    return network.sent_bytes() - before, time.monotonic() - begun


def test_names_show_their_owner():
    assert namespaces.owner_of(namespaces.namespace_name(123, 4)) == 123
    assert namespaces.owner_of("hrb77") == namespaces.owner_of("hrb77v12") == 77
    for name in ("hr-bench-x-1", "hr-soak-1-1", "eth0", "hrbv1", "hr-bench-1-1-1"):
        assert namespaces.owner_of(name) is None


def test_bytes_between_hosts_count_with_their_headers_and_own_ones_do_not(network):
    network.start_servers(64)
    length = 1_000_000
    to_other, _ = send(network, 1, length)
    # At least 52 bytes of headers for each 1,448 of data, and 14 of Ethernet's.
    assert length * 1.03 < to_other < length * 1.08
    to_itself, _ = send(network, 0, length)
    assert to_itself < 5000
    assert int(network.hosts[1].server.stats()["curr_items"]) == 1


def test_links_are_limited(network):
    network.start_servers(64)
    network.limit_links(8e6)
    _, seconds = send(network, 1, 1_000_000)
    assert seconds > 0.7


def test_what_a_killed_run_left_is_removed(network):
    code = ("import namespaces, sys, time\n"
            "with namespaces.Network(1, sys.argv[1]) as made:\n"
            "    made.start_servers(64)\n"
            "    print('there', flush=True)\n"
            "    time.sleep(60)\n")
    for number in (signal.SIGINT, signal.SIGKILL):
        child = subprocess.Popen([sys.executable, "-c", code, "/"], cwd=BENCH,
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        line = child.stdout.readline()
        if not line:
            pytest.skip("the root folder lies on no disk")
        child.send_signal(number)
        child.wait(600)
        child.stdout.close()
        if number == signal.SIGKILL:
            assert left(child.pid)
            namespaces.remove_left_behind()
        assert not left(child.pid)
