"""The DataLoader under Lightning's Trainer and Fabric, with nothing changed but its import."""

import sys

import pytest
import torch

import headrace
import headrace.transforms as T
from conftest import COUNT
from frameworks import (
    RATE,
    curves_agree,
    loader_of,
    loss_for_curves,
    model_for_curves,
    run_script,
)
from headrace.torch import DataLoader

lightning = pytest.importorskip("lightning")


class Model(lightning.LightningModule):
    """Records the indices of each epoch, and of validation and prediction."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layer = torch.nn.Linear(3, 1)
        self.seen, self.validated = {}, []

    @property
    def epochs(self):
        return list(self.seen.values())

    def training_step(self, batch, _):
        images, labels, index = batch
        self.seen.setdefault(self.current_epoch, []).append(index.tolist())
        return self.layer(images.float().mean((2, 3))).mean()

    def validation_step(self, batch, _):
        self.validated += batch[2].tolist()

    def predict_step(self, batch, _):
        return batch[2]

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def trainer(**options):
    usual = {
        "accelerator": "cpu", "devices": 1, "max_epochs": 3, "logger": False,
        "enable_checkpointing": False, "enable_progress_bar": False,
        "enable_model_summary": False, "num_sanity_val_steps": 0,
    }  # fmt: skip
    return lightning.Trainer(**{**usual, **options})


@pytest.fixture
def data(folder):
    return headrace.ImageFolder(folder, T.Compose([T.RandomResizedCrop(16), T.ToTensor()]))


def make(data, **options):
    return DataLoader(data, 4, return_index=True, num_workers=1, **{"shuffle": True, **options})


def indices_of(loader):
    return [batch[2].tolist() for batch in loader]


def test_fit_uses_the_scripts_loader(data):
    whole = make(data)
    expected = [indices_of(whole) for _ in range(3)]
    loader, model, fit = make(data), Model(), trainer()
    fit.fit(model, loader, make(data, shuffle=False))
    assert fit.train_dataloader is loader
    assert model.epochs == expected
    assert model.validated == list(range(COUNT)) * 3


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("where", ["argument", "datamodule"])
def test_overfit_batches(data, shuffle, where):
    """The same batches in every epoch, in the order of the dataset, with options kept."""

    class Data(lightning.LightningDataModule):
        def train_dataloader(self):
            return make(data, shuffle=shuffle, dtype="uint8")

    model, fit = Model(), trainer(overfit_batches=3)
    fit.fit(model, Data() if where == "datamodule" else make(data, shuffle=shuffle, dtype="uint8"))
    assert model.epochs == [[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]] * 3
    used = fit.train_dataloader
    assert type(used) is DataLoader and next(iter(used))[0].dtype == torch.uint8


@pytest.mark.parametrize("drop_last", [False, True])
def test_predict(data, drop_last):
    """Every sample once, in order; Lightning notes the indices of each batch."""

    class Writer(lightning.pytorch.callbacks.BasePredictionWriter):
        noted = []

        def write_on_batch_end(self, trainer, model, prediction, indices, *rest):
            self.noted.append((prediction.tolist(), indices))

    loader = make(data, shuffle=False, drop_last=drop_last)
    predict = trainer(callbacks=[Writer("batch")])
    for _ in range(2):
        out = predict.predict(Model(), loader)
        assert torch.cat(out).tolist() == list(range(COUNT))
    assert len(Writer.noted) == 20 and all(got == noted for got, noted in Writer.noted)
    assert type(predict.predict_dataloaders) is DataLoader


def test_predict_then_fit(data):
    """Lightning makes a loader again from the script's arguments, not from the last change of them."""
    loader, model, second = make(data), Model(), Model()
    trainer().predict(model, loader)
    trainer(overfit_batches=2, max_epochs=1).fit(model, loader)
    assert model.epochs == [[[0, 1, 2, 3], [4, 5, 6, 7]]]
    trainer(max_epochs=1).fit(second, loader)
    assert second.epochs == [indices_of(make(data))]


def test_resume_within_an_epoch(data, tmp_path):
    """A checkpoint has the loader's place: the resumed run is the same, bit for bit."""

    class Stop(lightning.Callback):
        def on_train_batch_end(self, trainer, model, outputs, batch, index):
            if (trainer.current_epoch, index) == (1, 2):
                trainer.save_checkpoint(tmp_path / "mid.ckpt")

    whole = Model()
    trainer(callbacks=[Stop()]).fit(whole, make(data))
    again = Model()
    trainer().fit(again, make(data), ckpt_path=tmp_path / "mid.ckpt")
    assert again.epochs == [whole.epochs[1][3:], whole.epochs[2]]
    assert torch.equal(again.layer.weight, whole.layer.weight)


def test_a_state_that_the_script_loads(data):
    whole, left, resumed = make(data), make(data), make(data)
    expected = [indices_of(whole) for _ in range(2)]
    for _ in zip(range(3), left):
        pass
    resumed.load_state_dict(left.state_dict())
    model = Model()
    trainer(max_epochs=2).fit(model, resumed)
    assert model.epochs == [expected[0][3:], expected[1]]


def test_a_datamodule(data):
    class Data(lightning.LightningDataModule):
        def train_dataloader(self):
            return make(data)

        def val_dataloader(self):
            return make(data, shuffle=False)

        predict_dataloader = val_dataloader

    whole, model, fit = make(data), Model(), trainer(max_epochs=2)
    fit.fit(model, datamodule=Data())
    assert model.epochs == [indices_of(whole) for _ in range(2)]
    assert model.validated == list(range(COUNT)) * 2
    assert torch.cat(fit.predict(model, datamodule=Data())).tolist() == list(range(COUNT))


def test_fabric(data):
    """setup_dataloaders moves batches and keeps the loader; resuming is exact although Fabric counts
    epochs from 0 again."""
    fabric = lightning.Fabric(accelerator="cpu", devices=1)
    whole, loader = make(data), make(data)
    expected = [indices_of(whole) for _ in range(4)]
    ready = fabric.setup_dataloaders(loader)
    assert indices_of(ready) == expected[0]
    for _ in zip(range(3), ready):
        pass
    state = loader.state_dict()
    again = make(data)
    ready = fabric.setup_dataloaders(again)
    again.load_state_dict(state)
    assert [indices_of(ready) for _ in range(3)] == [expected[1][3:], *expected[2:]]


@pytest.mark.parametrize("how", ["trainer", "fabric"])
def test_the_loss_falls_as_with_torchs_loader(folder, how):
    class Learns(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model, self.losses = model_for_curves(), []

        def on_train_epoch_start(self):
            self.losses.append(0.0)

        def training_step(self, batch, _):
            loss = loss_for_curves(self.model, batch)
            self.losses[-1] += float(loss.detach()) * len(batch[1]) / COUNT
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), RATE)

    def of_trainer(kind, seed):
        model = Learns()
        trainer().fit(model, loader_of(kind, folder, seed))
        return model.losses

    def of_fabric(kind, seed):
        fabric = lightning.Fabric(accelerator="cpu", devices=1)
        model = Learns()
        net, optimizer = fabric.setup(model.model, model.configure_optimizers())
        loader = fabric.setup_dataloaders(loader_of(kind, folder, seed))
        for _ in range(3):
            model.losses.append(0.0)
            for batch in loader:
                loss = loss_for_curves(net, batch)
                model.losses[-1] += float(loss.detach()) * len(batch[1]) / COUNT
                fabric.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        return model.losses

    curves_agree(of_trainer if how == "trainer" else of_fabric)


TWO_DEVICES = """
import lightning
from test_frameworks_lightning import Model, trainer

class Stop(lightning.Callback):
    def on_train_batch_end(self, trainer, model, outputs, batch, index):
        if (trainer.current_epoch, index) == (1, 2):
            trainer.save_checkpoint(out + "/mid.ckpt")

def make(**options):
    return DataLoader(data, 4, return_index=True, num_workers=1, **{"shuffle": True, **options})

two = dict(devices=2, strategy="ddp")
whole, fit = Model(), trainer(callbacks=[Stop()], **two)
loader = make()
fit.fit(whole, loader)
again = Model()
fit_again = trainer(**two)
fit_again.fit(again, make(), ckpt_path=out + "/mid.ckpt")
over = Model()
trainer(overfit_batches=2, max_epochs=2, **two).fit(over, make())
predicted = trainer(**two).predict(Model(), make(shuffle=False))
weights = [model.layer.weight.tolist() for model in (whole, again)]
flat = lambda epochs: [sum(epoch, []) for epoch in epochs]
tell(fit.global_rank, flat(whole.epochs), again=flat(again.epochs), weights=weights,
     over=over.epochs, predicted=torch.cat(predicted).tolist(),
     is_kept=fit.train_dataloader is loader)
"""


@pytest.mark.long
def test_two_devices(folder, tmp_path):
    """Trainer starts the second rank itself, after the loaders were made."""
    code = f"sys.path.insert(0, {str(__file__).rpartition('/')[0]!r})" + TWO_DEVICES
    told, _ = run_script(tmp_path, folder, code, [sys.executable])
    for rank in told:
        assert rank["is_kept"]
        assert rank["weights"][0] == rank["weights"][1] == told[0]["weights"][0]
        assert rank["again"] == [rank["epochs"][1][12:], rank["epochs"][2]]
        assert rank["over"][0] == rank["over"][1] and len(rank["over"][0]) == 2
    orders = list(zip(*(rank["epochs"] for rank in told)))
    for order in orders:
        flat = [index for part in order for index in part]
        assert set(flat) == set(range(COUNT)) and len(flat) == COUNT + 1
    assert len({str(order) for order in orders}) == 3
    first = {index for rank in told for batch in rank["over"][0] for index in batch}
    assert first == set(range(16))
    assert sorted(told[0]["predicted"] + told[1]["predicted"]) == list(range(COUNT))


FABRIC = """
import lightning

fabric = lightning.Fabric(accelerator="cpu", devices=2, strategy="ddp")
fabric.launch()
model = torch.nn.Linear(3, 1)
model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), 0.1))
ready = fabric.setup_dataloaders(loader)
epochs = []
for _ in range(3):
    epochs.append([])
    for images, labels, index in ready:
        fabric.backward(model(images.mean((2, 3))).mean())
        optimizer.step()
        optimizer.zero_grad()
        epochs[-1] += index.tolist()
tell(fabric.global_rank, epochs)
"""


@pytest.mark.long
def test_fabric_on_two_devices(folder, tmp_path):
    told, _ = run_script(tmp_path, folder, FABRIC, [sys.executable])
    orders = list(zip(*(rank["epochs"] for rank in told)))
    for order in orders:
        flat = [index for part in order for index in part]
        assert set(flat) == set(range(COUNT)) and len(flat) == COUNT + 1
    assert len({str(order) for order in orders}) == 3
