"""The long way of make bench-object: its delay, its rate, and that bytes come as they were sent."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import far
import limits
import namespaces

BITS, ROUND_TRIP_S, BYTES = 20e6, 0.04, 1_000_000

SERVE = """
import socket, sys
listener = socket.create_server((sys.argv[1], 8080))
print("ready", flush=True)
while True:
    connection, _ = listener.accept()
    if connection.recv(1) == b"a":
        connection.sendall(b"z")
    else:
        connection.sendall(bytes(range(250)) * (int(sys.argv[2]) // 250))
    connection.close()
"""
ASK = """
import socket, sys, time
def ask(what):
    begin = time.monotonic()
    with socket.create_connection((sys.argv[1], 8080)) as connection:
        connection.sendall(what)
        found = b"".join(iter(lambda: connection.recv(65536), b""))
    return found, time.monotonic() - begin
one, answer_s = ask(b"a")
all, body_s = ask(b"b")
assert one == b"z" and all == bytes(range(250)) * (int(sys.argv[2]) // 250)
print(answer_s, body_s)
"""


def test_a_long_way():
    if not os.access(os.path.join(far.BUILD, "bench", "bench_link"), os.X_OK):
        pytest.skip(f"bench_link is not built in {far.BUILD}")
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        pytest.skip("there is no /dev/net/tun")
    try:
        way = far.Far(BITS, ROUND_TRIP_S)
    except limits.Unavailable as reason:
        pytest.skip(str(reason))
    with way:
        server = subprocess.Popen(way.server([sys.executable, "-c", SERVE, far.SERVER, str(BYTES)]),
                                  stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout.readline() == "ready\n"
            told = subprocess.run(way.client([sys.executable, "-c", ASK, far.SERVER, str(BYTES)]),
                                  capture_output=True, text=True, check=True).stdout
        finally:
            server.kill()
            server.wait()
            server.stdout.close()
    answer_s, body_s = map(float, told.split())
    # a busy machine makes them longer, never shorter: to connect and to ask are a round trip each
    assert answer_s >= 2 * ROUND_TRIP_S
    assert body_s >= BYTES * 8 / BITS
    assert not any(os.path.exists(os.path.join(namespaces.RUN, name)) for name in way.names)
