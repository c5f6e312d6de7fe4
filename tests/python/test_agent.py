"""An agent's batches equal those of this process, bit for bit, and may be used as freely."""

import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest
import torch

import headrace
import headrace.transforms as T
from agents import Agent, Reader, Truth, begin, indices, same, taken, wait_until
from conftest import COUNT, IMAGENET, encode, run_python, synthetic
from headrace.torch import DataLoader


@pytest.fixture(scope="module")
def agent():
    with Agent() as running:
        yield running


RECIPES = {
    "float32": [T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ToTensor()],
    "uint8": [T.RandomResizedCrop((37, 41)), T.ToDtype("uint8")],  # 4,551 bytes a sample
    "normalised": [T.RandomResizedCrop((33, 35)), T.ToDtype("float32", scale=True)]
    + [T.Normalize(**IMAGENET)],  # 13,860 bytes
    "float16": [T.Resize(40), T.CenterCrop((31, 29)), T.ToDtype("float16", scale=True)],
    "tiny": [T.RandomResizedCrop(5), T.ToDtype("uint8")],  # 75 bytes
    "larger": [T.RandomResizedCrop((224, 200)), T.ColorJitter(0.3, 0.3), T.ToTensor()],
}


def both(dataset, agent, epochs=2, **options):
    """Returns the epochs of a loader in this process and of one with the agent, and their counters.
    """
    out = []
    for more in ({}, {"agent": agent.socket}):
        with DataLoader(dataset, return_index=True, **options, **more) as loader:
            batches = [taken(loader) for _ in range(epochs)]
            assert all(len(b) == len(loader) for b in batches)
            out.append((batches, loader.stats(), loader.skipped(), loader.state_dict()))
    return out


def assert_equal(plain, ours):
    for expected, got in zip(plain[0], ours[0], strict=True):
        assert same(expected, got)
        for (images, *_), (others, *_) in zip(expected, got):
            assert images.stride() == others.stride() and images.dtype == others.dtype
    for counter in ("batches", "samples", "bad_samples", "padded_samples"):
        assert plain[1][counter] == ours[1][counter], counter
    assert plain[2:] == ours[2:]


@pytest.mark.parametrize("layout", ["NCHW", "channels_last", "NHWC"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_and_layouts(folder, agent, recipe, layout):
    dataset = headrace.ImageFolder(folder, T.Compose(RECIPES[recipe]))
    assert_equal(*both(dataset, agent, batch_size=5, shuffle=True, seed=3, layout=layout))


@pytest.mark.parametrize(
    "size, drop_last",
    [(s, d) for s in (1, 4, 8, 13, 16, COUNT, 100) for d in (False, True) if s <= COUNT or not d],
)
def test_batch_sizes(folder, agent, size, drop_last):
    dataset = headrace.ImageFolder(folder, T.Compose(RECIPES["uint8"]))
    assert_equal(*both(dataset, agent, 3, batch_size=size, drop_last=drop_last, shuffle=True))


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("stream", [None, "ranks"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks(dataset, agent, ranks, stream, drop_last):
    """Each rank is a loader on a thread; padding is counted as without an agent."""
    options = {"batch_size": 3, "shuffle": True, "drop_last": drop_last, "return_index": True}
    plain = [DataLoader(dataset, rank=r, world_size=ranks, **options) for r in range(ranks)]
    options |= {"agent": agent.socket, "stream": stream}
    shared = [DataLoader(dataset, rank=r, world_size=ranks, **options) for r in range(ranks)]
    readers = [Reader(loader, epochs=2) for loader in shared]
    for one, other, reader in zip(plain, shared, readers):
        for epoch in reader.result():
            assert same(epoch, taken(one))
        for counter in ("samples", "batches", "padded_samples"):
            assert one.stats()[counter] == other.stats()[counter], counter
        other.close()


def test_subsets_and_labels_of_ones_own(folder, dataset, agent):
    half, rest = torch.utils.data.random_split(dataset, [20, COUNT - 20])
    deeper = torch.utils.data.Subset(half, [3, 3, 19, 0, 7])
    mine = headrace.ImageList([(p, 1000 + i) for i, (p, _) in enumerate(dataset.samples)])
    for data in (half, rest, deeper, mine):
        options = {"batch_size": 4, "shuffle": True, "transform": dataset.transform}
        assert_equal(*both(data, agent, **options))


@pytest.mark.parametrize("form", ["encoded", "coefficients", "planes", "indexed"])
def test_packs(folder, recipe, agent, tmp_path, form):
    headrace.pack(folder, tmp_path / "p.hrpack", form=form)
    pack = headrace.Pack(tmp_path / "p.hrpack", recipe)
    assert_equal(*both(pack, agent, batch_size=7, shuffle=True))


def test_tars(folder, recipe, agent, tmp_path):
    with tarfile.open(tmp_path / "all.tar", "w") as tar:
        tar.add(folder, ".")
    data = headrace.TarDataset(tmp_path / "all.tar", transform=recipe)
    assert len(data) == COUNT
    assert_equal(*both(data, agent, batch_size=7, shuffle=True))


@pytest.mark.parametrize("form", ["auto", "encoded", "coefficients", "planes", "indexed"])
def test_a_private_cache(dataset, form):
    total = sum(os.path.getsize(path) for path, _ in dataset.samples)
    with Agent() as agent:
        options = {"cache": "64MiB", "cache_form": form, "shuffle": True}
        with DataLoader(dataset, 6, agent=agent.socket, **options) as loader:
            for _ in range(3):
                list(loader)
            (queue,) = agent.queues()
            assert queue["bytes_read"] == total
            assert queue["cache_hits"] == 2 * COUNT
        assert_equal(*both(dataset, agent, 3, batch_size=6, **options))


def test_the_agents_own_cache_is_shared_by_its_queues(dataset):
    total = sum(os.path.getsize(path) for path, _ in dataset.samples)
    with Agent("--cache", "64MiB") as agent:
        plain = DataLoader(dataset, 6, shuffle=True, seed=1)
        first = DataLoader(dataset, 5, agent=agent.socket)
        list(first)
        second = DataLoader(dataset, 6, shuffle=True, seed=1, agent=agent.socket)
        assert same(taken(second), taken(plain))
        assert sum(queue["bytes_read"] for queue in agent.queues()) == total
        first.close()
        second.close()
    assert not [p for p in Path(os.environ["HEADRACE_SHM"]).rglob("run+*")]


# Bad files


@pytest.fixture
def damaged(tmp_path):
    """150 images, some of them unusable."""
    good = encode(synthetic(60, 50, 1))
    samples = []
    for i in range(150):
        path = tmp_path / f"{i:03}.jpg"
        path.write_bytes(good[:200] if i in (17, 90) else good)
        samples.append((path, i))
    samples[120] = (tmp_path / "missing.jpg", 120)
    return headrace.ImageList(samples, T.Compose(RECIPES["uint8"]))


@pytest.mark.parametrize("size", [4, 16, 150])
def test_bad_files_are_skipped_alike(damaged, agent, size):
    plain, ours = both(
        damaged, agent, batch_size=size, shuffle=True, on_error="skip", max_bad_share=0.1
    )
    assert {s.index for s in plain[2]} >= {17, 90, 120}
    assert {Path(s.path).name for s in ours[2]} >= {"017.jpg", "090.jpg", "missing.jpg"}
    assert_equal(plain, ours)


def test_too_many_bad_files(damaged, agent):
    said = []
    for more in ({}, {"agent": agent.socket}):
        loader = DataLoader(damaged, 8, on_error="skip", max_bad_share=0.005, **more)
        epoch, batches = iter(loader), 0
        with pytest.raises(headrace.TooManyBadSamples) as caught:
            while True:
                next(epoch)
                batches += 1
        said.append((batches, str(caught.value), caught.value.skipped))
        assert next(epoch, None) is None
        loader.close()
    assert said[0] == said[1]


@pytest.mark.parametrize("size", [1, 5, 8, 32])
def test_a_bad_file_is_raised_at_its_turn(damaged, agent, size):
    said = []
    for more in ({}, {"agent": agent.socket}):
        loader = DataLoader(damaged, size, return_index=True, **more)
        found = []
        with pytest.raises(headrace.SampleError) as caught:
            for batch in loader:
                found.append(tuple(t.clone() for t in batch))
        said.append((caught.value.path, caught.value.index, caught.value.reason))
        assert indices(found) == list(range(17 // size * size))
        loader.set_epoch(1)  # the loader can start the epoch again, and finds the same sample
        with pytest.raises(headrace.SampleError):
            list(loader)
        loader.close()
    assert said[0] == said[1] and said[0][1] == 17


# Allowed uses of a job's batches


@pytest.mark.parametrize("recipe", ["float32", "uint8", "tiny"])
def test_changes_of_one_job_reach_nobody(folder, agent, recipe):
    """In-place operations, also on batches that end within a page."""
    dataset = headrace.ImageFolder(folder, T.Compose(RECIPES[recipe]))
    truth = Truth(dataset, shuffle=True)

    def spoil(reader, batch):
        for tensor in batch:
            tensor.fill_(0) if tensor.dtype == torch.int64 else tensor.zero_()

    options = {"shuffle": True, "return_index": True, "agent": agent.socket, "stream": recipe}
    jobs = [DataLoader(dataset, size, lag="wait", **options) for size in (3, 5)]
    for epoch in range(4):
        starts = begin(agent, recipe, jobs)
        readers = [
            Reader(starts[0], each=spoil),
            Reader(starts[1], each=lambda reader, batch: batch[0].mul_(2)),
        ]
        for reader in readers:
            (batches,) = reader.result()
            truth.check(batches, epoch)
            assert len(indices(batches)) == COUNT
    for job in jobs:
        assert job.stats()["alone"] == 0
        job.close()


def test_batches_in_place_while_they_are_held(folder, agent):
    """Batches that share a page: each keeps the values written to it."""
    dataset = headrace.ImageFolder(folder, T.Compose(RECIPES["tiny"]))
    truth = Truth(dataset)
    truth.order(0)
    loader = DataLoader(dataset, 4, return_index=True, agent=agent.socket)
    held = []
    for i, batch in enumerate(loader):
        truth.check([batch], 0, 4 * i)
        batch[0].fill_(i)
        held.append(batch)
    assert all((images == i).all() for i, (images, *_) in enumerate(held))
    assert indices(held) == list(range(COUNT))
    loader.close()
    assert all((images == i).all() for i, (images, *_) in enumerate(held))


@pytest.mark.parametrize("recipe", ["float32", "uint8"])
def test_batches_that_are_kept(folder, agent, recipe):
    """list(loader), a batch that is never released, and releases in any order."""
    dataset = headrace.ImageFolder(folder, T.Compose(RECIPES[recipe]))
    truth = Truth(dataset, shuffle=True)
    options = {"shuffle": True, "return_index": True, "agent": agent.socket}
    loader = DataLoader(dataset, 2, window=4, **options)
    for_ever = next(iter(loader))
    loader.set_epoch(0)
    kept = [list(loader) for _ in range(3)]
    for epoch, batches in enumerate(kept):
        assert len(indices(batches)) == COUNT
        truth.check(batches, epoch)
    del kept[1], kept[0][::2]
    truth.check(taken(loader), 3)
    assert len(kept[0]) == 10
    for batch, start in zip(kept[0], range(2, COUNT, 4)):
        truth.check([batch], 0, start)
    loader.close()
    truth.check(kept[1], 2)
    truth.check([for_ever], 0)


def test_held_batches_outlive_their_agent(dataset):
    truth = Truth(dataset)
    truth.order(0)
    with Agent() as agent:
        loader = DataLoader(dataset, 4, return_index=True, agent=agent.socket)
        epoch = iter(loader)
        held = [next(epoch) for _ in range(3)]
        agent.kill()
    truth.check(held, 0)
    loader.close()
    truth.check(held, 0)
    held[1][0].zero_()
    truth.check(held[:1], 0)


# Resuming


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("after", [False, True])
def test_a_state_goes_on_with_an_agent_and_without(dataset, agent, before, after):
    options = {"shuffle": True, "seed": 9, "return_index": True}
    whole = DataLoader(dataset, 4, **options)
    expected = [taken(whole) for _ in range(3)]
    for at in (0, 1, 5, 10):
        loader = DataLoader(dataset, 4, agent=agent.socket if before else None, **options)
        taken(loader)
        if at:
            taken(loader, at)
        state = loader.state_dict()
        loader.close()
        assert loader.state_dict() == state
        again = DataLoader(dataset, 4, agent=agent.socket if after else None, **options)
        again.load_state_dict(state)
        assert again.state_dict() == state
        assert same(taken(again), expected[1][at:])
        assert same(taken(again), expected[2])
        assert again.state_dict()["epoch"] == 3
        again.close()


def test_a_state_goes_on_with_another_batch_size_and_more_ranks(dataset, agent):
    options = {"shuffle": True, "return_index": True, "agent": agent.socket}
    loader = DataLoader(dataset, 4, **options)
    seen = indices(taken(loader, 3))
    state = loader.state_dict()
    order = Truth(dataset, shuffle=True).order(0)
    assert seen == order[:12]
    for size in (1, 5, 27, 100):
        again = DataLoader(dataset, size, **options)
        again.load_state_dict(state)
        assert indices(taken(again)) == order[12:]
        again.close()
    found = []
    for rank in range(3):
        again = DataLoader(dataset, 4, rank=rank, world_size=3, **options)
        again.load_state_dict(state)
        found += indices(taken(again))
        again.close()
    assert sorted(found) == sorted(order[12:])
    loader.close()


def test_epochs_by_number_and_left_early(dataset, agent):
    truth = Truth(dataset, shuffle=True)
    with DataLoader(dataset, 4, shuffle=True, return_index=True, agent=agent.socket) as loader:
        for epoch in (5, 0, 5):
            loader.set_epoch(epoch)
            truth.check(taken(loader, 3), epoch)
        truth.check(taken(loader), 6)
        old = iter(loader)
        next(old)
        truth.check(taken(loader), 8)
        with pytest.raises(RuntimeError, match="ended"):
            next(old)


# Environment


def test_pin_memory_without_cuda(dataset, agent):
    if torch.cuda.is_available():
        pytest.skip("there is CUDA")
    plain = taken(DataLoader(dataset, 4))
    with pytest.warns(UserWarning, match="no accelerator"):
        loader = DataLoader(dataset, 4, pin_memory=True, agent=agent.socket)
    assert same(taken(loader), plain)
    loader.close()


def test_the_loader_reports_what_the_agent_refuses(dataset, agent, tmp_path):
    options = {"agent": agent.socket, "stream": "refusals"}
    first = DataLoader(dataset, 4, seed=1, **options)
    next(iter(first))
    for other, word in (({"seed": 2}, "seed"), ({"seed": 1, "shuffle": True}, "shuffle")):
        with pytest.raises(ValueError, match=word):
            iter(DataLoader(dataset, 4, **options, **other))
    with pytest.raises(ValueError, match="recipe|transform"):
        other = T.Compose(RECIPES["uint8"])
        iter(DataLoader(dataset, 4, seed=1, transform=other, **options))
    with pytest.raises(ValueError, match="dataset"):
        half = torch.utils.data.Subset(dataset, range(10))
        iter(DataLoader(half, 4, seed=1, transform=dataset.transform, **options))
    with pytest.raises(ValueError, match="stream"):
        iter(DataLoader(dataset, 4, agent=agent.socket, stream="x" * 200))
    with pytest.raises(FileNotFoundError, match="agent"):
        DataLoader(dataset, 4, agent=tmp_path / "nobody.sock")
    assert len(list(first)) == len(first)
    first.close()


def test_a_dataset_that_changed_since_it_was_opened(folder, recipe, agent, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    dataset = headrace.ImageFolder(copy, recipe)
    (copy / "apple" / "new.jpg").write_bytes(encode(synthetic(50, 50, 1)))
    with pytest.raises(OSError, match="changed|other|differ"):
        DataLoader(dataset, 4, agent=agent.socket)
    again = headrace.ImageFolder(copy, recipe)
    with DataLoader(again, 4, agent=agent.socket) as loader:
        assert sum(len(labels) for _, labels in loader) == COUNT + 1


def test_paths_of_any_bytes(recipe, agent):
    with tempfile.TemporaryDirectory() as place:
        root = os.path.join(os.fsencode(place), b"b\xe4\xff \"quoted\"\n\\")
        os.makedirs(os.path.join(root, b"class"))
        for i in range(5):
            with open(os.path.join(root, b"class", b"\xf0%d.jpg" % i), "wb") as file:
                file.write(encode(synthetic(40, 40, i)))
        dataset = headrace.ImageFolder(os.fsdecode(root), recipe)
        assert_equal(*both(dataset, agent, batch_size=2))
        mine = headrace.ImageList([(p, 7) for p, _ in dataset.samples], recipe)
        assert_equal(*both(mine, agent, batch_size=2))


def test_measured_copies_of_a_loader_go_without_its_agent(dataset, agent):
    loader = DataLoader(dataset, 4, agent=agent.socket, stream="measured", cache="1MiB")
    copy = loader._measured_copy([[0, 1], [2]])
    assert not {"agent", "stream"} & copy._options.keys() and copy._options["cache"] is None
    before = agent.look()["jobs"]
    assert [len(labels) for _, labels in copy] == [2, 1]
    assert agent.look()["jobs"] == before
    copy.close()
    loader.close()


def test_status(dataset, agent):
    with DataLoader(dataset, 4, agent=agent.socket, stream="seen") as loader:
        epoch = iter(loader)
        held = next(epoch)
        status = agent.look()
        assert (status["version"], status["pid"]) == (1, agent.pid)
        assert status["socket"] == agent.socket and status["threads"] == 2
        (stream,) = [s for s in status["streams"] if s["name"] == "seen"]
        assert stream["samples"] == COUNT
        (queue,) = stream["queues"]
        assert (queue["rank"], queue["world_size"], queue["epoch"]) == (0, 1, 0)
        (cursor,) = queue["subscribers"]
        assert (cursor["pid"], cursor["batch_samples"]) == (os.getpid(), 4)
        assert cursor["held"] == 1 and cursor["batches"] == 1
        del held
    wait_until(
        lambda: not [s for s in agent.look()["streams"] if s["name"] == "seen"], "the stream's end"
    )
    with pytest.raises(FileNotFoundError):
        headrace.agent_status("/nowhere/at/all.sock")


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "headrace.agent", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_the_command():
    """A second agent at a socket is refused; signals end an agent, which leaves no files."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with Agent() as running:
            done = command("--socket", running.socket)
            assert done.returncode == 3 and running.socket in done.stderr, done
            running.send(number)
            assert running.status() == 0 and running.said() == ""
            assert os.listdir(running.place) in ([], ["agent.lock"])
    assert command("--threads", "x").returncode == 2
    assert "--metrics" in command("--help").stdout


def test_the_agent_needs_no_torch():
    code = "import headrace.agent, sys; print([m for m in ('torch', 'numpy') if m in sys.modules])"
    assert run_python(code).stdout == "[]\n"
