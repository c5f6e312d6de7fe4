"""The part of bench/replay.py that trains on several ranks: DistributedDataParallel over gloo, each
rank in a network namespace with a limited link (bench/namespaces.py).

The trace is one of a single process, and the what-ifs predict the ranks. The network is a stand-in
for one on an accelerator: a layer's passes sleep for a set time, so that four ranks need no four
cores; its gradients are real tensors of 1 MiB, and so is all that is sent. Compression is timed
before, with the hook itself in groups of one rank, because a trace without it cannot tell what it
takes.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import limits
import namespaces
from harness import log

FORWARD_S, BACKWARD_S = 0.004, 0.008
LAYERS, WIDTH = 8, 512
STEPS, FILLING = 18, 5
TRACED = 30
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


def median_step_s(step):
    """The time of a step, without the first ones: DistributedDataParallel arranges its buckets."""
    times = []
    for _ in range(STEPS):
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    return statistics.median(times[FILLING:])


def hook_of(hook):
    """A hook's state and function."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    if hook == "fp16":
        return None, default_hooks.fp16_compress_hook
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=RANK, start_powerSGD_iter=2)
    return state, powerSGD_hook.powerSGD_hook


def run_rank(job, out):
    """What each rank runs; rank 0 writes the time of its step."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(network(), bucket_cap_mb=job["bucket"])
    if job["hook"]:
        model.register_comm_hook(*hook_of(job["hook"]))
    found = median_step_s(stepper(model))
    if dist.get_rank() == 0:
        Path(out).write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def wait_for(processes):
    """Waits until all have ended well."""
    try:
        until = time.monotonic() + LIMIT_S
        codes = [process.wait(max(until - time.monotonic(), 1)) for process in processes]
        if any(codes):
            raise RuntimeError(f"processes ended with {codes}")
    finally:
        for process in processes:
            process.kill()
            process.wait()


def train(hosts, job, folder):
    """Trains on hosts, a rank each. Returns the seconds of a step."""
    out = os.path.join(folder, "told.json")
    common = {**os.environ, "MASTER_ADDR": hosts[0].address, "MASTER_PORT": str(PORT), "WORLD_SIZE": str(len(hosts)),
              "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, __file__, json.dumps(job), out]
    wait_for([subprocess.Popen(host.inside(command), env={**common, "RANK": str(rank)}, stderr=subprocess.DEVNULL)
              for rank, host in enumerate(hosts)])
    return json.loads(Path(out).read_text())


def record(path):
    """Writes a trace of a single process. Returns a function that trains for a step without it."""
    import torch

    step = stepper(network())
    schedule = torch.profiler.schedule(wait=0, warmup=2, active=TRACED, repeat=1)
    with torch.profiler.profile(schedule=schedule, record_shapes=True,
                                on_trace_ready=lambda p: p.export_chrome_trace(path)) as running:
        for _ in range(2 + TRACED):
            step()
            running.step()
    return step


def time_hook(job, out):
    """What a process of a group of one rank runs: writes what the hook takes for the buckets of a step."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(network(), bucket_cap_mb=job["bucket"])
    state, called = hook_of(job["hook"])
    spent, steps = [], []

    def timed(state, bucket):
        began = time.perf_counter()
        future = called(state, bucket)
        future.wait()
        spent.append(time.perf_counter() - began)
        return future

    model.register_comm_hook(state, timed)
    step = stepper(model)
    for _ in range(STEPS):
        step()
        steps.append(sum(spent))
        spent.clear()
    Path(out).write_text(json.dumps(statistics.median(steps[FILLING:])))
    dist.destroy_process_group()


def codec_rate(ranks, bucket, hook, folder):
    """Bytes per second of compressing and of decompressing gradients, each, in as many processes at once as there are
    ranks: they share this machine's cores."""
    job = json.dumps({"bucket": bucket, "hook": hook, "is_alone": True})
    outs = [os.path.join(folder, f"hook{rank}.json") for rank in range(ranks)]
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "1", "RANK": "0", "OMP_NUM_THREADS": "1",
              "CUDA_VISIBLE_DEVICES": ""}
    wait_for([subprocess.Popen([sys.executable, __file__, job, out], env={**common, "MASTER_PORT": str(PORT + 1 + rank)},
                               stderr=subprocess.DEVNULL) for rank, out in enumerate(outs)])
    seconds = statistics.mean(json.loads(Path(out).read_text()) for out in outs)
    return 2 * LAYERS * WIDTH * WIDTH * 4 / seconds


def what_ifs(ranks, bits, bucket, hook, folder):
    """The what-ifs that predict a case."""
    found = [f"ddp ranks={ranks} link={bits * FRAMES / 8 / 1e6:.6f}MB/s latency={LATENCY_S * 1e6:.0f}us "
             f"algorithm=ring bucket={bucket}MiB"]
    if hook:
        ratio, rounds = (0.5, 1) if hook == "fp16" else (2 * RANK / WIDTH, 2)
        rate = codec_rate(ranks, bucket, hook, folder)
        found.append(f"compress ratio={ratio} rounds={rounds} rate={rate / 1e6:.3f}MB/s")
    return found


def predicted_ratio(path, changed):
    """The step after the changes over the step before them: the median over the steps of a trace."""
    from headrace.replay import Replay

    ratios = []
    for step in range(TRACED):
        report = Replay(path, window="ProfilerStep#", instance=step).report(*changed)
        ratios.append(report["what_ifs"][-1]["iteration_s"] / report["replayed_s"])
    return statistics.median(ratios)


def changes():
    """The errors of the predictions; none without namespaces."""
    import torch

    torch.set_num_threads(1)
    namespaces.end_on_signals()
    errors = []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        alone = record(path)
        try:
            with namespaces.Network(4, folder) as network_of:
                for ranks, bits, bucket, hook in CASES:
                    predicted = predicted_ratio(path, what_ifs(ranks, bits, bucket, hook, folder))
                    network_of.limit_links(bits)
                    # What else the machine does changes, so the step alone is timed before and after.
                    before_s = median_step_s(alone)
                    done_s = train(network_of.hosts[:ranks], {"bucket": bucket, "hook": hook}, folder)
                    done = 2 * done_s / (before_s + median_step_s(alone))
                    errors.append(abs(predicted - done) / done)
                    log(f"{ranks} ranks, {bits / 1e6:.0f} Mbit/s, buckets of {bucket} MiB, {hook or 'no hook'}: predicted "
                        f"{predicted:.3f} of the step alone, measured {done:.3f}, error {errors[-1]:.3f}")
        except limits.Unavailable as error:
            log(f"ranks on links are skipped: {error}")
    return errors


if __name__ == "__main__":
    own = json.loads(sys.argv[1])
    (time_hook if own.get("is_alone") else run_rank)(own, sys.argv[2])
