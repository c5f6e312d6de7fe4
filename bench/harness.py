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
    """Describes the machine in one line."""
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
    """Returns a note about how busy the machine was at the start, which is not controlled."""
    load = os.getloadavg()[0]
    steal = 0
    with open("/proc/stat") as f:
        v = [int(x) for x in f.readline().split()[1:9]]
        steal = v[7] / max(sum(v), 1)
    return f"load average {load:.2f} at the start, {steal:.2%} of CPU time stolen since boot"


def busy_seconds():
    """Returns the CPU seconds since boot of all processes, and those that other machines took."""
    with open("/proc/stat") as f:
        user, nice, system, _, _, irq, softirq, steal = map(int, f.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


CACHE_FILES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data",
                           "cache-files")


def parser(name, description, parts, minutes, data=None, data_help=None):
    """Makes the options of a benchmark in parts. `data` and `data_help`: the default folder and
    its description, if they are not the files of tools/make_cache_files.py."""
    options = argparse.ArgumentParser(prog=f"bench/run {name}", description=description,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", default=data or os.environ.get("CACHE_FILES") or CACHE_FILES,
                         help=data_help or "a folder of tools/make_cache_files.py")
    options.add_argument("--minutes", type=float, default=minutes,
                         help="leave out parts that would take longer (%(default)s)")
    options.add_argument("--only", choices=list(parts), nargs="+")
    return options


def need_cache_files(args):
    if not os.path.isdir(args.data):
        sys.exit(f"{args.data}: no such folder; make it with tools/make_cache_files.py, or name "
                 "one with --data")


def choose_jpegs(folder, count, remedy):
    """Returns `count` JPEG files of an image folder, the same ones every time; all if it has
    fewer."""
    paths = sorted(os.path.join(d, f) for d, _, names in os.walk(folder) for f in names
                   if f.lower().endswith((".jpg", ".jpeg")))
    if not paths:
        sys.exit(f"{folder}: no JPEG files; {remedy}")
    random.Random(0).shuffle(paths)
    return sorted(paths[:count])


def write_list(folder, name, paths):
    """Writes paths to a file, one a line, as workers read them. Returns the file's path."""
    listing = os.path.join(folder, name)
    with open(listing, "w") as f:
        f.write("\n".join(paths) + "\n")
    return listing


class Missing(Exception):
    """A peer that cannot be measured here; str() is the reason."""


def choose_core():
    """Returns the core that every worker of a benchmark shares, and prints it with the machine."""
    core = max(os.sched_getaffinity(0))
    log(f"machine   {machine()}")
    log(f"          {busy_note()}; every worker is pinned to core {core}")
    return core


class Parts:
    """A benchmark that consists of parts: their results, and the time that is left."""

    def __init__(self, args):
        self.args = args
        self.figures = {}
        self.began = time.monotonic()

    def left(self):
        """Returns the seconds until the run should end."""
        return self.args.minutes * 60 - (time.monotonic() - self.began)

    def refuse(self, keys, reason):
        """Records why figures could not be measured."""
        for key in keys:
            self.figures[key], self.figures[key + "_reason"] = None, str(reason)
        log(f"left out  {', '.join(keys) or 'a part without figures'}: {reason}")

    def run(self, parts, reasons, before=None):
        """Runs the parts that --only names, or all. parts: {name: (function, its figures,
        seconds that it takes)}. A part that raises one of `reasons`, or for which time does not
        suffice, is left out. Calls `before` with the name of each part first."""
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
        """Reads the results of the last `make soak-NAME`. `faults`: what it counts."""
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
    """A peer in a process of its own, pinned to `cpus`."""

    def __init__(self, name, command, cpus, env=None, timeout=180):
        self.name = name
        self.command = command
        self.cpus = cpus
        self.env = {**os.environ, "OMP_NUM_THREADS": "1", **(env or {})}
        self.passes = []
        self.start()

    def start(self):
        """Starts the process, or another one in place of the one that was closed."""
        try:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True, env=self.env,
                preexec_fn=lambda: os.sched_setaffinity(0, self.cpus))
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
                raise Missing(error[-1][:200] if error else f"{self.name} ended without an answer")
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
        """Returns the median microseconds per sample."""
        return statistics.median(p["seconds"] / p["samples"] * 1e6 for p in self.passes)

    def spread(self):
        """Returns (max - min) / median over the passes."""
        v = [p["seconds"] / p["samples"] for p in self.passes]
        return (max(v) - min(v)) / statistics.median(v)


def interleave(workers, passes, warmup=1, processes=1):
    """Runs all workers in turn, `passes` times, after `warmup` passes that do not count; all that
    in `processes` processes of each, one after the other."""
    for k in range(processes):
        if k:
            restart(workers, k)
        for n in range(warmup + passes):
            order = workers if n % 2 == 0 else workers[::-1]
            for worker in order:
                worker.run()
                if n < warmup:
                    worker.passes.pop()
                if sys.stderr.isatty():
                    print(f"\r  process {k + 1}/{processes}, pass {n + 1}/{warmup + passes}  "
                          f"{worker.name:<28}", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print("\r" + " " * 70 + "\r", end="", file=sys.stderr)


def restart(workers, seed):
    """Starts a new process of each worker. Where its memory lies is a matter of chance, and may make
    it slower or faster by some percent. All end before the first starts, and the order changes, so
    that none gets the pages of the one before it."""
    for worker in workers:
        worker.close()
    for worker in random.Random(seed).sample(workers, len(workers)):
        worker.start()


def run_together(workers):
    """Runs a pass of all workers at once. Returns the samples per second of all of them."""
    for worker in workers:
        worker.begin()
    return sum(r["samples"] / r["seconds"] for r in [w.end() for w in workers])


def ratio(ours, theirs, key="seconds"):
    """Returns how many times as fast as `theirs` `ours` is: the median over the passes of the
    ratio of the time per sample."""
    return statistics.median(
        (t[key] / t["samples"]) / (o[key] / o["samples"])
        for o, t in zip(ours.passes, theirs.passes))


def _rounded(value):
    """Rounds to four decimals, or to four digits where those would be zeros."""
    return round(value, 4) if abs(value) >= 0.001 else float(f"{value:.4g}")


def finish(name, figures):
    """Prints the last line: all figures, with floats rounded."""
    rounded = {k: (_rounded(v) if isinstance(v, float) else v) for k, v in figures.items()}
    print(json.dumps({"bench": name, "figures": rounded}), flush=True)


def drop_caches():
    """Empties the page, dentry and inode caches. Returns False if that is not allowed."""
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w") as f:
            f.write("3")
        return True
    except OSError:
        return False
