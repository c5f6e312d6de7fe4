"""Sounds in tar files: labels, ranks, resuming, the agent, packs."""

import io
import tarfile

import pytest
import sounds

import headrace
from agents import Agent, same, taken
from headrace import transforms as T

torch = pytest.importorskip("torch")
loaders = pytest.importorskip("headrace.torch")

pytestmark = pytest.mark.skipif(sounds.sndfile() is None, reason="libsndfile is missing")
TRANSFORM = [T.RandomWindow(0.3), T.Mono(), T.Resample(new_freq=16000)]
EXTENSIONS = ("wav", "flac", "mp3", "ogg")


def add(tar, name, data):
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    """Two shards of six clips, and the same clips as files."""
    root = tmp_path_factory.mktemp("shards")
    pairs = []
    for shard in range(2):
        with tarfile.open(root / f"train-{shard}.tar", "w") as tar:
            for i in range(6):
                extension = EXTENSIONS[i % 4]
                path = root / f"{shard}-{i}.{extension}"
                sounds.write(path, sounds.music(0.5 + 0.1 * i, 22050, i % 4, i, 1 + i % 2), 22050)
                add(tar, f"{i:04d}.cls", str(10 * shard + i).encode())
                add(tar, f"{i:04d}.{extension}", path.read_bytes())
                add(tar, f"{i:04d}.txt", b"a transcript")
                pairs.append((path, 10 * shard + i))
    return root, pairs


def loader(dataset, **options):
    options = {"batch_size": 3, "num_workers": 2, "seed": 4, "shuffle": True, **options}
    return loaders.DataLoader(dataset, **options)


def test_shards_are_the_files(clips):
    root, pairs = clips
    shards = headrace.AudioShards(root / "train-{0..1}.tar", TRANSFORM)
    assert len(shards) == 12 and list(shards.targets) == [label for _, label in pairs]
    assert shards.keys[1] == "0001.flac" and shards.info(1)["format"] == "FLAC"
    assert headrace.AudioShards(root / "train-0.tar")[1][0].shape == (2, int(0.6 * 22050))
    assert shards.verify() == []
    whole = taken(loader(headrace.AudioList(pairs, TRANSFORM)))
    assert same(whole, taken(loader(shards)))
    rows = {x.numpy().tobytes() for batch, _ in whole for x in batch}
    found = [
        x.numpy().tobytes()
        for rank in (0, 1)
        for batch, _ in loader(shards, rank=rank, world_size=2)
        for x in batch
    ]
    assert len(found) == 12 and set(found) == rows
    running = loader(shards)
    next(iter(running))
    state = running.state_dict()
    other = loader(shards)
    other.load_state_dict(state)
    assert same(whole[1:], taken(other))
    with Agent() as agent:
        assert same(whole, taken(loader(shards, agent=agent.socket)))


def test_shards_become_a_pack_of_waveforms(clips, tmp_path):
    root, pairs = clips
    shards = headrace.AudioShards(root / "train-{0..1}.tar", TRANSFORM)
    path = tmp_path / "x.hrpack"
    report = headrace.pack(shards, path, form="waveform", mono=True, rate=16000)
    assert report["forms"]["waveform"]["samples"] == 12
    assert same(taken(loader(shards)), taken(loader(headrace.Pack(path, TRANSFORM))))


def test_directories_are_classes_and_no_sound_is_refused(clips, tmp_path):
    _, pairs = clips
    with tarfile.open(tmp_path / "folder.tar", "w") as tar:
        for kind in ("no", "yes"):
            add(tar, f"set/{kind}/a.wav", pairs[0][0].read_bytes())
            add(tar, f"set/{kind}/cover.jpg", b"no sound")
    folder = headrace.AudioShards(tmp_path / "folder.tar")
    assert folder.classes == ["no", "yes"] and list(folder.targets) == [0, 1]
    with tarfile.open(tmp_path / "none.tar", "w") as tar:
        add(tar, "a.jpg", b"an image")
    with pytest.raises(FileNotFoundError, match="no sound in"):
        headrace.AudioShards(tmp_path / "none.tar")
