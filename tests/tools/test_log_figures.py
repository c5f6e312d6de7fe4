"""examples/log_figures.py: its figures, and its callbacks with the real packages where they are."""

import importlib.util
import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")


@pytest.fixture(scope="session")
def example(root):
    if importlib.util.find_spec("headrace") is None:
        pytest.skip("the headrace package is not installed")
    path = root / "examples" / "log_figures.py"
    spec = importlib.util.spec_from_file_location("log_figures", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_figures(example, small_folder):
    from headrace import ImageFolder
    from headrace import transforms as T
    from headrace.torch import DataLoader

    folder = ImageFolder(small_folder, T.Compose([T.CenterCrop(32), T.ToDtype("uint8")]))
    with DataLoader(folder, 16, num_workers=1, cache="64MiB") as loader:
        figures = example.LoaderFigures(loader)
        for _ in loader:
            pass
        first = figures.end()
        for _ in loader:
            pass
        second = figures.end()
    assert first["loader/read_mb_per_s"] > 0 and first["loader/samples_per_s"] > 0
    assert first["loader/cache_hit_share"] == 0 and second["loader/cache_hit_share"] == 1
    assert second["loader/read_mb_per_s"] == 0 and 0 <= second["loader/wait_share"] <= 1.01


@pytest.mark.parametrize("tool", ["tensorboard", "wandb", "mlflow"])
def test_callback(example, root, small_folder, tmp_path, tool):
    pytest.importorskip(tool)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(root / "examples" / "log_figures.py"), "--data",
         str(small_folder), "--to", tool, "--batch-size", "16"],
        capture_output=True, text=True, timeout=300, cwd=tmp_path, check=False,
        env={**os.environ, "WANDB_MODE": "offline", "MLFLOW_TRACKING_URI": f"file:{tmp_path}/mlruns",
             "MLFLOW_ALLOW_FILE_STORE": "true"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stderr.count("samples/s") == 2  # the lines of two epochs
    assert any(tmp_path.iterdir())
