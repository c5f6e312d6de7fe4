"""Damaged images that are accepted: those that Pillow decodes by default, with its pixels."""

import io
import random

import numpy as np
import pytest
import torch
from PIL import Image

import headrace
import headrace.transforms as T
from agents import Agent
from conftest import encode, synthetic
from headrace.torch import DataLoader
from servers import Memcached

STEPS = [T.RandomResizedCrop(24), T.ToTensor()]


def originals() -> list[bytes]:
    image = synthetic(150, 111, 1)
    return [
        encode(image),
        encode(image, progressive=True),
        encode(image, restart_marker_blocks=4),
        encode(image, subsampling=0),
        encode(image, "PNG"),
        encode(image.quantize(64), "PNG"),
    ]


def damage(data: bytes, rng: random.Random) -> bytes:
    """Damages an image: flipped bits, misplaced markers, or an early end."""
    out = bytearray(data)
    kind = rng.randrange(4)
    if kind < 2:
        for _ in range(1 + 4 * kind):
            at = rng.randrange(len(out) // 4 if kind else 20, len(out))
            out[at] ^= 1 << rng.randrange(8)
    elif kind == 2:
        at = rng.randrange(len(out) // 2, len(out))
        out[at:at] = bytes([0xFF, rng.choice([0xD0, 0xD3, 0xD7, 0xD9, 0xFF, 0x01, 0xC4, 0xE0])])
    else:
        del out[rng.randrange(len(out) // 2, len(out)) :]
    return bytes(out)


def of_pillow(data: bytes) -> np.ndarray | None:
    try:
        return np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).transpose(2, 0, 1)
    except (OSError, SyntaxError, ValueError):
        return None


def of_ours(data: bytes, size: tuple[int, int], damaged: str):
    """Returns our pixels, or None; and the damage."""
    prepare = headrace.Preparer([T.CenterCrop(size)], damaged=damaged)
    try:
        return np.asarray(prepare(data)), prepare.damage
    except (ValueError, NotImplementedError):
        return None, prepare.damage


def test_what_pillow_takes_is_taken_with_its_pixels():
    rng = random.Random(7)
    found = {"refused": 0, "intact": 0, "taken": 0}
    for data in originals() * 60:
        data = damage(data, rng)
        theirs = of_pillow(data)
        size = (111, 150) if theirs is None else theirs.shape[1:]
        strict, _ = of_ours(data, size, "refuse")
        ours, damage_told = of_ours(data, size, "accept")
        assert (ours is None) == (theirs is None)
        assert (damage_told is not None) == (strict is None and ours is not None)
        found["refused" if ours is None else "intact" if strict is not None else "taken"] += 1
        if ours is not None:
            # By one where versions of libjpeg-turbo smooth lost coefficients differently.
            assert np.abs(ours.astype(int) - theirs).max() <= 1
    assert min(found.values()) >= 30, found


@pytest.fixture(scope="module")
def torn(tmp_path_factory):
    """12 images: two are damaged in ways that Pillow accepts, and one is truncated."""
    root = tmp_path_factory.mktemp("torn")
    (root / "cat").mkdir()
    rng = random.Random(1)
    for i in range(12):
        data = encode(synthetic(90 + i, 70, i), restart_marker_blocks=3)
        if i in (3, 8):
            whole, data = data, b""
            # So that any crop sees it: a strict decoder must refuse all of them.
            while of_pillow(data) is None or of_ours(data, (8, 8), "refuse")[0] is not None:
                data = bytearray(whole)
                at = len(whole) // 4 + rng.randrange(100)
                data[at : at + 2] = b"\xff\xd9"[: rng.randrange(1, 3)]
                data = bytes(data)
        if i == 5:
            data = data[: len(data) // 2]
        (root / "cat" / f"{i:02}.jpg").write_bytes(data)
    return root


def epoch(loader):
    return torch.cat([images.clone() for images, _ in loader])


ALL = [T.Resize((24, 24)), T.ToTensor()]


def test_a_loader_takes_counts_and_lists_them(torn):
    dataset = headrace.ImageFolder(torn, ALL)
    with DataLoader(dataset, 4, on_error="skip", max_bad_share=1, damaged="accept") as loader:
        images = epoch(loader)
        listed, skipped, stats = loader.damaged(), loader.skipped(), loader.stats()
    assert [s.index for s in listed] == [3, 8] and [s.index for s in skipped] == [5]
    assert all("damaged JPEG" in s.reason and s.path.endswith(".jpg") for s in listed)
    assert (stats["damaged_samples"], stats["bad_samples"]) == (2, 1)
    for i in (3, 8):
        prepare = headrace.Preparer(ALL, damaged="accept")
        whole = torch.from_dlpack(prepare((torn / "cat" / f"{i:02}.jpg").read_bytes()))
        assert torch.equal(images[i], whole)

    with DataLoader(dataset, 4, on_error="skip", max_bad_share=1) as loader:
        epoch(loader)
        assert [s.index for s in loader.skipped()] == [3, 5, 8] and loader.damaged() == []
        assert loader.stats()["damaged_samples"] == 0


def test_no_damaged_sample_stands_in(torn):
    """It would be in a batch without being listed."""
    names = [str(torn / "cat" / f"{i:02}.jpg") for i in (3, 5, 0)]
    dataset = headrace.ImageList([(name, 0) for name in names], ALL)
    options = dict(on_error="skip", max_bad_share=1, damaged="accept", return_index=True)
    with DataLoader(dataset, 3, **options) as loader:
        for _ in range(20):
            assert [index.tolist() for _, _, index in loader] == [[0, 2, 2]]
        assert len(loader.damaged()) == len(loader.skipped()) == 20


def test_an_agent_takes_counts_and_lists_them(torn):
    dataset = headrace.ImageFolder(torn, STEPS)
    options = dict(on_error="skip", max_bad_share=1, damaged="accept", shuffle=True, seed=3)
    with DataLoader(dataset, 5, **options) as loader:
        plain = [epoch(loader) for _ in range(2)]
        expected = loader.damaged(), loader.skipped()
        counts = [loader.stats()[n] for n in ("damaged_samples", "bad_samples")]
    with Agent() as agent, DataLoader(dataset, 5, agent=agent.socket, **options) as loader:
        assert all(torch.equal(a, epoch(loader)) for a in plain)
        assert (loader.damaged(), loader.skipped()) == expected
        assert [loader.stats()[n] for n in ("damaged_samples", "bad_samples")] == counts
    with Agent() as agent:
        options["stream"] = "one"
        with DataLoader(dataset, 5, agent=agent.socket, **options) as first:
            epoch(first)
            options["damaged"] = "refuse"
            with pytest.raises(ValueError, match="recipe|transform"):
                with DataLoader(dataset, 5, agent=agent.socket, **options) as second:
                    epoch(second)


def two_epochs(dataset, damaged, **options):
    """Returns the images of two epochs, their damage, and the cache's hits."""
    options.update(on_error="skip", max_bad_share=1, damaged=damaged)
    with DataLoader(dataset, 4, **options) as loader:
        images = [epoch(loader) for _ in range(2)]
        return images, loader.damaged(), loader.skipped(), loader.stats()["cache_hits"]


def check_both_kinds(dataset, cache):
    """It stores files, and items of intact files only, because each decoding decides whether to
    accept."""
    for damaged in ("accept", "refuse", "accept"):
        images, *told, _ = two_epochs(dataset, damaged)
        cached, *told_then, hits = two_epochs(dataset, damaged, cache=cache, epochs=9)
        assert hits > 0 and all(map(torch.equal, images, cached))
        assert told_then == told


@pytest.mark.parametrize("form", ["encoded", "coefficients", "planes", "indexed"])
def test_a_cache_serves_both_kinds_of_loaders(torn, form):
    dataset = headrace.ImageFolder(torn, ALL)
    check_both_kinds(dataset, f"shm:torn-{form}?size=4MiB&form={form}")


def test_hosts_serve_both_kinds_of_loaders(torn):
    with Memcached() as server:
        cache = f"memcached:{server.address}?size=16MiB&form=coefficients"
        check_both_kinds(headrace.ImageFolder(torn, ALL), cache)


def test_a_pack_serves_both_kinds_of_loaders(torn, tmp_path):
    path = tmp_path / "torn.hrpack"
    headrace.pack(torn, path, form="coefficients", on_error="skip")
    for damaged in ("accept", "refuse"):
        images, *told, _ = two_epochs(headrace.ImageFolder(torn, ALL), damaged)
        packed, *told_then, _ = two_epochs(headrace.Pack(path, ALL), damaged)
        assert all(map(torch.equal, images, packed))
        for ours, theirs in zip(told_then, told, strict=True):
            assert [(s.index, s.reason) for s in ours] == [(s.index, s.reason) for s in theirs]


def test_pixels_do_not_depend_on_the_crop(torn):
    data = (torn / "cat" / "03.jpg").read_bytes()
    whole = of_pillow(data)
    for index in range(20):
        prepare = headrace.Preparer([T.RandomCrop(30)], damaged="accept")
        part = np.asarray(prepare(data, index=index))
        places = np.argwhere(
            np.lib.stride_tricks.sliding_window_view(whole[0], (30, 30))[..., 0, 0] == part[0, 0, 0]
        )
        assert any((whole[:, y : y + 30, x : x + 30] == part).all() for y, x in places)


def test_arguments(torn):
    with pytest.raises(ValueError, match="damaged must be 'refuse' or 'accept', got 'yes'"):
        DataLoader(headrace.ImageFolder(torn, ALL), damaged="yes")
