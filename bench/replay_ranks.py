"""The part of bench/replay.py that trains on several ranks: DistributedDataParallel over gloo, each
rank in a network namespace with a limited link (bench/namespaces.py).

The trace is one of a process that trains alone, and the what-ifs predict the ranks. The network is a
stand-in for one on an accelerator: a layer's passes sleep for a set time, so that four ranks need no
four cores; its gradients are real tensors of 1 MiB, and so is all that is sent. What is left to
compute all ranks do at the same time on the same cores. So each rank also trains alone, in step with
the others: while the trace is recorded, and between the steps with an exchange, whose times are
compared with those alone. Compression is timed in the same way, with the hook itself in groups of
one rank, because a trace without it cannot tell what it takes.
"""

import contextlib
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time

import limits
import namespaces
from harness import log

FORWARD_S, BACKWARD_S = 0.004, 0.008
LAYERS, WIDTH = 8, 512
ROUNDS, STEPS, FILLING = 5, 3, 5
TRACED = 30
WINDOW = "a step alone"
RANK = 4  # of PowerSGD
PORT = 29511
LIMIT_S = 120
FRAMES = 1448 / 1514  # of what the link carries, what is not headers of TCP, IP and Ethernet
LATENCY_S = 100e-6

CASES = (
    # ranks, bits per second, MiB of a bucket, hook
    (2, 200e6, 2, None),
    (2, 500e6, 2, None),
    (2, 1000e6, 2, None),
    (4, 200e6, 2, None),
    (4, 500e6, 2, None),
    (4, 1000e6, 2, None),
    (2, 500e6, 8, None),
    (4, 500e6, 8, None),
    (2, 200e6, 2, "fp16"),
    (4, 200e6, 2, "fp16"),
    # One bucket: the hook waits for all-reduces on gloo's two threads, which run them, so that with several it hangs.
    (2, 200e6, 8, "powersgd"),
    (4, 200e6, 8, "powersgd"),
)


def network():
    """Layers whose passes sleep."""
    import torch

    class Sleeps(torch.autograd.Function):
        @staticmethod
        def forward(context, x, weight):
            time.sleep(FORWARD_S)
            context.save_for_backward(weight)
            return x + weight[0, 0]

        @staticmethod
        def backward(context, gradient):
            time.sleep(BACKWARD_S)
            return gradient, context.saved_tensors[0] * 1e-3

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(WIDTH, WIDTH))

        def forward(self, x):
            return Sleeps.apply(x, self.weight)

    torch.manual_seed(0)
    return torch.nn.Sequential(*[Layer() for _ in range(LAYERS)])


def stepper(model):
    """A function that trains for a step."""
    import torch

    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, foreach=False)
    x = torch.randn(8)

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def hook_of(hook, group=None):
    """A hook's state and function."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    if hook == "fp16":
        return group, default_hooks.fp16_compress_hook
    state = powerSGD_hook.PowerSGDState(group, matrix_approximation_rank=RANK, start_powerSGD_iter=2)
    return state, powerSGD_hook.powerSGD_hook


# ---- what each rank runs ----


def take_time(times, work, *arguments):
    """Calls a function when all ranks are there, and adds the seconds it took."""
    import torch.distributed as dist

    dist.barrier()
    began = time.perf_counter()
    found = work(*arguments)
    times.append(time.perf_counter() - began)
    return found


def record(path):
    """Writes a trace of training alone. Only rank 0 records one, because it takes time."""
    import torch
    import torch.distributed as dist

    step = stepper(network())
    schedule = torch.profiler.schedule(wait=0, warmup=2, active=TRACED, repeat=1)

    def marked():
        with torch.profiler.record_function(WINDOW):
            step()

    with contextlib.ExitStack() as ways:
        if dist.get_rank() == 0:
            running = ways.enter_context(torch.profiler.profile(
                schedule=schedule, record_shapes=True, on_trace_ready=lambda p: p.export_chrome_trace(path)))
        for _ in range(2 + TRACED):
            take_time([], marked)
            if dist.get_rank() == 0:
                running.step()


def compare(bucket, hook):
    """The time of a step with an exchange over that of one alone."""
    import torch

    alone, model = stepper(network()), torch.nn.parallel.DistributedDataParallel(network(), bucket_cap_mb=bucket)
    if hook:
        model.register_comm_hook(*hook_of(hook))
    together, times = stepper(model), ([], [])
    for _ in range(FILLING):  # DistributedDataParallel arranges its buckets
        together()
    for _ in range(ROUNDS):
        for _ in range(STEPS):
            take_time(times[0], alone)
        together()  # no barrier is between it and the next ones
        for _ in range(STEPS):
            began = time.perf_counter()
            together()
            times[1].append(time.perf_counter() - began)
    return statistics.median(times[1]) / statistics.median(times[0])


def time_hook(bucket, hook):
    """Seconds that a hook takes for the buckets of a step, in a group of one rank."""
    import torch
    import torch.distributed as dist

    group, _ = dist.new_subgroups(1)
    model = torch.nn.parallel.DistributedDataParallel(network(), bucket_cap_mb=bucket, process_group=group)
    state, called = hook_of(hook, group)
    spent, steps = [], []

    def timed(state, bucket):
        future = called(state, bucket)
        future.wait()
        return future

    model.register_comm_hook(state, lambda state, bucket: take_time(spent, timed, state, bucket))
    step = stepper(model)
    for _ in range(FILLING + ROUNDS * STEPS):
        step()
        steps.append(sum(spent))
        spent.clear()
    return statistics.median(steps[FILLING:])


def run_rank():
    """Does what the lines of the standard input ask for, and prints what each gives."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        found = {"record": record, "compare": compare, "time_hook": time_hook}[name](*arguments)
        dist.barrier()
        print(json.dumps(found), flush=True)


# ---- what starts them ----


class Ranks:
    """Processes on hosts, a rank each. A context manager, which ends them."""

    def __init__(self, hosts):
        common = {**os.environ, "MASTER_ADDR": hosts[0].address, "MASTER_PORT": str(PORT),
                  "WORLD_SIZE": str(len(hosts)), "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1",
                  "CUDA_VISIBLE_DEVICES": ""}
        self.processes = [
            subprocess.Popen(host.inside([sys.executable, __file__]), env={**common, "RANK": str(rank)}, text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            for rank, host in enumerate(hosts)]

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for process in self.processes:
            process.kill()
            process.communicate()

    def ask(self, *what):
        """Lets all ranks do something. Returns what each found."""
        for process in self.processes:
            process.stdin.write(json.dumps(what) + "\n")
            process.stdin.flush()
        until, found = time.monotonic() + LIMIT_S, []
        for rank, process in enumerate(self.processes):
            ready, _, _ = select.select([process.stdout], [], [], max(until - time.monotonic(), 0))
            line = process.stdout.readline() if ready else ""
            if not line:
                reason = "it has ended" if ready else f"not within {LIMIT_S} s"
                raise RuntimeError(f"rank {rank} did not do {what}: {reason}")
            found.append(json.loads(line))
        return found


def what_ifs(case, ranks_of):
    """The what-ifs that predict a case."""
    ranks, bits, bucket, hook = case
    found = [f"ddp ranks={ranks} link={bits * FRAMES / 8 / 1e6:.6f}MB/s latency={LATENCY_S * 1e6:.0f}us "
             f"algorithm=ring bucket={bucket}MiB"]
    if hook:
        ratio, rounds = (0.5, 1) if hook == "fp16" else (2 * RANK / WIDTH, 2)
        # All bytes are compressed and decompressed.
        rate = 2 * LAYERS * WIDTH * WIDTH * 4 / statistics.mean(ranks_of.ask("time_hook", bucket, hook))
        found.append(f"compress ratio={ratio} rounds={rounds} rate={rate / 1e6:.3f}MB/s")
    return found


def predicted_ratios(path, changed, steps, window="ProfilerStep#"):
    """The step after the changes over the step before them, of each of the steps of a trace."""
    from headrace.replay import Replay

    ratios = []
    for step in range(steps):
        report = Replay(path, window=window, instance=step).report(*changed)
        ratios.append(report["what_ifs"][-1]["iteration_s"] / report["replayed_s"])
    return ratios


def name_of(ranks, bits, bucket, hook):
    return f"{ranks} ranks, {bits / 1e6:.0f} Mbit/s, buckets of {bucket} MiB, {hook or 'no hook'}"


def changes(wanted):
    """The errors of the predictions; none without namespaces."""
    namespaces.end_on_signals()
    errors = []
    try:
        with tempfile.TemporaryDirectory() as folder, namespaces.Network(4, folder) as network_of:
            for ranks in (2, 4):
                cases = [case for case in CASES if case[0] == ranks and wanted in name_of(*case)]
                if cases:
                    errors += changes_of(network_of, cases, os.path.join(folder, f"{ranks}.json"))
    except limits.Unavailable as error:
        log(f"ranks on links are skipped: {error}")
    return errors


def changes_of(network_of, cases, path):
    """The errors of cases with the same number of ranks."""
    errors = []
    with Ranks(network_of.hosts[:cases[0][0]]) as ranks_of:
        ranks_of.ask("record", path)
        for case in cases:
            network_of.limit_links(case[1])
            predicted = statistics.median(predicted_ratios(path, what_ifs(case, ranks_of), TRACED, WINDOW))
            done = statistics.mean(ranks_of.ask("compare", *case[2:]))
            errors.append(abs(predicted - done) / done)
            log(f"{name_of(*case)}: predicted {predicted:.3f} of the step alone, measured {done:.3f}, error "
                f"{errors[-1]:.3f}")
    return errors


if __name__ == "__main__":
    run_rank()
