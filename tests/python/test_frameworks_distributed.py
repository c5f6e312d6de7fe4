"""The DataLoader under DistributedDataParallel and FSDP2, on two ranks, and in steps that
torch.compile has compiled."""

import pytest
import torch

import headrace
import headrace.transforms as T
from conftest import COUNT
from frameworks import run_script
from headrace.torch import DataLoader

# Runs each wrapped model three times: with our loader; again from a state within an epoch; and with
# torch's loader in the same order.
SCRIPT = """
import copy
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
data = headrace.ImageFolder(folder, T.Compose([T.Resize((8, 8)), T.ToTensor()]))

def make(**options):
    return DataLoader(data, 4, shuffle=True, return_index=True, num_workers=1, **options)

def ddp(model):
    return DistributedDataParallel(model)

def fsdp(model):
    for layer in model:
        fully_shard(layer)
    return fully_shard(model)

class Run:
    def __init__(self, wrap):
        torch.manual_seed(0)
        self.model = wrap(torch.nn.Sequential(torch.nn.Linear(192, 8), torch.nn.Linear(8, 3)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.05)
        self.losses, self.indices, self.saved = [], [], None

    def epoch(self, batches, loader=None, save_at=None):
        self.indices.append([])
        for number, (images, labels, *index) in enumerate(batches):
            loss = torch.nn.functional.cross_entropy(self.model(images.flatten(1)), labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.losses.append(loss.item())
            self.indices[-1] += index[0].tolist() if index else []
            if number == save_at:
                self.saved = copy.deepcopy(self.model.state_dict()), loader.state_dict()

report = {}
for wrap in (ddp, fsdp):
    loader, run = make(), Run(wrap)
    orders = []
    for epoch in range(3):
        orders += list(loader.batch_sampler)
        run.epoch(loader, loader, 1 if epoch == 1 else None)
    model, state = run.saved
    again, rest = make(), Run(wrap)
    rest.model.load_state_dict(model)
    again.load_state_dict(state)
    for _ in range(2):
        rest.epoch(again)
    theirs = Run(wrap)
    theirs.epoch(torch.utils.data.DataLoader(data, batch_sampler=orders))
    report[wrap.__name__] = {"indices": run.indices, "losses": run.losses, "rest": rest.losses,
                             "theirs": theirs.losses}

# Ranks that share one part of the model's data: what they read is said, not found.
mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("data", "tensor"))
part = make(rank=mesh["data"].get_local_rank(), world_size=mesh["data"].size())
report["shared"] = [i for *_, index in part for i in index.tolist()]
tell(rank, [], **report)
torch.distributed.destroy_process_group()
"""


@pytest.fixture(scope="module")
def told(folder, tmp_path_factory):
    return run_script(tmp_path_factory.mktemp("ranks"), folder, SCRIPT)[0]


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_ranks_and_epochs(told, kind):
    orders = list(zip(*(rank[kind]["indices"] for rank in told)))
    assert len(orders) == 3 and orders[0] != orders[1] != orders[2]
    for order in orders:
        assert [len(part) for part in order] == [COUNT // 2 + 1] * 2
        assert set(sum(order, [])) == set(range(COUNT))


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_the_loss_and_resuming(told, kind):
    for rank in told:
        losses = rank[kind]["losses"]
        assert len(losses) == 15 and losses == rank[kind]["theirs"]
        assert rank[kind]["rest"] == losses[7:]
    assert told[0][kind]["losses"] != told[1][kind]["losses"]
    assert told[0]["ddp"]["losses"] == pytest.approx(told[0]["fsdp"]["losses"], rel=1e-4)


def test_ranks_that_share_a_part(told):
    assert told[0]["shared"] == told[1]["shared"]
    assert sorted(told[0]["shared"]) == list(range(COUNT))


def steps(data, compiled, **options):
    """Returns the losses of two epochs."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(144, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)

    def step(images, labels):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        return loss

    if compiled is not None:
        step = torch.compile(step, **compiled)
    losses = []
    loader = DataLoader(data, 4, shuffle=True, drop_last=True, **options)
    for _ in range(2):
        for images, labels in loader:
            optimizer.zero_grad()
            losses.append(step(images, labels).item())
            optimizer.step()
    return losses


@pytest.fixture
def data(folder):
    return headrace.ImageFolder(folder, T.Compose([T.Resize((8, 8)), T.ToTensor()]))


@pytest.mark.parametrize("layout", ["NCHW", "channels_last"])
def test_a_step_is_compiled_once(data, layout):
    """No batch differs from others in what guards look at."""
    torch._dynamo.reset()
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    losses = steps(data, {"backend": backend}, layout=layout)
    assert len(losses) == 18 and losses == steps(data, None, layout=layout)
    assert len(graphs) == 1


@pytest.mark.long
def test_a_step_that_inductor_compiled(data):
    torch._dynamo.reset()
    assert steps(data, {}) == pytest.approx(steps(data, None), rel=1e-4)
