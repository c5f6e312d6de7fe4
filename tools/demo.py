#!/usr/bin/env python3
"""The demonstration behind `make demo`.

Trains the same network on the same images twice, each time in a fresh process
of examples/train_imagefolder.py: with PyTorch's stock DataLoader (torchvision's
ImageFolder and transforms), then with Headrace. Prints one table and what its
numbers mean. The number of samples is chosen so that both fit into about a
minute on this machine; a small set is gone through more often.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "examples" / "train_imagefolder.py"
SHIM = ROOT / "tools" / "torchvision_shim.py"
EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")

EPOCHS = 2
BATCH = 64
MOST_EPOCHS = 8
MOST_SAMPLES = 4200  # of an epoch
LEAST_SAMPLES = 10 * BATCH
BUDGET_S = 45.0  # for the epochs of both runs together
ENDING_S = 4.0  # a run may take so long to end after Ctrl-C, before it is asked again
INTERRUPTED = 130  # exit status of a run that was
TRIALS = 40  # images decoded to learn how fast this machine is


class Failure(Exception):
    """Something the person must know; printed without a traceback."""


def cores():
    return len(os.sched_getaffinity(0))


def sharing(device):
    """(workers, threads of the network): the same for both loaders."""
    if device.startswith("cuda"):
        return max(1, cores() - 1), 1
    workers = max(1, cores() // 2)
    return workers, max(1, cores() - workers)


def find_images(data, most=20000):
    """Paths of images under `data`; stops at `most`, which is enough to draw a trial from."""
    found = []
    for folder, folders, names in os.walk(data, followlinks=True):
        folders.sort()
        found.extend(Path(folder) / n for n in names if n.lower().endswith(EXTENSIONS))
        if len(found) >= most:
            break
    if not found:
        raise Failure(f"no image under {data}; it must be a folder of classes: "
                      f"{data}/CLASS/IMAGE.jpg")
    return found


def choose_samples(data, workers):
    """(samples of an epoch, epochs) that fit the time: it depends on how fast this machine
    decodes some of the images."""
    from PIL import Image

    found = find_images(data)
    trial = random.Random(0).sample(found, min(TRIALS, len(found)))
    begun = time.perf_counter()
    for path in trial:
        try:
            with Image.open(path) as image:
                image.convert("RGB").resize((224, 224), Image.Resampling.BILINEAR)
        except OSError as error:
            raise Failure(f"{path} cannot be read as an image: {error}") from error
    # The tensor steps and the network cost about as much again; the second run half the first.
    sample_s = 2 * (time.perf_counter() - begun) / len(trial)
    fits = int(BUDGET_S / 1.5 / EPOCHS / (sample_s / workers))
    samples = max(LEAST_SAMPLES, min(MOST_SAMPLES, fits))
    return epochs_of(samples, len(found))


def epochs_of(samples, files):
    """(samples of an epoch, epochs): EPOCHS epochs of `samples`, or as many samples in more epochs
    where there are fewer files."""
    if samples <= files:
        return samples, EPOCHS
    return files, max(EPOCHS, min(MOST_EPOCHS, EPOCHS * samples // files))


def device_of():
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def run_through(command):
    """Runs a command; after Ctrl-C, which it got too, lets it end by itself."""
    child = subprocess.Popen(command, cwd=ROOT)
    try:
        return child.wait()
    except KeyboardInterrupt:
        # Python drops an interrupt that arrives while it forks a worker, so it is repeated.
        for signal_number in (signal.SIGINT, signal.SIGKILL, signal.SIGKILL):
            try:
                child.wait(ENDING_S)
                break
            except subprocess.TimeoutExpired:
                child.send_signal(signal_number)
        raise


def scan(command, data):
    """The dataset as `headrace scan` sees it."""
    shown = data.relative_to(ROOT) if data.is_relative_to(ROOT) else data
    print(f"$ headrace scan {shown}", flush=True)
    status = run_through([command, "scan", str(shown)])
    if status != 0:
        raise Failure(f"headrace scan failed with status {status}")


def train(loader, arguments, options):
    """One run in a process of its own, which shows its own progress; returns its result."""
    with tempfile.TemporaryDirectory(prefix="headrace-demo-") as folder:
        result = Path(folder) / "result.json"
        # The shim is for torchvision alone; Headrace's run must not even load it.
        prefix = [str(SHIM)] if loader == "torch" else []
        command = [sys.executable, "-W", "ignore", *prefix, str(SCRIPT), "--loader", loader,
                   "--data", str(arguments.data), "--json", str(result), *options]
        status = run_through(command)
        if status == INTERRUPTED:
            raise KeyboardInterrupt
        if status != 0:
            raise Failure(f"the run with the {loader} loader failed with status {status}; "
                          f"its message stands above")
        return json.loads(result.read_text())


def table(stock, ours):
    """The lines of the comparison."""
    def times(a, b):
        return f"{a / b:.1f} x" if b > 0 else ""

    rows = (
        ("samples per second", "samples_per_s", 1, "{:,.0f}", times(ours["samples_per_s"],
                                                                  stock["samples_per_s"])),
        ("seconds waited for data", "wait_s", 1, "{:.1f}", ""),
        ("  of seconds in all", "seconds", 1, "{:.1f}", ""),
        ("CPU seconds per 1,000 samples", "cpu_s_per_1000_samples", 1, "{:.2f}",
         times(ours["cpu_s_per_1000_samples"], stock["cpu_s_per_1000_samples"])),
        ("peak memory, MB", "peak_memory_bytes", 1e6, "{:,.0f}",
         times(ours["peak_memory_bytes"], stock["peak_memory_bytes"])),
        ("final loss", "final_loss", 1, "{:.3f}", ""),
        ("final accuracy, %", "final_accuracy", 0.01, "{:.1f}", ""),
    )
    lines = [f"{'':31}{'torch DataLoader':>18}{'Headrace':>12}{'Headrace/torch':>17}"]
    for title, key, unit, form, ratio in rows:
        values = [form.format(result[key] / unit) for result in (stock, ours)]
        lines.append(f"{title:31}{values[0]:>18}{values[1]:>12}{ratio:>17}".rstrip())
    return lines


def notes(stock, workers, threads):
    spread = [result["epochs"][-1]["samples_per_s"] for result in stock]
    epochs = len(stock[0]["epochs"])
    return (
        f"{epochs} epochs of {stock[0]['samples'] // epochs:,} samples, batches of {BATCH}, float32, "
        f"RandomResizedCrop(224) + flip; {stock[0]['device']}, {cores()} cores.",
        f"torch DataLoader: {workers} worker process{'es' if workers > 1 else ''} (persistent); "
        f"Headrace: {workers} thread{'s' if workers > 1 else ''}; the network: {threads} "
        f"thread{'s' if threads > 1 else ''}, in both.",
        "Each ran once, in a fresh process, torch first; all files were read into memory before "
        "each, so no disk is measured.",
        "Waiting and rates include the start of the workers; the last epoch alone: "
        f"{spread[0]:,.0f} and {spread[1]:,.0f} samples/s.",
        "CPU seconds and memory are those of the whole run: network, loader and worker processes.",
        "The losses differ a little because the random crops and orders do; the starting weights "
        "are the same.",
        "The network is small, so that a CPU can play the part of a fast GPU: with a slow network "
        "nothing waits and no loader helps.",
    )


def run(arguments):
    if arguments.command:
        scan(arguments.command, arguments.data)
    device = device_of()
    workers, threads = sharing(device)
    workers = arguments.workers or workers
    samples, epochs = (arguments.samples, EPOCHS) if arguments.samples else choose_samples(
        arguments.data, workers)
    options = ["--epochs", str(epochs), "--batch-size", str(BATCH), "--workers", str(workers),
               "--compute-threads", str(threads), "--device", device, "--samples", str(samples),
               "--warm"]
    results = []
    for number, loader in enumerate(("torch", "headrace"), 1):
        name = {"torch": "the stock torch.utils.data.DataLoader", "headrace": "Headrace"}[loader]
        print(f"\nrun {number} of 2: training with {name}", flush=True)
        results.append(train(loader, arguments, options))
    print()
    print("\n".join(table(*results)))
    print()
    for line in notes(results, workers, threads):
        print(f"- {line}")
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps({"torch": results[0], "headrace": results[1]},
                                             indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="image folder")
    parser.add_argument("--command", help="the headrace command, to show its scan of the data")
    parser.add_argument("--samples", type=int, help="samples of an epoch (what fits the time)")
    parser.add_argument("--workers", type=int,
                        help="workers of either loader (half the cores; beside a GPU all but one)")
    parser.add_argument("--json", type=Path, help="write both results to this file")
    arguments = parser.parse_args()
    arguments.data = arguments.data.absolute()
    try:
        run(arguments)
    except Failure as failure:
        print(f"demo: {failure}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("\ndemo: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
