"""timm's loader and checkpoint saver."""


import paced
import timm.data
import timm.utils
import torch
from PIL import Image


class Pictures(torch.utils.data.Dataset):
    transform = None

    def __len__(self):
        return paced.COUNT

    def __getitem__(self, index):
        paced.pause(paced.SAMPLE_S)
        return self.transform(Image.new("RGB", (40, 40), (index % 256, 0, 0))), index % 3


class Arguments:
    model = "small"


loader = timm.data.create_loader(
    Pictures(),
    input_size=(3, 8, 8),
    batch_size=paced.BATCH,
    is_training=True,
    no_aug=True,
    use_prefetcher=False,
    num_workers=paced.WORKERS,
    pin_memory=False,
    device=torch.device("cpu"),
)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 3))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
saver = timm.utils.CheckpointSaver(
    model, optimizer, Arguments(), checkpoint_dir="out", recovery_dir="out", max_history=paced.KEEP
)
clock = paced.Clock()
for epoch in range(1000):
    for x, y in loader:
        paced.pause(paced.STEP_S)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        clock.step()
        if clock.steps % paced.EVERY == 0:
            saver.save_checkpoint(clock.steps, metric=clock.steps)
