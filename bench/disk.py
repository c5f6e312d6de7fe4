"""The cache on a disk.

    bench/run disk [--data FOLDER] [--place DIRECTORY] [--depth N] [--rounds N]

disk_tier_vs_fio: bandwidth of hits (located, read with DEPTH reads in flight, verified; one thread)
over that of fio, which reads at random in the same file with the mean size of an item as its block,
O_DIRECT, io_uring and the same depth. Rounds alternate; the figure is the median of their ratios,
and the smallest and the largest are printed beside it.

disk_tier_reads_over_minimum: the largest, over epochs after the first, of the bytes that a loader
read from the source over D - C, with a cache for half of the bytes. D: bytes of all files; C: of
those that were in the cache when the epoch began.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

from harness import busy_note, log, machine

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("BUILD", os.path.join(ROOT, "build"))


def arguments():
    options = argparse.ArgumentParser(prog="bench/run disk", description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", default=os.path.join(ROOT, "data", "sample"))
    options.add_argument("--place", default=os.path.join(ROOT, "data"),
                         help="a directory on the disk to measure (%(default)s)")
    options.add_argument("--depth", type=int, default=16)
    options.add_argument("--rounds", type=int, default=9)
    return options.parse_args()


def fio(path, begin, block, length, depth):
    """Returns the bytes per second of one round."""
    out = subprocess.run(
        ["fio", "--name=read", f"--filename={path}", "--readonly", "--rw=randread", "--direct=1",
         "--ioengine=io_uring", f"--iodepth={depth}", f"--bs={block}", f"--offset={begin}",
         f"--size={length}", f"--io_size={length}", "--norandommap", "--output-format=json"],
        capture_output=True, text=True, check=True).stdout
    return json.loads(out[out.index("{"):])["jobs"][0]["read"]["bw_bytes"]


def against_fio(args, place):
    total = sum(entry.stat().st_size for entry in files(args.data))
    spec = f"disk:{place}?size={2 * total + (64 << 20)}&form=encoded"
    worker = subprocess.Popen(
        [os.path.join(BUILD, "bench", "bench_disk_tier"), spec, args.data, str(args.depth),
         str(args.rounds)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    rates, ratios = [], []
    for _ in range(args.rounds):
        worker.stdin.write("go\n")
        worker.stdin.flush()
        ours = json.loads(worker.stdout.readline())
        (path,) = (os.path.join(place, name) for name in os.listdir(place))
        block = (round(ours["item_bytes"]) + 4095) // 4096 * 4096
        size = os.path.getsize(path)
        begin = (size - ours["bytes"]) // 4096 * 4096
        rate = ours["bytes"] / ours["seconds"]
        other = fio(path, max(0, begin), block, ours["bytes"], args.depth)
        rates.append((rate, other))
        ratios.append(rate / other)
    worker.stdin.close()
    worker.wait()
    log(f"items of {block} bytes, {args.depth} in flight, {total / 1e6:.0f} MB, "
        f"{args.rounds} rounds each")
    for name, values in (("the cache", [a for a, _ in rates]), ("fio", [b for _, b in rates])):
        log(f"  {name:<10} {statistics.median(values) / 1e6:7.0f} MB/s "
            f"({min(values) / 1e6:.0f} to {max(values) / 1e6:.0f})")
    log(f"  ratio      {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
    return statistics.median(ratios)


def files(folder):
    for entry in os.scandir(folder):
        if entry.is_dir():
            yield from files(entry.path)
        else:
            yield entry


def reads_over_minimum(args, place):
    import headrace
    from headrace import transforms as T
    from headrace.torch import DataLoader

    recipe = T.Compose([T.RandomResizedCrop(32), T.ToDtype("float32", scale=True)])
    dataset = headrace.ImageFolder(args.data, recipe)
    total = sum(os.path.getsize(path) for path, _ in dataset.samples)
    over = []
    with DataLoader(dataset, 32, shuffle=True,
                    cache=f"disk:{place}?size={total // 2}&form=encoded") as loader:
        for epoch in range(3):
            before = loader.stats()
            for _ in loader:
                pass
            read = loader.stats()["bytes_read"] - before["bytes_read"]
            if epoch:
                over.append(read / (total - before["cache_source_bytes"]))
    return max(over)


def main():
    args = arguments()
    log(f"{machine()}; {busy_note()}")
    with tempfile.TemporaryDirectory(dir=args.place) as place:
        os.chmod(place, 0o700)
        figures = {"disk_tier_vs_fio": round(against_fio(args, os.path.join(place, "a")), 3)}
        over = reads_over_minimum(args, os.path.join(place, "b"))
        figures["disk_tier_reads_over_minimum"] = round(over, 4)
    print(json.dumps({"bench": "disk", "figures": figures}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
