"""Memory use: bounded, constant over epochs, freed."""

import pytest

import headrace
import headrace.transforms as T
from agents import Agent
from conftest import run_python
from headrace.torch import DataLoader

CODE = """
import ctypes, sys, time
import headrace, headrace.transforms as T
from headrace.torch import DataLoader

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

pairs = [s for s in headrace.ImageFolder(sys.argv[1]).samples] * 4
d = headrace.ImageList(pairs, T.Compose([T.RandomResizedCrop(224), T.ToTensor()]))
before = resident()
loader = DataLoader(d, 16, num_workers=int(sys.argv[2]), shuffle=True)
# Two batches held and all others ready: every planned slot has been used once.
held = [batch for _, batch in zip(range(2), loader)]
while loader.stats()["ready_batches"] < loader.prefetch_factor:
    time.sleep(0.01)
del held
peaks = []
for epoch in range(20):
    peak = 0
    for images, labels in loader:
        peak = max(peak, resident())
    peaks.append(peak)
stats = loader.stats()
allowed = stats["slots"] * stats["slot_bytes"] + (64 << 20)
print(max(peaks) - before, allowed, max(peaks[10:]) - max(peaks[2:10]), stats["grown_slots"])
del images, labels
loader.close()
ctypes.CDLL(None).malloc_trim(0)
print(resident() - before)
"""


@pytest.mark.parametrize("threads", ["4", pytest.param("1", marks=pytest.mark.long)])
def test_resident_memory_is_bounded_and_flat(folder, threads):
    done = run_python(CODE, str(folder), threads)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    used, allowed, growth, grown = map(int, lines[0].split())
    assert used <= allowed
    assert growth <= 2 << 20
    assert grown == 0
    assert int(lines[1]) < 40 << 20


KEEPING = """
import sys
import headrace, headrace.transforms as T
from headrace.torch import DataLoader

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

pairs = [s for s in headrace.ImageFolder(sys.argv[1]).samples] * 10
d = headrace.ImageList(pairs, T.Compose([T.RandomResizedCrop(224), T.ToTensor()]))
options = {"agent": sys.argv[2]} if sys.argv[2:] else {}
with DataLoader(d, 8, num_workers=2, return_index=True, **options) as loader:
    expected = [label for _, label in pairs]
    kept, before = [], 0
    for epoch in range(2):
        for images, labels, index in loader:
            kept.append((labels, index))
        del images, labels, index
        before = before or resident()
    grown = loader.stats()["grown_slots"]
    used = resident() - before
    assert [n for l, _ in kept for n in l.tolist()] == 2 * expected
print(used >> 20, grown)
assert [n for _, i in kept for n in i.tolist()] == 2 * list(range(len(pairs)))  # after close, too
"""


def test_keeping_labels_and_indices_keeps_no_images(folder):
    """390 samples of 0.6 MB an epoch: their images would add 230 MB in the second."""
    with Agent() as agent:
        for where in ([], [agent.socket]):
            done = run_python(KEEPING, str(folder), *where)
            assert done.returncode == 0, done.stderr
            used_mib, grown = map(int, done.stdout.split())
            assert used_mib < 60 and grown == 0, (where, used_mib, grown)


def test_predictions_of_lightning_keep_no_images(folder, torchvision):
    lightning = pytest.importorskip("lightning")

    class Labels(lightning.LightningModule):
        def predict_step(self, batch):
            return batch[1]

    dataset = headrace.ImageFolder(folder, T.Compose([T.RandomResizedCrop(32), T.ToTensor()]))
    trainer = lightning.Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with DataLoader(dataset, 2, num_workers=1) as loader:
        kept = trainer.predict(Labels(), loader)
        assert [n for labels in kept for n in labels.tolist()] == dataset.targets
        assert loader.stats()["grown_slots"] == 0
