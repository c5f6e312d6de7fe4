"""The set of spoken words, and training a classifier of sounds on it with both loaders."""

import os
import re
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("torch")

import make_speech  # noqa: E402
import sounds  # noqa: E402

CLIPS = 100


@pytest.fixture(scope="module")
def speech(tmp_path_factory):
    if shutil.which("espeak-ng") is None or sounds.sndfile() is None:
        pytest.skip("espeak-ng or libsndfile is missing")
    place = tmp_path_factory.mktemp("speech")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["make_speech", str(place), "--clips", str(CLIPS)])
        make_speech.main()
    return place


def train(root, place, *more):
    command = [sys.executable, "-W", "ignore", str(root / "examples" / "train_audio.py")]
    command += [str(place), "--epochs", "4", "--batch-size", "16", "--workers", "1", *more]
    done = subprocess.run(
        command, capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS="1")
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "accuracy on other voices: 0." in done.stdout
    return [float(loss) for loss in re.findall(r"loss ([\d.]+)", done.stdout)]


def test_set(speech):
    headrace = pytest.importorskip("headrace")
    clips = headrace.AudioFolder(speech / "train")
    assert clips.classes == sorted(make_speech.WORDS) and len(clips) == CLIPS * 4 // 5
    assert len(headrace.AudioFolder(speech / "test")) == CLIPS // 5
    assert clips.verify() == []
    facts = [clips.info(at) for at in range(len(clips))]
    assert {fact["format"] for fact in facts} == {"WAV", "FLAC", "MP3", "Vorbis"}
    assert {fact["channels"] for fact in facts} == {1, 2}
    assert all(0.2 < fact["seconds"] < 3 for fact in facts)


@pytest.mark.parametrize("loader", ["headrace", pytest.param("torch", marks=pytest.mark.long)])
def test_trains(root, speech, loader):
    pytest.importorskip("headrace" if loader == "headrace" else "soundfile")
    losses = train(root, speech, "--loader", loader)
    assert len(losses) == 4 and losses[-1] < losses[0] < 5


@pytest.mark.long
def test_trains_on_features(root, speech):
    pytest.importorskip("headrace")
    losses = train(root, speech, "--network", "whisper")
    assert len(losses) == 4 and losses[-1] < losses[0] < 5


def test_what_is_missing_is_named(root, tmp_path, monkeypatch, capsys):
    done = subprocess.run(
        [sys.executable, str(root / "examples" / "train_audio.py"), str(tmp_path)],
        capture_output=True, text=True,
    )
    assert done.returncode == 1 and "make_speech.py" in done.stderr
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["make_speech", str(tmp_path)])
    with pytest.raises(SystemExit, match="apt-get install espeak-ng libsndfile1"):
        make_speech.main()
