#!/usr/bin/env python3
"""Makes the small files that `make bench-hosts` reads: two folders of JPEGs in HOST_FILES.

even: 40,000 files of about 10 KB, the sample set's photographs scaled down. uneven: 8,000
files, of which each sixteenth is a photograph at full size, ten times larger than the others.
Both consist of distinct copies (see tools/make_cache_files.py) of a few hundred pictures, which
are made first and kept beside them.
"""

import argparse
import os
import sys
import time
from pathlib import Path

from make_cache_files import CLASSES, Failure, find_sources, make_set
from make_samples import write_whole
from progress import Progress

PICTURES = 400
LARGE_EACH = 16  # of the uneven ones
SIDE = 224  # pixels of the longer side
QUALITY = 85
FILES = {"even": 40_000, "uneven": 8_000}


def is_large(kind, number):
    return kind == "uneven" and number % LARGE_EACH == 0


def make_pictures(folder, source, kind):
    """Makes the pictures that a set has copies of, unless they exist."""
    from PIL import Image

    names = [name for name, _ in find_sources(source)]
    if not names:
        raise Failure(f"no photographs at {source}; make them with `make samples`")
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    for number in range(PICTURES):
        path = folder / "pictures" / f"{number:03d}.jpg"
        if path.exists():
            continue
        photograph = source / names[number * len(names) // PICTURES]
        if is_large(kind, number):
            write_whole(path, photograph.read_bytes())
            continue
        with Image.open(photograph) as image:
            small = image.convert("RGB")
        small.thumbnail((SIDE, SIDE))
        part = path.with_suffix(".part")
        small.save(part, "JPEG", quality=QUALITY)
        os.replace(part, path)


def make_host_set(root, source, kind, processes, progress, files=None):
    """Makes root/KIND; returns its manifest."""
    pictures = root / f"{kind}-pictures"
    make_pictures(pictures, source, kind)
    wish = {"files": files or FILES[kind], "bytes": 0, "classes": CLASSES}
    return make_set(root / kind, pictures, wish, processes, progress)


def parse_arguments():
    here = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data", type=Path, help="the sample set (HEADRACE_DATA, data/sample)",
                        default=Path(os.environ.get("HEADRACE_DATA") or here / "data" / "sample"))
    parser.add_argument("--out", type=Path, help="the folder to make (HOST_FILES, data/host-files)",
                        default=Path(os.environ.get("HOST_FILES") or here / "data" / "host-files"))
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    progress = Progress("host files")
    begun = time.monotonic()
    try:
        for kind in FILES:
            made = make_host_set(arguments.out, arguments.data, kind, arguments.processes,
                                 progress)
            print(f"{made['files']} files, {made['bytes'] / 1e6:.0f} MB, in "
                  f"{arguments.out / kind} ({time.monotonic() - begun:.0f} s)")
    except Failure as failure:
        progress.clear()
        print(f"make_host_files: {failure}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        progress.clear()
        print("make_host_files: interrupted; the next run goes on from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
