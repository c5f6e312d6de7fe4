"""The example that trains in stages, under torchrun."""

import os
import re
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("headrace", reason="the headrace package is not installed")


@pytest.mark.long
@pytest.mark.parametrize(("schedule", "ranks"), [("2bw", 2), ("2bw", 4), ("1f1b", 2)])
def test_learns(root, schedule, ranks):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone",
         "--nproc-per-node", str(ranks), str(root / "examples/train_pipeline.py"),
         "--schedule", schedule, "--blocks", "2", "--width", "32"],
        capture_output=True, text=True, timeout=600, check=False,
        env=dict(os.environ, OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES=""))
    assert done.returncode == 0, done.stderr[-4000:]
    told = re.findall(r"batch (\d+): loss ([\d.]+)", done.stdout)
    assert [int(batch) for batch, _ in told] == [10, 20, 30, 40, 50], done.stdout
    losses = [float(loss) for _, loss in told]
    assert losses[-1] < 0.8 * losses[0]
