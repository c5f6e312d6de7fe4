"""The part of bench/share.py on ranks: how waiting is spread over a host's four ranks if their
samples differ much in cost.

The dataset has photographs of 0.1 and of 12 megapixels. Their order gives one rank all large ones
for a run of batches, then the next rank. The four ranks are processes that step together, like
ranks that sum their gradients: a step is a sleep and a barrier. It is so long that the machine can
prepare what all ranks need, but one thread cannot prepare what the rank with the large images
needs. The spread of a run is the difference of the most and the fewest seconds that a rank waited
in its loader; the figure is the sum over the runs. One agent is compared with loaders that have a
quarter of the cores each, both with the same number of batches ahead, in turn.
"""

import functools
import itertools
import multiprocessing
import os
import statistics
import time

import harness
import share_jobs as jobs
from harness import log

RANKS = 4
BATCH = 8
RUN = 16  # consecutive batches of a rank that are expensive
AHEAD = 4  # batches ahead of each rank; far fewer than in a run
SMALL = (387, 258)
LARGE = (4000, 3000)
FILES = 8  # different images of each size
ROUNDS = 2
LOAD = 0.7  # share of the machine's time that preparation takes with the chosen step
QUIET_S = 90  # seconds without an answer, after which something hangs


def photographs(data):
    """Returns paths of the folder's photographs, evenly spread."""
    paths = sorted(os.path.join(d, f) for d, _, names in os.walk(data) for f in names
                   if f.lower().endswith((".jpg", ".jpeg")))
    if not paths:
        raise harness.Missing("there are no photographs to make large ones from")
    return paths


def make_files(data, folder):
    """Makes (small, large) images: crops of photographs, and mosaics of many."""
    from PIL import Image

    paths = itertools.cycle(photographs(data))
    small, large = [], []
    for n in range(FILES):
        with Image.open(next(paths)) as image:
            small.append(os.path.join(folder, f"small{n}.jpg"))
            image.convert("RGB").resize(SMALL).save(small[-1], quality=92)
        mosaic = Image.new("RGB", LARGE)
        for top in range(0, LARGE[1], 375):
            for left in range(0, LARGE[0], 500):
                with Image.open(next(paths)) as image:
                    mosaic.paste(image.convert("RGB").resize((500, 375)), (left, top))
        large.append(os.path.join(folder, f"large{n}.jpg"))
        mosaic.save(large[-1], quality=92)
    return small, large


def layout(small, large):
    """Returns (path, label) in the dataset's order. Position p belongs to rank p % RANKS and
    its batch p // RANKS // BATCH; in run r, rank r % RANKS has the large images."""
    count = RANKS * RUN * RANKS * BATCH
    out = []
    for p in range(count):
        rank, run = p % RANKS, p // RANKS // BATCH // RUN
        files = large if rank == run % RANKS else small
        out.append((files[(p // RANKS) % FILES], 0))
    return out


def transform():
    import torch
    from headrace import transforms as t

    return t.Compose([t.Resize(256), t.CenterCrop(jobs.SIDE),
                      t.ToDtype(torch.float32, scale=True), t.Normalize(jobs.MEAN, jobs.STD)])


def cost_s(paths):
    """Returns the CPU seconds of one sample."""
    import headrace
    import headrace.torch

    dataset = headrace.ImageList([(path, 0) for path in paths] * 2, transform=transform())
    loader = headrace.torch.DataLoader(dataset, BATCH, num_workers=1)
    for _ in loader:
        pass
    begin = time.process_time()
    for _ in loader:
        pass
    return (time.process_time() - begin) / len(dataset)


def train(samples, rank, socket, step_s, barrier):
    """Runs one rank. Returns the seconds that it waited in each run, and the total seconds."""
    import headrace
    import headrace.torch
    import torch

    torch.set_num_threads(1)
    threads = max(1, len(os.sched_getaffinity(0)) // RANKS)
    how = ({"agent": socket, "stream": "bench-ranks", "window": AHEAD + 2} if socket
           else {"num_workers": threads})
    loader = headrace.torch.DataLoader(
        headrace.ImageList(samples, transform=transform()), BATCH, rank=rank, world_size=RANKS,
        prefetch_factor=AHEAD, **how)
    runs, batches, waited, begun = [], iter(loader), 0.0, time.monotonic()
    for n in range(RANKS * RUN):
        before = time.monotonic()
        next(batches)
        # The first batch does not count, because all ranks wait for it.
        waited += time.monotonic() - before if n else 0
        time.sleep(step_s)
        barrier.wait(QUIET_S)
        if n % RUN == RUN - 1:
            runs.append(waited)
            waited = 0.0
    return runs, time.monotonic() - begun


def run_ranks(samples, socket, step_s):
    """Returns the waiting seconds by [rank][run], and the total seconds."""
    barrier = multiprocessing.get_context("fork").Barrier(RANKS)
    found = jobs.answers([functools.partial(train, samples, rank, socket, step_s, barrier)
                          for rank in range(RANKS)], QUIET_S + 5 * RANKS * RUN * step_s)
    if None in found:
        raise harness.Missing(f"{found.count(None)} of {RANKS} ranks ended early, or hang")
    return [waits for waits, _ in found], max(seconds for _, seconds in found)


def spread_of(waits):
    """Returns the sum over the runs of the difference between the longest and shortest waiting."""
    return sum(max(run) - min(run) for run in zip(*waits))


def spread(bench):
    """Measures the figures. `bench`: that of bench/share.py."""
    small, large = make_files(bench.args.data, bench.scratch)
    cheap, expensive = jobs.answers([lambda: [cost_s(small), cost_s(large)]], QUIET_S)[0]
    work_s = BATCH * (expensive + (RANKS - 1) * cheap)
    step_s = work_s / bench.cores / LOAD
    samples = layout(small, large)
    log(f"\nranks     {RANKS} that step together every {step_s * 1e3:.0f} ms, batches of {BATCH}; "
        f"a sample of 0.1 megapixels takes {cheap * 1e3:.1f} ms, of 12 {expensive * 1e3:.1f} ms")
    if BATCH * expensive < step_s:
        log("          one thread is fast enough here, so separate loaders wait little")
    found = {"agent": [], "separate": []}
    for n in range(ROUNDS):
        for kind in list(found)[::1 if n % 2 else -1]:
            if bench.left() < RANKS * RUN * step_s * 3:
                raise harness.Missing("no time is left")
            waits, seconds = run_ranks(samples, bench.agent.socket if kind == "agent" else "",
                                       step_s)
            if kind == "agent":
                bench.agent.wait_until_unused()
            found[kind].append((spread_of(waits), seconds))
            log(f"          {kind:<9} waiting of the ranks "
                + " ".join(f"{sum(w):6.2f}" for w in waits)
                + f" s; spread, summed over {len(waits[0])} runs, {spread_of(waits):.2f} s; "
                f"{seconds:.1f} s in all")
    spreads = {kind: statistics.median(s for s, _ in results) for kind, results in found.items()}
    ratios = [s / max(a, 1e-3) for (s, _), (a, _) in zip(found["separate"], found["agent"])]
    bench.figures.update(
        rank_wait_spread_vs_separate=statistics.median(ratios),
        rank_wait_spread_agent_s=spreads["agent"],
        rank_wait_spread_separate_s=spreads["separate"],
        rank_wait_spread_vs_separate_low=min(ratios),
        rank_wait_spread_vs_separate_high=max(ratios))
    log(f"          spread of separate loaders over the agent's: "
        f"{statistics.median(ratios):.1f} ({min(ratios):.1f} .. {max(ratios):.1f})")
