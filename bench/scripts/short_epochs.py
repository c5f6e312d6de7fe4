"""Epochs of 20 batches. Each epoch starts new workers."""

from paced import BATCH, WORKERS, Points, Training
from torch.utils.data import DataLoader, Subset

training = Training()
loader = DataLoader(Subset(Points(), range(20 * BATCH)), BATCH, num_workers=WORKERS)
for epoch in range(10000):
    for x, y in loader:
        training.step(x, y)
