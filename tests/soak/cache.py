#!/usr/bin/env python3
"""Kills jobs that share caches, a thousand times, and looks what is left.

Several jobs at once train on the same photographs through caches in shared memory: a
kept one whose budget holds all of them, kept ones that hold half, of which one is for
jobs with orders of their own that evict by next use, and private ones of a run's ranks;
in various forms and orders. They are killed with SIGKILL at random
moments (some are stopped for a while first) and started again. What must hold:

- every job that ends, or is still running, has seen right pixels only (the worker
  compares each sample with what it is without a cache);
- no job hangs: each that runs gets through an epoch in the time given;
- nothing is lost or leaked: at the end the kept caches hold exactly the bytes that
  caches never disturbed hold, an epoch reads nothing that fits, and once they are
  dropped nothing is left in shared memory.

Usage: cache.py --build BUILD --data FOLDER [--kills 1000] [--jobs 5] [--seed 0]
Writes docs/results/soak-cache.json with --out. Exit status 1 where anything is wrong.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import frame  # noqa: E402
from frame import Wrong  # noqa: E402
from progress import Progress  # noqa: E402

HANG_S = 60
EPOCHS = 1000


def photographs(data: Path, folder: Path, count: int) -> int:
    """Copies `count` photographs into classes of `folder`; returns their bytes."""
    found = [p for p in frame.photographs(data) if p.stat().st_size < 150_000]
    if len(found) < count:
        raise SystemExit(f"{data} has {len(found)} photographs; {count} are needed")
    total = 0
    for i, path in enumerate(found[:: len(found) // count][:count]):
        to = folder / f"class{i % 7}"
        to.mkdir(exist_ok=True)
        shutil.copyfile(path, to / f"{i:05d}.jpg")
        total += path.stat().st_size
    return total


class Soak:
    def __init__(self, arguments: argparse.Namespace, scratch: Path) -> None:
        self.worker = arguments.build / "tests/soak/soak_cache_worker"
        self.command = arguments.build / "cli/headrace"
        self.kills = arguments.kills
        self.random = random.Random(arguments.seed)
        self.scratch = scratch
        self.shm = Path(tempfile.mkdtemp(prefix="headrace-soak-", dir="/dev/shm"))
        self.environment = os.environ | {"HEADRACE_SHM": str(self.shm)}
        self.folder = scratch / "data"
        self.folder.mkdir()
        self.bytes = photographs(arguments.data, self.folder, arguments.images)
        self.reference = scratch / "reference"
        self.check([self.worker, self.folder, "reference", self.reference])
        half = self.bytes // 2
        self.specs = {
            "all": f"shm:soak-all?size={2 * self.bytes}&form=encoded",
            "half": f"shm:soak-half?size={half}&form=encoded",
            "orders": f"shm:soak-orders?size={half}&form=encoded",
            "forms": f"shm:soak-forms?size={3 * self.bytes}&form=coefficients",
            "auto": f"shm:soak-auto?size={self.bytes}",
            "ranks": f"{self.bytes}",
        }
        self.jobs: dict[int, Job] = {}
        self.done = self.stopped = self.ended = self.epochs = self.evicted = 0
        self.ran_s, self.looked = 0.0, time.monotonic()

    def check(self, command: list) -> str:
        result = subprocess.run(
            [str(c) for c in command], env=self.environment, capture_output=True, text=True,
            timeout=10 * HANG_S,
        )
        if result.returncode:
            raise Wrong(f"{command[-1]}: exit status {result.returncode}: {result.stderr}")
        return result.stdout

    def start(self, place: int) -> None:
        name = self.random.choice([*self.specs, "orders", "orders"])
        self.jobs[place] = Job(self, name)

    def info(self, name: str) -> dict:
        return json.loads(self.check([self.command, "cache", "info", name, "--json"]))

    def kill_one(self) -> None:
        place = self.random.randrange(len(self.jobs))
        job = self.jobs[place]
        if self.random.random() < 0.1:
            job.process.send_signal(signal.SIGSTOP)
            self.stopped += 1
            time.sleep(self.random.random() * 0.2)
        if job.process.poll() is None:
            job.process.kill()
            job.process.wait()
            self.done += 1
        self.collect(job)
        self.start(place)

    def collect(self, job: "Job") -> None:
        status = job.process.wait()
        if status not in (0, -signal.SIGKILL):
            raise Wrong(f"{job.name}: exit status {status}: {job.errors()}")
        self.epochs += job.count()
        self.ended += status == 0
        job.close()

    def run(self, jobs: int) -> None:
        for place in range(jobs):
            self.start(place)
        progress = Progress("soak-cache")
        while self.done < self.kills:
            time.sleep(self.random.expovariate(1 / 0.08))
            self.kill_one()
            progress.update("kills", self.done, self.kills)
            self.tick()
            for job in self.jobs.values():
                job.look()
        progress.done("kills", self.done)
        for job in self.jobs.values():
            job.process.kill()
            self.collect(job)

    def tick(self) -> None:
        """Counts the seconds that this process ran: a machine that slept, or that stopped all of the
        soak, is no hang of a job."""
        now = time.monotonic()
        self.ran_s, self.looked = self.ran_s + min(now - self.looked, 1), now

    def undisturbed(self, spec: str) -> dict:
        """What a cache of that kind holds when nobody is killed."""
        spec = spec.replace("soak-", "quiet-")
        self.check([self.worker, self.folder, "run", self.reference, spec, "0", "2"])
        return self.info(spec.split(":")[1].split("?")[0])

    def judge(self) -> None:
        self.evicted = self.info("soak-orders")["caches"][0]["evicted"]
        if self.kills >= 200 and not self.evicted:
            raise Wrong("orders: jobs with orders of their own evicted nothing")
        for name in ("all", "half", "orders", "forms"):
            spec = self.specs[name]
            lines = self.check([self.worker, self.folder, "run", self.reference, spec, "1", "3"])
            last = json.loads(lines.splitlines()[-1])
            told = self.info(f"soak-{name}")["caches"][0]
            quiet = self.undisturbed(spec)["caches"][0]
            if told["damaged"] or told["users"]:
                raise Wrong(f"{name}: {told}")
            if name == "all" and told["used_bytes"] != quiet["used_bytes"]:
                raise Wrong(f"{name}: {told['used_bytes']} bytes used, {quiet['used_bytes']} wanted")
            if name not in ("half", "orders") and last["read"]:
                raise Wrong(f"{name}: an epoch reads {last['read']} bytes that are cached")
            # Blocks of evicted items waste some space.
            if last["read"] > self.bytes - 0.95 * (self.bytes // 2):
                raise Wrong(f"{name}: an epoch reads {last['read']} of {self.bytes} bytes")
        for kind in ("soak", "quiet"):
            for name in ("all", "half", "orders", "forms", "auto"):
                subprocess.run(
                    [self.command, "cache", "drop", f"{kind}-{name}"], env=self.environment,
                    capture_output=True,
                )
        self.check([self.command, "cache", "list"])
        # The status of a loader that was killed stays until the next one starts.
        left = [str(p) for p in self.shm.rglob("*") if "-loaders" not in str(p)]
        if left:
            raise Wrong(f"left in shared memory: {left}")

    def close(self) -> None:
        for job in self.jobs.values():
            if job.process.poll() is None:
                job.process.kill()
                job.process.wait()
        shutil.rmtree(self.shm, ignore_errors=True)


class Job:
    """One worker process; its lines go to files, so that nobody waits for a reader."""

    def __init__(self, soak: Soak, name: str) -> None:
        self.name, self.soak = name, soak
        self.out = tempfile.TemporaryFile(dir=soak.scratch)
        self.err = tempfile.TemporaryFile(dir=soak.scratch)
        command = [soak.worker, soak.folder, "run", soak.reference, soak.specs[name],
                   soak.random.choice("1234" if name == "orders" else "1123"), soak.random.choice(["1", EPOCHS])]
        if name == "ranks":
            command.append("4")
        self.process = subprocess.Popen(
            [str(c) for c in command], env=soak.environment, stdout=self.out, stderr=self.err
        )
        self.seen, self.since = 0, soak.ran_s

    def count(self) -> int:
        self.out.seek(0)
        return self.out.read().count(b"\n")

    def errors(self) -> str:
        self.err.seek(0)
        return self.err.read().decode(errors="replace")[-2000:]

    def look(self) -> None:
        """Raises where the job hangs."""
        now, count = self.soak.ran_s, self.count()
        if count != self.seen or self.process.poll() is not None:
            self.seen, self.since = count, now
        elif now - self.since > HANG_S:
            raise Wrong(f"{self.name}: no epoch in {HANG_S} s: {self.errors()}")

    def close(self) -> None:
        self.out.close()
        self.err.close()


def figures(soak: Soak, wrong: str | None) -> dict:
    return {"kills_survived": soak.done if wrong is None else 0, "kills": soak.done,
            "stopped": soak.stopped, "epochs": soak.epochs, "evicted": soak.evicted}


def main() -> int:
    parser = frame.parser(__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=5, help="at once")
    parser.add_argument("--images", type=int, default=200)
    return frame.whole("cache", parser.parse_args(), Soak, figures)


if __name__ == "__main__":
    sys.exit(main())
