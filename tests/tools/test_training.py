"""The training script with both loaders, alone and under torchrun; the demo's table."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import threading

import pytest

pytest.importorskip("torch")

import demo  # noqa: E402

LOADERS = ("torch", "headrace")


def train(root, folder, loader, result, ranks=1, more=()):
    if loader == "headrace" and importlib.util.find_spec("headrace") is None:
        pytest.skip("the headrace package is not installed")
    script = [str(root / "tools" / "torchvision_shim.py")] if loader == "torch" else []
    script.append(str(root / "examples" / "train_imagefolder.py"))
    launcher = [sys.executable, "-W", "ignore"]
    if ranks > 1:
        launcher += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command = [*launcher, *script, "--data", str(folder), "--loader", loader, "--device", "cpu",
               "--batch-size", "8", "--workers", "1", "--compute-threads", "1",
               "--json", str(result), *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False,
                          env=dict(os.environ, OMP_NUM_THREADS="1"))
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(result.read_text()), done.stdout


@pytest.mark.parametrize("loader", LOADERS)
def test_learns(root, small_folder, tmp_path, loader):
    result, output = train(root, small_folder, loader, tmp_path / "r.json",
                           more=("--epochs", "4", "--val-share", "0.2", "--warm"))
    assert result["loader"] == loader and len(result["epochs"]) == 4
    assert result["samples"] == 4 * 64  # 80 minus 16 held back, in whole batches
    assert result["epochs"][-1]["loss"] < result["epochs"][0]["loss"]
    assert 0 <= result["validation_accuracy"] <= 1
    assert result["wait_s"] < result["seconds"]
    assert result["cpu_s_per_1000_samples"] > 0 and result["peak_memory_bytes"] > 50e6
    assert "epoch 4/4" in output


@pytest.mark.parametrize("loader", [pytest.param("torch", marks=pytest.mark.long), "headrace"])
def test_under_torchrun(root, small_folder, tmp_path, loader):
    result, output = train(root, small_folder, loader, tmp_path / "r.json", ranks=2,
                           more=("--epochs", "1"))
    assert result["world_size"] == 2
    assert result["samples"] == 80  # 5 batches of 8 on each of two ranks
    assert output.count("epoch 1/1") == 1  # only one rank prints


def test_samples_are_spread_over_classes(root, small_folder, tmp_path):
    result, _ = train(root, small_folder, "torch", tmp_path / "r.json",
                      more=("--epochs", "1", "--samples", "16"))
    assert result["samples"] == 16


def test_table_and_notes():
    def result(loader, rate, wait):
        epoch = {"samples_per_s": rate}
        return {"loader": loader, "samples_per_s": rate, "wait_s": wait, "seconds": 10.0,
                "cpu_s_per_1000_samples": 4.0, "peak_memory_bytes": 5e8, "final_loss": 0.5,
                "final_accuracy": 0.75, "samples": 2000, "device": "cpu", "epochs": [epoch] * 2}

    stock, ours = result("torch", 200.0, 6.0), result("headrace", 600.0, 0.1)
    lines = demo.table(stock, ours)
    assert lines[1].split() == ["samples", "per", "second", "200", "600", "3.0", "x"]
    assert any("75.0" in line for line in lines)
    assert any("1,000 samples" in note for note in demo.notes((stock, ours), 1, 1))


def test_demo_names_what_is_wrong(tmp_path):
    (tmp_path / "class").mkdir()
    with pytest.raises(demo.Failure, match="no image under"):
        demo.choose_samples(tmp_path, 1)
    (tmp_path / "class" / "text.jpg").write_text("not a picture")
    with pytest.raises(demo.Failure, match="cannot be read"):
        demo.choose_samples(tmp_path, 1)


def test_small_set_is_gone_through_more_often():
    assert demo.epochs_of(4200, 4200) == (4200, 2)
    assert demo.epochs_of(3000, 20000) == (3000, 2)
    assert demo.epochs_of(4200, 1200) == (1200, 7)
    assert demo.epochs_of(900, 800) == (800, 2)
    assert demo.epochs_of(4200, 10) == (10, demo.MOST_EPOCHS)


def test_steps_of_the_demo_that_are_to_come(root, tmp_path):
    def steps(data):
        environment = dict(os.environ, PACKAGE=str(tmp_path / "package"), DATA=str(data),
                           SAMPLES=str(tmp_path / "sample"), DEMO_SAMPLES="1200",
                           SETUP_SYSTEM="no", VENV=str(tmp_path / "venv"))
        return subprocess.run([root / "tools" / "demo_steps.sh"], env=environment, check=True,
                              capture_output=True, text=True).stdout

    first = steps(tmp_path / "sample")
    for step in ("PyTorch", "compile", "1,200 photographs", "train with both"):
        assert step in first
    assert "photographs" not in steps(tmp_path / "mine")
    (tmp_path / "package").touch()
    (tmp_path / "sample").mkdir()
    (tmp_path / "sample" / "MANIFEST.json").touch()
    later = steps(tmp_path / "sample")
    assert "compile" not in later and "photographs" not in later and "train with both" in later


def test_interrupt_ends_even_a_deaf_run(monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "ENDING_S", 0.3)
    ready = tmp_path / "pid"
    deaf = ("import os, signal, time, pathlib; signal.signal(signal.SIGINT, signal.SIG_IGN); "
            f"pathlib.Path({str(ready)!r}).write_text(str(os.getpid())); time.sleep(60)")

    def interrupt():
        while not (ready.exists() and ready.read_text()):
            ended.wait(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    ended = threading.Event()
    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        demo.run_through([sys.executable, "-c", deaf])
    with pytest.raises(ProcessLookupError):
        os.kill(int(ready.read_text()), 0)


def test_balanced_reads_less_with_the_future(root, small_folder):
    """The example of a class-balanced sampler, with the future known and with what came first."""
    if importlib.util.find_spec("headrace") is None:
        pytest.skip("the headrace package is not installed")
    size = sum(path.stat().st_size for path in small_folder.rglob("*") if path.is_file())
    reads = {}
    for more in ([], ["--first"]):
        command = [sys.executable, "-W", "ignore", str(root / "examples" / "train_balanced.py"),
                   "--data", str(small_folder), "--cache", str(size // 2), "--workers", "1",
                   "--epochs", "8", *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False,
                              env=dict(os.environ, OMP_NUM_THREADS="1"))
        assert done.returncode == 0, done.stderr[-4000:]
        epochs = re.findall(r"read ([0-9.]+) MB", done.stdout)
        reads[bool(more)] = sum(float(read) for read in epochs[2:])
        assert len(epochs) == 8 and "right" in done.stdout
        assert ("used next" in done.stdout) != bool(more)
    assert reads[False] < reads[True]
