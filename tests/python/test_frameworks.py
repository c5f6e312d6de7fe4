"""Ranks and epochs of scripts, started by torchrun and as torchrun starts them: over the ranks each
sample comes once an epoch, and epochs differ. The files beside this one have the frameworks."""

from conftest import COUNT
from frameworks import TORCHRUN, run_script


def check(told, epochs):
    """Checks that each epoch has every sample, that repeats only pad, and that no two epochs are
    equal."""
    assert [len(rank["epochs"]) for rank in told] == [epochs] * len(told)
    orders = list(zip(*(rank["epochs"] for rank in told)))
    for order in orders:
        flat = [i for part in order for i in part]
        assert set(flat) == set(range(COUNT))
        assert len(flat) == -(-COUNT // len(told)) * len(told)
    assert len({str(order) for order in orders}) == epochs


def test_torchrun(folder, tmp_path):
    """The loader is made before the ranks are initialised."""
    code = """
torch.distributed.init_process_group("gloo")
epochs = [[i for *_, index in loader for i in index.tolist()] for _ in range(2)]
tell(torch.distributed.get_rank(), epochs, length=len(loader))
torch.distributed.barrier()  # a rank that ends first takes its connections from one still in init
torch.distributed.destroy_process_group()
"""
    told, said = run_script(tmp_path, folder, code, TORCHRUN)
    check(told, 2)
    assert [rank["length"] for rank in told] == [5, 5]
    assert "not initialised" not in said


def test_without_torch_distributed(folder, tmp_path):
    """RANK and WORLD_SIZE count, and every process logs that."""
    code = """
epochs = [[i for *_, index in loader for i in index.tolist()] for _ in range(2)]
tell(os.environ["RANK"], epochs)
"""
    told, said = run_script(tmp_path, folder, code)
    check(told, 2)
    assert said.count("because of RANK and WORLD_SIZE") == 2
