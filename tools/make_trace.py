#!/usr/bin/env python3
"""Writes a trace as Kineto does, as large as it is asked to be, to try the reader of headrace replay:

    tools/make_trace.py /tmp/trace.json --size 3GB
    headrace replay /tmp/trace.json

Steps of a training on one device: operators and launches of the forward pass on the main thread, of the
backward pass on autograd's, kernels on a stream, flows, an optimizer, and a synchronisation. Times come
from a seed, so the same arguments write the same bytes. The file is written as it is made.
"""

import argparse
import os
import random

LAYERS = 200
UNITS = {"KB": 1e3, "MB": 1e6, "GB": 1e9}
HEAD = """{
  "schemaVersion": 1,
  "deviceProperties": [{"id": 0, "name": "made by make_trace.py", "totalGlobalMem": 34079637504}],
  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1, "pg_count": 1, "pg_config":
    [{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": 1, "ranks": [0]}]},
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1712195494000000000,
  "traceEvents": [
"""
MAIN, AUTOGRAD, STREAM = 1102, 1262, 7


class Steps:
    """Makes the text of one step after another. Times are microseconds."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.correlation, self.sequence, self.number = 100, 1000, 0
        self.at, self.stream_end = 1_000_000.0, 0.0
        self.text = []

    def slice(self, category, name, thread, begin, length, arguments):
        self.text.append(
            f'  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": {MAIN}, "tid": {thread},\n'
            f'    "ts": {begin:.3f}, "dur": {length:.3f},\n    "args": {{\n      {arguments}\n    }}\n  }},\n')

    def flow(self, phase, category, number, process, thread, at):
        end = ', "bp": "e"' if phase == "f" else ""
        self.text.append(f'  {{\n    "ph": "{phase}", "id": {number}, "pid": {process}, "tid": {thread}, "ts": {at:.3f},\n'
                         f'    "cat": "{category}", "name": "{category}"{end}\n  }},\n')

    def launch(self, thread, at, kernel, length_us):
        """A call that launches a kernel. Returns its length."""
        call, number = self.random.uniform(4, 7), self.correlation
        self.correlation += 1
        begin = max(at + 6, self.stream_end + 1.5)
        self.stream_end = begin + length_us
        self.slice("cuda_runtime", "cudaLaunchKernel", thread, at, call,
                   f'"External id": {number}, "cbid": 211, "correlation": {number}')
        self.flow("s", "ac2g", number, MAIN, thread, at)
        self.text.append(
            f'  {{\n    "ph": "X", "cat": "kernel", "name": "{kernel}", "pid": 0, "tid": {STREAM},\n'
            f'    "ts": {begin:.3f}, "dur": {length_us:.3f},\n    "args": {{\n      "External id": {number}, "queued": 0, '
            f'"device": 0, "context": 1, "stream": {STREAM}, "correlation": {number}, "registers per thread": 122, '
            f'"shared memory": 16896, "blocks per SM": 1.6, "warps per SM": 12.8, "grid": [8, 16, 1], '
            f'"block": [256, 1, 1], "est. achieved occupancy %": 20\n    }}\n  }},\n')
        self.flow("f", "ac2g", number, 0, STREAM, begin)
        return call

    def forward(self, layer):
        begin, sequence = self.at, self.sequence + layer
        shapes = '"Input Dims": [[64, 1024], [1024, 1024], [1024]], "Input type": ["float", "float", "float"]'
        call = self.launch(MAIN, begin + 8, "ampere_sgemm_128x64_tn", self.random.uniform(20, 60))
        self.slice("cpu_op", "aten::linear", MAIN, begin, 14 + call, f'"External id": {sequence}, {shapes}')
        self.slice("cpu_op", "aten::addmm", MAIN, begin + 3, 9 + call,
                   f'"External id": {sequence}, "Sequence number": {sequence}, "Fwd thread id": 0, {shapes}')
        self.flow("s", "fwdbwd", sequence, MAIN, MAIN, begin + 3)
        self.at = begin + 18 + call

    def backward(self, layer):
        begin, sequence = self.at, self.sequence + layer
        call = self.launch(AUTOGRAD, begin + 9, "ampere_sgemm_64x64_nt", self.random.uniform(30, 90))
        link = f'"External id": {sequence}, "Sequence number": {sequence}, "Fwd thread id": 1'
        self.slice("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", AUTOGRAD, begin, 15 + call, link)
        self.slice("cpu_op", "AddmmBackward0", AUTOGRAD, begin + 2, 11 + call, link)
        self.slice("cpu_op", "aten::mm", AUTOGRAD, begin + 5, 7 + call, f'"External id": {sequence}')
        self.flow("f", "fwdbwd", sequence, MAIN, AUTOGRAD, begin + 2)
        self.at = begin + 16 + call
        self.slice("cpu_op", "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", AUTOGRAD, self.at, 8,
                   f'"External id": {sequence}')
        self.slice("cpu_op", "torch::autograd::AccumulateGrad", AUTOGRAD, self.at + 2, 4,
                   f'"External id": {sequence}, "Input Dims": [[1024, 1024]], "Input type": ["float"]')
        self.at += 9

    def step(self):
        """Returns the text of the next step."""
        self.text.clear()
        begin = self.at
        self.at += 20
        for layer in range(LAYERS):
            self.forward(layer)
        self.at += 15  # autograd's thread wakes
        for layer in reversed(range(LAYERS)):
            self.backward(layer)
        self.at += 15
        call = self.launch(MAIN, self.at + 5, "multi_tensor_apply_kernel", 200)
        self.slice("user_annotation", "Optimizer.step#AdamW.step", MAIN, self.at, 10 + call, '"External id": 1')
        self.at += 15 + call
        end = max(self.at + 5, self.stream_end + 2)
        self.slice("cuda_runtime", "cudaDeviceSynchronize", MAIN, self.at, end - self.at,
                   f'"cbid": 165, "correlation": {self.correlation}')
        self.slice("cuda_sync", "Context Sync", -1, self.at + 1, end - self.at - 2,
                   f'"cuda_sync_kind": "Context Sync", "stream": -1, "correlation": {self.correlation}, "device": 0')
        self.correlation += 1
        self.at = end + 10
        self.slice("user_annotation", f"ProfilerStep#{self.number}", MAIN, begin, self.at - begin, '"External id": 2')
        self.sequence += LAYERS
        self.number += 1
        return "".join(self.text)


def write(path, size, seed):
    steps = Steps(seed)
    with open(path, "w", encoding="utf-8") as file:
        file.write(HEAD)
        while file.tell() < size:
            file.write(steps.step())
        file.write('  {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 0}\n]}\n')
    return steps.number


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file")
    parser.add_argument("--size", default="300MB", help="at least; 300MB, 3GB")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.size[-2:] not in UNITS:
        parser.error(f"--size {args.size}: it must be a size, as 300MB or 3GB")
    count = write(args.file, float(args.size[:-2]) * UNITS[args.size[-2:]], args.seed)
    print(f"{args.file}: {count} steps, {os.path.getsize(args.file):,} bytes")


if __name__ == "__main__":
    main()
