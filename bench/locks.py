"""make bench-locks: the cost of the locks that threads take to claim, finish and count samples,
and how many cores that allows.

Reading and preparing cost nothing in these runs, so threads claim far more often than in training.
The first table has the samples per second with 1 to 128 threads. With more threads than this
machine has cores, it shows what waiting threads cost, not what more cores would give; a model
answers that. Its input, measured with one thread: how often a sample takes each lock, and how long
the lock is held. A hold takes longer if another core had the lock before, because cache lines move
between the cores; this is measured as a number of lines, and the time of one move (a handover).
Cores that prepare --rate samples per second are customers of these locks (mean value analysis of a
closed queueing network). A handover takes longer on larger machines, so the model is solved for
the time measured here and for --across, between sockets. Lines can be counted only if threads
really run side by side; on one core, or on a busy machine, --lines is assumed, and the output
says so.

Options: --seconds S per run, --rate R, --across NS, --lines N, --only measured|model|counters.
"""

import argparse
import json
import os
import statistics
import subprocess

import harness
from harness import log

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORKER = os.path.join(os.environ.get("BUILD", os.path.join(ROOT, "build")), "bench", "bench_locks")
PATHS = {
    "files": "workers read files",
    "fill": "and fill a cache",
    "cache": "samples in the cache",
    "agent": "a crew, 8 queues",
}
THREADS = [1, 2, 4, 8, 16, 32, 64, 128]
CORES = [2, 4, 8, 16, 32, 64, 128]
# With fewer holds that follow one on another core, their time is not reliable.
MOVED_LEAST = 1000
# Locks with fewer claims per sample are left out.
CLAIMS_LEAST = 0.05
# Taking and leaving a lock for reading that no other core has.
READER_NS = 20.0


def run(*args):
    result = subprocess.run([WORKER, *map(str, args)], check=True, stdout=subprocess.PIPE,
                            text=True)
    return json.loads(result.stdout)


def throughput(stations, customers, think_s):
    """Returns the customers served per second, by exact mean value analysis. A customer thinks,
    then needs `demand` seconds at each of the stations (demand, count), one after the other."""
    queue = [0.0] * len(stations)
    rate = 0.0
    for n in range(1, customers + 1):
        stay = [demand * (1 + q) for (demand, _), q in zip(stations, queue)]
        whole = think_s + sum(s * count for s, (_, count) in zip(stay, stations))
        rate = n / whole
        queue = [rate * s for s in stay]
    return rate


def lines_moved(lock, handover_ns, assumed):
    """Returns how many cache lines a hold needs from the core that held the lock before: the
    lock's own, and those that make the hold longer than with one thread."""
    if lock["moved"] < MOVED_LEAST:
        return assumed
    return 1 + max(0.0, lock["moved_hold_ns"] - lock["hold_ns"]) / handover_ns


def stations_of(locks, moved_ns):
    """Returns (demand in seconds per sample, number of such locks) for each class of locks, if
    every hold follows one on another core."""
    return [(lock["claims"] / lock["locks"] * 1e-9 * (lock["hold_ns"] + lock["lines"] * moved_ns),
             lock["locks"]) for lock in locks]


def measured(args, figures):
    log("\nsamples/s with nothing but claims, holds and counters "
        f"({len(os.sched_getaffinity(0))} cores: more threads than that are oversubscribed)")
    log(f"  {'threads':>22} " + " ".join(f"{t:>9}" for t in THREADS))
    for path, words in PATHS.items():
        if path == "fill":
            continue
        rates = [run(path, t, args.seconds, 0)["samples_per_s"] for t in THREADS]
        log(f"  {words:>22} " + " ".join(f"{r:>9,.0f}" for r in rates))
        for t, r in zip(THREADS, rates):
            figures[f"{path}_{t}_threads"] = r


def busiest_locks(path, args, handover_ns):
    """Measures the locks that samples of a path take. Each time is the least of several runs,
    because other programs only make holds longer. Three threads make locks move from core to
    core."""
    alone, together = ([{lock["name"]: lock for lock in r["locks"]} | {"readers": r["readers"]}
                        for r in (run(path, threads, args.seconds, 1) for _ in range(3))]
                       for threads in (1, 3))
    found = []
    for name, lock in alone[0].items():
        if name in ("other", "readers") or lock["claims"] < CLAIMS_LEAST:
            continue
        moved = [r[name] for r in together if name in r]
        found.append({"name": name, "locks": lock["locks"], "claims": lock["claims"],
                      "hold_ns": min(r[name]["hold_ns"] for r in alone if name in r),
                      "moved": min((m["moved"] for m in moved), default=0),
                      "moved_hold_ns": min((m["moved_hold_ns"] for m in moved), default=0)})
        found[-1]["lines"] = lines_moved(found[-1], handover_ns, args.lines)
    if alone[0]["readers"] > CLAIMS_LEAST:
        # Held side by side, so only the lock's own line moves, when it is taken and released.
        found.append({"name": "readers", "locks": 1, "claims": alone[0]["readers"],
                      "hold_ns": READER_NS, "moved": MOVED_LEAST, "lines": 2})
    return found


def model(args, figures):
    handover_ns = run("handover")["handover_ns"] or 100.0
    figures["handover_ns"] = handover_ns
    log(f"\na cache line moves from one core to another in {handover_ns:.0f} ns here")
    log(f"model: cores that prepare {args.rate:,.0f} samples/s each; samples/s in all, and the use "
        "of the busiest lock")
    for path, words in PATHS.items():
        locks = busiest_locks(path, args, handover_ns)
        log(f"\n  {words}: " + "; ".join(
            f"{k['name']}{' x %d' % k['locks'] if k['locks'] > 1 else ''} {k['claims']:.2f} claims "
            f"of {k['hold_ns']:.0f} ns and {k['lines']:.1f} lines"
            f"{' (assumed)' if k['moved'] < MOVED_LEAST else ''}" for k in locks))
        for lock in locks:
            figures[f"{path}_{lock['name']}_claims"] = lock["claims"]
            figures[f"{path}_{lock['name']}_hold_ns"] = lock["hold_ns"]
            figures[f"{path}_{lock['name']}_lines"] = lock["lines"]
        for suffix, moved_ns in (("", handover_ns), ("_across", args.across)):
            stations = stations_of(locks, moved_ns)
            busiest = max(demand for demand, _ in stations)
            rates = {n: throughput(stations, n, 1 / args.rate) for n in CORES}
            figures[f"{path}_limit{suffix}"] = 1 / busiest
            figures[f"{path}_of_demand_128{suffix}"] = rates[128] / (128 * args.rate)
            log(f"    handover {moved_ns:>4.0f} ns: limit {1 / busiest:>10,.0f}/s;  " + "  ".join(
                f"{n}: {rates[n]:,.0f} ({rates[n] * busiest:.0%})" for n in CORES))


def counters(args, figures):
    log("\ncounting one sample, CPU time of a thread in ns: one set of counters, and one per core")
    for threads in (1, 2, 8, 32):
        found = run("counters", threads)
        figures[f"count_shared_ns_{threads}"] = found["shared_ns"]
        figures[f"count_sets_ns_{threads}"] = found["sets_ns"]
        log(f"  {threads:>3} threads {found['shared_ns']:>7.1f} {found['sets_ns']:>7.1f}")


def main():
    parser = argparse.ArgumentParser(prog="bench/run locks", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"measured": measured, "model": model, "counters": counters}
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rate", type=float, default=2500.0, help="samples/s of a core")
    parser.add_argument("--across", type=float, default=300.0,
                        help="ns that a line of memory takes between sockets")
    parser.add_argument("--lines", type=float, default=4.0,
                        help="lines of memory of a hold, where they cannot be counted")
    parser.add_argument("--only", choices=list(parts))
    args = parser.parse_args()
    figures = {}
    log(f"machine   {harness.machine()}")
    log(f"          {harness.busy_note()}")
    for name, part in parts.items():
        if args.only in (None, name):
            part(args, figures)
    harness.finish("locks", figures)


if __name__ == "__main__":
    main()
