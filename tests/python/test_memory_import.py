"""Files of PyTorch's own tools, analysed directly: a trace by torch.profiler of a real training
run, and a snapshot."""

from __future__ import annotations

import json
import pickle

import pytest

torch = pytest.importorskip("torch")

import headrace.memory as memory


def trace(path, stacks):
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
    optimizer = torch.optim.Adam(model.parameters())
    profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU],
                                     schedule=torch.profiler.schedule(
                                         wait=0, warmup=1, active=4, repeat=1),
                                     on_trace_ready=lambda p: p.export_chrome_trace(str(path)),
                                     profile_memory=True, with_stack=stacks, with_modules=stacks)
    kept = []
    with profile:
        for _ in range(5):
            x, y = torch.randn(2048, 64), torch.randint(0, 8, (2048,))
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
            kept.append(torch.zeros(100))
            profile.step()
    return json.loads(path.read_text())


@pytest.mark.parametrize("stacks", [False, True])
def test_kineto(tmp_path, stacks):
    path = tmp_path / "trace.json"
    events = [e for e in trace(path, stacks)["traceEvents"] if e["name"] == "[memory]"]
    events.sort(key=lambda e: (e["ts"], e["args"]["Ev Idx"]))
    found = memory.analyse(path)
    assert found["run"]["allocations"] == "imported"
    assert found["run"]["facts"]["imported from"] == "Kineto trace"
    (device,) = found["devices"]
    totals = [e["args"]["Total Allocated"] for e in events]
    before = totals[0] - events[0]["args"]["Bytes"]
    assert device["peak_bytes"] == max(totals + [before])
    assert device["end_bytes"] == totals[-1]
    allocated = sum(e["args"]["Bytes"] > 0 for e in events)
    assert allocated <= device["blocks"] <= allocated + 300
    # Each point of the timeline is a moment of the trace.
    drawn = {sum(row) for row in zip(*device["timeline"]["bytes"].values())}
    assert drawn <= set(totals) | {before}
    assert found["odd"]["frees"] == found["odd"]["allocations"] == 0
    assert found["pattern"]["marked"] == 4
    memory.write_text([path], tmp_path / "text")
    assert "4 of the profiler" in (tmp_path / "text").read_text()
    assert found["run"]["accesses"] == 0
    assert not [n for n in found["run"]["notes"] if "missing" in n]
    if stacks:
        text = json.dumps(found)
        assert "test_memory_import.py" in text
        assert "Sequential_0" in json.dumps(device["parts"])


def test_snapshot(tmp_path):
    base, path = 0x7F00_0000_0000, tmp_path / "snapshot.pickle"
    frames = [{"filename": "train.py", "line": 7, "name": "step"}]
    made = {
        "segments": [{"device": 0, "address": base, "total_size": 2 << 20, "blocks": [
            {"address": base, "size": 1 << 20, "requested_size": 1 << 20, "state": "active_allocated"},
            {"address": base + (1 << 20), "size": 1 << 20, "requested_size": 0, "state": "inactive"}]}],
        "device_traces": [[
            {"action": "alloc", "addr": base + (1 << 20), "size": 1000, "time_us": 5, "frames": frames},
            {"action": "free_completed", "addr": base + (1 << 20), "size": 1000, "time_us": 9}]],
    }
    path.write_bytes(pickle.dumps(made))
    found = memory.analyse(path)
    (device,) = found["devices"]
    assert device["device"] == "cuda:0"
    assert (device["blocks"], device["peak_bytes"], device["end_bytes"]) == (2, (1 << 20) + 1000, 1 << 20)
    assert device["fragmentation"]["reserved_bytes"] == 2 << 20
    assert "train.py" in json.dumps(device["peak_blocks"])
    assert any("allocated before the trace" in note for note in found["run"]["notes"])
