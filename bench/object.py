"""make bench-object: datasets in object storage.

nginx serves the objects: to S3 clients it is a store that believes every signature, and it costs
little, so that the server is not the bound (its own rate is printed). The objects are images of 85 KB
that cost next to nothing to decode (PNG, stored): the way to the bytes is measured.

link: a server 40 ms away behind 1 Gbit/s, in network namespaces (bench/far.py). Goodput, without
any header, over the link's rate with Ethernet's headers and gaps: TCP can reach 0.94. Peers use the
same server, link and machine, one after the other, and decode the same images.
cost: the same server on the loopback device, without TLS; reads without decoding.
cluster: four hosts with a memcached each, as in bench-hosts, fetch one dataset; nginx' log counts.
disk: as bench-disk. Options: --minutes N, --only PART.
"""

import contextlib
import json
import os
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import zlib
from types import SimpleNamespace

import disk
import far
import harness
import hosts
import limits
import namespaces
from harness import log

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("BUILD", os.path.join(ROOT, "build"))
PEERS = os.path.join(ROOT, "bench", "peers")
PORT = 8080
LINK_BITS, ROUND_TRIP_S = 1e9, 0.04
SIDE = 168  # of an image: 85 KB
OBJECTS, DIFFERENT = 8000, 500
LARGE = 400  # of 1 MiB
PEER_S = 12  # a peer's epoch ends after so long
ROUNDS = 5
CLUSTER_HOSTS, CLUSTER_OBJECTS, CLUSTER_BATCH = 4, 2000, 50


def png(number):
    """Returns an image whose rows are stored, not compressed."""
    row = os.urandom(3 * SIDE)
    rows = b"".join(b"\0" + row[i % 97:] + row[:i % 97] for i in range(SIDE))

    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data
                + struct.pack(">I", zlib.crc32(kind + data)))

    head = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 0))
            + chunk(b"tEXt", b"number\0%06d" % number) + chunk(b"IEND", b""))


class Store:
    """The bucket "birds": objects, a pack of them, and lists of their URLs."""

    def __init__(self, scratch):
        self.scratch, self.bucket = scratch, os.path.join(scratch, "birds")
        os.makedirs(os.path.join(self.bucket, "train", "a"))
        os.makedirs(os.path.join(self.bucket, "large"))
        for number in range(DIFFERENT):
            with open(self.path(number), "wb") as file:
                file.write(png(number))
        for number in range(DIFFERENT, OBJECTS):
            os.link(self.path(number % DIFFERENT), self.path(number))
        with open(os.path.join(self.bucket, "large", "00000"), "wb") as file:
            file.write(os.urandom(1 << 20))
        for number in range(1, LARGE):
            os.link(os.path.join(self.bucket, "large", "00000"),
                    os.path.join(self.bucket, "large", f"{number:05d}"))
        self.bytes = os.path.getsize(self.path(0))
        self.list = self.write_list("train.list", "train/a/{:05d}.png", OBJECTS, self.bytes)
        self.large = self.write_list("large.list", "large/{:05d}", LARGE, 1 << 20)

    def path(self, number):
        return os.path.join(self.bucket, "train", "a", f"{number:05d}.png")

    def write_list(self, name, pattern, count, size):
        path = os.path.join(self.scratch, name)
        with open(path, "w") as file:
            file.writelines(f"s3://birds/{pattern.format(n)}\t{size}\n" for n in range(count))
        return path

    def pack(self, name, count):
        """Makes a pack of the first objects. Returns its URL."""
        import headrace

        images = headrace.ImageList([(self.path(n), 0) for n in range(count)])
        headrace.pack(images, os.path.join(self.bucket, name))
        return f"s3://birds/{name}"


def environment(address):
    """Returns the variables of a client of the store."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")
            and k.lower() not in ("http_proxy", "https_proxy", "all_proxy")}
    return {**kept, "AWS_ENDPOINT_URL": f"http://{address}:{PORT}", "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "any-key", "AWS_SECRET_ACCESS_KEY": "any-secret",
            "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull}


@contextlib.contextmanager
def nginx(store, address, inside=lambda command: command):
    """Serves the store; gives the server's process. Its log has a line for each request."""
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    if not os.access(program, os.X_OK):
        raise harness.Missing("there is no nginx")
    folder = os.path.join(store.scratch, f"nginx{address}")
    os.makedirs(folder, exist_ok=True)
    config = os.path.join(folder, "nginx.conf")
    places = "".join(f"{kind}_temp_path {folder}/{kind}; " for kind in
                     ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    user = "user root; " if os.geteuid() == 0 else ""
    with open(config, "w") as file:
        file.write(f"daemon off; {user}worker_processes 1; pid {folder}/pid; "
                   f"error_log {folder}/error; events {{ worker_connections 4096; }} "
                   "http { log_format one '$request_method $request_uri $http_range "
                   f"$body_bytes_sent'; access_log {folder}/access one buffer=64k flush=1s; "
                   f"sendfile on; tcp_nopush on; keepalive_requests 1000000; {places}"
                   f"open_file_cache max=20000; server {{ listen {address}:{PORT}; "
                   f"root {store.scratch}; }} }}")
    server = subprocess.Popen(inside([program, "-e", f"{folder}/error", "-c", config]),
                              stderr=subprocess.DEVNULL)
    try:
        time.sleep(0.5)
        if server.poll() is not None:
            raise harness.Missing(f"nginx does not start: {open(f'{folder}/error').read()[-200:]}")
        yield os.path.join(folder, "access")
    finally:
        server.terminate()
        server.wait()


def peers_python():
    return os.path.join(os.environ.get("BENCH_VENV", os.path.join(ROOT, ".venv-bench")), "bin",
                        "python")


class Bench(harness.Parts):
    def __init__(self, args, store):
        super().__init__(args)
        self.store, self.cores, self.jobs = store, os.sched_getaffinity(0), 0

    def worker(self, name, program, words, env, inside=lambda command: command):
        python = sys.executable if name == "Headrace" else peers_python()
        return harness.Worker(name, inside([python, os.path.join(PEERS, program), *words]),
                              self.cores, env)


# ---- parts ------------------------------------------------------------------


def cost(bench):
    """Measures the cost of a request, and the rate of one process, on the loopback device."""
    program = os.path.join(BUILD, "bench", "bench_objects")
    with nginx(bench.store, "127.0.0.1"):
        for key, listing, depth in (("object_us", bench.store.list, 16),
                                    ("process_gb_s", bench.store.large, 16)):
            worker = subprocess.Popen([program, listing, str(depth)], text=True,
                                      env=environment("127.0.0.1"), stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            found = []
            for _ in range(ROUNDS):
                worker.stdin.write("\n")
                worker.stdin.flush()
                line = worker.stdout.readline()
                if not line:
                    raise harness.Missing(worker.stderr.read()[-200:])
                found.append(json.loads(line))
            worker.stdin.close()
            worker.wait()
            us = statistics.median(f["cpu_seconds"] / f["objects"] * 1e6 for f in found)
            rate = statistics.median(f["bytes"] / f["seconds"] / 1e9 for f in found)
            log(f"loopback  {found[0]['bytes'] // found[0]['objects']} bytes: {us:.1f} us of CPU an "
                f"object, {rate:.2f} GB/s, {depth} in flight, one thread; "
                f"{found[0]['bytes'] / statistics.median(f['cpu_seconds'] for f in found) / 1e9:.2f} "
                "GB/s of CPU time")
            bench.figures[key] = us if key == "object_us" else rate


def take(bench, far_link, name, program, url, env, **more):
    """Runs one epoch of a loader at the client. Returns its answer."""
    words = ["--url", url, *(f"--{k}={v}" for k, v in more.items())]
    worker = bench.worker(name, program, words, env, far_link.client)
    try:
        found = worker.run()
    finally:
        worker.close()
    rate = found["steady"] / found["steady_s"]
    log(f"link      {name:<44} {rate:7.0f} samples/s, {rate * bench.store.bytes * 8 / LINK_BITS:.3f} "
        f"of the link; first batch after {found['first_s']:.2f} s, "
        f"{found['cpu_seconds'] / found['samples'] * 1e6:.0f} us of CPU a sample")
    found["rate"] = rate
    return found


def link(bench):
    """Measures the first epoch over a long way, ours and peers'."""
    store = bench.store
    url = store.pack("train.hrpack", OBJECTS)
    with far.Far(LINK_BITS, ROUND_TRIP_S) as way, \
            nginx(store, far.SERVER, way.server) as access:
        env = {**environment(far.SERVER), "XDG_CACHE_HOME": store.scratch}
        server_rate(way)
        found = take(bench, way, "Headrace", "object_headrace.py", store.list, env)
        bench.figures["link_use_objects"] = found["rate"] * store.bytes * 8 / LINK_BITS
        bench.figures["requests_over_minimum"] = \
            (found["object_requests"] - found["object_lists"]) / found["samples"]
        log(f"          {found['object_requests']} requests for {found['samples']} objects, "
            f"{found['object_hedges']} of them hedges, {found['object_retries']} repeated")
        pack = take(bench, way, "Headrace", "object_headrace.py", url, env)
        bench.figures["link_use_pack"] = pack["rate"] * store.bytes * 8 / LINK_BITS
        ordered = take(bench, way, "Headrace", "object_headrace.py", url,
                       {**env, "SEQUENTIAL": "1"})
        bench.figures["requests_per_sample_in_order"] = \
            ordered["object_requests"] / ordered["samples"]
        time.sleep(1.1)  # until nginx has written its log
        with open(access) as file:
            log(f"          nginx has answered {sum(1 for _ in file)} requests")
        second_epoch(bench, way, url, env)
        best = peers(bench, way, env, OF_OBJECTS)
        if best:
            bench.figures["first_epoch_vs_best_peer"] = found["rate"] / best
        best = peers(bench, way, env, OF_SHARDS)
        if best:
            bench.figures["pack_vs_best_peer_of_shards"] = pack["rate"] / best


# name: (program, workers). A worker of s3torchconnector gets one object at a time.
OF_OBJECTS = {"boto3": ("object_boto3.py", 2),
              "s3torchconnector": ("object_s3torchconnector.py", 16)}
OF_SHARDS = {"webdataset": ("object_webdataset.py", 4), "streaming": ("object_streaming.py", 2),
             "litdata": ("object_litdata.py", 2)}

def peers(bench, way, env, programs):
    """Measures peers. Returns the samples per second of the best, or None."""
    rates = []
    for name, (program, workers) in programs.items():
        key = f"{name}_samples_s"
        try:
            if bench.left() < 60:
                raise harness.Missing("there is no time left")
            url = shards(bench, name, program) if programs is OF_SHARDS else bench.store.list
            found = take(bench, way, name, program, url, env, workers=workers, seconds=PEER_S)
            bench.figures[key] = found["rate"]
            rates.append(found["rate"])
        except (harness.Missing, OSError, subprocess.SubprocessError, ZeroDivisionError) as error:
            bench.refuse([key], error)
    return max(rates, default=None)


def shards(bench, name, program):
    """Makes a peer's shards of all objects in the bucket. Returns what it is told to read."""
    store, folder = bench.store, os.path.join(bench.store.bucket, name)
    source = os.path.join(store.bucket, "train", "a")
    os.makedirs(folder)
    if name == "webdataset":
        listing = os.path.join(store.scratch, "shards.list")
        with open(listing, "w") as file:
            for first in range(0, OBJECTS, 200):
                with tarfile.open(os.path.join(folder, f"{first}.tar"), "w") as shard:
                    for number in range(first, first + 200):
                        shard.add(store.path(number), f"{number:05d}.png")
                file.write(f"http://{far.SERVER}:{PORT}/birds/webdataset/{first}.tar\n")
        return listing
    subprocess.run([peers_python(), os.path.join(PEERS, program), "--write", folder, source],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)
    return f"s3://birds/{name}"


def second_epoch(bench, way, url, env):
    """Counts the requests of an epoch after one that a cache holds."""
    worker = bench.worker("Headrace", "object_headrace.py", ["--url", url],
                          {**env, "CACHE": f"{2 * OBJECTS * bench.store.bytes}"}, way.client)
    try:
        first, second = worker.run(), worker.run()
    finally:
        worker.close()
    bench.figures["second_epoch_requests"] = \
        second["object_requests"] - first["object_requests"]
    log(f"          the second epoch, from a cache: {bench.figures['second_epoch_requests']} "
        f"requests, {second['samples'] / second['seconds']:.0f} samples/s")


def cluster(bench):
    """Counts what four hosts with one cache fetch, and what one host does."""
    store = bench.store
    files = SimpleNamespace(folder=store.pack("cluster.hrpack", CLUSTER_OBJECTS), paths=[])
    budget = 1.2 * CLUSTER_OBJECTS * store.bytes / CLUSTER_HOSTS
    with namespaces.Network(CLUSTER_HOSTS + 1, store.scratch) as network:
        *network.hosts, origin = network.hosts
        try:
            network.start_servers(hosts.megabytes_for(budget))
            with nginx(store, origin.address, origin.inside) as access, \
                    variables(environment(origin.address)), \
                    hosts.ours(bench, network, files, budget, batch=CLUSTER_BATCH) as ranks:
                epochs = [(ranks.epoch(), sent_bytes(access)) for _ in range(2)]
        finally:
            origin.close()
    requests, fetched = epochs[0][1]
    bench.figures["bytes_over_minimum"] = fetched / (CLUSTER_OBJECTS * store.bytes)
    bench.figures["cluster_requests_per_item"] = requests / CLUSTER_OBJECTS
    bench.figures["cluster_second_epoch_requests"] = epochs[1][1][0] - requests
    if epochs[0][0].sum("samples") != CLUSTER_OBJECTS:
        raise harness.Missing("the first epoch had not every sample")
    log(f"cluster   {CLUSTER_HOSTS} hosts: {requests} requests and {fetched / 1e6:.1f} MB for "
        f"{CLUSTER_OBJECTS} items of {CLUSTER_OBJECTS * store.bytes / 1e6:.1f} MB; "
        f"{epochs[1][1][0] - requests} requests in the second epoch")


def sent_bytes(access):
    """Returns the requests that nginx answered, and the bytes of their bodies."""
    time.sleep(1.5)  # until it has written its log
    with open(access) as file:
        sizes = [int(line.rsplit(" ", 1)[1]) for line in file]
    return len(sizes), sum(sizes)


@contextlib.contextmanager
def variables(values):
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def disk_tier(bench):
    """Compares hits of the disk tier with fio, as bench-disk does."""
    args = SimpleNamespace(data=bench.args.data, depth=16, rounds=3 * ROUNDS)  # of 0.4 s each
    with tempfile.TemporaryDirectory(dir=os.path.join(ROOT, "data")) as place:
        os.chmod(place, 0o700)
        bench.figures["disk_tier_vs_fio"] = disk.against_fio(args, os.path.join(place, "a"))
        bench.figures["disk_tier_reads_over_minimum"] = \
            disk.reads_over_minimum(args, os.path.join(place, "b"))


def soak(bench):
    """Reads the results of the last `make soak-object`."""
    bench.take_soak("object", "faults")


def server_rate(way):
    """Prints what the server and the link can do with many connections of curl."""
    urls = [f"http://{far.SERVER}:{PORT}/birds/large/{n:05d}" for n in range(LARGE)]
    begin = time.perf_counter()
    told = subprocess.run(way.client(["curl", "-sZ", "--no-progress-meter", "--parallel-max", "64", *(
        word for url in urls for word in ("-o", os.devnull, url))]), check=False, stderr=subprocess.DEVNULL)
    seconds = time.perf_counter() - begin
    if told.returncode == 0:
        log(f"link      curl, 64 connections, {LARGE} objects of 1 MiB: "
            f"{LARGE * (1 << 20) * 8 / seconds / LINK_BITS:.3f} of the link")


# name: (function, figures that it owes, seconds that it takes on two quiet cores)
PARTS = {
    "soak": (soak, ["soak_faults_survived"], 0),
    "cost": (cost, ["object_us", "process_gb_s"], 20),
    "link": (link, ["link_use_objects", "link_use_pack", "first_epoch_vs_best_peer",
                    "requests_over_minimum", "second_epoch_requests"], 240),
    "cluster": (cluster, ["bytes_over_minimum"], 60),
    "disk": (disk_tier, ["disk_tier_vs_fio", "disk_tier_reads_over_minimum"], 90),
}


def main():
    args = harness.parser("object", __doc__, PARTS, 15, os.path.join(ROOT, "data", "sample"),
                          "a folder of images, for the part disk").parse_args()
    namespaces.end_on_signals()
    log(f"machine   {harness.machine()}")
    log(f"          {harness.busy_note()}; server, link and clients share its cores")
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as scratch:
        os.chmod(scratch, 0o755)
        bench = Bench(args, Store(scratch))
        bench.run(PARTS, (limits.Unavailable, OSError, subprocess.SubprocessError))
    bench.finish("object")


if __name__ == "__main__":
    main()
