"""The DataLoader in the place of timm's create_loader: its datasets, transforms, samplers, mixing and
PrefetchLoader, in a loop of train.py's shape."""

import pytest
import torch
from torch.utils.data import DistributedSampler

from conftest import CLASSES, COUNT
from frameworks import RATE
from headrace.torch import DataLoader, Normalize

CPU = torch.device("cpu")
LABELS = len(CLASSES) + 1  # timm labels by the last folder: "deeper" too
MEAN, STD = (0.5, 0.4, 0.3), (0.3, 0.2, 0.25)


@pytest.fixture(scope="module")
def timm_data(torchvision):
    return pytest.importorskip("timm.data")


@pytest.fixture
def data(timm_data, folder):
    dataset = timm_data.create_dataset("", str(folder))
    dataset.transform = timm_data.create_transform(16, is_training=True)
    return dataset


def plain(timm_data, size=8, **options):
    return timm_data.create_transform(
        size, crop_pct=1.0, crop_mode="squash", interpolation="bilinear", **options
    )


def taken(loader, batches=None):
    """Returns copies of the batches, as timm's loops unpack them."""
    return [
        (images.clone(), target.clone())
        for _, (images, target) in zip(range(batches or 1000), loader)
    ]


def same(some, others):
    return len(some) == len(others) and all(
        torch.equal(a, b) for x, y in zip(some, others) for a, b in zip(x, y)
    )


def test_its_datasets_are_read_natively(timm_data, data):
    loader = DataLoader(data, 4, shuffle=True, drop_last=True, return_path=True)
    assert loader.is_native and len(loader.dataset) == COUNT
    of = dict(data.reader.samples)
    paths = []
    for _, labels, names in loader:
        assert labels.tolist() == [of[name] for name in names]
        paths += names
    assert len(set(paths)) == len(paths) == COUNT // 4 * 4
    subset = torch.utils.data.Subset(data, range(5))
    assert DataLoader(subset, 2, transform=plain(timm_data)).is_native


def test_the_prefetch_loader(timm_data, data):
    """Over uint8 batches, as create_loader makes it: normalised as in the loader."""
    data.transform = plain(timm_data, use_prefetcher=True)
    ours = DataLoader(data, 4, shuffle=True)
    loader = timm_data.loader.PrefetchLoader(ours, MEAN, STD, device=CPU)
    assert next(iter(DataLoader(data, 4)))[0].dtype == torch.uint8
    expected = DataLoader(data, 4, shuffle=True)
    normalize = Normalize(MEAN, STD)
    assert len(loader) == 10 and loader.dataset is data and not loader.mixup_enabled
    seen = []
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        seen.append(list(loader.batch_sampler))
        for (images, target), (raw, labels) in zip(loader, expected, strict=True):
            assert torch.allclose(images, normalize(raw), atol=1e-5)
            assert torch.equal(target, labels)
    assert seen[0] != seen[1] and sorted(sum(seen[0], [])) == list(range(COUNT))
    state = ours.state_dict()
    third = taken(loader)
    again = DataLoader(data, 4, shuffle=True)
    again.load_state_dict(state)
    loader = timm_data.loader.PrefetchLoader(again, MEAN, STD, device=CPU)
    assert same(taken(loader), third)
    next(iter(loader))
    assert again.state_dict()["position"] == 8  # it takes a batch ahead


@pytest.fixture
def create_loader(timm_data):
    """Ours, with the arguments that each call here has."""
    import headrace.timm

    def make(*arguments, is_training=True, **options):
        return headrace.timm.create_loader(
            *arguments, is_training=is_training, num_workers=1, device=CPU, **options
        )

    return make


@pytest.mark.parametrize("is_prefetched", [True, False])
def test_create_loader(timm_data, data, create_loader, is_prefetched):
    """timm's own arguments make timm's transform; the others are the DataLoader's."""
    options = {"use_prefetcher": is_prefetched, "mean": MEAN, "std": STD}
    made = create_loader(
        data, 8, 4, **options, auto_augment="rand-m9-mstd0.5-inc1", cache="8MiB", seed=3,
        use_multi_epochs_loader=True,
    )  # fmt: skip
    assert isinstance(made, timm_data.loader.PrefetchLoader) == is_prefetched
    loader = made.loader if is_prefetched else made
    assert type(loader) is DataLoader and loader.is_native and loader.seed == 3
    assert loader.num_workers == 1 and loader.drop_last and len(made) == COUNT // 4
    alike = DataLoader(data, 4, shuffle=True, drop_last=True, transform=data.transform, seed=3)
    normalize = Normalize(MEAN, STD) if is_prefetched else lambda images: images
    for (images, target), (expected, labels) in zip(made, alike, strict=True):
        assert torch.allclose(images, normalize(expected), atol=1e-5)
        assert torch.equal(target, labels)
    list(made)
    assert loader.stats()["cache_hits"] > 0
    test = create_loader(data, 8, 4, is_training=False, crop_pct=1.0, **options)
    assert not test.sampler.shuffle and len(test) == -(-COUNT // 4)
    of = dict(data.reader.samples)
    assert torch.cat([target for _, target in test]).tolist() == [of[n] for n, _ in data.reader.samples]


def test_create_loader_of_what_python_makes(timm_data, data, create_loader):
    """A collate_fn is kept, timm's too where it does more than stack; so is what it needs."""
    mix = timm_data.FastCollateMixup(mixup_alpha=0.4, num_classes=LABELS)
    loader = create_loader(data, 8, 4, collate_fn=mix)
    images, target = next(iter(loader))
    assert images.shape == (4, 3, 8, 8) and target.shape == (4, LABELS)
    assert loader.mixup_enabled and not loader.loader.is_native
    data.transform = None
    split = create_loader(timm_data.AugMixDataset(data, 3), 8, 4, num_aug_splits=3)
    images, target = next(iter(split))
    assert images.shape == (12, 3, 8, 8) and torch.equal(target[:4], target[8:])
    with pytest.raises(ValueError, match="use timm.data.create_loader"):
        create_loader(data, 8, 4, input_size_choices=[8, 16])
    with pytest.raises(TypeError, match="no_such"):
        create_loader(data, 8, 4, no_such=1)


def train(batches, epochs, mixup=None):
    """train.py's loop; returns the mean loss of each epoch."""
    torch.manual_seed(0)
    model = torch.nn.Linear(192, LABELS)
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    losses = []
    for epoch in range(epochs):
        losses.append(0.0)
        batches.sampler.set_epoch(epoch)
        for images, target in batches:
            if mixup is not None:
                images, target = mixup(images, target)
            loss = torch.nn.functional.cross_entropy(model(images.flatten(1)), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[-1] += loss.item() / len(batches)
    return losses


def test_the_loss_is_that_of_timms_loader(timm_data, data):
    """With the same order and without random transforms."""
    options = {"device": CPU, "num_workers": 0, "crop_pct": 1.0, "crop_mode": "squash"}
    options |= {"interpolation": "bilinear", "mean": MEAN, "std": STD}
    theirs = timm_data.create_loader(data, 8, 4, **options)
    ours = DataLoader(
        data, 4, shuffle=True, transform=plain(timm_data, mean=MEAN, std=STD)
    )

    class Alike:
        """timm's loader in our order."""

        def __init__(self):
            self.sampler = self
            self.order = []

        def set_epoch(self, epoch):
            ours.set_epoch(epoch)
            self.order = list(ours.batch_sampler)

        def __len__(self):
            return len(self.order)

        def __iter__(self):
            batches = torch.utils.data.DataLoader(
                theirs.dataset, batch_sampler=self.order, collate_fn=theirs.loader.collate_fn
            )
            return iter(timm_data.loader.PrefetchLoader(batches, MEAN, STD, device=CPU))

    expected = train(Alike(), 3)
    assert train(ours, 3) == pytest.approx(expected, rel=5e-3)  # pixels to 1 of 255
    assert expected[2] < expected[0]


def test_mixup_of_batches(timm_data, data):
    """timm's Mixup writes into the images, which are the loop's."""
    options = {"shuffle": True, "drop_last": True, "transform": plain(timm_data)}
    mixup = timm_data.Mixup(mixup_alpha=0.4, cutmix_alpha=1.0, num_classes=LABELS)
    losses = train(DataLoader(data, 4, **options), 2, mixup)
    assert all(0 < loss < 10 for loss in losses)
    before = taken(DataLoader(data, 4, **options))
    loader = DataLoader(data, 4, **options)
    for images, target in loader:
        mixup(images, target)
    loader.set_epoch(0)
    assert same(taken(loader), before)


@pytest.mark.parametrize("ranks", [2, 3])
def test_its_samplers_over_ranks(timm_data, data, ranks):
    """RepeatAugSampler gives a sample to several ranks, and each augments it differently."""
    pictures = []
    for epoch in range(2):
        for rank in range(ranks):
            sampler = timm_data.distributed_sampler.RepeatAugSampler(data, ranks, rank)
            loader = DataLoader(
                data, 4, sampler=sampler, rank=rank, world_size=ranks, return_index=True
            )
            sampler.set_epoch(epoch)
            assert len(loader) == -(-len(sampler) // 4)
            got = [(i, row.clone()) for images, _, ids in loader for i, row in zip(ids.tolist(), images)]
            assert [i for i, _ in got] == list(sampler)
            pictures += [(epoch, *one) for one in got]
    first = [(i, row) for epoch, i, row in pictures if epoch == 0]
    again = [(i, row) for epoch, i, row in pictures if epoch == 1]
    assert [i for i, _ in first] != [i for i, _ in again]
    pairs = [
        (a, b) for n, (i, a) in enumerate(first) for j, b in first[:n] if i == j
    ]
    assert len(pairs) >= 10 and not any(torch.equal(a, b) for a, b in pairs)


def test_validation_over_ranks(timm_data, data):
    """OrderedDistributedSampler is followed; DistributedSampler is replaced."""
    seen = []
    for rank in range(2):
        sampler = timm_data.distributed_sampler.OrderedDistributedSampler(data, 2, rank)
        loader = DataLoader(data, 4, sampler=sampler, return_index=True)
        seen.append([i for *_, ids in loader for i in ids.tolist()])
        assert seen[rank] == list(sampler)
    assert set(sum(seen, [])) == set(range(COUNT))


def test_a_resumed_rank(timm_data, data):
    """In the middle of an epoch, with a loop that takes batches from the loader itself."""
    for rank in range(2):
        sampler = DistributedSampler(data, 2, rank, seed=3)
        loader = DataLoader(data, 4, sampler=sampler)
        epochs = [taken(loader) for _ in range(2)]
        loader.set_epoch(1)
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        again = DataLoader(data, 4, sampler=DistributedSampler(data, 2, rank, seed=3))
        again.load_state_dict(loader.state_dict())
        assert same(taken(again), epochs[1][3:])
