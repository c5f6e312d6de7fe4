#!/usr/bin/env python3
"""Ranks that share memcached servers, with faults of servers, networks, hosts and ranks.

Two to four ranks on three hosts train in step; five servers keep their samples, of which two
come and go. A proxy stands before each server; a rank reaches its own host's server through it
or over the server's socket. Each host has another wall clock. A fault is one of: a server is
killed and starts again, empty, at once or later; it is stopped for a while; its answers are slow,
come a few bytes at a time, end in the middle, have turned bits, never end, or do not come; it
refuses connections; a host is cut off from all others; other values are put under the keys of a
server; the list of hosts or their budgets change at an epoch's beginning; a rank is stopped for a
while; or a rank is killed, the others end, and the same or another number of ranks, on the same
or other hosts, go on from the last batch that all had. Faults overlap. What must hold:

- each global batch has exactly the samples that a plain loader's order has there, so that each
  sample comes exactly once per epoch over all ranks, padding apart;
- all pixels are those that a plain loader made;
- no rank fails, and none waits longer for a batch than BATCH_S, for the first one after a start
  or a change of hosts, which the ranks meet for, than MEET_S;
- once the faults are over, all of the dataset is served by the servers again;
- nothing is left: no process, no connection, no shared memory.

Usage: hosts.py --build BUILD --data FOLDER [--faults 200] [--seed 0]
Writes docs/results/soak-hosts.json with --out. Exit status 1 where anything is wrong.
"""

import argparse
import collections
import contextlib
import ctypes
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import frame  # noqa: E402
from frame import Wrong, photographs  # noqa: E402
from progress import Progress  # noqa: E402

SAMPLES = 853  # so that no batch size divides them: epochs end with padding
EPOCHS = 6  # as in hosts_worker.c: round r has the images of epoch r % EPOCHS
RANKED = 3  # hosts that have ranks, and are in every list
SERVERS = 5
BETWEEN_S = 1.2  # faults come after so long, on average
TIMEOUT_MS = 250
BATCH_S = 5.0  # most that is waited for a batch
MEET_S = 45.0  # for the first one of a meeting: faults of servers are longer than a request
END_S = 15.0  # a rank that is told to ends in so long
RECOVERY_S = 60.0  # back-off is 30 s at most
SHIFT_S = 10_000_000  # wall clocks differ by up to so much
SIZES = (0.12, 0.25, 0.5)  # budgets of a host, of the dataset's bytes
# How often each comes, and how long it lasts at most.
FAULTS = {"kill": (26, 2.5), "hang": (12, 3.0), "slow": (8, 3.0), "trickle": (6, 2.0),
          "cut": (8, 2.0), "flip": (14, 3.0), "endless": (5, 1.5), "silent": (6, 2.5),
          "refuse": (6, 2.5), "network": (12, 3.0), "poison": (10, 0), "hosts": (16, 0),
          "pause": (6, 1.5), "rank": (24, 0)}


def make_images(data: Path, folder: Path) -> int:
    """Photographs of several sizes in `folder`, all different; their bytes."""
    from PIL import Image

    found = photographs(data)
    for i in range(SAMPLES):
        size = (400, 320) if i % 40 == 7 else (160, 120) if i % 5 == 3 else (52, 44)
        with Image.open(found[i * len(found) // SAMPLES]) as image:
            small = image.convert("RGB").resize(size)
        small.putpixel((24, 20), (i % 256, i // 256, 128))
        to = folder / f"class{i % 7}"
        to.mkdir(exist_ok=True)
        small.save(to / f"{i:05d}.jpg", quality=90)
    return sum(p.stat().st_size for p in folder.rglob("*.jpg"))


def free_port(address: str) -> int:
    with socket.socket() as s:
        s.bind((address, 0))
        return s.getsockname()[1]


def end_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Server:
    """A memcached on a socket; ranks know it by the proxy's address."""

    def __init__(self, soak: "Soak", number: int) -> None:
        self.soak, self.number = soak, number
        self.path = soak.scratch / f"server{number}.sock"
        self.address = f"127.0.0.{number + 10}"
        self.port = free_port(self.address)
        self.name = f"{self.address}:{self.port}"
        self.process = None
        self.start()

    def start(self) -> None:
        as_user = ["-u", "root"] if os.geteuid() == 0 else []
        self.process = subprocess.Popen(
            ["memcached", *as_user, "-M", "-m", "64", "-I", "2m", "-t", "1", "-s", str(self.path)],
            env=self.soak.environment, preexec_fn=end_with_parent,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + END_S
        while True:
            with contextlib.suppress(OSError):
                self.stats()
                return
            if time.monotonic() > end or self.process.poll() is not None:
                raise Wrong(f"memcached {self.number} does not start")
            time.sleep(0.01)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def connect(self):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(END_S)
        s.connect(str(self.path))
        return s

    def ask(self, command: bytes, ends: tuple) -> bytes:
        with self.connect() as s:
            s.sendall(command)
            answer = b""
            while not answer.endswith(ends):
                more = s.recv(1 << 16)
                if not more:
                    raise OSError("it closed the connection")
                answer += more
        return answer

    def stats(self) -> dict:
        lines = self.ask(b"stats\r\n", (b"END\r\n",)).decode().splitlines()
        return dict(line.split()[1:3] for line in lines if len(line.split()) == 3)

    def item(self, key: bytes) -> bytes | None:
        answer = self.ask(b"get " + key + b"\r\n", (b"END\r\n",))
        head, _, rest = answer.partition(b"\r\n")
        return rest[:int(head.split()[3])] if head.startswith(b"VALUE") else None

    def poison(self, dice: random.Random) -> bool:
        """Other values under keys of items: damaged, cut, of another key, longer, none."""
        listed = self.ask(b"lru_crawler metadump all\r\n", (b"END\r\n", b"BUSY\r\n"))
        keys = [word[4:].replace(b"%3A", b":").replace(b"%3a", b":")
                for word in listed.split() if word.startswith(b"key=hr1%3")]
        if len(keys) < 8:
            return False
        chosen = dice.sample(keys, min(len(keys), 40))
        for key, other in zip(chosen, reversed(chosen), strict=True):
            value = self.item(key)
            if not value:
                continue
            at = dice.randrange(len(value))
            damaged = [value[:at] + bytes([value[at] ^ 1 << dice.randrange(8)]) + value[at + 1:],
                       value[:at], self.item(other) or b"", value + value[:100], b""]
            value = dice.choice(damaged)
            self.ask(b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value), (b"\r\n",))
        return True


class Ways:
    """The proxy's process."""

    def __init__(self, soak: "Soak", servers: list) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("hosts_proxy.py"))],
            env=soak.environment, preexec_fn=end_with_parent, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.tell({"servers": [[s.address, s.port, str(s.path)] for s in servers],
                   "seed": soak.random.randrange(1 << 30)})

    def tell(self, order: dict) -> None:
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        if not self.process.stdout.readline():
            raise Wrong("the proxy has ended")

    def set(self, server: int, way: str, number: float = 0.0) -> None:
        self.tell({"server": server, "way": way, "number": number})

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(END_S)
        self.process.stdout.close()


class Rank:
    """One worker process. Its lines go to a file, so that nobody waits for a reader."""

    def __init__(self, soak: "Soak", host: int, plan: dict) -> None:
        self.soak, self.host, self.plan = soak, host, plan
        self.out = tempfile.TemporaryFile(dir=soak.scratch)
        self.err = tempfile.TemporaryFile(dir=soak.scratch)
        command = [soak.worker, "run", soak.folder, soak.reference,
                   *(f"{key}={value}" for key, value in plan.items())]
        self.process = subprocess.Popen(
            [str(c) for c in command], stdout=self.out, stderr=self.err,
            env=soak.environment | {"HEADRACE_HOST": soak.servers[host].name},
            preexec_fn=end_with_parent)
        self.read = 0  # of its output
        self.lines: collections.deque = collections.deque()  # that were not judged

    def look(self) -> None:
        parts = []
        while piece := os.pread(self.out.fileno(), 1 << 20, self.read + sum(map(len, parts))):
            parts.append(piece)
        text = b"".join(parts)
        whole = text[:text.rfind(b"\n") + 1]
        self.read += len(whole)
        self.lines.extend(line.split() for line in whole.decode().splitlines())

    def errors(self) -> str:
        return os.pread(self.err.fileno(), 1 << 20, 0).decode(errors="replace")[-3000:]

    def collect(self, may_be_killed: bool) -> None:
        """It has ended, or was told to."""
        try:
            status = self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            raise Wrong(f"{self}: does not end; {self.errors()}") from None
        self.look()
        if status and not (may_be_killed and status in (-signal.SIGKILL, -signal.SIGTERM)):
            raise Wrong(f"{self}: exit status {status}: {self.errors()}")

    def __str__(self):
        return f"host {self.host} ({' '.join(f'{k}={v}' for k, v in self.plan.items())})"


class Books:
    """What all ranks together have had: which samples, in which batch of which round."""

    def __init__(self, orders: list) -> None:
        self.orders = orders  # of each epoch: samples by position
        self.round = self.position = 0
        self.batches = self.samples = self.padding = self.hits = 0
        self.longest_batch_s = self.longest_meeting_s = 0.0
        self.last_epoch = None  # hits, bytes read
        self.last_s = time.monotonic()  # when something came
        self.is_meeting = True  # the next batch comes after a meeting

    def take(self, ranks: list) -> None:
        """The next line of each rank, where all have one."""
        while all(rank.lines for rank in ranks):
            lines = [rank.lines.popleft() for rank in ranks]
            self.last_s = time.monotonic()
            if len({(line[0], line[1]) for line in lines}) != 1:
                raise Wrong(f"the ranks are not in step: {[line[:3] for line in lines]}")
            if int(lines[0][1]) != self.round:
                raise Wrong(f"round {lines[0][1]} comes in round {self.round}")
            getattr(self, lines[0][0])([[int(word) for word in line[2:]] for line in lines])

    def batch(self, lines: list) -> None:
        where = f"round {self.round}, positions from {self.position}"
        after, order = lines[0][0], self.orders[self.round % EPOCHS]
        if any(line[0] != after for line in lines) or not self.position < after <= SAMPLES:
            raise Wrong(f"{where}: ranks are at {[line[0] for line in lines]} then")
        sizes = {len(line) - 3 for line in lines}
        real = [i for line in lines for i in line[3:len(line) - line[1]]]
        if len(sizes) != 1:
            raise Wrong(f"{where}: batches of {sizes} samples")
        if sorted(real) != sorted(order[self.position:after]):
            raise Wrong(f"{where} to {after}: the ranks have {sorted(real)}, not "
                        f"{sorted(order[self.position:after])}")
        self.wait(max(line[2] for line in lines) / 1e3, where)
        self.position = after
        self.batches += 1
        self.samples += len(real)
        self.padding += sum(line[1] for line in lines)

    def wait(self, seconds: float, where: str) -> None:
        most = MEET_S if self.is_meeting else BATCH_S
        if seconds > most:
            raise Wrong(f"{where}: {seconds:.1f} s were waited for a batch, more than {most}")
        if self.is_meeting:
            self.longest_meeting_s = max(self.longest_meeting_s, seconds)
        else:
            self.longest_batch_s = max(self.longest_batch_s, seconds)
        self.is_meeting = False

    def epoch(self, lines: list) -> None:
        if self.position != SAMPLES:
            raise Wrong(f"round {self.round} ends at position {self.position}")
        self.is_meeting = True  # there may be one: hosts may have changed
        self.wait(max(line[0] for line in lines) / 1e3, f"the end of round {self.round}")
        self.is_meeting = True
        self.last_epoch = sum(line[1] for line in lines), sum(line[2] for line in lines)
        self.hits += self.last_epoch[0]
        self.round += 1
        self.position = 0


class Soak:
    def __init__(self, arguments: argparse.Namespace, scratch: Path) -> None:
        if not shutil.which("memcached"):
            raise SystemExit("there is no memcached")
        self.worker = arguments.build / "tests/soak/soak_hosts_worker"
        self.faults = arguments.faults
        self.random = random.Random(arguments.seed)
        self.scratch = scratch
        self.shm = Path(tempfile.mkdtemp(prefix="headrace-soak-", dir="/dev/shm"))
        self.counts: collections.Counter = collections.Counter()
        self.ranks: list[Rank] = []
        self.servers: list[Server] = []
        self.ways = None
        self.healing: list = []  # (when, target, what)
        self.faulty: set = set()  # targets that have a fault
        self.environment = {k: v for k, v in os.environ.items() if k not in (
            "RANK", "WORLD_SIZE", "HEADRACE_HOST")} | {
            "HEADRACE_SHM": str(self.shm), "HEADRACE_JOB": str(scratch)}
        self.folder = scratch / "data"
        self.folder.mkdir()
        try:
            self.prepare(arguments)
        except BaseException:
            self.close()
            raise

    def prepare(self, arguments: argparse.Namespace) -> None:
        self.bytes = make_images(arguments.data, self.folder)
        self.reference = self.scratch / "reference"
        told = subprocess.run([str(self.worker), "reference", str(self.folder),
                               str(self.reference), str(arguments.seed)], text=True,
                              capture_output=True, env=self.environment, timeout=120)
        if told.returncode:
            raise Wrong(f"reference: exit status {told.returncode}: {told.stderr}")
        orders = [list(map(int, line.split())) for line in told.stdout.splitlines()]
        if any(sorted(order) != list(range(SAMPLES)) for order in orders) or len(orders) != EPOCHS:
            raise Wrong("a plain loader's order is not one of all samples")
        self.books = Books(orders)
        self.seed = arguments.seed
        for i in range(SERVERS):
            self.servers.append(Server(self, i))
        self.ways = Ways(self, self.servers)
        self.control = self.scratch / "control"
        self.hosts = self.choose_hosts()
        self.cut: set = set()

    # Ranks

    def text(self, sizes: dict) -> str:
        entries = (f"{self.servers[i].name}={int(self.bytes * size)}" for i, size in sizes.items())
        return f"memcached:{','.join(entries)}?timeout={TIMEOUT_MS}ms&meet={int(MEET_S)}s"

    def choose_hosts(self) -> str:
        """A list with all that have ranks, and some of the others, with budgets by chance."""
        more = self.random.sample(range(RANKED, SERVERS), self.random.randrange(3))
        return self.text({i: self.random.choice(SIZES) for i in [*range(RANKED), *more]})

    def start(self, world: int) -> None:
        """Ranks that go on where the ones before were."""
        dice = self.random
        together = self.scratch / "together"
        together.unlink(missing_ok=True)
        together.write_bytes(bytes(1 << 16))
        self.control.write_text(self.hosts + "\n")
        plan = {"world": world, "batch": dice.choice([4, 6, 8, 11]), "seed": self.seed,
                "hosts": self.hosts, "control": self.control, "together": together,
                "round": self.books.round, "position": self.books.position,
                "pause_us": dice.choice([1000, 3000, 8000]), "ahead": dice.choice([1, 2, 4]),
                "exact": int(dice.random() < 0.15), "rates": int(dice.random() < 0.5)}
        clocks = [dice.randrange(-SHIFT_S, SHIFT_S) for _ in range(RANKED)]
        hosts = sorted(dice.choices(range(RANKED), k=world))
        over_socket = dice.random() < 0.5
        for number, host in enumerate(hosts):
            own = {"own": f"&socket={self.servers[host].path}"} if over_socket else {}
            self.ranks.append(Rank(self, host, plan | own | {
                "rank": number, "clock_s": clocks[host], "address": f"127.0.1.{host + 1}"}))
        self.books.is_meeting = True
        self.books.last_s = time.monotonic()
        self.counts["starts"] += 1

    def end_ranks(self, number: int) -> None:
        """With a signal; what all of them had is taken in, what some had is not."""
        for rank in self.ranks:
            if rank.process.poll() is None:
                rank.process.send_signal(signal.SIGCONT)
                rank.process.send_signal(number)
        for rank in self.ranks:
            rank.collect(may_be_killed=True)
        self.books.take(self.ranks)
        for rank in self.ranks:
            rank.out.close()
            rank.err.close()
        self.ranks = []
        self.heal(lambda target: target[0] == "rank")

    def look(self) -> None:
        for rank in self.ranks:
            rank.look()
            status = rank.process.poll()
            if status is not None:
                raise Wrong(f"{rank}: ended by itself, status {status}: {rank.errors()}")
        self.books.take(self.ranks)
        waited = time.monotonic() - self.books.last_s
        if waited > MEET_S + END_S:
            raise Wrong(f"no batch in {waited:.0f} s; " + "; ".join(
                f"{rank}: {rank.lines and rank.lines[0][:3]} {rank.errors()[-300:]}"
                for rank in self.ranks))

    # Faults

    def fault(self) -> None:
        kind = self.random.choices(list(FAULTS), [often for often, _ in FAULTS.values()])[0]
        lasts_s = self.random.uniform(0.1, 1) * FAULTS[kind][1]
        if getattr(self, f"fault_{kind}", self.answers)(kind, lasts_s):
            self.counts[kind] += 1

    def free_target(self, what: str, count: int):
        target = what, self.random.randrange(count)
        return None if target in self.faulty else target

    def until(self, lasts_s: float, target, heals) -> bool:
        self.faulty.add(target)
        self.healing.append((time.monotonic() + lasts_s, target, heals))
        return True

    def heal(self, which) -> None:
        for entry in [e for e in self.healing if which(e[1])]:
            self.healing.remove(entry)
            self.faulty.discard(entry[1])
            entry[2]()

    def heal_due(self) -> None:
        now = time.monotonic()
        due = {target for when, target, _ in self.healing if when <= now}
        self.heal(lambda target: target in due)

    def fault_kill(self, kind, lasts_s) -> bool:
        """It begins again, empty; meanwhile its machine answers that nobody listens, or nothing
        answers."""
        target = self.free_target("server", SERVERS)
        if not target:
            return False
        server = self.servers[target[1]]
        server.kill()
        if self.random.random() < 0.4:
            server.start()
            return True
        self.ways.set(target[1], self.random.choice(["refuse", "silent"]))

        def heals():
            server.start()
            self.ways.set(target[1], "pass")

        return self.until(lasts_s, target, heals)

    def fault_hang(self, kind, lasts_s) -> bool:
        target = self.free_target("server", SERVERS)
        if not target:
            return False
        process = self.servers[target[1]].process
        process.send_signal(signal.SIGSTOP)
        return self.until(lasts_s, target, lambda: process.send_signal(signal.SIGCONT))

    def answers(self, kind, lasts_s) -> bool:
        """The proxy does it."""
        target = self.free_target("server", SERVERS)
        if not target:
            return False
        number = {"slow": self.random.choice([0.02, 0.1, 0.4]), "trickle": 0.01}.get(
            kind, self.random.random())
        self.ways.set(target[1], kind, number)
        return self.until(lasts_s, target, lambda: self.ways.set(target[1], "pass"))

    def fault_network(self, kind, lasts_s) -> bool:
        target = self.free_target("network", SERVERS)
        if not target:
            return False

        def change(change):
            change(target[1])
            self.ways.tell({"cut": sorted(self.cut)})

        change(self.cut.add)
        return self.until(lasts_s, target, lambda: change(self.cut.discard))

    def fault_poison(self, kind, lasts_s) -> bool:
        target = self.free_target("server", SERVERS)
        return target is not None and self.servers[target[1]].poison(self.random)

    def fault_hosts(self, kind, lasts_s) -> bool:
        self.hosts = self.choose_hosts()
        self.write_control(self.hosts)
        return True

    def write_control(self, text: str) -> None:
        beside = self.control.with_suffix(".new")
        beside.write_text(text + "\n")
        beside.rename(self.control)

    def fault_pause(self, kind, lasts_s) -> bool:
        target = self.free_target("rank", len(self.ranks))
        if not target:
            return False
        process = self.ranks[target[1]].process
        process.send_signal(signal.SIGSTOP)
        return self.until(lasts_s, target, lambda: process.send_signal(signal.SIGCONT))

    def fault_rank(self, kind, lasts_s) -> bool:
        """One is killed; the others are killed with it, or end after a while."""
        world = len(self.ranks)
        self.random.choice(self.ranks).process.kill()
        if self.random.random() < 0.5:
            time.sleep(self.random.random() * 0.3)
            self.end_ranks(signal.SIGTERM)
        else:
            self.end_ranks(signal.SIGKILL)
        now = self.random.choice([world, 2, 3, 4])
        self.counts["same_ranks" if now == world else "other_ranks"] += 1
        self.start(now)
        return True

    def run(self, ranks: int) -> None:
        self.start(ranks)
        progress = Progress("soak-hosts")
        while self.done() < self.faults:
            self.go_on(self.random.expovariate(1 / BETWEEN_S))
            self.fault()
            progress.update("faults", self.done(), self.faults)
        progress.done("faults", self.done())
        self.recover()

    def go_on(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            self.heal_due()
            self.look()
            if time.monotonic() >= until:
                return
            time.sleep(0.02)

    def done(self) -> int:
        return sum(self.counts[kind] for kind in FAULTS)

    def recover(self) -> None:
        """With enough memory and no faults, nothing is read from storage after a while."""
        self.heal(lambda target: True)
        self.hosts = self.text({i: 0.5 for i in range(SERVERS)})
        self.write_control(self.hosts)
        self.books.last_epoch, begin = None, time.monotonic()
        while not (self.books.last_epoch and self.books.last_epoch[0] >= SAMPLES
                   and self.books.last_epoch[1] == 0):
            if time.monotonic() - begin > RECOVERY_S:
                raise Wrong(f"{RECOVERY_S:.0f} s after the last fault the servers have not all: "
                            f"{self.books.last_epoch} hits and bytes read in an epoch; "
                            + self.ranks[0].errors())
            self.go_on(0.05)
        self.recovery_s = time.monotonic() - begin

    # The end

    def judge(self) -> None:
        """All end in good order; then nothing may be left."""
        self.write_control("end")
        end = time.monotonic() + MEET_S
        while any(rank.process.poll() is None for rank in self.ranks):
            if time.monotonic() > end:
                raise Wrong("the ranks do not end")
            time.sleep(0.02)
        for rank in self.ranks:
            rank.collect(may_be_killed=False)
        self.books.take(self.ranks)
        self.ways.close()
        for server in self.servers:
            # This question's own, and the one that listens.
            self.wait_for(lambda server=server: int(server.stats()["curr_connections"]) <= 2,
                          f"connections to server {server.number} are left")
            server.process.terminate()
            server.process.wait(END_S)
        self.wait_for(lambda: not self.processes(), "processes are left")
        # The status of a loader that was killed stays until the next one starts.
        left = [str(p) for p in self.shm.rglob("*") if "-loaders" not in str(p)]
        if left:
            raise Wrong(f"left in shared memory: {left}")

    def wait_for(self, condition, what: str) -> None:
        end = time.monotonic() + 5
        while not condition():
            if time.monotonic() > end:
                raise Wrong(f"{what}: processes {self.processes()}")
            time.sleep(0.05)

    def processes(self) -> list:
        """Those that this run started, and theirs, but for this one."""
        mark = f"HEADRACE_JOB={self.scratch}".encode()
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    found.append(int(pid))
        return found

    def close(self) -> None:
        started = [rank.process for rank in self.ranks] + [s.process for s in self.servers]
        if self.ways:
            started.append(self.ways.process)
        for process in started:
            if process.poll() is None:
                process.kill()
            process.wait()
        subprocess.run(["rm", "-rf", str(self.shm)], check=False)


def figures(soak: Soak, wrong: str | None) -> dict:
    books, counts = soak.books, soak.counts
    return {"faults_survived": soak.done() if wrong is None else 0, "faults": soak.done(),
            **{kind: counts[kind] for kind in (*FAULTS, "same_ranks", "other_ranks", "starts")},
            "epochs": books.round, "batches": books.batches, "samples": books.samples,
            "padding": books.padding, "hits": books.hits,
            "longest_batch_s": round(books.longest_batch_s, 3),
            "longest_meeting_s": round(books.longest_meeting_s, 3),
            "recovery_s": round(getattr(soak, "recovery_s", -1.0), 1), "seed": soak.seed}


def main() -> int:
    parser = frame.parser(__doc__)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=3, choices=(2, 3, 4), metavar="RANKS",
                        help="to begin with")
    return frame.whole("hosts", parser.parse_args(), Soak, figures)


if __name__ == "__main__":
    sys.exit(main())
