"""The DataLoader under Hugging Face Accelerate, in scripts with the shape of its own examples, whose
only change is the import of DataLoader."""

import itertools
import sys

import pytest
import torch
from torch.utils.data import BatchSampler, RandomSampler, WeightedRandomSampler

from conftest import COUNT
from frameworks import (
    RATE,
    curves_agree,
    loader_of,
    loss_for_curves,
    model_for_curves,
    run_script,
)
import headrace
from headrace.torch import DataLoader

accelerate = pytest.importorskip("accelerate")
data_loader = accelerate.data_loader


@pytest.fixture
def accelerator():
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state(True)
    GradientState._reset_state()
    yield accelerate.Accelerator(cpu=True)
    AcceleratorState._reset_state(True)
    GradientState._reset_state()


def make(dataset, kind=DataLoader, **options):
    return kind(dataset, 4, shuffle=True, return_index=True, num_workers=1, **options)


def taken(batches):
    """Returns what was had of batches, with memory of its own."""
    return [[field.clone() for field in batch] for batch in batches]


def same(some, others):
    return len(some) == len(others) and all(
        torch.equal(a, b) for x, y in zip(some, others) for a, b in zip(x, y)
    )


def indices_of(batches):
    return [batch[2].tolist() for batch in batches]


def shards(loader, ranks, **options):
    return [
        data_loader.prepare_data_loader(
            loader, num_processes=ranks, process_index=rank, **options
        )
        for rank in range(ranks)
    ]


def test_prepare_keeps_the_loader(accelerator, dataset, caplog):
    whole, loader = make(dataset), make(dataset)
    prepared = accelerator.prepare(loader)
    assert prepared.base_dataloader is loader
    assert isinstance(prepared, torch.utils.data.DataLoader) and isinstance(prepared, DataLoader)
    assert len(prepared) == 10 and prepared.total_dataset_length == COUNT
    assert accelerator.prepare(prepared) is prepared
    for _ in range(3):
        for batch, expected in zip(prepared, whole, strict=True):
            assert same([batch], [expected])
    assert "batches are held" not in caplog.text  # Accelerate holds one more
    assert loader.stats()["samples"] >= 3 * COUNT


def test_gradient_state_and_devices(accelerator, dataset):
    """Batches are moved, the last one is known as such, and metrics leave out what was repeated."""
    prepared = accelerator.prepare(make(dataset))
    prepared.device = torch.device("meta")
    last = [accelerator.gradient_state.end_of_dataloader for batch in prepared]
    assert last == [False] * 9 + [True]
    assert next(iter(prepared))[0].device.type == "meta"


@pytest.mark.parametrize("ranks", [2, 3, 5])
@pytest.mark.parametrize("how", ["plain", "drop_last", "uneven", "split"])
def test_ranks_get_what_accelerate_gives_them(accelerator, dataset, ranks, how):
    """As of torch's loader with the same order: Accelerate's own assignment, by which
    gather_for_metrics finds the samples that were repeated."""
    options = {"drop_last": how == "drop_last"}
    size = 2 * ranks if how == "split" else 4
    how = {"split_batches": how == "split", "even_batches": how != "uneven"}
    loader = DataLoader(dataset, size, True, return_index=True, num_workers=1, **options)
    ours = shards(loader, ranks, **how)
    orders = []
    for epoch in range(2):
        loader.set_epoch(epoch)
        theirs = [
            list(
                data_loader.BatchSamplerShard(
                    _Sized(list(loader.batch_sampler), size, options["drop_last"]),
                    ranks, rank, how["split_batches"], how["even_batches"],
                )
            )
            for rank in range(ranks)
        ]  # fmt: skip
        got = [indices_of(shard) for shard in ours]
        assert got == theirs
        assert [len(shard) for shard in ours] == [len(part) for part in got]
        orders.append(got)
        flat = [index for part in got for batch in part for index in batch]
        assert set(flat) == set(range(COUNT)) or options["drop_last"]
        assert len(set(flat)) == len(flat) or not options["drop_last"]
    assert orders[0] != orders[1]


class _Sized(list):
    def __init__(self, batches, batch_size, drop_last):
        super().__init__(batches)
        self.batch_size, self.drop_last = batch_size, drop_last


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_with_skip_first_batches(accelerator, dataset, tmp_path, ranks):
    """The default: load_state brings back the epoch, skip_first_batches the place in it."""
    first = shards(make(dataset), ranks)
    epochs = [[taken(shard) for shard in first] for _ in range(3)]
    left = shards(make(dataset), ranks)
    for shard in left:
        taken(shard)
    states = []
    for shard in left:
        for _ in zip(range(3), shard):
            pass
        states.append(shard.state_dict())
        assert states[-1]["epoch"] == 1
    assert all({**state, "_": 0} == {**states[0], "_": 0} for state in states)

    for rank, again in enumerate(shards(make(dataset), ranks)):
        again.load_state_dict(states[rank])
        active = data_loader.skip_first_batches(again, 3)
        assert len(active) == len(again) - 3
        assert same(taken(active), epochs[1][rank][3:])
        assert same(taken(again), epochs[2][rank])

    for rank, again in enumerate(shards(make(dataset), ranks)):
        again.set_epoch(1)  # as scripts do that keep no states
        assert same(taken(data_loader.skip_first_batches(again, 3)), epochs[1][rank][3:])
        again.set_epoch(2)
        assert same(taken(again), epochs[2][rank])

    for rank, again in enumerate(shards(make(dataset), ranks)):
        again.load_state_dict(states[rank])  # the script skips by itself: the whole epoch
        assert same(taken(again), epochs[1][rank])

    others = shards(make(dataset), 3 - ranks)  # as many processes as the resumed run has
    for again in others:
        again.load_state_dict(states[0])
    seen = [i for again in others for batch in indices_of(again) for i in batch]
    theirs = [i for part in epochs[1] for batch in indices_of(part) for i in batch]
    assert set(seen) == set(theirs) == set(range(COUNT))
    assert others[0].state_dict()["epoch"] == 2


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_with_stateful_loaders(accelerator, dataset, ranks):
    """use_stateful_dataloader=True: load_state brings back the place, too."""
    first = shards(make(dataset), ranks, use_stateful_dataloader=True)
    epochs = [[taken(shard) for shard in first] for _ in range(3)]
    left = shards(make(dataset), ranks, use_stateful_dataloader=True)
    for rank, shard in enumerate(left):
        taken(shard)
        for _ in zip(range(3), shard):
            pass
        again = shards(make(dataset), ranks, use_stateful_dataloader=True)[rank]
        again.load_state_dict(shard.state_dict())
        assert same(taken(again), epochs[1][rank][3:])
        assert same(taken(again), epochs[2][rank])


def test_skipping_twice_and_without_prepare(accelerator, dataset):
    whole = taken(make(dataset))
    twice = accelerator.prepare(make(dataset))
    twice = accelerator.skip_first_batches(accelerator.skip_first_batches(twice, 2), 3)
    assert same(taken(twice), whole[5:])
    plain = data_loader.skip_first_batches(make(dataset), 4)
    assert len(plain) == 6 and same(taken(plain), whole[4:])
    nothing = data_loader.skip_first_batches(make(dataset), 10)
    assert taken(nothing) == []


def test_own_samplers(accelerator, dataset):
    """Accelerate deals them to the ranks; its SeedableRandomSampler takes a RandomSampler's place."""
    for ranks in (1, 2):
        generator = torch.Generator().manual_seed(3)
        loader = DataLoader(
            dataset, 4, sampler=RandomSampler(dataset, generator=generator), return_index=True
        )
        ours = shards(loader, ranks, use_seedable_sampler=True, data_seed=7)
        for _ in range(2):
            seen = [i for shard in ours for batch in indices_of(shard) for i in batch]
            assert set(seen) == set(range(COUNT))
        assert type(data_loader.get_sampler(ours[0])).__name__ == "SeedableRandomSampler"
        # Ranks would write different states to one file.
        assert ours[0].use_stateful_dataloader == (ranks == 1)

    batches = BatchSampler(WeightedRandomSampler([1.0] * COUNT, 12), 3, False)
    loader = DataLoader(dataset, batch_sampler=batches, return_index=True)
    (alone,) = shards(loader, 1)
    assert alone.base_dataloader is loader and len(indices_of(alone)) == 4


@pytest.mark.parametrize("ranks", [1, 2])
def test_samples_that_python_makes(accelerator, ranks):
    def make():
        return DataLoader(list(range(COUNT)), 4, shuffle=True)

    def values_of(shard):
        return [batch.tolist() for batch in shard]

    first = shards(make(), ranks)
    epochs = [[values_of(shard) for shard in first] for _ in range(2)]
    for epoch in epochs:
        assert {i for part in epoch for batch in part for i in batch} == set(range(COUNT))
    assert epochs[0] != epochs[1]
    for rank, again in enumerate(shards(make(), ranks)):
        again.set_epoch(1)
        assert values_of(data_loader.skip_first_batches(again, 3)) == epochs[1][rank][3:]


@pytest.mark.parametrize("options", [{"cache": "16MiB"}, {"on_error": "skip"}])
def test_options_are_kept(accelerator, dataset, options):
    plain, loaders = shards(make(dataset), 2), shards(make(dataset, **options), 2)
    for _ in range(2):
        for shard, expected in zip(loaders, plain):
            assert same(taken(shard), taken(expected))
    if "cache" in options:
        assert loaders[0].base_dataloader.stats()["cache_hits"] > 0


def test_what_cannot_be_kept_is_refused(accelerator, dataset):
    with pytest.raises(ValueError, match="dispatch_batches=True"):
        shards(make(dataset), 1, dispatch_batches=True, put_on_device=True)
    with pytest.raises(ValueError, match="part 0 of 3 itself"):
        shards(make(dataset, rank=0, world_size=3), 2)
    loader = make(dataset)
    loader.load_state_dict(loader.state_dict())
    with pytest.raises(RuntimeError, match="prepare it first"):
        shards(loader, 2)
    skipping = data_loader.skip_first_batches(make(dataset), 2)
    with pytest.raises(ValueError, match="prepare the DataLoader first"):
        shards(skipping, 2)


def test_loaders_that_share_a_batch_sampler(accelerator, dataset, folder):
    """They are told apart by their datasets."""
    whole = BatchSampler(range(COUNT), 4, False)
    other = DataLoader(headrace.ImageFolder(folder, dataset.transform), batch_sampler=whole)
    loader = DataLoader(dataset, batch_sampler=whole)
    assert accelerator.prepare(other).base_dataloader is other
    assert accelerator.prepare(loader).base_dataloader is loader
    again = DataLoader(dataset, batch_sampler=whole, layout="NHWC")
    with pytest.raises(ValueError, match="a batch_sampler of its own"):
        accelerator.prepare(again)


def test_other_loaders_are_not_changed(accelerator, dataset):
    make(dataset).batch_sampler  # noqa: B018 - changes Accelerate
    theirs = accelerator.prepare(torch.utils.data.DataLoader(range(10), 3, shuffle=True))
    assert type(theirs.base_dataloader) is torch.utils.data.DataLoader
    assert sorted(i for batch in theirs for i in batch.tolist()) == list(range(10))
    assert len(list(data_loader.skip_first_batches(theirs, 1))) == 3
    dispatched = data_loader.prepare_data_loader(
        torch.utils.data.DataLoader(range(10), 5), dispatch_batches=True, put_on_device=True
    )
    assert [batch.tolist() for batch in dispatched] == [list(range(5)), list(range(5, 10))]


def test_a_loader_with_a_rank_of_its_own(accelerator, dataset):
    """It reads that part; how many repeated samples end a gathered batch is not known."""
    loaders = [make(dataset, rank=rank, world_size=2) for rank in range(2)]
    kept = [
        data_loader.prepare_data_loader(loader, num_processes=2, process_index=rank)
        for rank, loader in enumerate(loaders)
    ]
    assert [shard.base_dataloader for shard in kept] == loaders
    seen = [i for shard in kept for batch in indices_of(shard) for i in batch]
    assert set(seen) == set(range(COUNT)) and len(seen) == COUNT + 1
    kept[0].begin()
    assert kept[0].remainder == -1


def test_the_loss_falls_as_with_torchs_loader(accelerator, folder):
    def curve(kind, seed):
        model = model_for_curves()
        optimizer = torch.optim.SGD(model.parameters(), RATE)
        model, optimizer, loader = accelerator.prepare(
            model, optimizer, loader_of(kind, folder, seed)
        )
        losses = []
        for _ in range(3):
            total = 0.0
            for batch in loader:
                loss = loss_for_curves(model, batch)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
                total += float(loss.detach()) * len(batch[1]) / COUNT
            losses.append(total)
        return losses

    curves_agree(curve)


TRAIN = """
import accelerate
from accelerate import Accelerator

def prepared():
    torch.manual_seed(1)
    model = torch.nn.Linear(3, 1)
    accelerator.free_memory()
    return accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), 0.1),
        DataLoader(data, 4, shuffle=True, return_index=True, num_workers=1),
    )

def train(start=(0, 0), save=None):
    model, optimizer, loader = prepared()
    if start != (0, 0):
        accelerator.load_state(out + "/state")
    epochs = []
    for epoch in range(start[0], 3):
        active = loader
        if (epoch, 0) < start and start[1]:
            active = accelerator.skip_first_batches(loader, start[1])
        first = start[1] if active is not loader else 0
        epochs.append([])
        for step, (images, labels, index) in enumerate(active, first):
            assert images.device.type == accelerator.device.type
            loss = model(images.mean((2, 3))).mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            epochs[-1] += index.tolist()
            if (epoch, step + 1) == save:
                accelerator.save_state(out + "/state")
    return epochs, accelerator.unwrap_model(model).weight.tolist()

accelerator = Accelerator(cpu=True)
whole, weights = train(save=(1, 3))
again, weights_again = train(start=(1, 3))

evaluation = accelerator.prepare(DataLoader(data, 4, return_index=True, num_workers=1))
gathered = []
for images, labels, index in evaluation:
    gathered += accelerator.gather_for_metrics(index).tolist()
tell(accelerator.process_index, whole, again=again, weights=weights, resumed=weights_again,
     gathered=gathered)
"""


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_script_that_is_resumed(folder, tmp_path, ranks):
    """Over the ranks, each sample comes once an epoch; epochs differ; the resumed run is the same bit
    for bit; metrics see each sample once."""
    told, _ = run_script(tmp_path, folder, TRAIN, ranks=ranks)
    for rank in told:
        assert rank["resumed"] == rank["weights"] == told[0]["weights"]
        done = 3 * 4
        assert rank["again"] == [rank["epochs"][1][done:], rank["epochs"][2]]
        assert rank["gathered"] == list(range(COUNT))
    orders = list(zip(*(rank["epochs"] for rank in told)))
    for order in orders:
        flat = list(itertools.chain(*order))
        assert set(flat) == set(range(COUNT)) and len(flat) == (COUNT if ranks == 1 else 40)
    assert len({str(order) for order in orders}) == 3


NOTEBOOK = """
from accelerate import Accelerator, debug_launcher

def train():
    accelerator = Accelerator(cpu=True)
    prepared = accelerator.prepare(loader)
    epochs = [[i for *_, index in prepared for i in index.tolist()] for _ in range(2)]
    tell(accelerator.process_index, epochs)

next(iter(loader))
debug_launcher(train, num_processes=2)
"""


@pytest.mark.long
def test_ranks_forked_from_a_notebook(folder, tmp_path):
    """They are forked from a process that has read a batch of the loader."""
    told, _ = run_script(tmp_path, folder, NOTEBOOK, [sys.executable])
    for order in zip(*(rank["epochs"] for rank in told)):
        flat = list(itertools.chain(*order))
        assert set(flat) == set(range(COUNT)) and len(flat) == 40
