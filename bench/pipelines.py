"""make bench-pipelines: plans against measured times, and 2BW against 1F1B.

1. vTrain's measured times of Megatron on A100s (its ground_truth_single.csv, in
   $HEADRACE_SHARED_DATA/vtrain or ../shared/data/vtrain): each row with two stages is predicted from
   the row without a pipeline that is like it otherwise.
2. Schedule2BW and torch's Schedule1F1B under torchrun with gloo on 2 to 4 ranks. Stages are
   stand-ins for accelerators: a pass sleeps for a set time, so that four of them need no four
   cores, and a stage that waits costs what it would. Steps are predicted from these times.
3. Two stages of a real transformer, computed on a core each; predicted from its profile
   (headrace.pipeline.profile), which a rank measures alone.
"""

import argparse
import contextlib
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import harness
from harness import log

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("HEADRACE_SHARED_DATA", ROOT.parent / "shared" / "data"))
FORWARD_S, BACKWARD_S = 0.02, 0.04
CASES = ((2, 4), (3, 4), (4, 4), (4, 8))  # stages, microbatches
BATCHES, FILLING = 14, 3


# ---- vTrain ----


def vtrain_rows():
    """The rows by what they train, each with its time by the number of stages."""
    names = ("gpus", "batch", "micro", "hidden", "heads", "layers", "length", "tensor", "data", "stages", "ms")
    rows = {}
    with open(SHARED / "vtrain" / "ground_truth_single.csv", encoding="utf-8-sig") as file:
        for values in csv.reader(line for line in file if not line.startswith("#")):
            row = dict(zip(names, map(float, values), strict=True))
            key = tuple(row[name] for name in names[1:9])
            rows.setdefault(key, {})[int(row["stages"])] = row
    return rows


def predicted_ms(row, stages):
    """The time of a step with so many stages, from a row without a pipeline."""
    import headrace.pipeline

    microbatches = row["batch"] / (row["data"] * row["micro"])
    layer_s = row["ms"] / 1000 / microbatches / row["layers"]
    # Activations of 16 bits go over NVLink of 300 GB/s each way.
    sent = 2 * row["micro"] * row["length"] * row["hidden"] / row["tensor"]
    profile = {
        "headrace_pipeline_profile": 1,
        "microbatches": [1],
        "layers": [{
            "name": "block", "repeat": int(row["layers"]), "weight_bytes": 0, "held_bytes": [0],
            "forward_s": [layer_s / 3], "backward_s": [layer_s * 2 / 3], "output_bytes": [sent],
        }],
    }  # fmt: skip
    found = headrace.pipeline.plan(
        profile, gpus=stages, batch=int(microbatches), schedule="1f1b", stages=stages,
        recompute=False, link_bytes_per_s=300e9)  # fmt: skip
    return 1000 * found["plans"][0]["step_s"]


def vtrain():
    """The mean relative error over the rows with two stages."""
    if not (SHARED / "vtrain" / "ground_truth_single.csv").is_file():
        log("vTrain's measured times are not there: skipped")
        return None
    errors = []
    for row in vtrain_rows().values():
        if 1 in row and 2 in row:
            errors.append(abs(predicted_ms(row[1], 2) - row[2]["ms"]) / row[2]["ms"])
    errors.sort()
    mape = sum(errors) / len(errors)
    log(f"vTrain, 2 stages: {len(errors)} rows, mean error {mape:.4f}, median {errors[len(errors) // 2]:.4f}, "
        f"largest {errors[-1]:.4f}")
    return mape


# ---- ranks ----


def stand_in():
    """A stage whose passes sleep."""
    import torch

    class Sleeps(torch.autograd.Function):
        @staticmethod
        def forward(context, x, weight):
            time.sleep(FORWARD_S)
            context.save_for_backward(x, weight)
            return x * weight

        @staticmethod
        def backward(context, gradient):
            time.sleep(BACKWARD_S)
            x, weight = context.saved_tensors
            return gradient * weight, (gradient * x).sum(0)

    class Stage(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(8))

        def forward(self, x):
            return Sleeps.apply(x, self.weight)

    return Stage()


def transformer():
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(*[
        torch.nn.TransformerEncoderLayer(128, 4, 512, 0.0, batch_first=True) for _ in range(4)
    ])  # fmt: skip


def timed(kind, module, stages, microbatches, x):
    """Seconds of a step in the steady state, on rank 0."""
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    from headrace.torch.pipeline import Schedule2BW

    stage = PipelineStage(module, dist.get_rank(), stages, torch.device("cpu"))
    optimizer = torch.optim.SGD(module.parameters(), 1e-6)

    def loss_of(output, target):
        return ((output - target) ** 2).mean()

    if kind == "2bw":
        schedule = Schedule2BW(stage, microbatches, loss_of, optimizer)
    else:
        schedule = Schedule1F1B(stage, microbatches, loss_of)
    ends = []
    for _ in range(BATCHES):
        inputs = (x,) if stage.is_first else ()
        target = torch.zeros_like(x) if stage.is_last else None
        schedule.step(*inputs, target=target, losses=[], return_outputs=False)
        if kind == "1f1b":
            optimizer.step()
            optimizer.zero_grad()
        ends.append(time.perf_counter())
    if kind == "2bw":
        schedule.finish()
    return (ends[-1] - ends[FILLING]) / (len(ends) - 1 - FILLING)


def run_ranks(job, out):
    """What one rank of torchrun does."""
    import torch
    import torch.distributed as dist

    import headrace.pipeline

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    told = {}
    if job["kind"] == "sleep":
        microbatches = job["microbatches"]
        x = torch.ones(microbatches, 8)
        for kind in ("1f1b", "2bw"):
            told[kind] = timed(kind, stand_in(), ranks, microbatches, x)
    else:
        model, x = transformer(), torch.randn(32, 64, 128)
        if rank == 0:
            told["profile"] = headrace.pipeline.profile(model, x[:4], repeats=15, loss_fn=lambda y: (y**2).mean())
        dist.barrier()
        half = len(model) // 2
        for kind in ("1f1b", "2bw"):
            told[kind] = timed(kind, model[rank * half : (rank + 1) * half], 2, 8, x)
    if rank == 0:
        Path(out).write_text(json.dumps(told))
    dist.barrier()
    dist.destroy_process_group()


def start_ranks(job, ranks):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "told.json")
        subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}",
             __file__, "--rank-job", json.dumps(job), out],
            check=True, env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
            stderr=subprocess.DEVNULL if job.get("quiet") else None)  # fmt: skip
        return json.loads(Path(out).read_text())


def planned_s(profile, schedule, stages, microbatches, size):
    import headrace.pipeline

    found = headrace.pipeline.plan(
        profile, gpus=stages, batch=microbatches * size, schedule=schedule, stages=stages,
        recompute=False, microbatch=size)  # fmt: skip
    return found["plans"][0]["step_s"]


def sleeping(stages, microbatches):
    """Measured and predicted seconds of a step, by schedule."""
    profile = {
        "headrace_pipeline_profile": 1, "microbatches": [1],
        "layers": [{"name": "stand-in", "repeat": stages, "weight_bytes": 32, "held_bytes": [32],
                    "forward_s": [FORWARD_S], "backward_s": [BACKWARD_S], "output_bytes": [32]}],
    }  # fmt: skip
    told = start_ranks({"kind": "sleep", "microbatches": microbatches}, stages)
    return {kind: (told[kind], planned_s(profile, kind, stages, microbatches, 1)) for kind in ("1f1b", "2bw")}


def schedules():
    """The steps that were run: (stages, microbatches, schedule, measured, predicted seconds)."""
    cases = []
    for stages, microbatches in CASES:
        for kind, (measured, predicted) in sleeping(stages, microbatches).items():
            log(f"{stages} stages, {microbatches} microbatches, {kind}: {1000 * measured:.1f} ms, "
                f"predicted {1000 * predicted:.1f} ms, error {abs(predicted - measured) / measured:.3f}")
            cases.append((stages, microbatches, kind, measured, predicted))
    return cases


def schedule_figures(cases):
    """The gain of 2BW at 4 stages and 4 microbatches, and the largest error of its predictions."""
    step = {case[:3]: case[3] for case in cases}
    errors = [abs(p - m) / m for *_, kind, m, p in cases if kind == "2bw"]
    return {"schedule_2bw_vs_1f1b": step[4, 4, "1f1b"] / step[4, 4, "2bw"],
            "schedule_2bw_predicted_error": max(errors)}


def computing():
    """The error of the step of a real transformer on two cores."""
    if (os.cpu_count() or 1) < 2:
        log("a transformer on two stages needs two cores: skipped")
        return None
    told = start_ranks({"kind": "compute"}, 2)
    predicted = planned_s(told["profile"], "2bw", 2, 8, 4)
    error = abs(predicted - told["2bw"]) / told["2bw"]
    log(f"transformer, 2 stages, 8 microbatches, 2bw: {1000 * told['2bw']:.1f} ms (1F1B: {1000 * told['1f1b']:.1f} "
        f"ms), predicted {1000 * predicted:.1f} ms, error {error:.3f}")
    return error


def main():
    if "--rank-job" in sys.argv:
        at = sys.argv.index("--rank-job")
        run_ranks(json.loads(sys.argv[at + 1]), sys.argv[at + 2])
        return
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--part", choices=("vtrain", "sleeping", "computing"), action="append")
    parts = parser.parse_args().part or ["vtrain", "sleeping", "computing"]
    log(f"{harness.machine()}; {harness.busy_note()}")
    figures = {}
    if "vtrain" in parts:
        figures["vtrain_pp2_mape"] = vtrain()
    if "sleeping" in parts:
        figures.update(schedule_figures(schedules()))
    if "computing" in parts:
        with contextlib.suppress(subprocess.CalledProcessError):
            figures["schedule_2bw_computing_error"] = computing()
    harness.finish("pipelines", figures)


if __name__ == "__main__":
    main()
