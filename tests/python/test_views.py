"""Views: several tensors of each image, in the loader and in the preparer."""

import numpy as np
import pytest
import torch

import headrace
import headrace.transforms as T
from headrace.torch import DataLoader

DINO = [
    T.Views(
        [
            [T.RandomResizedCrop(32, scale=(0.4, 1.0)), T.RandomHorizontalFlip()],
            [T.RandomResizedCrop(16, scale=(0.05, 0.4)), T.ColorJitter(0.4)],
        ],
        repeats=[2, 3],
    ),
    T.ToTensor(),
]


def test_a_batch_has_a_list_of_tensors(folder):
    dataset = headrace.ImageFolder(folder)
    loader = DataLoader(dataset, 4, shuffle=True, transform=DINO, return_index=True)
    prepare = headrace.Preparer(DINO)
    for views, labels, indices in loader:
        assert [tuple(v.shape[1:]) for v in views] == [(3, 32, 32)] * 2 + [(3, 16, 16)] * 3
        assert all(len(v) == len(labels) for v in views)
        for place, index in enumerate(indices.tolist()):
            with open(dataset.samples[index][0], "rb") as f:
                alone = prepare(f.read(), seed=0, epoch=0, index=index)
            assert isinstance(alone, tuple)
            for view, one in zip(views, alone):
                assert torch.equal(view[place], torch.from_numpy(np.asarray(one)))


def test_the_first_view_is_that_of_a_plain_loader(folder):
    dataset = headrace.ImageFolder(folder)
    plain = [DINO[0].transforms[0], T.ToTensor()]
    for (views, _), (images, _) in zip(
        DataLoader(dataset, 5, transform=DINO), DataLoader(dataset, 5, transform=plain)
    ):
        assert torch.equal(views[0], images)
        assert not torch.equal(views[1], images)


def test_layouts_types_and_one_view(folder):
    dataset = headrace.ImageFolder(folder)
    two = T.Views([T.RandomResizedCrop(8), T.RandomResizedCrop(9)])
    for layout, shape in [("NHWC", (8, 8, 3)), ("channels_last", (3, 8, 8))]:
        views, _ = next(iter(DataLoader(dataset, 2, transform=two, layout=layout, dtype="float16")))
        assert views[0].shape[1:] == shape and views[0].dtype == torch.float16
    images, _ = next(iter(DataLoader(dataset, 2, transform=T.Views([T.CenterCrop(8)]))))
    assert isinstance(images, torch.Tensor)


class Sum:
    def __call__(self, image):
        return image.double().sum()


def test_a_python_tail_gets_each_view(folder):
    dataset = headrace.ImageFolder(folder)
    native = DataLoader(dataset, 4, transform=DINO)
    with_tail = DataLoader(headrace.ImageFolder(folder, [*DINO, Sum()]), 4)
    for (views, _), (sums, _) in zip(native, with_tail, strict=True):
        assert len(views) == len(sums) == 5
        for view, each in zip(views, sums):
            assert torch.equal(view.double().sum((1, 2, 3)), each)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="Views comes twice"):
        headrace.Preparer([T.Views([T.CenterCrop(8)]), T.Views([T.CenterCrop(8)])])
    with pytest.raises(ValueError, match="put it into Views"):
        headrace.Preparer([T.RandomHorizontalFlip(), T.Views([T.CenterCrop(8)])])
    with pytest.raises(ValueError, match="not in another transform"):
        headrace.Preparer(T.RandomApply([T.Views([T.CenterCrop(8)])]))
    with pytest.raises(ValueError, match="2 repeats for 1 transforms"):
        T.Views([T.CenterCrop(8)], repeats=[1, 2])
    with pytest.raises(ValueError, match="exact=False"):
        headrace.Preparer(DINO, exact=False)
    with pytest.raises(ValueError, match="40 views are not possible"):
        headrace.Preparer(T.Views([T.CenterCrop(8), T.CenterCrop(9)], repeats=[20, 20]))
    assert eval(repr(DINO[0]), vars(T)) == DINO[0]
