"""The DataLoader in Keras 3 on its torch backend: fit, evaluate and predict take it as torch's.

Keras is not among the packages that tools/setup.sh installs: docs/frameworks/keras.md has the version
that these tests passed with."""

import os

import pytest
import torch

import headrace
import headrace.transforms as T
from conftest import COUNT
from headrace.torch import DataLoader

os.environ.setdefault("KERAS_BACKEND", "torch")
keras = pytest.importorskip("keras")
if keras.backend.backend() != "torch":
    pytest.skip("Keras runs on another backend", allow_module_level=True)


@pytest.fixture
def data(folder):
    return headrace.ImageFolder(folder, T.Compose([T.Resize((8, 8)), T.ToTensor()]))


def make(data, **options):
    return DataLoader(data, 4, shuffle=True, layout="NHWC", num_workers=1, **options)


def model_of(rate=0.05):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(rate), loss, metrics=["accuracy"], run_eagerly=True)
    return model


class Follow(keras.callbacks.Callback):
    """What docs/frameworks/keras.md shows, which also records each epoch's labels and states."""

    def __init__(self, loader, state=None):
        super().__init__()
        self.loader, self.resume, self.states, self.epochs = loader, state, [], []

    def on_train_begin(self, logs=None):
        if self.resume is not None:
            self.loader.load_state_dict(self.resume)

    def on_epoch_begin(self, epoch, logs=None):
        self.loader.set_epoch(epoch)
        self.epochs.append(list(self.loader.batch_sampler))

    def on_train_batch_end(self, batch, logs=None):
        self.states.append((self.loader.state_dict(), self.model.get_weights(), logs["loss"]))


def test_the_loss_is_that_of_torchs_loader(data):
    """With the same order, as the pixels are the same."""
    ours = make(data)
    follow = Follow(ours)
    history = model_of().fit(ours, epochs=3, verbose=0, callbacks=[follow]).history
    assert all(sorted(sum(epoch, [])) == list(range(COUNT)) for epoch in follow.epochs)
    assert follow.epochs[0] != follow.epochs[1] != follow.epochs[2]
    assert [state["epoch"] for state, *_ in follow.states] == [0] * 10 + [1] * 10 + [2] * 10

    order = []
    theirs = torch.utils.data.DataLoader(data, batch_sampler=order, collate_fn=_nhwc)
    model, losses = model_of(), []
    for epoch in follow.epochs:
        order[:] = epoch
        losses += model.fit(theirs, verbose=0, shuffle=False).history["loss"]
    assert history["loss"] == pytest.approx(losses, rel=1e-6)
    assert losses[2] < losses[0]


def _nhwc(samples):
    images, labels = torch.utils.data.default_collate(samples)
    return images.permute(0, 2, 3, 1).contiguous(), labels


def test_it_resumes_within_an_epoch(data):
    whole = Follow(make(data))
    model_of().fit(whole.loader, epochs=3, verbose=0, callbacks=[whole])
    state, weights, _ = whole.states[13]
    model = model_of()
    model.build((None, 8, 8, 3))
    model.set_weights(weights)
    again = Follow(make(data), state)
    with pytest.warns(UserWarning, match="ran out of data"):  # the rest of an epoch is short
        model.fit(again.loader, initial_epoch=1, epochs=3, verbose=0, callbacks=[again])
    assert [left["position"] for left, *_ in again.states] == [
        left["position"] for left, *_ in whole.states[14:]
    ]
    for (_, a, _), (_, b, _) in zip(again.states, whole.states[14:], strict=True):
        assert all((x == y).all() for x, y in zip(a, b))


def test_evaluate_and_predict(data):
    model = model_of()
    valid = DataLoader(data, 4, layout="NHWC", num_workers=1)
    loss, accuracy = model.evaluate(valid, verbose=0)
    logits = model.predict(valid, verbose=0)
    assert logits.shape == (COUNT, 3) and loss > 0
    targets = torch.tensor([label for _, label in data.samples])
    right = (torch.tensor(logits).argmax(1) == targets).float().mean()
    assert accuracy == pytest.approx(float(right))
