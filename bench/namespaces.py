"""Simulates hosts on one machine: each is a network namespace, a control group and a memcached.

Every host has one link, a veth pair into a bridge, with an address in 10.77.0.0/24. tc's token
bucket (tbf) limits both directions. The bytes that a host sends are the bucket's counter, which
includes the headers of every segment, also of those that the kernel splits late. A host reaches
its own server through the loopback device, which is not counted. Its processes run in a control
group that limits and counts their reads from the disk (bench/limits.py).

Names contain this process' id. Everything is removed at the end, unless the process is killed by
SIGKILL; then the next run removes it. Needs root; limits.Unavailable says what is missing.
"""

import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

import limits

PORT = 11211
CLONE_NEWNET = 0x40000000  # of sched.h
RUN = "/run/netns"
FAST_BITS = 1_000_000_000  # per second, of a link without a limit
BURST_BYTES = 128 << 10
QUEUE_MS = 50
ANSWER_S = 10.0
MOST = 64


def run(*command):
    try:
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
    except FileNotFoundError:
        raise limits.Unavailable(f"there is no {command[0]}") from None
    if done.returncode:
        raise limits.Unavailable(f"{' '.join(command)}: {done.stderr.strip()[-200:]}")
    return done.stdout


def namespace_name(owner, number):
    return f"hr-bench-{owner}-{number}"


def owner_of(name):
    """Returns the process that made a namespace or link of that name; None: not one of ours."""
    found = re.fullmatch(r"hr-bench-(\d+)-\d+|hrb(\d+)(v\d+)?", name)
    return int(found.group(1) or found.group(2)) if found else None


def is_left_behind(name):
    owner = owner_of(name)
    return owner is not None and not os.path.exists(f"/proc/{owner}")


def remove_namespace(name):
    """Removes a namespace and kills the processes inside: servers and ranks of hosts."""
    if not os.path.exists(os.path.join(RUN, name)):
        return
    for pid in run("ip", "netns", "pids", name).split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    run("ip", "netns", "del", name)


def remove_left_behind():
    """Removes what killed runs left behind."""
    for name in os.listdir(RUN) if os.path.isdir(RUN) else []:
        if is_left_behind(name):
            remove_namespace(name)
    for link in json.loads(run("ip", "-j", "link", "show", "type", "bridge") or "[]"):
        if link and is_left_behind(link["ifname"]):
            run("ip", "link", "del", link["ifname"])
    limits.remove_left_behind()


def socket_inside(namespace, address):
    """Opens a TCP connection from inside a namespace."""
    found = []

    def connect():  # a thread of its own, because only the calling thread enters the namespace
        try:
            place = os.open(os.path.join(RUN, namespace), os.O_RDONLY)
            try:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.setns(place, CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")
            finally:
                os.close(place)
            found.append(socket.create_connection((address, PORT), ANSWER_S))
        except OSError as error:
            found.append(error)

    thread = threading.Thread(target=connect)
    thread.start()
    thread.join()
    if isinstance(found[0], OSError):
        raise found[0]
    return found[0]


class Server:
    """A memcached inside a host."""

    def __init__(self, host, megabytes, evicts):
        self.host, self.megabytes, self.evicts = host, megabytes, evicts
        command = ["memcached", *(["-u", "nobody"] if os.geteuid() == 0 else []),
                   *([] if evicts else ["-M"]), "-m", str(megabytes), "-t", "2",
                   "-U", "0", "-l", host.address, "-p", str(PORT)]
        if not shutil.which("memcached"):
            raise limits.Unavailable("there is no memcached")
        self.process = subprocess.Popen(host.inside(command), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + ANSWER_S
        while True:
            try:
                self.stats()
                return
            except OSError as error:
                if self.process.poll() is not None or time.monotonic() > until:
                    self.close()
                    raise limits.Unavailable(f"memcached does not answer: {error}") from None
                time.sleep(0.02)

    def stats(self):
        """Returns the server's statistics: {name: text}."""
        with socket_inside(self.host.namespace, self.host.address) as connection:
            connection.sendall(b"stats\r\n")
            answer = b""
            while not answer.endswith(b"END\r\n"):
                more = connection.recv(65536)
                if not more:
                    raise OSError("it closed the connection")
                answer += more
        return dict(line.split()[1:3] for line in answer.decode().splitlines()
                    if line.startswith("STAT ") and len(line.split()) == 3)

    def close(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Host:
    """A simulated host; see the head of this file."""

    def __init__(self, network, number, data):
        self.number = number
        self.namespace = namespace_name(network.owner, number)
        self.address = f"10.77.0.{number + 1}"
        self.outside = f"{network.bridge}v{number}"
        self.server = None
        self.group = limits.Group(f"host{number}", data)
        try:
            run("ip", "netns", "add", self.namespace)
            run("ip", "link", "add", self.outside, "type", "veth", "peer", "name", "eth0",
                "netns", self.namespace)
            run("ip", "link", "set", self.outside, "master", network.bridge, "up")
            inside = ("ip", "-n", self.namespace)
            run(*inside, "addr", "add", f"{self.address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                run(*inside, "link", "set", device, "up")
            self.limit_link(FAST_BITS)
        except BaseException:
            self.close()
            raise

    def inside(self, command):
        """Returns the command that runs `command` in the host's network."""
        return ["nsenter", f"--net={RUN}/{self.namespace}", *command]

    def command(self, command):
        """Returns the command that runs `command` in the host's network and control group."""
        return self.group.command(self.inside(command))

    def limit_link(self, bits_per_second):
        """Limits each direction of the link. The counter of sent bytes restarts."""
        bucket = ("root", "tbf", "rate", f"{int(bits_per_second)}bit", "burst",
                  str(BURST_BYTES), "latency", f"{QUEUE_MS}ms")
        run("tc", "-n", self.namespace, "qdisc", "replace", "dev", "eth0", *bucket)
        run("tc", "qdisc", "replace", "dev", self.outside, *bucket)

    def sent_bytes(self):
        """To other hosts, headers of all layers included, since the link was limited."""
        shown = run("tc", "-n", self.namespace, "-s", "-j", "qdisc", "show", "dev", "eth0")
        return sum(q["bytes"] for q in json.loads(shown) if q.get("root"))

    def start_server(self, megabytes, evicts=False):
        """Starts a memcached with so much memory (-m). It replaces the previous one."""
        self.stop_server()
        self.server = Server(self, megabytes, evicts)

    def stop_server(self):
        if self.server:
            self.server.close()
            self.server = None

    def close(self):
        self.stop_server()
        remove_namespace(self.namespace)
        with contextlib.suppress(limits.Unavailable):  # removing the namespace removes it
            run("ip", "link", "del", self.outside)
        self.group.close()


class Network:
    """A bridge and `count` hosts; their disk is the one that has `data`. A context manager."""

    def __init__(self, count, data):
        if os.geteuid() != 0:
            raise limits.Unavailable("network namespaces need root")
        if not 1 <= count <= MOST:
            raise ValueError(f"1 to {MOST} hosts, not {count}")
        remove_left_behind()
        self.owner = os.getpid()
        self.bridge = f"hrb{self.owner}"
        self.hosts = []
        try:
            run("ip", "link", "add", self.bridge, "type", "bridge")
            run("ip", "link", "set", self.bridge, "up")
            for number in range(count):
                self.hosts.append(Host(self, number, data))
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def start_servers(self, megabytes, evicts=False):
        for host in self.hosts:
            host.start_server(megabytes, evicts)

    def sent_bytes(self):
        """Returns the bytes sent over all links, each counted once."""
        return sum(host.sent_bytes() for host in self.hosts)

    def read_bytes(self):
        """Returns the bytes that all hosts have read from the disk."""
        return sum(host.group.read_bytes() for host in self.hosts)

    def limit_links(self, bits_per_second):
        for host in self.hosts:
            host.limit_link(bits_per_second)

    def limit_reads(self, bytes_per_second):
        """Limits the reads of each host. 0: no limit."""
        for host in self.hosts:
            host.group.limit_reads(int(bytes_per_second))

    def close(self):
        # A second Ctrl-C must not interrupt the removal.
        with ignored_interrupts(), contextlib.ExitStack() as ways:
            ways.callback(self._remove_bridge)
            for host in self.hosts:
                ways.callback(host.close)
            self.hosts = []

    def _remove_bridge(self):
        if os.path.exists(f"/sys/class/net/{self.bridge}"):
            run("ip", "link", "del", self.bridge)


@contextlib.contextmanager
def ignored_interrupts():
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = {n: signal.signal(n, signal.SIG_IGN) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def end_on_signals():
    """Lets SIGTERM and SIGHUP end the program as Ctrl-C does, so that everything is removed."""
    def end(number, frame):
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
