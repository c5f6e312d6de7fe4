"""Ranks and epochs under torchrun, Lightning and Accelerate, started as their users do: over the
ranks each sample comes once an epoch, and epochs differ."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import COUNT

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


def run(tmp_path, folder, code, command, ranks=2):
    """Returns each rank's report, and the output."""
    script = tmp_path / "train.py"
    script.write_text(MAKE + code)
    done = subprocess.run(
        [*command, str(script), str(folder), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=400,
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[2] / "tools"),
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
        },
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(ranks)]
    return told, done.stdout + done.stderr


def check(told, epochs):
    """Checks that each epoch has every sample, that repeats only pad, and that no two epochs are
    equal."""
    assert [len(rank["epochs"]) for rank in told] == [epochs] * len(told)
    orders = list(zip(*(rank["epochs"] for rank in told)))
    for order in orders:
        flat = [i for part in order for i in part]
        assert set(flat) == set(range(COUNT))
        assert len(flat) == -(-COUNT // len(told)) * len(told)
    assert len({str(order) for order in orders}) == epochs


TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


def test_torchrun(folder, tmp_path):
    """The loader is made before the ranks are initialised."""
    code = """
torch.distributed.init_process_group("gloo")
epochs = [[i for *_, index in loader for i in index.tolist()] for _ in range(2)]
tell(torch.distributed.get_rank(), epochs, length=len(loader))
torch.distributed.destroy_process_group()
"""
    told, said = run(tmp_path, folder, code, TORCHRUN)
    check(told, 2)
    assert [rank["length"] for rank in told] == [5, 5]
    assert "not initialised" not in said


def test_torchrun_without_torch_distributed(folder, tmp_path):
    """RANK and WORLD_SIZE count, and every process logs that."""
    code = """
epochs = [[i for *_, index in loader for i in index.tolist()] for _ in range(2)]
tell(os.environ["RANK"], epochs)
"""
    told, said = run(tmp_path, folder, code, TORCHRUN)
    check(told, 2)
    assert said.count("because of RANK and WORLD_SIZE") == 2


LIGHTNING = """
import lightning

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)
        self.epochs = []

    def on_train_epoch_start(self):
        self.epochs.append([])

    def training_step(self, batch, _):
        images, labels, index = batch
        self.epochs[-1] += index.tolist()
        return self.layer(images.mean((2, 3))).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

options = dict(
    accelerator="cpu", max_epochs=3, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False,
)
"""


@pytest.mark.long
def test_lightning_on_two_devices(folder, tmp_path):
    pytest.importorskip("lightning")
    code = LIGHTNING + """
model = Model()
trainer = lightning.Trainer(devices=2, strategy="ddp", **options)
trainer.fit(model, loader)
tell(trainer.global_rank, model.epochs)
"""
    told, _ = run(tmp_path, folder, code, [sys.executable])
    check(told, 3)


def test_lightning_trains_the_epochs_of_a_plain_loop(folder, tmp_path):
    """Every epoch equals the order bit for bit; none is repeated or missing; resumes within an
    epoch."""
    pytest.importorskip("lightning")
    code = LIGHTNING + """
def plain():
    return DataLoader(data, 4, shuffle=True, return_index=True, num_workers=1)

model = Model()
lightning.Trainer(devices=1, **options).fit(model, loader)
whole = plain()
expected = [[i for *_, index in whole for i in index.tolist()] for _ in range(3)]

left = plain()
for _ in zip(range(3), left):
    pass
resumed, again = plain(), Model()
resumed.load_state_dict(left.state_dict())
lightning.Trainer(devices=1, **{**options, "max_epochs": 2}).fit(again, resumed)

tell(0, model.epochs, expected=expected, again=again.epochs)
"""
    (told,), _ = run(tmp_path, folder, code, [sys.executable], ranks=1)
    assert told["epochs"] == told["expected"]
    assert told["again"] == [told["expected"][0][12:], told["expected"][1]]


ACCELERATE = """
from accelerate import Accelerator, debug_launcher

def train():
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model, optimizer, prepared = accelerator.prepare(model, optimizer, loader)
    epochs = []
    for epoch in range(2):
        epochs.append([])
        for images, labels, index in prepared:
            loss = model(images.mean((2, 3))).mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            epochs[-1] += index.tolist()
    tell(accelerator.process_index, epochs, is_ours=prepared is loader)
"""


@pytest.mark.parametrize("how", ["torchrun", pytest.param("notebook", marks=pytest.mark.long)])
def test_accelerate(folder, tmp_path, how):
    """As `accelerate launch` starts ranks; and forked from a process that has read a batch."""
    pytest.importorskip("accelerate")
    if how == "torchrun":
        told, _ = run(tmp_path, folder, ACCELERATE + "train()", TORCHRUN)
    else:
        code = ACCELERATE + "next(iter(loader))\ndebug_launcher(train, num_processes=2)"
        told, _ = run(tmp_path, folder, code, [sys.executable])
    check(told, 2)
    assert [rank["is_ours"] for rank in told] == [True, True]
