"""A loop with Accelerate, which names and rotates its checkpoints itself."""


import accelerate
import paced
import torch
from accelerate.utils import ProjectConfiguration
from torch.utils.data import DataLoader

settings = ProjectConfiguration("out", automatic_checkpoint_naming=True, total_limit=paced.KEEP)
accelerator = accelerate.Accelerator(project_config=settings, cpu=True)
model = torch.nn.Linear(8, 3)
model, optimizer, loader = accelerator.prepare(
    model,
    torch.optim.SGD(model.parameters(), 0.01),
    DataLoader(paced.Points(), paced.BATCH, shuffle=True, num_workers=paced.WORKERS),
)
settings.iteration = 1  # an earlier run left number 0
clock = paced.Clock()
for epoch in range(1000):
    for x, y in loader:
        paced.pause(paced.STEP_S)
        optimizer.zero_grad()
        accelerator.backward(torch.nn.functional.cross_entropy(model(x), y))
        optimizer.step()
        clock.step()
        if clock.steps % paced.EVERY == 0:
            accelerator.save_state()
