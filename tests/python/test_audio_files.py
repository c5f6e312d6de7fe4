"""Files of sounds as they are found in the wild, through the loader: each gives the samples that
libsndfile reads, or a message that names the file, what is wrong and what to do."""

import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
import sounds

import headrace
from headrace import transforms as T

torch = pytest.importorskip("torch")
loaders = pytest.importorskip("headrace.torch")

pytestmark = pytest.mark.skipif(sounds.sndfile() is None, reason="libsndfile is missing")
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "sounds"
WAV, FLAC, RF64, EXTENSIBLE = 0x010000, 0x170000, 0x220000, 0x130000
U8, S16, S24, S32, F32, F64, MU_LAW, A_LAW, ADPCM = 5, 2, 3, 4, 6, 7, 0x10, 0x11, 0x12


def made(folder, name, rate=16000, channels=2, seconds=0.3, **options):
    sounds.write(folder / name, sounds.music(seconds, rate, 1, channels=channels), rate, **options)
    return folder / name


def id3(size):
    """Returns a tag with a picture of so many bytes."""
    picture = b"\0image/jpeg\0\3\0" + b"\xff\xd8\xff\xfb\x90\x64".ljust(size, b"\xff")
    frame = b"APIC" + len(picture).to_bytes(4, "big") + b"\0\0" + picture
    n = len(frame)
    return b"ID3\3\0\0" + bytes(n >> k & 127 for k in (21, 14, 7, 0)) + frame


def changed(path, name, change):
    """Writes a changed copy of a file beside it, whose samples should be the same."""
    other = path.with_name(name)
    other.write_bytes(change(path.read_bytes()))
    return other, sounds.read(path)[0]


def read_with_header(data, channels):
    rows = np.frombuffer(data[44:], "<i2").astype(np.float32) / 32768
    return rows.reshape(-1, channels).T


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """Returns (path, samples) of files that are read."""
    folder = tmp_path_factory.mktemp("good")
    paths = [
        made(folder, f"{name}.wav", kind=kind)
        for name, kind in {
            **{f"wav{kind}": WAV | kind for kind in (U8, S16, S24, S32, F32, F64)},
            "rf64": RF64 | S16, "extensible": EXTENSIBLE | S24,
        }.items()
    ]
    paths += [made(folder, f"flac{kind}.flac", kind=FLAC | kind) for kind in (S16, S24)]
    for channels in range(1, 9):
        extension = ("wav", "flac", "ogg")[channels % 3]
        paths.append(made(folder, f"channels.{channels}.{extension}", channels=channels))
    for rate in (8000, 11025, 22050, 48000, 96000, 192000):
        formats = ("wav", "flac", "ogg") + (("mp3",) if rate <= 48000 else ())
        paths += [made(folder, f"rate{rate}.{extension}", rate) for extension in formats]
    paths.append(made(folder, "variable.mp3", 44100, mode="variable"))
    found = [(path, sounds.read(path)[0]) for path in paths]
    wav, flac, mp3, ogg = (folder / f"rate48000.{e}" for e in ("wav", "flac", "mp3", "ogg"))
    for path, name in ((wav, "a.mp3"), (flac, "b.wav"), (mp3, "c.flac"), (ogg, "d.aac")):
        found.append(changed(path, name, lambda data: data))
    found += [
        changed(flac, "id3.flac", lambda data: id3(3000) + data),
        changed(wav, "id3.wav", lambda data: id3(3000) + data),
        changed(mp3, "picture.mp3", lambda data: id3(400_000) + data + b"TAG".ljust(128, b"\0")),
        changed(mp3, "two_tags.mp3", lambda data: id3(10) + id3(2000) + bytes(3000) + data),
        changed(mp3, "garbage.mp3", lambda data: b"GET / HTTP/1.1 " * 300 + data),
        changed(mp3, "zeros.mp3", lambda data: bytes(20000) + data),
        changed(wav, "endless.wav", lambda data: data.replace(
            b"data" + (len(data) - 44).to_bytes(4, "little"), b"data\xff\xff\xff\xff")),
        changed(wav, "never_closed.wav", lambda data: data[:4] + bytes(4) + data[8:40] + bytes(4)
                + data[44:]),
        changed(wav, "wrong_riff.wav", lambda data: data[:4] + b"\1\0\0\0" + data[8:]),
        changed(wav, "more_after.wav", lambda data: data + b"LIST\4\0\0\0abcd" + b"rest"),
    ]
    return found


def test_samples_are_right(good):
    listed = headrace.AudioList((path, 0) for path, _ in good)
    assert listed.verify() == []
    for (path, expected), (found, _) in zip(good, listed):
        assert found.shape == expected.shape, path
        # MP3 and Vorbis are decoded by the libraries that libsndfile has, of perhaps other versions
        assert abs(found - expected).max() <= (2e-6 if path.suffix in (".mp3", ".ogg") else 5e-7)
        if path.suffix == ".flac" or path.name.startswith("wav"):
            assert np.array_equal(found, expected) or path.name == "c.flac"


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_windows_are_right(good, on_error):
    """The loader's windows are the middles of the files, in both modes."""
    frames = {}
    for path, expected in good:
        info = headrace.AudioList([(path, 0)]).info(0)
        frames.setdefault((info["rate"], info["channels"]), []).append((path, expected))
    for (rate, channels), files in frames.items():
        window = [T.CenterWindow(0.2), T.Channels(channels), T.Resample(new_freq=rate)]
        listed = headrace.AudioList(((path, 0) for path, _ in files), window)
        loader = loaders.DataLoader(listed, len(files), num_workers=2, on_error=on_error)
        ((batch, _),) = loader
        assert loader.stats()["bad_samples"] == 0
        count = round(0.2 * rate)
        for (path, expected), found in zip(files, batch):
            least = min(
                np.abs(expected[:, at : at + count] - found.numpy()).max()
                for at in {(expected.shape[1] - count) // 2, (expected.shape[1] - count + 1) // 2}
            )
            assert least <= 2e-6, path


def test_variable_rate_without_a_tag():
    """All frames are read, though the first one does not say how many there are."""
    tagged, untagged = (
        headrace.AudioList([(GOLDEN / name, 0)])[0][0] for name in ("mpeg1.mp3", "untagged.mp3")
    )
    data, frames, at = (GOLDEN / "untagged.mp3").read_bytes(), 0, 0
    rates = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
    while at + 4 <= len(data) and data[at] == 0xFF:
        at += 144000 * rates[data[at + 2] >> 4] // 44100 + (data[at + 2] >> 1 & 1)
        frames += 1
    assert untagged.shape == (2, 1152 * frames)
    # the tag states the encoder's delay, and the decoder's is 529
    (delay,) = (k for k in range(2400)
                if np.abs(untagged[:, k : k + 5000] - tagged[:, :5000]).max() < 1e-6)
    assert delay >= 529
    same = tagged.shape[1] - 1152
    assert np.abs(untagged[:, delay : delay + same] - tagged[:, :same]).max() < 1e-6


def bad_files(folder):
    """Returns path -> what its message says is wrong, and what to do."""
    wav, flac, mp3, ogg = (
        made(folder, f"source.{e}", 48000) for e in ("wav", "flac", "mp3", "ogg"))
    bad = {}

    def put(name, data, *words):
        (folder / name).write_bytes(data)
        bad[folder / name] = words

    def head(channels=1, rate=16000, tag=1, bits=16, data=bytes(64)):
        form = b"".join(v.to_bytes(n, "little") for v, n in (
            (tag, 2), (channels, 2), (rate, 4), (rate * channels * bits // 8, 4),
            (channels * bits // 8, 2), (bits, 2)))
        return b"RIFF\x64\0\0\0WAVEfmt \x10\0\0\0" + form + b"data" + len(data).to_bytes(
            4, "little") + data

    for path in (wav, flac, mp3, ogg):
        data = path.read_bytes()
        put(f"half{path.suffix}", data[: len(data) // 2], "end", "restore or remove it")
        put(f"start{path.suffix}", data[:60], "restore or remove it")
    middle = bytearray(flac.read_bytes())
    middle[len(middle) // 2] ^= 0x55
    put("damaged.flac", bytes(middle), "damaged", "of 14400", "restore or remove it")
    put("empty.wav", b"", "empty (0 bytes)", "restore or remove it")
    put("zeros.mp3", bytes(5000), "zero bytes", "restore or remove it")
    put("no_frames.wav", head(data=b""), "no frames (0 s)", "remove the file")
    put("nan.wav", head(tag=3, bits=32, data=b"\0\0\xc0\x7f" * 16), "not a finite", "remove")
    put("nine.wav", head(9, data=bytes(180)), "9 channels", "mix it down")
    put("slow.wav", head(rate=4000), "4000 Hz", "resample it")
    put("fast.wav", head(rate=384000), "384000 Hz", "resample it")
    put("text.mp3", b"<html>Not found</html>" * 9, "not a sound format", "convert it")
    put("photo.wav", b"\xff\xd8\xff\xe0\0\x10JFIF" + bytes(90), "not a sound format", "convert it")
    put("layer2.mp3", b"\xff\xfd\x90\x04" + bytes(400), "layer 1 or 2", "convert it")
    put("tag_only.mp3", id3(100), "no frame that can be decoded", "restore or remove it")
    put("cut_tag.mp3", id3(9000)[:4000], "no frame that can be decoded", "restore or remove it")
    page = b"OggS\0\2" + bytes(20) + b"\1\x33"
    put("ogg.flac", page + b"\x7fFLAC\1\0\0\1fLaC" + bytes(38), "this is FLAC in Ogg", "convert it")
    put("chained.ogg", 2 * ogg.read_bytes(), "another stream", "cut it there")
    for name, kind, word in (("mu.wav", MU_LAW, "mu-law"), ("a.wav", A_LAW, "A-law"),
                             ("adpcm.wav", ADPCM, "ADPCM")):
        bad[made(folder, name, kind=WAV | kind)] = (word, "convert it")
    shutil.copy(GOLDEN / "speech.opus", folder / "speech.ogg")
    bad[folder / "speech.ogg"] = ("this is Opus", "convert it to FLAC, WAV, MP3 or Vorbis")
    with open(folder / "hour.wav", "wb") as file:
        file.write(head(rate=16000, data=b"")[:-4] + (115_200_000).to_bytes(4, "little"))
        file.truncate(115_200_044)
    bad[folder / "hour.wav"] = ("than max_source_bytes of 67108864", "cut the recording")
    return bad


def test_bad_files(tmp_path):
    bad = bad_files(tmp_path)
    whole = [T.Mono(), T.Resample(new_freq=48000), T.PadOrTrim(20000)]
    found = {
        Path(one.path): one.reason for one in headrace.AudioList((p, 0) for p in bad).verify()
    }
    assert set(found) == set(bad)
    for path, words in bad.items():
        assert all(word in found[path] for word in words), (path, found[path])
        loader = loaders.DataLoader(headrace.AudioList([(path, 0)], whole), 1, num_workers=1)
        with pytest.raises(headrace.SampleError) as caught:
            list(loader)
        assert str(path) in str(caught.value) and all(w in str(caught.value) for w in words)
    named = shutil.copy(tmp_path / "source.wav", tmp_path / "source.jpg")
    (one,) = headrace.AudioList([(named, 0)]).verify()
    assert "a sound or video, and its name is that of an image: rename it" in one.reason
    good = [(tmp_path / f"source.{e}", 1) for e in ("wav", "flac", "mp3", "ogg")] * 10
    listed = headrace.AudioList([*good, *((path, 0) for path in bad)], whole)
    loader = loaders.DataLoader(
        listed, 8, num_workers=2, shuffle=True, on_error="skip", max_bad_share=1.0
    )
    labels = torch.cat([labels for _, labels in loader])
    assert len(labels) == len(listed) and labels.all()
    assert {Path(one.path) for one in loader.skipped()} == set(bad)
    assert loader.stats()["bad_samples"] == len(bad)


def test_rate_without_resample(good):
    """A batch has one rate: a file of another one is a bad sample, or the recipe has to say it."""
    mel = [T.Mono(), T.PadOrTrim(4000), T.LogMel("kaldi")]
    paths = {rate: path for path, _ in good for rate in (16000, 48000)
             if path.name in ("wav2.wav", "rate48000.wav")
             and (rate == 48000) == path.name.startswith("rate")}
    listed = headrace.AudioList([(paths[16000], 0), (paths[48000], 1)], mel)
    with pytest.raises(headrace.SampleError, match="48000 Hz and the recipe needs 16000: add a Res"):
        list(loaders.DataLoader(listed, 2))
    loader = loaders.DataLoader(listed, 2, on_error="skip", max_bad_share=0.5)
    assert [labels.tolist() for _, labels in loader] == [[0, 0]]
    wrong = headrace.AudioList([(paths[48000], 0)], [T.Mono(), T.Resample(16000), T.PadOrTrim(9)])
    with pytest.raises(headrace.SampleError, match="48000"):
        list(loaders.DataLoader(wrong, 1))
    # waveforms in frames of their clips' rates would be mixed silently
    frames = headrace.AudioList([(path, 0) for path in paths.values()], [T.Mono(), T.PadOrTrim(9)])
    assert [frames[i][0].shape for i in (0, 1)] == [(1, 9)] * 2
    remedy = r"does not say which rate .*Resample\(new_freq=16000\) .*Resample\(16000, 16000\), which"
    for collate in (None, "pad"):
        with pytest.raises(ValueError, match=remedy):
            loaders.DataLoader(frames, 2, collate=collate)
    one_rate = [T.Resample(16000, 16000), T.Mono(), T.PadOrTrim(9)]
    skipping = loaders.DataLoader(
        frames, 2, transform=one_rate, on_error="skip", max_bad_share=0.5
    )
    same = [sounds.numpy() for sounds, _ in skipping][0]
    assert np.array_equal(same, [frames[list(paths).index(16000)][0]] * 2)
    assert [one.path for one in skipping.skipped()] == [str(paths[48000])]


def test_mono_is_the_mean(good):
    """Of all channels, however many there are."""
    several = [(path, all_) for path, all_ in good if path.name.startswith("channels.")]
    assert sorted(len(all_) for _, all_ in several) == list(range(1, 9))
    for path, all_ in several:
        mean = all_.mean(0, dtype=np.float64)
        found = headrace.AudioList([(path, 0)], [T.Mono(), T.PadOrTrim(len(mean))])[0][0]
        assert found.shape == (1, len(mean)) and abs(found[0] - mean).max() < 2e-6, path


def test_shorter_than_the_window(good):
    path, expected = next(pair for pair in good if pair[0].name == "channels.1.flac")
    for window in (T.RandomWindow, T.CenterWindow):
        cut = [T.Mono(), window(0.5), T.Resample(new_freq=16000)]
        (row,) = next(iter(loaders.DataLoader(headrace.AudioList([(path, 0)], cut), 1)))[0].numpy()
        assert np.array_equal(row[:, : expected.shape[1]], expected)
        assert row.shape == (1, 8000) and not row[:, expected.shape[1] :].any()
        cut[1] = window(0.5, pad=False)
        with pytest.raises(headrace.SampleError, match=r"0.300 s is shorter than the window of 0.50"):
            list(loaders.DataLoader(headrace.AudioList([(path, 0)], cut), 1))


def test_limit_of_a_file(good):
    """64 MiB by default; a limit can be lowered and raised."""
    (path, _), cut = good[0], [T.Mono(), T.Resample(new_freq=16000), T.PadOrTrim(99)]
    size = path.stat().st_size
    listed = headrace.AudioList([(path, 0)], cut)
    assert len(list(loaders.DataLoader(listed, 1, max_source_bytes=size))) == 1
    with pytest.raises(headrace.SampleError, match=f"max_source_bytes of {size - 1}; cut the rec"):
        list(loaders.DataLoader(listed, 1, max_source_bytes=size - 1))
    # no byte of a larger file is read
    loader = loaders.DataLoader(listed, 1, max_source_bytes=9, on_error="skip", max_bad_share=1.0)
    with pytest.raises(headrace.SampleError, match="larger than max_source_bytes of 9"):
        list(loader)
    assert loader.stats()["bytes_read"] == 0
    with pytest.raises(ValueError, match="max_source_bytes must be"):
        loaders.DataLoader(listed, 1, max_source_bytes=0)


def test_an_hour(tmp_path):
    """Windows of a long file below the limit cost no more than those of a short one."""
    hour = np.arange(3600 * 8000, dtype=np.uint32)
    hour = (hour ^ hour >> 8 ^ hour >> 16).astype(np.uint8)
    head = bytearray(made(tmp_path, "hour.wav", 8000, 1, 0.01, kind=WAV | U8).read_bytes()[:44])
    head[40:44] = len(hour).to_bytes(4, "little")
    (tmp_path / "hour.wav").write_bytes(bytes(head) + hour.tobytes())
    cut = [T.CenterWindow(1), T.Mono(), T.Resample(new_freq=8000)]
    listed = headrace.AudioList([(tmp_path / "hour.wav", 0)], cut)
    assert listed.info(0)["seconds"] == 3600
    ((batch, _),) = loaders.DataLoader(listed, 1)
    middle = hour[1800 * 8000 - 4000 : 1800 * 8000 + 4000]
    assert np.array_equal(batch[0, 0].numpy(), (middle.astype(np.float32) - 128) / 128)


@pytest.mark.parametrize("extension", ["wav", "mp3"])
def test_files_that_grow(tmp_path, extension):
    """What is there is read, while a recorder appends more."""
    source = made(tmp_path, f"whole.{extension}", 48000, 2, 2, mode="variable")
    data, path = source.read_bytes(), tmp_path / f"growing.{extension}"
    if extension == "wav":
        data = data[:40] + b"\xff\xff\xff\xff" + data[44:]
    else:  # without LAME's tag, which states the length
        data = data[data.index(b"\xff\xfb", 4) :]
        assert b"Xing" not in data and b"Info" not in data
    begun = len(data) // 3
    path.write_bytes(data[:begun])
    cut = [T.Mono(), T.Resample(new_freq=48000), T.PadOrTrim(20000)]
    listed = headrace.AudioList([(path, 0)] * 40, cut)
    ended = threading.Event()

    def grow():
        with open(path, "ab", buffering=0) as file:
            for at in range(begun, len(data), 1000):
                file.write(data[at : at + 1000])
                ended.wait(0.002)

    recorder = threading.Thread(target=grow)
    expected = listed[0][0]
    recorder.start()
    loader = loaders.DataLoader(listed, 8, num_workers=2)
    for epoch in range(5):
        loader.set_epoch(epoch)
        for batch, _ in loader:
            assert all(np.array_equal(row.numpy(), expected) for row in batch)
    ended.set()
    recorder.join()
    assert listed.verify() == [] and path.stat().st_size == len(data)
