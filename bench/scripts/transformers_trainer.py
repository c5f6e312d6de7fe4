"""transformers' Trainer with checkpoints that rotate."""


import paced
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 3)

    def forward(self, x, labels):
        paced.pause(paced.STEP_S)
        scores = self.layer(x)
        return {"loss": torch.nn.functional.cross_entropy(scores, labels), "logits": scores}


class Rows(paced.Points):
    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return {"x": x, "labels": y}


class Steps(TrainerCallback):
    clock = paced.Clock()

    def on_step_end(self, *args, **kwargs):
        self.clock.step()


arguments = TrainingArguments(
    "out",
    per_device_train_batch_size=paced.BATCH,
    max_steps=100000,
    save_steps=paced.EVERY,
    save_total_limit=paced.KEEP,
    dataloader_num_workers=paced.WORKERS,
    logging_steps=1000,
    report_to=[],
    disable_tqdm=True,
    use_cpu=True,
)
Trainer(Small(), arguments, train_dataset=Rows(), callbacks=[Steps()]).train()
