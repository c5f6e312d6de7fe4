"""make bench-decode: images in memory to normalised float32 NCHW samples on one core, in
every form of Headrace and with the usual libraries.

Per sample: decode, RandomResizedCrop(224) with antialiased bilinear, horizontal
flip, normalise. Every worker runs in its own process on the same core, several
processes one after the other, because where a process's memory lies changes its
speed; passes alternate. Ratios are medians of per-pass ratios; above 1 means
Headrace is faster. Further tables: the forms on all cores at once, large images,
progressive files.
Options: --processes N, --passes N, --images N, --peers NAME,..., --isa NAME, --large N.
"""

import argparse
import json
import os
import statistics
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
    "ffcv": (BENCH_VENV, "ffcv_decode.py", "region_vs_ffcv"),
    "ffcv_shrunk": (BENCH_VENV, "ffcv_decode.py", "region_vs_ffcv_shrunk"),
}

# More arguments for a peer's script.
EXTRA = {"ffcv_shrunk": ["--shrunk", "256"]}

# Our own workers: (program, arguments, environment, name in the table).
OURS = {
    "encoded": ("prepare_worker", ["recipe", "encoded"], {}, "Headrace, encoded"),
    "library": ("prepare_worker", ["recipe", "encoded"], {"HEADRACE_JPEG": "libjpeg-turbo"},
                "  the same, libjpeg-turbo"),
    "first": ("prepare_worker", ["first"], {}, "  the same, making an index"),
    "indexed": ("prepare_worker", ["recipe", "indexed"], {}, "Headrace, indexed"),
    "coefficients": ("prepare_worker", ["recipe", "coefficients"], {}, "Headrace, coefficients"),
    "coefficients_avx2": ("prepare_worker", ["recipe", "coefficients"], {"HEADRACE_ISA": "avx2"},
                          "  the same, AVX2"),
    "coefficients_portable": ("prepare_worker", ["recipe", "coefficients"],
                              {"HEADRACE_ISA": "portable"}, "  the same, portable code"),
    "version1": ("prepare_worker_version1", ["recipe", "coefficients"], {},
                 "  the same, version 1"),
    "version1_avx2": ("prepare_worker_version1", ["recipe", "coefficients"],
                      {"HEADRACE_ISA": "avx2"}, "  the same, version 1, AVX2"),
    "unchecked": ("prepare_worker_unchecked", ["recipe", "coefficients"], {},
                  "  the same, unchecked"),
    "planes": ("prepare_worker", ["recipe", "planes"], {}, "Headrace, planes"),
    "full": ("prepare_worker", ["full"], {}, "libjpeg-turbo, float resize"),
}

# How many photographs of the sample set are measured as progressive files.
PROGRESSIVE = 64

# The workers that measure the large set.
LARGE = ["encoded", "library", "indexed", "coefficients", "planes", "full"]

# Forms that files are converted to.
MADE = ("indexed", "coefficients", "planes")


def choose(folder, count):
    return harness.choose_jpegs(folder, count, "make the sample set with `make samples`, or name a "
                                               "folder with --data")


def compare_pixels(listing, form, regions):
    """Counts the pixels of random regions that differ from libjpeg-turbo's full decode."""
    answer = subprocess.run([WORKER, listing, "pixels", form, str(regions)], check=True,
                            stdout=subprocess.PIPE, text=True).stdout
    return json.loads(answer)


def our_worker(name, listing, core, isa):
    program, arguments, environment, _ = OURS[name]
    if isa:
        environment = {"HEADRACE_ISA": isa, **environment}
    return harness.Worker(name, [os.path.join(os.path.dirname(WORKER), program), listing,
                                 *arguments], {core}, environment)


def adversarial(folder):
    """Makes JPEG files that are difficult for a region decoder: all samplings and qualities, odd
    and tiny sizes, noise, restart markers, progressive, grey."""
    script = os.path.join(HERE, "adversarial.py")
    subprocess.run([BENCH_VENV, script, folder], check=True)
    return choose(folder, 10**6)


def measure_all_cores(listing, passes, isa, figures):
    """Runs one process per core, all at once: samples/s together, relative to those of one."""
    cores = sorted(os.sched_getaffinity(0))
    log("")
    log(f"{f'{len(cores)} cores at once':<32} {'samples/s':>10} {'of perfect scaling':>19}")
    for form in ("encoded", *MADE):
        workers = [our_worker(form, listing, core, isa) for core in cores]
        try:
            alone, together = [], []
            for n in range(passes + 1):
                one = harness.run_together(workers[:1])
                all_of_them = harness.run_together(workers)
                if n:
                    alone.append(one)
                    together.append(all_of_them)
        finally:
            for worker in workers:
                worker.close()
        speed = statistics.median(together)
        scaling = statistics.median(t / a for t, a in zip(together, alone)) / len(cores)
        figures[f"{form}_all_cores_samples_per_s"] = round(speed)
        figures[f"{form}_all_cores_scaling"] = scaling
        log(f"{OURS[form][3]:<32} {speed:>10.0f} {scaling:>18.1%}")


def measure_large(scratch, args, core, figures):
    """Measures the forms on images of 1600x1200."""
    folder = os.path.join(os.environ.get("LARGE_DATA") or os.path.join(ROOT, "data", "large"))
    if not os.path.isdir(folder):
        made = subprocess.run([VENV, os.path.join(ROOT, "tools", "make_samples.py"), "--large",
                               str(args.large), "--out", folder], check=False)
        if made.returncode:
            figures["large_reason"] = "the set of large images cannot be made here"
            log(f"large     {figures['large_reason']}")
            return
    paths = choose(folder, args.large)
    listing = harness.write_list(scratch, "large", paths)
    size = sum(os.path.getsize(p) for p in paths) / len(paths)
    workers = [our_worker(name, listing, core, args.isa) for name in LARGE]
    try:
        harness.interleave(workers, args.passes, processes=max(args.processes // 2, 1))
    finally:
        for worker in workers:
            worker.close()
    encoded, full = workers[0], workers[-1]
    log("")
    log(f"{len(paths)} images of 1600x1200, mean {size / 1000:.0f} KB")
    log(f"{'one core':<32} {'us/sample':>10} {'bytes':>7} {'x encoded':>10} {'x full':>8}")
    for worker in workers:
        figures[f"large_{worker.name}_us"] = worker.micros()
        bytes_ratio = worker.info.get("bytes_ratio", 1.0)
        if worker is not full:
            figures[f"large_{worker.name}_vs_full"] = harness.ratio(worker, full)
        if worker.name in MADE:
            figures[f"large_{worker.name}_bytes"] = bytes_ratio
            figures[f"large_convert_{worker.name}_ms"] = worker.info["convert_ms"]
        log(f"{OURS[worker.name][3]:<32} {worker.micros():>10.0f} {bytes_ratio:>7.2f} "
            f"{harness.ratio(worker, encoded):>9.2f}x {harness.ratio(worker, full):>7.2f}x")
    figures["large_encoded_vs_before"] = harness.ratio(encoded, workers[1])
    figures["large_indexed_vs_before"] = harness.ratio(workers[2], workers[1])
    pixels = [compare_pixels(listing, form, 2) for form in ("encoded", *MADE)]
    figures["pixels_compared"] += sum(r["compared"] for r in pixels)
    figures["pixels_differing"] += sum(r["differing"] for r in pixels)


def measure_progressive(scratch, paths, args, core, figures):
    """Measures progressive files, as they are and rewritten as baseline files with an index."""
    folder = os.path.join(scratch, "progressive")
    originals = harness.write_list(scratch, "originals", paths[:PROGRESSIVE])
    subprocess.run([VENV, os.path.join(HERE, "progressive.py"), originals, folder], check=True)
    listing = harness.write_list(scratch, "progressive-files", choose(folder, 10**6))
    command = [WORKER, listing, "recipe"]
    environment = {"HEADRACE_ISA": args.isa} if args.isa else {}
    workers = [harness.Worker(form, [*command, form], {core}, environment)
               for form in ("encoded", "indexed", "coefficients")]
    try:
        harness.interleave(workers, args.passes, processes=max(args.processes // 2, 1))
    finally:
        for worker in workers:
            worker.close()
    encoded, indexed, coefficients = workers
    figures["progressive_us"] = encoded.micros()
    figures["progressive_vs_before"] = harness.ratio(indexed, encoded)
    figures["progressive_coefficients_vs_before"] = harness.ratio(coefficients, encoded)
    figures["progressive_indexed_bytes"] = indexed.info["bytes_ratio"]
    figures["convert_progressive_ms"] = indexed.info["convert_ms"]
    log("")
    log(f"{len(paths[:PROGRESSIVE])} progressive files")
    log(f"{'one core':<32} {'us/sample':>10} {'bytes':>7} {'x encoded':>10}")
    for worker in workers:
        log(f"Headrace, {worker.name:<22} {worker.micros():>10.0f} "
            f"{worker.info.get('bytes_ratio', 1.0):>7.2f} {harness.ratio(worker, encoded):>9.2f}x")
    for form in ("encoded", "indexed", "coefficients"):
        result = compare_pixels(listing, form, 8)
        figures["pixels_compared"] += result["compared"]
        figures["pixels_differing"] += result["differing"]


def main():
    parser = argparse.ArgumentParser(prog="bench/run decode", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("DATA") or
                        os.path.join(ROOT, "data", "sample"), help="an image folder")
    parser.add_argument("--images", type=int, default=384)
    parser.add_argument("--processes", type=int, default=7, help="of each worker")
    parser.add_argument("--passes", type=int, default=2, help="of each process")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--isa", help="HEADRACE_ISA for our side: portable, avx2")
    parser.add_argument("--large", type=int, default=48, help="images of the large set")
    args = parser.parse_args()

    figures = {}
    core = harness.choose_core()
    paths = choose(args.data, args.images)
    size = sum(os.path.getsize(p) for p in paths) / len(paths)
    log(f"samples   {len(paths)} JPEG files of {args.data}, mean {size / 1000:.1f} KB, in memory")

    with tempfile.TemporaryDirectory() as scratch:
        listing = harness.write_list(scratch, "files", paths)
        ours = {name: our_worker(name, listing, core, args.isa) for name in OURS}
        workers = list(ours.values())
        for name in filter(None, args.peers.split(",")):
            python, script, key = PEERS[name]
            figures[key] = None
            try:
                workers.append(harness.Worker(
                    name, [python, os.path.join(HERE, "peers", script), "--files", listing,
                           *EXTRA.get(name, [])], {core}))
            except harness.Missing as reason:
                figures[key + "_reason"] = str(reason)
                log(f"missing   {name}: {reason}")
        try:
            harness.interleave(workers, args.passes, processes=args.processes)
        finally:
            for worker in workers:
                worker.close()

        report(ours, workers, figures)
        measure_all_cores(listing, max(args.processes // 2, 1), args.isa, figures)

        hard = adversarial(os.path.join(scratch, "adversarial"))
        hard_list = harness.write_list(scratch, "hard", hard)
        figures["pixels_compared"] = figures["pixels_differing"] = 0
        for form in ("encoded", *MADE):
            for result in (compare_pixels(listing, form, 8), compare_pixels(hard_list, form, 24)):
                figures["pixels_compared"] += result["compared"]
                figures["pixels_differing"] += result["differing"]
        measure_large(scratch, args, core, figures)
        measure_progressive(scratch, paths, args, core, figures)
        log("")
        log(f"pixels    {figures['pixels_differing']} of {figures['pixels_compared']:,} differ from "
            f"libjpeg-turbo's full decode, cropped\n          (every form; samples, {len(hard)} "
            "adversarial files, large images, progressive files)")
    count_neon_bits(figures)
    harness.finish("decode", figures)


def count_neon_bits(figures):
    """Compares the results of the NEON kernels with the portable ones on random input, under
    qemu-user: the number of bytes that differ."""
    figures["neon_bits_differing"] = None
    run = subprocess.run([os.path.join(ROOT, "tools", "arm-check"), "--bits",
                          os.path.join(ROOT, "build-arm")], stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, text=True)
    last = (run.stdout.splitlines() or [""])[-1]
    if run.returncode:
        figures["neon_bits_differing_reason"] = last or f"tools/arm-check ended with {run.returncode}"
        log(f"NEON      {figures['neon_bits_differing_reason']}")
        return
    counted = json.loads(last)
    figures["neon_bits_compared"] = counted["compared"]
    figures["neon_bits_differing"] = counted["differing"]
    log(f"NEON      {counted['differing']} of {counted['compared']:,} bytes of {counted['kernels']} "
        "kernels differ from the portable ones (qemu-user)")


def name_of(worker):
    """Returns the name of a worker in the chart; None for variants of our own."""
    if worker.name not in OURS:
        return worker.info["name"]
    return OURS[worker.name][3] if not OURS[worker.name][3].startswith(" ") else None


def report(ours, workers, figures):
    encoded, indexed, coefficients, planes, full = (
        ours[name] for name in ("encoded", "indexed", "coefficients", "planes", "full"))
    log("")
    log(f"{'one core':<32} {'us/sample':>10} {'samples/s':>10} {'spread':>7} {'bytes':>6} "
        f"{'encoded is':>11} {'indexed':>8} {'coefficients':>13} {'planes':>8}")
    for worker in workers:
        label = OURS[worker.name][3] if worker.name in OURS else worker.info["name"]
        bytes_ratio = f"{worker.info['bytes_ratio']:.2f}" if "bytes_ratio" in worker.info else ""
        against = [harness.ratio(o, worker) for o in (encoded, indexed, coefficients, planes)]
        if worker.name in PEERS:
            figures[PEERS[worker.name][2]] = against[0]
            for form, ratio in zip(MADE, against[1:]):
                figures[f"{form}_vs_{worker.name}"] = ratio
        times = "" if worker.name in OURS and worker is not full else (
            f"{against[0]:>10.2f}x {against[1]:>7.2f}x {against[2]:>12.2f}x {against[3]:>7.2f}x")
        log(f"{label:<32} {worker.micros():>10.0f} {1e6 / worker.micros():>10.0f} "
            f"{worker.spread():>6.1%} {bytes_ratio:>6} {times}")
    log("")
    for worker in [encoded, full, *(w for w in workers if w.name in PEERS)]:
        log(f"version   {worker.info['version']} {worker.info['name']}"
            + (f" ({encoded.info['isa']})" if worker is encoded else ""))
    log(f"convert   indexed {indexed.info['convert_ms']:.2f} ms an image; with the comparison with "
        f"libjpeg-turbo\n          coefficients {coefficients.info['convert_ms']:.2f} ms, planes "
        f"{planes.info['convert_ms']:.2f} ms")
    figures.update({
        "headrace_us": encoded.micros(), "indexed_us": indexed.micros(),
        "coefficients_us": coefficients.micros(), "planes_us": planes.micros(),
        "full_us": full.micros(),
        "coefficients_avx2_us": ours["coefficients_avx2"].micros(),
        "coefficients_portable_us": ours["coefficients_portable"].micros(),
        "isa": encoded.info["isa"],
        "samples_per_s": {name_of(w): round(1e6 / w.micros()) for w in workers
                          if name_of(w)},
        "encoded_vs_full": harness.ratio(encoded, full),
        "encoded_vs_before": harness.ratio(encoded, ours["library"]),
        "indexed_vs_before": harness.ratio(indexed, ours["library"]),
        "indexed_vs_full": harness.ratio(indexed, full),
        "index_cost": harness.ratio(encoded, ours["first"]),
        "indexed_bytes": indexed.info["bytes_ratio"],
        "convert_indexed_ms": indexed.info["convert_ms"],
        "coefficients_vs_full": harness.ratio(coefficients, full),
        "coefficients_avx2_vs_full": harness.ratio(ours["coefficients_avx2"], full),
        "coefficients_portable_vs_full": harness.ratio(ours["coefficients_portable"], full),
        "planes_vs_full": harness.ratio(planes, full),
        "coefficients_bytes": coefficients.info["bytes_ratio"],
        "coefficients_version1_bytes": ours["version1"].info["bytes_ratio"],
        "coefficients2_bytes": coefficients.info["bytes_ratio"],
        "coefficients2_vs_1": harness.ratio(ours["version1"], coefficients),
        "coefficients_avx2_over_version1": harness.ratio(ours["version1_avx2"],
                                                         ours["coefficients_avx2"]),
        "planes_bytes": planes.info["bytes_ratio"],
        "convert_coefficients_ms": coefficients.info["convert_ms"],
        "convert_planes_ms": planes.info["convert_ms"],
        "bounds_check_cost": harness.ratio(ours["unchecked"], coefficients),
    })
    for form in MADE:
        for peer, key in (("dali", "dali_cpu"),):
            if f"{form}_vs_{peer}" in figures:
                figures[f"{form}_vs_{key}"] = figures.pop(f"{form}_vs_{peer}")
        for peer, (_, _, region_key) in PEERS.items():
            key = f"{form}_vs_{'dali_cpu' if peer == 'dali' else peer}"
            if figures.get(key) is None:
                figures[key] = None
                figures[key + "_reason"] = figures.get(region_key + "_reason", "not measured")
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
