"""Batches that are replayed: changes that a script makes to one must not last."""

from __future__ import annotations

import collections
import dataclasses
import typing

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from headrace.stalls.replay import (  # noqa: E402
    NotReplayable,
    Replay,
    parts_of,
    samples_in,
    signature,
)


class Pair(typing.NamedTuple):
    image: torch.Tensor
    label: torch.Tensor


@dataclasses.dataclass(frozen=True)
class Frozen:
    image: torch.Tensor
    names: list


@dataclasses.dataclass(slots=True)
class Slots:
    image: torch.Tensor
    count: int


class Encoding(collections.UserDict):
    """Like Hugging Face's: not a dict, with a ``to`` that changes the object itself."""

    def to(self, device):
        self.data = {k: v.to(device) for k, v in self.data.items()}
        return self


class Linked:
    """Contains itself."""

    def __init__(self, image):
        self.inner, self.image = self, image
        self.function = torch.nn.Identity()


def image(samples=4):
    return torch.arange(samples * 6, dtype=torch.float32).reshape(samples, 2, 3)


def batches():
    yield "tensor", image()
    yield "list", [image(), torch.tensor([1, 2, 3, 4])]
    yield "nested", {"x": [image(), {"mask": image() > 3}], "ids": ["a", "b"], "none": None}
    yield "named tuple", Pair(image(), torch.arange(4))
    yield "frozen", Frozen(image(), ["a", "b"])
    yield "slots", Slots(image(), 4)
    yield "encoding", Encoding(input_ids=torch.arange(8).reshape(4, 2), mask=image())
    yield "linked", Linked(image())
    yield "in a list", [Slots(image(), 1), Slots(image(2), 2)]
    yield "array", {"x": np.arange(12.0).reshape(4, 3), "y": image()}
    yield "ordered", collections.OrderedDict(x=image(), y=torch.arange(4))
    yield "packed", torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
    yield "strided", image().permute(0, 2, 1)


NAMES = [name for name, _ in batches()]


def values(batch):
    return [np.array(part.tolist()).tobytes() for part in parts_of(batch)]


def frozen(*given, **options):
    replay = Replay(**options)
    for batch in given:
        replay.keep(batch)
    replay.freeze()
    return replay


@pytest.mark.parametrize("name", NAMES)
def test_what_is_kept_is_a_copy(name):
    batch = dict(batches())[name]
    replay = frozen(batch)
    before = values(batch)
    for part in parts_of(batch):
        part[...] = 0
    again = replay.give(1, False)
    assert type(again) is type(batch)
    assert values(again) == before
    for one, other in zip(parts_of(again), parts_of(batch)):
        assert type(one) is type(other) and one.dtype == other.dtype
        if isinstance(one, torch.Tensor):
            assert one.stride() == other.stride()


@pytest.mark.parametrize("name", NAMES)
def test_changes_in_place_are_undone(name):
    batch = dict(batches())[name]
    before = values(batch)
    replay = frozen(batch)
    first = replay.give(1, False)
    assert not replay.in_place
    for part in parts_of(first):
        part[...] = 1 - part if part.dtype != bool and part.dtype != torch.bool else ~part
    second = replay.give(2, False)
    assert values(second) == before and replay.in_place and replay.restoring_s > 0
    for part in parts_of(second):
        part[...] = 0
    replay.settle()
    assert values(replay.give(3, False)) == before


def test_containers_are_fresh():
    replay = frozen({"x": image(), "extra": {"path": "a"}, "list": [1, 2]})
    first = replay.give(1, False)
    first.pop("x")
    first["extra"]["more"] = 1
    first["list"].clear()
    second = replay.give(2, False)
    assert second["extra"] == {"path": "a"} and second["list"] == [1, 2]
    assert torch.equal(second["x"], image())
    assert not replay.in_place


def test_objects_are_fresh():
    replay = frozen(Encoding(x=image()))
    first = replay.give(1, False)
    first["label"] = first.pop("x")
    first.more = 1
    second = replay.give(2, False)
    assert list(second) == ["x"] and not hasattr(second, "more")


def test_metadata_changed_in_place_is_not_seen_by_the_next():
    replay = frozen(image())
    replay.give(1, False).unsqueeze_(0)
    given = replay.give(2, False)
    assert given.shape == (4, 2, 3)
    given.data = torch.zeros(1)
    assert torch.equal(replay.give(3, False), image())


def test_gradients():
    """A batch that requires a gradient has one of its own each time."""
    batch = image().requires_grad_()
    replay = frozen([batch, image()])
    for number in range(3):
        x, y = replay.give(number, False)
        assert x.requires_grad and x.is_leaf and x.grad is None and not y.requires_grad
        (x * 2).sum().backward()
        assert torch.equal(x.grad, torch.full_like(x, 2))
        y.mul_(torch.ones((), requires_grad=True))
    assert torch.equal(replay.give(9, False)[1], image())


def test_shapes():
    """Keeps two batches, and those of other shapes; not a smaller last one."""
    given = [image(4), image(4), image(4), image(4), image(1)]
    replay = frozen(*given)
    assert replay.samples(0, 4, False) == 16
    lengths = [torch.zeros(4, length) for length in (3, 5, 3, 7)]
    replay = frozen(*lengths)
    shapes = {tuple(replay.give(n, False).shape) for n in range(6)}
    assert shapes == {(4, 3), (4, 5), (4, 7)}
    tokens = [torch.zeros(n, 60 // n) for n in (2, 3, 4, 5, 6)]
    replay = frozen(*tokens)
    assert replay.samples(0, 5, False) == 20
    many = [torch.zeros(4, n) for n in range(1, 40)]
    assert len({tuple(frozen(*many).give(n, False).shape) for n in range(80)}) == 8
    assert signature(image(3)) != signature(image(4))


def test_same_batches_are_kept_twice():
    replay = frozen(image(), image() + 1, image() + 2)
    assert [float(replay.give(n, False).sum()) for n in range(3)] == [
        float(image().sum()), float((image() + 1).sum()), float(image().sum()),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("batch", "count"),
    [
        (image(5), 5),
        ({"text": "abc", "x": image(3)}, 3),
        (["a", "b"], 2),
        (Encoding(x=image(6)), 6),
        ([torch.tensor(1.0), image(3)], 3),
        (np.zeros((7, 2)), 7),
        (3, 1),
        (None, 1),
        (torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)]), 5),
    ],
)
def test_samples_in(batch, count):
    assert samples_in(batch) == count


def test_batches_without_tensors():
    replay = frozen(["a", "b"], ["c", "d"])
    assert replay.give(0, False) == ["a", "b"]
    assert not replay.on_device and replay.samples(0, 2, False) == 4
    with pytest.raises(NotReplayable, match="device"):
        replay.to_device(torch.device("meta"))


# On a device: torch's meta device has shapes and no values, which is enough to see what moves.

META = torch.device("meta")


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("array", "packed")])
def test_to_a_device(name):
    replay = frozen(dict(batches())[name])
    replay.to_device(META)
    given = replay.give(1, True)
    assert type(given) is type(dict(batches())[name])
    assert {part.device.type for part in parts_of(given)} == {"meta"}
    assert {part.device.type for part in parts_of(replay.give(2, False))} == {"cpu"}
    assert not replay.on_device


def test_arrays_stay_on_the_host():
    replay = frozen({"x": np.zeros((4, 100)), "y": image()})
    with pytest.raises(NotReplayable, match="ndarray of dict"):
        replay.to_device(META)
    small = frozen({"ids": np.zeros(4, np.uint8), "y": torch.zeros(4, 100)})
    small.to_device(META)
    assert small.give(0, True)["ids"].shape == (4,)


class Stubborn:
    def __init__(self):
        self.image = image()

    def to(self, device):
        raise TypeError("this batch stays here")


class Idle(Stubborn):
    def to(self, device):
        return self


def test_objects_that_do_not_move():
    with pytest.raises(TypeError, match="stays here"):
        frozen(Stubborn()).to_device(META)
    with pytest.raises(NotReplayable, match="Tensor of Idle stays"):
        frozen(Idle()).to_device(META)


def test_on_the_device_only_settle_restores():
    """The CPU stands in for the device: batches are compared with the host's copy by address."""
    replay = frozen(image())
    replay._device = [one for one in frozen(image())._host]
    given = replay.give(1, True)
    given.zero_()
    assert float(replay.give(2, True).sum()) == 0 and not replay.in_place
    replay.settle()
    assert torch.equal(replay.give(3, True), image()) and replay.in_place
