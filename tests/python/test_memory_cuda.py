"""PyTorch's CUDA memory history in the record, with a stand-in for the allocator that follows its
rules (rounding, splitting, joining, pools, expandable segments) and returns entries like
``torch.cuda.memory._snapshot``."""

import random
import struct
import threading
import time

import pytest

torch = pytest.importorskip("torch")

from headrace.memory import _cuda  # noqa: E402
from headrace.memory._cuda_blocks import Settings  # noqa: E402

ALLOC, FREE, PRESENT, FAILED, SEGMENT, SEGMENT_FREE = 1, 2, 5, 8, 9, 10
MIB = 1 << 20


class Block:
    def __init__(self, address, size, segment):
        self.address, self.size, self.segment = address, size, segment
        self.asked, self.state = 0, "inactive"


class Allocator:
    """A caching allocator of device 0, and its history."""

    def __init__(self, expandable=False, capacity=1 << 34):
        self.segments = {}  # address: list of blocks in order
        self.blocks = {}  # used ones, by address
        self.expandable, self.capacity = expandable, capacity
        self.next_address = 0x7F0000000000
        self.history, self.max_entries, self.context = None, 0, None
        self.overwritten = 0
        self.count = self.live_bytes = self.peak = 0
        self.lock = threading.RLock()
        self.unix_ahead_ns, self.rate = 1_700_000_000 * 10**9, 1.0
        self.frames = [{"filename": "model.py", "line": 7, "name": "forward"}]
        self.was_enabled_by_another = False

    # -- time and trace --

    def time_us(self):
        return int((self.unix_ahead_ns + time.monotonic_ns() * self.rate) / 1000)

    def trace(self, action, address, size):
        if self.history is None:
            return
        entry = {"action": action, "size": size, "stream": 0, "time_us": self.time_us(),
                 "segment_pool_id": (0, 0)}
        entry["device_free" if action == "oom" else "addr"] = address
        if self.context and action == "alloc":
            entry["frames"] = self.frames
        self.history.append(entry)
        if len(self.history) > self.max_entries:
            del self.history[0]
            self.overwritten += 1

    # -- allocating --

    def find(self, size):
        small = size <= MIB
        free = [b for blocks in self.segments.values() for b in blocks
                if b.state == "inactive" and b.size >= size and b.segment["small"] == small]
        return min(free, key=lambda b: (b.size, b.address), default=None)

    def new_segment(self, size):
        small = size <= MIB
        if self.expandable:
            return self.map_more(size, small)
        bytes_new = 2 * MIB if small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
        if self.reserved() + bytes_new > self.capacity:
            return None
        address = self.next_address
        self.next_address += bytes_new  # adjacent segments must not be joined
        segment = {"address": address, "small": small, "expandable": False}
        self.segments[address] = [Block(address, bytes_new, segment)]
        self.trace("segment_alloc", address, bytes_new)
        return self.segments[address][0]

    def map_more(self, size, small):
        page = 2 * MIB if small else 20 * MIB
        for blocks in self.segments.values():
            if blocks[0].segment["small"] == small:
                break
        else:
            address = self.next_address
            self.next_address += 1 << 32
            blocks = self.segments[address] = []
            segment = {"address": address, "small": small, "expandable": True}
        if blocks:
            segment = blocks[0].segment
        end = blocks[-1].address + blocks[-1].size if blocks else segment["address"]
        have = blocks[-1].size if blocks and blocks[-1].state == "inactive" else 0
        more = -(-(size - have) // page) * page
        if self.reserved() + more > self.capacity:
            return None
        if have:
            blocks[-1].size += more
        else:
            blocks.append(Block(end, more, segment))
        self.trace("segment_map", end, more)
        return blocks[-1]

    def reserved(self):
        return sum(b.size for blocks in self.segments.values() for b in blocks)

    def alloc(self, asked):
        with self.lock:
            size = max(512, -(-asked // 512) * 512)
            block = self.find(size) or self.new_segment(size)
            if block is None:
                self.trace("oom", self.capacity - self.reserved(), asked)
                raise torch.OutOfMemoryError(f"Tried to allocate {asked} bytes")
            rest = block.size - size
            if rest >= 512 if size <= MIB or self.expandable else rest > MIB:
                blocks = self.segments[block.segment["address"]]
                blocks.insert(blocks.index(block) + 1,
                              Block(block.address + size, rest, block.segment))
                block.size = size
            block.state, block.asked = "active_allocated", asked
            self.blocks[block.address] = block
            self.count += 1
            self.live_bytes += block.size
            self.peak = max(self.peak, self.live_bytes)
            self.trace("alloc", block.address, asked)
            return block.address

    def free(self, address, later=False):
        with self.lock:
            block = self.blocks[address]
            self.live_bytes -= block.size
            self.trace("free_requested", address, block.asked)
            if later:  # another stream still uses it
                block.state = "active_pending_free"
            else:
                self.complete(address)

    def complete(self, address):
        block = self.blocks.pop(address)
        self.trace("free_completed", address, block.asked)
        block.state = "inactive"
        blocks = self.segments[block.segment["address"]]
        at = blocks.index(block)
        if at + 1 < len(blocks) and blocks[at + 1].state == "inactive":
            block.size += blocks.pop(at + 1).size
        if at and blocks[at - 1].state == "inactive":
            blocks[at - 1].size += blocks.pop(at).size

    def empty_cache(self):
        for address, blocks in list(self.segments.items()):
            if blocks[0].segment["expandable"]:
                last = blocks[-1]
                if last.state == "inactive":
                    # Whole pages from its end.
                    size = last.size // (2 * MIB) * 2 * MIB
                    if size:
                        self.trace("segment_unmap", last.address + last.size - size, size)
                        last.size -= size
                        if not last.size:
                            blocks.pop()
                if not blocks:
                    del self.segments[address]
            elif len(blocks) == 1 and blocks[0].state == "inactive":
                self.trace("segment_free", address, blocks[0].size)
                del self.segments[address]

    # -- as torch.cuda.memory returns it --

    def record_memory_history(self, enabled="all", context="all", stacks="all",
                              max_entries=1 << 62, device=None, clear_history=False):
        with self.lock:
            if enabled is None:
                self.history = None
                return
            assert (enabled, stacks, context) in {("all", "python", None),
                                                  ("all", "python", "alloc")}
            self.context, self.max_entries = context, max_entries
            if self.history is None or clear_history:
                self.history = []

    def snapshot(self):
        with self.lock:
            segments = []
            for address, blocks in self.segments.items():
                segments.append({
                    "device": 0, "address": address, "total_size": sum(b.size for b in blocks),
                    "stream": 0, "is_expandable": blocks[0].segment["expandable"],
                    "segment_type": "small" if blocks[0].segment["small"] else "large",
                    "blocks": [{"size": b.size, "requested_size": b.asked, "state": b.state}
                               for b in blocks]})
            told = {"segments": segments, "device_traces": [list(self.history or [])],
                    "external_annotations": [],
                    "allocator_settings": {"max_split_size": 2**64 - 1,
                                           "expandable_segments": self.expandable,
                                           "roundup_power2_divisions": {"1": 0, "2": 0}}}
            self.trace("snapshot", 0, self.live_bytes)
            return told

    def stats(self, index):
        assert index == 0
        return {"allocation": {"all": {"allocated": self.count}}}


class Recorder:
    """Stores the data that a recording would write."""

    def __init__(self):
        self.start = time.monotonic_ns()
        self.told, self.facts, self.stacks = [], {}, []

    def now_ns(self):
        return time.monotonic_ns() - self.start

    def events(self, buffer):
        self.told += struct.iter_unpack("<QQQIBBBB", buffer)

    def fact(self, name, value):
        self.facts[name] = value

    def stack(self, frames):
        self.stacks.append(frames)
        return len(self.stacks)

    def replay(self):
        """Replays events; returns the peak and the final live bytes, and the addresses. Raises an
        error for impossible events."""
        live, now, peak, segments = {}, 0, 0, {}
        for ns, address, size, _, kind, _, device, flags in self.told:
            assert device == 1 and not flags and ns > 0
            if kind in (ALLOC, PRESENT):
                assert address not in live, "allocated twice"
                live[address] = size
                now += size
                peak = max(peak, now)
            elif kind == FREE:
                assert live.pop(address) == size
                now -= size
            elif kind == SEGMENT:
                assert address not in segments
                segments[address] = size
            elif kind == SEGMENT_FREE:
                assert segments.pop(address) == size
        return peak, now, live, segments


@pytest.fixture
def fake(monkeypatch):
    return lambda **kwargs: install(monkeypatch, Allocator(**kwargs))


def install(monkeypatch, allocator):
    queued = []

    class Stream:
        cuda_stream = 0

    def marker(size, stream):
        peak = allocator.peak  # of the program itself
        address = allocator.alloc(size)
        allocator.peak = peak
        return address

    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "_lazy_call", queued.append)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: Stream)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda.memory, "get_allocator_backend", lambda: "native")
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history",
                        allocator.record_memory_history)
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", allocator.snapshot)
    for name, function in {
        "_cuda_cudaCachingAllocator_raw_alloc": marker,
        "_cuda_cudaCachingAllocator_raw_delete": allocator.free,
        "_cuda_memoryStats": allocator.stats,
        "_cuda_isHistoryEnabled": lambda: allocator.history is not None,
    }.items():
        monkeypatch.setattr(torch._C, name, function, raising=False)
    allocator.initialise = lambda: [call() for call in queued]
    return allocator


def train(allocator, seed, steps=400, live=None):
    """Allocates and frees at random: small and large blocks, some freed late; the cache is emptied
    now and then."""
    rng = random.Random(seed)
    live = [] if live is None else live
    pending = []
    for _ in range(steps):
        kind = rng.random()
        if kind < 0.5 or not live:
            live.append(allocator.alloc(rng.choice(
                [1, 500, 4096, 100_000, MIB, MIB + 1, 3 * MIB, 9 * MIB, 30 * MIB + 7])))
        elif kind < 0.9:
            later = rng.random() < 0.1
            address = live.pop(rng.randrange(len(live)))
            allocator.free(address, later)
            if later:
                pending.append(address)
        elif kind < 0.95 and pending:
            allocator.complete(pending.pop())
        elif kind > 0.99:
            allocator.empty_cache()
    for address in pending:
        allocator.complete(address)
    return live


@pytest.mark.parametrize("expandable", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_the_peak_is_the_allocators(fake, monkeypatch, expandable, seed):
    allocator = fake(expandable=expandable)
    monkeypatch.setattr(_cuda, "TAKE_NS", 0)
    live = train(allocator, seed + 100, 100)
    recorder = Recorder()
    history = _cuda.begin(recorder)
    allocator.initialise()
    allocator.peak = allocator.live_bytes
    for step in range(5):
        train(allocator, seed + step, live=live)
        history.iteration()
    train(allocator, seed + 50, live=live)
    history.end()
    peak, now, blocks, segments = recorder.replay()
    assert peak == allocator.peak
    assert now == allocator.live_bytes
    assert blocks == {b.address: b.size for b in allocator.blocks.values()}
    assert sum(segments.values()) == allocator.reserved()
    assert sum(kind == PRESENT for *_, kind, _, _, _ in recorder.told) > 0
    assert recorder.facts == {"allocations cuda": "memory history"}
    assert allocator.history is None


def test_nothing_happens_before_cuda_is_initialised(fake):
    allocator = fake()
    recorder = Recorder()
    history = _cuda.begin(recorder)
    history.iteration()
    history.take()
    assert allocator.history is None
    allocator.initialise()
    assert allocator.history == []  # no marker: the device is not in use
    assert allocator.count == 0
    address = allocator.alloc(5000)
    history.end()
    assert [(e[1], e[2], e[4]) for e in recorder.told if e[4] == ALLOC] == [(address, 5120, ALLOC)]


def test_initialised_after_the_end_nothing_begins(fake):
    allocator = fake()
    history = _cuda.begin(Recorder())
    history.end()
    allocator.initialise()
    assert allocator.history is None


@pytest.mark.parametrize("rate", [1.0, 1.002, 0.997])
def test_times_are_the_recorders(fake, rate):
    """The history's clock has another rate, and is never synchronised."""
    allocator = fake()
    allocator.rate = rate
    allocator.alloc(512)
    recorder = Recorder()
    history = _cuda.begin(recorder)
    allocator.initialise()
    expected = []
    for _ in range(5):
        before = recorder.now_ns()
        allocator.alloc(70_000)
        expected.append((before, recorder.now_ns()))
        time.sleep(0.02)
    history.end()
    told = [e[0] for e in recorder.told if e[4] == ALLOC]
    assert len(told) == len(expected)
    for ns, (before, after) in zip(told, expected):
        assert before - 30_000 < ns < after + 30_000


def test_a_clock_that_is_set_does_no_harm(fake):
    allocator = fake()
    allocator.alloc(512)
    recorder = Recorder()
    history = _cuda.begin(recorder)
    allocator.initialise()
    allocator.unix_ahead_ns -= 3600 * 10**9
    before = recorder.now_ns()
    allocator.alloc(70_000)
    history.end()
    times = [e[0] for e in recorder.told]
    assert times == sorted(times)
    assert all(0 < t < before + 10**10 for t in times)


def test_losses_of_the_ring_are_noted_and_corrected(fake, monkeypatch):
    allocator = fake()
    monkeypatch.setattr(_cuda, "MAX_ENTRIES", 60)
    monkeypatch.setattr(_cuda, "TAKE_NS", 1 << 60)
    live = train(allocator, 1, 50)
    recorder = Recorder()
    history = _cuda.begin(recorder)
    allocator.initialise()
    for step in range(5):
        train(allocator, 10 + step, 300, live)
        history.iteration()  # due after a number of allocations
    history.end()
    assert allocator.overwritten > 0
    _, now, blocks, segments = recorder.replay()
    assert set(blocks) == set(allocator.blocks)
    assert sum(segments.values()) == allocator.reserved()
    lost = recorder.facts["note CUDA history"]
    assert "lost" in lost and int(lost.split("lost ")[1].split()[0]) > 100


def test_another_threads_allocations_between_are_corrected(fake):
    allocator = fake()
    allocator.alloc(512)
    recorder = Recorder()
    history = _cuda.begin(recorder)
    allocator.initialise()
    history.take()
    # Like events between the snapshot and the clearing of the ring.
    before = len(allocator.history)
    address = allocator.alloc(9 * MIB)
    allocator.free(allocator.alloc(512))
    del allocator.history[before:]
    history.take()
    history.end()
    _, now, live, segments = recorder.replay()
    assert live[address] == allocator.blocks[address].size
    assert now == allocator.live_bytes and sum(segments.values()) == allocator.reserved()
    assert "lost 2 allocations" in recorder.facts["note CUDA history"]


def test_out_of_memory(fake):
    allocator = fake(capacity=64 * MIB)
    allocator.alloc(20 * MIB)
    recorder = Recorder()
    history = _cuda.begin(recorder)
    allocator.initialise()
    with pytest.raises(torch.OutOfMemoryError):
        allocator.alloc(50 * MIB)
    assert history.take()
    failed = [e for e in recorder.told if e[4] == FAILED]
    assert [e[2] for e in failed] == [50 * MIB]
    history.end()
    assert len([e for e in recorder.told if e[4] == FAILED]) == 1


def test_stacks(fake):
    allocator = fake()
    allocator.alloc(512)
    recorder = Recorder()
    history = _cuda.begin(recorder, stacks=True)
    allocator.initialise()
    allocator.alloc(3000)
    allocator.alloc(3000)
    history.end()
    assert recorder.stacks == [(("model.py", "forward", 7),)]
    assert [e[3] for e in recorder.told if e[4] == ALLOC] == [1, 1]


def test_phases(fake):
    allocator = fake()
    allocator.alloc(512)
    recorder = Recorder()
    history = _cuda.begin(recorder)
    allocator.initialise()
    changes = []
    recorder.phase_changes = lambda: changes
    for phase in (1, 2, 3):
        changes.append((recorder.now_ns(), phase))
        time.sleep(0.005)
        allocator.alloc(70_000)
        time.sleep(0.005)
    history.end()
    assert [e[5] for e in recorder.told if e[4] == ALLOC] == [1, 2, 3]


def test_a_program_that_follows_itself_keeps_its_history(fake):
    allocator = fake()
    allocator.history = ["theirs"]
    recorder = Recorder()
    history = _cuda.begin(recorder)
    allocator.initialise()
    history.take()
    history.end()
    assert allocator.history == ["theirs"]
    assert "itself" in recorder.facts["note CUDA history"]
    assert recorder.told == []


def test_training_goes_on_where_the_history_cannot_be_followed(fake, monkeypatch):
    allocator = fake()
    recorder = Recorder()
    history = _cuda.begin(recorder)
    allocator.initialise()
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: {"segments": []})
    assert not history.take()
    assert "could not be read" in recorder.facts["note CUDA history"]
    history.iteration()
    history.end()


def test_a_whole_recording(fake, tmp_path, monkeypatch):
    """Beside operators on the CPU: both devices are in the record, with the phases of training."""
    import headrace.memory

    allocator = fake()
    monkeypatch.setattr(_cuda, "TAKE_NS", 0)
    monkeypatch.setenv("HEADRACE_CUPTI_LIBRARY", str(tmp_path / "no such library"))
    live = train(allocator, 1, 60)
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    path = tmp_path / "run.hrm"
    with headrace.memory.record(path):
        allocator.initialise()
        allocator.peak = allocator.live_bytes
        for step in range(6):
            train(allocator, step, 60, live)
            loss = model(torch.ones(8, 64)).sum()
            live.append(allocator.alloc(40 * MIB))  # in the forward pass
            loss.backward()
            optimizer.step()
        peak = allocator.peak
        end = allocator.live_bytes
    assert allocator.history is None
    found = headrace.memory.analyse(path)
    assert found["run"]["facts"]["allocations cuda"] == "memory history"
    assert any("CUPTI" in note for note in found["run"]["notes"])
    assert found["check"]["live_negative"] == 0
    devices = {device["device"]: device for device in found["devices"]}
    assert devices["cuda:0"]["peak_bytes"] == peak
    assert devices["cuda:0"]["end_bytes"] == end
    assert devices["cuda:0"]["fragmentation"]["reserved_bytes"] >= allocator.reserved()
    assert devices["cpu"]["blocks"] > 6


@pytest.mark.parametrize("backend", ["pluggable", "cudaMallocAsync"])
def test_other_allocators(fake, monkeypatch, backend):
    allocator = fake()
    monkeypatch.setattr(torch.cuda.memory, "get_allocator_backend", lambda: backend)
    recorder = Recorder()
    history = _cuda.begin(recorder)
    assert history.follows
    allocator.initialise()
    assert not history.follows and allocator.history is None
    assert (backend in recorder.facts.get("note CUDA history", "")) == (backend != "pluggable")
    history.iteration()
    history.end()


def test_a_pytorch_without_cuda(monkeypatch):
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    assert _cuda.begin(Recorder()) is None


def test_rounding_to_divisions_of_powers_of_two():
    """As the comment on PyTorch's function says: with four divisions, 1200 becomes 1280."""
    settings = Settings({"roundup_power2_divisions": {"1": 4, "256": 8, "512": 0}})
    assert settings.rounded(1200) == 1536  # not above 512 bytes a division: of 512
    assert settings.rounded(1200 * 1024) == 1280 * 1024
    assert settings.rounded(5 << 20) == 5 << 20
    assert settings.rounded((5 << 20) + 1) == 6 << 20
    assert settings.rounded((300 << 20) + 1) == 320 << 20
    assert settings.rounded((600 << 20) + 1) == (600 << 20) + 512
    assert Settings().rounded(0) == Settings().rounded(512) == 512
    assert Settings().rounded(513) == 1024


def test_the_names_are_pytorchs():
    """The functions that the stand-in replaces exist in this PyTorch."""
    import pathlib

    for name in ("_record_memory_history", "_snapshot", "get_allocator_backend"):
        assert callable(getattr(torch.cuda.memory, name))
    assert callable(torch.cuda._lazy_call) and callable(torch.cuda.is_current_stream_capturing)
    stubs = pathlib.Path(torch.__file__).parent / "_C" / "__init__.pyi"
    if stubs.exists():
        text = stubs.read_text()
        for name in ("_cuda_cudaCachingAllocator_raw_alloc", "_cuda_cudaCachingAllocator_raw_delete",
                     "_cuda_memoryStats", "_cuda_isHistoryEnabled"):
            assert f"def {name}(" in text
