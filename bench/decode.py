"""make bench-decode: one core, encoded images in memory to normalised float32
NCHW samples, against the libraries people use for it.

Per sample: decode, RandomResizedCrop(224) with antialiased bilinear, horizontal
flip, normalise. Every peer runs in its own process on the same core; passes
alternate. Ratios are medians of per-pass ratios; above 1 means Headrace is
faster. Options: --passes N, --images N, --peers NAME,..., --isa NAME.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

import harness
from harness import log

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HERE = os.path.join(ROOT, "bench")
VENV = os.path.join(os.environ.get("VENV", os.path.join(ROOT, ".venv")), "bin", "python")
BENCH_VENV = os.path.join(os.environ.get("BENCH_VENV", os.path.join(ROOT, ".venv-bench")), "bin",
                          "python")
WORKER = os.path.join(os.environ.get("BUILD", os.path.join(ROOT, "build")), "bench",
                      "prepare_worker")

# name of the peer: (interpreter, script, key of its figure)
PEERS = {
    "pillow": (BENCH_VENV, "pillow.py", "region_vs_pillow"),
    "opencv": (BENCH_VENV, "opencv.py", "region_vs_opencv"),
    "torchvision_pil": (VENV, "torchvision_pil.py", "region_vs_torchvision_pil"),
    "torchvision_tensor": ("/usr/bin/python3", "torchvision_tensor.py",
                           "region_vs_torchvision_tensor"),
    "simplejpeg_v2": (VENV, "simplejpeg_v2.py", "region_vs_simplejpeg_torchvision_v2"),
    "dali": (BENCH_VENV, "dali.py", "region_vs_dali_cpu"),
    "spdl": (BENCH_VENV, "spdl.py", "region_vs_spdl"),
}

# The contract's keys of forms that this version does not have yet.
LATER = ["coefficients_vs_pillow", "coefficients_vs_full", "coefficients_vs_dali_cpu",
         "coefficients_portable_vs_full", "coefficients_bytes", "planes_vs_pillow",
         "convert_coefficients_ms", "bounds_check_cost"]


def choose(folder, count):
    """`count` files of the image folder, the same ones every time."""
    paths = sorted(os.path.join(d, f) for d, _, names in os.walk(folder) for f in names
                   if f.lower().endswith((".jpg", ".jpeg")))
    if not paths:
        sys.exit(f"{folder}: no JPEG files; make the sample set with `make samples`, or name a "
                 "folder with --data")
    random.Random(0).shuffle(paths)
    return sorted(paths[:count])


def compare_pixels(listing, regions):
    """Pixels of random regions that differ from libjpeg-turbo's full decode."""
    answer = subprocess.run([WORKER, listing, "pixels", str(regions)], check=True,
                            stdout=subprocess.PIPE, text=True).stdout
    return json.loads(answer)


def adversarial(folder):
    """JPEG files that are hard on a region decoder: samplings, qualities, odd
    and tiny sizes, noise, restart markers, progressive, grey."""
    script = os.path.join(HERE, "adversarial.py")
    subprocess.run([BENCH_VENV, script, folder], check=True)
    return choose(folder, 10**6)


def main():
    parser = argparse.ArgumentParser(prog="bench/run decode", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("DATA") or
                        os.path.join(ROOT, "data", "sample"), help="an image folder")
    parser.add_argument("--images", type=int, default=384)
    parser.add_argument("--passes", type=int, default=7)
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--isa", help="HEADRACE_ISA for our side: portable, avx2")
    args = parser.parse_args()

    figures = {}
    core = max(os.sched_getaffinity(0))
    log(f"machine   {harness.machine()}")
    log(f"          {harness.busy_note()}; every worker is pinned to core {core}")
    paths = choose(args.data, args.images)
    size = sum(os.path.getsize(p) for p in paths) / len(paths)
    log(f"samples   {len(paths)} JPEG files of {args.data}, mean {size / 1000:.1f} KB, in memory")

    with tempfile.TemporaryDirectory() as scratch:
        listing = os.path.join(scratch, "files")
        with open(listing, "w") as f:
            f.write("\n".join(paths) + "\n")
        env = {"HEADRACE_ISA": args.isa} if args.isa else {}
        ours = harness.Worker("headrace", [WORKER, listing, "recipe"], {core}, env)
        workers = [ours]
        for name in filter(None, args.peers.split(",")):
            python, script, key = PEERS[name]
            figures[key] = None
            try:
                workers.append(harness.Worker(
                    name, [python, os.path.join(HERE, "peers", script), "--files", listing],
                    {core}))
            except harness.Missing as reason:
                figures[key + "_reason"] = str(reason)
                log(f"missing   {name}: {reason}")
        try:
            harness.interleave(workers, args.passes)
        finally:
            for worker in workers:
                worker.close()

        report(workers, figures)
        figures["headrace_us"] = ours.micros()
        figures["samples_per_s"] = {w.info["name"]: round(1e6 / w.micros()) for w in workers}
        figures["isa"] = ours.info["isa"]

        hard = adversarial(os.path.join(scratch, "adversarial"))
        hard_list = os.path.join(scratch, "hard")
        with open(hard_list, "w") as f:
            f.write("\n".join(hard) + "\n")
        results = [compare_pixels(listing, 8), compare_pixels(hard_list, 24)]
        figures["pixels_compared"] = sum(r["compared"] for r in results)
        figures["pixels_differing"] = sum(r["differing"] for r in results)
        log(f"pixels    {figures['pixels_differing']} of {figures['pixels_compared']:,} differ from "
            f"libjpeg-turbo's full decode, cropped (samples and {len(hard)} adversarial files)")

    for key in LATER:
        figures[key] = None
        figures[key + "_reason"] = "this form is not in this version"
    harness.finish("decode", figures)


def report(workers, figures):
    ours = workers[0]
    log("")
    log(f"{'one core':<28} {'us/sample':>10} {'samples/s':>10} {'spread':>7} {'Headrace is':>12}")
    for worker in workers:
        times = ""
        if worker is not ours:
            value = harness.ratio(ours, worker)
            figures[PEERS[worker.name][2]] = value
            times = f"{value:.2f} x"
        log(f"{worker.info['name']:<28} {worker.micros():>10.0f} {1e6 / worker.micros():>10.0f} "
            f"{worker.spread():>6.1%} {times:>12}")
    log("")
    for worker in workers:
        log(f"version   {worker.info['version']}" + (f" ({ours.info['isa']})" if worker is ours else ""))
    tensor = [figures.get(k) for k in ("region_vs_torchvision_tensor",
                                       "region_vs_simplejpeg_torchvision_v2") if figures.get(k)]
    if tensor and figures["region_vs_torchvision_tensor"] is not None:
        figures["region_vs_torchvision_tensor_own_decoder"] = figures["region_vs_torchvision_tensor"]
        figures["region_vs_torchvision_tensor"] = min(tensor)
        log("note      region_vs_torchvision_tensor is the smaller of torchvision with its own "
            "decoder\n          (the distribution's older torch) and simplejpeg + torchvision v2 on "
            "today's torch")


if __name__ == "__main__":
    main()
