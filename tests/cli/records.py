"""Records of a run on two hosts, made by hand, as `headrace stalls` leaves them."""


def segment(phase, round_, begin, per_batch):
    cold = phase == "cold"
    return {
        "phase": phase, "round": round_, "set": round_, "alone_rank": -1, "batches": 10, "samples": 80,
        "begin_s": begin, "elapsed_s": 10 * per_batch, "process_cpu_s": 8 * per_batch,
        "worker_cpu_s": 0.01, "read_bytes": 80000 if cold else 0, "expected_bytes": 80000,
        "verified": True, "reason": "", "wait_s": [per_batch - 0.01] * 10, "batch_s": [per_batch] * 10,
    }


def record(rank, run="run"):
    """Makes the record of one of two ranks, each on a host of its own. A step takes 10 ms,
    preparation 2 ms more, fetching 3 ms more."""
    times = {"host": 0.010, "warm": 0.012, "cold": 0.015}
    segments, begin = [], 0.0
    for round_ in range(4):
        for phase in list(times)[:: 1 if round_ % 2 == 0 else -1]:
            per_batch = times[phase] * (1 + 0.001 * round_)
            segments.append(segment(phase, round_, begin, per_batch))
            begin += 10 * per_batch + 0.01
    return {
        "headrace_stalls_record": 1, "run": run, "rank": rank, "world_size": 2, "local_rank": 0,
        "local_world_size": 1, "host": f"host{rank}", "command": ["python", "train.py"],
        "started": "2026-01-01T00:00:00Z", "ended": "precise",
        "machine": {"cores": 2, "cpu": "a CPU", "memory_bytes": 1 << 30, "available_bytes": 1 << 29,
                    "device": None},
        "loader": {"kind": "torch", "class": "DataLoader", "workers": 1, "batches_ahead": 2,
                   "batch_size": 8, "cache_bytes": 0},
        "training": {"device": "cpu", "threads": 1, "warm_up_batches": 5},
        "dataset": {"name": "a folder", "samples": 1000, "bytes": 1000000, "sizes": [1000] * 50,
                    "filesystem": "ext4"},
        "phases": {"device": "training runs on the CPU: there is no copy to a device"},
        "segments": segments,
        "drains": [{"phase": "warm", "cores": 2, "samples": 4000, "elapsed_s": 1.0, "cpu_s": 1.0,
                    "read_bytes": 0}],
        "preparation": [],
        "storage": {"depths": [{"depth": 1, "bytes_per_s": 1e6, "reads_per_s": 1000.0}],
                    "memory_bytes_per_s": 1e9},
        "headrace": None, "first_batch_s": 0.1, "notes": [], "files_written": [],
    }
