"""Lightning's Trainer with ModelCheckpoint."""


import lightning
import paced
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 3)
        self.clock = paced.Clock()

    def training_step(self, batch, index):
        paced.pause(paced.STEP_S)
        return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

    def on_train_batch_end(self, *args):
        self.log("step", float(self.clock.steps))
        self.clock.step()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


saves = ModelCheckpoint(
    "out", monitor="step", mode="max", save_top_k=paced.KEEP, every_n_train_steps=paced.EVERY
)
trainer = lightning.Trainer(
    max_epochs=1000,
    callbacks=[saves],
    logger=False,
    accelerator="cpu",
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Module(), DataLoader(paced.Points(), paced.BATCH, num_workers=paced.WORKERS))
