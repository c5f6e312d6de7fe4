"""Fixtures: image folders made with Pillow, and real photographs if there are any.

torchvision's wheel does not load beside a CPU build of torch; tools/torchvision_shim.py makes its
Python parts usable. Tests that need it are skipped if it is missing.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import forked

# A shell's background jobs ignore it, and so would what tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

LEAN = str(Path(__file__).with_name("lean"))
IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}


def load_torchvision():
    sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
    try:
        importlib.import_module("torchvision_shim").prepare()
        return importlib.import_module("torchvision")
    except (ImportError, RuntimeError):
        return None
    finally:
        del sys.path[0]


# A spawned worker that imports a test's dataset does without: it takes 1.5 s of CPU.
TORCHVISION = None if multiprocessing.parent_process() else load_torchvision()


@pytest.fixture(scope="session")
def torchvision():
    if TORCHVISION is None:
        pytest.skip("torchvision cannot be imported here")
    return TORCHVISION


@pytest.fixture(scope="session")
def v2(torchvision):
    from torchvision.transforms import v2

    return v2


@pytest.fixture(scope="session")
def v1(torchvision):
    from torchvision import transforms

    return transforms


@pytest.fixture(autouse=True, scope="session")
def private_cache(tmp_path_factory):
    """Keeps index files and caches of tests apart from the user's; hides launchers' variables."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    # The observer of operators takes seconds to compile: once for all sessions.
    os.environ.setdefault("HEADRACE_MEMORY_OBSERVER", os.path.join(
        tempfile.gettempdir(), f"headrace-tests-observer-{os.getuid()}"))
    # New Pythons import less of torch.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [LEAN, *filter(None, [os.environ.get("PYTHONPATH")])])
    for name in list(os.environ):
        if name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "HEADRACE_HOST") or (
            name.startswith(("OMPI_", "PMI_", "SLURM_"))
        ):
            del os.environ[name]
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="headrace-tests-") as place:
        os.environ["HEADRACE_SHM"] = place
        yield


def synthetic(width: int, height: int, seed: int) -> Image.Image:
    """Makes smooth colours with edges and some noise, as in photographs."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width] / max(width, height)
    planes = []
    for _ in range(3):
        a, b, c, d = rng.uniform(2, 14, 4)
        plane = 128 + 60 * np.sin(a * x + b * y) + 45 * np.cos(c * x * y + d)
        plane += 30 * (np.sin(9 * d * x) > 0.4) + rng.normal(0, 4, plane.shape)
        planes.append(plane)
    return Image.fromarray(np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8))


def encode(image: Image.Image, form: str = "JPEG", **options) -> bytes:
    out = io.BytesIO()
    if form == "JPEG":
        options.setdefault("quality", 90)
    image.save(out, form, **options)
    return out.getvalue()


@pytest.fixture(scope="session")
def photos() -> list[bytes]:
    """Encoded images: synthetic ones and, if there are any, real photographs."""
    found = [
        encode(synthetic(250, 188, 1)),
        encode(synthetic(131, 200, 2), quality=75),
        encode(synthetic(90, 61, 3), "PNG"),
    ]
    return found + _real(4)


def _real(count: int) -> list[bytes]:
    root = os.environ.get("HEADRACE_DATA") or Path(__file__).parents[2] / "data" / "sample"
    real = [
        path
        for path in sorted(Path(root).glob("*/*.jpg"))
        if max(Image.open(path).size) <= 510
    ]
    return [p.read_bytes() for p in real[:: max(1, len(real) // count)][:count]]


@pytest.fixture(scope="session")
def real_photos() -> list[bytes]:
    """Photographs of the sample set that tools/make_samples.py makes."""
    found = _real(24)
    if not found:
        pytest.skip("no photographs: make demo or tools/make_samples.py makes some")
    return found


CLASSES = ["apple", "boat", "cat"]
PER_CLASS = 13


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """A folder with three classes of 13 images of different sizes, one nested, one a PNG."""
    root = tmp_path_factory.mktemp("folder")
    for c, name in enumerate(CLASSES):
        for i in range(PER_CLASS):
            below = root / name / ("deeper" if i == 4 else "")
            below.mkdir(parents=True, exist_ok=True)
            image = synthetic(60 + 7 * i, 80 + 5 * c, 100 * c + i)
            if i == 5:
                (below / f"{i:02}.png").write_bytes(encode(image, "PNG"))
            else:
                (below / f"{i:02}.jpg").write_bytes(encode(image))
    time.sleep(0.05)  # caches do not keep files that were just written
    return root


COUNT = len(CLASSES) * PER_CLASS


@pytest.fixture
def recipe():
    import headrace.transforms as T

    return T.Compose(
        [
            T.RandomResizedCrop(32),
            T.RandomHorizontalFlip(),
            T.ToDtype("float32", scale=True),
            T.Normalize(**IMAGENET),
        ]
    )


@pytest.fixture
def dataset(folder, recipe):
    import headrace

    return headrace.ImageFolder(folder, recipe)


@pytest.fixture
def boxes(folder):
    """The same images with boxes and labels."""
    import agent_job

    return agent_job.dataset(folder, boxes=True)


@pytest.fixture
def default_socket(monkeypatch):
    """The socket of "auto"; an agent started there is ended after the test."""
    import headrace

    with tempfile.TemporaryDirectory(prefix="headrace-auto-") as place:
        path = os.path.join(place, "run", "agent.sock")
        monkeypatch.setenv("HEADRACE_AGENT", path)
        yield path
        with contextlib.suppress(OSError):
            os.kill(headrace.agent_status(path)["pid"], signal.SIGKILL)


def run_python(code: str, *arguments: str, timeout: float = 600, **environment: str):
    """Runs a new interpreter; returns its result with stdout and stderr as text."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **environment},
        check=False,
    )


def run_forked(code: str, *arguments: str, **environment: str):
    """The same in a process that has torch and headrace imported (see forked.py)."""
    return forked.run(
        [sys.executable, "-c", code, *arguments], env={**os.environ, **environment}
    )


def in_child(function) -> str:
    """Returns the result of `function` in a forked child, as text; the parent waits for it."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            text = str(function())
        except BaseException as error:  # noqa: B902 - told to the parent
            text = f"{type(error).__name__}: {error}"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read().decode()
    assert os.waitpid(pid, 0)[1] == 0
    return text


@pytest.fixture
def kept():
    """The text of a kept cache for this test alone."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="headrace-test-") as place:
        before, os.environ["HEADRACE_SHM"] = os.environ["HEADRACE_SHM"], place
        yield "shm:test?size=64MiB"
        os.environ["HEADRACE_SHM"] = before
