#!/usr/bin/env python3
"""Kills, stops and starts jobs that share an agent, a thousand times, and looks what each saw.

Eight jobs at once read a small dataset through the agent that the first of them started
(agent="auto"): most share one of two streams, with batches of different sizes; two are ranks of
one job; now and then one has a stream of its own. A fault is one of: a job is killed
(SIGKILL), a job is stopped for up to three seconds (SIGSTOP), a job is asked to end and
another starts late, or the agent itself is killed. Jobs that take another's place join the
running epoch, wait for the next one, or go on from where the dead one was. What must hold:

- every job gets, in each epoch, every sample of its part exactly once, but for what it was
  told that it missed when it joined; one that goes on from a state gets just the rest;
- all jobs of a stream, whenever they ran, agree on which sample is at which position;
- pixels are right, also of batches that are held for long or that other jobs wrote to;
- no job hangs, and none fails, also when the agent dies;
- nothing is left: no memory or connection in the agent once the jobs are gone, no agent once
  it has been unused for a while, no socket, no shared memory, no process.

Usage: share.py --build BUILD --data FOLDER [--faults 1000] [--seed 0]
Writes docs/results/soak-share.json with --out. Exit status 1 where anything is wrong.
"""

import argparse
import array
import collections
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import frame  # noqa: E402
from frame import Wrong, photographs  # noqa: E402
from progress import Progress  # noqa: E402

HANG_S = 60
IDLE_S = 30  # until an unused agent is gone; it waits for five seconds
STOP_MOST_S = 3
BETWEEN_S = 0.35  # faults come after so long, on average
SAMPLES = 600  # a multiple of the ranks
FILES_MOST = 32  # that an agent without jobs has open
FAULTS = {"kill": 58, "stop": 25, "late": 14, "agent": 3}  # how often each comes


def make_images(data: Path, folder: Path) -> None:
    """Small photographs in classes of `folder`, all different."""
    from PIL import Image

    found = photographs(data)
    for i in range(SAMPLES):
        with Image.open(found[i * len(found) // SAMPLES]) as image:
            small = image.convert("RGB").resize((48, 40))
        small.putpixel((24, 20), (i % 256, i // 256, 128))
        to = folder / f"class{i % 7}"
        to.mkdir(exist_ok=True)
        small.save(to / f"{i:05d}.jpg", quality=90)


def read_from(file, offset: int) -> bytes:
    """The rest of a file, without moving the place at which its writer, who has the same
    description, writes on."""
    parts = []
    while piece := os.pread(file.fileno(), 1 << 20, offset):
        parts.append(piece)
        offset += len(piece)
    return b"".join(parts)


class Books:
    """What jobs recorded: which sample was at which position of each stream's epochs."""

    def __init__(self) -> None:
        # (stream, epoch) -> sample by position, -1: nobody has had it.
        self.at: dict = collections.defaultdict(lambda: array.array("h", [-1] * SAMPLES))
        self.epochs = self.batches = self.samples = self.missed = 0

    def note(self, stream, epoch, position, sample):
        if not 0 <= position < SAMPLES:
            raise Wrong(f"stream {stream}, epoch {epoch}: there is no position {position}")
        known = self.at[stream, epoch][position]
        if known not in (-1, sample):
            raise Wrong(f"stream {stream}, epoch {epoch}: at position {position} one job got sample "
                        f"{known}, another {sample}; {self.tell(stream, epoch)}")
        self.at[stream, epoch][position] = sample
        self.samples += 1

    def tell(self, stream, epoch):
        return f"stream {stream}, epoch {epoch}, samples by position: {list(self.at[stream, epoch])}"

    def judge(self):
        """No sample is at two positions of an epoch."""
        for (stream, epoch), samples in self.at.items():
            known = [sample for sample in samples if sample >= 0]
            if len(set(known)) != len(known):
                raise Wrong(f"stream {stream}, epoch {epoch}: a sample came twice")


class Job:
    """One worker process. Its lines go to a file, so that nobody waits for a reader."""

    def __init__(self, soak: "Soak", place: int, plan: dict) -> None:
        self.soak, self.place, self.plan = soak, place, plan
        self.out = tempfile.TemporaryFile(dir=soak.scratch)
        self.err = tempfile.TemporaryFile(dir=soak.scratch)
        command = [soak.worker, "run", soak.folder, soak.reference,
                   *(f"{key}={value}" for key, value in plan.items())]
        self.process = subprocess.Popen([str(c) for c in command], env=soak.environment,
                                        stdout=self.out, stderr=self.err)
        self.since = time.monotonic()
        self.read = 0  # of its output
        self.wakes_at = None  # when it goes on, while it is stopped
        self.missed = None  # samples, as it was told when it joined
        self.epoch = self.position = None  # where it is
        if "from" in plan:
            self.epoch, self.position = map(int, plan["from"].split(":"))
        self.seen: dict = {}  # samples of this epoch, and at which position they came
        self.began_at = self.position or 0

    @property
    def world(self):
        return self.plan.get("world", 1)

    def look(self) -> None:
        """Takes in what it wrote, and raises where that is wrong or nothing comes."""
        text = read_from(self.out, self.read)
        whole = text[:text.rfind(b"\n") + 1]
        self.read += len(whole)
        for line in whole.decode().splitlines():
            self.take(line)
        now = time.monotonic()
        if whole or self.wakes_at is not None or self.process.poll() is not None:
            self.since = now
        elif now - self.since > HANG_S:
            raise Wrong(f"{self}: no batch in {HANG_S} s; {self.errors()}; the agent says "
                        f"{self.soak.status()}")

    def take(self, line: str) -> None:
        words = line.split()
        if words[0] == "missed":
            # Of the order, by all ranks; after a restored position there is none.
            self.missed = int(words[1])
            self.soak.books.missed += self.missed
            return
        epoch, after, *samples = map(int, words)
        before = after - len(samples) * self.world
        if self.epoch is None:
            self.begin(epoch, before)
        elif epoch != self.epoch:
            self.end_epoch()
            if epoch != self.epoch + 1 or before != 0:
                raise Wrong(f"{self}: after epoch {self.epoch} comes epoch {epoch} from position "
                            f"{before} on")
            self.epoch, self.position, self.began_at, self.seen = epoch, 0, 0, {}
        if before != self.position:
            raise Wrong(f"{self}: epoch {epoch} goes on at position {before}, not {self.position}")
        rank = self.plan.get("rank", 0)
        for i, sample in enumerate(samples):
            position = before + i * self.world + rank
            if sample in self.seen:
                raise Wrong(f"{self}: epoch {epoch} has sample {sample} at position "
                            f"{self.seen[sample]} and, number {i} of a batch from {before} to "
                            f"{after}, at {position}; {self.soak.books.tell(self.stream, epoch)}")
            self.seen[sample] = position
            self.soak.books.note(self.stream, epoch, position, sample)
        self.position = after
        self.soak.books.batches += 1

    def begin(self, epoch: int, before: int) -> None:
        """Its first batch: it joined where it was told."""
        if before != self.missed:
            raise Wrong(f"{self}: begins at position {before}, was told that it missed "
                        f"{self.missed}")
        if before and self.plan.get("join") != "now":
            raise Wrong(f"{self}: begins in the middle of an epoch, at {before}")
        self.epoch, self.position, self.began_at = epoch, before, before

    def end_epoch(self) -> None:
        """All that it had to get of an epoch, exactly once."""
        if self.position != SAMPLES or len(self.seen) * self.world != SAMPLES - self.began_at:
            raise Wrong(f"{self}: epoch {self.epoch} ended at position {self.position} after "
                        f"{len(self.seen)} samples from {self.began_at} on")
        self.soak.books.epochs += 1

    @property
    def stream(self):
        return self.plan.get("stream", f"own {self.plan['seed']}")

    def errors(self) -> str:
        return read_from(self.err, 0).decode(errors="replace")[-2000:]

    def signal(self, number: int) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)

    def collect(self, may_be_killed: bool) -> None:
        """It has ended, or was told to."""
        try:
            status = self.process.wait(HANG_S)
        except subprocess.TimeoutExpired:
            raise Wrong(f"{self}: does not end; {self.errors()}") from None
        self.look()
        if status == 0:
            if self.position == SAMPLES:
                self.end_epoch()
            self.soak.counts["ended"] += 1
        elif status == -signal.SIGTERM and not self.read:
            pass  # asked before it could listen
        elif not (may_be_killed and status == -signal.SIGKILL):
            raise Wrong(f"{self}: exit status {status}: {self.errors()}")
        self.out.close()
        self.err.close()

    def __str__(self):
        return f"job {self.place} ({' '.join(f'{k}={v}' for k, v in self.plan.items())})"


class Soak:
    def __init__(self, arguments: argparse.Namespace, scratch: Path) -> None:
        self.worker = arguments.build / "tests/soak/soak_share_worker"
        self.command = arguments.build / "cli/headrace"
        self.faults = arguments.faults
        self.random = random.Random(arguments.seed)
        self.scratch = scratch
        self.shm = Path(tempfile.mkdtemp(prefix="headrace-soak-", dir="/dev/shm"))
        self.socket = scratch / "agent" / "agent.sock"
        self.environment = os.environ | {
            "HEADRACE_SHM": str(self.shm),
            "HEADRACE_AGENT": str(self.socket),
            "HEADRACE_AGENT_COMMAND": f"{self.command}\x1fagent",
        }
        self.folder = scratch / "data"
        self.folder.mkdir()
        make_images(arguments.data, self.folder)
        self.reference = scratch / "reference"
        self.check([self.worker, "reference", self.folder, self.reference])
        self.books = Books()
        self.jobs: dict[int, Job] = {}
        self.counts: collections.Counter = collections.Counter()
        self.own_seed = 1000
        self.most = collections.Counter()  # the agent's files and bytes, at most

    def check(self, command: list) -> str:
        result = subprocess.run([str(c) for c in command], env=self.environment, text=True,
                                capture_output=True, timeout=HANG_S)
        if result.returncode:
            raise Wrong(f"{command[1]}: exit status {result.returncode}: {result.stderr}")
        return result.stdout

    def status(self) -> dict | None:
        """What the agent says, None where there is none."""
        try:
            return json.loads(self.check([self.worker, "status", self.socket]))
        except Wrong:
            return None

    # Jobs

    def plan(self, place: int) -> dict:
        """What a job at that place does; parts of it by chance."""
        roll = self.random
        plan = {"batch": roll.choice([4, 5, 8, 8, 12, 16, 24]), "side": 32,
                "pause_us": roll.choice([4000, 8000, 8000, 15000]),
                "hold": roll.choice([0, 1, 3, 6, 14]), "dice": roll.randrange(1, 1 << 32),
                "window": roll.choice([6, 8, 8, 12])}
        if roll.random() < 0.3:
            plan["epochs"] = roll.randrange(1, 6)
        if place >= 6:  # the two ranks
            plan |= {"stream": "ranks", "seed": 3, "rank": place - 6, "world": 2, "batch": 8}
        elif roll.random() < 0.12:
            self.own_seed += 1
            plan |= {"seed": self.own_seed, "side": 28}
        elif place >= 4:
            plan |= {"stream": "wait", "seed": 2, "lag": "wait"}
        else:
            plan |= {"stream": "alone", "seed": 1, "cache": "2MiB"}
        return plan

    def start(self, place: int, after: Job | None = None) -> None:
        """A job at that place; it may go on where the one before was."""
        plan = self.plan(place)
        how = self.random.choice(["now", "epoch", "from"])
        if how == "from" and after and after.epoch is not None and "world" not in plan:
            kept = ("stream", "seed", "side", "lag", "cache")
            plan = {k: v for k, v in plan.items() if k not in kept}
            plan |= {k: after.plan[k] for k in kept if k in after.plan}
            plan["from"] = f"{after.epoch}:{after.position}"
        elif "world" in plan or how != "now":
            plan["join"] = "epoch"
        else:
            plan["join"] = "now"
        self.jobs[place] = Job(self, place, plan)
        self.counts["started"] += 1

    def wake(self, is_followed: bool = True) -> None:
        """Those whose time has come go on, those who ended by themselves are followed."""
        now = time.monotonic()
        for place, job in list(self.jobs.items()):
            if job.wakes_at is not None and now >= job.wakes_at:
                job.signal(signal.SIGCONT)
                job.wakes_at, job.since = None, now
            job.look()
            if job.process.poll() is not None:
                job.collect(may_be_killed=False)
                del self.jobs[place]
                if is_followed:
                    self.start(place, job)

    # Faults

    def fault(self) -> None:
        kind = self.random.choices(list(FAULTS), FAULTS.values())[0]
        place = self.random.choice(list(self.jobs))
        if getattr(self, kind)(self.jobs[place]):
            self.counts[kind] += 1

    def kill(self, job: Job) -> bool:
        if job.process.poll() is not None:
            return False
        job.signal(signal.SIGKILL)
        job.collect(may_be_killed=True)
        self.start(job.place, job)
        return True

    def stop(self, job: Job) -> bool:
        if job.process.poll() is not None or job.wakes_at is not None:
            return False
        job.signal(signal.SIGSTOP)
        job.wakes_at = time.monotonic() + self.random.random() ** 2 * STOP_MOST_S
        return True

    def late(self, job: Job) -> bool:
        """It ends in good order; another starts later."""
        if job.process.poll() is not None or job.wakes_at is not None:
            return False
        job.signal(signal.SIGTERM)
        job.collect(may_be_killed=False)
        time.sleep(self.random.random() * 0.2)
        self.start(job.place)
        return True

    def agent(self, job: Job) -> bool:
        status = self.status()
        if status is None:
            return False
        try:
            os.kill(status["pid"], signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def measure(self) -> None:
        """What the agent has open and holds, now."""
        status = self.status()
        if status is None:
            return
        queues = [queue for stream in status["streams"] for queue in stream["queues"]]
        self.note_most("memory_bytes", sum(queue["memory_bytes"] for queue in queues))
        self.note_most("queues", len(queues))
        try:
            self.note_most("files", len(os.listdir(f"/proc/{status['pid']}/fd")))
        except OSError:
            pass  # it was killed since

    def note_most(self, what, value):
        self.most[what] = max(self.most[what], value)

    def run(self, jobs: int) -> None:
        for place in range(jobs):
            self.start(place)
        progress = Progress("soak-share")
        while self.done() < self.faults:
            until = time.monotonic() + self.random.expovariate(1 / BETWEEN_S)
            while time.monotonic() < until:
                time.sleep(0.02)
                self.wake()
            self.fault()
            if self.done() % 10 == 0:
                self.measure()
            progress.update("faults", self.done(), self.faults)
        # Those that are left get through an epoch undisturbed.
        self.quiet()
        progress.done("faults", self.done())

    def done(self) -> int:
        return sum(self.counts[kind] for kind in FAULTS)

    def quiet(self) -> None:
        """Until each job that is left has ended by itself, or is two epochs on."""
        wanted = {}
        end = time.monotonic() + 2 * HANG_S
        while not all(job.epoch is not None and job.epoch >= wanted.get(job, job.epoch + 1)
                      for job in self.jobs.values()):
            time.sleep(0.05)
            self.wake(is_followed=False)
            for job in self.jobs.values():
                if job.epoch is not None:
                    wanted.setdefault(job, job.epoch + 2)
            if time.monotonic() > end:
                raise Wrong("the jobs that are left do not get through an epoch: "
                            + "; ".join(map(str, self.jobs.values())))

    # The end

    def judge(self) -> None:
        """All end in good order; then nothing may be left."""
        for job in self.jobs.values():
            job.signal(signal.SIGCONT)
            job.signal(signal.SIGTERM)
        for job in self.jobs.values():
            job.collect(may_be_killed=False)
        self.books.judge()
        status = self.status()
        if status:  # else it has ended already
            self.wait_for(lambda: self.is_empty(status["pid"]), IDLE_S,
                          "the agent without jobs still holds memory or files")
            self.wait_for(lambda: not os.path.exists(f"/proc/{status['pid']}"), IDLE_S,
                          "the agent does not end although it is unused")
        self.wait_for(lambda: not self.processes(), 5, "processes are left")
        left = [p.name for p in self.socket.parent.iterdir() if p.suffix != ".log"]
        if left:
            raise Wrong(f"left beside the socket: {left}")
        # Caches of agents that were killed belong to nobody; whoever looks clears them away.
        self.check([self.command, "cache", "list"])
        # The status of a loader that was killed stays until the next one starts.
        left = [str(p) for p in self.shm.rglob("*") if "-loaders" not in str(p)]
        if left:
            raise Wrong(f"left in shared memory: {left}")

    def is_empty(self, pid: int) -> bool:
        status = self.status()
        if status is None:
            return not os.path.exists(f"/proc/{pid}")
        if status["jobs"] or status["streams"]:
            return False
        files = [os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd")]
        return len(files) <= FILES_MOST and not any(f.startswith("/memfd:") for f in files)

    def wait_for(self, condition, seconds: float, what: str) -> None:
        end = time.monotonic() + seconds
        while True:
            try:
                if condition():
                    return
            except OSError:
                pass  # looked at while it went
            if time.monotonic() > end:
                raise Wrong(f"{what}: {self.processes()}; {self.status()}")
            time.sleep(0.1)

    def processes(self) -> list:
        """Those that this run started, and theirs, but for this one."""
        mark = f"HEADRACE_AGENT={self.socket}".encode()
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as f:
                    if mark in f.read().split(b"\0"):
                        found.append(int(pid))
            except OSError:
                pass
        return found

    def close(self) -> None:
        for job in self.jobs.values():
            if job.process.poll() is None:
                job.process.kill()
                job.process.wait()
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
        subprocess.run(["rm", "-rf", str(self.shm)], check=False)


def figures(soak: Soak, wrong: str | None) -> dict:
    return {"faults_survived": soak.done() if wrong is None else 0, "faults": soak.done(),
            **{kind: soak.counts[kind] for kind in (*FAULTS, "started", "ended")},
            "epochs": soak.books.epochs, "batches": soak.books.batches,
            "samples": soak.books.samples, "missed": soak.books.missed,
            **{f"{what}_most": value for what, value in soak.most.items()}}


def main() -> int:
    parser = frame.parser(__doc__)
    parser.add_argument("--faults", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=8, help="at once, at least 8 for all kinds")
    return frame.whole("share", parser.parse_args(), Soak, figures)


if __name__ == "__main__":
    sys.exit(main())
