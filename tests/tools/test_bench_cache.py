"""Parts of make bench-cache that compute: Belady's reads, and what the kernel's files say."""

import itertools
import os
import random
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import belady
import chart
import limits


def least_misses(stream, capacity):
    """Tries every choice: keeps some of the cached items and the one just used."""

    @cache
    def best(at, cached):
        if at == len(stream):
            return 0
        have = cached | {stream[at]}
        keep = min(capacity, len(have))
        rest = min(best(at + 1, frozenset(kept))
                   for kept in itertools.combinations(sorted(have), keep))
        return (stream[at] not in cached) + rest

    return best(0, frozenset())


@pytest.mark.parametrize("seed", range(12))
def test_belady_is_the_best_of_all_choices(seed):
    rng = random.Random(seed)
    items, jobs, epochs = rng.randint(3, 5), rng.randint(1, 2), 2
    orders = [[rng.sample(range(items), items) for _ in range(epochs)] for _ in range(jobs)]
    stream = belady.interleave([[i for epoch in job for i in epoch] for job in orders])
    for capacity in range(items + 1):
        reads = sum(belady.misses(stream, [1] * items, capacity))
        assert reads == least_misses(tuple(stream), capacity)
        assert reads == sum(belady.epoch_reads(orders, [1] * items, capacity))


def test_one_job_reads_what_is_not_cached():
    """For one order that uses each item once an epoch, the minimum is D - C."""
    rng = random.Random(0)
    orders = [[rng.sample(range(200), 200) for _ in range(5)]]
    reads = belady.epoch_reads(orders, [10] * 200, 700)
    assert reads[0] == 2000
    # The last epoch has no later uses.
    assert reads[1:4] == [1300, 1300, 1300]


def test_streams_of_jobs_take_turns():
    assert belady.interleave([[1, 2, 3], [4, 5, 6]]) == [1, 4, 2, 5, 3, 6]
    assert belady.next_uses([1, 2, 1, 1]) == [2, belady.NEVER, 3, belady.NEVER]


def test_capacity_is_kept_and_sizes_count():
    sizes = {0: 5, 1: 7, 2: 1}
    assert belady.misses([0, 1, 0, 1], sizes, 12) == [5, 7, 0, 0]
    assert belady.misses([0, 1, 0, 1], sizes, 11) == [5, 7, 0, 7]
    assert belady.misses([2, 1, 2], sizes, 0) == [1, 7, 1]


def test_the_picture_shows_what_was_measured():
    figures = {"reads_over_minimum_35": 1.0, "torch_reads_over_minimum_35": 1.5,
               "torch_reads_over_minimum_80": None}
    title, rows = chart.cache_bars(figures)
    assert rows == [("35 %: Headrace", 1.0, "1.00", True),
                    ("35 %: torch DataLoader", 1.5, "1.50", False)]
    drawn = chart.chart(title, rows)
    assert drawn.count("<rect") == 3 and "35 %: torch DataLoader" in drawn


MOUNTS = """tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0
cgroup /sys/fs/cgroup/blk cgroup rw,blkio,relatime 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0
"""


def test_what_the_kernel_writes_is_understood():
    assert limits.parse_mounts(MOUNTS) == {"memory": "/sys/fs/cgroup/memory",
                                           "blkio": "/sys/fs/cgroup/blk"}
    assert limits.parse_mounts("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n") == {}
    own = "9:name=systemd:/\n7:cpu,blkio:/a\n4:memory:/one/two:three\n0::/\n"
    assert limits.parse_own(own) == {"memory": "one/two:three", "blkio": "a"}
    counts = "8:0 Read 5\n254:0 Read 4096\n254:0 Write 1\n254:0 Total 4097\nTotal 4102\n"
    assert limits.parse_read_bytes(counts, "254:0") == 4096
    assert limits.parse_read_bytes(counts, "254:1") == 0
    stat = "rss 1\ntotal_rss 100\ntotal_shmem 30\ntotal_cache 999\n"
    assert limits.parse_memory(stat) == 130


@pytest.fixture
def group(tmp_path):
    try:
        made = limits.Group("test", tmp_path)
    except limits.Unavailable as reason:
        pytest.skip(str(reason))
    with made:
        yield made


def test_a_group_counts_and_limits(group, tmp_path):
    data = tmp_path / "data"
    data.write_bytes(os.urandom(8 << 20))
    read = [sys.executable, "-c",
            "import os, sys; f = os.open(sys.argv[1], os.O_RDONLY)\n"
            "os.fsync(f); os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)\n"
            "while os.read(f, 1 << 16): pass", str(data)]
    before = group.read_bytes()
    subprocess.run(group.command(read), check=True)
    if group.read_bytes() == before:
        pytest.skip("this machine's control groups count no reads of the temporary folder's disk")
    assert 8 << 20 <= group.read_bytes() - before < 16 << 20
    group.limit_reads(16 << 20)
    start = time.monotonic()
    subprocess.run(group.command(read), check=True)
    assert time.monotonic() - start > 0.3  # half a second at that rate; bursts come first
    group.limit_memory(64 << 20)
    hungry = [sys.executable, "-c", "len(bytearray(256 << 20))"]
    assert subprocess.run(group.command(hungry), check=False).returncode == -9
    assert group.out_of_memory_kills() == 1
    folders = list(group.folders.values())
    group.close()
    assert not any(os.path.exists(folder) for folder in folders)
