"""Exact resume with the native order."""

import io
import json
import shutil

import pytest
import torch

import headrace
from conftest import COUNT, run_forked
from headrace.torch import DataLoader


def make(dataset, size=4, **options):
    options = {"shuffle": True, "seed": 9, "return_index": True, **options}
    return DataLoader(dataset, size, **options)


def take(loader, count=None):
    out = []
    for images, labels, index in loader:
        out.append((images.clone(), labels.clone(), index.clone()))
        if len(out) == count:
            break
    return out


def same(a, b):
    return len(a) == len(b) and all(
        torch.equal(x, y) for p, q in zip(a, b) for x, y in zip(p, q)
    )


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_next_batch_is_the_one_that_would_have_come(dataset, shuffle):
    whole = [take(make(dataset, shuffle=shuffle)) for _ in range(1)][0]
    following = make(dataset, shuffle=shuffle)
    list(following)
    second = take(following)
    for at in range(1, len(whole) + 1):
        loader = make(dataset, shuffle=shuffle)
        take(loader, at)
        state = json.loads(json.dumps(loader.state_dict()))
        assert state["position"] == min(at * 4, COUNT)
        again = make(dataset, shuffle=not shuffle, seed=1)
        again.load_state_dict(state)
        assert again.state_dict() == state
        assert same(take(again), whole[at:])
        assert same(take(again), second)


def test_state_survives_torch_save(dataset):
    loader = make(dataset)
    take(loader, 3)
    file = io.BytesIO()
    torch.save(loader.state_dict(), file)
    assert file.tell() < 4096
    file.seek(0)
    again = make(dataset)
    again.load_state_dict(torch.load(file, weights_only=True))
    assert same(take(again, 1), take(make(dataset))[3:4])


def test_state_between_epochs(dataset):
    loader = make(dataset)
    assert loader.state_dict()["epoch"] == 0
    list(loader)
    state = loader.state_dict()
    assert (state["epoch"], state["position"]) == (1, 0)
    expected = take(loader)
    again = make(dataset)
    again.load_state_dict(state)
    assert same(take(again), expected)
    assert again.state_dict()["epoch"] == 2


def test_state_follows_what_training_has_taken_not_what_is_prepared(dataset):
    import time

    loader = make(dataset, prefetch_factor=4, num_workers=2)
    epoch = iter(loader)
    next(epoch)
    end = time.monotonic() + 600
    while loader.stats()["ready_batches"] < 2 and time.monotonic() < end:
        time.sleep(0.01)
    assert loader.stats()["ready_batches"] >= 2
    assert loader.state_dict()["position"] == 4


def test_another_batch_size_goes_through_the_same_order(dataset):
    order = torch.cat([b[2] for b in take(make(dataset))])
    loader = make(dataset, 4)
    take(loader, 3)
    for size in (1, 5, 27, 100):
        again = make(dataset, size)
        again.load_state_dict(loader.state_dict())
        assert torch.equal(torch.cat([b[2] for b in take(again)]), order[12:])


def test_another_number_of_ranks_finishes_the_epoch(dataset):
    """Every sample once in the epoch, on any rank; padding is counted separately."""
    for before, after in ((1, 2), (2, 1), (2, 3), (3, 2), (4, 1)):
        seen, states = [], []
        for rank in range(before):
            loader = make(dataset, 2, rank=rank, world_size=before)
            seen += [i for b in take(loader, 3) for i in b[2].tolist()]
            states.append(loader.state_dict())
        assert all(s == states[0] for s in states)
        assert len(seen) == len(set(seen)) == states[0]["position"]
        rest = []
        for rank in range(after):
            loader = make(dataset, 3, rank=rank, world_size=after)
            loader.load_state_dict(states[0])
            rest.append([i for b in take(loader) for i in b[2].tolist()])
        assert len({len(r) for r in rest}) == 1
        flat = [i for r in rest for i in r]
        assert set(flat) | set(seen) == set(range(COUNT))
        assert len(flat) - (COUNT - len(seen)) < after


def test_resume_in_another_process(dataset, folder):
    loader = make(dataset)
    take(loader, 4)
    code = (
        "import sys, json, headrace, headrace.transforms as T\n"
        "from headrace.torch import DataLoader\n"
        "d = headrace.ImageFolder(sys.argv[1], T.Compose([T.RandomResizedCrop(32)]))\n"
        "l = DataLoader(d, 4, return_index=True)\n"
        "l.load_state_dict(json.loads(sys.argv[2]))\n"
        "print([i for *_, x in l for i in x.tolist()])\n"
    )
    done = run_forked(code, str(folder), json.dumps(loader.state_dict()))
    assert done.returncode == 0, done.stderr
    expected = torch.cat([b[2] for b in take(make(dataset))])[16:].tolist()
    assert done.stdout.strip() == str(expected)


def test_set_epoch_and_a_loaded_state(dataset):
    """If it is the state's own epoch, as scripts and frameworks set it after loading, the position
    stays."""
    whole = make(dataset)
    first, second = take(whole), take(whole)
    loader = make(dataset)
    take(loader, 2)
    for epoch, expected in ((0, first[2:]), (1, second)):
        again = make(dataset)
        again.load_state_dict(loader.state_dict())
        again.sampler.set_epoch(epoch)
        assert same(take(again), expected)


def test_states_that_do_not_fit(dataset, folder, recipe):
    state = make(dataset).state_dict()
    for change, words in (
        ({"format": "other"}, "not a state"),
        ({"version": 99}, "version"),
        ({"samples": COUNT + 1}, "samples"),
        ({"external": True}, "sampler"),
        ({"position": COUNT + 1}, f"state's position must be from 0 to {COUNT}, it is {COUNT + 1}"),
        ({"position": 1 << 64}, "state's position must be"),
        ({"position": -1}, "state's position must be"),
        ({"epoch": -1}, "state's epoch must be from 0 to"),
        ({"epoch": 1 << 64}, "state's epoch must be"),
        ({"seed": -1}, "state's seed must be"),
        ({"seed": 1 << 64}, "state's seed must be"),
        ({"dataset": "0" * 32}, "another dataset.*del state"),
    ):
        with pytest.raises(ValueError, match=words):
            make(dataset).load_state_dict({**state, **change})
    for change in ({"position": 2.0}, {"epoch": None}, {"seed": "1"}, {"epoch": True}):
        with pytest.raises(TypeError, match="whole number"):
            make(dataset).load_state_dict({**state, **change})
    with pytest.raises(ValueError, match="not a state"):
        make(dataset).load_state_dict({})
    half = headrace.ImageList(list(dataset.samples)[:10], recipe)
    with pytest.raises(ValueError, match="10"):
        DataLoader(half).load_state_dict(state)
    for epoch in (-1, 1 << 64):
        with pytest.raises(ValueError, match="epoch must be at"):
            make(dataset).set_epoch(epoch)


def test_a_state_is_of_one_dataset(dataset, folder, recipe, tmp_path):
    """A dataset of as many samples with other names, labels or order is refused; a copy is
    accepted."""
    state = make(dataset).state_dict()
    pairs = list(dataset.samples)
    swapped = [pairs[1], pairs[0], *pairs[2:]]
    relabelled = [(pairs[0][0], 2), *pairs[1:]]
    renamed = tmp_path / "renamed"
    shutil.copytree(folder, renamed)
    (renamed / "boat" / "00.jpg").rename(renamed / "boat" / "0.jpg")
    for other in (swapped, relabelled):
        with pytest.raises(ValueError, match="another dataset"):
            make(headrace.ImageList(other, recipe)).load_state_dict(state)
    with pytest.raises(ValueError, match="another dataset"):
        make(headrace.ImageFolder(renamed, recipe)).load_state_dict(state)
    shutil.copytree(folder, tmp_path / "copy")
    headrace.pack(folder, tmp_path / "a.hrpack")
    for same_one in (
        headrace.ImageFolder(tmp_path / "copy", recipe),
        headrace.ImageList(pairs, recipe),
        headrace.Pack(tmp_path / "a.hrpack", recipe),
    ):
        make(same_one).load_state_dict(state)
    del state["dataset"]
    make(headrace.ImageFolder(renamed, recipe)).load_state_dict(state)


def test_a_state_without_a_dataset_loads_and_says_so_once(dataset, caplog, monkeypatch):
    """As written by older versions."""
    monkeypatch.setattr("headrace.torch._state._said_unchecked", False)
    loader = make(dataset)
    whole = take(loader)
    loader = make(dataset)
    take(loader, 3)
    state = loader.state_dict()
    del state["dataset"]
    for _ in range(2):
        again = make(dataset)
        again.load_state_dict(state)
        assert same(take(again), whole[3:])
    said = [r.message for r in caplog.records if "does not say which dataset" in r.message]
    assert len(said) == 1


# Epochs


def test_iter_twice_is_one_epoch(dataset):
    whole = make(dataset)
    first, second = take(whole), take(whole)
    loader = make(dataset)
    iter(loader)
    begun = iter(loader)
    prepared = loader.stats()["samples"]
    assert loader.state_dict()["epoch"] == 0
    assert same([tuple(t.clone() for t in batch) for batch in begun], first)
    assert loader.stats()["samples"] <= COUNT + prepared
    assert same(take(loader), second)


def test_set_epoch_after_iter(dataset):
    whole = make(dataset)
    epochs = [take(whole) for _ in range(4)]
    loader = make(dataset)
    begun = iter(loader)
    loader.set_epoch(2)
    assert loader.state_dict()["epoch"] == 2
    assert same([tuple(t.clone() for t in batch) for batch in begun], epochs[2])
    assert same(take(loader), epochs[3])


def test_the_calls_of_lightning(dataset):
    """iter() twice, then set_epoch: no epoch is trained twice or left out."""
    whole = make(dataset)
    epochs = [take(whole) for _ in range(3)]
    loader = make(dataset)
    iter(loader)
    for number, expected in enumerate(epochs):
        begun = iter(loader)
        loader.sampler.set_epoch(number)
        assert same([tuple(t.clone() for t in batch) for batch in begun], expected)


def test_iter_twice_at_a_loaded_state(dataset):
    whole = make(dataset)
    first, second = take(whole), take(whole)
    loader = make(dataset)
    take(loader, 4)
    state = loader.state_dict()
    again = make(dataset)
    again.load_state_dict(state)
    iter(again)
    begun = iter(again)
    again.sampler.set_epoch(0)
    assert again.state_dict() == state
    assert same([tuple(t.clone() for t in batch) for batch in begun], first[4:])
    assert same(take(again), second)


def test_loading_a_state_ends_a_live_iterator(dataset):
    loader = make(dataset)
    epoch = iter(loader)
    next(epoch)
    loader.load_state_dict(loader.state_dict())
    with pytest.raises(RuntimeError, match="ended"):
        next(epoch)
    assert len(take(loader)) == 9


@pytest.mark.parametrize("order", ["native", "sampler"])
def test_closing_does_not_lose_the_place(dataset, order):
    options = {} if order == "native" else {"shuffle": False, "sampler": range(COUNT)}
    whole = take(make(dataset, **options))
    with make(dataset, **options) as loader:
        take(loader, 2)
        state = loader.state_dict()
    assert loader.state_dict() == state
    loader.close()
    assert loader.state_dict() == state
    again = make(dataset, **options)
    again.load_state_dict(loader.state_dict())
    assert same(take(again), whole[2:])
