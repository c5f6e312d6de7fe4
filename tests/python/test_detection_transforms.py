"""RandomZoomOut, RandomShortestSize and LetterBox against torchvision's pixels."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

import headrace
import headrace.transforms as T


def pixels(height, width, seed=0):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.integers(100, 200, (3, height, width), dtype=np.uint8))


def png(image):
    out = io.BytesIO()
    Image.fromarray(image.permute(1, 2, 0).numpy()).save(out, "png", compress_level=0)
    return out.getvalue()


def ours(image, operations, **key):
    return torch.from_dlpack(headrace.Preparer(operations)(png(image), **key))


def test_zoom_out_pads(v2):
    image = pixels(21, 30)
    for n in range(20):
        # CenterCrop pads with 0 what is smaller: the canvas is in its middle
        made = ours(image, [T.RandomZoomOut((7, 8, 9), (2, 2), p=1), T.CenterCrop((60, 70))], index=n)
        canvas = made[:, 9 : 9 + 42, 5 : 5 + 60]
        row, column = (canvas[0] >= 100).nonzero()[0].tolist()
        expected = v2.functional.pad(
            image, [column, row, 30 - column, 21 - row], fill=[7.0, 8.0, 9.0]
        )
        assert torch.equal(canvas, expected)
    assert torch.equal(ours(image, [T.RandomZoomOut(p=0), T.CenterCrop((21, 30))]), image)


@pytest.mark.parametrize("interpolation", ["bilinear", "nearest", "nearest-exact"])
@pytest.mark.parametrize("height, width", [(40, 61), (61, 40), (33, 33)])
def test_shortest_size_resizes(v2, height, width, interpolation):
    image = pixels(height, width)
    mode = v2.InterpolationMode(interpolation)
    theirs = v2.RandomShortestSize([27], max_size=35, interpolation=mode)(image)
    mine = T.RandomShortestSize([27], 35, interpolation)
    made = ours(image, [mine, T.CenterCrop(tuple(theirs.shape[1:]))])
    assert (made.int() - theirs.int()).abs().max() <= (interpolation == "bilinear")


@pytest.mark.parametrize("height, width", [(40, 61), (61, 40), (15, 15), (9, 200)])
@pytest.mark.parametrize("enlarge", [True, False])
@pytest.mark.parametrize("interpolation", ["bilinear", "nearest"])
def test_letter_box_resizes_and_pads(v2, height, width, enlarge, interpolation):
    image = pixels(height, width)
    mode = v2.InterpolationMode(interpolation)
    factor = min(32 / height, 48 / width)
    if not enlarge:
        factor = min(factor, 1)
    size = [round(height * factor), round(width * factor)]
    inside = v2.functional.resize(image, size, mode, antialias=True)
    down, across = 32 - size[0], 48 - size[1]
    border = [across // 2, down // 2, across - across // 2, down - down // 2]
    expected = v2.functional.pad(inside, border, fill=114)
    made = ours(image, [T.LetterBox((32, 48), enlarge=enlarge, interpolation=interpolation)])
    assert (made.int() - expected.int()).abs().max() <= (interpolation == "bilinear")


def test_letter_box_after_to_dtype_fills_in_its_units():
    image = pixels(10, 40)
    made = ours(image, [T.ToDtype(torch.float32, scale=True), T.LetterBox(20, fill=0.5)])
    assert torch.allclose(made[:, 0], torch.tensor(0.5), atol=1e-6)


def test_torchvisions_are_translated(v2):
    for theirs, mine in [
        (v2.RandomZoomOut(fill=3, side_range=(1.5, 2), p=0.3), T.RandomZoomOut(3, (1.5, 2), 0.3)),
        (v2.RandomZoomOut(fill={"others": (1, 2, 3)}), T.RandomZoomOut((1, 2, 3))),
        (v2.RandomShortestSize(480), T.RandomShortestSize(480)),
        (v2.RandomShortestSize([480, 512], 800), T.RandomShortestSize([480, 512], 800)),
        (
            v2.RandomShortestSize(480, interpolation=v2.InterpolationMode.NEAREST),  # of PIL images
            T.RandomShortestSize(480, interpolation="nearest-pillow"),
        ),
        (v2.RandomIoUCrop(), T.RandomIoUCrop()),
        (
            v2.RandomIoUCrop(0.2, 0.9, 0.4, 3, [0.5, 1], 7),
            T.RandomIoUCrop(0.2, 0.9, 0.4, 3, [0.5, 1], 7),
        ),
        (v2.ClampBoundingBoxes(None), T.ClampBoundingBoxes(None)),
        (v2.SanitizeBoundingBoxes(2, 5), T.SanitizeBoundingBoxes(2, 5)),
    ]:
        assert T.from_torchvision(theirs).transforms == [mine]
    assert T.from_torchvision(v2.ConvertBoundingBoxFormat("XYXY")).transforms == []
    for refused in (
        v2.ConvertBoundingBoxFormat("CXCYWH"),
        v2.SanitizeBoundingBoxes(labels_getter=None),
    ):
        with pytest.raises(ValueError, match="cannot be translated"):
            T.from_torchvision(refused)
    untouched = v2.Compose([v2.ToImage(), v2.RandomShortestSize(480, antialias=False)])
    assert T.from_torchvision(untouched).transforms == [T.RandomShortestSize(480, antialias=False)]


def test_bad_arguments():
    for make, words in [
        (lambda: T.RandomZoomOut(side_range=(0.5, 2)), "side_range must be"),
        (lambda: T.RandomZoomOut(p=3), "p must be a probability"),
        (lambda: T.RandomShortestSize([]), "1 to 16 sizes, got 0"),
        (lambda: T.RandomShortestSize(range(1, 18)), "1 to 16 sizes, got 17"),
        (lambda: T.RandomShortestSize([0]), "at least 1"),
        (lambda: T.RandomIoUCrop(max_scale=1.5), "max_scale must be"),
        (lambda: T.RandomIoUCrop(sampler_options=[]), "1 to 11 numbers, got 0"),
        (lambda: T.ClampBoundingBoxes("other"), "clamping_mode must be"),
        (lambda: T.SanitizeBoundingBoxes(0.5), "min_size must be"),
        (lambda: T.LetterBox((1, 2, 3)), "size must be one number"),
        (lambda: T.LetterBox(9, interpolation="box"), "interpolation must be bilinear or bicubic or n"),
    ]:
        with pytest.raises(ValueError, match=words):
            make()


@pytest.mark.parametrize("tail", [[], [T.RandomHorizontalFlip(1)], [T.CenterCrop((30, 41))]])
def test_canvas_inside_the_last_pass_gives_the_same_bits(tail):
    image = pixels(50, 70)
    zoom = T.RandomZoomOut((7, 8, 9), (1, 4), p=1)
    # two inversions change nothing, but after them the canvas has to be in memory
    apart, seen = [T.RandomInvert(1), T.RandomInvert(1)], 0
    for antialias in (False, True):
        end = [*tail, T.Resize((37, 31), antialias=antialias)]
        for n in range(12):
            one = ours(image, [zoom, *end], index=n, seed=n)
            other = ours(image, [zoom, *apart, *end], index=n, seed=n)
            assert torch.equal(one, other)
            seen += one.unique().numel()
    assert seen > 1000
