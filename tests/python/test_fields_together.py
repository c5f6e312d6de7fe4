"""Masks and sounds of several lengths in combinations: with an agent, packs, lists, subsets, bad
samples, resume and CachedDataset, the batches are those without these."""

import json
import pickle

import numpy as np
import pytest
import sounds
import torch
from PIL import Image
from torch.utils.data import Subset

import headrace
import headrace.transforms as T
from agents import Agent
from headrace.torch import DataLoader

SIZES = [(60, 80), (75, 50), (64, 64), (40, 99), (33, 31)]  # height, width
SEVERAL = T.Compose(
    [T.RandomRotation(20), T.RandomShortestSize([24, 31, 40], 60), T.RandomHorizontalFlip()]
)


@pytest.fixture(scope="module")
def agent():
    with Agent() as running:
        yield running


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Paths of images and of their masks."""
    root, found = tmp_path_factory.mktemp("pairs"), []
    for n, (height, width) in enumerate(SIZES):
        rng = np.random.default_rng(n)
        image, mask = root / f"{n}.png", root / f"mask{n}.png"
        Image.fromarray(rng.integers(1, 256, (height, width, 3), dtype=np.uint8)).save(image)
        Image.fromarray(rng.integers(0, 21, (height, width), dtype=np.uint8)).save(mask)
        found.append((image, mask))
    return found


@pytest.fixture(scope="module")
def masked(pairs):
    images, masks = zip(*(pairs * 4))
    return headrace.ImageList(images, masks=masks)


@pytest.fixture(scope="module")
def pack(masked, tmp_path_factory):
    path = tmp_path_factory.mktemp("pack") / "masked.hrpack"
    headrace.pack(masked, path)
    return headrace.Pack(path)


needs_sounds = pytest.mark.skipif(sounds.sndfile() is None, reason="libsndfile is missing")


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    root = tmp_path_factory.mktemp("clips")
    for kind, extension in enumerate(("wav", "flac")):
        (root / extension).mkdir()
        for i in range(7):
            clip = sounds.music(0.2 + 0.1 * i, 16000, kind, i, channels=1 + i % 2)
            sounds.write(root / extension / f"{i}.{extension}", clip, 16000)
    return root


LENGTHS = [T.Mono(), T.Resample(new_freq=8000), T.PadOrTrim(5600)]


def copied(value):
    """A copy of all tensors of a batch, as one list."""
    if isinstance(value, torch.Tensor):
        return [value.clone()]
    return [tensor for part in value for tensor in copied(part)]


def epoch(data, batch_size=4, **options):
    with DataLoader(data, batch_size, shuffle=True, seed=3, **options) as loader:
        return [copied(batch) for batch in loader]


def same(a, b):
    """Whether two lists of batches have equal tensors, of equal shapes and types."""
    assert [len(x) for x in a] == [len(y) for y in b]
    pairs = [(x, y) for one, other in zip(a, b) for x, y in zip(one, other)]
    return bool(pairs) and all(x.dtype == y.dtype and torch.equal(x, y) for x, y in pairs)


def rest(data, **options):
    """What comes after the first two batches, from a loader that takes up their state."""
    options = {"batch_size": 4, "shuffle": True, "seed": 3, **options}
    with DataLoader(data, **options) as first:
        batches = iter(first)
        next(batches), next(batches)
        state = json.loads(json.dumps(first.state_dict()))
    with DataLoader(data, **options) as second:
        second.load_state_dict(state)
        return [copied(batch) for batch in second]


@pytest.mark.parametrize("collate", ["pad", "list"])
def test_masks_of_several_sizes(masked, pack, agent, collate):
    """Leased and copied, from files and a pack, alone and from an agent, whole and resumed."""
    options = {"transform": SEVERAL, "collate": collate}
    for batch_size in (2, 3):
        expected = epoch(masked, batch_size, **options)
        for data in (masked, pack):
            for more in ({}, {"agent": agent.socket}):
                assert same(epoch(data, batch_size, **options, **more), expected)
    for data in (masked, pack):
        assert same(rest(data, **options), epoch(masked, **options)[2:])
        assert same(rest(data, agent=agent.socket, **options), epoch(masked, **options)[2:])


def test_places_of_masks_are_used_again(masked, agent):
    """What the consumer writes to a batch is not in later ones."""
    options = {"transform": SEVERAL, "collate": "pad", "seed": 3}
    with DataLoader(masked, 3, **options) as alone:
        with DataLoader(masked, 3, **options, agent=agent.socket) as shared:
            for _ in range(3):
                expected = [copied(batch) for batch in alone]
                for (images, masks), wanted in zip(shared, expected, strict=True):
                    assert same([copied((images, masks))], [wanted])
                    images.tensors.fill_(1)
                    masks.fill_(7)


@pytest.mark.parametrize("collate", ["pad", None])
@pytest.mark.parametrize("bad", ["mask", "image"])
def test_stand_ins_of_subsets(pairs, agent, tmp_path, collate, bad):
    """A stand-in is of the subset, and brings its own mask."""
    files = [list(pair) for pair in pairs * 4]
    files[5][bad == "mask"] = tmp_path / "nothing.png"
    files[12][bad == "mask"] = tmp_path / "cut.png"
    (tmp_path / "cut.png").write_bytes(pairs[1][bad == "mask"].read_bytes()[:300])
    images, masks = zip(*files)
    part = Subset(headrace.ImageList(images, masks=masks), [12, 3, 5, 19, 8, 8, 0, 1, 7])
    crop = T.Compose([T.RandomRotation(20), T.RandomResizedCrop((37, 41))])
    options = {"transform": SEVERAL if collate else crop, "collate": collate}
    options |= {"on_error": "skip", "max_bad_share": 1, "shuffle": True, "seed": 3}
    with DataLoader(part, 4, **options) as alone:
        with DataLoader(part, 4, **options, agent=agent.socket) as shared:
            for _ in range(2):
                assert same([copied(b) for b in shared], [copied(b) for b in alone])
            assert shared.skipped() == alone.skipped() and len(alone.skipped()) >= 4


@needs_sounds
@pytest.mark.parametrize("collate", ["pad", "list"])
def test_lengths_with_an_agent_and_packs(clips, agent, tmp_path, collate):
    folder = headrace.AudioFolder(clips)
    options = {"transform": LENGTHS, "collate": collate}
    expected = epoch(folder, **options)
    sources = [folder]
    for form, more in (("encoded", {}), ("waveform", {"mono": True, "rate": 8000})):
        headrace.pack(folder, tmp_path / form, form=form, **more)
        sources.append(headrace.Pack(tmp_path / form))
    for data in sources:
        for more in ({}, {"agent": agent.socket}):
            assert same(epoch(data, **options, **more), expected)
            assert same(rest(data, **options, **more), expected[2:])
    some = [3, 11, 0, 0, 7, 13, 5]
    expected = epoch(Subset(folder, some), **options)
    for data in sources:
        assert same(epoch(Subset(data, some), agent=agent.socket, **options), expected)


@needs_sounds
def test_stand_ins_of_sounds_with_an_agent(clips, agent, tmp_path):
    (tmp_path / "no.wav").write_bytes(b"no sound")
    samples = [*headrace.AudioFolder(clips).samples, (str(tmp_path / "no.wav"), 0)]
    options = {"transform": LENGTHS, "collate": "pad", "on_error": "skip", "max_bad_share": 1}
    data = headrace.AudioList(samples)
    expected = epoch(data, **options)
    assert len(expected) == 4 and same(epoch(data, agent=agent.socket, **options), expected)


@needs_sounds
def test_sounds_with_transcripts(clips, agent, tmp_path):
    """Rows of sounds, which speech recognition needs: any number of tokens for each clip."""
    folder = headrace.AudioFolder(clips, LENGTHS)
    tokens = [[7 * i + n for n in range(i % 4)] for i in range(len(folder))]
    spoken = folder.with_rows({"tokens": np.array(line, np.int64), "speaker": i}
                              for i, line in enumerate(tokens))  # fmt: skip
    headrace.pack(spoken, tmp_path / "spoken", form="waveform", mono=True, rate=8000)
    plain = epoch(folder, collate="pad")
    options = {"collate": "pad", "return_index": True, "shuffle": True, "seed": 3}
    for data in (spoken, headrace.Pack(tmp_path / "spoken", LENGTHS)):
        assert data[5][1]["tokens"].tolist() == tokens[5] and data[5][1]["speaker"] == 5
        for more in ({}, {"agent": agent.socket}):
            with DataLoader(data, 4, **options, **more) as loader:
                for (found, targets, index), expected in zip(loader, plain, strict=True):
                    assert all(map(torch.equal, copied(found), expected[:2]))
                    for i, target in zip(index.tolist(), targets, strict=True):
                        assert target["tokens"].tolist() == tokens[i] and target["speaker"] == i
    boxes = folder.with_rows({"boxes": [[0, 0, 1, 1]]} for _ in tokens)
    with pytest.raises(ValueError, match="the dataset's boxes is of images"):
        DataLoader(boxes, 4)


@needs_sounds
def test_cached_sounds(clips, agent):
    """A CachedDataset keeps what its dataset makes. A loader gets it through Python, alone
    or from an agent."""

    def listed(batch):
        return [x for x, _ in batch], torch.tensor([y for _, y in batch])

    folder = headrace.AudioFolder(clips, transform=LENGTHS)
    expected = epoch(folder)
    with headrace.CachedDataset(folder, "8MiB", identity="sounds") as cached:
        for _ in range(2):
            for i in range(len(folder)):
                assert np.array_equal(cached[i][0], folder[i][0]) and cached[i][1] == folder[i][1]
        assert same(epoch(cached), expected)
        shared = DataLoader(cached, 4, shuffle=True, seed=3, num_workers=1, agent=agent.socket)
        with shared:
            assert same([copied(batch) for batch in shared], expected)
        for more in ({}, {"agent": agent.socket}):
            with pytest.raises(ValueError, match="collate='pad'.*Python makes the samples"):
                DataLoader(cached, 4, collate="pad", **more)
    whole = headrace.AudioFolder(clips)  # each as long as it is
    with headrace.CachedDataset(whole, "8MiB", identity="whole") as cached:
        for _ in range(2):
            for i in range(len(whole)):
                assert np.array_equal(cached[i][0], whole[i][0])
        with DataLoader(cached, 4, collate_fn=listed) as loader:
            found = [x for batch, _ in loader for x in batch]
        assert [x.shape for x in found] == [x.shape for x, _ in whole]


def test_cached_masks(masked):
    masked = pickle.loads(pickle.dumps(masked))
    masked.transform = T.CenterCrop(30)
    with headrace.CachedDataset(masked, "8MiB", identity="masks") as cached:
        for _ in range(2):
            for i in range(len(masked)):
                for one, other in zip(cached[i], masked[i], strict=True):
                    assert np.array_equal(one, other)
    with pytest.raises(ValueError, match="masks have to move with the pixels"):
        headrace.CachedDataset(masked, "8MiB", after="transform")


def test_bad_masks_in_a_pack(pairs, tmp_path):
    """They are told of by the numbers of their images, and stay what they are."""
    images, masks = (list(paths) for paths in zip(*pairs))
    masks[3] = tmp_path / "bad.png"
    masks[3].write_bytes(pairs[3][1].read_bytes()[:300])
    dataset = headrace.ImageList(images, masks=masks)
    with pytest.raises(headrace.SampleError, match="its mask: damaged PNG") as caught:
        headrace.pack(dataset, tmp_path / "x")
    assert caught.value.index == 3 and caught.value.path == str(masks[3])
    (bad,) = headrace.pack(dataset, tmp_path / "x", on_error="skip")["bad"]
    assert (bad.index, bad.path) == (3, str(masks[3])) and "its mask: damaged PNG" in bad.reason
    options = {"transform": T.CenterCrop(20), "on_error": "skip", "max_bad_share": 1}
    assert same(epoch(headrace.Pack(tmp_path / "x"), **options), epoch(dataset, **options))
    assert headrace.unpack(tmp_path / "x", tmp_path / "files")["bad"] == []
