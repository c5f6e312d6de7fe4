"""Packs that keep rows: boxes and labels without the annotation file."""

import errno
import pickle
import struct

import pytest
import torch

import agent_job
import headrace
from agents import Agent
from conftest import COUNT
from headrace.torch import DataLoader

OPTIONS = {"batch_size": 4, "shuffle": True, "return_index": True}


def epoch(dataset, **more):
    with DataLoader(dataset, **OPTIONS, **more) as loader:
        return [(i.tolist(), agent_job.digest(x, t)) for x, t, i in loader]


@pytest.mark.parametrize("form", ["coefficients", "auto"])
def test_a_pack_trains_as_its_source(boxes, tmp_path, form):
    path = tmp_path / "boxes.hrpack"
    told = headrace.pack(boxes, path, form=form)
    assert told["rows_bytes"] == headrace.pack_info(path)["rows_bytes"] > 0
    pack = headrace.Pack(path, boxes.transform)
    assert pack._dataset.columns() == boxes._dataset.columns()
    truth = epoch(boxes)
    assert epoch(pack) == truth
    again = pickle.loads(pickle.dumps(pack))
    assert "_table" not in pack.__getstate__() and epoch(again) == truth
    part = torch.utils.data.Subset(pack, [5, 3, 3])
    assert epoch(part) == epoch(torch.utils.data.Subset(boxes, [5, 3, 3]))
    with Agent() as agent:
        assert epoch(pack, agent=agent.socket) == truth
    assert headrace.verify_pack(path) == []


def test_other_rows_take_the_place_of_the_packs(boxes, tmp_path):
    headrace.pack(boxes, tmp_path / "p")
    others = [agent_job.rows_of(i + 2) for i in range(COUNT)]
    pack = headrace.Pack(tmp_path / "p", boxes.transform).with_rows(others)
    assert epoch(pack) == epoch(boxes.with_rows(others)) != epoch(boxes)
    assert epoch(pickle.loads(pickle.dumps(pack))) == epoch(pack)
    with Agent() as agent:
        assert epoch(pack, agent=agent.socket) == epoch(pack)


def test_a_pack_of_a_subset_has_the_subsets_rows(boxes, tmp_path):
    some = headrace.ImageList(
        [boxes.samples[i][0] for i in (9, 2, 4)],
        boxes.transform,
        rows=[agent_job.rows_of(i) for i in (9, 2, 4)],
    )
    headrace.pack(some, tmp_path / "p")
    assert epoch(headrace.Pack(tmp_path / "p", boxes.transform)) == epoch(some)


def version(path):
    return struct.unpack_from("I", path.read_bytes(), 8)[0]


def test_packs_without_rows_are_as_before(folder, boxes, tmp_path):
    headrace.pack(folder, tmp_path / "plain", form="coefficients")
    headrace.pack(boxes, tmp_path / "rows", form="coefficients")
    assert (version(tmp_path / "plain"), version(tmp_path / "rows")) == (1, 3)
    assert headrace.pack_info(tmp_path / "plain")["rows_bytes"] == 0


def test_damaged_rows_are_found(boxes, tmp_path):
    path = tmp_path / "p"
    headrace.pack(boxes, path)
    whole = path.read_bytes()
    begin = whole.index(b"HRROWS1\n")
    for at in (begin, begin + 9, begin + 20, begin + 60, begin + 2000):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises((ValueError, NotImplementedError), match="the rows"):
            headrace.Pack(path)
    path.write_bytes(whole[: begin + 100])
    with pytest.raises(ValueError, match="was cut"):
        headrace.Pack(path)


def test_only_the_same_rows_continue_a_pack(folder, boxes, tmp_path):
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"no image")
    paths = [path for path, _ in headrace.ImageFolder(folder).samples][:6] + [broken]

    def listed(shift):
        rows = [agent_job.rows_of(i + shift) for i in range(7)]
        return headrace.ImageList(paths, boxes.transform, rows=rows)

    with pytest.raises(headrace.SampleError):
        headrace.pack(listed(0), tmp_path / "p")
    with pytest.raises(OSError) as caught:
        headrace.pack(listed(1), tmp_path / "p", on_error="skip")
    assert caught.value.errno == errno.ESTALE
    told = headrace.pack(listed(0), tmp_path / "p", on_error="skip")
    assert told["continued"] == 6
    pack = headrace.Pack(tmp_path / "p")
    assert pack[4][1]["labels"].tolist() == agent_job.rows_of(4)["labels"].tolist()


def test_unpack_tells_of_rows(folder, tmp_path):
    rows = [agent_job.rows_of(i) for i in range(COUNT)]
    headrace.pack(headrace.ImageFolder(folder).with_rows(rows), tmp_path / "p")
    told = headrace.unpack(tmp_path / "p", tmp_path / "files")
    assert told["samples"] == COUNT and told["rows_bytes"] > 0
