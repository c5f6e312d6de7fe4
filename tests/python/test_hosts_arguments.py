"""Arguments that cannot be combined with a cache on several hosts, and the exchange of ranks."""

import subprocess
import sys

import pytest

import forked
from conftest import run_forked
from headrace.torch import DataLoader
from headrace.torch._hosts import FIGURES, Exchange

HOSTS = "memcached:a:11211,b:11211?size=64MiB"


def rates(host, **more):
    return {"host": host, **dict.fromkeys(FIGURES, 0.0), **more}


@pytest.mark.parametrize(
    "options, says",
    [
        ({"sampler": range(4)}, "leave sampler and batch_sampler out"),
        ({"batch_sampler": [[0, 1]]}, "leave sampler and batch_sampler out"),
        ({"agent": "auto"}, "leave agent and stream out"),
        ({"assignment": "near"}, "assignment must be 'local', 'exact' or None, got 'near'"),
    ],
)
def test_what_does_not_go_with_hosts(dataset, options, says):
    with pytest.raises(ValueError, match=says):
        DataLoader(dataset, cache=HOSTS, **options)
    with pytest.raises(ValueError, match=says):  # the library skips blanks, too
        DataLoader(dataset, cache=f" \n{HOSTS}", **options)


def test_what_needs_hosts(dataset):
    with pytest.raises(ValueError, match="needs cache='memcached:"):
        DataLoader(dataset, 4, assignment="local", cache="1MiB")
    with pytest.raises(TypeError, match="gather must be a function"):
        DataLoader(dataset, 4, gather="torch")
    loader = DataLoader(dataset, 4, assignment="exact")
    assert loader.hosts() == []
    with pytest.raises(ValueError):
        loader.rates()
    with pytest.raises(ValueError):
        loader.set_rates([rates(0)])
    with pytest.raises(ValueError):
        loader.set_hosts(HOSTS)
    with pytest.raises(ValueError, match="lack own_bytes_per_s, peer_bytes_per_s, storage"):
        loader.set_rates([{"host": 0, "prepare_bytes_per_s": 1.0}])
    assert len(list(loader)) == 10


def exchanged(count, change=None, places=None):
    """Returns each rank's result of exchanging the records of all, `change`d on their way."""
    sent = []
    for rank in range(count):
        place = places[rank] if places else (3, 40)
        first = Exchange(lambda record: sent.append(record) or [], rank, count)
        with pytest.raises(RuntimeError, match="records of 0 ranks"):
            first.run(rates(rank, wait_s=rank / 8, storage_bytes_per_s=1e9 / 3), *place)
    records = change(sent) if change else sent
    return [
        Exchange(lambda record, all=records: all, rank, count).run(
            rates(rank), *(places[rank] if places else (3, 40))
        )
        for rank in range(count)
    ]


def test_every_rank_gets_the_same_numbers_exactly():
    for found in exchanged(3):
        assert found == [rates(r, wait_s=r / 8, storage_bytes_per_s=1e9 / 3) for r in range(3)]


@pytest.mark.parametrize(
    "change, says",
    [
        (lambda sent: sent[:1], "records of 1 ranks of 2"),
        (lambda sent: sent[::-1], "is of rank 1 of 2: it has to return what every rank gave, in"),
        (lambda sent: [sent[0]] * 2, "returned for rank 1 of 2 is of rank 0"),
        (lambda sent: [sent[0], sent[1][:-1]], "rank 1 is not what a rank of this version"),
        (lambda sent: [b"xxxx" + sent[0][4:], sent[1]], "rank 0 is not what a rank"),
    ],
)
def test_a_gather_that_returns_something_else(change, says):
    with pytest.raises(RuntimeError, match=says):
        exchanged(2, change)


def test_ranks_that_are_out_of_step():
    says = "rank 0 begins epoch 3 at sample 0, but rank 1 begins epoch 4 at sample 0"
    with pytest.raises(RuntimeError, match=says):
        exchanged(2, places=[(3, 0), (4, 0)])
    with pytest.raises(RuntimeError, match="epoch 3 at sample 64"):
        exchanged(2, places=[(3, 0), (3, 64)])


def test_who_does_not_gather():
    for exchange in (Exchange(False, 0, 2), Exchange(None, 0, 2)):
        assert exchange.run(rates(0), 1, 0) is None and exchange.ranks is None


GATHERING = """
import sys, threading, _thread
import torch.distributed as dist
from headrace.torch._hosts import FIGURES, Exchange
path, rank, present = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "present"
dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=2)
mine = {"host": rank, **dict.fromkeys(FIGURES, 0.5 + rank)}
if present:
    found = Exchange(None, rank, 2).run(mine, 7, 0)
    print([x["host"] for x in found], found[1]["ready_s"], Exchange(None, 0, 1).run(mine, 7, 0))
elif rank == 0:
    try:
        threading.Timer(0.5, _thread.interrupt_main).start()
        Exchange(None, 0, 2).run(mine, 7, 0)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    import os
    os._exit(0)
else:
    sys.stdin.read()
"""


def ranks_of(tmp_path, mode):
    """Runs two processes with torch.distributed; returns the output of the first, and of the second
    if it must end by itself."""
    place = str(tmp_path / f"store-{mode}")
    second = forked.Popen(
        [sys.executable, "-c", GATHERING, place, "1", mode],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        first = run_forked(GATHERING, place, "0", mode)
        if mode == "present":
            return first.stdout, second.communicate(timeout=600)[0]
        return first.stdout, None
    finally:
        second.kill()
        second.wait()


def test_torch_distributed_gathers(tmp_path):
    first, second = ranks_of(tmp_path, "present")
    assert first == "[0, 1] 1.5 None\n"  # a group of another size than the loader's is not used
    assert second.startswith("[0, 1] 1.5")


def test_ctrl_c_while_a_rank_is_missing(tmp_path):
    assert ranks_of(tmp_path, "absent")[0] == "interrupted\n"
