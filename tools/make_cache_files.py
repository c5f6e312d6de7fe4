#!/usr/bin/env python3
"""Makes the folder of files that `make bench-cache` reads: more than fit in memory.

At least 40,000 files and 4 GiB, in 100 classes, copies of the sample set's
photographs with their real sizes. Each copy has a comment segment (ITU-T T.81,
B.2.4.5) with its number, so that no two are equal and neither the file system nor the
disk can deduplicate them.

Files get their name only when complete, and MANIFEST.json is written last: after a kill
the next run continues, and a complete folder is not changed.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import time
from pathlib import Path

from make_samples import Failure, begin, ignore_interrupt, write_whole
from progress import Progress

VERSION = 1  # of the recipe below; another one makes the files anew
CLASSES = 100
FILES = 40_000
BYTES = 4 << 30
FILES_EACH_TASK = 200
SPARE_BYTES = 1 << 30  # of the disk, that must stay free
START_OF_IMAGE = b"\xff\xd8"


def numbered(jpeg, number):
    """The same picture with a comment segment that holds its number."""
    if jpeg[:2] != START_OF_IMAGE:
        raise Failure("a source file is no JPEG")
    text = b"headrace copy %010d" % number
    return START_OF_IMAGE + b"\xff\xfe" + (len(text) + 2).to_bytes(2, "big") + text + jpeg[2:]


def grown():
    """Bytes that a copy is longer than its source."""
    return len(numbered(START_OF_IMAGE, 0)) - len(START_OF_IMAGE)


def find_sources(folder):
    """(path below the folder, bytes) of every JPEG file of an image folder, by name."""
    return sorted((str(p.relative_to(folder)), p.stat().st_size)
                  for p in folder.glob("*/*.jpg") if p.is_file())


def plan(sizes, files, total):
    """How many copies make at least `files` files and `total` bytes, taking the sources in
    turn, and their bytes."""
    count = made = 0
    each = [size + grown() for size in sizes]
    while count < files or made < total:
        made += each[count % len(each)]
        count += 1
    return count, made


def name_of(number, count, classes):
    return f"class_{number * classes // count:03d}/image_{number:08d}.jpg"


def make_files(task):
    """Makes files first..last-1; returns how many."""
    root, source, names, first, last, count, classes = task
    for number in range(first, last):
        path = Path(root) / name_of(number, count, classes)
        name, size = names[number % len(names)]
        if path.exists() and path.stat().st_size == size + grown():
            continue
        data = numbered((Path(source) / name).read_bytes(), number)
        if len(data) != size + grown():
            raise Failure(f"{source}/{name} changed while it was being copied")
        write_whole(path, data)
    return last - first


def make_set(root, source, wish, processes, progress):
    """Makes the folder `root` of copies of `source`; wish: {"files", "bytes", "classes"}.
    Returns the manifest."""
    manifest = root / "MANIFEST.json"
    names = find_sources(source)
    if not names:
        if manifest.exists():
            return json.loads(manifest.read_text())
        raise Failure(f"no photographs at {source}; make them with `make samples`")
    count, made = plan([size for _, size in names], wish["files"], wish["bytes"])
    parameters = {"version": VERSION, "kind": "cache", "files": count, "bytes": made,
                  "classes": min(wish["classes"], count), "sources": len(names)}
    if manifest.exists() and json.loads(manifest.read_text()) == parameters:
        return parameters
    begin(root, parameters)
    there = sum(p.stat().st_size for p in root.glob("*/*.jpg"))
    free = shutil.disk_usage(root).free
    if free < made - there + SPARE_BYTES:
        raise Failure(f"{root} needs {(made - there + SPARE_BYTES) / 1e9:.1f} GB free and its file "
                      f"system has {free / 1e9:.1f} GB; name another folder with --out "
                      "(CACHE_FILES= of make)")
    classes = parameters["classes"]
    for number in range(classes):
        (root / f"class_{number:03d}").mkdir(exist_ok=True)
    tasks = [(str(root), str(source), names, first, min(first + FILES_EACH_TASK, count), count,
              classes) for first in range(0, count, FILES_EACH_TASK)]
    done = 0
    with multiprocessing.get_context("spawn").Pool(processes, ignore_interrupt) as pool:
        for part in pool.imap_unordered(make_files, tasks):
            done += part
            progress.update("files", done, count)
    progress.done("files", count)
    write_whole(manifest, (json.dumps(parameters, indent=1) + "\n").encode())
    return parameters


def parse_arguments():
    here = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data", type=Path, help="the sample set (HEADRACE_DATA, data/sample)",
                        default=Path(os.environ.get("HEADRACE_DATA") or here / "data" / "sample"))
    parser.add_argument("--out", type=Path, help="the folder to make (CACHE_FILES, data/cache-files)",
                        default=Path(os.environ.get("CACHE_FILES") or
                                     here / "data" / "cache-files"))
    parser.add_argument("--files", type=int, default=FILES, help="at least (%(default)s)")
    parser.add_argument("--bytes", type=int, default=BYTES, help="at least (%(default)s)")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    progress = Progress("cache files")
    begun = time.monotonic()
    wish = {"files": arguments.files, "bytes": arguments.bytes, "classes": CLASSES}
    try:
        made = make_set(arguments.out, arguments.data, wish, arguments.processes, progress)
    except Failure as failure:
        progress.clear()
        print(f"make_cache_files: {failure}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        progress.clear()
        print("make_cache_files: interrupted; the next run goes on from here", file=sys.stderr)
        return 130
    print(f"{made['files']} files, {made['bytes'] / 2**30:.2f} GiB, in {made['classes']} classes at "
          f"{arguments.out} ({time.monotonic() - begun:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
