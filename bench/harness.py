"""Shared parts of the benchmarks: peers as pinned worker processes, interleaved
passes, medians, the description of the machine, and the last line of JSON.

A worker is a process that prints one JSON line when it is ready, then, for
each line "pass" on its standard input, does one pass over the same samples and
prints {"seconds", "cpu_seconds", "samples"}. Only one worker works at a time;
passes of all workers alternate, so that a drift of the machine's speed affects
all of them equally. Ratios are taken pass by pass and their median is reported.
"""

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time


def log(text):
    print(text, flush=True)


def machine():
    """One line about where the figures come from."""
    cpu = "unknown CPU"
    flags = ""
    with open("/proc/cpuinfo") as f:
        for line in f:
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
            if line.startswith("flags"):
                flags = line
    isa = "AVX-512" if "avx512_vnni" in flags else "AVX2" if "avx2" in flags else "no AVX2"
    kernel = platform.release().split("-")[0]
    return f"{cpu}, {os.cpu_count()} cores, {isa}, Linux {kernel}, {time.strftime('%Y-%m-%d')}"


def busy_note():
    """What could not be controlled: how busy the machine was at the start."""
    load = os.getloadavg()[0]
    steal = 0
    with open("/proc/stat") as f:
        v = [int(x) for x in f.readline().split()[1:9]]
        steal = v[7] / max(sum(v), 1)
    return f"load average {load:.2f} at the start, {steal:.2%} of CPU time stolen since boot"


CACHE_FILES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data",
                           "cache-files")


def parser(name, description, parts, minutes, data=None, data_help=None):
    """The options of a benchmark in parts; over the files of tools/make_cache_files.py, or over
    what `data` and `data_help` say."""
    options = argparse.ArgumentParser(prog=f"bench/run {name}", description=description,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", default=data or os.environ.get("CACHE_FILES") or CACHE_FILES,
                         help=data_help or "a folder of tools/make_cache_files.py")
    options.add_argument("--minutes", type=float, default=minutes,
                         help="leave out what would take longer (%(default)s)")
    options.add_argument("--only", choices=list(parts), nargs="+")
    return options


def need_cache_files(args):
    if not os.path.isdir(args.data):
        sys.exit(f"{args.data}: no such folder; make it with tools/make_cache_files.py, or name "
                 "one with --data")


def choose_jpegs(folder, count, remedy):
    """`count` JPEG files of an image folder, the same ones every time; all if it has fewer."""
    paths = sorted(os.path.join(d, f) for d, _, names in os.walk(folder) for f in names
                   if f.lower().endswith((".jpg", ".jpeg")))
    if not paths:
        sys.exit(f"{folder}: no JPEG files; {remedy}")
    random.Random(0).shuffle(paths)
    return sorted(paths[:count])


class Missing(Exception):
    """A peer that cannot be measured here; str() is the reason."""


class Parts:
    """A benchmark that consists of parts: what they found, and the time that is left."""

    def __init__(self, args):
        self.args = args
        self.figures = {}
        self.began = time.monotonic()

    def left(self):
        """Seconds until the run should end."""
        return self.args.minutes * 60 - (time.monotonic() - self.began)

    def refuse(self, keys, reason):
        """Figures that cannot be had."""
        for key in keys:
            self.figures[key], self.figures[key + "_reason"] = None, str(reason)
        log(f"left out  {', '.join(keys) or 'what is beside the figures'}: {reason}")

    def run(self, parts, reasons, before=None):
        """Runs `parts`, name: (function, its figures, seconds that it takes), or those named by
        --only. A part that raises one of `reasons`, or does not fit into the time, is left out.
        Calls `before` with the name of each."""
        for name, (part, owed, needs) in parts.items():
            if self.args.only and name not in self.args.only:
                continue
            if before:
                before(name)
            begun = time.monotonic()
            try:
                if self.left() < needs:
                    raise Missing(f"of {self.args.minutes:.0f} minutes {self.left():.0f} s are "
                                  "left")
                part(self)
                log(f"          {name}: {time.monotonic() - begun:.0f} s")
            except (Missing, *reasons) as reason:
                self.refuse([key for key in owed if key not in self.figures], reason)

    def take_soak(self, name, faults):
        """What `make soak-NAME` wrote when it ran last; `faults`: what it counts."""
        path = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs",
                            "results", f"soak-{name}.json")
        try:
            with open(path) as f:
                result = json.load(f)
        except (OSError, ValueError) as error:
            raise Missing(f"there is no result of `make soak-{name}` "
                          f"({error.__class__.__name__})") from None
        survived = result[f"{faults}_survived"]
        self.figures[f"soak_{faults}_survived"] = survived
        self.figures["soak_date"] = result["date"]
        log(f"soak      {survived} of {result[faults]} {faults} survived, on {result['date']}" +
            (f": {result['wrong']}" if result["wrong"] else ""))

    def finish(self, name):
        self.figures["minutes"] = (time.monotonic() - self.began) / 60
        finish(name, self.figures)


class Worker:
    """One peer in a process of its own, pinned to `cpus`."""

    def __init__(self, name, command, cpus, env=None, timeout=180):
        self.name = name
        self.passes = []
        full = {**os.environ, "OMP_NUM_THREADS": "1", **(env or {})}
        try:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True, env=full, preexec_fn=lambda: os.sched_setaffinity(0, cpus))
        except OSError as error:
            raise Missing(str(error)) from None
        self.info = self._answer()

    def begin(self):
        self.process.stdin.write("pass\n")
        self.process.stdin.flush()

    def end(self):
        return self._answer()

    def _answer(self):
        while True:
            line = self.process.stdout.readline()
            if not line:
                error = self.process.stderr.read().strip().splitlines()
                self.process.wait()
                raise Missing(error[-1][:200] if error else f"{self.name} ended without a word")
            if line.startswith("{"):
                return json.loads(line)

    def run(self):
        self.begin()
        result = self.end()
        self.passes.append(result)
        return result

    def close(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()

    def micros(self):
        """Median microseconds per sample."""
        return statistics.median(p["seconds"] / p["samples"] * 1e6 for p in self.passes)

    def spread(self):
        """(max - min) / median over the passes."""
        v = [p["seconds"] / p["samples"] for p in self.passes]
        return (max(v) - min(v)) / statistics.median(v)


def interleave(workers, passes, warmup=1):
    """Runs all workers in turn, `passes` times after `warmup` uncounted ones."""
    for n in range(warmup + passes):
        order = workers if n % 2 == 0 else workers[::-1]
        for worker in order:
            worker.run()
            if n < warmup:
                worker.passes.clear()
            if sys.stderr.isatty():
                print(f"\r  pass {n + 1}/{warmup + passes}  {worker.name:<28}", end="",
                      file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print("\r" + " " * 60 + "\r", end="", file=sys.stderr)


def run_together(workers):
    """One pass of all workers at once: samples a second of all of them."""
    for worker in workers:
        worker.begin()
    return sum(r["samples"] / r["seconds"] for r in [w.end() for w in workers])


def ratio(ours, theirs, key="seconds"):
    """Median over passes of theirs per sample over ours per sample: how many
    times our speed is theirs."""
    return statistics.median(
        (t[key] / t["samples"]) / (o[key] / o["samples"])
        for o, t in zip(ours.passes, theirs.passes))


def finish(name, figures):
    """The last line: every key of the contract is there; floats rounded."""
    rounded = {k: (round(v, 4) if isinstance(v, float) else v) for k, v in figures.items()}
    print(json.dumps({"bench": name, "figures": rounded}), flush=True)


def drop_caches():
    """Empties the page, dentry and inode caches; False where that is not allowed."""
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w") as f:
            f.write("3")
        return True
    except OSError:
        return False
