"""The DataLoader under transformers' Trainer, whose get_train_dataloader is overridden as
docs/frameworks/transformers.md shows."""

import json

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

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

NAMES = ("pixel_values", "labels", "index")


class Model(torch.nn.Module):
    """Records the indices of batches while it trains."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layer = torch.nn.Linear(3, 3)
        self.seen = []

    def forward(self, pixel_values, labels, index):
        if self.training:
            self.seen.append(index.tolist())
        logits = self.layer(pixel_values.mean((2, 3)))
        loss = torch.nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits, "index": index}


class Trainer(transformers.Trainer):
    def get_train_dataloader(self):
        loader = DataLoader(self.train_dataset, self.args.train_batch_size, shuffle=True,
                            seed=self.args.seed, names=NAMES, return_index=True)  # fmt: skip
        return self.accelerator.prepare(loader)

    def get_eval_dataloader(self, eval_dataset=None):
        loader = DataLoader(self.eval_dataset, self.args.eval_batch_size, names=NAMES,
                            return_index=True)  # fmt: skip
        return self.accelerator.prepare(loader)


class Unprepared(Trainer):
    """Trainer moves batches itself, so it also takes the loader as it is."""

    def get_train_dataloader(self):
        return DataLoader(self.train_dataset, self.args.train_batch_size, shuffle=True,
                          seed=self.args.seed, names=NAMES, return_index=True)  # fmt: skip


def arguments(folder, **options):
    usual = {
        "per_device_train_batch_size": 4, "per_device_eval_batch_size": 4, "num_train_epochs": 3,
        "use_cpu": True, "report_to": [], "disable_tqdm": True, "save_strategy": "no",
        "logging_strategy": "no", "seed": 5, "learning_rate": 0.1,
    }  # fmt: skip
    return transformers.TrainingArguments(str(folder), **{**usual, **options})


@pytest.fixture
def data(folder):
    return headrace.ImageFolder(folder, T.Compose([T.RandomResizedCrop(16), T.ToTensor()]))


def expected(data, epochs=3):
    loader = DataLoader(data, 4, shuffle=True, seed=5, return_index=True)
    return [[batch[2].tolist() for batch in loader] for _ in range(epochs)]


@pytest.mark.parametrize("kind", [Trainer, Unprepared])
def test_it_trains_and_resumes_within_an_epoch(data, tmp_path, kind):
    """Dict batches by names=; every epoch is the loader's own; the resumed run is the same, bit for
    bit."""
    model = Model()
    options = arguments(tmp_path, save_strategy="steps", save_steps=13)
    kind(model, options, train_dataset=data).train()
    epochs = expected(data)
    assert model.seen == sum(epochs, [])
    again = Model()
    kind(again, arguments(tmp_path), train_dataset=data).train(
        resume_from_checkpoint=str(tmp_path / "checkpoint-13")
    )
    assert again.seen == epochs[1][3:] + epochs[2]
    assert torch.equal(again.layer.weight, model.layer.weight)


def test_it_resumes_between_epochs_and_with_accumulation(data, tmp_path):
    options = {"gradient_accumulation_steps": 2, "save_strategy": "epoch"}
    model, again = Model(), Model()
    Trainer(model, arguments(tmp_path, **options), train_dataset=data).train()
    assert model.seen == sum(expected(data), [])
    Trainer(again, arguments(tmp_path, **options), train_dataset=data).train(
        resume_from_checkpoint=str(tmp_path / "checkpoint-5")
    )
    assert again.seen == sum(expected(data)[1:], [])
    assert torch.equal(again.layer.weight, model.layer.weight)


def test_evaluate_and_predict(data, tmp_path):
    """Metrics get each sample once, in order."""
    trainer = Trainer(
        Model(), arguments(tmp_path), train_dataset=data, eval_dataset=data,
        compute_metrics=lambda prediction: {"indices": prediction.predictions[1].tolist()},
    )  # fmt: skip
    assert trainer.evaluate()["eval_indices"] == list(range(COUNT))


def test_the_loss_falls_as_with_torchs_loader(folder, tmp_path):
    class Learns(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model, self.losses = model_for_curves(), []

        def forward(self, pixel_values, labels):
            loss = loss_for_curves(self.model, (pixel_values, labels))
            self.losses.append(float(loss.detach()) * len(labels) / COUNT)
            return {"loss": loss}

    def curve(kind, seed):
        class Own(transformers.Trainer):
            def get_train_dataloader(self):
                loader = loader_of(kind, folder, seed)
                if kind is DataLoader:
                    loader.names = ("pixel_values", "labels")
                else:
                    loader.collate_fn = lambda samples: dict(
                        zip(("pixel_values", "labels"),
                            torch.utils.data.default_collate(samples))
                    )  # fmt: skip
                return self.accelerator.prepare(loader)

        model = Learns()
        optimizer = torch.optim.SGD(model.parameters(), RATE)
        constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
        data = loader_of(kind, folder, seed).dataset
        Own(model, arguments(tmp_path, seed=seed, max_grad_norm=0), train_dataset=data,
            optimizers=(optimizer, constant)).train()  # fmt: skip
        return [sum(model.losses[10 * epoch : 10 * epoch + 10]) for epoch in range(3)]

    curves_agree(curve)


TWO_RANKS = """
from test_frameworks_transformers import Model, Trainer, arguments

def train(**resume):
    model = Model()
    options = arguments(out + "/run", save_strategy="steps", save_steps=8)
    trainer = Trainer(
        model, options, train_dataset=data, eval_dataset=data,
        compute_metrics=lambda prediction: {"indices": prediction.predictions[1].tolist()},
    )
    trainer.train(**resume)
    return model, trainer

model, trainer = train()
indices = trainer.evaluate()["eval_indices"]
again, _ = train(resume_from_checkpoint=out + "/run/checkpoint-8")
epochs = [sum(model.seen[5 * epoch : 5 * epoch + 5], []) for epoch in range(3)]
tell(trainer.args.process_index, epochs, again=sum(again.seen, []), indices=indices,
     weights=[model.layer.weight.tolist(), again.layer.weight.tolist()])
"""


@pytest.mark.long
def test_two_ranks(folder, tmp_path):
    code = f"sys.path.insert(0, {str(__file__).rpartition('/')[0]!r})" + TWO_RANKS
    told, _ = run_script(tmp_path, folder, code)
    for rank in told:
        assert rank["weights"][0] == rank["weights"][1] == told[0]["weights"][0]
        assert rank["again"] == rank["epochs"][1][12:] + rank["epochs"][2]
        assert rank["indices"] == list(range(COUNT))
    orders = list(zip(*(rank["epochs"] for rank in told)))
    for order in orders:
        flat = [index for part in order for index in part]
        assert set(flat) == set(range(COUNT)) and len(flat) == 40
    assert len({json.dumps(order) for order in orders}) == 3
