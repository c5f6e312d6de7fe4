"""Rows and masks on several hosts: with memcached servers, as images go, each rank prepares its own."""

import os
import time

import numpy as np
import pytest
from PIL import Image

import agent_job
import headrace
from agents import wait_until
from conftest import COUNT
from headrace.torch import DataLoader
from servers import Memcached, Ranks, Servers


@pytest.fixture(scope="module")
def servers():
    with Servers(Memcached() for _ in range(2)) as running:
        yield running


def by_index(loader):
    """The digest of each sample of the next epoch: its image and its rows."""
    out = {}
    for images, targets, index in loader:
        for i, image, target in zip(index.tolist(), images, targets, strict=True):
            rows = [target[name].tolist() for name in target]
            out[i] = (agent_job.digest(image), rows)
    return out


@pytest.mark.parametrize("count", [2, 3])
def test_ranks_have_the_rows_of_one_process(boxes, servers, count):
    options = {"shuffle": True, "seed": 11, "return_index": True}
    with DataLoader(boxes, 4, **options) as one:
        truth = [by_index(one) for _ in range(3)]
    with Ranks(boxes, servers, count=count) as ranks:
        for epoch, expected in enumerate(truth):
            found = ranks.good(lambda rank, loader: by_index(loader))
            assert sum(map(len, found)) >= COUNT
            for samples in found:
                assert all(expected[i] == sample for i, sample in samples.items()), epoch
            assert set().union(*found) == set(expected)
        assert ranks.stats()["own_hits"] + ranks.stats()["peer_hits"] > 0


def masked(folder, boxes, tmp_path):
    """The same images with masks of noise."""
    draw, masks = np.random.default_rng(2), []
    for n, (path, _) in enumerate(boxes.samples):
        with Image.open(path) as image:
            noise = draw.integers(0, 20, image.size[::-1], dtype=np.uint8)
        masks.append(tmp_path / f"{n}.png")
        Image.fromarray(noise).save(masks[-1])
    paths = [path for path, _ in boxes.samples]
    return headrace.ImageList(paths, agent_job.dataset(folder).transform, masks=masks)


def digests(loader):
    """The digests of each sample's image and mask in the next epoch."""
    return {
        i: (agent_job.digest(image), agent_job.digest(mask))
        for images, masks, index in loader
        for i, image, mask in zip(index.tolist(), images, masks, strict=True)
    }


@pytest.mark.parametrize("form", ["encoded", "coefficients"])
def test_ranks_have_the_masks_of_one_process(folder, boxes, servers, tmp_path, form):
    """Hosts keep a mask with its image: each is read once, and neither when all are kept."""
    data = masked(folder, boxes, tmp_path)
    time.sleep(0.03)  # files of this moment are not kept
    both = [path for path, _ in data.samples] + [f"{tmp_path}/{n}.png" for n in range(COUNT)]
    with DataLoader(data, 4, shuffle=True, seed=11, return_index=True) as one:
        truth = [digests(one) for _ in range(4)]
    with Ranks(data, servers, cache=f"{servers.text()}&form={form}") as ranks:
        read = []
        for expected in truth:
            found = ranks.good(lambda rank, loader: digests(loader))
            for samples in found:
                assert all(expected[i] == sample for i, sample in samples.items())
            assert set().union(*found) == set(expected)
            wait_until(lambda: ranks.stats()["stored"] == COUNT, "all items stored")
            read.append(ranks.stats()["bytes_read"])
        # the sample that pads an epoch may be read by both ranks
        total, sizes = sum(map(os.path.getsize, both)), [os.path.getsize(path) for path in both]
        most = max(image + mask for image, mask in zip(sizes[:COUNT], sizes[COUNT:], strict=True))
        assert total <= read[0] <= total + most and read[0] == read[-1]


def test_disks_before_hosts_keep_masks(folder, boxes, servers, tmp_path):
    """What no host's memory has room for is kept on disks, a mask with its image."""
    data = masked(folder, boxes, tmp_path)
    time.sleep(0.03)  # files of this moment are not kept
    both = [path for path, _ in data.samples] + [f"{tmp_path}/{n}.png" for n in range(COUNT)]
    total = sum(map(os.path.getsize, both))
    with DataLoader(data, 4, shuffle=True, seed=11, return_index=True) as one:
        truth = [digests(one) for _ in range(3)]

    def change(rank):
        return {"cache": f"disk:{tmp_path / str(rank)}?size=64MiB,{servers.text(size=str(total // 4))}&self={rank}"}

    with Ranks(data, servers, size=COUNT // 2, change=change) as ranks:
        for expected in truth:
            found = ranks.good(lambda rank, loader: digests(loader))
            for samples in found:
                assert all(expected[i] == sample for i, sample in samples.items())
            assert set().union(*found) == set(expected)
        kept = sum(loader.stats()["disk_items"] for loader in ranks.loaders)
        hits = sum(loader.stats()["disk_hits"] for loader in ranks.loaders)
        assert 0 < kept < COUNT and hits > 0
        assert total <= ranks.stats()["bytes_read"] < 3 * total / 2  # in three epochs


def test_other_annotations_are_refused(boxes, servers):
    """One rank has other boxes: every rank says so, and what to do."""
    others = boxes.with_rows(agent_job.rows_of(i + 1) for i in range(COUNT))
    with Ranks(boxes, servers, change=lambda rank: {"data": others} if rank else {}) as ranks:
        ranks.each(lambda rank, loader: next(iter(loader)))
        for error in ranks.errors:
            assert isinstance(error, (ValueError, RuntimeError, OSError)), error
            assert "the rows of the samples" in str(error)
            assert "give all ranks the same boxes, classes and other rows" in str(error)


def test_no_rows_and_rows_are_refused(folder, boxes, servers):
    plain = headrace.ImageList([(path, 0) for path, _ in boxes.samples], agent_job.dataset(folder).transform)
    with Ranks(boxes, servers, change=lambda rank: {"data": plain} if rank else {}) as ranks:
        ranks.each(lambda rank, loader: next(iter(loader)))
        assert all("the rows of the samples" in str(error) for error in ranks.errors)
