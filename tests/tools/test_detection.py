"""The set of pasted objects, and training a detector on it with both loaders."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("torch")

import make_detection  # noqa: E402


@pytest.fixture
def detection_set(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    (tmp_path / "photographs").mkdir()
    for n in range(3):
        noise = rng.integers(0, 256, (20, 30, 3), dtype=np.uint8)
        image = Image.fromarray(noise).resize((300, 200), Image.Resampling.BICUBIC)
        image.save(tmp_path / "photographs" / f"{n}.jpg")
    place = tmp_path / "set"
    arguments = ["make_detection", str(tmp_path / "photographs"), str(place), "--count", "6"]
    monkeypatch.setattr(sys, "argv", arguments)
    make_detection.main()
    return place


def test_boxes_are_around_the_objects(detection_set):
    whole = json.loads((detection_set / "instances.json").read_text())
    assert len(whole["images"]) == 6
    # what was pasted last is not covered by others: its box has its tint
    last = {a["image_id"]: a for a in whole["annotations"]}
    for image in whole["images"]:
        with Image.open(detection_set / "images" / image["file_name"]) as opened:
            assert opened.size == (image["width"], image["height"])
            pixels = np.asarray(opened).astype(int)
        x, y, width, height = last[image["id"]]["bbox"]
        channel = last[image["id"]]["category_id"] - 1
        inside = pixels[y + height * 7 // 8, x : x + width, :].mean(0)
        assert inside.argmax() == channel or last[image["id"]]["category_id"] == 3


@pytest.mark.long
@pytest.mark.parametrize("loader", ["headrace", "torch"])
def test_trains(root, detection_set, loader):
    pytest.importorskip("headrace")
    command = [sys.executable, "-W", "ignore", str(root / "tools" / "torchvision_shim.py")]
    command += [str(root / "examples" / "train_detection.py"), str(detection_set / "images")]
    command += [str(detection_set / "instances.json"), "--loader", loader, "--epochs", "2"]
    command += ["--steps", "2", "--batch-size", "2", "--workers", "0"]
    done = subprocess.run(
        command, capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS="1")
    )
    assert done.returncode == 0, done.stderr[-4000:]
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", done.stdout)]
    assert len(losses) == 2 and all(0 < loss < 100 for loss in losses)
