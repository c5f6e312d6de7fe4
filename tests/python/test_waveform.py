"""The forms of sounds: waveforms in packs, caches, on hosts and through an agent."""

import errno
import os
import shutil
import time
from pathlib import Path

import numpy
import pytest
import sounds

import headrace
from agents import Agent, same, taken, wait_until
from headrace import transforms as T
from servers import Memcached, Ranks, Servers

torch = pytest.importorskip("torch")
loaders = pytest.importorskip("headrace.torch")

pytestmark = pytest.mark.skipif(sounds.sndfile() is None, reason="libsndfile is missing")


def features(seconds=0.5):
    return [T.RandomWindow(seconds), T.Mono(), T.Resample(new_freq=16000), T.LogMel("whisper")]


def stereo(rate=16000):
    return [T.RandomWindow(0.3), T.Resample(new_freq=rate), T.Mono()]


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    """A folder of 16 clips in four formats, of several rates and channels."""
    root = tmp_path_factory.mktemp("clips")
    for kind, extension in enumerate(("wav", "flac", "mp3", "ogg")):
        (root / extension).mkdir()
        for i in range(4):
            rate = 32000 if i % 2 else 44100
            clip = sounds.music(1.2 + 0.2 * i, rate, kind, i, channels=1 + i % 2)
            sounds.write(root / extension / f"{i}.{extension}", clip, rate)
    return root


def loader(dataset, **options):
    options = {"batch_size": 4, "num_workers": 2, "seed": 5, "shuffle": True, **options}
    return loaders.DataLoader(dataset, **options)


def converted(running, count):
    """Waits until the loader's cache has so many waveforms."""
    deadline = time.monotonic() + 600
    while running.stats()["cache_waveforms"] < count and time.monotonic() < deadline:
        time.sleep(0.01)
    return running.stats()["cache_waveforms"]


def test_pack(clips, tmp_path):
    folder = headrace.AudioFolder(clips)
    path = tmp_path / "clips.hrpack"
    report = headrace.pack(folder, path, form="waveform", mono=True, rate=16000)
    assert report["forms"]["waveform"]["samples"] == 16 and report["mono"]
    assert headrace.pack_info(path)["rate"] == 16000 and headrace.verify_pack(path) == []
    for transform in (features(), [T.Mono(), T.Resample(new_freq=16000), T.RandomWindow(0.2)]):
        plain = taken(loader(headrace.AudioFolder(clips, transform)))
        assert same(plain, taken(loader(headrace.Pack(path, transform))))
    # without a transform, a sample is what the pack holds
    whole, label = headrace.Pack(path)[5]
    assert whole.shape == (1, int(1.4 * 16000)) and whole.dtype == numpy.float32
    assert label == folder[5][1]
    for transform in ([T.RandomWindow(0.5), T.Mono(), T.Resample(new_freq=8000)], stereo()):
        with pytest.raises(ValueError, match=r"after Mono\(\), Resample\(new_freq=16000\), and .*again"):
            loader(headrace.Pack(path, transform))
    with pytest.raises(headrace.SampleError, match="which the recipe does not begin with"):
        headrace.Pack(path, stereo(8000))[0]
    with pytest.raises(ValueError, match="holds waveforms, and the recipe is of images"):
        loader(headrace.Pack(path, T.Resize((8, 8))))
    # waveforms are not files: nothing else is made of them but WAV files
    with pytest.raises(NotImplementedError, match="holds waveforms"):
        headrace.pack(path, tmp_path / "other.hrpack", form="encoded")
    again = tmp_path / "again.hrpack"
    headrace.pack(path, again, form="waveform", mono=True, rate=16000)
    headrace.unpack(path, tmp_path / "files")
    files = headrace.AudioFolder(tmp_path / "files")
    assert [name for name, _ in files.samples][0].endswith("0.flac.wav")
    for i in (0, 9):
        assert numpy.array_equal(files[i][0], headrace.Pack(again)[i][0])


def test_pack_of_other_heads(clips, tmp_path):
    """Waveforms at their own rate, and of all channels, suit every recipe; int16 is near."""
    whole = tmp_path / "whole.hrpack"
    headrace.pack(headrace.AudioFolder(clips), whole, form="waveform")
    small = tmp_path / "small.hrpack"
    report = headrace.pack(headrace.AudioFolder(clips), small, form="waveform16", rate=16000)
    assert report["forms"]["waveform16"]["bytes"] * 3 < headrace.pack_info(whole)["bytes"]
    for transform in (features(), stereo()):
        plain = taken(loader(headrace.AudioFolder(clips, transform)))
        assert same(plain, taken(loader(headrace.Pack(whole, transform))))
    for (x, y), (u, v) in zip(plain, loader(headrace.Pack(small, stereo()))):
        assert 0 < (x - u).abs().max() < 1.6e-5 and torch.equal(y, v)
    for options, words in (
        ({"form": "encoded", "rate": 16000}, "of waveforms"),
        ({"form": "waveform", "rate": 100}, "8000 to 192000"),
    ):
        with pytest.raises(ValueError, match=words):
            headrace.pack(headrace.AudioFolder(clips), tmp_path / "no.hrpack", **options)


def test_pack_goes_on_with_its_own_head_only(clips, tmp_path):
    """An unfinished pack names what to do when another head is asked for."""
    path = tmp_path / "clips.hrpack"

    def stop(done, total):
        if done >= 4:
            raise KeyboardInterrupt

    options = {"form": "waveform", "mono": True, "jobs": 1}
    with pytest.raises(KeyboardInterrupt):
        headrace.pack(headrace.AudioFolder(clips), path, rate=16000, progress=stop, **options)
    with pytest.raises(OSError, match="other options") as error:
        headrace.pack(headrace.AudioFolder(clips), path, rate=8000, **options)
    assert error.value.errno == errno.ESTALE
    headrace.pack(headrace.AudioFolder(clips), path, rate=16000, **options)
    other = tmp_path / "other.hrpack"
    headrace.pack(headrace.AudioFolder(clips), other, rate=16000, **{**options, "jobs": 2})
    assert path.read_bytes() == other.read_bytes()


def test_bad_sounds_and_images_in_a_pack(clips, tmp_path):
    root = tmp_path / "bad"
    shutil.copytree(clips, root)
    broken = root / "flac" / "1.flac"
    broken.write_bytes(broken.read_bytes()[:-3000])
    report = headrace.pack(
        headrace.AudioFolder(root), tmp_path / "x.hrpack", form="waveform", on_error="skip"
    )
    assert [bad.path.endswith("1.flac") for bad in report["bad"]] == [True]
    assert report["forms"]["waveform"]["samples"] == 15
    image = tmp_path / "a.ppm"
    image.write_bytes(b"P6 8 8 255\n" + bytes(192))
    pairs = headrace.ImageList([(image, 0)])
    report = headrace.pack(pairs, tmp_path / "y.hrpack", form="waveform")
    assert report["forms"]["encoded"]["samples"] == 1
    packed = headrace.Pack(tmp_path / "y.hrpack")
    assert [x.shape for x, _ in loader(packed, transform=T.Resize((4, 4)))] == [(1, 3, 4, 4)]
    with pytest.raises(ValueError, match="samples are images .the first is .*a.ppm.*of sounds"):
        loader(packed, transform=features())


@pytest.mark.parametrize("kind", ["private", "kept"])
def test_caches(clips, kind):
    """The same batches before and after samples become waveforms; each head has its own."""
    name = f"waveform-{os.getpid()}-{time.monotonic_ns()}"
    options = {"cache": "64MiB", "cache_form": "waveform", "epochs": 40}
    if kind == "kept":
        options = {"cache": f"shm:{name}?size=64MiB&form=waveform", "epochs": 40}
    for count, transform in enumerate((features(), stereo(), stereo(8000)), 1):
        plain = loader(headrace.AudioFolder(clips, transform))
        cached = loader(headrace.AudioFolder(clips, transform), **options)
        for _ in range(3):
            assert same(taken(plain), taken(cached))
        assert converted(cached, 16) == 16
        assert same(taken(plain), taken(cached))
        cached.close()
        segments = list(Path(os.environ["HEADRACE_SHM"]).rglob(f"*{name}*"))
        assert len(segments) == (count if kind == "kept" else 0)


def test_a_private_cache_converts_where_it_repays(clips):
    """Form auto: many epochs on few clips make waveforms of them."""
    dataset = headrace.AudioFolder(clips, features())
    plain, cached = loader(dataset), loader(dataset, cache="64MiB", epochs=1000)
    for _ in range(8):
        assert same(taken(plain), taken(cached))
    assert converted(cached, 1)
    cached.close()


def test_auto_converts_nothing_at_once(clips):
    """A cache that evicts stages nothing: it keeps what it reads, unless a form was asked for."""
    dataset = headrace.AudioFolder(clips, features())
    for form, most in (("auto", 0), ("waveform", 16)):
        draw = torch.utils.data.WeightedRandomSampler([1.0] * 16, 64)
        options = {"shuffle": False, "sampler": draw, "cache": "64MiB", "cache_form": form}
        running = loader(dataset, **options)
        taken(running), taken(running)
        stats = running.stats()
        assert stats["cache_hits"] > 0 and stats["cache_waveforms"] <= most
        assert (stats["cache_waveforms"] > 0) == (form == "waveform")
        running.close()


def nearly(truth, found):
    """Whether batches are those of waveforms of 16 bits: near, and not the same."""
    errors = [(x - u).abs().max() for (x, y), (u, v) in zip(truth, found, strict=True)]
    assert all(torch.equal(y, v) for (_, y), (_, v) in zip(truth, found))
    return 0 < max(errors) < 1.6e-5


@pytest.mark.parametrize("kind", ["private", "kept", "disk"])
def test_waveform16_in_caches(clips, tmp_path, kind):
    """What was converted is that of a pack of this form, bit for bit."""
    dataset = headrace.AudioFolder(clips, stereo())
    pack = tmp_path / "small.hrpack"
    headrace.pack(headrace.AudioFolder(clips), pack, form="waveform16", rate=16000)
    plain, packed = taken(loader(dataset)), taken(loader(headrace.Pack(pack, stereo())))
    place = {"private": "64MiB", "kept": f"shm:small-{os.getpid()}?size=64MiB",
             "disk": f"disk:{tmp_path / 'cache'}?size=64MiB"}[kind]  # fmt: skip
    options = {"cache": place, "cache_form": "waveform16", "epochs": 40}
    with loader(dataset, **options) as cached:
        assert len(taken(cached)) == len(plain)
        assert converted(cached, 16) == 16
        cached.set_epoch(0)
        found = taken(cached)
    assert same(found, packed) and nearly(plain, found)


def test_waveform16_on_hosts(clips):
    """Servers give items of 16 bits, and those of 32 bits have other keys."""
    dataset = headrace.AudioFolder(clips, stereo())
    ((truth, _),) = taken(loader(dataset, batch_size=16, shuffle=False, seed=11))
    with Servers(Memcached() for _ in range(2)) as servers:
        for form, is_read, most in (
            ("waveform", True, 0),
            ("waveform16", True, 1.6e-5),
            ("waveform16", False, 1.6e-5),
            ("waveform", False, 0),
        ):
            with Ranks(dataset, servers, cache=servers.text(form=form)) as ranks:
                batches = [batch for part in ranks.epoch() for batch in part]
                assert (ranks.stats()["bytes_read"] > 0) == is_read
            error = max((x - truth[index]).abs().max() for x, _, index in batches)
            assert error <= most and (error > 0 or is_read or not most), form


def test_refused_forms(clips):
    dataset = headrace.AudioFolder(clips, features())
    with pytest.raises(ValueError, match="is a form of images"):
        loader(dataset, cache="8MiB", cache_form="planes")
    with pytest.raises(NotImplementedError, match="a form of sounds"):
        headrace.Converter().convert(b"", "waveform")
    with pytest.raises(ValueError, match="leave them out"):
        headrace.convert(b"", "planes", rate=8000)
    data = (clips / "wav" / "1.wav").read_bytes()
    item = headrace.convert(data, "waveform", mono=True, rate=8000)
    assert headrace.form_of(item) == "waveform" and headrace.restore(item)[:4] == b"RIFF"
    with pytest.raises(NotImplementedError, match="an item already"):
        headrace.convert(item, "waveform")
    with pytest.raises(NotImplementedError, match="this is a sound"):
        headrace.Preparer(T.Resize((8, 8)))(item)


def test_agent(clips):
    """An agent keeps waveforms for its streams."""
    dataset = headrace.AudioFolder(clips, features())
    plain = loader(dataset)
    with Agent() as agent:
        served = loader(
            dataset, agent=agent.socket, cache="64MiB", cache_form="waveform", epochs=40
        )
        for _ in range(3):
            assert same(taken(plain), taken(served))
        served.close()
        wait_until(lambda: not agent.look()["streams"], "the stream's end")
        again = loader(dataset, agent=agent.socket, cache="64MiB", cache_form="waveform", epochs=40)
        next(iter(again))
        (queue,) = agent.queues()
        assert queue["cache_hits"] > 0  # the agent kept them
        again.close()


def test_hosts(clips):
    """Items on hosts are waveforms, and those of another head have other keys."""
    with Servers(Memcached() for _ in range(2)) as servers:
        read = []
        for transform in (features(), features(), stereo()):
            dataset = headrace.AudioFolder(clips, transform)
            plain = taken(loader(dataset, batch_size=8, seed=11))
            with Ranks(dataset, servers, cache=servers.text(form="waveform")) as ranks:
                parts = ranks.epoch()
                stats = ranks.stats()
            read.append(stats["bytes_read"])
            for number, (x, _) in enumerate(plain):
                rows = {row.numpy().tobytes() for row in x}
                found = {row.numpy().tobytes() for part in parts for row in part[number][0]}
                assert rows == found
        assert read[0] > 0 and read[1] == 0 and read[2] == read[0]
