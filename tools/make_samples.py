#!/usr/bin/env python3
"""Makes the sample set: a folder of JPEG files like those people train on.

The pictures are windows of real photographs that distributions carry in
packages (wallpapers, example images). The packages are downloaded with apt,
unpacked under data/cache and not installed; nothing of them is committed.

Sizes, shapes and qualities follow ImageNet: 60 % 500x375, 20 % 500x333, 15 %
375x500, 5 % 333x500; JPEG quality 92 to 98; about a quarter 4:4:4, the rest
4:2:0; 65 to 200 KB a file. A class is a subject (sky, flowers, animals, ...),
so that a network has something to learn.

Every file depends only on (seed, photograph, number), never on the number of
processes; files appear under their name only when complete, so that a killed
run goes on where it was. A small set is a part of every larger one: a run with
a larger --count adds what is missing, one with a smaller --count takes what is
there. MANIFEST.json is written last.
"""

import argparse
import hashlib
import io
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, features

from progress import Progress
import sample_photographs as catalogue

VERSION = 1  # of the recipe below; another one makes the files anew
SHAPES = (((500, 375), 0.60), ((500, 333), 0.20), ((375, 500), 0.15), ((333, 500), 0.05))
QUALITIES = (92, 98)
SHARE_444 = 0.12  # drawn; the size band favours them, about a quarter of the files result
BAND_BYTES = (65 * 1000, 200 * 1000)
DRAWS = 60  # windows tried for one file before the nearest to the band is taken
PROBES = 12  # draws that show how well a photograph fits the band
MIN_ACCEPTED = 0.15  # share of the probes below which a photograph is left out
MIN_PHOTOGRAPHS = 15
FILES_EACH_TASK = 25
MIN_CLASSES = 8
LARGE_SHAPE = (1600, 1200)

Image.MAX_IMAGE_PIXELS = None  # the catalogue is trusted; its largest picture has 20 million


@dataclass(frozen=True)
class Kind:
    """What the files of a set look like."""

    name: str
    shapes: tuple  # ((width, height), share)
    band_bytes: tuple  # smallest and largest accepted file; None: any


SAMPLE = Kind("sample", SHAPES, BAND_BYTES)
LARGE = Kind("large", ((LARGE_SHAPE, 1.0),), None)


class Failure(Exception):
    """Something the person must know; printed without a traceback."""


# ---- packages ---------------------------------------------------------------


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def apt_options(cache):
    """Options that make apt work under `cache` alone: no root, no change to the system."""
    lists = (cache / "apt").resolve()
    (lists / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (lists / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    return ["-o", f"Dir::State::Lists={lists / 'lists'}", "-o", f"Dir::Cache={lists}",
            "-o", "APT::Sandbox::User=root" if os.geteuid() == 0 else "APT::Sandbox::User="]


def candidates(names, options):
    """The packages among `names` that apt can download, in the given order."""
    found = set()
    out = run(["apt-cache", *options, "policy", *names], env=dict(os.environ, LC_ALL="C")).stdout
    name = None
    for line in out.splitlines():
        if line and not line[0].isspace():
            name = line.rstrip(":")
        elif "Candidate:" in line and "(none)" not in line:
            found.add(name)
    return [n for n in names if n in found]


def fetch_packages(cache, progress):
    """Unpacks the catalogue's packages under cache/packages/NAME; returns the names."""
    unpacked = cache / "packages"
    unpacked.mkdir(parents=True, exist_ok=True)
    names = list(catalogue.PACKAGES)
    missing = [n for n in names if not (unpacked / n / ".complete").exists()]
    ready = [n for n in names if n not in missing]
    if photographs_of(cache, ready) >= catalogue.ENOUGH or not missing:
        return ready
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise Failure("The photographs come from Debian or Ubuntu packages, and this system has "
                      "no apt-get and dpkg-deb. Give your own images with DATA=/path/to/imagefolder.")
    options = []
    available = candidates(missing, options)
    if not available:
        progress.say("no package lists on this system: fetching them into data/cache")
        options = apt_options(cache)
        updated = run(["apt-get", *options, "update"])
        if updated.returncode != 0:
            progress.say((updated.stderr.strip().splitlines() or ["apt-get update failed"])[-1])
        available = candidates(missing, options)
    if not available and photographs_of(cache, ready) < MIN_PHOTOGRAPHS:
        raise Failure("apt knows none of the packages with photographs: "
                      + ", ".join(missing) + ". Run apt-get update with the main (Debian) or "
                      "universe (Ubuntu) component enabled, or give your own images with "
                      "DATA=/path/to/imagefolder.")
    for number, name in enumerate(available):
        progress.update("fetching packages", number, len(available), name)
        if unpack(name, unpacked, options, progress):
            ready.append(name)
    progress.done("fetching packages", len(available))
    return [n for n in names if n in ready]


def unpack(name, unpacked, options, progress):
    """Downloads and unpacks one package; False where that failed."""
    work = unpacked / f".{name}.part"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    got = run(["apt-get", *options, "-q", "download", name], cwd=work)
    archives = list(work.glob("*.deb"))
    if got.returncode != 0 or len(archives) != 1:
        reason = (got.stderr.strip().splitlines() or ["no archive came"])[-1]
        progress.say(f"left out {name}: {reason}")
        shutil.rmtree(work, ignore_errors=True)
        return False
    extracted = run(["dpkg-deb", "-x", archives[0].name, "tree"], cwd=work)
    if extracted.returncode != 0:
        progress.say(f"left out {name}: {extracted.stderr.strip()}")
        shutil.rmtree(work, ignore_errors=True)
        return False
    archive = archives[0].name
    archives[0].unlink()
    (work / ".complete").write_text(archive + "\n")
    shutil.rmtree(unpacked / name, ignore_errors=True)
    os.replace(work, unpacked / name)
    return True


@dataclass(frozen=True)
class Photograph:
    label: str
    name: str  # becomes part of the file names
    package: str
    path: Path


def find_photographs(cache, packages):
    """Lists the catalogue's photographs that exist, in the catalogue's order, each once."""
    found, seen = [], set()
    for entry in catalogue.PHOTOGRAPHS:
        if entry.package not in packages or entry.name in seen:
            continue
        root = cache / "packages" / entry.package / "tree"
        paths = [p for p in root.glob(entry.pattern) if p.is_file() and not p.is_symlink()]
        if not paths:
            continue
        seen.add(entry.name)
        largest = max(sorted(paths), key=lambda p: p.stat().st_size)
        found.append(Photograph(entry.label, entry.name, entry.package, largest))
    return found


def photographs_of(cache, packages):
    return len(find_photographs(cache, packages))


# ---- one file ---------------------------------------------------------------


def draw_window(rng, size, shape):
    """A window of the wanted shape: the larger the photograph, the more it is reduced."""
    width, height = size
    most = min(width / shape[0], height / shape[1])
    least = min(most, 1.0)
    scale = least * (min(most, 5.0) / least) ** rng.random()
    wide, high = shape[0] * scale, shape[1] * scale
    x, y = rng.random() * (width - wide), rng.random() * (height - high)
    return (x, y, x + wide, y + high)


def draw_shape(rng, shapes):
    at = rng.random()
    for shape, share in shapes:
        at -= share
        if at < 0:
            return shape
    return shapes[0][0]


def encode(image, rng, kind):
    """One draw: window, reduction, flip and JPEG bytes."""
    shape = draw_shape(rng, kind.shapes)
    window = draw_window(rng, image.size, shape)
    picture = image.resize(shape, Image.Resampling.LANCZOS, box=window, reducing_gap=2.0)
    if rng.random() < 0.5:
        picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    quality = rng.randint(*QUALITIES)
    subsampling = "4:4:4" if rng.random() < SHARE_444 else "4:2:0"
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=quality, subsampling=subsampling)
    return out.getvalue()


def outside(length, band):
    """How far a length is from the band, in bytes; 0: within."""
    if band is None or band[0] <= length <= band[1]:
        return 0
    return min(abs(length - band[0]), abs(length - band[1]))


def make_bytes(image, rng, kind):
    best = None
    for _ in range(DRAWS):
        data = encode(image, rng, kind)
        off = outside(len(data), kind.band_bytes)
        if best is None or off < best[0]:
            best = (off, data)
        if off == 0:
            break
    return best[1]


def write_whole(path, data):
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(data)
    os.replace(part, path)


# ---- work for the processes -------------------------------------------------

opened = {}  # the photograph this process used last; decoding one costs as much as 20 files


def open_photograph(path):
    if path not in opened:
        opened.clear()
        with Image.open(path) as image:
            opened[path] = image.convert("RGB")
    return opened[path]


def probe(task):
    """How many of PROBES draws fall into the band."""
    photograph, kind, seed = task
    image = open_photograph(str(photograph.path))
    if kind.band_bytes is None:
        fits = min(image.size) >= min(LARGE_SHAPE) and max(image.size) >= max(LARGE_SHAPE)
        return photograph.name, 1.0 if fits else 0.0
    hits = 0
    for number in range(PROBES):
        rng = random.Random(f"{seed}:{kind.name}:probe:{photograph.name}:{number}")
        hits += outside(len(encode(image, rng, kind)), kind.band_bytes) == 0
    return photograph.name, hits / PROBES


def make_files(task):
    """Makes files first..last-1 of a photograph; returns (relative path, bytes, sha256) each."""
    photograph, kind, seed, root, first, last = task
    result = []
    for number in range(first, last):
        name = f"{photograph.label}/{photograph.name}_{number:04d}.jpg"
        path = Path(root) / name
        if path.exists():
            data = path.read_bytes()
        else:
            rng = random.Random(f"{seed}:{kind.name}:{photograph.name}:{number}")
            data = make_bytes(open_photograph(str(photograph.path)), rng, kind)
            write_whole(path, data)
        result.append((name, len(data), hashlib.sha256(data).hexdigest()))
    return result


def ignore_interrupt():
    # Ctrl-C goes to the whole group; the parent ends its processes itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


# ---- a set ------------------------------------------------------------------


def share_out(usable, count):
    """Files per photograph: equal per class, and equal among the photographs of a class."""
    labels = sorted({p.label for p in usable})
    quota = {}
    for at, label in enumerate(labels):
        members = [p for p in usable if p.label == label]
        total = count // len(labels) + (at < count % len(labels))
        for i, photograph in enumerate(members):
            quota[photograph.name] = total // len(members) + (i < total % len(members))
    return quota


def begin(root, parameters):
    """Prepares the folder; drops files of other parameters. True: the set is complete already."""
    manifest = root / "MANIFEST.json"
    started = root / ".parameters.json"
    text = json.dumps(parameters, sort_keys=True)
    if started.exists() and started.read_text() != text:
        for entry in root.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    elif root.is_dir() and any(root.iterdir()) and not started.exists():
        raise Failure(f"{root} exists and was not made by this program; name another folder, or "
                      "move that one away.")
    root.mkdir(parents=True, exist_ok=True)
    write_whole(started, text.encode())
    return manifest.exists()


def choose(pool, photographs, kind, seed, progress):
    """The photographs that give files of the wanted size."""
    rates = {}
    for name, rate in pool.imap_unordered(probe, [(p, kind, seed) for p in photographs]):
        rates[name] = rate
        progress.update("looking at originals", len(rates), len(photographs), name)
    progress.done("looking at originals", len(photographs))
    usable = [p for p in photographs if rates[p.name] >= MIN_ACCEPTED]
    labels = {p.label for p in usable}
    if kind is SAMPLE and (len(usable) < MIN_PHOTOGRAPHS or len(labels) < MIN_CLASSES):
        raise Failure(f"Only {len(usable)} usable photographs in {len(labels)} classes; at least "
                      f"{MIN_PHOTOGRAPHS} in {MIN_CLASSES} are needed. More packages are needed "
                      f"({', '.join(catalogue.PACKAGES)}), or your own images with "
                      "DATA=/path/to/imagefolder.")
    if not usable:
        raise Failure("No photograph is large enough.")
    return usable


def make_set(root, kind, count, seed, processes, cache, progress):
    """Makes a whole set at `root`; returns its manifest."""
    whole = {"version": VERSION, "kind": kind.name, "seed": seed}
    manifest = root / "MANIFEST.json"
    if manifest.exists():
        before = json.loads(manifest.read_text())
        is_same = all(before.get(key) == value for key, value in whole.items())
        if is_same and before["count"] >= count:
            return before
    packages = fetch_packages(cache, progress)
    photographs = find_photographs(cache, packages)
    parameters = dict(whole, photographs=[p.name for p in photographs],
                      pillow=Image.__version__, libjpeg=features.version("jpg"))
    begin(root, parameters)
    manifest.unlink(missing_ok=True)
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, ignore_interrupt) as pool:
        usable = choose(pool, photographs, kind, seed, progress)
        quota = share_out(usable, count)
        tasks = []
        for photograph in usable:
            (root / photograph.label).mkdir(exist_ok=True)
            for first in range(0, quota[photograph.name], FILES_EACH_TASK):
                last = min(first + FILES_EACH_TASK, quota[photograph.name])
                tasks.append((photograph, kind, seed, str(root), first, last))
        files = []
        for made in pool.imap_unordered(make_files, tasks):
            files.extend(made)
            progress.update("making photographs", len(files), count, made[-1][0])
    progress.done("making photographs", len(files))
    return finish(root, dict(parameters, count=count), usable, sorted(files), cache)


def finish(root, parameters, usable, files, cache):
    digest = hashlib.sha256()
    for name, length, sha in files:
        digest.update(f"{name} {length} {sha}\n".encode())
    labels = {}
    for name, _, _ in files:
        label = name.split("/")[0]
        labels[label] = labels.get(label, 0) + 1
    manifest = dict(parameters, files=len(files), bytes=sum(f[1] for f in files), classes=labels,
                    used=[p.name for p in usable], digest=digest.hexdigest())
    write_licences(root, usable, cache)
    write_whole(root / "MANIFEST.json", (json.dumps(manifest, indent=1) + "\n").encode())
    return manifest


def write_licences(root, usable, cache):
    """Says whose photographs these are, and keeps the packages' copyright files beside it."""
    lines = ["These files are windows of photographs from the packages below, reduced and",
             "compressed again. The photographs' licences (CC BY-SA, GPL, LGPL, BSD and others)",
             "stand in each package's copyright file, copied into this folder. Made for tests and",
             "benchmarks on this machine; check the licences before passing anything on.", ""]
    for package in sorted({p.package for p in usable}):
        archive = (cache / "packages" / package / ".complete").read_text().strip()
        lines.append(f"{package} ({archive})")
        lines.extend(f"    {p.label}/{p.name}_*.jpg  from {p.path.name}"
                     for p in usable if p.package == package)
        for source in sorted((cache / "packages" / package / "tree").glob(
                f"usr/share/doc/{package}/copyright*")):
            write_whole(root / f"LICENCE-{package}.txt", source.read_bytes())
    write_whole(root / "LICENCES.txt", ("\n".join(lines) + "\n").encode())


# ---- many names -------------------------------------------------------------

LINKS_EACH = 1000  # hard links to one file; ext4 allows 65,000


def make_names(root, count, progress):
    """An image folder of `count` tiny valid JPEG files in 100 classes, by hard links.

    For measuring how long it takes to list and index a folder.
    """
    if begin(root, {"version": VERSION, "kind": "names", "count": count}):
        return
    classes = min(100, count)
    source = None
    for number in range(count):
        label = number * classes // count
        folder = root / f"class_{label:03d}"
        if source is None or number % LINKS_EACH == 0 or source.parent != folder:
            folder.mkdir(exist_ok=True)
            source = folder / f"image_{number:08d}.jpg"
            out = io.BytesIO()
            shade = (number * 37 % 256, number * 91 % 256, label * 2 % 256)
            Image.new("RGB", (16, 16), shade).save(out, "JPEG")
            write_whole(source, out.getvalue())
        else:
            path = folder / f"image_{number:08d}.jpg"
            try:
                os.link(source, path)
            except FileExistsError:
                pass
            except OSError:
                write_whole(path, source.read_bytes())
        if number % 1000 == 0:
            progress.update("names", number, count, folder.name)
    progress.done("names", count)
    manifest = {"kind": "names", "files": count, "classes": classes}
    write_whole(root / "MANIFEST.json", (json.dumps(manifest) + "\n").encode())


def parse_arguments():
    here = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, help="the folder to make (data/sample, data/large, data/names)")
    parser.add_argument("--cache", type=Path, default=here / "data" / "cache",
                        help="where packages are kept (%(default)s)")
    parser.add_argument("--count", type=int, default=4200,
                        help="files that the set has at least (%(default)s)")
    parser.add_argument("--large", type=int, metavar="N",
                        help="instead: N files of 1600x1200")
    parser.add_argument("--names", type=int, metavar="N",
                        help="instead: N tiny files, for listing and indexing")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    kind = "names" if arguments.names else "large" if arguments.large else "sample"
    arguments.out = arguments.out or here / "data" / kind
    return arguments


def main():
    arguments = parse_arguments()
    progress = Progress("samples")
    begun = time.monotonic()
    try:
        if arguments.names:
            make_names(arguments.out, arguments.names, progress)
            print(f"{arguments.names} names at {arguments.out}")
            return 0
        kind = LARGE if arguments.large else SAMPLE
        manifest = make_set(arguments.out, kind, arguments.large or arguments.count,
                            arguments.seed, arguments.processes, arguments.cache, progress)
    except Failure as failure:
        progress.clear()
        print(f"make_samples: {failure}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        progress.clear()
        print("make_samples: interrupted; the next run goes on from here", file=sys.stderr)
        return 130
    mean = manifest["bytes"] / manifest["files"] / 1000
    print(f"{manifest['files']} files in {len(manifest['classes'])} classes from "
          f"{len(manifest['used'])} photographs, {mean:.1f} KB each on average, at "
          f"{arguments.out} ({time.monotonic() - begun:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
