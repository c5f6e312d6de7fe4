"""Rows of samples: what a loader yields beside images, from ImageList to training and back."""

import copy
import pickle

import numpy as np
import pytest
import torch

import headrace
import headrace.transforms as T
from agents import Agent
from conftest import encode, synthetic
from headrace.torch import DataLoader, Targets

COUNT = 23
RECIPE = T.Compose([T.Resize((20, 24)), T.ToDtype("float32", scale=True)])
FLIPPED = T.Compose([T.RandomHorizontalFlip(p=1.0), T.Resize((20, 24)), T.ToDtype("uint8")])


def size(i):
    return 30 + i, 40 + 2 * i  # width, height


def rows_of(i):
    """The rows of sample i, of which there are i % 5."""
    n = i % 5
    left, top = np.arange(n, dtype=np.float32), np.arange(n, dtype=np.float32) + i
    boxes = np.stack([left, top, left + 3, top + 2], 1) if n else np.empty((0, 4), np.float32)
    return {
        "boxes": boxes,
        "labels": 100 * i + np.arange(n),
        "iscrowd": np.arange(n) % 2 == 0,
        "image_id": 1000 + i,
        "scale": 0.25 * i,
    }


def values_of(i):
    """The same without boxes."""
    return {name: value for name, value in rows_of(i).items() if name != "boxes"}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    out = []
    for i in range(COUNT):
        (folder / f"{i:02}.jpg").write_bytes(encode(synthetic(*size(i), i)))
        out.append((folder / f"{i:02}.jpg", i % 3))
    return out


@pytest.fixture
def dataset(pairs):
    return headrace.ImageList(pairs, RECIPE, rows=map(values_of, range(COUNT)))


def check(target, i, names=None):
    truth = values_of(i)
    assert list(target) == list(truth)
    for name, value in truth.items():
        found = target[name]
        assert isinstance(found, torch.Tensor)
        assert torch.equal(found, torch.as_tensor(value, dtype=found.dtype)), (name, i)
    assert target["labels"].dtype == torch.int64
    assert target["iscrowd"].dtype == torch.bool
    assert target["scale"].dtype == torch.float32


def batches(loader):
    return [(images.clone(), targets, index) for images, targets, index in loader]


def test_every_sample_has_its_targets(dataset, pairs):
    plain = DataLoader(headrace.ImageList(pairs, RECIPE), 4, shuffle=True, return_index=True)
    with DataLoader(dataset, 4, shuffle=True, return_index=True) as loader:
        for (images, targets, index), (same, _, order) in zip(loader, plain, strict=True):
            assert torch.equal(images, same) and torch.equal(index, order)
            assert isinstance(targets, Targets) and len(targets) == len(index)
            for i, target in zip(index.tolist(), targets, strict=True):
                check(target, i)


def test_targets_are_views_of_flat_tensors(dataset):
    with DataLoader(dataset, COUNT) as loader:
        _, targets = next(iter(loader))
    flat = targets.flat["labels"]
    assert len(flat) == sum(i % 5 for i in range(COUNT)) == targets.offsets[-1]
    flat[targets.offsets[4]] = -7  # sample 4's first row
    assert targets[4]["labels"][0] == -7
    assert torch.equal(targets[-1]["labels"], targets[COUNT - 1]["labels"])
    assert [t["image_id"].item() for t in targets[2:5]] == [1002, 1003, 1004]
    with pytest.raises(TypeError, match=r"targets.flat\['labels'\]"):
        targets["labels"]
    with pytest.raises(IndexError):
        targets[COUNT]
    moved = targets.to("meta")
    assert moved[4]["labels"].device.type == "meta" and len(moved[4]["labels"]) == 4
    doubled = targets.to(torch.float64)
    assert doubled[3]["labels"].dtype == torch.float64
    assert "23 samples" in repr(targets)


def test_targets_are_copied_and_pickled(dataset):
    with DataLoader(dataset, COUNT) as loader:
        _, targets = next(iter(loader))
    sent = pickle.dumps(targets)
    begins = [sum(i % 5 for i in range(end)) for end in range(COUNT + 1)]
    for same in (pickle.loads(sent), copy.copy(targets), copy.deepcopy(targets), targets):
        assert same.offsets.dtype == torch.int64 and same.offsets.tolist() == begins
        for i, target in enumerate(same):
            check(target, i)


def test_targets_outlive_the_loader(dataset):
    loader = DataLoader(dataset, 5)
    kept = [targets for _, targets in loader]
    loader.close()
    for i, target in enumerate(t for targets in kept for t in targets):
        check(target, i)


def test_resumes_and_deals(dataset):
    with DataLoader(dataset, 3, shuffle=True, return_index=True, seed=5) as loader:
        all_of_it = batches(loader)
        iterator = iter(loader)
        next(iterator), next(iterator)
        state = loader.state_dict()
        rest = [index.tolist() for _, _, index in iterator]
    with DataLoader(dataset, 3, shuffle=True, return_index=True, seed=5) as loader:
        loader.load_state_dict(state)
        for (_, targets, index), expected in zip(loader, rest, strict=True):
            assert index.tolist() == expected
            for i, target in zip(expected, targets, strict=True):
                check(target, i)
    for rank in range(2):
        with DataLoader(
            dataset, 2, shuffle=True, return_index=True, seed=5, rank=rank, world_size=2
        ) as loader:
            for _, targets, index in loader:
                for i, target in zip(index.tolist(), targets, strict=True):
                    check(target, i)
    assert sum(len(index) for _, _, index in all_of_it) == COUNT


def test_other_rows_are_another_dataset(dataset, pairs):
    """A state names the dataset that it is of, with its rows."""
    other = headrace.ImageList(pairs, RECIPE, rows=map(values_of, range(COUNT - 1, -1, -1)))
    with DataLoader(dataset, 3) as loader, DataLoader(other, 3) as changed:
        next(iter(loader))
        with pytest.raises(ValueError, match="dataset"):
            changed.load_state_dict(loader.state_dict())


def test_stand_ins_have_their_own_targets(pairs, tmp_path):
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"no image")
    listed = [(broken if i % 6 == 0 else path, label) for i, (path, label) in enumerate(pairs)]
    dataset = headrace.ImageList(listed, RECIPE, rows=map(values_of, range(COUNT)))
    with DataLoader(
        dataset, 4, on_error="skip", max_bad_share=1.0, return_index=True
    ) as loader:
        for _, targets, index in loader:
            for i, target in zip(index.tolist(), targets, strict=True):
                assert i % 6 != 0
                check(target, i)
        assert len(loader.skipped()) == 4


def test_samplers_and_subsets(dataset):
    order = [5, 5, 3, 22, 0, 1]
    with DataLoader(dataset, sampler=order, batch_size=4) as loader:
        found = [target for _, targets in loader for target in targets]
    for i, target in zip(order, found, strict=True):
        check(target, i)
    subset = torch.utils.data.Subset(dataset, [9, 4, 4])
    with DataLoader(subset, 2) as loader:
        found = [target for _, targets in loader for target in targets]
    for i, target in zip((9, 4, 4), found, strict=True):
        check(target, i)


def test_caches_do_not_depend_on_rows(dataset, tmp_path):
    """Another epoch from a cache of each form has the same images and targets."""
    for form in ("encoded", "coefficients", "planes"):
        with DataLoader(
            dataset, 4, cache="16MiB", cache_form=form, epochs=3, return_index=True
        ) as loader:
            first = batches(loader)
            for (images, targets, index), (same, _, _) in zip(batches(loader), first, strict=True):
                assert torch.equal(images, same)
                for i, target in zip(index.tolist(), targets, strict=True):
                    check(target, i)


def test_slots_have_room_for_the_largest_sample(pairs):
    """A slot's size is of the most rows that a sample has, is told, and stays with stand-ins."""
    few = [{"boxes": np.zeros((2, 4)), "labels": [1, 2]}] * COUNT
    many = [*few[1:], {"boxes": np.zeros((102, 4)), "labels": [3] * 102}]
    missing = [*pairs[:-2], (pairs[0][0].parent / "missing.jpg", 0), pairs[-1]]
    sizes = []
    for rows in (None, few, many):
        dataset = headrace.ImageList(missing, RECIPE, rows=rows)
        with DataLoader(dataset, 6, shuffle=True, on_error="skip", max_bad_share=0.5) as loader:
            for epoch in range(3):
                before = loader.stats()["slot_bytes"]
                assert sum(len(images) for images, *_ in loader) == COUNT
                assert loader.stats()["slot_bytes"] == before or not epoch
            assert loader.stats()["grown_slots"] == 0
            sizes.append(loader.stats()["slot_bytes"])
    plain, two, most = sizes
    row = 4 * 4 + 8
    assert two - plain >= 6 * 2 * row and most - two >= 6 * 100 * row
    # twice: as they are written, and without gaps
    assert most - two <= 2 * 6 * 100 * row + 4096


def test_names_and_collate_fn(dataset):
    with DataLoader(dataset, 4, names=("pixel_values", "labels")) as loader:
        batch = next(iter(loader))
    check(batch["labels"][3], 3)

    def zipped(samples):
        return tuple(zip(*samples))

    with DataLoader(dataset, 4, collate_fn=zipped, return_index=True) as loader:
        assert loader._choice.is_native
        images, targets, index = next(iter(loader))
    assert images[0].shape == (3, 20, 24)
    check(targets[2], 2)
    assert index.tolist() == [0, 1, 2, 3]


def test_pickles(dataset, pairs):
    again = pickle.loads(pickle.dumps(dataset))
    assert again._dataset.names_digest() == dataset._dataset.names_digest()
    assert again._dataset.columns() == dataset._dataset.columns()
    assert np.array_equal(again[4][1]["labels"], values_of(4)["labels"])
    plain = headrace.ImageList(pairs)
    assert pickle.loads(pickle.dumps(plain))._dataset.columns() == []


def test_any_dataset_takes_rows(tmp_path, pairs):
    for i, (path, _) in enumerate(pairs):
        place = tmp_path / "train" / f"{i % 2}"
        place.mkdir(parents=True, exist_ok=True)
        (place / path.name).write_bytes(path.read_bytes())
    folder = headrace.ImageFolder(tmp_path / "train", RECIPE)
    order = [int(path[-6:-4]) for path, _ in folder.samples]
    with_rows = folder.with_rows(values_of(i) for i in order)
    assert folder._dataset.columns() == []
    assert with_rows.classes == ["0", "1"]
    assert np.array_equal(with_rows.targets[3], values_of(order[3])["labels"])
    pack = tmp_path / "images.pack"
    headrace.pack(folder, pack)
    packed = headrace.Pack(pack, RECIPE).with_rows(values_of(i) for i in order)
    again = pickle.loads(pickle.dumps(packed))
    for dataset in (with_rows, packed, again):
        with DataLoader(dataset, 4, return_index=True) as loader:
            for _, targets, index in loader:
                for place, target in zip(index.tolist(), targets, strict=True):
                    check(target, order[place])


def test_boxes_move_with_the_pixels(pairs):
    """A mirrored and resized image's boxes, beside numbers computed here; and of single
    samples."""
    dataset = headrace.ImageList(pairs, FLIPPED, rows=map(rows_of, range(COUNT)))
    with DataLoader(dataset, 4, return_index=True) as loader:
        for _, targets, index in loader:
            for i, target in zip(index.tolist(), targets, strict=True):
                width, height = size(i)
                x1, y1, x2, y2 = rows_of(i)["boxes"].T
                truth = np.stack([width - x2, y1, width - x1, y2], 1)
                truth = truth * np.array([24 / width, 20 / height] * 2)
                assert np.allclose(target["boxes"].numpy(), truth, atol=1e-4)
                assert target["labels"].tolist() == rows_of(i)["labels"].tolist()
    image, target = dataset[4]
    assert image.shape == (3, 20, 24)
    width, height = size(4)
    x1, y1, x2, y2 = rows_of(4)["boxes"].T
    assert np.allclose(target["boxes"][:, 0], (width - x2) * 24 / width, atol=1e-4)
    assert np.array_equal(target["labels"], rows_of(4)["labels"])
    dataset.transform = None
    assert np.array_equal(dataset[2][1]["boxes"], rows_of(2)["boxes"])


def test_labels_of_any_type(pairs):
    vectors = [np.eye(5, dtype=np.float32)[i % 5] for i in range(COUNT)]
    dataset = headrace.ImageList([(path, v) for (path, _), v in zip(pairs, vectors)], RECIPE)
    with DataLoader(dataset, 6) as loader:
        labels = torch.cat([labels for _, labels in loader])
    assert torch.equal(labels, torch.tensor(np.stack(vectors)))
    numbers = headrace.ImageList([(path, 0.5 * i) for i, (path, _) in enumerate(pairs)], RECIPE)
    with DataLoader(numbers, 6) as loader:
        labels = torch.cat([labels for _, labels in loader])
    assert torch.equal(labels, 0.5 * torch.arange(COUNT))
    assert numbers[3][1] == 1.5
    assert numbers.targets[3] == 1.5 and numbers.samples[3][1] == 1.5
    assert np.array_equal(np.asarray(numbers.targets), 0.5 * np.arange(COUNT))
    assert np.array_equal(dataset.targets[4], vectors[4])
    again = pickle.loads(pickle.dumps(numbers))
    assert again[3][1] == 1.5
    with pytest.raises(ValueError, match="different shapes"):
        headrace.ImageList([(pairs[0][0], [1.0]), (pairs[1][0], [1.0, 2.0])])
    with pytest.raises(ValueError, match="sample 1 must be a path"):
        headrace.ImageList([(pairs[0][0], 1.0), "b.jpg"])
    with pytest.raises(ValueError, match="sample 0 must be a path"):
        headrace.ImageList([()])


def test_whole_labels_need_no_rows(pairs):
    """However a pair is given: as a list, for example, of JSON."""
    dataset = headrace.ImageList([[path, label] for path, label in pairs])
    assert dataset._dataset.columns() == []
    assert dataset.targets == [label for _, label in pairs]


def test_python_tail(dataset, pairs, v2):
    """Own transforms run in Python, with the rows of each sample, by a collate_fn."""

    def negate(image):
        return -image

    scaled = [v2.ToImage(), v2.Resize((20, 24)), v2.ToDtype(torch.float32, scale=True)]
    dataset.transform = v2.Compose([*scaled, negate])
    with pytest.raises(ValueError, match="give a collate_fn"):
        DataLoader(dataset, 4)
    with DataLoader(dataset, 4, collate_fn=lambda s: tuple(zip(*s)), num_workers=1) as loader:
        images, targets = next(iter(loader))
    assert images[1].max() <= 0
    check(targets[3], 3)
    boxes = headrace.ImageList(pairs, dataset.transform, rows=map(rows_of, range(COUNT)))
    with pytest.raises(ValueError, match="boxes, which move with the pixels"):
        DataLoader(boxes, 4, collate_fn=list)


def test_cached_dataset(dataset):
    cached = headrace.CachedDataset(dataset, "16MiB")
    for _ in range(2):
        for i in (4, 0, 9):
            _, target = cached[i]
            for name, value in values_of(i).items():
                assert np.array_equal(target[name], value)


def test_cached_dataset_with_boxes(pairs):
    dataset = headrace.ImageList(pairs, FLIPPED, rows=map(rows_of, range(COUNT)))
    cached = headrace.CachedDataset(dataset, "16MiB")
    for _ in range(2):
        for i in (4, 0, 9):
            image, target = cached[i]
            expected, truth = dataset[i]
            assert np.array_equal(image, expected)
            for name, value in truth.items():
                assert np.array_equal(target[name], value)
    assert cached.info()["hits"] >= 3
    with pytest.raises(ValueError, match="boxes have to move with the pixels"):
        headrace.CachedDataset(dataset, "16MiB", after="transform")


class OwnTargets:
    """A map-style dataset of one's own, with torchvision's boxes."""

    def __len__(self):
        return COUNT

    def __getitem__(self, i):
        from torchvision import tv_tensors

        boxes = tv_tensors.BoundingBoxes(
            rows_of(i)["boxes"], format="XYXY", canvas_size=(40 + i, 50)
        )
        return torch.full((3, 4, 4), i), {"boxes": boxes, "labels": torch.arange(i % 5)}


def test_cached_targets_with_torchvisions_boxes(torchvision):
    """Worker processes fill the cache; what comes from it is boxes again."""
    with headrace.CachedDataset(OwnTargets(), "16MiB") as cached:
        loader = torch.utils.data.DataLoader(
            cached, 4, num_workers=2, collate_fn=lambda samples: tuple(zip(*samples))
        )
        for _ in range(2):
            found = [target for _, targets in loader for target in targets]
            for i, target in enumerate(found):
                assert torch.equal(target["boxes"], torch.from_numpy(rows_of(i)["boxes"]))
                assert target["boxes"].canvas_size == (40 + i, 50)
                assert len(target["labels"]) == i % 5
        assert cached.info()["hits"] >= COUNT


def test_mixing_is_refused(dataset, v2):
    with pytest.raises(ValueError, match="the dataset has rows"):
        DataLoader(dataset, 4, mix=v2.MixUp(num_classes=10))


def test_an_agent_hands_rows_over(dataset):
    with Agent() as agent:
        with DataLoader(
            dataset, 4, shuffle=True, return_index=True, agent=agent.socket
        ) as loader:
            for _, targets, index in loader:
                for i, target in zip(index.tolist(), targets, strict=True):
                    check(target, i)
            with DataLoader(
                dataset, 4, sampler=[3, 8, 8, 1], return_index=True, agent=agent.socket
            ) as sampled:
                _, targets, index = next(iter(sampled))
                for i, target in zip((3, 8, 8, 1), targets, strict=True):
                    check(target, i)


WRONG = {
    "one for each": [{"a": 1}],
    "keys of the others": [{"a": 1}] * (COUNT - 1) + [{"b": 1}],
    "number and others are lists": [{"a": [1]}] * (COUNT - 1) + [{"a": 1}],
    "2 rows by one key": [{"a": [1, 2], "b": [3]}] * COUNT,
    "has the type": [{"a": ["text"]}] * COUNT,
    "rows of the shape": [{"a": [[1, 2]]}] * (COUNT - 1) + [{"a": [[1, 2, 3]]}],
    "boxes of row 0 of sample 22": [{"boxes": [[0, 0, 1, 1]]}] * (COUNT - 1)
    + [{"boxes": [[2, 0, 1, 1]]}],
    "not finite": [{"boxes": [[0, 0, 1, float("nan")]]}] * COUNT,
    "own field": [{"images": 1}] * COUNT,
    "images_2": [{"images_2": 1}] * COUNT,
    "its type is not known": [{"a": []}] * COUNT,
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_rows_are_named(pairs, message):
    with pytest.raises(ValueError, match=message):
        headrace.ImageList(pairs, rows=WRONG[message])


def test_empty_rows(pairs):
    """No sample has a row; lists of Python's own have no type then."""
    dataset = headrace.ImageList(
        pairs, RECIPE, rows=[{"boxes": [], "labels": np.empty(0, np.int64)}] * COUNT
    )
    with DataLoader(dataset, 4) as loader:
        _, targets = next(iter(loader))
    assert targets[0]["boxes"].shape == (0, 4) and targets[0]["labels"].dtype == torch.int64
    replaced = dataset.with_rows([{"a": 1}] * COUNT)
    assert [name for name, *_ in replaced._dataset.columns()] == ["a"]


def test_types_of_empty_columns(pairs):
    """An empty list takes the type of the others, an empty array brings its own."""
    rows = [{"a": [], "b": np.zeros(0, np.int32)}] * (COUNT - 1)
    last = [{"a": np.zeros(0, np.bool_), "b": []}]
    types = [dtype for _, dtype, *_ in headrace.ImageList(pairs, rows=rows + last)._dataset.columns()]
    assert types == ["bool", "int32"]


def test_boxes_may_be_part_of_a_graph(pairs):
    rows = [{"boxes": torch.ones(1, 4, requires_grad=True)}] * COUNT
    dataset = headrace.ImageList(pairs, RECIPE, rows=rows)
    assert dataset[0][1]["boxes"].shape == (1, 4)
    with pytest.raises(ValueError, match="use batch_size=1"):
        DataLoader(dataset, batch_size=None)


def test_paths_are_enough_with_rows(pairs):
    rows = [{"boxes": [], "labels": []} for _ in pairs]
    dataset = headrace.ImageList([path for path, _ in pairs], RECIPE, rows=rows)
    with DataLoader(dataset, 4) as loader:
        _, targets = next(iter(loader))
    assert targets.flat["boxes"].shape == (0, 4)
    assert targets.flat["labels"].dtype == torch.int64


def test_targets_of_a_list_are_its_labels(pairs):
    whole = headrace.ImageList(pairs)
    assert headrace.ImageList([list(pair) for pair in pairs]).targets == whole.targets
    halves = headrace.ImageList([(path, i / 2) for i, (path, _) in enumerate(pairs)])
    assert list(halves.targets) == [i / 2 for i in range(len(pairs))]
    assert np.asarray(halves.targets).dtype == np.float32
    for wrong in [(), ("a.jpg",), ("a.jpg", 1, 2)]:
        with pytest.raises(ValueError, match="sample 0 must be a path and a"):
            headrace.ImageList([wrong])
