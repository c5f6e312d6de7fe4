"""Datasets of images with masks of class indices, against torchvision's transforms of masks."""

import json
import pickle
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
import torch
from PIL import Image

import headrace
import headrace.transforms as T
from agents import Agent
from headrace.torch import DataLoader

SIZES = [(60, 80), (75, 50), (64, 64), (40, 99), (33, 31)]  # height, width
FLOATS = T.ToDtype("float32", scale=True)


def palette_png(path, indices):
    image = Image.fromarray(indices)
    image.putpalette([(37 * i + c) % 256 for i in range(256) for c in range(3)])
    assert image.mode == "P"
    image.save(path)


def pixels(path):
    return torch.from_numpy(np.array(Image.open(path).convert("RGB"))).permute(2, 0, 1)


@pytest.fixture
def pairs(tmp_path):
    """Images, and masks in which each pixel tells where it was."""
    (tmp_path / "masks").mkdir()
    (tmp_path / "images").mkdir()
    found = []
    for n, (height, width) in enumerate(SIZES):
        rng = np.random.default_rng(n)
        image, mask = tmp_path / f"images/{n}.png", tmp_path / f"masks/{n}.png"
        Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(image)
        indices = rng.integers(0, 22, (height, width), dtype=np.uint8)
        indices[indices == 21] = 255
        palette_png(mask, indices) if n % 2 else Image.fromarray(indices, "L").save(mask)
        found.append((image, mask, torch.from_numpy(indices)))
    return found


def opened(pairs, transform=None):
    images, masks, _ = zip(*pairs)
    return headrace.ImageList(images, transform, masks=masks)


RECIPES = {
    "flips": lambda m: [m.RandomHorizontalFlip(1), m.RandomVerticalFlip(1), m.Resize((30, 70))],
    "grows": lambda m: [m.Resize((97, 133)), m.CenterCrop((50, 61))],
    "shrinks": lambda m: [m.CenterCrop((28, 31)), m.Resize((13, 17)), m.RandomVerticalFlip(1)],
    "shorter": lambda m: [m.Resize(50, max_size=77), m.CenterCrop(20)],
    "twice": lambda m: [m.Resize((45, 38)), m.RandomHorizontalFlip(1), m.Resize((71, 23))],
    "edges": lambda m: [m.Pad((3, 5, 7, 9), padding_mode="reflect"), m.CenterCrop(33)],
    "symmetric": lambda m: [m.Pad(9, padding_mode="symmetric"), m.Resize((40, 41))],
    "colours": lambda m: [
        m.RandomPhotometricDistort(),
        m.GaussianBlur(5),
        m.RandomEqualize(1),
        m.ColorJitter(0.3, 0.3),
        m.Resize((20, 44)),
    ],
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_masks_are_torchvisions_bit_for_bit(pairs, v2, recipe):
    from torchvision import tv_tensors

    theirs = v2.Compose(RECIPES[recipe](v2))
    for transform in (T.Compose(RECIPES[recipe](T)), theirs):  # ours, and theirs translated
        dataset = opened(pairs)
        loader = DataLoader(dataset, 5, transform=transform)
        assert loader.is_native
        ((images, masks),) = loader
        assert masks.dtype == torch.uint8 and masks.shape == images.shape[:1] + images.shape[2:]
        for mask, (_, _, stored) in zip(masks, pairs):
            image = torch.zeros((3, *stored.shape), dtype=torch.uint8)
            _, expected = theirs(image, tv_tensors.Mask(stored))
            assert torch.equal(mask, expected)


WARPS = {
    "affine": lambda m, f: [m.RandomAffine((30, 30), None, (1.25, 1.25), (10, 10), **f), m.Resize((41, 50))],
    "rotation": lambda m, f: [
        m.RandomRotation((-25, -25), expand=True, **f),
        m.Resize((40, 45)),
        m.RandomHorizontalFlip(1),
    ],
    "quarter": lambda m, f: [m.RandomRotation((90, 90), expand=True, **f), m.CenterCrop(30)],
    "half": lambda m, f: [m.RandomRotation((180, 180), **f), m.CenterCrop(30)],
    "two": lambda m, f: [
        m.Resize((60, 57)),
        m.RandomRotation((40, 40), center=(10, 20), **f),  # of 45, torch's ties depend on the machine
        m.RandomVerticalFlip(1),
        m.RandomAffine((-12, -12), None, (0.5, 0.5), **f),
        m.CenterCrop((40, 31)),
    ],
}


@pytest.mark.parametrize("warp", WARPS)
def test_warped_masks_are_torchvisions_bit_for_bit(pairs, v2, warp):
    from torchvision import tv_tensors

    fill = {tv_tensors.Image: 0, tv_tensors.Mask: 255, "others": 0}
    bilinear = v2.InterpolationMode.BILINEAR
    theirs = v2.Compose(WARPS[warp](v2, {"fill": fill, "interpolation": bilinear}))
    ours = T.Compose(WARPS[warp](T, {"interpolation": "bilinear"}))
    for transform in (ours, theirs):
        ((_, masks),) = DataLoader(opened(pairs), 5, transform=transform)
        for mask, (_, _, stored) in zip(masks, pairs):
            image = torch.zeros((3, *stored.shape), dtype=torch.uint8)
            _, expected = theirs(image, tv_tensors.Mask(stored))
            assert (mask == 255).any() or warp in ("quarter", "half")
            assert torch.equal(mask, expected)


def test_padding_is_ignored_as_in_torchvisions_references(pairs, v2):
    from torchvision import tv_tensors

    fill = {tv_tensors.Image: 7, tv_tensors.Mask: 255, "others": 0}
    theirs = v2.Compose([v2.Pad((3, 0, 8, 2), fill=fill), v2.Resize((49, 50))])
    ((_, masks),) = DataLoader(opened(pairs), 5, transform=theirs)
    for mask, (image, _, stored) in zip(masks, pairs):
        assert torch.equal(mask, theirs(pixels(image), tv_tensors.Mask(stored))[1])


def test_another_fill_of_masks_is_told(pairs, v2, recwarn):
    from torchvision import tv_tensors

    def told(transform):
        recwarn.clear()
        warnings.simplefilter("always")
        dataset = opened(pairs)
        DataLoader(dataset, 5, transform=transform)
        found = [str(one.message) for one in recwarn if "fill what they add" in str(one.message)]
        recwarn.clear()
        dataset.transform = transform
        dataset[0]
        assert found == [str(one.message) for one in recwarn if "fill what" in str(one.message)]
        return found

    fill = {tv_tensors.Image: 7, tv_tensors.Mask: 255}
    end = v2.CenterCrop(20)
    for transform in (
        [v2.RandomRotation(9, fill=fill), v2.Pad(3, fill=255), end],
        [v2.Pad(3, padding_mode="edge"), v2.RandomCrop(20), v2.RandomHorizontalFlip(), end],
        [T.RandomRotation(9), T.Pad(3), T.CenterCrop(20)],
    ):
        assert told(v2.Compose(transform) if transform[-1] is end else T.Compose(transform)) == []
    for transform, words in [
        (v2.RandomAffine(9), "(RandomAffine with 0)"),
        (v2.RandomPerspective(fill=None), "(RandomPerspective with 0)"),
        (v2.ElasticTransform(fill={tv_tensors.Image: 0, "others": 3}), "(ElasticTransform with 3)"),
        (T.RandomApply([v2.Pad(3)]), "(Pad with 0)"),
        (v2.RandomCrop(20, pad_if_needed=True, fill=9), "(RandomCrop with 9)"),
        (v2.RandomZoomOut(fill={tv_tensors.Image: 9}), "(RandomZoomOut with 0)"),
    ]:
        (found,) = told(T.Compose([transform, T.CenterCrop(20)]))
        assert words in found and "tv_tensors.Mask: 255" in found
    (found,) = told(v2.Compose([v2.Pad(3), v2.RandomRotation(9, fill=2), v2.Pad(4), end]))
    assert "(Pad with 0, RandomRotation with 2)" in found
    assert headrace.transforms.from_torchvision(v2.Pad(3)) == T.Compose([T.Pad(3)])
    without = headrace.ImageList([(image, 0) for image, _, _ in pairs])
    recwarn.clear()
    DataLoader(without, 5, transform=v2.Compose([v2.Pad(3), end]))
    assert not [one for one in recwarn if "fill" in str(one.message)]


def test_letter_box(tmp_path):
    for n, (height, width) in enumerate(SIZES):
        Image.new("RGB", (width, height)).save(tmp_path / f"{n}.png")
        Image.new("L", (width, height), 3).save(tmp_path / f"m{n}.png")
    images, masks = ([tmp_path / f"{kind}{n}.png" for n in range(5)] for kind in ("", "m"))
    dataset = headrace.ImageList(images, masks=masks)
    ((images, masks),) = DataLoader(dataset, 5, transform=T.LetterBox((64, 70), fill=9))
    assert torch.equal(masks, torch.where(images[:, 0] == 9, 255, 3))


def test_a_mask_follows_the_draws_of_its_image(tmp_path):
    """The image is its own mask: each pixel has one value, which is in the image what it is in the
    mask wherever the nearest pixel is taken."""
    grey = np.random.default_rng(1).integers(0, 250, (61, 83), dtype=np.uint8)
    Image.fromarray(grey).save(tmp_path / "grey.png")
    paths = [tmp_path / "grey.png"] * 40
    transform = T.Compose(
        [
            T.RandomApply([T.Pad((4, 2, 0, 3), fill=255)]),
            T.RandomChoice([T.RandomCrop((40, 50)), T.RandomZoomOut(fill=255, side_range=(1, 2), p=1)]),
            T.RandomResizedCrop((37, 41), interpolation="nearest", antialias=False),
            T.RandomPerspective(fill=255, interpolation="nearest"),
            T.RandomHorizontalFlip(),
            T.RandomApply([T.ElasticTransform(fill=255, interpolation="nearest")]),
            T.RandomVerticalFlip(),
            T.RandomCrop((50, 40), pad_if_needed=True, fill=255),
        ]
    )
    loader = DataLoader(headrace.ImageList(paths, masks=paths), 8, transform=transform, shuffle=True)
    shown = set()
    for images, masks in loader:
        assert torch.equal(images[:, 1], masks)
        shown |= {mask.numpy().tobytes() for mask in masks}
    assert len(shown) == 40


def test_masks_are_as_their_image_is_shown(tmp_path):
    grey = Image.fromarray(np.random.default_rng(1).integers(0, 250, (40, 61), dtype=np.uint8))
    exif = grey.getexif()
    exif[0x0112] = 6
    grey.save(tmp_path / "turned.png", exif=exif)
    grey.transpose(Image.Transpose.ROTATE_270).save(tmp_path / "mask.png")
    dataset = headrace.ImageList([tmp_path / "turned.png"], masks=[tmp_path / "mask.png"])
    loader = DataLoader(dataset, 1, transform=T.CenterCrop((50, 30)), apply_exif_orientation=True)
    ((images, masks),) = loader
    assert torch.equal(images[:, 0], masks)
    with pytest.raises(headrace.SampleError, match="its mask has 61 x 40 pixels .* the image 40 x 61"):
        list(DataLoader(dataset, 1, transform=T.CenterCrop((50, 30))))


def test_depths_and_kinds_of_png(tmp_path):
    indices = np.arange(24 * 40).reshape(24, 40) % 2
    Image.new("RGB", (40, 24)).save(tmp_path / "image.png")
    for bits, mode in [(1, "P"), (2, "P"), (4, "P"), (8, "P"), (8, "L"), (1, "1")]:
        stored = (indices * (2**bits - 1)).astype(np.uint8)
        image = Image.fromarray(stored.astype(bool) if mode == "1" else stored)
        if mode == "P":
            image.putpalette([200, 10, 20] * 2**bits)
        path = tmp_path / f"{bits}{mode}.png"
        image.save(path, **({"bits": bits} if mode == "P" else {}))
        dataset = headrace.ImageList([tmp_path / "image.png"], masks=[path])
        ((_, masks),) = DataLoader(dataset, 1, transform=T.CenterCrop((24, 40)))
        assert np.array_equal(masks[0], stored), (bits, mode)
        assert np.array_equal(dataset[0][1], stored)


def test_bad_masks_are_named_and_skipped(pairs, tmp_path):
    image, mask, stored = pairs[0]
    Image.new("RGB", (80, 60)).save(tmp_path / "colours.png")
    Image.new("L", (80, 60)).save(tmp_path / "grey.jpg")
    Image.new("L", (60, 80)).save(tmp_path / "turned.png")
    Image.new("LA", (80, 60)).save(tmp_path / "alpha.png")
    Image.fromarray(np.zeros((60, 80), np.uint16)).save(tmp_path / "deep.png")
    (tmp_path / "cut.png").write_bytes(mask.read_bytes()[:1000])
    for name, words in [
        ("colours.png", "its mask: the PNG has colours, and class indices are"),
        ("alpha.png", "its mask: the PNG has an alpha channel"),
        ("deep.png", "its mask: the PNG has 16 bits"),
        ("grey.jpg", "its mask is JPEG: masks are PNG files of class indices"),
        ("turned.png", r"its mask has 80 x 60 pixels \(height x width\), and the image 60 x 80"),
        ("cut.png", "its mask: damaged PNG"),
        ("nothing.png", r"its mask \(.*nothing.png\): cannot read it"),
    ]:
        bad = headrace.ImageList([image, *(i for i, _, _ in pairs)], masks=[tmp_path / name, *(m for _, m, _ in pairs)])
        for direct_io in (False, True):  # read by a worker; by the reader of many files
            loader = DataLoader(bad, 6, transform=T.Resize((60, 80)), direct_io=direct_io)
            with pytest.raises(headrace.SampleError, match=words):
                list(loader)
        left = DataLoader(
            bad, 6, transform=T.Resize((9, 9)), on_error="skip", max_bad_share=1, return_index=True
        )
        ((images, masks, index),) = left
        assert left.stats()["bad_samples"] == 1
        whole = DataLoader(bad, 1, transform=T.Resize((9, 9)), sampler=[int(index[0])])
        ((again, its),) = whole  # a stand-in has its own mask
        assert torch.equal(again[0], images[0]) and torch.equal(its[0], masks[0])


def flat(loader):
    return [
        (image.clone(), mask.clone()) for images, masks in loader for image, mask in zip(images, masks)
    ]


def same(a, b):
    return len(a) == len(b) and all(torch.equal(x, y) for p, q in zip(a, b) for x, y in zip(p, q))


def test_masks_are_read_with_their_images(pairs, tmp_path):
    """Reads go through the queue of reads, not a worker that waits for one after the other."""
    options = {"transform": T.RandomResizedCrop(20), "shuffle": True, "seed": 1, "epochs": 3}
    whole = DataLoader(opened(pairs * 8), 7, **options)
    expected = [flat(whole) for _ in range(3)]
    files = sum(image.stat().st_size + mask.stat().st_size for image, mask, _ in pairs) * 8
    assert whole.stats()["bytes_read"] == 3 * files
    for more in ({}, {"cache": "64MiB"}, {"cache": "64MiB", "cache_form": "planes"}):
        loader = DataLoader(opened(pairs * 8), 7, direct_io=True, **options, **more)
        assert all(same(flat(loader), epoch) for epoch in expected)
        assert loader.stats()["bytes_read"] == (files if more else 3 * files)
    part = DataLoader(opened(pairs * 8), 7, direct_io=True, **options)
    next(iter(part))  # what was read ahead is dropped
    assert same(flat(part), expected[1])


@pytest.fixture
def photographs(tmp_path):
    """JPEG files, which have every form, and masks of them."""
    draw, (images, masks) = np.random.default_rng(3), ([], [])
    for n in range(24):
        images.append(tmp_path / f"{n}.jpg")
        masks.append(tmp_path / f"{n}.png")
        coarse = draw.integers(0, 256, (6 + n % 3, 9, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((88 + n, 64)).save(images[-1], quality=80)
        palette_png(masks[-1], draw.integers(0, 21, (64, 88 + n), dtype=np.uint8))
    time.sleep(0.03)  # files of this moment are not kept
    return images, masks


def size_of(paths):
    return sum(path.stat().st_size for path in paths)


CROPS = {"transform": T.Compose([T.RandomResizedCrop(48), T.RandomHorizontalFlip()]), "seed": 1}


@pytest.mark.parametrize(
    "where, form",
    [
        *(("private", form) for form in ("encoded", "indexed", "coefficients", "planes", "auto")),
        *(("shm", form) for form in ("indexed", "planes")),
        *(("disk", form) for form in ("encoded", "coefficients")),
        ("memory and disk", "planes"),
    ],
)
def test_caches_keep_masks_with_their_images(photographs, kept, tmp_path, where, form):
    """After the first epoch neither is read, in whatever form the image is kept."""
    images, masks = photographs
    dataset = headrace.ImageList(images, masks=masks)
    disk = f"disk:{tmp_path}/kept?size=64MiB"
    cache = {"private": "64MiB", "shm": kept, "disk": disk, "memory and disk": f"64MiB,{disk}"}[where]
    options = {"shuffle": True, "epochs": 3, "cache": cache, "cache_form": form, **CROPS}
    truth = DataLoader(dataset, 5, shuffle=True, **CROPS)
    expected = [flat(truth) for _ in range(3)]
    for direct_io in (False, True):
        loader = DataLoader(dataset, 5, direct_io=direct_io, **options)
        assert all(same(flat(loader), epoch) for epoch in expected)
        found = loader.stats()
        is_warm = direct_io and where != "private"  # by the first loader
        assert found["bytes_read"] == (0 if is_warm else size_of(images) + size_of(masks))
        assert found["bad_samples"] == 0
    plain = headrace.ImageList([(path, 0) for path in images])
    loader = DataLoader(plain, 5, shuffle=True, cache=cache, **CROPS)
    pictures = [picture.clone() for batch, _ in loader for picture in batch]
    assert all(torch.equal(a, b) for a, (b, _) in zip(pictures, expected[0], strict=True))


@pytest.mark.parametrize("where", ["private", "disk"])
def test_a_mask_that_changes_is_read_again(photographs, tmp_path, where):
    images, masks = photographs
    dataset = headrace.ImageList(images, T.CenterCrop(40), masks=masks)
    cache = "64MiB" if where == "private" else f"disk:{tmp_path}/kept?size=64MiB"
    loader = DataLoader(dataset, 24, cache=cache)
    ((_, before),) = loader
    before = before.clone()
    palette_png(masks[7], np.full((64, 95), 20, np.uint8))
    for _ in range(2):  # the next epoch may have been read ahead
        ((_, after),) = loader
    assert (after[7] == 20).all()
    assert all(torch.equal(before[n], after[n]) for n in range(24) if n != 7)
    shuffled = headrace.ImageList(images, T.CenterCrop(40), masks=masks[:7] + masks[8:] + masks[7:8])
    masks[8:] = []  # those of the other sizes are bad: the kept ones must not stand for them
    with pytest.raises(headrace.SampleError, match="its mask has 64 x 96 pixels .* 64 x 95"):
        list(DataLoader(shuffled, 24, cache=cache))


def test_a_cache_is_warmed_with_masks(photographs, tmp_path):
    images, masks = photographs
    pack, cache = tmp_path / "x.hrpack", f"disk:{tmp_path}/kept?size=64MiB"
    headrace.pack(headrace.ImageList(images, masks=masks), pack)
    time.sleep(0.03)
    words = [sys.executable, "-m", "headrace", "cache", "warm", "--json", cache, pack]
    told = json.loads(subprocess.run(words, capture_output=True, check=True, timeout=600).stdout)
    assert told["cached"] == 24 and told["bad"] == 0
    dataset = headrace.Pack(pack)
    loader = DataLoader(dataset, 5, cache=cache, shuffle=True, **CROPS)
    assert same(flat(loader), flat(DataLoader(dataset, 5, shuffle=True, **CROPS)))
    assert loader.stats()["bytes_read"] == 0 and loader.stats()["disk_hits"] == 24


def test_an_agent_hands_over_masks(pairs, tmp_path):
    crop = T.Compose([T.RandomRotation(30), T.RandomResizedCrop((37, 41)), FLOATS])
    options = {"transform": crop, "shuffle": True, "seed": 3, "epochs": 2}
    dataset = opened(pairs * 6)
    some = torch.utils.data.Subset(dataset, [7, 3, 3, 20, 1, 11])
    with Agent() as agent:
        for data in (dataset, some):
            alone = DataLoader(data, 4, **options)
            shared = [DataLoader(data, 4, agent=agent.socket, **options) for _ in range(2)]
            for epoch in range(2):
                expected, held = flat(alone), list(shared[0])
                assert same(flat(shared[1]), expected)
                found = [pair for images, masks in held for pair in zip(images, masks)]
                assert same(found, expected)
        other = opened([*(pairs * 6)[1:], pairs[0]])
        assert same(
            flat(DataLoader(other, 4, agent=agent.socket, **options)),
            flat(DataLoader(other, 4, **options)),
        )
        images, masks, _ = zip(*pairs)
        bad = headrace.ImageList(images, masks=[*masks[:2], tmp_path / "nothing", *masks[3:]])
        left = DataLoader(
            bad, 5, transform=T.CenterCrop(20), agent=agent.socket, on_error="skip", max_bad_share=1
        )
        assert len(flat(left)) == 5 and left.stats()["bad_samples"] == 1


def test_a_pack_holds_masks(pairs, tmp_path):
    dataset, path = opened(pairs), tmp_path / "x.hrpack"
    told = headrace.pack(dataset, path)
    assert (told["samples"], told["masks"]) == (10, 5) and headrace.pack_info(path)["masks"] == 5
    pack = headrace.Pack(path)
    options = {"transform": T.RandomResizedCrop((37, 41)), "shuffle": True, "seed": 3}
    expected = flat(DataLoader(dataset, 3, **options))
    assert same(flat(DataLoader(pack, 3, **options)), expected)
    assert same(flat(DataLoader(pack, 3, direct_io=True, cache="64MiB", **options)), expected)
    assert same(flat(DataLoader(pickle.loads(pickle.dumps(pack)), 3, **options)), expected)
    some = [torch.utils.data.Subset(data, [4, 1, 1]) for data in (dataset, pack)]
    with Agent() as agent:
        assert same(flat(DataLoader(pack, 3, agent=agent.socket, **options)), expected)
        assert same(
            flat(DataLoader(some[1], 2, agent=agent.socket, **options)),
            flat(DataLoader(some[0], 2, **options)),
        )
    for n, (_, _, stored) in enumerate(pairs):
        assert np.array_equal(pack[n][1], stored)
    assert headrace.verify_pack(path) == [] and pack.verify() == []
    for image, mask, _ in pairs:
        image.rename(image.with_suffix(".image")), mask.rename(mask.with_suffix(".mask"))
    back = headrace.unpack(path, tmp_path)
    assert (back["samples"], back["masks"]) == (10, 5)
    for image, mask, _ in pairs:
        assert image.read_bytes() == image.with_suffix(".image").read_bytes()
        assert mask.read_bytes() == mask.with_suffix(".mask").read_bytes()
    assert (tmp_path / "list.txt").read_text() == "".join(f"images/{n}.png\t0\n" for n in range(5))
    with pytest.raises(NotImplementedError, match="if each is a file of its own"):
        headrace.pack(pack, tmp_path / "y.hrpack")
    with pytest.raises(ValueError, match="masks or rows, once"):
        pack.with_masks([mask for _, mask, _ in pairs])
    whole = bytearray(path.read_bytes())
    whole[whole.index(pairs[2][1].read_bytes()) + 20] ^= 1
    path.write_bytes(whole)
    (bad,) = headrace.verify_pack(path)
    assert bad.index == 2 and "its mask" in bad.reason and "checksum" in bad.reason


def test_bad_masks_are_found_before_training(pairs, tmp_path):
    images, masks, _ = zip(*pairs)
    Image.new("L", (60, 80)).save(tmp_path / "turned.png")
    Image.new("RGB", (50, 75)).save(tmp_path / "colours.png")
    masks = [tmp_path / "turned.png", tmp_path / "colours.png", tmp_path / "nothing", *masks[3:]]
    dataset = headrace.ImageList(images, masks=masks)
    found = {bad.index: bad.reason for bad in dataset.verify()}
    assert list(found) == [0, 1, 2] and all("its mask (" in reason for reason in found.values())
    assert "it has 80 x 60 pixels" in found[0] and "the PNG has colours" in found[1]
    with pytest.raises(headrace.SampleError, match="sample 0 .*turned.png.*it has 80 x 60 pixels"):
        headrace.pack(dataset, tmp_path / "x.hrpack")
    masks[0] = pairs[0][1]
    with pytest.raises(headrace.SampleError, match="colours.png.*the PNG has colours"):
        headrace.pack(headrace.ImageList(images, masks=masks), tmp_path / "y.hrpack")
    masks[1] = pairs[1][1]
    with pytest.raises(headrace.SampleError, match="nothing"):
        headrace.pack(headrace.ImageList(images, masks=masks), tmp_path / "z.hrpack")


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_pack_refuses_masks_of_other_sizes(pairs, tmp_path, jobs):
    pairs = pairs * 20
    images, masks, _ = map(list, zip(*pairs))
    masks[71] = masks[72]  # of another size
    dataset, path = headrace.ImageList(images, masks=masks), tmp_path / "x.hrpack"
    with pytest.raises(headrace.SampleError, match=r"sample 71 \(.*2.png\): its mask: it has"):
        headrace.pack(dataset, path, jobs=jobs)
    told = headrace.pack(dataset, path, jobs=jobs, on_error="skip")
    (bad,) = told["bad"]
    assert bad.index == 71 and bad.path == str(masks[72]) and "and the image" in bad.reason
    (bad,) = headrace.verify_pack(path)
    assert bad.index == 71


@pytest.mark.parametrize("sizes", ["one", "several"])
def test_resume_ranks_subsets_and_caches_give_the_same_masks(pairs, sizes):
    dataset = opened(pairs * 6)
    options = {"shuffle": True, "seed": 3}
    crop = T.RandomResizedCrop((37, 41))
    options["transform"] = T.Compose([T.RandomHorizontalFlip(), crop, FLOATS])
    if sizes == "several":
        options["transform"] = T.Compose([T.RandomShortestSize([24, 31, 40], 60), FLOATS])
        options["collate"] = "list"
    loader = DataLoader(dataset, 5, **options)
    whole, second = flat(loader), flat(loader)
    assert not same(whole, second)
    stopped = DataLoader(dataset, 5, **options)
    taken = iter(stopped)
    next(taken), next(taken)
    again = DataLoader(dataset, 5, **options)
    again.load_state_dict(json.loads(json.dumps(stopped.state_dict())))
    assert same(flat(again), whole[10:])
    ranks = [flat(DataLoader(dataset, 5, rank=r, world_size=2, **options)) for r in range(2)]
    assert same([one for pair in zip(*ranks) for one in pair], whole)
    cached = DataLoader(dataset, 5, cache="64MiB", cache_form="planes", epochs=3, **options)
    assert same(flat(cached), whole) and same(flat(cached), second)
    # The second epoch is read ahead before all of the first is kept. The third hits.
    assert len(flat(cached)) == 30
    assert cached.stats()["cache_hits"] >= 30
    part = torch.utils.data.Subset(torch.utils.data.Subset(dataset, [1, 7, 2]), [1, 2, 2])
    for index, (_, mask) in zip((2, 2, 2), flat(DataLoader(part, 3, transform=T.CenterCrop(20)))[1:]):
        height, width = SIZES[index]
        top, left = int(round((height - 20) / 2)), int(round((width - 20) / 2))
        assert torch.equal(mask, pairs[index][2][top : top + 20, left : left + 20])
    copied = pickle.loads(pickle.dumps(dataset))
    assert same(flat(DataLoader(copied, 5, **options)), whole)
    other = opened([*(pairs * 6)[1:], pairs[0]])
    assert dataset._dataset.names_digest() == copied._dataset.names_digest()
    assert dataset._dataset.names_digest() != other._dataset.names_digest()


def test_padded_masks(pairs):
    ((images, masks),) = DataLoader(
        opened(pairs), 5, transform=T.RandomShortestSize(31, 47), collate="pad"
    )
    assert masks.shape == (5, *images.tensors.shape[2:])
    assert (masks[images.mask] == 255).all()
    for mask, image, (_, _, stored) in zip(masks, images.unpadded(), pairs):
        height, width = image.shape[1:]
        assert set(mask[:height, :width].unique().tolist()) <= set(stored.unique().tolist())
    collated = DataLoader(
        opened(pairs), 5, transform=T.RandomShortestSize(31, 47), collate="pad", collate_fn=list
    )
    for image, mask in next(iter(collated)):
        assert image.shape[1:] == mask.shape


def test_one_sample(pairs):
    dataset = opened(pairs)
    for n, (path, _, stored) in enumerate(pairs):
        image, mask = dataset[n]
        assert np.array_equal(mask, stored) and np.array_equal(image, pixels(path))
    dataset.transform = T.Compose([T.CenterCrop(20), FLOATS])
    image, mask = dataset[1]
    assert image.shape == (3, 20, 20) and np.array_equal(mask, pairs[1][2][28:48, 15:35])
    dataset.transform = T.RandomShortestSize(31, 47)  # each in a size of its own
    loader = DataLoader(opened(pairs), 5, transform=dataset.transform, collate="list")
    for (image, mask), its_image, its_mask in zip(dataset, *next(iter(loader))):
        assert np.array_equal(image, its_image) and np.array_equal(mask, its_mask)


def test_folders(pairs, tmp_path):
    dataset = headrace.SegmentationFolder(tmp_path / "images", tmp_path / "masks", T.Resize((9, 9)))
    (first, *_) = DataLoader(dataset, 5)
    ((_, expected),) = DataLoader(opened(pairs), 5, transform=T.Resize((9, 9)))
    assert torch.equal(first[1], expected)
    assert len(pickle.loads(pickle.dumps(dataset))) == 5
    (tmp_path / "masks/3.png").unlink()
    with pytest.raises(FileNotFoundError, match="images/3.png has no mask: no .*masks/3.png"):
        headrace.SegmentationFolder(tmp_path / "images", tmp_path / "masks")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no image below"):
        headrace.SegmentationFolder(tmp_path / "empty", tmp_path / "masks")


def test_voc(tmp_path, torchvision):
    place = tmp_path / "VOCdevkit/VOC2012"
    for folder in ("ImageSets/Segmentation", "SegmentationClass", "JPEGImages"):
        (place / folder).mkdir(parents=True)
    (place / "ImageSets/Segmentation/val.txt").write_text("b\na\n")
    for n, name in enumerate("ab"):
        Image.new("RGB", (50, 40)).save(place / f"JPEGImages/{name}.jpg")
        palette_png(place / f"SegmentationClass/{name}.png", np.full((40, 50), 15 + n, np.uint8))
    dataset = headrace.VOCSegmentation(tmp_path, image_set="val", transform=T.Resize((20, 20)))
    ((_, masks),) = DataLoader(dataset, 2)
    assert masks[0].unique().tolist() == [16] and masks[1].unique().tolist() == [15]
    assert dataset.classes[15] == "person" and len(pickle.loads(pickle.dumps(dataset))) == 2
    theirs = DataLoader(torchvision.datasets.VOCSegmentation(tmp_path, image_set="val"), collate_fn=list)
    assert "headrace.VOCSegmentation reads the same files natively" in theirs.explain()
    with pytest.raises(ValueError, match="download is not supported"):
        headrace.VOCSegmentation(tmp_path, download=True)
    with pytest.raises(FileNotFoundError):
        headrace.VOCSegmentation(tmp_path, image_set="train")


def test_what_does_not_go_with_masks_is_refused(pairs, tmp_path, v2):
    dataset = opened(pairs)
    crop = T.CenterCrop(20)
    for transform, options, words in [
        (T.Compose([T.RandAugment(), crop]), {}, "RandAugment.*does not move the dataset's masks"),
        (T.Views([crop, crop]), {}, "2 views, and the dataset's masks"),
        (crop, {"mix": v2.CutMix(num_classes=3)}, "MixUp and CutMix .* masks"),
        (v2.Compose([v2.CenterCrop(20), lambda image: image]), {}, "has masks, which move with"),
    ]:
        with pytest.raises(ValueError, match=words):
            DataLoader(dataset, 2, transform=transform, **options)
    with pytest.raises(ValueError, match="there are 5 images and 4 masks"):
        headrace.ImageList([i for i, _, _ in pairs], masks=[m for _, m, _ in pairs[1:]])
    with pytest.raises(ValueError, match="masks or rows"):
        dataset.with_rows([{"boxes": []}] * 5)
    with pytest.raises(ValueError, match="masks or rows, once"):
        dataset.with_masks([m for _, m, _ in pairs])
    dataset.transform = v2.Compose([v2.CenterCrop(20), lambda image: image])
    with pytest.raises(headrace.SampleError, match="masks have to move with the pixels"):
        dataset[0]


def test_a_collate_fn_gets_pairs(pairs):
    loader = DataLoader(
        opened(pairs), 5, transform=T.CenterCrop(20), collate_fn=lambda batch: tuple(zip(*batch))
    )
    ((images, masks),) = loader
    assert images[2].shape == (3, 20, 20) and masks[2].shape == (20, 20)
