"""Sounds: datasets, the DataLoader on them, and features beside torch in float64."""

import math
import shutil
from pathlib import Path

import numpy
import pytest
import sounds

import headrace
from agents import Agent, same, taken
from headrace import transforms as T

torch = pytest.importorskip("torch")
loaders = pytest.importorskip("headrace.torch")

pytestmark = pytest.mark.skipif(sounds.sndfile() is None, reason="libsndfile is missing")
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "sounds"
FORMATS = {"a": "wav", "b": "flac", "c": "mp3", "d": "ogg"}


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    """A folder of 16 clips in four formats, of several rates and channels."""
    root = tmp_path_factory.mktemp("clips")
    for kind, (name, extension) in enumerate(FORMATS.items()):
        (root / name).mkdir()
        for i in range(4):
            rate = 22050 if i % 2 else 44100
            clip = sounds.music(1.5 + 0.2 * i, rate, kind, i, channels=1 + i % 2)
            sounds.write(root / name / f"{i}.{extension}", clip, rate)
    return root


def whisper(seconds=0.5):
    return [T.RandomWindow(seconds), T.Mono(), T.Resample(new_freq=16000), T.LogMel("whisper")]


def waveform(seconds=0.5, rate=8000):
    return [T.RandomWindow(seconds), T.Mono(), T.Resample(new_freq=rate)]


def loader(dataset, **options):
    options = {"batch_size": 4, "num_workers": 2, "seed": 5, **options}
    return loaders.DataLoader(dataset, **options)


def batches(dataset, **options):
    return taken(loader(dataset, **options))


def test_folder(clips):
    dataset = headrace.AudioFolder(clips)
    assert dataset.classes == list("abcd") and len(dataset) == 16
    whole, label = dataset[1]
    assert whole.shape == (2, int(1.7 * 22050)) and whole.dtype == numpy.float32 and label == 0
    info = dataset.info(4)
    assert info["format"] == "FLAC" and info["rate"] == 44100 and info["channels"] == 1
    assert abs(info["seconds"] - 1.5) < 1e-3
    assert dataset.verify() == []
    assert headrace.AudioFolder(clips, transform=waveform())[3][0].shape == (1, 4000)
    # images and sounds of one folder do not share an index
    with pytest.raises(FileNotFoundError, match="image"):
        headrace.ImageFolder(clips)
    assert "AudioFolder" in repr(dataset)


def test_loader(clips):
    found = batches(headrace.AudioFolder(clips, transform=waveform()))
    assert [tuple(x.shape) for x, _ in found] == [(4, 1, 4000)] * 4
    assert found[0][0].dtype == torch.float32 and found[3][1].tolist() == [3] * 4
    found = batches(headrace.AudioFolder(clips, transform=whisper()), shuffle=True)
    assert [tuple(x.shape) for x, _ in found] == [(4, 80, 50)] * 4
    for workers in (1, 5):
        again = headrace.AudioFolder(clips, transform=whisper())
        assert same(found, batches(again, shuffle=True, num_workers=workers))
    listed = headrace.AudioList(headrace.AudioFolder(clips).samples, transform=whisper())
    assert same(found, batches(listed, shuffle=True))


def test_ranks_resume_cache_and_pack(clips, tmp_path):
    dataset = headrace.AudioFolder(clips, transform=whisper())
    whole = batches(dataset, shuffle=True)
    halves = [batches(dataset, shuffle=True, rank=r, world_size=2) for r in (0, 1)]
    rows = {x.numpy().tobytes() for batch, _ in whole for x in batch}
    parts = [x.numpy().tobytes() for half in halves for batch, _ in half for x in batch]
    assert len(parts) == 16 and set(parts) == rows
    running = loader(dataset, shuffle=True)
    next(iter(running))
    other = loader(dataset, shuffle=True)
    other.load_state_dict(running.state_dict())
    assert same(whole[1:], taken(other))
    assert same(whole, batches(dataset, shuffle=True, cache="8MiB"))
    packed = tmp_path / "clips.pack"
    headrace.pack(headrace.AudioFolder(clips), packed)
    assert same(whole, batches(headrace.Pack(packed, whisper()), shuffle=True))


def test_lengths(clips, tmp_path):
    """How much of each place is of the clip: over ranks, when resuming, from a pack and an agent."""
    folder = headrace.AudioFolder(clips)
    frames = {p: -(-folder.info(i)["frames"] * 8000 // folder.info(i)["rate"])
              for i, (p, _) in enumerate(folder.samples)}  # fmt: skip
    cut = [T.Mono(), T.Resample(new_freq=8000), T.PadOrTrim(14000)]
    options = {"transform": cut, "collate": "pad", "shuffle": True, "return_path": True}
    plain = batches(folder, transform=cut, shuffle=True)
    whole = list(loader(folder, **options))
    for (sounds_, labels, paths), (waves, _) in zip(whole, plain, strict=True):
        wanted = [min(frames[p], 14000) for p in paths]
        assert sounds_.lengths.dtype == torch.int64 and sounds_.lengths.tolist() == wanted
        assert torch.equal(sounds_.tensors, waves[:, :, : max(wanted)])
        assert sounds_.mask.sum(1).tolist() == [max(wanted) - n for n in wanted]
        for one, wave, n in zip(sounds_.unpadded(), waves, wanted):
            assert one.shape == (1, n) and not wave[:, n:].any() and wave[:, n - 9 : n].any()
    assert {int(n) for s, *_ in whole for n in s.lengths} > {14000}  # some are shorter

    def lengths(dataset, **more):
        found = loader(dataset, **{**options, "return_path": False, **more})
        return [(s.lengths.tolist(), s.tensors.numpy().tobytes()) for s, _ in found]

    expected = lengths(folder)
    halves = [lengths(folder, rank=r, world_size=2, batch_size=1) for r in (0, 1)]
    each = sorted(n for batch, _ in expected for n in batch)
    assert sorted(n for half in halves for (n,), _ in half) == each
    running = loader(folder, **options)
    next(iter(running))
    other = loader(folder, **options)
    other.load_state_dict(running.state_dict())
    assert [s.lengths.tolist() for s, *_ in other] == [n for n, _ in expected[1:]]
    headrace.pack(folder, tmp_path / "w.pack", form="waveform", mono=True, rate=8000)
    assert lengths(headrace.Pack(tmp_path / "w.pack")) == expected
    with Agent() as agent:
        assert lengths(folder, agent=agent.socket) == expected
        assert lengths(folder, agent=agent.socket, batch_size=3) == lengths(folder, batch_size=3)
    lists = [clips_ for clips_, *_ in loader(folder, **{**options, "collate": "list"})]
    assert [[one.shape[-1] for one in batch] for batch in lists] == [n for n, _ in expected]


def test_lengths_of_stand_ins_and_features(clips, tmp_path):
    """A clip that replaces a bad one has its own length; features have the clip's own columns."""
    root = tmp_path / "clips"
    shutil.copytree(clips, root)
    (root / "a" / "0.wav").write_bytes(b"no sound")
    folder = headrace.AudioFolder(root)
    at = {path: i for i, (path, _) in enumerate(folder.samples)}

    def frames(path, rate):
        info = folder.info(at[path])
        return -(-info["frames"] * rate // info["rate"])

    options = {"collate": "pad", "shuffle": True, "return_path": True, "on_error": "skip"}
    steps = [T.Mono(), T.Resample(new_freq=8000), T.PadOrTrim(14000)]
    running = loader(folder, transform=steps, max_bad_share=1, **options)
    for sounds_, _, paths in running:
        assert sounds_.lengths.tolist() == [min(frames(p, 8000), 14000) for p in paths]
    assert running.stats()["bad_samples"] == 1
    for style, columns in (("whisper", lambda n: n // 160), ("kaldi", lambda n: (n - 240) // 160)):
        steps = [T.Mono(), T.Resample(new_freq=16000), T.PadOrTrim(40000), T.LogMel(style)]
        for sounds_, _, paths in loader(folder, transform=steps, max_bad_share=1, **options):
            assert sounds_.lengths.tolist() == [columns(frames(p, 16000)) for p in paths]
    v2 = pytest.importorskip("torchvision.transforms.v2")
    with pytest.raises(ValueError, match="MixUp and CutMix need samples of one size"):
        loader(folder, transform=waveform(), collate="pad", mix=v2.MixUp(num_classes=4))


def test_agent(clips):
    """Batches cut out of the agent's ring, also of samples whose chunks fill no whole pages."""
    for transform in (whisper(), waveform(0.1, 11025)):
        dataset = headrace.AudioFolder(clips, transform=transform)
        with Agent() as agent:
            found = batches(dataset, shuffle=True, agent=agent.socket)
        whole = batches(dataset, shuffle=True)
        assert len(whole) == 4 and same(whole, found)


def test_mixup(clips):
    v2 = pytest.importorskip("torchvision.transforms.v2")
    dataset = headrace.AudioFolder(clips, transform=waveform())
    plain = batches(dataset, shuffle=True)
    mixed = batches(dataset, shuffle=True, mix=v2.MixUp(num_classes=4))
    for (waves, labels), (found, shares) in zip(plain, mixed, strict=True):
        before, hot = waves.roll(1, 0), torch.nn.functional.one_hot(labels, 4).float()
        step = waves - before
        own = ((found - before) * step).sum() / step.square().sum()  # share of each clip's own
        assert -1e-4 < own < 1 + 1e-4
        assert torch.allclose(found, before + own * step, atol=1e-4)
        assert torch.allclose(shares, hot.roll(1, 0) + own * (hot - hot.roll(1, 0)), atol=1e-4)
    assert not same(plain, [(found, labels) for (found, _), (_, labels) in zip(mixed, plain)])
    with pytest.raises(ValueError, match="CutMix cuts rectangles of images"):
        loader(dataset, mix=v2.CutMix(num_classes=4))


def test_bad_files(clips, tmp_path):
    root = tmp_path / "bad"
    shutil.copytree(clips, root)
    (root / "a" / "0.wav").write_bytes((root / "a" / "0.wav").read_bytes()[:5000])
    shutil.copy(GOLDEN / "speech.opus", root / "b" / "9.opus")
    (root / "c" / "8.mp3").write_bytes(b"")
    (root / "d" / "1.ogg").write_bytes((root / "d" / "1.ogg").read_bytes()[:-500])
    dataset = headrace.AudioFolder(root, transform=waveform())
    reasons = {Path(bad.path).name: bad.reason for bad in dataset.verify()}
    assert set(reasons) == {"0.wav", "9.opus", "8.mp3", "1.ogg"}
    assert "ends after" in reasons["0.wav"] and "this is Opus" in reasons["9.opus"]
    assert "empty" in reasons["8.mp3"] and "before its last page" in reasons["1.ogg"]
    with pytest.raises(headrace.SampleError, match="0.wav"):
        batches(dataset)
    running = loader(dataset, on_error="skip", max_bad_share=0.5)
    assert sum(len(x) for x, _ in running) == 18
    assert running.stats()["bad_samples"] == 4


def test_refusals(clips):
    dataset = headrace.AudioFolder(clips)
    for transform, words in (
        ([T.RandomWindow(1), T.Mono()], "add a Resample"),
        ([T.Mono(), T.Resample(new_freq=16000)], "needs a RandomWindow"),
        ([*waveform(), T.SpeedPerturbation()], "after a SpeedPerturbation a PadOrTrim"),
        ([*waveform(), T.ToDtype("float16")], "is of images"),
        ([T.Resize(8), T.Mono()], "is of sounds"),
    ):
        with pytest.raises(ValueError, match=words):
            loaders.DataLoader(dataset, transform=transform, batch_size=2)
    resize = [T.Resize((8, 8)), T.ToDtype("float32", scale=True)]
    for sounds_ in (dataset, headrace.AudioList(dataset.samples)):
        with pytest.raises(ValueError, match="samples are sounds .the first is .*0.wav.*of images"):
            loaders.DataLoader(sounds_, transform=resize, batch_size=2)
    with pytest.raises(ValueError, match="layout"):
        loaders.DataLoader(dataset, transform=waveform(), batch_size=2, layout="channels_last")
    with pytest.raises(ValueError, match="one of 'whisper', 'kaldi'"):
        T.LogMel("librosa")


def test_impossible_length(tmp_path):
    """A header of 2^30 frames, or more than may be decoded at once, is an error of the sample."""
    (tmp_path / "a").mkdir()
    facts = (16000 << 44 | 15 << 36 | 1 << 30).to_bytes(8, "big")
    head = b"fLaC\x80\0\0\x22\x10\0\x10\0" + bytes(6) + facts + bytes(16)
    (tmp_path / "a" / "0.flac").write_bytes(head)
    dataset = headrace.AudioFolder(tmp_path)
    assert dataset.info(-1)["frames"] == 1 << 30
    with pytest.raises(headrace.SampleError, match="too long to decode as a whole"):
        dataset[0]
    assert "ends at frame" in dataset.verify()[0].reason


def test_python_transforms(clips):
    """A user's function behind native transforms gets a tensor; before them it is refused."""
    dataset = headrace.AudioFolder(clips, transform=[*waveform(), torch.abs])
    native = headrace.AudioFolder(clips, transform=waveform())
    found = batches(dataset, num_workers=0)[0][0]
    assert torch.equal(found, batches(native)[0][0].abs())
    assert dataset[0][0].shape == (1, 4000)
    with pytest.raises(headrace.SampleError, match="this is a sound"):
        headrace.AudioFolder(clips, transform=torch.abs)[0]


def _mel_bank(rate, n_fft, n_mels, low, high):
    def hz(m):
        return 700 * (10 ** (m / 2595) - 1)

    def mel(f):
        return 2595 * math.log10(1 + f / 700)

    points = torch.tensor(
        [hz(mel(low) + (mel(high) - mel(low)) * i / (n_mels + 1)) for i in range(n_mels + 2)],
        dtype=torch.float64,
    )
    bins = torch.linspace(0, rate / 2, n_fft // 2 + 1, dtype=torch.float64)
    up = (bins[:, None] - points[None, :-2]) / (points[1:-1] - points[:-2])
    down = (points[None, 2:] - bins[:, None]) / (points[2:] - points[1:-1])
    return torch.clamp(torch.minimum(up, down), min=0)


def test_mel_spectrogram(clips):
    cut = [T.Mono(), T.Resample(new_freq=16000), T.PadOrTrim(12000)]
    dataset = headrace.AudioFolder(clips, transform=cut)
    mel = [T.MelSpectrogram(n_fft=512, hop_length=160, n_mels=40), T.AmplitudeToDB(top_db=80)]
    features = headrace.AudioFolder(clips, transform=[*cut, *mel])
    for i in (0, 5, 10, 15):
        wave = torch.as_tensor(dataset[i][0][0], dtype=torch.float64)
        window = torch.hann_window(512, dtype=torch.float64)
        power = torch.stft(wave, 512, 160, window=window, return_complex=True).abs() ** 2
        bands = _mel_bank(16000, 512, 40, 0, 8000).T @ power
        expected = 10 * torch.log10(torch.clamp(bands, min=1e-10))
        expected = torch.maximum(expected, expected.max() - 80)
        found = torch.as_tensor(features[i][0], dtype=torch.float64)
        assert found.shape == expected.shape
        assert (found - expected).abs().max() < 1e-3


def test_kaldi(clips):
    cut = [T.Mono(), T.Resample(new_freq=16000), T.PadOrTrim(12000)]
    wave = torch.as_tensor(headrace.AudioFolder(clips, transform=cut)[4][0][0]).double()
    found = headrace.AudioFolder(clips, transform=[*cut, T.LogMel("kaldi")])[4][0]
    frames = wave.unfold(0, 400, 160)
    frames = frames - frames.mean(1, keepdim=True)
    before = torch.cat([frames[:, :1], frames[:, :-1]], 1)
    window = torch.hann_window(400, periodic=False, dtype=torch.float64) ** 0.85
    frames = torch.nn.functional.pad((frames - 0.97 * before) * window, (0, 112))
    power = torch.fft.rfft(frames).abs()[:, :256] ** 2

    def mel(f):
        return 1127 * math.log(1 + f / 700)

    step = (mel(8000) - mel(20)) / 81
    edges = torch.tensor([mel(20) + step * i for i in range(82)], dtype=torch.float64)
    at = torch.tensor([mel(16000 / 512 * k) for k in range(256)], dtype=torch.float64)
    up, down = (at[:, None] - edges[:-2]) / step, (edges[2:] - at[:, None]) / step
    bank = torch.clamp(torch.minimum(up, down), min=0)
    expected = torch.log(torch.clamp(power @ bank, min=1.1920928955078125e-07)).T
    assert found.shape == expected.shape == (80, 73)
    assert (torch.as_tensor(found).double() - expected).abs().max() < 1e-5
