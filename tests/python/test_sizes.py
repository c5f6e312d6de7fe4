"""Batches of images that differ in size: padded tensors and lists."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import headrace
import headrace.transforms as T
from agents import Agent
from headrace.torch import DataLoader, Padded

SIZES = [(60, 80), (75, 50), (64, 64), (40, 99), (33, 31), (97, 45), (50, 120)]  # height, width
FLOATS = T.ToDtype("float32", scale=True)
DETR = T.Compose([T.RandomHorizontalFlip(), T.RandomShortestSize([24, 31, 40], 60), FLOATS])


@pytest.fixture
def photos(tmp_path):
    for n, (height, width) in enumerate(SIZES):
        noise = np.random.default_rng(n).integers(1, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(noise).save(tmp_path / f"{n}.png")
    return [(tmp_path / f"{n}.png", n) for n in range(len(SIZES))]


def shown(height, width, shortest, longest):
    """The size that RandomShortestSize makes."""
    factor = min(shortest / min(height, width), longest / max(height, width))
    return int(height * factor), int(width * factor)


@pytest.mark.parametrize("layout", ["NCHW", "channels_last"])
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
def test_an_image_has_the_pixels_that_a_fixed_size_gives(photos, layout, dtype):
    dataset = headrace.ImageList(photos)
    options = {"dtype": dtype, "layout": layout}
    transform = T.RandomShortestSize(31, 47)
    loader = DataLoader(dataset, 7, transform=transform, collate="list", **options)
    ((images, labels),) = loader
    assert labels.tolist() == list(range(7))
    for n, image in enumerate(images):
        size = shown(*SIZES[n], 31, 47)
        fixed = DataLoader(dataset, 1, transform=T.Resize(size), sampler=[n], **options)
        ((expected, _),) = fixed
        assert image.shape == (3, *size)
        assert torch.equal(image, expected[0])


@pytest.mark.parametrize(
    "transform",
    [
        T.Compose([T.RandomIoUCrop(), T.Resize(20, max_size=60), T.RandomPhotometricDistort()]),
        T.Compose([T.Resize(20, max_size=60), T.RandomZoomOut(fill=7, side_range=(1, 2)), T.Pad(3)]),
        T.Compose([T.RandomShortestSize(31, 47), T.GaussianBlur(3), T.RandomErasing(1, value=9)]),
        T.RandomApply([T.CenterCrop((33, 70))]),
    ],
    ids=["crop", "canvas", "filter", "maybe"],
)
def test_each_path_writes_only_its_part(photos, transform):
    boxes = [{"boxes": [[3, 4, 20, 25]], "labels": [1]}] * len(photos)
    dataset = headrace.ImageList(photos, rows=boxes)
    options = {"transform": transform, "collate": "pad", "max_size": 256, "seed": 5}
    alone = [images.tensors for images, _ in DataLoader(dataset, 1, **options)]
    ((together, targets),) = DataLoader(dataset, 7, **options)
    assert len({image.shape for image in alone}) > 2
    for n, image in enumerate(together.unpadded()):
        assert torch.equal(image, alone[n][0])
        assert image.amax() > 0 and (targets[n]["boxes"][:, 2] <= image.shape[2]).all()
    assert together.tensors.masked_select(together.mask[:, None]).sum() == 0


def test_padding_is_zero_when_places_are_used_again(photos, tmp_path):
    (tmp_path / "bad.png").write_bytes(photos[0][0].read_bytes()[:900])
    dataset = headrace.ImageList([*photos * 20, (tmp_path / "bad.png", 0)])
    loader = DataLoader(
        dataset, 4, shuffle=True, transform=DETR, collate="pad", on_error="skip", num_workers=3
    )
    places = set()
    for _ in range(2):
        for images, labels in loader:
            places.add(images.tensors.data_ptr())
            assert images.tensors.shape[2:] == tuple(images.sizes.amax(0).tolist())
            assert images.tensors.shape[:2] == (len(labels), 3)
            for image, (height, width) in zip(images.tensors, images.sizes.tolist()):
                assert image[:, :height, :width].amin() > 0
                assert image[:, height:].sum() == 0 and image[:, :, width:].sum() == 0
            assert (images.mask.sum((1, 2)) == images.mask[0].numel() - images.sizes.prod(1)).all()
            images.tensors.sub_(0.5)  # padding too, as a loop that normalises in place does
    assert len(places) < 72  # of 72 batches
    assert loader.stats()["bad_samples"] == 2


def test_padded_is_what_detr_takes(photos):
    dataset = headrace.ImageList(photos)
    ((images, _),) = DataLoader(dataset, 7, transform=DETR, collate="pad")
    tensors, mask = images.decompose()
    assert mask.dtype == torch.bool and mask.shape == (7, *tensors.shape[2:])
    for image, its, (height, width) in zip(tensors, mask, images.sizes.tolist()):
        assert not its[:height, :width].any() and its[height:].all() and its[:, width:].all()
        assert torch.equal(its, image.sum(0) == 0)
    moved = Padded(*(part.to("meta") for part in images))  # as frameworks move tuples
    assert moved.mask.shape == mask.shape and moved.mask.device.type == "meta"


def flat(loader):
    return [
        (image.clone(), int(label))
        for images, labels in loader
        for image, label in zip(images, labels)
    ]


def same(a, b):
    return len(a) == len(b) and all(x[1] == y[1] and torch.equal(x[0], y[0]) for x, y in zip(a, b))


def test_resume_ranks_and_caches_give_the_same_images(photos):
    dataset = headrace.ImageList(photos * 4)
    options = {"transform": DETR, "shuffle": True, "seed": 3, "collate": "list"}
    loader = DataLoader(dataset, 4, **options)
    whole, second = flat(loader), flat(loader)
    stopped = DataLoader(dataset, 4, **options)
    taken = iter(stopped)
    next(taken), next(taken)
    state = json.loads(json.dumps(stopped.state_dict()))
    again = DataLoader(dataset, 4, **options)
    again.load_state_dict(state)
    assert same(flat(again), whole[8:])
    ranks = [flat(DataLoader(dataset, 2, rank=r, world_size=2, **options)) for r in range(2)]
    assert same([one for pair in zip(*ranks) for one in pair], whole)
    for form in ("encoded", "planes"):
        cached = DataLoader(dataset, 4, cache="64MiB", cache_form=form, epochs=2, **options)
        assert same(flat(cached), whole) and same(flat(cached), second)


def images_of(photos, v2):
    """Returns the photos as FLOATS makes them."""
    found = [torch.from_numpy(np.array(Image.open(path))).permute(2, 0, 1) for path, _ in photos]
    return [v2.functional.to_dtype(image, torch.float32, scale=True) for image in found]


def test_photos_without_a_size_need_a_declared_one(photos, v2):
    dataset = headrace.ImageList(photos)
    with pytest.raises(ValueError, match="nothing limits the size .* set max_size"):
        DataLoader(dataset, 2, transform=FLOATS, collate="list")
    ((images, _),) = DataLoader(dataset, 7, transform=FLOATS, collate="list", max_size=(97, 120))
    assert all(torch.equal(a, b) for a, b in zip(images, images_of(photos, v2)))
    small = DataLoader(dataset, 2, transform=FLOATS, collate="pad", max_size=(97, 100))
    with pytest.raises(headrace.SampleError, match=r"makes 50 x 120 .* room for 97 x 100: raise max_"):
        list(small)
    left = DataLoader(
        dataset, 7, transform=FLOATS, collate="pad", max_size=(97, 100), on_error="skip", max_bad_share=1
    )
    ((images, _),) = left
    assert images.tensors.shape == (7, 3, 97, 99)
    # without a transform they are as they are
    plain = DataLoader(dataset, 7, collate="list", max_size=(97, 120), dtype="float32")
    assert all(torch.equal(a, b) for a, b in zip(next(iter(plain))[0], images_of(photos, v2)))
    # batches reserve the least that transform and max_size allow
    for max_size, side in [(None, 60), (50, 50), (100, 60)]:
        loader = DataLoader(dataset, 2, transform=DETR, collate="pad", max_size=max_size)
        assert 0 < loader.stats()["slot_bytes"] - 2 * 3 * 4 * side * side < 200


def test_a_collate_fn_gets_images_of_their_size(photos):
    rows = [{"boxes": [[0, 0, width, height]], "labels": [n]} for n, (height, width) in enumerate(SIZES)]
    dataset = headrace.ImageList([path for path, _ in photos], rows=rows)
    for collate in ("list", "pad"):
        loader = DataLoader(
            dataset, 7, transform=DETR, collate=collate, collate_fn=lambda batch: tuple(zip(*batch))
        )
        ((images, targets),) = loader
        for image, target in zip(images, targets):
            box = target["boxes"][0]
            assert torch.allclose(box, torch.tensor([0.0, 0, image.shape[2], image.shape[1]]))


def test_torchvisions_preset_for_several_sizes(photos, v2):
    preset = v2.Compose(
        [
            v2.ToImage(),
            v2.RandomHorizontalFlip(),
            v2.RandomShortestSize([24, 31], max_size=60),
            v2.ToDtype(torch.float32, scale=True),
        ]
    )
    loader = DataLoader(headrace.ImageList(photos), 7, transform=preset, collate="list")
    assert loader.is_native
    ((images, _),) = loader
    for image, size in zip(images, SIZES):
        assert tuple(image.shape[1:]) in (shown(*size, 24, 60), shown(*size, 31, 60))


def test_a_dataset_gives_each_image_in_its_size(photos):
    sizes = [shown(*size, 31, 47) for size in SIZES]
    rows = [{"boxes": [[0, 0, width, height]], "labels": [n]} for n, (height, width) in enumerate(SIZES)]
    paths = [path for path, _ in photos]
    steps = T.Compose([T.RandomShortestSize(31, 47), FLOATS])
    ((expected, _),) = DataLoader(headrace.ImageList(photos), 7, transform=steps, collate="list")
    boxed = headrace.ImageList(paths, steps, rows=rows)
    for n, (height, width) in enumerate(sizes):
        image, target = boxed[n]
        assert np.array_equal(image, expected[n].numpy()) and image.flags.c_contiguous
        assert np.allclose(target["boxes"], [[0, 0, width, height]])
    larger = headrace.ImageList(photos, T.Resize(64))  # than the image, and nothing limits it
    assert larger[4][0].shape == (3, 68, 64)
    with pytest.raises(headrace.SampleError, match="makes 990 x 930 .*give the recipe's Resize a max_s"):
        headrace.ImageList(photos, T.Resize(930))[4]
    with pytest.raises(headrace.SampleError, match="NumPy has no bfloat16.*collate='list'"):
        headrace.ImageList(photos, [T.RandomShortestSize(31, 47), T.ToDtype("bfloat16", scale=True)])[0]


def test_a_dataset_gives_the_views_of_an_image(photos):
    views = T.Views([T.Resize((20, 30)), T.Resize((9, 9))])
    image, label = headrace.ImageList(photos, T.Compose([views, FLOATS]))[3]
    assert [view.shape for view in image] == [(3, 20, 30), (3, 9, 9)] and label == 3


def test_what_does_not_go_with_several_sizes_is_refused(photos, v2):
    dataset = headrace.ImageList(photos)
    for options, words in [
        ({"collate": "stack"}, "collate must be 'pad', 'list' or None"),
        ({"max_size": 9}, "add collate="),
        ({"collate": "pad", "max_size": (1, 2, 3)}, "max_size must be a number or"),
        ({"collate": "pad", "layout": "NHWC"}, "channels_last"),
        ({"collate": "pad", "mix": v2.MixUp(num_classes=7)}, "MixUp and CutMix need samples of one"),
        ({"collate_fn": list, "collate": "pad"}, "give a collate_fn that pads"),
    ]:
        with pytest.raises(ValueError, match=words):
            DataLoader(dataset, 2, transform=DETR, **options)
    with pytest.raises(ValueError, match='no fixed size.*collate="pad"'):
        DataLoader(dataset, 2, transform=DETR)
    views = T.Views([T.Resize(20, max_size=30), T.Resize((9, 9))])
    with pytest.raises(ValueError, match="several views of one image have fixed sizes"):
        DataLoader(dataset, 2, transform=views, collate="pad")
    with pytest.raises(ValueError, match="PadOrTrim or a window says how long"):
        DataLoader(dataset, 2, transform=[T.Mono(), T.PadOrTrim(9)], collate="pad", max_size=9)


def test_an_agent_hands_over_several_sizes(photos):
    """The same batches and sizes, leased and copied, also where a slot held larger images before."""
    options = {"transform": DETR, "collate": "pad", "shuffle": True, "seed": 3, "max_size": 70}
    with Agent() as agent:
        for batch_size in (2, 5):
            alone = DataLoader(headrace.ImageList(photos), batch_size, **options)
            shared = DataLoader(
                headrace.ImageList(photos), batch_size, agent=agent.socket, **options
            )
            for _ in range(3):
                expected = list(alone)
                for (images, labels), (wanted, ids) in zip(shared, expected, strict=True):
                    assert torch.equal(images.sizes, wanted.sizes)
                    assert torch.equal(images.tensors, wanted.tensors)
                    assert torch.equal(labels, ids)
                    images.tensors.fill_(1)  # the next batches there have zeros around images
