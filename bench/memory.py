"""make bench-memory: what recording costs, and what analysing a long record costs.

Recording is compared with PyTorch's own empty dispatch mode, in one process, in rounds that
take turns: an operator's CPU time, and the step of a ResNet-18 on the CPU. The record of ten
million events is made by bench/memory_record.c, and analysed by it in a process of its own.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import harness
from harness import log

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tools"))

import torch  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import headrace.memory  # noqa: E402

EVENTS = 10_000_000
ROUNDS = 15
LOOPS = 60  # of the operators in a round
BATCH, PIXELS = 8, 96


class Empty(TorchDispatchMode):
    """What every dispatch mode costs."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def operators():
    """A mix of operators on small tensors: new outputs, in-place ones, views, lists."""
    torch.set_num_threads(1)  # their own threads would hide what is measured
    a, b = torch.ones(64, 64), torch.ones(64, 64)

    def run():
        count = 0
        for _ in range(LOOPS):
            c = a + b
            c.mul_(0.5)
            d = torch.mm(a, c)
            e = torch.relu(d.t())
            f = torch.cat([c, e])
            f.sum()
            torch.add(a, b, out=c)
            count += 8  # of operators, the view among them
        return count

    return run


def resnet():
    """A training step of ResNet-18 on the CPU."""
    import torchvision_shim

    torchvision_shim.prepare()
    from torchvision.models import resnet18

    torch.set_num_threads(os.cpu_count())
    torch.manual_seed(0)
    model = resnet18(num_classes=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_of = torch.nn.CrossEntropyLoss()
    x, y = torch.randn(BATCH, 3, PIXELS, PIXELS), torch.randint(0, 10, (BATCH,))

    def run():
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()
        return 1

    return run


def take_turns(run, folder, rounds, clock, stacks=False):
    """Seconds of one unit of `run` in each round: under the empty mode, recorded, and with
    stacks; and where the last record is."""
    times = {"empty": [], "recorded": [], **({"stacks": []} if stacks else {})}
    path = os.path.join(folder, "turns.hrm")
    for number in range(rounds + 1):
        for name in list(times) if number % 2 else reversed(times):
            mode = (Empty() if name == "empty"
                    else headrace.memory.Recording(path, stacks=name == "stacks"))
            with mode:
                run()  # what is new is met
                begin = clock()
                count = run()
                took = (clock() - begin) / count
            if name != "empty":
                counts = mode.counts()
                mode.close()
            if number:
                times[name].append(took)
    if counts[1]:
        raise harness.Missing(f"{counts[1]} events were lost")
    return times, path


def measure_operators(folder, figures):
    times, _ = take_turns(operators(), folder, ROUNDS, time.process_time, stacks=True)
    more = [1e6 * (r - e) for e, r in zip(times["empty"], times["recorded"])]
    figures["us_per_operator_over_empty_mode"] = statistics.median(more)
    log(f"operator  {1e6 * statistics.median(times['empty']):.2f} us with the empty mode, "
        f"{statistics.median(more):+.2f} us recorded ({min(more):+.2f} to {max(more):+.2f})")
    lines = [1e6 * (s - r) for s, r in zip(times["stacks"], times["recorded"])]
    log(f"stacks    {statistics.median(lines):+.2f} us an operator more, with the lines that "
        f"called it ({min(lines):+.2f} to {max(lines):+.2f})")


def measure_step(folder, figures):
    times, path = take_turns(resnet(), folder, ROUNDS, time.perf_counter)
    ratios = [r / e for e, r in zip(times["empty"], times["recorded"])]
    figures["step_vs_empty_mode"] = statistics.median(ratios)
    run = headrace.memory.analyse(path)["run"]
    log(f"step      {1e3 * statistics.median(times['empty']):.1f} ms with the empty mode, "
        f"x {statistics.median(ratios):.3f} recorded ({min(ratios):.3f} to {max(ratios):.3f}); "
        f"{run['events']} events, {run['accesses']} accesses in two steps")


def run_record(*arguments):
    done = subprocess.run([os.path.join(os.environ["BUILD"], "bench", "memory_record"), *arguments],
                          stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def measure_analysis(folder, figures):
    path = os.path.join(folder, "long.hrm")
    made = run_record("make", path, str(EVENTS))
    figures["bytes_per_access"] = made["bytes"] / made["events"]
    log(f"record    {made['events']:,} events, {made['bytes'] / made['events']:.1f} bytes each, "
        f"{1e9 * made['seconds'] / made['events']:.0f} ns to write one from C")
    passes = [run_record("analyse", path) for _ in range(3)]
    figures["analyse_10m_s"] = statistics.median(p["seconds"] for p in passes)
    figures["analyse_10m_rss_gib"] = max(p["peak_kib"] for p in passes) / (1 << 20)
    log(f"analysis  {figures['analyse_10m_s']:.2f} s, {figures['analyse_10m_rss_gib']:.3f} GiB, "
        f"{passes[0]['json_bytes'] / 1e6:.1f} MB of JSON")


PARTS = {"operators": measure_operators, "step": measure_step, "analysis": measure_analysis}


def main():
    options = argparse.ArgumentParser(prog="bench/run memory", description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", choices=list(PARTS), nargs="+")
    args = options.parse_args()
    log(f"machine   {harness.machine()}")
    log(f"          {harness.busy_note()}")
    log(f"          torch {torch.__version__}, {torch.get_num_threads()} threads")
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in args.only or PARTS:
            PARTS[name](folder, figures)
    harness.finish("memory", figures)


if __name__ == "__main__":
    main()
