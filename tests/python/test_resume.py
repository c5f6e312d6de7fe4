"""Exact resume with the native order."""

import io
import json

import pytest
import torch

import headrace
from conftest import COUNT, run_python
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
    """Every sample once over the epoch, whoever takes it; padding is counted apart."""
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
    done = run_python(code, str(folder), json.dumps(loader.state_dict()))
    assert done.returncode == 0, done.stderr
    expected = torch.cat([b[2] for b in take(make(dataset))])[16:].tolist()
    assert done.stdout.strip() == str(expected)


def test_set_epoch_drops_a_loaded_state(dataset):
    loader = make(dataset)
    take(loader, 2)
    again = make(dataset)
    again.load_state_dict(loader.state_dict())
    again.set_epoch(0)
    assert same(take(again), take(make(dataset)))


def test_states_that_do_not_fit(dataset, folder, recipe):
    state = make(dataset).state_dict()
    for change, words in (
        ({"format": "other"}, "not a state"),
        ({"version": 99}, "version"),
        ({"samples": COUNT + 1}, "samples"),
        ({"external": True}, "sampler"),
    ):
        with pytest.raises(ValueError, match=words):
            make(dataset).load_state_dict({**state, **change})
    with pytest.raises(ValueError, match="not a state"):
        make(dataset).load_state_dict({})
    half = headrace.ImageList(list(dataset.samples)[:10], recipe)
    with pytest.raises(ValueError, match="10"):
        DataLoader(half).load_state_dict(state)


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
