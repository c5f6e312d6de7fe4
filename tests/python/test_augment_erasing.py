"""RandomErasing: its rectangles, values and place against torchvision's and timm's."""

import math

import headrace
import numpy as np
import pytest
from headrace import transforms as T

torch = pytest.importorskip("torch")

from run_operations import Raw, ours, picture, png  # noqa: E402

MEAN, STD = (0.5, 0.4, 0.3), (0.25, 0.2, 0.4)


def erased(image, before, after, index=0, **parameters):
    """The tensor without and with erasing."""
    plain = ours(image, *before, *after)
    return plain, ours(image, *before, Raw("RandomErasing", **parameters), *after, index=index)


def box_of(changed):
    """The rectangle of the changed pixels, all of which are changed."""
    rows, columns = np.where(changed.any((0, 2)))[0], np.where(changed.any((0, 1)))[0]
    top, left, bottom, right = rows[0], columns[0], rows[-1] + 1, columns[-1] + 1
    inside = changed[:, top:bottom, left:right]
    assert inside.mean() > 0.97  # a pixel may have had the value before
    assert changed.sum() == inside.sum()
    return top, left, bottom - top, right - left


FLOATS = [T.ToTensor(), T.Normalize(MEAN, STD)]


@pytest.mark.parametrize(
    ("before", "after", "value", "want"),
    [
        (FLOATS, [], (0, 0, 0), (0, 0, 0)),
        (FLOATS, [], (1.5, -2, 0.25), (1.5, -2, 0.25)),
        (FLOATS[:1], [], (0.2, 0.4, 1), (0.2, 0.4, 1)),
        (FLOATS[:1], FLOATS[1:], (0.2, 0.4, 1), [(v - m) / s for v, m, s in zip((0.2, 0.4, 1), MEAN, STD)]),
        ([], [], (0, 128, 255), (0, 128, 255)),
        ([], [], (7.9, 7.9, 7.9), (7, 7, 7)),
        ([], FLOATS, (51, 51, 51), [(0.2 - m) / s for m, s in zip(MEAN, STD)]),
    ],
)
def test_values_have_the_units_of_their_place(before, after, value, want):
    image = picture(90, 70)
    for index in range(5):
        plain, got = erased(image, before, after, index, p=1, value=value)
        top, left, height, width = box_of(got != plain)
        part = got[:, top : top + height, left : left + width].astype(float)
        for c in range(3):
            np.testing.assert_allclose(part[c], want[c], atol=2e-6)
            assert after or want[c] != 0 or not part[c].any()  # exactly


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "uint8"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_types_and_layouts(dtype, layout):
    image = picture(60, 40)
    operations = [T.CenterCrop((40, 60)), T.ToDtype(dtype, scale=dtype != "uint8")]
    value = (1.0, 0.5, 0.25) if dtype != "uint8" else (1.0, 5.0, 25.0)
    for random in (Raw("RandomErasing", p=1, value=value), Raw("RandomErasing", p=1, mode=2)):
        outs = []
        for tail in ([], [random]):
            prepare = headrace.Preparer(operations + tail, layout=layout)
            out = torch.from_dlpack(prepare(png(image), index=3)).float().numpy()
            outs.append(out if layout == "NCHW" else out.transpose(2, 0, 1))
        top, left, height, width = box_of(outs[0] != outs[1]) if dtype != "uint8" else (0, 0, 1, 1)
        if "value" in random.parameters and dtype != "uint8":
            for c in range(3):
                assert (outs[1][c, top : top + height, left : left + width] == value[c]).all()


def test_random_values():
    image = picture(200, 200)
    plain, got = erased(image, FLOATS, [], 1, p=1, mode=2, scale=(0.3, 0.3), ratio=(1, 1))
    top, left, height, width = box_of(got != plain)
    noise = got[:, top : top + height, left : left + width]
    assert abs(noise.mean()) < 5 / math.sqrt(noise.size)
    assert abs(noise.std() - 1) < 0.02
    assert len(np.unique(noise)) > 0.99 * noise.size
    means = []
    for index in range(100):  # one number per channel
        plain, got = erased(image, FLOATS, [], index, p=1, mode=1, scale=(0.1, 0.1), ratio=(1, 1))
        top, left, height, width = box_of(got != plain)
        part = got[:, top : top + height, left : left + width]
        assert all(len(np.unique(channel)) == 1 for channel in part)
        means += list(part[:, 0, 0])
    assert len(set(means)) == 300
    assert abs(np.mean(means)) < 5 / math.sqrt(300)
    assert abs(np.std(means) - 1) < 0.25


def test_rectangles_have_torchvisions_distribution(v2):
    image = np.full((60, 80, 3), 9, np.uint8)
    boxes = []
    for index in range(600):
        _, got = erased(image, FLOATS[:1], [], index, p=1, value=(2, 2, 2))
        top, left, height, width = box_of(got == 2)
        boxes.append((top, left, height, width))
    torch.manual_seed(0)
    transform, tensor = v2.RandomErasing(p=1), torch.zeros(3, 60, 80)
    theirs = [transform.make_params([tensor]) for _ in range(600)]
    theirs = [(t["i"], t["j"], t["h"], t["w"]) for t in theirs if t["v"] is not None]
    for one, other in zip(np.array(boxes, float).T, np.array(theirs, float).T):
        both = np.sort(np.concatenate((one, other)))
        a = np.searchsorted(np.sort(one), both, "right") / len(one)
        b = np.searchsorted(np.sort(other), both, "right") / len(other)
        assert np.abs(a - b).max() < 1.95 * math.sqrt(2 / 600)  # K-S at 0.1 %


def test_probability_and_counts():
    image = np.full((50, 50, 3), 9, np.uint8)
    hits = sum(
        bool((erased(image, FLOATS[:1], [], i, p=0.3, value=(2, 2, 2))[1] == 2).any())
        for i in range(400)
    )
    assert abs(hits - 120) < 5 * math.sqrt(400 * 0.3 * 0.7)
    # timm divides the area by the count
    shares = []
    for index in range(100):
        _, got = erased(
            image, FLOATS[:1], [], index,
            p=1, value=(2, 2, 2), min_count=4, max_count=4, scale=(0.2, 0.2), ratio=(1, 1),
        )  # fmt: skip
        shares.append((got[0] == 2).mean())
    assert 0.1 < np.mean(shares) < 0.2  # 0.05 each, which may overlap
    assert max(shares) < 0.21


def test_what_follows_is_refused_by_name():
    erasing = Raw("RandomErasing")
    for name, step in (
        ("RandomHorizontalFlip", T.RandomHorizontalFlip()),
        ("CenterCrop", T.CenterCrop(4)),
        ("RandomInvert", Raw("RandomInvert")),
        ("ColorJitter", T.ColorJitter(0.5)),
    ):
        with pytest.raises(ValueError, match=f"{name}.*follows RandomErasing"):
            headrace.Preparer([T.CenterCrop(8), erasing, step])
    headrace.Preparer([T.CenterCrop(8), erasing, erasing, T.ToTensor(), erasing])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"p": -0.1}, "outside 0..1"),
        ({"scale": (0.5, 0.2)}, "smaller first"),
        ({"scale": (0, 1.2)}, "scale"),
        ({"ratio": (0, 1)}, "ratio"),
        ({"value": (0, 0, 300)}, "0..255"),
        ({"value": (0, 0, math.nan)}, "number"),
        ({"mode": 3}, "mode"),
        ({"min_count": 0}, "min_count"),
        ({"min_count": 3, "max_count": 2}, "max_count"),
        ({"max_count": 65}, "max_count"),
    ],
)
def test_wrong_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        headrace.Preparer([T.CenterCrop(8), Raw("RandomErasing", **parameters)])
    many = Raw("RandomErasing", min_count=1, max_count=40)
    with pytest.raises(ValueError, match="80 rectangles"):
        headrace.Preparer([T.CenterCrop(8), many, many])
