"""What runs in a worker process: makes the samples of a batch, collates and packs them.

torch's own DataLoader starts the processes and calls :class:`Work` in them (or in the consumer's
process, without workers). A :class:`Task` names a batch's samples. Before each sample torch's,
Python's and NumPy's generators are seeded from (seed, epoch, sample), and before a collate_fn from
the batch's first position, so that results depend neither on the number of workers nor on where an
epoch was resumed.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import random
import struct
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.utils.data
from torch._utils import ExceptionWrapper
from torch.utils.data import IterableDataset, Subset, get_worker_info
from torch.utils.data._utils import worker as _torch_worker
from torch.utils.data._utils.collate import (
    collate,
    collate_tensor_fn,
    default_collate,
    default_collate_fn_map,
    default_convert,
)

from .. import _core
from .._pipeline import Pipeline
from ..cached import CachedDataset
from ._datasets import loader_of
from ._ring import Place, Window, is_small, is_strided, rings
from ._targets import sample_target

_MOST_STAND_INS = 32  # as the native loader
_COLLATE = 1 << 32  # in the seed of a collate_fn, which is no sample's
_WORTH = 8  # samples of a batch, from which seeding for each costs more than looking once


@dataclass
class Task:
    """A batch to be made."""

    number: int
    epoch: int
    seed: int
    place: Place | None  # of its slot
    indices: Sequence[Any] = ()
    positions: Sequence[int] = ()  # in the epoch
    from_sampler: bool = False  # the user's; then a sample may come twice

    # For iterable datasets, whose fetcher of torch iterates the task once for each sample.
    size: int = 0

    def __iter__(self) -> Iterator[int]:
        global _current
        _current = self
        return iter(range(self.size))

    def __len__(self) -> int:
        return self.size


_current: Task | None = None


@dataclass
class Failure:
    """An exception of the user's code, with its traceback, and the sample that raised it."""

    wrapper: ExceptionWrapper
    index: int | None = None
    path: str = ""
    reason: str = ""


@dataclass
class Message:
    """A batch on its way to the consumer."""

    number: int = -1  # of its task; -1: of none
    ring: int = 0  # its number, in the consumer's process
    data: Any = None  # the packed batch, or the batch itself without workers
    is_packed: bool = False
    need: int = 0  # bytes of a slot that it would fit into
    samples: int = 0
    failure: Failure | None = None
    skipped: list[tuple[int, int, str, str]] = field(default_factory=list)
    indices: list[Any] = field(default_factory=list)  # of the samples in the batch
    head_ns: int = 0
    sample_ns: int = 0  # of whole samples, the head included
    batch_ns: int = 0  # of collating and packing

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpacks the batch as the message arrives, while the worker exists: what does not fit into
        slots is passed by descriptors."""
        self.__dict__.update(state)
        if not self.is_packed:
            return
        try:
            self.data = rings[self.ring].unpack(self.number, self.data, self.need)
        except (ConnectionError, EOFError, FileNotFoundError) as error:
            raise RuntimeError(
                "a worker process exited unexpectedly while it handed over a batch: look for a "
                "crash or the kernel's out-of-memory killer (dmesg)"
            ) from error

    def pin_memory(self) -> Message:
        """torch's DataLoader calls this in the consumer's process."""
        if self.failure is None:
            self.data = torch.utils.data._utils.pin_memory.pin_memory(self.data)
        return self


class Own:
    """Samples of a map-style dataset with its own ``__getitem__``."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        inner = dataset
        while type(inner) in (Subset, CachedDataset):
            inner = inner.dataset  # these have a __getitems__ that only passes on
        self.fetch = (
            dataset.__getitems__ if getattr(inner, "__getitems__", None) is not None else None
        )

    def __call__(self, index: Any, seed: int, epoch: int, timed: Message) -> Any:
        return self.dataset[index]

    def __len__(self) -> int:
        return len(self.dataset)

    def path(self, index: Any) -> str:
        """Names a sample for messages: its file, if the dataset has torchvision's ``samples``."""
        dataset = self.dataset
        while type(dataset) is Subset:
            dataset, index = dataset.dataset, dataset.indices[index]
        try:
            return os.fsdecode(dataset.samples[index][0])
        except Exception:
            return f"{type(dataset).__name__}[{index!r}]"

    def names_digest(self) -> str:
        name = f"{type(self.dataset).__module__}.{type(self.dataset).__qualname__}"
        return hashlib.blake2b(name.encode(), digest_size=16).hexdigest()


class Folder:
    """Samples of a dataset whose files Headrace reads: the head of the transform runs natively, the
    tail here."""

    fetch = None

    def __init__(
        self, dataset: Any, pipeline: Pipeline, open_source: Callable[[Any], Any], target: Any
    ) -> None:
        self.dataset = dataset
        self.pipeline = pipeline
        self._open = open_source
        self._target = target  # the target_transform
        self.source: _core.Dataset = open_source(dataset)

    def __call__(self, index: int, seed: int, epoch: int, timed: Message) -> Any:
        begin = time.perf_counter_ns()
        data = self.source.read(index)
        try:
            image = self.pipeline.run_head(data, seed, epoch, index)
        except NotImplementedError:
            image = self._by_loader(index)
        else:
            timed.head_ns += time.perf_counter_ns() - begin
            image = self.pipeline.run_tail(image)
        label: Any = self.source.label(index)
        if self.source.columns():
            label = sample_target(self.source, index)
        return image, label if self._target is None else self._target(label)

    def _by_loader(self, index: int) -> Any:
        """Prepares a file of a format that Headrace has not, as torchvision does."""
        dataset = self.dataset
        while isinstance(dataset, Subset):
            dataset = dataset.dataset
        load, transform = loader_of(dataset), self.pipeline.whole()
        if load is None or transform is None:
            raise
        return transform(load(self.source.path(index)))

    def __len__(self) -> int:
        return len(self.source)

    def path(self, index: int) -> str:
        return self.source.path(index)

    def names_digest(self) -> str:
        return self.source.names_digest()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "source": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.source = self._open(self.dataset)


class Work:
    """The dataset that torch's DataLoader gets: an item is the :class:`Message` of a task, before
    it is collated."""

    def __init__(
        self, samples: Any, *, samples_in_all: int, shuffle: bool, skips: bool
    ) -> None:
        self.samples = samples
        self.samples_in_all, self.shuffle, self.skips = samples_in_all, shuffle, skips
        self._order: tuple[Any, memoryview] | None = None  # of an epoch, for stand-ins
        self._draws = not isinstance(samples, Own)  # whether samples draw random numbers
        self._looked = False  # at the first sample, which most likely shows it

    def __getitem__(self, task: Task) -> Any:
        return self.__getitems__(task)

    def __getitems__(self, task: Task) -> tuple[Task, Message, list[Any]]:
        message = Message(number=task.number, indices=list(task.indices))
        begin = time.perf_counter_ns()
        made: list[Any] = []
        with _kept_generators():
            if self.samples.fetch is not None and task.indices:
                self._many(task, message, made)
            elif self._draws or len(task.indices) < _WORTH or not self._undrawn(task, message, made):
                self._each(task, message, made, True, range(len(task.indices)))
        message.sample_ns = time.perf_counter_ns() - begin
        return task, message, made

    def _many(self, task: Task, message: Message, made: list[Any]) -> None:
        """Asks the dataset for all samples at once, as torch does."""
        _seed(task.seed, task.epoch, task.positions[0], len(task.indices))
        try:
            made += self.samples.fetch(list(task.indices))
        except Exception:
            failure = Failure(_wrapped())
            if self.skips:  # one by one, to find the bad ones
                made.clear()
                self._each(task, message, made, True, range(len(task.indices)))
            if not self.skips or message.failure is not None:
                message.failure = failure

    def _each(
        self, task: Task, message: Message, made: list[Any], seeded: bool, places: range
    ) -> None:
        for place in places:
            if not self._one(task, message, made, place, seeded):
                return

    def _undrawn(self, task: Task, message: Message, made: list[Any]) -> bool:
        """Makes samples without seeding for each, which costs more than tiny samples. If one drew
        a random number, undoes all and returns False: then samples are seeded from now on."""
        key = task.seed, task.epoch, task.positions[0], len(task.indices)
        next_numbers = _drawn_after(key)
        _seed(*key)
        first = 0
        if not self._looked:
            self._looked = True
            self._each(task, message, made, seeded=False, places=range(1))
            self._draws = _next_numbers() != next_numbers
            _seed(*key)
            first = 1
        if not self._draws and message.failure is None:
            places = range(first, len(task.indices))
            self._each(task, message, made, seeded=False, places=places)
            self._draws = _next_numbers() != next_numbers
        if not self._draws:
            return True
        made.clear()
        message.failure, message.skipped, message.indices = None, [], list(task.indices)
        return False

    def _one(
        self, task: Task, message: Message, made: list[Any], place: int, seeded: bool
    ) -> bool:
        index, position = task.indices[place], task.positions[place]
        try:
            made.append(self._sample(task, message, index, position, seeded))
            return True
        except Exception as error:
            bad = self._failure(index, error)
        if self.skips:
            message.skipped.append((task.epoch, bad.index or 0, bad.path, bad.reason))
            for attempt in range(min(_MOST_STAND_INS, self.samples_in_all - 1)):
                other = self._stand_in(task, position, attempt)
                try:
                    made.append(self._sample(task, message, other, position, seeded))
                except Exception:
                    continue
                message.indices[place] = other
                return True
        message.failure = bad
        return False

    def _sample(
        self, task: Task, message: Message, index: Any, position: int, seeded: bool
    ) -> Any:
        epoch = task.epoch + (position << 32) if task.from_sampler else task.epoch
        if seeded:
            _seed(task.seed, epoch, index if type(index) is int else position, 0)
        return self.samples(index, task.seed, epoch & _U64, message)

    def _failure(self, index: Any, error: BaseException) -> Failure:
        path = self.samples.path(index)
        return Failure(_wrapped(), index if type(index) is int else -1, path, reason_of(error))

    def _stand_in(self, task: Task, position: int, attempt: int) -> int:
        """Returns the sample that replaces a bad one: the native loader's."""
        count = self.samples_in_all
        other = _core.order_replacement(count, task.seed, task.epoch, position % count, attempt)
        if task.from_sampler or not self.shuffle:
            return other
        key = (task.seed, task.epoch)
        if self._order is None or self._order[0] != key:
            self._order = key, order(count, True, task.seed, task.epoch)
        return self._order[1][other]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_order": None}


def order(samples: int, shuffle: bool, seed: int, epoch: int) -> memoryview:
    """Returns the samples of an epoch in order."""
    return memoryview(_core.order(samples, shuffle, seed, epoch)).cast("Q")


class Stream(IterableDataset[Any]):
    """An iterable dataset in torch's DataLoader."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        return iter(self.dataset)


class Collate:
    """The collate_fn that torch's DataLoader gets: collates a batch and packs it for the slot.

    Args:
        function: the user's; None: torch's default.
        batched: whether samples are collated, not only converted.
        window: the worker's side of the ring; None: there are no workers.
    """

    def __init__(self, function: Any, batched: bool, window: Window | None) -> None:
        self._function, self._batched, self._window = function, batched, window

    def __call__(self, made: Any) -> Message:
        begin = time.perf_counter_ns()
        if isinstance(made, tuple) and len(made) == 3 and isinstance(made[0], Task):
            task, message, samples = made
        else:  # of an iterable dataset
            assert _current is not None
            task, samples = _current, made
            message = Message(number=task.number, samples=len(made))
        if not self._batched and samples:
            samples = samples[0]
        if message.failure is None:
            message.samples = len(message.indices) or message.samples
            self._finish(task, message, samples)
        message.batch_ns = time.perf_counter_ns() - begin
        return message

    def _finish(self, task: Task, message: Message, samples: Any) -> None:
        is_worker = self._window is not None and get_worker_info() is not None
        try:
            if not is_worker:
                message.data = self._collated(task, samples, None)
                return
            window = self._window
            assert window is not None
            window.open(task.place)
            message.data = window.pack(self._collated(task, samples, window))
            message.is_packed, message.ring, message.need = True, window.ring_number, window.need
            window.open(None)
        except Exception:
            message.failure = Failure(_wrapped())

    def _collated(self, task: Task, samples: Any, window: Window | None) -> Any:
        if self._function is not None:
            return self._by_function(task, samples)
        if not self._batched:
            return default_convert(samples)
        if window is None:
            return default_collate(samples)
        return collate(
            samples,
            collate_fn_map={**default_collate_fn_map, torch.Tensor: _Stack(window)},
        )

    def _by_function(self, task: Task, samples: Any) -> Any:
        """Calls the user's function, which may draw random numbers, to mix samples for example."""
        assert self._function is not None
        if not task.positions:  # of an iterable dataset
            return self._function(samples)
        with _kept_generators():
            _seed(task.seed, task.epoch, task.positions[0], _COLLATE + len(task.indices))
            return self._function(samples)


class _Stack:
    """Stacks tensors in the slot, or as torch does if there is no room."""

    def __init__(self, window: Window) -> None:
        self._window = window

    def __call__(self, batch: Any, *, collate_fn_map: Any = None) -> Any:
        first = batch[0]
        module = type(first).__module__
        if not (module == "torch" or module.startswith("torchvision.tv_tensors")):
            return collate_tensor_fn(batch, collate_fn_map=collate_fn_map)
        # of any strides: images made of PIL's have their channels last
        if not is_strided(first):
            return collate_tensor_fn(batch, collate_fn_map=collate_fn_map)
        out = None
        if not is_small(first.nbytes * len(batch)):
            out = self._window.tensor(first.dtype, (len(batch), *first.shape))
            if out is None:
                return collate_tensor_fn(batch, collate_fn_map=collate_fn_map)
        with torch._C.DisableTorchFunctionSubclass():
            return torch.stack(list(batch), 0, out=out).contiguous()


class Begin:
    """The worker_init_fn that torch's DataLoader gets."""

    def __init__(self, function: Any, dataset: Any) -> None:
        self._function, self._dataset = function, dataset

    def __call__(self, worker: int) -> None:
        info = _torch_worker._worker_info
        if info is not None and self._dataset is not None:
            # get_worker_info().dataset is the user's.
            _torch_worker._worker_info = replace(info, dataset=self._dataset)
        if self._function is not None:
            self._function(worker)


def reason_of(error: BaseException) -> str:
    """Returns an exception and where it was raised, on one line."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    at = f"{os.path.basename(where.filename)}:{where.lineno} in {where.name}"
    return f"{type(error).__name__}: {error} ({at})"


def _wrapped() -> ExceptionWrapper:
    """Wraps the current exception, for another process too."""
    info = get_worker_info()
    where = "while making a batch" if info is None else f"in worker process {info.id}"
    wrapper = ExceptionWrapper(where=where)
    if info is not None:
        try:
            pickle.dumps(wrapper)
        except Exception:  # a local class; the text still names it
            wrapper.exc_type = RuntimeError
    return wrapper


# Random numbers

_U64 = (1 << 64) - 1
_KEY = struct.Struct("<QQQQ")


def _seed(seed: int, epoch: int, index: int, more: int) -> None:
    """Seeds the process-wide generators for one sample."""
    key = _KEY.pack(seed, epoch & _U64, index & _U64, (epoch >> 64) + more)
    a, b = struct.unpack("<QQ", hashlib.blake2b(key, digest_size=16).digest())
    torch.default_generator.manual_seed(a)
    random.seed(b)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed((a ^ b) & 0xFFFFFFFF)


def _next_numbers() -> tuple[Any, ...]:
    """Draws one number from each generator."""
    numpy = sys.modules.get("numpy")
    return (
        int(torch.empty((), dtype=torch.int64, device="cpu").random_()),
        random.getrandbits(64),
        None if numpy is None else numpy.random.bytes(8),
    )


def _drawn_after(key: tuple[int, int, int, int]) -> tuple[Any, ...]:
    """Returns the numbers that follow a seed."""
    _seed(*key)
    return _next_numbers()


@contextmanager
def _kept_generators() -> Iterator[None]:
    """Leaves the generators of the consumer's process as they are."""
    if get_worker_info() is not None:
        yield
        return
    numpy = sys.modules.get("numpy")
    states = (
        torch.default_generator.get_state(),
        random.getstate(),
        None if numpy is None else numpy.random.get_state(),
    )
    try:
        yield
    finally:
        torch.default_generator.set_state(states[0])
        random.setstate(states[1])
        if numpy is not None and states[2] is not None:
            numpy.random.set_state(states[2])
