"""A loop with Lightning Fabric."""

import os

import paced
import torch
from lightning.fabric import Fabric
from torch.utils.data import DataLoader

fabric = Fabric(accelerator="cpu", devices=1)
model = torch.nn.Linear(8, 3)
model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), 0.01))
loader = fabric.setup_dataloaders(
    DataLoader(paced.Points(), paced.BATCH, shuffle=True, num_workers=paced.WORKERS)
)
clock = paced.Clock()
for epoch in range(1000):
    for x, y in loader:
        paced.pause(paced.STEP_S)
        optimizer.zero_grad()
        fabric.backward(torch.nn.functional.cross_entropy(model(x), y))
        optimizer.step()
        clock.step()
        if clock.steps % paced.EVERY == 0:
            fabric.save("out/part.ckpt", {"model": model, "steps": clock.steps})
            os.replace("out/part.ckpt", "out/last.ckpt")
