"""make bench-replay: do the predictions of `headrace replay` come true?

traces: the replay without a change, on the traces in $HEADRACE_SHARED_DATA/kineto or
../shared/data/kineto. reading: a trace of a million events, made of one of them. recording: the time
of a step with and without the profiler. changes: a trace of real training on one core, the prediction
of a change, and the change really made. Rounds of steps before and after the change alternate, and the ratio
of their medians is compared with the predicted ratio, because the profiler itself makes each step longer.
The prediction is the median over the steps of three traces, each replayed alone, because other work of the
machine makes some of them longer; the traces are recorded between the rounds, because its speed drifts. ranks: the same with several ranks on limited links
(bench/replay_ranks.py). pipelines: the parts of bench/pipelines.py that compare plans with vTrain's
measured times, and 1F1B and 2BW with their predicted steps, which count as changes.
"""

import argparse
import ctypes
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import harness
import pipelines
import replay_ranks
from harness import log

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("HEADRACE_SHARED_DATA", ROOT.parent / "shared" / "data"))
WIDTH, BATCH = 512, 256
# In a longer wait other programs of the host take the caches: after 20 ms a step takes up to 1.5 ms more.
WAIT_S = 0.005
ROUNDS, STEPS, TRACES, TRACED = 40, 4, 3, 12
PARTS = ("traces", "reading", "recording", "changes", "ranks", "pipelines")

# ---- the reader and the identity ----


def traces():
    """The largest error of the identity, and of its median begin, over all traces."""
    from headrace.replay import Replay

    found = [(path.name, Replay(path).summary) for path in sorted((SHARED / "kineto").glob("*.json.gz"))]
    for name, summary in found:
        log(f"{name}: identity error {summary['error']:.5f}, begins {summary['start_median']:.5f}, "
            f"with usual latencies {summary['usual_error']:.5f}")
    if not found:
        log("there are no published traces here: skipped")
        return None, None
    return (max(abs(one["error"]) for _, one in found), max(one["start_median"] for _, one in found))


READ = """
import sys, time
from headrace.replay import Replay
began = time.process_time()
try:
    Replay(sys.argv[1], window="no such annotation")
except ValueError:
    spent = time.process_time() - began
    status = open("/proc/self/status").read()
    print(spent, status.split("VmHWM:")[1].split()[0])
"""


def reading():
    """Events a second of CPU time, and peak memory over the file's size. Includes sorting them."""
    source = SHARED / "kineto" / "ddp_ns_rank0.json.gz"
    if not source.exists():
        log("there is no trace to read here: skipped")
        return None, None
    with gzip.open(source, "rt") as file:
        events = json.load(file)["traceEvents"]
    copies = 1 + 1_000_000 // len(events)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        body = ",\n".join(json.dumps(event) for event in events)
        with open(path, "w", encoding="utf-8") as file:
            file.write('{"traceEvents": [' + ",\n".join([body] * copies) + "]}")
        runs = [subprocess.run([sys.executable, "-c", READ, path], check=True, capture_output=True, text=True)
                for _ in range(3)]
        size = os.path.getsize(path)
    spent, kilobytes = map(statistics.median, zip(*(map(float, run.stdout.split()) for run in runs), strict=True))
    rate, memory = copies * len(events) / spent, 1024 * kilobytes
    log(f"read {copies * len(events):,} events, {size / 1e6:.0f} MB: {rate:,.0f} events/s of CPU time, "
        f"peak {memory / 1e6:.0f} MB with Python")
    return rate, memory / size


# ---- changes, predicted and made ----


def networks(torch):
    """The modules of the two networks, in order."""

    class Slow(torch.nn.Module):
        def __init__(self, times):
            super().__init__()
            self.times = times
            self.weight = torch.nn.Parameter(torch.eye(WIDTH))

        def forward(self, x):
            for _ in range(self.times):
                x = x @ self.weight
            return x

    def dense(times):
        names = ("first", "act", "slow", "second", "third", "last")
        made = [torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), Slow(times), torch.nn.Linear(WIDTH, WIDTH),
                torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, 10)]
        return dict(zip(names, made, strict=True)), torch.randn(BATCH, WIDTH)

    def images(_):
        names = ("conv1", "norm", "act", "conv2", "pool", "last")
        made = [torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(),
                torch.nn.Conv2d(16, 16, 3, padding=1), torch.nn.AdaptiveAvgPool2d(1),
                torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 10))]
        return dict(zip(names, made, strict=True)), torch.randn(16, 3, 64, 64)

    return {"dense": dense, "images": images}


class Batches:
    """A dataset that makes the same batch again and again, and takes its time."""

    def __init__(self, batch, wait_s):
        self.batch, self.wait_s = batch, wait_s

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        time.sleep(self.wait_s)
        return self.batch


class Training:
    """A training that steps on request. without: names of modules to leave out."""

    def __init__(self, net="dense", times=1, without=(), wait_s=0.0, optimizer="SGD", steps=True,
                 halves=False, **options):
        import torch

        self.torch, self.steps, self.halves = torch, steps, halves
        torch.manual_seed(0)
        modules, batch = networks(torch)[net](times)
        self.modules = {name: module for name, module in modules.items() if name not in without}
        parameters = [p for module in self.modules.values() for p in module.parameters()]
        make = getattr(torch.optim, optimizer)
        self.optimizer = make(parameters, lr=1e-4, foreach=False, **options)
        loader = torch.utils.data.DataLoader(Batches(batch, wait_s), batch_size=None, shuffle=False)
        self.batches = iter(loader)

    def step(self):
        x = next(self.batches)
        with self.torch.autocast("cpu", self.torch.bfloat16, enabled=self.halves):
            for name, module in self.modules.items():
                with self.torch.profiler.record_function(name):
                    x = module(x)
        loss = x.square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        if self.steps:
            self.optimizer.step()

    def trace(self, path):
        profiler = self.torch.profiler
        schedule = profiler.schedule(wait=0, warmup=3, active=TRACED, repeat=1)
        with profiler.profile(schedule=schedule, on_trace_ready=lambda p: p.export_chrome_trace(path)) as running:
            for _ in range(3 + TRACED):
                self.step()
                running.step()


def recording():
    """Prints the time of a step with and without the profiler."""
    import torch

    torch.set_num_threads(1)
    training, ends = Training(optimizer="AdamW"), []

    def step():
        training.step()
        ends.append(time.perf_counter())

    for _ in range(ROUNDS):
        step()
    alone = statistics.median(b - a for a, b in zip(ends[5:], ends[6:], strict=False))
    ends.clear()
    schedule = torch.profiler.schedule(wait=0, warmup=3, active=ROUNDS, repeat=1)
    with torch.profiler.profile(schedule=schedule, record_shapes=True) as running:
        for _ in range(3 + ROUNDS):
            step()
            running.step()
    recorded = statistics.median(b - a for a, b in zip(ends[5:], ends[6:], strict=False))
    log(f"a step takes {1000 * alone:.2f} ms, {1000 * recorded:.2f} ms while it is recorded with shapes")


CASES = (
    # name, what-ifs, before, after
    ("a layer removed", ["remove:^third$"], {}, {"without": ("third",)}),
    ("two layers removed", ["remove:^(second|third)$"], {}, {"without": ("second", "third")}),
    ("an activation removed", ["remove:^act$"], {}, {"without": ("act",)}),
    ("a convolution removed", ["remove:^conv2$"], {"net": "images"}, {"without": ("conv2",)}),
    ("a normalization removed", ["remove:^norm$"], {"net": "images"}, {"without": ("norm",)}),
    ("an operator three times as slow", ["layer:^slow$ x3"], {}, {"times": 3}),
    ("an operator twice as fast", ["layer:^slow$ x0.5"], {"times": 4}, {"times": 2}),
    ("no waiting for data", ["data-ready"], {"wait_s": WAIT_S}, {"wait_s": 0.0}),
    ("no waiting for images", ["data-ready"], {"net": "images", "wait_s": WAIT_S}, {"wait_s": 0.0}),
    ("no waiting, and a layer removed", ["data-ready", "remove:^third$"], {"wait_s": WAIT_S},
     {"wait_s": 0.0, "without": ("third",)}),
    ("no steps of AdamW", ["remove:Optimizer.step"], {"optimizer": "AdamW"}, {"steps": False}),
    ("SGD with fused=True", ["fused-optimizer"], {"momentum": 0.9}, {"fused": True}),
    ("AdamW with fused=True", ["fused-optimizer"], {"optimizer": "AdamW"}, {"fused": True}),
    ("bfloat16 autocast", ["layer:^first$ x{first}", "layer:^(second|third)$ x{later}"], {"without": ("act", "slow")},
     {"halves": True}),
)


def compare(before, after, what_ifs):
    """The ratios of the times of a step, predicted and measured. Rounds of steps alternate. The first step of a round
    finds the other training's data in the caches, and does not count."""
    times, predicted = ([], []), []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        for _ in range(TRACES):
            before.trace(path)
            predicted += replay_ranks.predicted_ratios(path, what_ifs, TRACED)
            for i in range(1 + ROUNDS // STEPS):
                for training, kept in zip((before, after), times, strict=True):
                    for k in range(1 + STEPS):
                        began = time.perf_counter()
                        training.step()
                        if i and k:
                            kept.append(time.perf_counter() - began)
    return statistics.median(predicted), statistics.median(times[1]) / statistics.median(times[0])


def factor_of_halves(torch, is_first):
    """The factor of the time of a layer alone in bfloat16, forward and backward, with its casts. The first one casts
    its input, too, and needs no gradient for it."""
    layer = torch.nn.Linear(WIDTH, WIDTH)
    whole = torch.randn(BATCH, WIDTH)
    times = ([], [])
    for _ in range(5 + ROUNDS):
        for halves, kept in zip((False, True), times, strict=True):
            x = whole if is_first else whole.to(torch.bfloat16 if halves else torch.float32, copy=True).requires_grad_()
            began = time.perf_counter()
            with torch.autocast("cpu", torch.bfloat16, enabled=halves):
                y = layer(x)
            y.backward(y)
            kept.append(time.perf_counter() - began)
            layer.weight.grad = layer.bias.grad = None
    return statistics.median(times[1][5:]) / statistics.median(times[0][5:])


def keep_memory():
    """Lets malloc keep what is freed. Else what a step gives back to the system and takes again, thousands of pages,
    depends on all that it allocates, and a layer that goes changes the time of the others."""
    trim_threshold, mmap_threshold = -1, -3  # of malloc.h
    libc = ctypes.CDLL(None)
    libc.mallopt(trim_threshold, 1 << 30)
    libc.mallopt(mmap_threshold, 32 << 20)


def changes(wanted):
    """The errors of the predictions."""
    import torch

    torch.set_num_threads(1)
    keep_memory()
    errors = []
    for name, texts, options, changed in CASES:
        if wanted not in name:
            continue
        factors = {"first": factor_of_halves(torch, True), "later": factor_of_halves(torch, False)} if "halves" in changed else {}
        what_ifs = [text.format(**factors) for text in texts]
        before, after = Training(**options), Training(**{**options, **changed})
        predicted, done = compare(before, after, what_ifs)
        errors.append(abs(predicted - done) / done)
        log(f"{name}: predicted {predicted:.3f} of the step, measured {done:.3f}, error {errors[-1]:.3f}")
    return errors


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--case", default="", metavar="TEXT", help="only changes whose printed name contains this")
    args = parser.parse_args()
    parts = args.part or PARTS
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it prints two lines a trace
    log(f"{harness.machine()}; {harness.busy_note()}")
    figures = {}
    if "traces" in parts:
        figures["identity_error_max"], figures["identity_start_error_median"] = traces()
    if "reading" in parts:
        figures["read_events_per_s"], figures["read_rss_over_file"] = reading()
    if "recording" in parts:
        recording()
    errors = changes(args.case) if "changes" in parts else []
    if "ranks" in parts:
        errors += replay_ranks.changes(args.case)
    if "pipelines" in parts:
        figures["vtrain_pp2_mape"] = pipelines.vtrain()
        steps = pipelines.schedules()
        figures.update(pipelines.schedule_figures(steps))
        errors += [abs(predicted - done) / done for *_, done, predicted in steps]
    if errors:
        figures["predicted_vs_done_cases"] = len(errors)
        figures["predicted_vs_done_error_median"] = statistics.median(errors)
        figures["predicted_vs_done_error_max"] = max(errors)
    harness.finish("replay", figures)


if __name__ == "__main__":
    main()
