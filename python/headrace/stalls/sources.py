"""Sources of real batches for a measuring run: one class for each kind of loader.

A source is asked for an index set, a list of batches that can be loaded once cold and once
warm, and then iterated. It works on a copy of the script's loader with the script's own
options: workers, collate function and all; only which samples come, and that workers live
on between segments, is the measurement's choice.
"""

from __future__ import annotations

import copy
import itertools
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from . import counters, work
from .reads import Learned, file_size, unmap

# Batches that a loader we know nothing of may have prepared: DALI's default, and one more.
UNKNOWN_AHEAD = 3
MOST_AHEAD = 16  # that is looked for
LEAST_FILL_S, LONGEST_FILL_S = 0.2, 3.0  # for it to prepare what it prepares ahead
AT_ONCE = 0.3  # of the usual time of a batch: it was there already
# An attribute of the copies that are iterated here: the probe lets them be.
MEASURED = "_headrace_measured"


@dataclass
class IndexSet:
    """Batches of indices (``None``: the loader's own next ones) and their files."""

    batches: list[Any] | None
    count: int
    files: list[str] | None  # once each; None: not known
    bytes: int | None = None  # that the set reads; estimated where `whole`
    whole: bool = False  # `files` are the whole dataset's, not just this set's
    total: int = 0  # bytes of all files
    samples: int | None = field(default=None)
    repeats: bool = False  # an epoch has fewer batches


class Source:
    """What all sources have. ``ahead``: batches prepared ahead of the one in use."""

    kind = "other"
    same_samples = False  # index sets can be loaded again
    drains = False  # can be iterated without training, as often as wanted

    def __init__(self, loader: Any, data: list[str] | None) -> None:
        self.loader = loader
        self.data = data  # files of --data
        self.workers = 0
        self.ahead = 0
        self.batch_size = 0  # samples, set by the run
        self.wrapped = False  # a stream ended within a segment, and was begun again
        self.learned = Learned()  # what the samples read, where the dataset does not say

    @property
    def name(self) -> str:
        return f"{type(self.loader).__module__}.{type(self.loader).__qualname__}"

    def epoch(self) -> int | None:
        """Whole batches of an epoch, where the loader says so."""
        if not self.same_samples:
            return None
        try:
            return max(0, len(self.loader) - 1)
        except (TypeError, NotImplementedError):
            return None

    def pids(self) -> list[int]:
        """The workers' processes."""
        return []

    def plan(self, count: int) -> IndexSet:
        """The next index set, of at most ``count`` batches."""
        return self._with_files(IndexSet(None, count, None), None)

    def open(self, chosen: IndexSet, cycle: bool = False) -> Iterator[Any]:
        raise NotImplementedError

    def expect(self, cold: bool) -> None:
        """What ``open`` is for next: files on storage, or in memory."""

    def prepared(self, since_ns: int, taken: int) -> int | None:
        """Batches that the loader has ready, of an iteration that ``taken`` were taken from;
        ``since_ns`` is when it began. ``None``: not known."""
        return max(0, sum(1 for row in work.rows() if row.end_ns >= since_ns) - taken)

    def finish(self) -> None:
        """Ends what ``open`` began, ready for the next."""

    def epoch_start(self) -> float | None:
        """Seconds from iter() to the first batch, and of ending the workers, as the script's own
        epochs have them; ``None`` where nothing is begun."""
        return None

    def let_go(self, files: list[str]) -> None:
        """Ends the mappings of files, which would stay in memory, as far as they are this
        process's or its workers': those have to be started again."""
        names = set(files)
        if any(not names.isdisjoint(work.mapped_files(pid)) for pid in self.pids()):
            self.close()
        unmap(names)

    def close(self) -> None:
        """Ends the workers."""

    def worked(self) -> dict[str, Any] | None:
        """What a loader of threads did since it was asked last, in the terms of a row of
        ``work``; ``None`` where workers write rows themselves."""
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
        """Bytes of a set when only the whole dataset's are known."""
        try:
            samples = len(self.loader.dataset)
        except (AttributeError, TypeError):
            samples = len(chosen.files or ())  # a file each
        of_set = chosen.samples or chosen.count * (self.batch_size or 0)
        return round(chosen.total / samples * of_set) if samples and of_set else None


class _Chosen:
    """A sampler, or batch sampler, that yields what it was given last."""

    def __init__(self) -> None:
        self.batches: list[Any] = []
        self.cycle = False

    def __iter__(self) -> Iterator[Any]:
        batches = list(self.batches)
        return itertools.cycle(batches) if self.cycle else iter(batches)

    def __len__(self) -> int:
        return len(self.batches)


class _Batches:
    """Index batches of a script's own sampler, epoch after epoch, without a last one that is
    smaller than those before."""

    def __init__(self, sampler: Iterable[Any]) -> None:
        self._sampler = sampler
        self._iterator: Iterator[Any] | None = None
        self._largest = 0

    def take(self, count: int) -> tuple[list[Any], bool]:
        """``count`` batches, and whether some samples are there twice: no sample is unless an
        epoch has fewer batches, or the sampler gives it twice."""
        found: list[Any] = []
        epochs = 0  # whole ones in it
        while len(found) < count:
            fresh = self._iterator is None
            if self._iterator is None:
                self._iterator = self._whole(iter(self._sampler))
            more = list(itertools.islice(self._iterator, count - len(found)))
            if len(found) + len(more) < count:
                self._iterator = None  # the epoch is over; a set lies within one
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
            # A batch sampler may give the same list again and again.
            last = list(batch) if isinstance(batch, list) else batch
            self._largest = max(self._largest, size_of(last))
        if last is not None and size_of(last) == self._largest:
            yield last


def _is_many(batch: Any) -> bool:
    return isinstance(batch, (list, tuple, range)) or bool(getattr(batch, "shape", ()))


def size_of(batch: Any) -> int:
    """Samples of what a sampler, or a batch sampler, yields."""
    return len(batch) if _is_many(batch) else 1


def indices_in(batch: Any) -> list[int] | None:
    """The numbers of a batch's samples; ``None`` where they are named otherwise."""
    try:
        return [int(i) for i in batch] if _is_many(batch) else [int(batch)]
    except (TypeError, ValueError):
        return None


def path_function(dataset: Any) -> Callable[[int], str] | None:
    """Index to path, for datasets that say what their files are: ImageFolder and its like
    (``samples`` of (path, ...)), torch's Subset and ConcatDataset of these."""
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
    """Of all samples; ``None`` unless each is known."""
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
    """The files of a dataset that lies in few large ones: Headrace's packs and tar files."""
    while hasattr(dataset, "indices") and hasattr(dataset, "dataset"):
        dataset = dataset.dataset
    for name in ("path", "paths", "root"):
        value = getattr(dataset, name, None)
        values = [value] if isinstance(value, (str, os.PathLike)) else value
        if not isinstance(values, (list, tuple)) or not values:
            continue
        if 4 * len(values) > _length(dataset, 4 * len(values)):
            continue  # a file or so for each sample: which of them is read has to be learned
        if all(isinstance(v, (str, os.PathLike)) and os.path.isfile(v) for v in values):
            return [os.fspath(v) for v in values]
    return None


class _Indexed(Source):
    """Loaders whose samples have indices, so that a set of them can be loaded again."""

    same_samples = True
    drains = True

    def _know(self, loader: Any, order: Iterable[Any]) -> None:
        """``order``: batches of indices, as an epoch of the script has them."""
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
    """torch's DataLoader: a copy of it is iterated."""

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
        # Workers that persist belong to the iterator that the loader keeps.
        iterator = self._copy._iterator if self._iterator is None else self._iterator
        workers = getattr(iterator, "_workers", None) or []
        return [worker.pid for worker in workers if worker.pid is not None]


class TorchMap(_Torch, _Indexed):
    """Over a map-style dataset."""

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
            opened = self.learned.of(lambda: self._run_through(chosen), self.let_go)
            if opened:
                return self._with_files(chosen, opened)
        if self.learned.whole:
            chosen.whole = True
            return self._with_files(chosen, self.learned.whole)
        return chosen

    def _run_through(self, chosen: IndexSet) -> int:
        """Loads a set for nothing but to see what it reads; its samples."""
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
        """Batches that are still being prepared are waited for."""
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
                except Exception:  # of a sample that training did not come to
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
        except Exception:  # they end with this process at the latest
            pass


class TorchIterable(_Torch):
    """Over an iterable dataset: every segment starts it anew."""

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
            opened = self.learned.of(lambda: self._run_through(chosen), self.let_go)
            self._files = opened or self.learned.whole or None
        if self._files is not None:
            # Workers run ahead of what is taken: more is read than a set's samples are.
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
                # On fewer cores torch warns of too many workers.
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
    """headrace.torch.DataLoader: threads of this process."""

    kind = "headrace"

    def __init__(self, loader: Any, data: list[str] | None) -> None:
        super().__init__(loader, data)
        self._know(loader, loader._measured_order())
        self._warm, self._cold = (loader._measured_copy(self._chosen) for _ in range(2))
        for one in (self._warm, self._cold):
            vars(one)[MEASURED] = True
        self._copy = self._warm
        self.workers = int(self._copy.stats()["threads"])
        self.ahead = int(loader.prefetch_factor)
        self._seen: dict[str, Any] = {}

    def open(self, chosen: IndexSet, cycle: bool = False) -> Iterator[Any]:
        self._chosen.batches, self._chosen.cycle = list(chosen.batches or []), cycle
        return iter(self._copy)

    def finish(self) -> None:
        # The next iter() drops what is being prepared; nothing may run in between.
        self._chosen.batches, self._chosen.cycle = [], False
        for _ in iter(self._copy):
            pass

    def close(self) -> None:
        self._warm.close()
        self._cold.close()

    def expect(self, cold: bool) -> None:
        # A loader learns whether its reads block; neither kind of segment is to begin with
        # what the other one taught.
        self._copy = self._cold if cold else self._warm
        self._seen = {}

    def prepared(self, since_ns: int, taken: int) -> int | None:
        return int(self._copy.stats()["ready_batches"])

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
        # Threads count elapsed time; how much of it was on a core is not known.
        thread_ns = difference("prepare", "sum_ns") + difference("fetch", "sum_ns")
        return {
            "samples": samples,
            "cpu_s": None,
            "wall_s": thread_ns / 1e9,
            "read_bytes": difference("bytes_read"),
        }


class Other(Source):
    """Anything that yields batches: goes on with the script's own iterator; when that ends, begins
    another, as long as one gives something. ``begin`` makes another of the loader's own
    iterators."""

    kind = "other"
    drains = True

    def __init__(
        self, loader: Any, iterator: Any, begin: Callable[[Any], Any], data: list[str] | None
    ) -> None:
        super().__init__(loader, data)
        self._iterator, self._begin = iterator, begin
        self.ahead = UNKNOWN_AHEAD

    def learn_ahead(self, step_s: float) -> None:
        """How many batches it prepares ahead (a thread of the script's may): left alone for a
        while, it has so many to give at once."""
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
        empty = False  # what the script has begun may be at its end
        while True:
            before, empty = empty, True
            while True:
                try:
                    batch = next(self._iterator)  # iter() of it might be the probe's again
                except StopIteration:
                    break
                empty = False
                yield batch
            if empty and before:
                return
            reset = getattr(self.loader, "reset", None)
            if callable(reset):  # DALI's iterators begin again only then
                reset()
            self._iterator = self._begin(self.loader)


def source_of(
    loader: Any, iterator: Any, begin: Callable[[Any], Any], data: list[str] | None
) -> Source:
    """The source for a loader whose ``iterator`` the script is going through. ``begin`` makes
    one of a loader, at the level of the loader's class where the probe found it."""
    if hasattr(loader, "_measured_copy"):
        return Headrace(loader, data)
    import torch.utils.data

    if not isinstance(loader, torch.utils.data.DataLoader):
        return Other(loader, iterator, begin, data)
    if isinstance(loader.dataset, torch.utils.data.IterableDataset):
        return TorchIterable(loader, begin, data)
    return TorchMap(loader, begin, data)
