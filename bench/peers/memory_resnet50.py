"""Trains a ResNet-50 on random images while its memory use is recorded, and prints PyTorch's own
counts as one line of JSON. For tools/gpu-check."""

import argparse
import json
import os
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import torch  # noqa: E402
from stalls_resnet50 import make_step  # noqa: E402

import headrace.memory  # noqa: E402

CLASSES = 1000
WARM = 3  # steps that do not count


def timed(step, batch, steps, synchronize):
    """Milliseconds of each step after the first ones."""
    took = []
    for _ in range(WARM + steps):
        begin = time.perf_counter()
        step(*batch)
        synchronize()
        took.append(1000 * (time.perf_counter() - begin))
    return took[WARM:]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tap", action="store_true",
                        help="headrace's CUDA allocator, of which PyTorch keeps no count")
    args = parser.parse_args()
    device = torch.device(args.device)
    is_cuda = device.type == "cuda"
    synchronize = torch.cuda.synchronize if is_cuda else lambda: None
    torch.manual_seed(0)
    is_counted = is_cuda and not args.tap
    if is_cuda and args.tap:
        torch.cuda.memory.change_current_allocator(headrace.memory.cuda_allocator())
    if is_cuda:
        torch.cuda.init()
    if is_counted:
        torch.cuda.reset_peak_memory_stats()
    with headrace.memory.record(args.out, batch_size=args.batch_size):
        step = make_step(device, CLASSES)
        batch = (torch.randn(args.batch_size, 3, args.size, args.size),
                 torch.randint(CLASSES, (args.batch_size,)))
        recorded = timed(step, batch, args.steps, synchronize)
        peak = torch.cuda.max_memory_allocated() if is_counted else None
    plain = timed(step, batch, args.steps, synchronize)
    print(json.dumps({"max_memory_allocated": peak, "recorded_ms": statistics.median(recorded),
                      "plain_ms": statistics.median(plain),
                      "record_bytes": os.path.getsize(args.out)}))


if __name__ == "__main__":
    main()
