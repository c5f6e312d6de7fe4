"""Ranks under the probe: their coordination, and scripts with several processes."""

from __future__ import annotations

import socket
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import forked
import pytest
from stalls_scripts import measure

torch = pytest.importorskip("torch")

from headrace.stalls import channel as channels  # noqa: E402
from headrace.stalls.channel import Channel, RanksApart, default_address  # noqa: E402


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


TALK = """
import sys, time
from headrace.stalls.channel import Channel
rank, size, folder, address = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4] or None
channel = Channel(rank, size, folder, address)
for round in range(20):
    time.sleep(0.001 * ((rank * 7 + round) % 5))
    everybody = channel.gather([rank, round])
    assert everybody == [[r, round] for r in range(size)], everybody
    said = channel.share({"round": round, "text": "é" * round} if rank == 0 else None)
    assert said["round"] == round
if rank == size - 1:
    channel.publish("news", {"at": 3})
assert channel.ask("news") == {"at": 3} and channel.known("news") and not channel.known("none")
channel.leave()
print("left")
"""


@pytest.mark.parametrize(("where", "size"), [("folder", 4), ("address", 3)])
def test_processes_agree(tmp_path, size, where):
    address = f"127.0.0.1:{free_port()}" if where == "address" else ""

    zygote = forked.plain()

    def talk(rank):
        words = [str(rank), str(size), str(tmp_path), address]
        return forked.run([sys.executable, "-c", TALK, *words], zygote=zygote)

    with ThreadPoolExecutor(size) as threads:
        for done in threads.map(talk, range(size)):
            assert done.returncode == 0 and done.stdout == "left\n", done.stderr
    if where == "folder":
        assert (tmp_path / "channel").stat().st_mode & 0o777 == 0o700


def test_one_rank_needs_nobody(tmp_path):
    alone = Channel(0, 1, str(tmp_path))
    assert alone.gather(5) == [5] and alone.share({"a": 1}) == {"a": 1}
    alone.leave()
    assert not list(tmp_path.iterdir())


def test_a_missing_rank(tmp_path, monkeypatch):
    monkeypatch.setattr(channels, "PATIENCE_S", 0.2)
    first = Channel(0, 3, str(tmp_path))
    with pytest.raises(RanksApart, match="rank 0 waited 0 s for 'adopt'.*in step"):
        first.ask("adopt", 0.05)
    threading.Thread(target=Channel(1, 3, str(tmp_path)).publish, args=("1.1", 7)).start()
    with pytest.raises(RanksApart, match=r"'1\.2'"):
        first.gather(1)


def test_where_ranks_of_several_hosts_meet(monkeypatch):
    assert default_address(4, 4) is None
    monkeypatch.setenv("MASTER_ADDR", "host.of.rank.0")
    monkeypatch.setenv("MASTER_PORT", "29500")
    assert default_address(4, 2) == "host.of.rank.0:29529"
    monkeypatch.delenv("MASTER_PORT")
    with pytest.raises(RanksApart, match="--channel HOST:PORT"):
        default_address(4, 2)


# Scripts

DDP = """
import torch.distributed as dist
import torch.multiprocessing
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.distributed import DistributedSampler

def train(count=128):
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = Slow(count, 0.0005 * (1 + rank))
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
    while True:
        for x, y in loader:
            time.sleep(0.003)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    print("own end")
"""


def check_ranks(measured, size=2):
    assert sorted(measured.records) == list(range(size)), (measured.problems, measured.stderr)
    assert not measured.problems and "own end" not in measured.stdout
    order = [
        [(s["phase"], s["alone_rank"], s["batches"]) for s in measured.records[r]["segments"]]
        for r in range(size)
    ]
    assert all(one == order[0] for one in order), "all ranks change segment at the same batch"
    # One rank a round; a busy machine may have time for fewer rounds than there are ranks, and says so.
    alone = [rank for phase, rank, _ in order[0] if phase == "alone"]
    assert alone or "more than the" in measured.stderr
    assert set(alone) == set(range(min(size, len(alone))))
    for rank, record in measured.records.items():
        assert record["rank"] == rank and record["world_size"] == size
        assert record["run"] == measured.records[0]["run"] and record["ended"] != "script"
        assert record["drains"]


def test_ranks_of_a_launcher(tmp_path):
    measured = measure(
        tmp_path, DDP + 'dist.init_process_group("gloo")\ntrain(130)\n', ranks=2, time_s=8.0
    )
    assert measured.status == 0, measured.stderr
    check_ranks(measured)
    assert measured.records[0]["local_world_size"] == 2


def test_ranks_that_a_script_spawns(tmp_path):
    measured = measure(
        tmp_path,
        DDP
        + textwrap.dedent(
            f"""
            def rank(number):
                dist.init_process_group(
                    "gloo", init_method="tcp://127.0.0.1:{free_port()}", rank=number, world_size=2
                )
                train()

            if __name__ == "__main__":
                torch.multiprocessing.start_processes(rank, nprocs=2, start_method="fork")
                print("after the ranks")
            """
        ),
        fresh=True,
        time_s=8.0,
    )
    assert measured.status == 0, measured.stderr
    assert measured.stdout.endswith("after the ranks\n")
    check_ranks(measured)


def test_a_rank_that_fails(tmp_path):
    """It prints its own traceback; other ranks wait no longer for it than under the script's
    launcher."""
    measured = measure(
        tmp_path,
        DDP
        + textwrap.dedent(
            f"""
            Base = Slow

            class Broken(Base):
                def __getitem__(self, index):
                    if dist.get_rank() == 1 and os.path.exists("run/recording-%d" % os.getpid()):
                        raise KeyError("sample %d is broken" % index)
                    return Base.__getitem__(self, index)

            def rank(number):
                global Slow
                Slow = Broken
                dist.init_process_group(
                    "gloo", init_method="tcp://127.0.0.1:{free_port()}", rank=number, world_size=2
                )
                train()

            if __name__ == "__main__":
                torch.multiprocessing.start_processes(rank, nprocs=2, start_method="fork")
            """
        ),
        fresh=True,
    )
    assert measured.status == 1 and "is broken" in measured.stderr
