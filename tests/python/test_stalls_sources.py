"""Sources of measured batches, and reports of workers."""

from __future__ import annotations

import itertools
import os
import time
import types

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import (  # noqa: E402
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    WeightedRandomSampler,
)

from headrace.stalls import counters, sources, work  # noqa: E402
from headrace.stalls.sources import (  # noqa: E402
    Headrace,
    Other,
    TorchIterable,
    TorchMap,
    container_files,
    indices_in,
    path_function,
    paths_of,
    size_of,
    source_of,
)


class Files(Dataset):
    """Samples of one file each, opened by Python."""

    def __init__(self, root, count=20, named=False):
        self.paths = [str(root / f"{i:03}.bin") for i in range(count)]
        for i, path in enumerate(self.paths):
            with open(path, "wb") as file:
                file.write(bytes([i]) * (100 + i))
        if named:
            self.samples = [(path, 0) for path in self.paths]

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index], "rb") as file:
            return torch.tensor([file.read()[0]])


class Stream(IterableDataset):
    def __init__(self, files, count=None):
        self.files, self.count = files, count

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        for i in range(first, self.count or len(self.files), step):
            yield self.files[i]


@pytest.fixture
def run_folder(tmp_path, monkeypatch):
    """The folder of a run; torch's fetchers report their work."""
    import torch.utils.data._utils.fetch as fetch

    folder = tmp_path / "run"
    folder.mkdir()
    monkeypatch.setenv("HEADRACE_STALLS_DIR", str(folder))
    monkeypatch.setenv("HEADRACE_STALLS_OWNER", "0")
    monkeypatch.setattr(work, "_files", work._Files())
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        kind = getattr(fetch, name)
        monkeypatch.setattr(kind, "fetch", kind.fetch)
    work.wrap_fetchers(fetch)
    work.own()
    work.record(True)
    yield folder
    work.record(False)
    work.learn(False)


@pytest.fixture
def files(tmp_path):
    root = tmp_path / "files"
    root.mkdir()
    return Files(root)


@pytest.fixture
def named(tmp_path):
    root = tmp_path / "named"
    root.mkdir()
    return Files(root, named=True)


def torch_map(loader, data=None):
    return TorchMap(loader, DataLoader.__iter__, data)


def given(source, chosen, count=None):
    """Returns the sample numbers of the batches that a source gives for a set."""
    found = []
    for batch in source.open(chosen):
        found.append([int(i) for i in batch.flatten()])
        if len(found) == count:
            break
    source.finish()
    return found


# Index sets


def test_a_set_lies_within_an_epoch(named):
    """Three sets of two batches fit in an epoch of 20 samples; the last, partial batch and the rest
    of an epoch are not used."""
    source = torch_map(DataLoader(named, batch_size=3, shuffle=True))
    sets = [source.plan(2) for _ in range(9)]
    for epoch in (sets[:3], sets[3:6], sets[6:]):
        indices = [i for one in epoch for batch in one.batches for i in batch]
        assert len(indices) == len(set(indices)) == 18
    assert all(len(batch) == 3 for one in sets for batch in one.batches)
    assert not any(one.repeats for one in sets)
    assert all(one.samples == 6 and one.count == 2 for one in sets)
    source.close()


def test_files_of_a_set(named):
    source = torch_map(DataLoader(named, batch_size=3))
    source.plan(1)
    chosen = source.plan(2)
    assert chosen.files == named.paths[3:9]
    assert chosen.bytes == sum(100 + i for i in range(3, 9)) and not chosen.whole
    assert given(source, chosen) == [[3, 4, 5], [6, 7, 8]]
    assert given(source, chosen) == [[3, 4, 5], [6, 7, 8]], "again, the same"


def test_sets_longer_than_an_epoch(named):
    source = torch_map(DataLoader(named, batch_size=6))
    chosen = source.plan(8)
    assert chosen.count == 8 and chosen.repeats and all(len(b) == 6 for b in chosen.batches)
    assert len(chosen.files) == 18
    assert source.epoch() == 3


def test_nothing_to_give(named):
    chosen = torch_map(DataLoader(Subset(named, []), batch_size=4)).plan(3)
    assert chosen.count == 0 and chosen.batches == []


SAMPLERS = {
    "weighted": lambda d: {"sampler": WeightedRandomSampler([1.0] * len(d), 40), "batch_size": 4},
    "random": lambda d: {"sampler": RandomSampler(d, replacement=True), "batch_size": 4},
    "batches": lambda d: {"batch_sampler": BatchSampler(SequentialSampler(d), 4, False)},
    "lists": lambda d: {"batch_sampler": [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [0, 1]]},
    "tensors": lambda d: {"batch_sampler": [torch.arange(4), torch.arange(4, 8)] * 3},
    "single": lambda d: {"batch_size": None},
    "single lists": lambda d: {"batch_size": None, "sampler": list(range(8))},
}


@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize("workers", [0, 1])
def test_samplers(named, kind, workers):
    loader = DataLoader(named, num_workers=workers, **SAMPLERS[kind](named))
    source = torch_map(loader)
    for _ in range(3):
        chosen = source.plan(2)
        numbers = [indices_in(batch) for batch in chosen.batches]
        assert given(source, chosen) == numbers
        assert chosen.files == list(
            dict.fromkeys(named.paths[i] for batch in numbers for i in batch)
        )
        assert chosen.samples == sum(map(len, numbers)) == 2 * size_of(chosen.batches[0])
    assert (source.workers, len(source.pids())) == (workers, workers)
    source.close()


def test_batches_of_varying_sizes(named):
    """A batch sampler that fills batches by the samples' lengths: all but a small last batch count.
    """
    sizes = [[0, 1, 2], [3], [4, 5, 6, 7], [8, 9], [10]]
    chosen = torch_map(DataLoader(named, batch_sampler=sizes)).plan(4)
    assert chosen.batches == sizes[:4] and chosen.samples == 10


def test_one_list_given_again_and_again(named):
    """A sampler that returns the same list each time, filled anew."""

    class Same:
        def __iter__(self):
            batch = []
            for i in range(0, 8, 2):
                batch[:] = [i, i + 1]
                yield batch

    chosen = torch_map(DataLoader(named, batch_sampler=Same())).plan(4)
    assert chosen.batches == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_samples_that_are_named(run_folder, tmp_path):
    """A sampler of keys: their files are learned."""

    class Keyed(Files):
        def __getitem__(self, key):
            return super().__getitem__(int(key[1:]))

    (tmp_path / "keyed").mkdir()
    keyed = Keyed(tmp_path / "keyed", named=True)
    loader = DataLoader(keyed, batch_size=2, sampler=[f"k{i}" for i in range(8)])
    chosen = torch_map(loader).plan(2)
    assert chosen.samples == 4 and chosen.files == keyed.paths[:4] and not chosen.whole


def test_sources_of_loaders(named):
    begin = DataLoader.__iter__
    assert type(source_of(DataLoader(named), None, begin, None)) is TorchMap
    assert type(source_of(DataLoader(Stream(named)), None, begin, None)) is TorchIterable
    assert type(source_of([1, 2], iter([1, 2]), iter, None)) is Other


def test_a_subclass_keeps_its_own_way(named):
    class Doubled(DataLoader):
        def __iter__(self):
            for batch in super().__iter__():
                yield 2 * batch

    loader = Doubled(named, batch_size=2)
    inner = TorchMap(loader, DataLoader.__iter__, None)
    assert given(inner, inner.plan(1)) == [[0, 1]]
    outer = TorchMap(loader, Doubled.__iter__, None)
    assert given(outer, outer.plan(1)) == [[0, 2]]
    assert [b.flatten().tolist() for b in loader][:2] == [[0, 2], [4, 6]], "the script's own"


def test_endless_sets(named):
    for workers in (0, 2):
        source = torch_map(DataLoader(named, batch_size=2, num_workers=workers))
        chosen = source.plan(3)
        found = []
        for batch in source.open(chosen, cycle=True):
            found.append(batch.flatten().tolist())
            if len(found) == 8:
                break
        source.finish()
        assert found == [[0, 1], [2, 3], [4, 5], [0, 1], [2, 3], [4, 5], [0, 1], [2, 3]]
        assert given(source, chosen) == [[0, 1], [2, 3], [4, 5]]
        source.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_what_is_left_unfinished_may_fail(named, workers):
    """Errors of batches that are prepared ahead and never requested have no effect."""

    class Broken(Dataset):
        def __getitem__(self, index):
            if index >= 4:
                raise KeyError(index)
            return named[index]

        def __len__(self):
            return 20

    source = torch_map(DataLoader(Broken(), batch_size=2, num_workers=workers))
    source._path = lambda index: named.paths[index]
    chosen = source.plan(8)
    assert given(source, chosen, 2) == [[0, 1], [2, 3]]
    assert given(source, chosen, 2) == [[0, 1], [2, 3]], "and it goes on"
    with pytest.raises(KeyError):
        given(source, chosen)
    source.finish()
    source.close()


# Streams


@pytest.mark.parametrize("workers", [0, 2])
def test_streams(files, run_folder, workers):
    loader = DataLoader(Stream(files), batch_size=2, num_workers=workers)
    source = TorchIterable(loader, DataLoader.__iter__, None)
    chosen = source.plan(4)
    assert chosen.whole and chosen.bytes is None and set(chosen.files) <= set(files.paths)
    assert len(chosen.files) >= 8 and chosen.total == sum(map(os.path.getsize, chosen.files))
    first = given(source, chosen, 4)
    assert first == given(source, chosen, 4), "each time from its beginning"
    assert not source.wrapped
    assert len(given(source, chosen, 23)) == 23 and source.wrapped
    source.close()


def test_an_empty_stream(files, run_folder):
    source = TorchIterable(DataLoader(Stream(files, -1), batch_size=2), DataLoader.__iter__, None)
    chosen = source.plan(4)
    assert chosen.count == 0 and given(source, chosen) == []


def test_any_other_iterable():
    class Loader:
        resets = 0

        def __iter__(self):
            return iter([[1, 2], [3, 4]])

        def reset(self):
            self.resets += 1

    loader = Loader()
    iterator = iter(loader)
    next(iterator)
    source = Other(loader, iterator, iter, ["a", "b"])
    chosen = source.plan(3)
    assert chosen.whole and chosen.files == ["a", "b"]
    found = source.open(chosen)
    assert [next(found) for _ in range(4)] == [[3, 4], [1, 2], [3, 4], [1, 2]]
    assert loader.resets == 2
    nothing = Other([], iter([]), iter, None)
    assert list(nothing.open(nothing.plan(3))) == []


@pytest.mark.parametrize(("prepared", "found"), [(0, 3), (6, 6), (16, 16), (40, 3)])
def test_batches_that_another_loader_prepares_ahead(monkeypatch, prepared, found):
    """After a pause they arrive at once. Too few or too many to detect are assumed to be three."""
    clock = types.SimpleNamespace(now=0.0)

    class Loader:
        def __iter__(self):
            for number in itertools.count():
                clock.now += 0.0001 if number <= prepared else 0.016
                yield number

    loader = Loader()
    source = Other(loader, iter(loader), iter, None)
    monkeypatch.setattr(sources.time, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(sources.time, "sleep", lambda seconds: None)
    source.learn_ahead(0.016)
    assert source.ahead == found


# Detecting a dataset's files


def test_paths_of_datasets(named, tmp_path):
    whole = path_function(named)
    assert whole(3) == named.paths[3]
    subset = Subset(named, [5, 7, 9])
    assert path_function(subset)(1) == named.paths[7]
    assert path_function(Subset(subset, torch.tensor([2])))(0) == named.paths[9]
    both = ConcatDataset([subset, named])
    assert [path_function(both)(i) for i in (2, 3, 22)] == [
        named.paths[9], named.paths[0], named.paths[19],
    ]  # fmt: skip
    assert path_function(ConcatDataset([named, [1, 2]])) is None
    assert path_function([1, 2]) is None
    assert paths_of(whole, [[1, 2], torch.tensor([3])]) == named.paths[1:4]
    assert paths_of(whole, [["a"]]) is None and paths_of(whole, [[99]]) is None
    assert paths_of(None, [[1]]) is None
    named.samples = [("/nowhere/at/all", 0)]
    assert path_function(named) is None


def test_files_of_containers(tmp_path):
    class Packed(Dataset):
        def __init__(self, **members):
            vars(self).update(members)

    path = tmp_path / "one.pack"
    path.write_bytes(b"x" * 10)
    assert container_files(Packed(path=path)) == [str(path)]
    assert container_files(Subset(Packed(paths=[path, str(path)]), [0])) == [str(path)] * 2
    assert container_files(Packed(root=tmp_path)) is None
    assert container_files(Packed(path="/nowhere")) is None


def test_data_named_on_the_command_line(files):
    class Odd(Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, index):
            return torch.zeros(1)

    source = torch_map(DataLoader(Odd(), batch_size=4), files.paths)
    chosen = source.plan(3)
    total = sum(map(os.path.getsize, files.paths))
    assert chosen.whole and chosen.files == files.paths and chosen.total == total
    assert chosen.bytes == round(total / 40 * 12)


# Headrace's own loader


class Endless:
    """A sampler without a length."""

    def __iter__(self):
        return itertools.cycle(range(12))


def headrace_loaders(folder, recipe, tmp_path):
    import headrace
    from headrace.torch import DataLoader as Own

    images = headrace.ImageFolder(folder, recipe)
    yield "plain", Own(images, batch_size=4, num_workers=1)
    yield "shuffled", Own(images, batch_size=4, shuffle=True, num_workers=1)
    yield "sampler", Own(images, batch_size=4, sampler=range(30, -1, -1), num_workers=1)
    yield "batches", Own(images, batch_sampler=[[1, 2], [3, 4]] * 9, num_workers=1)
    yield "endless", Own(images, 4, sampler=Endless(), num_workers=1)
    yield "cached", Own(images, batch_size=4, shuffle=True, cache="64MiB", num_workers=1)
    yield "subset", Own(Subset(images, range(3, 33)), batch_size=4, num_workers=1)
    yield "ranks", Own(images, batch_size=4, shuffle=True, rank=1, world_size=2, num_workers=1)


@pytest.mark.parametrize("workers", [0, 1])
def test_headrace_loaders_of_python_code(folder, workers):
    """They are measured as torch's, which does the same work in the same processes."""
    import headrace
    from headrace.stalls import replaceable
    from headrace.torch import DataLoader as Own
    from headrace.transforms import CenterCrop

    images = headrace.ImageFolder(folder, CenterCrop(8), target_transform=float)
    loader = Own(images, batch_size=4, shuffle=True, num_workers=workers)
    source = source_of(loader, iter(loader), type(loader).__iter__, None)
    assert type(source) is TorchMap and source.workers == workers
    chosen = source.plan(3)
    assert [os.path.isfile(path) for path in chosen.files] == [True] * 12
    seen = [batch[1] for batch in source.open(chosen)]
    source.finish()
    source.close()
    assert [one.dtype for one in seen] == [torch.float64] * 3
    assert "target_transform (builtins.float)" in replaceable.obstacle(source.loader)
    stream = Own(Stream([]), batch_size=2, num_workers=workers)
    assert type(source_of(stream, None, type(stream).__iter__, None)) is TorchIterable


HEADRACE = ["plain", "shuffled", "sampler", "batches", "endless", "cached", "subset", "ranks"]


@pytest.mark.parametrize("kind", HEADRACE)
def test_headrace_loaders(folder, recipe, tmp_path, kind):
    loader = dict(headrace_loaders(folder, recipe, tmp_path))[kind]
    source = source_of(loader, iter(loader), type(loader).__iter__, None)
    assert type(source) is Headrace and source.workers == 1 and source.ahead >= 1
    for _ in range(2):
        chosen = source.plan(3)
        assert chosen.count == 3 and chosen.samples == sum(map(size_of, chosen.batches))
        assert all(os.path.isfile(path) for path in chosen.files)
        assert chosen.bytes == sum(map(os.path.getsize, chosen.files))
        source.worked()
        labels = [batch[1].tolist() for batch in source.open(chosen)]
        source.finish()
        told = source.worked()
        assert [len(one) for one in labels] == [len(one) for one in chosen.batches]
        assert told["samples"] >= chosen.samples and told["wall_s"] > 0
        assert told["cpu_s"] is None, "threads count their time, not that on a core"
        assert source.worked() is None, "nothing since"
        again = [batch[1].tolist() for batch in source.open(chosen)]
        source.finish()
        assert again == labels
    endless = source.open(chosen, cycle=True)
    assert len([next(endless) for _ in range(7)]) == 7
    source.finish()
    source.close()
    assert len(next(iter(loader))[1]) == size_of(chosen.batches[0]), "the script's goes on"
    loader.close()


# Reports of workers


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}])
def test_rows_and_learned_paths(files, run_folder, options):
    source = torch_map(DataLoader(files, batch_size=4, **options))
    chosen = source.plan(3)
    assert sorted(chosen.files) == files.paths[:12] and not chosen.whole
    begin = time.perf_counter_ns()
    before = work.rows()
    given(source, chosen)
    rows = work.rows()[len(before) :]
    assert [row.samples for row in rows] == [4, 4, 4]
    assert all(begin < row.end_ns < time.perf_counter_ns() for row in rows)
    assert all(row.wall_s > 0 and 0 <= row.cpu_s and row.read_bytes is not None for row in rows)
    work.record(False)
    given(source, chosen)
    assert work.rows() == before + rows
    source.close()


def test_rows_that_are_torn_or_of_others(run_folder):
    pid = os.getpid()
    row = work._ROW.pack(5, 4, 0.5, 1.0, -1, 7)
    (run_folder / f"rows-{pid}-1").write_bytes(row + row[:7])
    (run_folder / f"rows-{pid}-2").write_bytes(b"")
    (run_folder / f"rows-{pid + 1}-3").write_bytes(row * 3)
    assert work.rows() == [work.Row(5, 4, 0.5, 1.0, None, 7)]


def test_paths_that_count(run_folder, tmp_path):
    pid = os.getpid()
    good = tmp_path / "a b.bin"
    odd = os.fsencode(tmp_path) + b"/\xff.bin"
    for path in (os.fsencode(good), odd):
        with open(path, "wb"):
            pass
    lines = [
        os.fsencode(good), odd, b"", b"/proc/self/io", b"/nowhere/x", os.fsencode(tmp_path),
        os.fsencode(__file__), os.fsencode(run_folder / "settings.json"),
    ]  # fmt: skip
    (run_folder / f"paths-{pid}-1").write_bytes(b"\n".join(lines * 2))
    assert work.learned() == ([str(good), os.fsdecode(odd)], [])
    assert work.learned() == ([], []), "forgotten"


def test_a_full_disk_ends_no_worker(files, run_folder, monkeypatch):
    work.learn(True)

    def full(kind):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(work._files, "open", full)
    batches = list(DataLoader(files, batch_size=4))
    assert len(batches) == 5


# Counters


def test_counters_of_this_process_and_children():
    child = os.fork()
    if not child:
        while True:
            pass
    try:
        assert child in counters.descendants() and child in counters.tasks_of([child])
        before = counters.read([child])
        while (used := counters.read([child]).since(before)).worker_cpu_s <= 0.005:
            time.sleep(0.01)
        assert used.process_cpu_s >= 0 and used.read_bytes >= 0
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    gone = counters.read([child])
    assert gone.worker_cpu_s is None and gone.since(before).worker_cpu_s is None
    assert gone.read_bytes is None and counters.tasks_of([child]) == []


def test_counters_that_are_refused(monkeypatch):
    def refused(path, *args, **kwargs):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("builtins.open", refused)
    assert counters.bytes_read("self") is None and counters.cpu_s(os.getpid()) is None
    reading = counters.read([])
    assert reading.read_bytes is None and reading.worker_cpu_s == 0.0
    assert counters.descendants() == []


def test_an_interface_that_goes_receives_nothing(monkeypatch):
    """Containers and tunnels that end take their counters with them."""
    now = counters.received()
    assert now and counters.received_since(now) >= 0
    before = {**now, "tunnel9": 10**12}
    assert 0 <= counters.received_since(before) < 10**12
    monkeypatch.setattr(counters, "received", lambda: {"lo": 7, "new0": 5})
    assert counters.received_since({"lo": 9, "gone0": 100}) == 5
    assert counters.received_since({"lo": 3}) == 9 and counters.received_since(None) is None
