"""``headrace stalls`` on training with sounds: what is measured, and what Headrace would cost."""

import json
import subprocess
import sys

import pytest
import sounds

import headrace
from headrace import transforms as T
from headrace.stalls.cost import headrace_cost
from headrace.stalls.replaceable import obstacle
from stalls_scripts import measure

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.skipif(sounds.sndfile() is None, reason="libsndfile is missing")
FORMATS = ("wav", "flac", "mp3", "ogg")
WINDOW = [T.RandomWindow(0.2), T.Mono(), T.Resample(new_freq=8000)]


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    root = tmp_path_factory.mktemp("clips")
    for label in "ab":
        (root / label).mkdir()
        for i in range(24):
            clip = sounds.music(0.5, 22050, i % 7, i, channels=1 + i % 2)
            sounds.write(root / label / f"{i}.{FORMATS[i % 4]}", clip, 22050)
    return root


def test_a_script(clips, tmp_path):
    measured = measure(
        tmp_path,
        f"""
        import headrace
        from headrace import transforms as T
        from headrace.torch import DataLoader as Ours

        window = [T.RandomWindow(0.2), T.Mono(), T.Resample(new_freq=8000)]
        clips = headrace.AudioFolder({str(clips)!r}, window)
        loader = Ours(clips, batch_size=4, shuffle=True, num_workers=1)
        training.model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(1600, 3))
        training.optimizer = torch.optim.SGD(training.model.parameters(), lr=0.01)
        while True:
            for x, y in loader:
                training.step(x, y)
        """,
    )
    assert measured.status == 0 and not measured.problems, measured.stderr
    record = measured.record
    assert record["loader"]["kind"] == "headrace" and {"host", "warm"} <= measured.phases()
    assert record["dataset"]["samples"] == 48 and record["dataset"]["bytes"] == sum(
        path.stat().st_size for path in clips.rglob("*.*")
    )
    assert "AudioFolder" in record["dataset"]["name"]
    assert [form["form"] for form in record["headrace"]["forms"]] == ["encoded", "waveform"]
    assert record["headrace"]["recipe"].startswith("RandomWindow(seconds=0.2")


def test_cost_of_sounds(clips):
    paths = sorted(clips.rglob("*.wav"))  # of one channel, and of one size
    for recipe, rate in (
        (WINDOW, 8000),
        ([T.Gain(), *WINDOW], 22050),  # a waveform has nothing of this recipe
    ):
        file, waveform = headrace_cost(paths, recipe, seconds=0.1)["forms"]
        assert file["form"] == "encoded" and waveform["form"] == "waveform"
        assert file["cpu_s"] > 0 and waveform["cpu_s"] > 0
        assert file["bytes"] == pytest.approx(paths[0].stat().st_size)
        assert waveform["bytes"] == pytest.approx(4 * 0.5 * rate, rel=0.05)
    paths = sorted(clips.rglob("*.*"))
    forms = headrace_cost(paths, WINDOW, seconds=0.1)["forms"]
    assert [form["form"] for form in forms] == ["encoded", "waveform"]
    for few in (paths, paths[:1] + paths):  # mixed formats: however few were measured
        waveform = headrace_cost(few, WINDOW, seconds=0.001)["forms"][1]
        assert waveform["bytes"] == pytest.approx(4 * 0.5 * 8000, rel=0.05)
    assert "sound" in headrace_cost(paths, [T.Resize((8, 8))], seconds=0.1)["reason"]
    folder = headrace.AudioFolder(clips, WINDOW)
    assert obstacle(torch.utils.data.DataLoader(folder, 4)) == ""


@pytest.mark.long
def test_report(clips, tmp_path):
    """The report counts samples, and has no word of images."""
    (tmp_path / "train.py").write_text(f"""
import torch, headrace
from headrace import transforms as T
from headrace.torch import DataLoader
window = [T.RandomWindow(0.2), T.Mono(), T.Resample(new_freq=8000)]
loader = DataLoader(headrace.AudioFolder({str(clips)!r}, window), 4, shuffle=True)
model = torch.nn.Linear(1600, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(100000):
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x[:, 0]), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
""")
    out = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "stalls", "--time", "3", "--out", str(out), "--",
         sys.executable, str(tmp_path / "train.py")],
        capture_output=True, text=True, cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "48 samples" in done.stdout and "AudioFolder" in done.stdout
    assert "image" not in done.stdout.lower()
    assert json.loads((out / "stalls.json").read_text())["headrace_stalls"]
