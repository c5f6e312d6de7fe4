"""Batches in JAX by DLPack, and a loop of Flax's and Optax's.

JAX and Flax are not among the packages that tools/setup.sh installs: docs/frameworks/jax.md has the
versions that these tests passed with."""

import pytest
import torch

import headrace
import headrace.transforms as T
from conftest import COUNT
from headrace.torch import DataLoader

jax = pytest.importorskip("jax")


@pytest.fixture
def data(folder):
    return headrace.ImageFolder(folder, T.Compose([T.Resize((8, 8)), T.ToTensor()]))


def make(data, **options):
    return DataLoader(data, 4, shuffle=True, layout="NHWC", num_workers=1, **options)


def arrays(batch):
    return tuple(jax.numpy.from_dlpack(field) for field in batch)


def test_arrays_share_the_loaders_memory_and_keep_it(data):
    loader = make(data, return_index=True)
    kept = []
    for batch in loader:
        images, labels, index = arrays(batch)
        assert images.unsafe_buffer_pointer() == batch[0].data_ptr()
        assert (images.shape[1:], str(images.dtype)) == ((8, 8, 3), "float32")
        assert labels.tolist() == batch[1].tolist()
        kept.append((images, batch[0].clone(), index))
        del batch
    for images, expected, _ in kept:  # although the loader went on
        assert (torch.from_dlpack(images) == expected).all()
    assert sorted(i for *_, index in kept for i in index.tolist()) == list(range(COUNT))


def training(data):
    """Returns a new state, and a function that gives the state after a step, and its loss."""
    nn, optax = pytest.importorskip("flax.linen"), pytest.importorskip("optax")
    model, tx = nn.Dense(3), optax.sgd(0.05)
    params = model.init(jax.random.key(0), jax.numpy.zeros((1, 192)))

    @jax.jit
    def step(state, images, labels):
        params, opt = state

        def loss_of(params):
            logits = model.apply(params, images.reshape(len(images), -1))
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        loss, grads = jax.value_and_grad(loss_of)(params)
        updates, opt = tx.update(grads, opt)
        return (optax.apply_updates(params, updates), opt), loss

    return (params, tx.init(params)), step


def losses_of(step, state, batches):
    losses = []
    for batch in batches:
        state, loss = step(state, *arrays(batch))
        losses.append(float(loss))
    return state, losses


def test_a_flax_loop(data):
    """The loss is that of torch's loader with the same order; resuming is exact."""
    begin, step = training(data)
    loader, state, ours, orders = make(data), begin, [], []
    for epoch in range(3):
        orders.append(list(loader.batch_sampler))
        if epoch == 1:
            batches = iter(loader)
            state, losses = losses_of(step, state, (next(batches) for _ in range(4)))
            saved = loader.state_dict(), state
            ours += losses
        else:
            batches = loader
        state, losses = losses_of(step, state, batches)
        ours += losses
    assert orders[0] != orders[1] != orders[2] and len(ours) == 30

    again = make(data)
    again.load_state_dict(saved[0])
    state, rest = losses_of(step, saved[1], again)
    assert rest + losses_of(step, state, again)[1] == ours[14:]

    theirs = torch.utils.data.DataLoader(data, batch_sampler=[b for order in orders for b in order])
    nhwc = ((images.permute(0, 2, 3, 1).contiguous(), labels) for images, labels in theirs)
    assert losses_of(step, begin, nhwc)[1] == pytest.approx(ours, rel=1e-6)
    assert sum(ours[20:]) < sum(ours[:10])
