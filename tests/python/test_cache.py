"""The DataLoader's cache: equal batches, exact reads, sizes as text, memory given back."""

import os
import time
from pathlib import Path

import pytest
import torch

import headrace
from counted import segments
from headrace import transforms as T
from headrace.torch import DataLoader
from headrace.torch import _arguments as arguments

FORMS = ("auto", "encoded", "coefficients", "planes", "indexed")


@pytest.fixture(scope="module")
def data(folder):
    transform = T.Compose(
        [T.RandomResizedCrop(64), T.RandomHorizontalFlip(), T.ToDtype("float32", scale=True)]
    )
    dataset = headrace.ImageFolder(folder, transform)
    dataset.total = sum(os.path.getsize(path) for path, _ in dataset.samples)
    return dataset


def epoch(loader):
    """Returns the batches of an epoch, and the bytes that it read."""
    before = loader.stats()["bytes_read"]
    batches = [(images.clone(), labels.clone()) for images, labels in loader]
    return batches, loader.stats()["bytes_read"] - before


def same(a, b):
    return all(torch.equal(x, y) for one, other in zip(a, b, strict=True) for x, y in zip(one, other))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("epochs", [None, 3])
def test_second_epoch_reads_nothing(data, form, epochs):
    plain = DataLoader(data, 8, shuffle=True, num_workers=2)
    with DataLoader(
        data, 8, shuffle=True, num_workers=2, cache="1GiB", cache_form=form, epochs=epochs
    ) as cached:
        for number in range(3):
            batches, read = epoch(cached)
            assert read == (0 if number else data.total)
            assert same(batches, epoch(plain)[0])
        stats = cached.stats()
        assert stats["cache_hits"] == 2 * len(data)
        assert stats["cache_source_bytes"] == data.total
        names = (form for form in FORMS if form != "auto")
        assert sum(stats[f"cache_{name}"] for name in names) == len(data)
    assert plain.stats()["cache_hits"] == plain.stats()["cache_bytes"] == 0


@pytest.mark.parametrize("form", FORMS)
def test_a_part_is_cached(data, form):
    plain = DataLoader(data, 8, shuffle=True)
    budget = data.total // 2
    with DataLoader(data, 8, shuffle=True, cache=budget, cache_form=form) as cached:
        held = 0
        for _ in range(4):
            batches, read = epoch(cached)
            assert read == data.total - held
            assert same(batches, epoch(plain)[0])
            stats = cached.stats()
            assert held <= stats["cache_source_bytes"]
            assert stats["cache_bytes"] <= budget
            held = stats["cache_source_bytes"]
        if form == "encoded":
            assert held > 0.8 * budget


def test_idle_threads_convert(data):
    with DataLoader(data, 8, cache="1GiB", cache_form="coefficients", num_workers=2) as loader:
        first, _ = epoch(loader)
        deadline = time.monotonic() + 600
        while loader.stats()["cache_waiting"] and time.monotonic() < deadline:
            time.sleep(0.01)
        stats = loader.stats()
        assert stats["cache_waiting"] == 0
        assert stats["cache_coefficients"] > 0
        assert stats["conversion_ns"] > 0
        loader.set_epoch(0)
        again, read = epoch(loader)
        assert read == 0
        assert same(first, again)


# Shared


@pytest.mark.parametrize("form", FORMS)
def test_the_next_run_starts_warm(data, kept, form, caplog):
    plain = DataLoader(data, 8, shuffle=True)
    expected, _ = epoch(plain)
    for run in range(2):
        with DataLoader(data, 8, shuffle=True, cache=f"{kept}&form={form}") as loader:
            batches, read = epoch(loader)
            assert read == (0 if run else data.total)
            assert same(batches, expected)
    assert "`headrace cache drop test`" in caplog.text
    assert len(segments()) == 1


def test_two_loaders_at_once(data, kept):
    """Side by side in one process, as in two: each file is read once."""
    train = DataLoader(data, 8, shuffle=True, cache=kept)
    valid = DataLoader(data, 8, cache=kept)
    for (a, _), (b, _) in zip(train, valid):
        assert a.shape == b.shape
    total = train.stats()["bytes_read"] + valid.stats()["bytes_read"]
    assert data.total <= total <= 2 * data.total
    assert epoch(train)[1] == epoch(valid)[1] == 0
    train.close(), valid.close()


def test_train_and_validation_have_their_shares(data, kept):
    part, rest = torch.utils.data.random_split(data, [0.5, 0.5])
    with DataLoader(part, 8, shuffle=True, cache=f"{kept}&share=0.9") as train, DataLoader(
        rest, 8, cache=f"{kept}&share=0.9"
    ) as valid:
        first = epoch(valid)[0], epoch(train)[1]
        assert first[1] > 0
        again, read = epoch(valid)
        assert read == 0 and len(again) == len(first[0])
        assert epoch(train)[1] == 0


def test_ranks_share_a_private_cache(data, kept):
    ranks = [
        DataLoader(data, 8, shuffle=True, cache="64MiB", rank=rank, world_size=2)
        for rank in range(2)
    ]
    plain = [DataLoader(data, 8, shuffle=True, rank=rank, world_size=2) for rank in range(2)]
    for number in range(2):
        read = 0
        for one, other in zip(ranks, plain):
            batches, taken = epoch(one)
            read += taken
            assert same(batches, epoch(other)[0])
        # In the second epoch each has samples that the other has read.
        assert read == (0 if number else data.total)
    assert len(segments()) == 1
    for loader in ranks:
        loader.close()
    assert segments() == []


def test_a_loader_that_grows_keeps_a_kept_cache(data, kept):
    batches = [[0, 1], [2, 3, 4, 5, 6], [0, 1, 2]]
    with DataLoader(data, batch_sampler=batches, cache=kept) as loader:
        assert epoch(loader)[1] > 0
        assert epoch(loader)[1] == 0


def test_more_memory_than_there_is(data, kept):
    with pytest.raises(OSError, match="does not fit"):
        DataLoader(data, cache="shm:test?size=900TiB")
    assert segments() == []


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_memory_is_given_back(data):
    """Loaders with caches, one after the other: leaks would add up."""
    sizes, taken = [], 0
    for _ in range(60):
        with DataLoader(data, 8, cache="1GiB", cache_form="encoded") as loader:
            for batch in loader:
                del batch
            taken += loader.stats()["cache_bytes"]
        sizes.append(resident())
    assert taken > 8 << 20
    assert sizes[-1] - sizes[9] < taken / 3


def test_a_loader_that_grows_keeps_its_counters(data):
    batches = [[0, 1], [2, 3, 4, 5, 6], [0, 1, 2]]
    with DataLoader(data, batch_sampler=batches, cache="1GiB", cache_form="encoded") as loader:
        for _ in range(2):
            assert [len(labels) for _, labels in loader] == [2, 5, 3]
        stats = loader.stats()
        assert stats["samples"] >= 20
        assert stats["cache_hits"] > 0


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, None), (0, None), (12345, "12345"), (1 << 40, "1099511627776"), ("2GiB", "2GiB")],
)
def test_sizes(value, text):
    assert arguments.cache(value) == text


def test_no_line_on_kept_bytes_after_a_drop_by_force(data, caplog):
    """The drop removes the segment's name while it is in use."""
    with DataLoader(data, 8, cache="shm:forced?size=64MiB") as loader:
        epoch(loader)
        forced = list(Path(os.environ["HEADRACE_SHM"]).glob("headrace-*/forced.*"))
        assert forced
        for segment in forced:
            segment.unlink()
    assert "keeps" not in caplog.text


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        ("2G", ValueError, "write 2GiB"),
        ("lots", ValueError, "write 64GiB"),
        ("", ValueError, "empty"),
        ("-1GiB", ValueError, "write 64GiB"),
        ("2 GiB please", ValueError, "such as 64GiB"),
        (-1, ValueError, "at least 0"),
        (1.5, TypeError, "whole number"),
        (1 << 60, ValueError, "any machine"),
        ("1023TiB", MemoryError, "smaller"),
        ("shm:two words?size=1GiB", ValueError, "name"),
        ("shm:birds", ValueError, "size"),
        ("shm:-rf?size=1GiB", ValueError, "may not begin with '-'"),
        ("shm:birds?size=1GiB&share=2", ValueError, "at most 1"),
    ],
)
def test_refused_sizes(data, value, error, words):
    with pytest.raises(error, match=words):
        DataLoader(data, cache=value)


def test_refused_forms_and_epochs(data):
    with pytest.raises(ValueError, match="'waveform' or 'waveform16', not 'pixels'"):
        DataLoader(data, cache="1GiB", cache_form="pixels")
    with pytest.raises(ValueError, match="epochs must be at least 1"):
        DataLoader(data, cache="1GiB", epochs=0)
