"""The snippets of the pages by task, and those of README.md, run as they are printed, on data of the
layout that they name."""

import json
import os
import re
import wave

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch")
headrace = pytest.importorskip("headrace")

FENCE = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
COUNT = 33  # one more than the largest batch


def snippets(page, word=""):
    return [found for found in FENCE.findall(page.read_text("utf-8")) if word in found]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """COCO's, VOC's and a folder of clips, and tensors that are on no GPU."""
    rng = np.random.default_rng(1)
    voc = tmp_path / "data" / "VOCdevkit" / "VOC2012"
    coco, clips = tmp_path / "coco", tmp_path / "speech" / "train"
    for place in (
        *(voc / name for name in ("ImageSets/Segmentation", "JPEGImages", "SegmentationClass")),
        *(coco / name for name in ("train2017", "annotations")), clips / "yes", clips / "no",
    ):  # fmt: skip
        place.mkdir(parents=True)
    whole = {"images": [], "annotations": [], "categories": [{"id": 1, "name": "person"}]}
    for n in range(COUNT):
        pixels = Image.fromarray(rng.integers(0, 256, (48, 64, 3), dtype=np.uint8))
        pixels.save(coco / f"train2017/{n}.jpg")
        pixels.save(voc / f"JPEGImages/{n}.jpg")
        mask = Image.fromarray(rng.integers(0, 21, (48, 64), dtype=np.uint8))
        mask.save(voc / f"SegmentationClass/{n}.png")
        whole["images"].append({"id": n, "file_name": f"{n}.jpg", "width": 64, "height": 48})
        whole["annotations"].append({"id": n, "image_id": n, "category_id": 1, "iscrowd": 0,
                                     "area": 200, "bbox": [5 + n, 6, 20, 10]})  # fmt: skip
        with wave.open(str(clips / ("yes", "no")[n % 2] / f"{n}.wav"), "wb") as clip:
            clip.setparams((2, 2, 22050, 0, "NONE", ""))
            clip.writeframes(rng.integers(-9999, 9999, 22050, dtype="<i2").tobytes())
    (voc / "ImageSets/Segmentation/train.txt").write_text("\n".join(map(str, range(COUNT))))
    (coco / "annotations/instances_train2017.json").write_text(json.dumps(whole))
    for name in ("train2017", "annotations"):
        os.symlink(coco / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda self: self)
    return tmp_path


class Calls(list):
    """Stands for a network: notes what it is called with, and gives a number for each pixel."""

    def __call__(self, *arguments, **named):
        self.append((arguments, named))
        images = arguments[0]
        return torch.zeros(len(images), 21, *images.shape[2:]) if torch.is_tensor(images) else 0


def run(texts, **names):
    for text in texts:
        exec(compile(text, "snippet", "exec"), names)  # noqa: S102
    return names


def test_detection(root, folder):
    model = Calls()
    names = run(snippets(root / "docs/detection.md"), model=model)
    assert len(model) == 2 + 5 + 5
    (images, targets), _ = model[0]
    assert len(images) == 32 and images[0].shape == (3, 320, 320)
    assert targets[0]["boxes"].shape[1] == 4 and len(targets[0]["labels"]) <= 1
    (images, targets), _ = model[2]
    assert len(images) == 8 and all(min(image.shape[1:]) >= 640 for image in images)
    (images,), options = model[-1]
    assert options["pixel_mask"].all(dim=(1, 2)).any() and images.shape[2] == 800
    shares = torch.cat([label["boxes"] for label in options["labels"]])
    assert len(shares) and (shares[:, :2] - shares[:, 2:] / 2 >= 0).all()
    assert (shares[:, :2] + shares[:, 2:] / 2 <= 1).all()
    assert len(names["dataset"]) == COUNT  # the pack's


def test_segmentation(root, folder):
    model = Calls()
    names = run(
        snippets(root / "docs/segmentation.md"),
        model=model, cross_entropy=torch.nn.functional.cross_entropy,
    )  # fmt: skip
    assert len(model) == 3 and model[0][0][0].shape == (16, 3, 480, 480)
    assert abs(names["loss"] - np.log(21)) < 1e-3
    assert len(names["dataset"]) == COUNT


def test_audio(root, folder):
    encoder = Calls()
    names = run(snippets(root / "docs/audio.md"), encoder=encoder)
    assert names["features"].shape == (COUNT, 80, 500)
    (found,), masks = encoder[0]
    assert found.shape == (COUNT, 50, 80) and masks["src_key_padding_mask"].shape == (COUNT, 50)


@pytest.mark.parametrize("word", ["CocoDetection", "VOCSegmentation", "headrace.AudioFolder"])
def test_readme(root, folder, word):
    from headrace import transforms
    from headrace.torch import DataLoader

    (text,) = snippets(root / "README.md", word)
    assert 4 <= len(text.splitlines()) <= 5
    model = Calls()
    run([text], headrace=headrace, T=transforms, DataLoader=DataLoader, model=model,
        cross_entropy=torch.nn.functional.cross_entropy)  # fmt: skip
    assert len(model) == {"CocoDetection": 2, "VOCSegmentation": 3}.get(word, 0)
