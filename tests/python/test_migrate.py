"""The code of docs/migrate.md runs: Headrace's side, and the other one where its package is here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from conftest import synthetic  # noqa: E402

PAGE = (Path(__file__).parents[2] / "docs" / "migrate.md").read_text("utf-8")
SECTIONS = re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
BLOCKS = [
    (title, number, code)
    for title, text in SECTIONS
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", text, re.S))
]
SAMPLES = 130  # two batches of 64


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """data/train and two shards of the same images."""
    import tarfile

    root = tmp_path_factory.mktemp("migrate")
    paths = []
    for i in range(SAMPLES):
        path = root / "data" / "train" / f"class{i % 2}" / f"{i:04}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        synthetic(240, 230, i % 5).save(path)
        paths.append(path)
    for shard in range(2):
        with tarfile.open(root / f"train-{shard:06}.tar", "w") as tar:
            for i, path in enumerate(paths):
                if i % 2 == shard:
                    label = path.with_suffix(".cls")
                    label.write_text(str(i % 2))
                    tar.add(path, f"{i:04}.jpg")
                    tar.add(label, f"{i:04}.cls")
                    label.unlink()
    return root


def test_all_are_tried():
    titles = [title for title, _, _ in BLOCKS]
    assert titles == ["torch.utils.data"] * 3 + [
        name for name in ("NVIDIA DALI", "FFCV", "WebDataset") for _ in range(2)
    ]


# The other loaders' sides take their time.
PARAMETERS = [
    pytest.param(*block, id=f"{block[0]}-{block[1]}", marks=[] if block[1] else pytest.mark.long)
    for block in BLOCKS
]


@pytest.mark.parametrize("title, number, code", PARAMETERS)
def test_block(title, number, code, place, monkeypatch, torchvision):
    if title == "FFCV" and number == 0:
        pytest.importorskip("ffcv")
    if title == "NVIDIA DALI" and number == 0:
        pytest.importorskip("nvidia.dali")
    if title == "WebDataset" and number == 0:
        pytest.importorskip("webdataset")
    monkeypatch.chdir(place)
    seen = []

    def train_step(images, labels):
        assert images.dtype == torch.float32 and labels.dtype == torch.int64
        assert tuple(images.shape[1:]) == (3, 224, 224) and labels.shape == images.shape[:1]
        seen.append(len(labels))

    # Few threads: these are small machines. No worker processes: this process has threads to fork.
    code = re.sub(r"num_workers=\d", f"num_workers={int(number > 0)}", code)
    code = code.replace("num_threads=8", "num_threads=1")
    names = {"train_step": train_step, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225],
             "torch": torch}  # fmt: skip
    exec(compile(code, f"migrate.md, {title}", "exec"), names)
    loader = names["loader"]
    if hasattr(loader, "close"):
        loader.close()
    if number == 2:
        assert seen == [16, 16]  # the sampler's 32 samples
    elif title == "WebDataset" and number == 0:
        assert set(seen) == {64}  # each worker's own
    else:
        assert seen == [64, 64] * 2
