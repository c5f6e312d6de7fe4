"""make bench-memory: the cost of recording, and of analysing a long record.

Recording is compared with plain eager execution and with an empty dispatch mode of PyTorch, in one
process, in alternating rounds: the CPU time of an operator, and a step of a ResNet-18 on the CPU.
bench/memory_record.c writes the record of ten million events, and analyses it in another process.
"""

import argparse
import contextlib
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
from headrace.memory._observer import SETTING as OBSERVER  # noqa: E402

EVENTS = 10_000_000
ROUNDS = 15
LOOPS = 60  # operators in a round
BATCH, PIXELS = 8, 96


class Empty(TorchDispatchMode):
    """What every dispatch mode costs."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def operators():
    """Makes a mix of operators on small tensors: new outputs, in-place operators, views, lists."""
    torch.set_num_threads(1)  # operators with threads of their own would hide the cost
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
            count += 8  # operators, with the view
        return count

    return run


def resnet():
    """Makes a training step of ResNet-18 on the CPU."""
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


def contexts_of(path):
    """Returns the contexts of a round by name. "python": recorded by the dispatch mode."""
    recording = headrace.memory.Recording
    return {
        "plain": contextlib.nullcontext,
        "empty": Empty,
        "recorded": lambda: recording(path),
        "stacks": lambda: recording(path, stacks=True),
        "python": lambda: recording(path),
    }


def take_turns(run, folder, clock, names):
    """Returns the seconds of one unit of `run` in each round, by the names of contexts_of(),
    and the path of the last record."""
    times = {name: [] for name in names}
    path = os.path.join(folder, "turns.hrm")
    contexts = contexts_of(path)
    for number in range(ROUNDS + 1):
        for name in names if number % 2 else reversed(names):
            os.environ[OBSERVER] = "no" if name == "python" else ""
            mode = contexts[name]()
            with mode:
                run()  # the first run of each context is slower
                begin = clock()
                count = run()
                took = (clock() - begin) / count
            if isinstance(mode, headrace.memory.Recording):
                lost = mode.counts()[1]
                mode.close()
                if lost:
                    raise harness.Missing(f"{lost} events were lost")
            if number:
                times[name].append(took)
    return times, path


def differences(times, name, than):
    return [1e6 * (a - b) for a, b in zip(times[name], times[than])]


def measure_operators(folder, figures):
    names = ("plain", "empty", "recorded", "stacks", "python")
    times, path = take_turns(operators(), folder, time.process_time, names)
    log(f"operator  {1e6 * statistics.median(times['plain']):.2f} us plain, "
        f"{1e6 * statistics.median(times['empty']):.2f} us with the empty mode (CPU time)")
    for key, than in (("us_per_operator_over_plain", "plain"),
                      ("us_per_operator_over_empty_mode", "empty")):
        more = differences(times, "recorded", than)
        figures[key] = statistics.median(more)
        log(f"recorded  {statistics.median(more):+.2f} us an operator over {than} "
            f"({min(more):+.2f} to {max(more):+.2f})")
    for name, text, than in (("python", "recorded by the mode in Python, over plain", "plain"),
                             ("stacks", "with the calling lines, over recorded", "recorded")):
        more = differences(times, name, than)
        log(f"          {statistics.median(more):+.2f} us {text} "
            f"({min(more):+.2f} to {max(more):+.2f})")


def measure_step(folder, figures):
    times, path = take_turns(resnet(), folder, time.perf_counter, ("empty", "plain", "recorded"))
    for key, than in (("step_vs_empty_mode", "empty"), ("step_vs_plain", "plain")):
        ratios = [r / e for e, r in zip(times[than], times["recorded"])]
        figures[key] = statistics.median(ratios)
        log(f"step      {1e3 * statistics.median(times[than]):.1f} ms {than}, "
            f"x {statistics.median(ratios):.3f} recorded ({min(ratios):.3f} to {max(ratios):.3f})")
    run = headrace.memory.analyse(path)["run"]
    if run["facts"]["operators"] != "observer":
        log("          no observer of this PyTorch: recorded by the dispatch mode in Python")
    log(f"          {run['events']} events, {run['accesses']} accesses in two steps")


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
