"""make bench-metrics: what a loader's metrics cost.

Three measurements of CPU time: of publishing the status, which a loader does twice a second and at
both ends of an epoch (bench/metrics.c); of answering a scrape; and of whole epochs of a loader that
is scraped once a second, over those of one without an address, in alternating pairs within one
process. `cost` is the share of one core that two publications and a scrape take in each second.
Options: --data FOLDER, --minutes M for the pairs.
"""

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time

import harness
from harness import log
from headrace import ImageFolder, _core, transforms as T
from headrace.torch import DataLoader

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.path.join(os.environ.get("BUILD", os.path.join(ROOT, "build")), "bench", "bench_metrics")
SCRAPES = 2000
RECIPE = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor()])
# Scrapes once a second until its standard input ends; prints how often.
SCRAPER = """
import select, sys, urllib.request
count = 0
while not select.select([sys.stdin], [], [], 1)[0]:
    urllib.request.urlopen(sys.argv[1]).read()
    count += 1
print(count)
"""


def publication(args, figures):
    found = json.loads(subprocess.check_output([PROGRAM, args.data, "20000"]))["publication_us"]
    figures["publication_us"] = statistics.median(found)
    log(f"publishing  {figures['publication_us']:.1f} us of CPU (five times: "
        f"{', '.join(f'{us:.1f}' for us in found)})")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def scrape(args, figures):
    """CPU time of the whole process, from which another one scrapes."""
    port = free_port()
    loader = DataLoader(ImageFolder(args.data, RECIPE), 16, num_workers=1, metrics=f":{port}")
    batches = iter(loader)
    next(batches)
    time.sleep(1)  # its threads have prepared what they may
    code = (f"import urllib.request\nfor _ in range({SCRAPES}):\n"
            f"    urllib.request.urlopen('http://127.0.0.1:{port}/metrics').read()")
    idle = cpu_of(lambda: time.sleep(1))
    begun = time.monotonic()
    busy = cpu_of(lambda: subprocess.run([sys.executable, "-c", code], check=True))
    busy -= idle * (time.monotonic() - begun)
    figures["scrape_us"] = busy / SCRAPES * 1e6
    log(f"a scrape    {figures['scrape_us']:.1f} us of CPU of the process that trains, "
        f"{len(_core.metrics_text())} bytes")
    loader.close()


def cpu_of(work):
    """CPU seconds that this process takes meanwhile; children do not count."""
    before = time.process_time()
    work()
    return time.process_time() - before


def epochs(args, figures):
    """Epochs of two loaders in turn; the order within a pair is drawn."""
    dataset, port = ImageFolder(args.data, RECIPE), free_port()
    draw, ratios, end = random.Random(0), [], time.monotonic() + args.minutes * 60
    options = {"num_workers": 1, "shuffle": True}
    with DataLoader(dataset, 64, metrics="", **options) as off, \
            DataLoader(dataset, 64, metrics=f":{port}", **options) as on:
        for one in (off, on):
            run(one)
        scraper = [sys.executable, "-c", SCRAPER, f"http://127.0.0.1:{port}/metrics"]
        while time.monotonic() < end:
            took = {}
            for one in draw.sample((off, on), 2):
                if one is off:
                    took["off"] = run(one)
                    continue
                process = subprocess.Popen(scraper, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
                took["on"] = run(one)
                process.stdin.close()
                process.wait()
            ratios.append(took["on"] / took["off"])
    deviation = statistics.stdev(ratios) / len(ratios) ** 0.5
    figures["on_over_off"] = statistics.mean(ratios)
    figures["on_over_off_interval"] = 1.96 * deviation
    figures["pairs"] = len(ratios)
    log(f"epochs      {figures['on_over_off']:.5f} +- {1.96 * deviation:.5f} times the CPU time, "
        f"{len(ratios)} pairs of {len(dataset)} samples")


def run(loader):
    """CPU seconds of an epoch."""
    return cpu_of(lambda: [None for _ in loader])


def main():
    parser = argparse.ArgumentParser(prog="bench/run metrics", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("DATA") or os.path.join(ROOT, "data", "sample"))
    parser.add_argument("--minutes", type=float, default=5)
    args = parser.parse_args()
    figures = {}
    log(f"machine   {harness.machine()}")
    log(f"          {harness.busy_note()}")
    for part in (publication, scrape, epochs):
        part(args, figures)
    figures["cost"] = (2 * figures["publication_us"] + figures["scrape_us"]) / 1e6
    log(f"cost        {figures['cost']:.4%} of one core, published twice and scraped once a second")
    harness.finish("metrics", figures)


if __name__ == "__main__":
    main()
