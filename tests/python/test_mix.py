"""MixUp and CutMix in the loader against torchvision's arithmetic on the unmixed batches."""

import pytest
import torch

import headrace.transforms as T
from headrace.torch import DataLoader

CLASSES = 11


def loader(folder, dtype=torch.float32, **arguments):
    transform = [T.RandomResizedCrop(24), T.ToDtype(dtype, scale=True)]
    return DataLoader(folder, 5, shuffle=True, transform=transform, num_workers=2, **arguments)


@pytest.fixture
def dataset(folder):
    import headrace

    return headrace.ImageFolder(folder)


def probabilities(labels, own):
    hot = torch.nn.functional.one_hot(labels, CLASSES).float()
    return hot.roll(1, 0).mul_(1.0 - own).add_(hot.mul(own))


def share_of(labels, mixed):
    """The share that turns the labels into the mixed probabilities."""
    apart = (labels != labels.roll(1, 0)).nonzero()[0, 0]
    return float(mixed[apart, labels[apart]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_mixup_is_torchvisions(dataset, v2, dtype):
    mix = v2.MixUp(alpha=0.7, num_classes=CLASSES)
    for (images, labels), (mixed, probability) in zip(
        loader(dataset, dtype), loader(dataset, dtype, mix=mix)
    ):
        own = share_of(labels, probability)
        assert probability.shape == (len(labels), CLASSES)
        torch.testing.assert_close(probability, probabilities(labels, own))
        expected = images.roll(1, 0).mul_(1.0 - own).add_(images.mul(own))
        # The share is read from a float32 here, and is a double in the loader.
        close = {torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 1e-2}[dtype]
        torch.testing.assert_close(mixed, expected, rtol=0, atol=close)


def test_cutmix_takes_a_box_of_the_sample_before(dataset, v2):
    boxes = 0
    for (images, labels), (mixed, probability) in zip(
        loader(dataset), loader(dataset, mix=v2.CutMix(num_classes=CLASSES))
    ):
        other = images.roll(1, 0)
        differs = (mixed != images).any(1).any(0)  # pixels that were replaced somewhere
        rows, columns = differs.any(1).nonzero(), differs.any(0).nonzero()
        own = share_of(labels, probability)
        if len(rows) == 0:
            assert own == 1
            continue
        y1, y2 = int(rows[0]), int(rows[-1]) + 1
        x1, x2 = int(columns[0]), int(columns[-1]) + 1
        expected = images.clone()
        expected[..., y1:y2, x1:x2] = other[..., y1:y2, x1:x2]
        assert torch.equal(mixed, expected)
        assert own == pytest.approx(1 - (y2 - y1) * (x2 - x1) / 24**2, abs=1e-6)
        boxes += 1
    assert boxes


def test_choice_share_classes_and_resume(dataset, v2):
    mix = v2.RandomChoice([v2.CutMix(num_classes=CLASSES), v2.MixUp(num_classes=CLASSES)], [3, 1])
    one, other = loader(dataset, mix=mix), loader(dataset, mix=mix)
    batches = iter(one)
    next(batches)
    other.load_state_dict(one.state_dict())
    for (a, x), (b, y) in zip(batches, other):
        assert torch.equal(a, b) and torch.equal(x, y)
    rarely = loader(dataset, mix=v2.RandomApply([v2.MixUp(num_classes=CLASSES)], p=0.0))
    for (images, labels), (same, probability) in zip(loader(dataset), rarely):
        assert torch.equal(images, same)
        assert torch.equal(probability, torch.nn.functional.one_hot(labels, CLASSES).float())
    _, probability = next(iter(loader(dataset, mix=v2.MixUp())))
    assert probability.shape[1] == len(dataset.classes)


def test_a_choice_of_torchvisions_v1(dataset, v1, v2):
    """Its weights are None by default."""
    mix = v1.RandomChoice([v2.MixUp(num_classes=CLASSES), v2.CutMix(num_classes=CLASSES)])
    _, labels = next(iter(loader(dataset, mix=mix)))
    assert labels.shape[1] == CLASSES


def test_what_cannot_be_mixed_is_refused(dataset, v2):
    with pytest.raises(TypeError, match="give torchvision's v2.MixUp"):
        loader(dataset, mix=v2.RandomErasing())
    with pytest.raises(ValueError, match="add a ToDtype"):
        loader(dataset, torch.uint8, mix=v2.MixUp(num_classes=CLASSES))
    with pytest.raises(ValueError, match="mix the batches in training"):
        next(iter(loader(dataset, mix=v2.MixUp(num_classes=CLASSES), agent="auto")))
    with pytest.raises(ValueError, match="num_classes=1: it must be larger than every label"):
        for _ in loader(dataset, mix=v2.MixUp(num_classes=1)):
            pass
