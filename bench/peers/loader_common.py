"""The worker side of bench/loader.py: one epoch of the same samples per pass,
with the CPU time of this process and all its children (the loader's workers)."""

import argparse
import json
import os
import sys
import time

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--samples", type=int, required=True)
    return parser.parse_args()


def family_cpu_seconds():
    """Returns user and system seconds of this process and its live children."""
    tick = os.sysconf("SC_CLK_TCK")
    me = str(os.getpid())
    total = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as f:
                fields = f.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if pid == me or fields[1] == me:
            total += int(fields[11]) + int(fields[12])
    return total / tick


def serve(name, version, loader):
    """Answers passes. Each iterates once over `loader` and drops the batches."""
    print(json.dumps({"name": name, "version": version}), flush=True)
    for line in sys.stdin:
        if line.strip() != "pass":
            break
        cpu, wall, samples = family_cpu_seconds(), time.perf_counter(), 0
        for images, labels in loader:
            samples += len(labels)
        wall, cpu = time.perf_counter() - wall, family_cpu_seconds() - cpu
        print(json.dumps({"seconds": wall, "cpu_seconds": cpu, "samples": samples}), flush=True)
