"""Parts of make bench-cache that compute: what the kernel's files say."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import chart
import limits


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
