"""The data part of a script shaped as torchvision's reference script for classification: presets in
classes of the script's own, its samplers, and mixing in collate_fn. Only the import of DataLoader
changes."""

import math

import pytest
import torch
from torch.utils.data import DistributedSampler, RandomSampler, Sampler, SequentialSampler
from torch.utils.data.dataloader import default_collate

from conftest import CLASSES, COUNT, IMAGENET
from frameworks import RATE
from headrace.torch import DataLoader

CROP = 8


def module_of(torchvision, version):
    if version == "v1":
        return torchvision.transforms
    from torchvision.transforms import v2

    return v2


class TrainPreset:
    """As the reference's preset for training: v1 on PIL images, v2 on tensors."""

    def __init__(self, torchvision, version, policy=None, random=True):
        T = module_of(torchvision, version)
        steps = [T.PILToTensor()] if version == "v2" else []
        if random:
            steps += [T.RandomResizedCrop(CROP, antialias=True), T.RandomHorizontalFlip(0.5)]
        else:
            steps.append(T.Resize((CROP, CROP), antialias=True))
        if policy == "ra":
            steps.append(T.RandAugment(interpolation=T.InterpolationMode.BILINEAR))
        elif policy == "ta_wide":
            steps.append(T.TrivialAugmentWide(interpolation=T.InterpolationMode.BILINEAR))
        if version == "v1":
            steps += [T.PILToTensor(), T.ConvertImageDtype(torch.float)]
        else:
            steps.append(T.ToDtype(torch.float, scale=True))
        steps.append(T.Normalize(**IMAGENET))
        if policy is not None:
            steps.append(T.RandomErasing(p=0.2))
        if version == "v2":
            steps.append(T.ToPureTensor())
        self.transforms = T.Compose(steps)

    def __call__(self, img):
        return self.transforms(img)


class RepeatedSampler(Sampler):
    """As the reference's sampler for repeated augmentation; it selects as many as there are samples for
    each rank."""

    def __init__(self, dataset, num_replicas, rank, seed=0, repetitions=3):
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.seed, self.repetitions, self.epoch = seed, repetitions, 0
        self.count = math.ceil(len(dataset) / num_replicas)

    def __iter__(self):
        g = torch.Generator()
        g.manual_seed(self.seed + self.epoch)
        order = torch.randperm(len(self.dataset), generator=g).repeat_interleave(self.repetitions)
        return iter(order[self.rank :: self.num_replicas][: self.count].tolist())

    def __len__(self):
        return self.count

    def set_epoch(self, epoch):
        self.epoch = epoch


@pytest.fixture
def data(torchvision, folder):
    return torchvision.datasets.ImageFolder(str(folder), TrainPreset(torchvision, "v2"))


def taken(loader):
    return [[field.clone() for field in batch] for batch in loader]


def same(some, others):
    return len(some) == len(others) and all(
        torch.equal(a, b) for x, y in zip(some, others) for a, b in zip(x, y)
    )


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("policy", [None, "ra", "ta_wide"])
def test_presets_run_natively(torchvision, folder, version, policy):
    """Although each is a class of the script's own: it does nothing but call a Compose."""
    preset = TrainPreset(torchvision, version, policy)
    data = torchvision.datasets.ImageFolder(str(folder), preset)
    sampler = RandomSampler(data, generator=torch.Generator().manual_seed(1))
    loader = DataLoader(
        data, batch_size=4, sampler=sampler, num_workers=2, collate_fn=default_collate
    )
    assert loader.is_native
    alike = DataLoader(
        data, batch_size=4, transform=preset.transforms, num_workers=1,
        sampler=RandomSampler(data, generator=torch.Generator().manual_seed(1)),
    )  # fmt: skip
    assert same(taken(loader), taken(alike))


def test_presets_that_do_more_run_in_python(torchvision, folder):
    class Twice(TrainPreset):
        def __call__(self, img):
            return self.transforms(self.transforms.transforms[0](img))

    class Dark(TrainPreset):
        def __call__(self, img):
            return self.transforms(img) / 2

    class Named(TrainPreset):
        def __call__(self, *img):
            return self.transforms(img)

    class Held(TrainPreset):
        def transforms(self, img):
            return img

        def __init__(self, *arguments):
            pass

    class Calls(TrainPreset):
        def __init__(self, *arguments):
            self.transforms = lambda img: img

    for kind in (Twice, Dark, Named, Held, Calls):
        data = torchvision.datasets.ImageFolder(str(folder), kind(torchvision, "v2"))
        loader = DataLoader(data, 4)
        assert not loader.is_native and kind.__name__ in loader.explain()


def test_ranks_of_a_distributed_sampler(data):
    """The script calls set_epoch on its own sampler."""
    loaders = []
    for rank in range(2):
        sampler = DistributedSampler(data, 2, rank)
        loaders.append((sampler, DataLoader(data, 4, sampler=sampler, return_index=True)))
    orders = []
    for epoch in range(2):
        seen = []
        for sampler, loader in loaders:
            sampler.set_epoch(epoch)
            seen += [i for *_, ids in loader for i in ids.tolist()]
        assert set(seen) == set(range(COUNT)) and len(seen) == COUNT + 1
        orders.append(seen)
    assert orders[0] != orders[1]


@pytest.mark.parametrize("is_native", [True, False])
def test_repeated_augmentation(torchvision, data, is_native):
    """The repeats of a sample, over both ranks, are different pictures; resuming is exact. So they are
    where Python makes samples."""
    if not is_native:
        data.target_transform = int
    rows = []
    for rank in range(2):
        sampler = RepeatedSampler(data, 2, rank)
        part = {"rank": rank, "world_size": 2}
        loader = DataLoader(data, 4, sampler=sampler, return_index=True, **part)
        assert loader.is_native == is_native
        loader.set_epoch(1)  # and the sampler's
        batches = taken(loader)
        rows += [
            (i, row) for images, _, ids in batches for i, row in zip(ids.tolist(), images)
        ]
        loader.set_epoch(1)
        iterator = iter(loader)
        for _ in range(2):
            next(iterator)
        again = DataLoader(
            data, 4, sampler=RepeatedSampler(data, 2, rank), return_index=True, **part
        )
        again.load_state_dict(loader.state_dict())
        assert len(batches) > 2 and same(taken(again), batches[2:])
    pairs = [(a, b) for n, (i, a) in enumerate(rows) for j, b in rows[:n] if i == j]
    assert len(pairs) >= COUNT // 2
    assert not any(torch.equal(a, b) for a, b in pairs)


def test_mixing_in_collate_fn_and_in_the_loader(torchvision, data):
    """The script's collate_fn runs in Python; mix= is the same in C."""
    v2 = module_of(torchvision, "v2")
    mix = v2.RandomChoice([v2.MixUp(num_classes=3, alpha=0.2), v2.CutMix(num_classes=3)])

    def collate_fn(batch):
        return mix(*default_collate(batch))

    firsts = []
    for options in (
        {"collate_fn": collate_fn},
        {"collate_fn": collate_fn, "num_workers": 2},
        {"mix": mix},
    ):
        loader = DataLoader(data, 4, shuffle=True, drop_last=True, **options)
        assert loader.is_native == ("mix" in options)
        torch.manual_seed(len(firsts))  # of the script's own numbers
        first = taken(loader)
        for images, labels in first:
            assert images.shape == (4, 3, CROP, CROP) and labels.shape == (4, 3)
            assert torch.allclose(labels.sum(1), torch.ones(4))
        state = loader.state_dict()
        second = taken(loader)
        assert not same(second, first)
        again = DataLoader(data, 4, shuffle=True, drop_last=True, **options)
        again.load_state_dict({**state, "position": 12})
        assert same(taken(again), second[3:])
        firsts.append(first)
    assert same(*firsts[:2])


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_loss_is_that_of_torchs_loader(torchvision, folder, version):
    """In the script's loops, with the same sampler and without random transforms."""
    data = torchvision.datasets.ImageFolder(
        str(folder), TrainPreset(torchvision, version, random=False)
    )

    def run(kind):
        torch.manual_seed(0)
        model = torch.nn.Linear(3 * CROP * CROP, len(CLASSES))
        optimizer = torch.optim.SGD(model.parameters(), RATE)
        sampler = RandomSampler(data, generator=torch.Generator().manual_seed(2))
        loader = kind(data, batch_size=4, sampler=sampler, collate_fn=default_collate)
        test = kind(data, batch_size=8, sampler=SequentialSampler(data))
        losses, right = [], []
        for _ in range(3):
            losses.append(0.0)
            for image, target in loader:
                loss = torch.nn.functional.cross_entropy(model(image.flatten(1)), target)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses[-1] += loss.item() / len(loader)
            with torch.inference_mode():
                guessed = [(model(image.flatten(1)).argmax(1), target) for image, target in test]
            right.append(sum(int((guess == target).sum()) for guess, target in guessed))
            assert sum(len(target) for _, target in guessed) == len(test.dataset)
        return losses, right

    (ours, right), (theirs, their_right) = run(DataLoader), run(torch.utils.data.DataLoader)
    assert ours == pytest.approx(theirs, rel=0.01)  # pixels to 1 of 255
    assert right == pytest.approx(their_right, abs=1)
    assert ours[2] < ours[0]
