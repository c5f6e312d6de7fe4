"""OpenStack Swift with its S3 interface, as a strict second server for tests: it refuses what AWS
refuses (signatures, headers that are missing from them, parts that are too small or out of order).

Its servers run from the sources that an interpreter has (Debian's python3-swift, or `pip
install swift`), as the user who runs the tests, with all files in a folder of the test's.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request

import pytest

from buckets import free_port

KEY, SECRET, REGION = "birds:reader", "geheim-swift-secret", "us-east-1"
# The least bytes of a part of an upload but the last, and the names in a page of a listing.
PART, PAGE = 64 << 10, 20
KINDS = ("account", "container", "object", "proxy", "open")

RINGS = """
import json, sys
from swift.common.ring import RingBuilder
folder, ports = sys.argv[1], json.loads(sys.argv[2])
for kind in ("account", "container", "object"):
    ring = RingBuilder(2, 1, 0)
    ring.add_dev({"id": 0, "region": 1, "zone": 1, "ip": "127.0.0.1", "port": ports[kind],
                  "replication_ip": "127.0.0.1", "replication_port": ports[kind],
                  "device": "d", "weight": 1.0, "meta": ""})
    ring.rebalance()
    ring.get_ring().save(f"{folder}/{kind}.ring.gz")
"""

# Only Swift's own programs look for their settings elsewhere than in /etc.
SERVE = """
import ctypes, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it ends with the tests
from swift.common import utils
utils.SWIFT_CONF_FILE = sys.argv[1] + "/swift.conf"
from swift.common.wsgi import run_wsgi
name = sys.argv[2].replace("open", "proxy")
sys.exit(run_wsgi(f"{sys.argv[1]}/{sys.argv[2]}.conf", f"{name}-server"))
"""

PROXY = """
[pipeline:main]
pipeline = cache {checks}slo proxy-server
[filter:cache]
use = egg:swift#memcache
[filter:s3api]
use = egg:swift#s3api
location = {region}
min_segment_size = {least_part}
max_bucket_listing = {page}
[filter:tempauth]
use = egg:swift#tempauth
user_{user} = {secret} .admin
[filter:slo]
use = egg:swift#slo
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
"""


def find_python():
    """An interpreter that has Swift, or None."""
    for name in (os.environ.get("HEADRACE_SWIFT_PYTHON"), sys.executable, "/usr/bin/python3"):
        if name and os.access(name, os.X_OK) and not subprocess.run(
                [name, "-c", "import swift.common.middleware.s3api"], capture_output=True,
                check=False).returncode:
            return name
    return None


def write_settings(folder, ports):
    (folder / "devices/d").mkdir(parents=True)
    (folder / "swift.conf").write_text(
        "[swift-hash]\nswift_hash_path_suffix = tests\n"
        "[storage-policy:0]\nname = one\ndefault = yes\n")
    for kind in KINDS:
        inside = f"""[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {ports[kind]}
swift_dir = {folder}
devices = {folder}/devices
mount_check = false
fallocate_reserve = 0
workers = 0
"""
        if kind in ("proxy", "open"):
            inside += PROXY.format(checks="s3api tempauth " if kind == "proxy" else "", page=PAGE,
                                   region=REGION, least_part=PART, secret=SECRET,
                                   user=KEY.replace(":", "_"))
        else:
            inside += (f"[pipeline:main]\npipeline = {kind}-server\n"
                       f"[app:{kind}-server]\nuse = egg:swift#{kind}\n")
        (folder / f"{kind}.conf").write_text(inside)


class Store:
    """A running Swift. `url`: of its S3 interface. `put` and `ask` go through a second door, which
    asks for no signature."""

    def __init__(self, ports):
        self.url = f"http://127.0.0.1:{ports['proxy']}"
        self.open = f"http://127.0.0.1:{ports['open']}/v1/AUTH_{KEY.partition(':')[0]}"

    def ask(self, method, path, data=None):
        request = urllib.request.Request(f"{self.open}/{urllib.parse.quote(path)}", data=data,
                                         method=method)
        with urllib.request.urlopen(request, timeout=600) as answer:
            return answer.read()

    def put(self, path, data=b""):
        """Makes an object, or, of a path without a slash, a bucket."""
        self.ask("PUT", path, data)


@contextlib.contextmanager
def swift_server(folder):
    """Runs Swift with its files in `folder`; gives its Store."""
    python = find_python()
    if python is None:
        pytest.skip("there is no Swift (apt-get install python3-swift, or pip install swift; "
                    "HEADRACE_SWIFT_PYTHON names the interpreter that has it)")
    with contextlib.suppress(OSError):
        os.setxattr(folder, "user.headrace-test", b"x")
    if "user.headrace-test" not in os.listxattr(folder):
        pytest.skip(f"the file system of {folder} has no extended attributes, which Swift needs")
    ports = {kind: free_port() for kind in KINDS}
    write_settings(folder, ports)
    subprocess.run([python, "-c", RINGS, str(folder), json.dumps(ports)], check=True,
                   capture_output=True)
    servers = []
    try:
        for kind in KINDS:
            with open(folder / f"{kind}.log", "wb") as log:
                servers.append(subprocess.Popen([python, "-c", SERVE, str(folder), kind],
                                                stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        for kind, server in zip(KINDS, servers):
            await_port(ports[kind], server, folder / f"{kind}.log")
        yield Store(ports)
    finally:
        for server in servers:
            server.terminate()
        for server in servers:
            server.wait()
        shutil.rmtree(folder / "devices", ignore_errors=True)


def await_port(port, server, log):
    for _ in range(1200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        if server.poll() is not None:
            pytest.skip(f"Swift does not start: {log.read_text()[-300:]}")
        time.sleep(0.05)
    raise AssertionError("Swift does not start")
