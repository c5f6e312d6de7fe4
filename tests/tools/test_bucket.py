"""The example that trains on a bucket, under torchrun: two ranks and a cache that they share."""

import io
import os
import re
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("headrace", reason="the headrace package is not installed")

import numpy as np  # noqa: E402
from PIL import Image  # noqa: E402

IMAGES = 96


@pytest.mark.long
def test_two_ranks(root, tmp_path, monkeypatch):
    """Each object is asked for once, by one of them, and none in the second epoch."""
    monkeypatch.syspath_prepend(str(root / "tests/python"))
    from buckets import Proxy, rclone_server, with_keys

    for number in range(IMAGES):
        pixels = np.random.default_rng(number).integers(0, 255, (80, 80, 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG")
        path = tmp_path / f"birds/train/{'ab'[number % 2]}/{number:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.getvalue())
    name = f"headrace-test-bucket-{os.getpid()}"
    with rclone_server(tmp_path) as port:
        proxy = Proxy(port)
        try:
            with with_keys(proxy.url):
                done = subprocess.run(
                    [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone",
                     "--nproc-per-node", "2", str(root / "examples/train_bucket.py"),
                     "--data", "s3://birds/train", "--cache", f"shm:{name}?size=64MiB",
                     "--epochs", "2", "--batch-size", "8", "--workers", "1"],
                    capture_output=True, text=True, timeout=600, check=False,
                    env=dict(os.environ, OMP_NUM_THREADS="1"))
        finally:
            proxy.close()
            subprocess.run([sys.executable, "-m", "headrace", "cache", "drop", f"shm:{name}"],
                           capture_output=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    told = re.findall(rf"epoch \d/2  {IMAGES} samples, objects asked for: (\d+) \+ (\d+)",
                      done.stdout)
    assert len(told) == 2, done.stdout
    first, second = ([int(count) for count in counts] for counts in told)
    asked = [one.target for one in proxy.requests if not one.is_list]
    assert sum(first) == len(asked) == len(set(asked)) == IMAGES
    assert all(first) and second == [0, 0]
