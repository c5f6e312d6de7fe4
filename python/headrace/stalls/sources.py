"""Sources of real batches for a measuring run: one class for each kind of loader.

A source plans an index set, a list of batches that can be loaded once cold and once warm, and then
iterates it. It uses a copy of the script's loader with the script's own options (workers, collate
function and so on). The measurement changes only which samples are loaded, and that workers live on
between segments.
"""

from __future__ import annotations

import copy
import itertools
import os
import random
import re
import time
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from .. import _core
from . import counters, work
from .reads import Learned, file_size, unmap

# Share of the available memory for samples held there by the ranks of a host.
HELD_SHARE = 0.25

# Assumed number of batches that an unknown loader prepares ahead: DALI's default, and one more.
UNKNOWN_AHEAD = 3
MOST_AHEAD = 16  # the most that is detected
LEAST_FILL_S, LONGEST_FILL_S = 0.2, 3.0  # time to let the loader prepare batches ahead
AT_ONCE = 0.3  # a batch that takes less than this share of the usual time was ready before
# An attribute of the copies that are iterated here, which the probe ignores.
MEASURED = "_headrace_measured"


@dataclass
class IndexSet:
    """Batches of indices (``None``: the loader's own next ones) and their files."""

    batches: list[Any] | None
    count: int
    files: list[str] | None  # each listed once; None: unknown
    bytes: int | None = None  # bytes that the set reads; estimated if `whole`
    whole: bool = False  # `files` are those of the whole dataset, not only of this set
    total: int = 0  # bytes of all files
    samples: int | None = field(default=None)
    repeats: bool = False  # an epoch has fewer batches


class Source:
    """Base class of all sources. ``ahead``: batches prepared ahead of the one in use."""

    kind = "other"
    same_samples = False  # index sets can be loaded again
    drains = False  # can be iterated without training, repeatedly

    def __init__(self, loader: Any, data: list[str] | None) -> None:
        self.loader = loader
        self.data = data  # files of --data
        self.workers = 0
        self.ahead = 0
        self.batch_size = 0  # samples, set by the run
        self.wrapped = False  # a stream ended within a segment and was started again
        self.learned = Learned()  # what the samples read, if the dataset does not name its files

    @property
    def name(self) -> str:
        return f"{type(self.loader).__module__}.{type(self.loader).__qualname__}"

    def epoch(self) -> int | None:
        """Returns the number of full batches in an epoch, if the loader provides it."""
        if not self.same_samples:
            return None
        try:
            return max(0, len(self.loader) - 1)
        except (TypeError, NotImplementedError):
            return None

    def pids(self) -> list[int]:
        """Lists the process ids of the workers."""
        return []

    def plan(self, count: int) -> IndexSet:
        """Returns the next index set, of at most ``count`` batches."""
        return self._with_files(IndexSet(None, count, None), None)

    def open(self, chosen: IndexSet, cycle: bool = False) -> Iterator[Any]:
        raise NotImplementedError

    def expect(self, cold: bool) -> None:
        """Announces whether the next ``open`` reads files from storage (cold) or from memory."""

    def prepared(self, since_ns: int, taken: int) -> int | None:
        """Returns how many batches the loader has ready in an iteration that started at
        ``since_ns`` and of which ``taken`` were taken. ``None``: unknown."""
        return max(0, sum(1 for row in work.rows() if row.end_ns >= since_ns) - taken)

    def finish(self) -> None:
        """Ends the iteration that ``open`` started, so that the next can start."""

    def epoch_start(self) -> float | None:
        """Measures the seconds from iter() to the first batch, and for ending the workers, as in
        the script's own epochs; ``None`` if the loader starts nothing at an epoch."""
        return None

    def store(self) -> str:
        """Returns what kind of URL the samples come from, "s3" for example; "" if from none."""
        return ""

    def read(self) -> counters.Reading:
        """Reads the counters of this process and of the workers."""
        return counters.read(self.pids())

    def size(self, index: int) -> int | None:
        """Returns the bytes of a sample at a URL; ``None`` if they are not known."""
        return None

    def keep(self, chosen: IndexSet) -> None:
        """Brings the samples of a set at URLs into memory, for a warm segment."""

    def some(self, most: int) -> Any:
        """Returns the indices of up to ``most`` samples of the dataset, at random."""
        raise NotImplementedError

    def measure(self, chosen: Any, depth: int, seconds: float) -> dict[str, Any]:
        """Measures how fast the store delivers samples, with so many requests in flight."""
        raise NotImplementedError

    def release(self, files: list[str]) -> None:
        """Releases this process' mappings of files, which would keep them in memory. Workers with
        such mappings are ended, and start again with the next iteration."""
        names = set(files)
        if any(not names.isdisjoint(work.mapped_files(pid)) for pid in self.pids()):
            self.close()
        unmap(names)

    def close(self) -> None:
        """Ends the workers."""

    def worked(self) -> dict[str, Any] | None:
        """Returns the work of a loader's threads since the last call, in the terms of a row of
        ``work``; ``None`` if workers write rows themselves."""
        return None

    def _with_files(self, chosen: IndexSet, files: list[str] | None) -> IndexSet:
        if files is None and self.data is not None:
            files, chosen.whole = self.data, True
        if files is not None:
            chosen.files = list(dict.fromkeys(files))
            chosen.total = sum(map(file_size, chosen.files))
            chosen.bytes = chosen.total
            if chosen.whole:
                chosen.bytes = self._estimate(chosen)
        return chosen

    def _estimate(self, chosen: IndexSet) -> int | None:
        """Estimates the bytes of a set if only those of the whole dataset are known."""
        try:
            samples = len(self.loader.dataset)
        except (AttributeError, TypeError):
            samples = len(chosen.files or ())  # one file per sample
        of_set = chosen.samples or chosen.count * (self.batch_size or 0)
        return round(chosen.total / samples * of_set) if samples and of_set else None


class _Chosen:
    """A sampler or batch sampler that yields the indices assigned to it last."""

    def __init__(self) -> None:
        self.batches: list[Any] = []
        self.cycle = False

    def __iter__(self) -> Iterator[Any]:
        batches = list(self.batches)
        return itertools.cycle(batches) if self.cycle else iter(batches)

    def __len__(self) -> int:
        return len(self.batches)


class _Batches:
    """Index batches from the script's own sampler, over any number of epochs, without the smaller
    last batch of an epoch."""

    def __init__(self, sampler: Iterable[Any]) -> None:
        self._sampler = sampler
        self._iterator: Iterator[Any] | None = None
        self._largest = 0

    def take(self, count: int) -> tuple[list[Any], bool]:
        """Returns ``count`` batches, and whether they repeat samples: only if an epoch has fewer
        batches, or the sampler itself repeats a sample."""
        found: list[Any] = []
        epochs = 0  # complete epochs among them
        while len(found) < count:
            fresh = self._iterator is None
            if self._iterator is None:
                self._iterator = self._whole(iter(self._sampler))
            more = list(itertools.islice(self._iterator, count - len(found)))
            if len(found) + len(more) < count:
                self._iterator = None  # the epoch is over; a set lies within one epoch
                if not fresh:
                    continue
                if not more:
                    break
                epochs += 1
            found += more
        return found, epochs > 0

    def _whole(self, epoch: Iterator[Any]) -> Iterator[Any]:
        last: Any = None
        for number, batch in enumerate(epoch):
            if number:
                yield last
            # A batch sampler may reuse one list for all its batches.
            last = list(batch) if isinstance(batch, list) else batch
            self._largest = max(self._largest, size_of(last))
        if last is not None and size_of(last) == self._largest:
            yield last


def _is_many(batch: Any) -> bool:
    return isinstance(batch, (list, tuple, range)) or bool(getattr(batch, "shape", ()))


def size_of(batch: Any) -> int:
    """Returns the number of samples in an item of a sampler or a batch sampler."""
    return len(batch) if _is_many(batch) else 1


def indices_in(batch: Any) -> list[int] | None:
    """Returns the indices of a batch's samples; ``None`` if its keys are not integers."""
    try:
        return [int(i) for i in batch] if _is_many(batch) else [int(batch)]
    except (TypeError, ValueError):
        return None


def path_function(dataset: Any) -> Callable[[int], str] | None:
    """Returns a function from index to path, for datasets that name their files: ImageFolder and
    similar ones (``samples`` of (path, ...)), torch's Subset and ConcatDataset of these."""
    parts = getattr(dataset, "datasets", None)
    ends = getattr(dataset, "cumulative_sizes", None)
    if parts is not None and ends is not None:
        functions = [path_function(part) for part in parts]
        if any(function is None for function in functions):
            return None

        def of_parts(index: int) -> str:
            part = next(k for k, end in enumerate(ends) if index < end)
            return functions[part](index - (ends[part - 1] if part else 0))  # type: ignore[misc]

        return of_parts
    indices = getattr(dataset, "indices", None)
    inner = getattr(dataset, "dataset", None)
    if indices is not None and inner is not None:
        of_inner = path_function(inner)
        if of_inner is None:
            return None
        return lambda index: of_inner(int(indices[index]))
    samples = getattr(dataset, "samples", None)
    try:
        first = samples[0]  # type: ignore[index]
        path = first if isinstance(first, (str, os.PathLike)) else first[0]
        if not isinstance(path, (str, os.PathLike)) or not os.path.isfile(path):
            return None
    except (TypeError, IndexError, KeyError, OSError):
        return None

    def of_samples(index: int) -> str:
        sample = samples[index]  # type: ignore[index]
        return os.fspath(sample if isinstance(sample, (str, os.PathLike)) else sample[0])

    return of_samples


def paths_of(function: Callable[[int], str] | None, batches: list[Any]) -> list[str] | None:
    """Lists the paths of all samples; ``None`` unless all are known."""
    if function is None:
        return None
    paths = []
    for batch in batches:
        indices = indices_in(batch)
        if indices is None:
            return None
        try:
            paths += [function(index) for index in indices]
        except (IndexError, TypeError, KeyError, StopIteration):
            return None
    return paths


def _length(dataset: Any, otherwise: int) -> int:
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return otherwise


def container_files(dataset: Any) -> list[str] | None:
    """Lists the files of a dataset in a few large files: Headrace's packs and tar files."""
    while hasattr(dataset, "indices") and hasattr(dataset, "dataset"):
        dataset = dataset.dataset
    for name in ("path", "paths", "root"):
        value = getattr(dataset, name, None)
        values = [value] if isinstance(value, (str, os.PathLike)) else value
        if not isinstance(values, (list, tuple)) or not values:
            continue
        if 4 * len(values) > _length(dataset, 4 * len(values)):
            continue  # about one file per sample: the files that a sample reads must be detected
        if all(isinstance(v, (str, os.PathLike)) and os.path.isfile(v) for v in values):
            return [os.fspath(v) for v in values]
    return None


class _Indexed(Source):
    """Loaders whose samples have indices, so that an index set can be loaded again."""

    same_samples = True
    drains = True

    def _know(self, loader: Any, order: Iterable[Any]) -> None:
        """Initialises the source. ``order``: batches of indices, as in the script's epochs."""
        self._own = _Batches(order)
        self._chosen = _Chosen()
        self._path = path_function(loader.dataset)
        self._containers = None if self._path else container_files(loader.dataset)

    def plan(self, count: int) -> IndexSet:
        batches, repeats = self._own.take(count)
        chosen = IndexSet(batches, len(batches), None, repeats=repeats)
        chosen.samples = sum(map(size_of, batches))
        paths = paths_of(self._path, batches)
        if paths is not None:
            return self._with_files(chosen, paths)
        if self._containers is not None:
            chosen.whole = True
            return self._with_files(chosen, self._containers)
        return self._with_files(chosen, None)


class _Torch(Source):
    """torch's DataLoader, of which a copy is iterated."""

    kind = "torch"
    drains = True

    def __init__(self, loader: Any, begin: Callable[[Any], Any], data: list[str] | None) -> None:
        super().__init__(loader, data)
        self._begin = begin
        self.workers = int(loader.num_workers)
        self.ahead = self.workers * int(loader.prefetch_factor or 0)
        self._copy = copy.copy(loader)
        vars(self._copy).update({"persistent_workers": False, "_iterator": None, MEASURED: True})
        self._iterator: Any = None

    def pids(self) -> list[int]:
        # Persistent workers belong to the iterator that the loader keeps.
        iterator = self._copy._iterator if self._iterator is None else self._iterator
        workers = getattr(iterator, "_workers", None) or []
        return [worker.pid for worker in workers if worker.pid is not None]


class TorchMap(_Torch, _Indexed):
    """torch's DataLoader over a map-style dataset."""

    def __init__(self, loader: Any, begin: Callable[[Any], Any], data: list[str] | None) -> None:
        super().__init__(loader, begin, data)
        self._know(loader, loader._index_sampler)
        members = vars(self._copy)
        members["batch_sampler" if loader._auto_collation else "sampler"] = self._chosen
        members["persistent_workers"] = self.workers > 0

    def plan(self, count: int) -> IndexSet:
        chosen = super().plan(count)
        if chosen.files is not None or self.learned.nothing:
            return chosen
        if self.learned.whole is None:
            opened = self.learned.of(lambda: self._run_through(chosen), self.release)
            if opened:
                return self._with_files(chosen, opened)
        if self.learned.whole:
            chosen.whole = True
            return self._with_files(chosen, self.learned.whole)
        return chosen

    def _run_through(self, chosen: IndexSet) -> int:
        """Loads a set only to observe what it reads. Returns the number of samples."""
        try:
            for _ in self.open(chosen):
                pass
        finally:
            self.finish()
        return chosen.samples or 0

    def open(self, chosen: IndexSet, cycle: bool = False) -> Iterator[Any]:
        self._chosen.batches, self._chosen.cycle = list(chosen.batches or []), cycle
        self._iterator = self._begin(self._copy)
        return self._iterator  # type: ignore[no-any-return]

    def epoch_start(self) -> float | None:
        if not self.workers:
            return None
        self._chosen.batches, _ = self._own.take(self.workers)
        self._chosen.cycle = False
        own = copy.copy(self._copy)
        vars(own).update({"persistent_workers": False, "_iterator": None})
        begin = time.perf_counter()
        iterator = self._begin(own)
        next(iterator)
        first = last = time.perf_counter()
        for _ in itertools.islice(iterator, len(self._chosen.batches) - 1):
            last = time.perf_counter()
        if next(iterator, None) is not None:
            return None
        return first - begin + time.perf_counter() - last

    def finish(self) -> None:
        """Ends the iteration, after waiting for the batches that are still being prepared."""
        iterator, self._iterator = self._iterator, None
        sampler_iterator = getattr(iterator, "_sampler_iter", None)
        if sampler_iterator is not None:
            iterator._sampler_iter = iter(())  # an endless set ends here
        if iterator is not None:
            for _ in range(self.ahead + 1):
                try:
                    next(iterator)
                except StopIteration:
                    break
                except Exception:  # e.g. a bad sample that training has not reached
                    continue

    def close(self) -> None:
        end_workers(getattr(self._copy, "_iterator", None))
        vars(self._copy)["_iterator"] = None


def end_workers(iterator: Any) -> None:
    """Ends the worker processes of one of torch's iterators, if it has any."""
    shutdown = getattr(iterator, "_shutdown_workers", None)
    if shutdown is not None:
        try:
            shutdown()
        except Exception:  # the workers end with this process at the latest
            pass


class TorchIterable(_Torch):
    """torch's DataLoader over an iterable dataset, which every segment starts from the beginning."""

    def __init__(self, loader: Any, begin: Callable[[Any], Any], data: list[str] | None) -> None:
        super().__init__(loader, begin, data)
        self._files: list[str] | None = None
        self._learned = False

    def plan(self, count: int) -> IndexSet:
        chosen = IndexSet(None, count, None)
        if self.data is not None:
            return self._with_files(chosen, None)
        if not self._learned:
            self._learned = True
            opened = self.learned.of(lambda: self._run_through(chosen), self.release)
            self._files = opened or self.learned.whole or None
        if self._files is not None:
            # Workers prepare batches ahead, so they read more than the samples of the set.
            chosen.files, chosen.whole = self._files, True
            chosen.total = sum(map(file_size, self._files))
            chosen.bytes = None
        return chosen

    def _run_through(self, chosen: IndexSet) -> int:
        from .replay import samples_in

        try:
            batches = list(map(samples_in, itertools.islice(self.open(chosen), chosen.count)))
        finally:
            self.finish()
        chosen.count = len(batches)
        return sum(batches)

    def open(self, chosen: IndexSet, cycle: bool = False) -> Iterator[Any]:
        self._iterator = self._begin(self._copy)
        return self._endless()

    def _endless(self) -> Iterator[Any]:
        while True:
            empty = True
            for batch in self._iterator:
                empty = False
                yield batch
            if empty:
                return
            self.wrapped = True
            with warnings.catch_warnings():
                # Restricted to fewer cores, torch warns about too many workers.
                warnings.simplefilter("ignore")
                self._iterator = self._begin(self._copy)

    def finish(self) -> None:
        end_workers(self._iterator)
        self._iterator = None

    def epoch_start(self) -> float | None:
        if not self.workers:
            return None
        begin = time.perf_counter()
        try:
            next(self.open(IndexSet(None, 1, None)), None)
            return time.perf_counter() - begin
        finally:
            self.finish()

    def close(self) -> None:
        self.finish()


class Headrace(_Indexed):
    """headrace.torch.DataLoader, which uses threads of this process."""

    kind = "headrace"

    def __init__(self, loader: Any, data: list[str] | None) -> None:
        super().__init__(loader, data)
        self._know(loader, loader._measured_order())
        self._loader = loader
        # The kernel keeps files in memory; objects need a cache for that.
        share = HELD_SHARE / int(os.environ.get("LOCAL_WORLD_SIZE", 1))
        kept = str(int(_core.machine()["page_cache_bytes"] * share)) if self.store() else None
        self._warm = loader._measured_copy(self._chosen, kept)
        self._cold = loader._measured_copy(self._chosen)
        for one in (self._warm, self._cold):
            vars(one)[MEASURED] = True
        self._copy = self._warm
        self.workers = int(self._copy.stats()["threads"])
        self.ahead = int(loader._batches_ahead)
        self._seen: dict[str, Any] = {}

    def open(self, chosen: IndexSet, cycle: bool = False) -> Iterator[Any]:
        self._chosen.batches, self._chosen.cycle = list(chosen.batches or []), cycle
        return iter(self._copy)

    def finish(self) -> None:
        # The next iter() drops batches in preparation; until then nothing may run.
        self._chosen.batches, self._chosen.cycle = [], False
        for _ in iter(self._copy):
            pass

    def close(self) -> None:
        self._warm.close()
        self._cold.close()

    def expect(self, cold: bool) -> None:
        # A loader adapts to whether its reads block. Use one loader for cold and one for warm
        # segments, so that neither starts with what it learned from the other kind.
        self._copy = self._cold if cold else self._warm
        self._seen = {}

    def prepared(self, since_ns: int, taken: int) -> int | None:
        return int(self._copy.stats()["ready_batches"])

    def plan(self, count: int) -> IndexSet:
        chosen = super().plan(count)
        if self.store() and not chosen.files:
            # The last ones are dropped, unless they were fetched already.
            batches = (chosen.batches or [])[: max(1, chosen.count - self.ahead)]
            sizes = [self.size(i) for batch in batches for i in indices_in(batch) or []]
            known = [size for size in sizes if size is not None]
            chosen.bytes = sum(known) if len(known) == len(sizes) else None
        return chosen

    def store(self) -> str:
        source = self._loader._source
        found = re.match("(s3|gs|https?)://", source.path(0)) if len(source) else None
        return found[1] if found else ""

    def size(self, index: int) -> int | None:
        size: int | None = self._loader._source.sample_bytes(index)
        return size

    def read(self) -> counters.Reading:
        now = super().read()
        return replace(now, read_bytes=self._loader.stats()["object_bytes"]) if self.store() else now

    def some(self, most: int) -> Any:
        samples = range(len(self._loader._source))
        return array("q", random.Random(0).sample(samples, min(most, len(samples))))

    def measure(self, chosen: Any, depth: int, seconds: float) -> dict[str, Any]:
        source = self._loader._source
        return dict(_core.storage_measure_samples(source, chosen, depth, seconds))

    def keep(self, chosen: IndexSet) -> None:
        if self.store():
            self.expect(False)
            for _ in self.open(chosen):
                pass

    def worked(self) -> dict[str, Any] | None:
        now, before = self._copy.stats(), self._seen
        self._seen = now

        def difference(name: str, member: str | None = None) -> int:
            if member is None:
                return int(now[name]) - int(before.get(name, 0))
            return int(now[name][member]) - int(before.get(name, {}).get(member, 0))

        samples = difference("samples")
        if not samples:
            return None
        # Threads measure elapsed time; their CPU time is unknown.
        thread_ns = difference("prepare", "sum_ns") + difference("fetch", "sum_ns")
        return {
            "samples": samples,
            "cpu_s": None,
            "wall_s": thread_ns / 1e9,
            "read_bytes": difference("bytes_read"),
        }


class Other(Source):
    """Any other iterable of batches. Continues the script's own iterator; when that ends, starts
    another one with ``begin``, until one yields no batch."""

    kind = "other"
    drains = True

    def __init__(
        self, loader: Any, iterator: Any, begin: Callable[[Any], Any], data: list[str] | None
    ) -> None:
        super().__init__(loader, data)
        self._iterator, self._begin = iterator, begin
        self.ahead = UNKNOWN_AHEAD

    def learn_ahead(self, step_s: float) -> None:
        """Detects how many batches it prepares ahead (the script may use a thread): after a pause,
        that many arrive at once."""
        iterator = self.open(IndexSet(None, 0, None))
        if next(iterator, None) is None:
            return
        time.sleep(min(LONGEST_FILL_S, max(LEAST_FILL_S, 2 * MOST_AHEAD * step_s)))
        took: list[float] = []
        begin = last = time.perf_counter()
        while len(took) < 2 * MOST_AHEAD and last - begin < LONGEST_FILL_S:
            if next(iterator, None) is None:
                return
            now = time.perf_counter()
            took.append(now - last)
            last = now
        usual = sorted(took[len(took) // 2 :])[len(took) // 4]
        at_once = next((k for k, one in enumerate(took) if one > AT_ONCE * usual), len(took))
        if at_once <= len(took) // 2:
            self.ahead = max(UNKNOWN_AHEAD, at_once)

    def prepared(self, since_ns: int, taken: int) -> int | None:
        return None

    def pids(self) -> list[int]:
        return counters.descendants()

    def plan(self, count: int) -> IndexSet:
        return self._with_files(IndexSet(None, count, None), None)

    def open(self, chosen: IndexSet, cycle: bool = False) -> Iterator[Any]:
        empty = False  # the script's own iterator may be exhausted
        while True:
            before, empty = empty, True
            while True:
                try:
                    batch = next(self._iterator)  # not iter(): that might be wrapped by the probe
                except StopIteration:
                    break
                empty = False
                yield batch
            if empty and before:
                return
            reset = getattr(self.loader, "reset", None)
            if callable(reset):  # DALI's iterators need this to start again
                reset()
            self._iterator = self._begin(self.loader)


def source_of(
    loader: Any, iterator: Any, begin: Callable[[Any], Any], data: list[str] | None
) -> Source:
    """Returns the source for a loader whose ``iterator`` the script is iterating. ``begin(loader)``
    makes an iterator, by the ``__iter__`` of the class that the probe wrapped."""
    if hasattr(loader, "_measured_copy"):
        if loader.is_native:
            return Headrace(loader, data)
        loader, begin = loader._measured_torch(), iter
    import torch.utils.data

    if not isinstance(loader, torch.utils.data.DataLoader):
        return Other(loader, iterator, begin, data)
    if isinstance(loader.dataset, torch.utils.data.IterableDataset):
        return TorchIterable(loader, begin, data)
    return TorchMap(loader, begin, data)
