"""``headrace stalls`` on a script that reads from a bucket: waiting for the network is told apart
from preparing, because cold segments fetch all their objects and warm ones none."""

from __future__ import annotations

import io
import json
import re
from array import array

import numpy as np
import pytest
from buckets import Proxy, rclone_server, with_keys
from PIL import Image
from stalls_scripts import measure

import headrace
from headrace import _core

torch = pytest.importorskip("torch")

SAMPLES = 240


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """(the bucket's folder, the port) of a server with images and a pack of them."""
    folder = tmp_path_factory.mktemp("store")
    for number in range(SAMPLES):
        pixels = np.random.default_rng(number).integers(0, 255, (16, 16, 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG")
        path = folder / "birds" / "train" / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.getvalue())
    headrace.pack(headrace.ImageFolder(str(folder / "birds/train")),
                  str(folder / "birds/train.hrpack"))
    with rclone_server(folder) as port:
        yield folder / "birds", port


SCRIPT = """
import headrace
from headrace import transforms as T
from headrace.torch import DataLoader as Ours

samples = headrace.{opener}({url!r}, T.Compose([T.Resize((8, 8)), T.ToDtype("float32")]))
loader = Ours(samples, batch_size=4, shuffle=True, num_workers=1, prefetch_factor=2)
training.model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 3))
training.optimizer = torch.optim.SGD(training.model.parameters(), lr=0.01)
while True:
    for x, y in loader:
        training.step(x, y)
"""


@pytest.mark.parametrize(("opener", "url"), [("ImageFolder", "s3://birds/train"),
                                             ("Pack", "s3://birds/train.hrpack")])
def test_a_bucket(store, tmp_path, opener, url):
    proxy = Proxy(store[1])
    proxy.fault = lambda request: None if request.is_list else ("drip", 0.02)
    try:
        with with_keys(proxy.url):
            measured = measure(tmp_path, SCRIPT.format(opener=opener, url=url))
    finally:
        proxy.close()
    assert measured.status == 0 and not measured.problems, measured.stderr
    record = measured.record
    assert measured.phases() == {"host", "warm", "cold"}
    assert record["dataset"]["filesystem"] == "s3" and not record["dataset"]["network"]
    assert record["dataset"]["samples"] == SAMPLES and record["dataset"]["bytes"] > 0
    read = {"warm": 0, "cold": 0}
    for segment in record["segments"]:
        if segment["phase"] in read:
            assert segment["expected_bytes"] > 0
            read[segment["phase"]] += segment["read_bytes"]
            assert segment["verified"] is True, segment["reason"]
    # what a cold segment asked for last may come within the next one
    assert 4 * read["warm"] < read["cold"]
    assert "warm" in {drain["phase"] for drain in record["drains"]}, record["notes"]
    # the store answers after 20 ms, however fast the machine is
    depths = record["storage"]["depths"]
    assert [one["depth"] for one in depths] == [1, 4, 16, 64, 256], record["notes"]
    assert depths[0]["reads_per_s"] <= 50 and all(one["bytes_per_s"] > 0 for one in depths)
    result = _core.Stalls.analyse([json.dumps(record)])
    # a busy machine widens the intervals: then no figure is said
    assert re.match("Training waits (.* for the network|for data for a share)", result.sentence)


def test_a_rate_of_samples(store, tmp_path):
    """Samples that run out are asked for again; what cannot be measured is refused."""
    with with_keys(f"http://127.0.0.1:{store[1]}"):
        samples = headrace.ImageFolder("s3://birds/train").core
        rate = _core.storage_measure_samples(samples, array("q", [7]), 4, 0.2)
        assert rate["reads"] > 1 and not rate["exhausted"] and not rate["failed"]
        assert rate["bytes"] == rate["reads"] * samples.sample_bytes(7)
        with pytest.raises(IndexError, match=f"index {SAMPLES} at position 1"):
            _core.storage_measure_samples(samples, array("q", [0, SAMPLES]), 1, 0.1)
        (store[0] / "train/a/2.jpg").rename(tmp_path / "2.jpg")
        try:
            with pytest.raises(OSError, match="none of 1 samples could be read; .*no such object"):
                _core.storage_measure_samples(samples, array("q", [1]), 1, 0.1)
        finally:
            (tmp_path / "2.jpg").rename(store[0] / "train/a/2.jpg")
    files = headrace.ImageFolder(str(store[0] / "train")).core
    with pytest.raises(NotImplementedError, match="not at URLs"):
        _core.storage_measure_samples(files, array("q", [0]), 1, 0.1)
