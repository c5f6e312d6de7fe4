"""Boxes, labels and other rows through an agent: the same as in a process of its own."""

import json
import os
import signal

import pytest
import torch

import agent_job
import headrace
import headrace.transforms as T
from agents import LIMIT_S, Agent, Job, wait_until
from conftest import COUNT
from headrace.torch import DataLoader

REPEAT = 8


@pytest.fixture(scope="module")
def agent():
    with Agent() as running:
        yield running


def epoch(loader):
    """The next epoch: each batch's index and digest of images and rows."""
    return [
        (index.tolist(), agent_job.digest(images, targets)) for images, targets, index in loader
    ]


def options(**more):
    return {"batch_size": 4, "shuffle": True, "return_index": True, "seed": 7, **more}


@pytest.mark.parametrize("size", [1, 4, 13, COUNT])
@pytest.mark.parametrize("side", [32, 33])  # samples of whole pages; chunks with gaps
def test_the_same_rows(boxes, agent, size, side):
    boxes.transform = T.Compose([*boxes.transform.transforms, T.Resize((side, side))])
    more = options(batch_size=size)
    with DataLoader(boxes, **more) as alone:
        with DataLoader(boxes, **more, agent=agent.socket, window=4) as shared:
            for _ in range(2):
                assert epoch(shared) == epoch(alone)
            assert any(len(t["labels"]) for _, targets, _ in shared for t in targets)


def test_resume_subsets_samplers_and_ranks(boxes, agent):
    for more in ({}, {"agent": agent.socket}):
        with DataLoader(boxes, **options(), **more) as loader:
            batches = iter(loader)
            next(batches)
            state = loader.state_dict()
            rest = [(i.tolist(), agent_job.digest(x, t)) for x, t, i in batches]
        with DataLoader(boxes, **options(), **more) as loader:
            loader.load_state_dict(state)
            assert epoch(loader) == rest
    for data, one in [
        (torch.utils.data.Subset(boxes, [9, 4, 4, 0, 17]), options()),
        (torch.utils.data.Subset(boxes, [6, 1, 10, 2, 12]), options()),  # without the most rows
        (boxes, {"batch_size": 4, "sampler": [3, 8, 8, 1, 11], "return_index": True}),
        (boxes, options(rank=1, world_size=2)),
        (boxes, options(drop_last=True)),
    ]:
        with DataLoader(data, **one) as alone, DataLoader(data, **one, agent=agent.socket) as ours:
            assert epoch(ours) == epoch(alone)


def test_stand_ins_have_their_own_rows(folder, agent, tmp_path):
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"no image")
    good = headrace.ImageFolder(folder).samples
    paths = [broken if i % 6 == 0 else path for i, (path, _) in enumerate(good)]
    data = headrace.ImageList(
        paths, agent_job.dataset(folder, boxes=True).transform, rows=map(agent_job.rows_of, range(COUNT))
    )
    more = options(on_error="skip", max_bad_share=1.0)
    with DataLoader(data, **more) as alone, DataLoader(data, **more, agent=agent.socket) as ours:
        assert epoch(ours) == epoch(alone)
        assert ours.skipped() == alone.skipped() != []


def test_other_annotations_are_another_stream(folder, boxes):
    """Jobs with the same rows share what the agent prepares; others do not, under no name."""
    with Agent() as agent:
        more = options(agent=agent.socket)
        others = boxes.with_rows(agent_job.rows_of(i + 1) for i in range(COUNT))
        same = boxes.with_rows(agent_job.rows_of(i) for i in range(COUNT))
        with DataLoader(boxes, **more, stream="s") as first:
            with DataLoader(same, **more, stream="s", join="now") as second:
                epoch(first), epoch(second)
                assert len(agent.look()["streams"]) == 1
            with pytest.raises(ValueError, match="another dataset, recipe, rows or masks"):
                iter(DataLoader(others, **more, stream="s"))
            with DataLoader(others, **more) as third, DataLoader(others, **options()) as alone:
                assert epoch(third) == epoch(alone)


def test_a_killed_job_and_a_killed_agent(folder, default_socket):
    """kill -9 of a job leaves the others as they are; that of an agent, the next one takes over."""
    spec = {"boxes": True, "repeat": REPEAT, "led": True}
    with DataLoader(agent_job.dataset(folder, REPEAT, True), **options()) as loader:
        truth = epoch(loader)
    shared = options(agent="auto", stream="s", window=4)
    del shared["return_index"]  # the script's own
    with Job(folder, shared, **spec) as job:
        assert job.next() == {"ready": True}
        job.tell()
        found = job.batches(1)
        with Job(folder, {**shared, "join": "now"}, **spec) as killed:
            assert killed.next() == {"ready": True}
            killed.tell()
            killed.batches(1)
            killed.send(signal.SIGKILL)
            killed.status()
        for _ in range(5):
            job.tell()
            found += job.batches(1)
        os.kill(headrace.agent_status()["pid"], signal.SIGKILL)
        while sum(len(batch["index"]) for batch in found) < REPEAT * COUNT:
            job.tell()
            found += job.batches(1)
        job.tell()
        assert job.next() == {"end": 0}
        assert job.next()["stats"]["reattached"] >= 1
    assert [(batch["index"], batch["digest"]) for batch in found] == truth


def test_coco_with_auto(folder, default_socket, tmp_path):
    paths = [path for path, _ in headrace.ImageFolder(folder).samples][:5]
    whole = {
        "images": [{"id": i, "file_name": path} for i, path in enumerate(paths)],
        "annotations": [
            {"id": i, "image_id": i % 5, "category_id": 1, "bbox": [i, 1, 9, 9]} for i in range(12)
        ],
        "categories": [{"id": 1, "name": "one"}],
    }
    (tmp_path / "a.json").write_text(json.dumps(whole))
    transform = T.Compose([T.Resize((32, 32)), T.ToDtype("uint8")])
    data = headrace.CocoDetection("/", tmp_path / "a.json", transform)
    with DataLoader(data, 5, agent="auto") as loader:
        for images, targets in loader:
            assert images.shape == (5, 3, 32, 32)
            assert [len(t["boxes"]) for t in targets] == [3, 3, 2, 2, 2]
            assert targets[3]["image_id"] == 3
    wait_until(lambda: not headrace.agent_status()["jobs"], "the loader's end", LIMIT_S)
