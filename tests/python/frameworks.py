"""What the tests of frameworks share: scripts in processes of their own, and loss curves."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch

import forked
from conftest import LEAN

MAKE = """
import json, os, sys
import torch
try:
    import torchvision_shim
    torchvision_shim.prepare()
except ImportError:
    pass
import headrace, headrace.transforms as T
from headrace.torch import DataLoader

folder, out = sys.argv[1:3]
data = headrace.ImageFolder(folder, T.Compose([T.RandomResizedCrop(16), T.ToTensor()]))
loader = DataLoader(data, 4, shuffle=True, return_index=True, num_workers=1)

def tell(rank, epochs, **more):
    with open(os.path.join(out, f"rank{rank}.json"), "w") as file:
        json.dump({"epochs": epochs, **more}, file)
"""

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


def run_script(tmp_path, folder, code, command=None, ranks=2):
    """Runs it in so many processes that are forked as ranks, or by a command. Returns each rank's
    report, and the output."""
    script = tmp_path / "train.py"
    script.write_text(MAKE + code)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([LEAN, str(Path(__file__).parents[2] / "tools")]),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    words = [*(command or [sys.executable]), str(script), str(folder), str(tmp_path)]
    if command is None and ranks > 1:
        ended = forked.run_ranks(ranks, words, cwd=tmp_path, env=environment)
    else:
        ended = [forked.run(words, cwd=tmp_path, env=environment)]
    for one in ended:
        assert one.returncode == 0, one.stderr[-4000:]
    told = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(ranks)]
    return told, "".join(one.stdout + one.stderr for one in ended)


def loader_of(kind, folder, seed):
    """Returns a loader of a class, ours or torch's, for :func:`curves_agree`."""
    import headrace
    import headrace.transforms as T

    recipe = T.Compose([T.Resize((8, 8)), T.ToTensor(), T.Normalize([0.5] * 3, [0.25] * 3)])
    data = headrace.ImageFolder(folder, recipe)
    torch.manual_seed(seed)
    options = {} if kind is torch.utils.data.DataLoader else {"seed": seed}
    return kind(data, 4, shuffle=True, **options)


def model_for_curves():
    torch.manual_seed(0)
    return torch.nn.Linear(192, 3)


def loss_for_curves(model, batch):
    images, labels = batch
    return torch.nn.functional.cross_entropy(model(images.flatten(1)), labels)


RATE = 0.01  # the learning rate for curves


def curves_agree(curve):
    """Checks that ``curve(loader class, seed)``, the mean loss of each epoch of a run, is the same
    with our loader as with torch's, as far as seeds decide: the means of the seeds differ less than
    single seeds do, which is little."""
    from headrace.torch import DataLoader

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        theirs = torch.tensor([curve(torch.utils.data.DataLoader, seed) for seed in range(3)])
        ours = torch.tensor([curve(DataLoader, seed) for seed in range(3)])
    finally:
        torch.set_num_threads(threads)
    both = torch.cat([theirs, ours])
    spread = both.max(0).values - both.min(0).values
    assert bool(((theirs.mean(0) - ours.mean(0)).abs() <= spread).all())
    assert bool((spread < 0.08 * both.mean(0)).all())
    assert bool((both[:, 1:] < 0.96 * both[:, :-1]).all())  # and it falls
