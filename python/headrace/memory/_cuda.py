"""Records the allocations of PyTorch's CUDA allocator, from its memory history.

The history is a ring buffer in the allocator. It is read and restarted at the ends of iterations,
often enough that it does not overflow.

Its times are in microseconds since 1970, which PyTorch derives from the processor's time stamp
counter. To convert them to the recorder's clock, each piece of the history starts and ends with an
allocation of our own (a marker), whose time is known in both clocks. So neither a wrong calibration
nor a change of the system time matters. An error of 1 to 2 us remains, and events are dated earlier
by that much: a block must appear before the operator that allocated it has ended. Frees tolerate
it, since they come several microseconds after the last operator that uses the block.

Each read also takes a snapshot of the live blocks. It corrects what the trace lacks (because the
ring overflowed, or another thread allocated between the two), and the losses are counted.
"""

from __future__ import annotations

import functools
import struct
import threading
import time
import weakref
from typing import Any

import torch

from ._cuda_blocks import Blocks, Settings

MAX_ENTRIES = 200_000  # capacity of the ring
TAKE_NS = 1_000_000_000  # read the history at the end of an iteration if this much time has passed
MARKER_BYTES = 467  # a size that programs hardly request
EARLY_NS = 1500  # events are dated earlier by this (see above)

ALLOC, FREE, PRESENT, FAILED, SEGMENT, SEGMENT_FREE = 1, 2, 5, 8, 9, 10
EVENT = struct.Struct("<QQQIBBBB")

KINDS = {
    "segment_alloc": SEGMENT,
    "segment_map": SEGMENT,
    "segment_free": SEGMENT_FREE,
    "segment_unmap": SEGMENT_FREE,
}


class Marker:
    """An allocation of our own whose time is known by the recorder's clock."""

    def __init__(self, recording: Any) -> None:
        allocate = torch._C._cuda_cudaCachingAllocator_raw_alloc
        self.ns, self.best = 0, 0
        stream = torch.cuda.current_stream().cuda_stream
        self.pointers = []
        least = 1 << 62
        # Of three, the fastest has the most precise time.
        for _ in range(3):
            begin = recording.now_ns()
            pointer = allocate(MARKER_BYTES, stream)
            took = recording.now_ns() - begin
            torch._C._cuda_cudaCachingAllocator_raw_delete(pointer)
            self.pointers.append(pointer)
            if took < least:
                least, self.ns, self.best = took, begin + took // 2, len(self.pointers) - 1


def mark(recording: Any) -> Marker | None:
    """Allocates a marker on the current device; None if the device is unused or out of memory."""
    try:
        return Marker(recording) if _allocs(torch.cuda.current_device()) else None
    except torch.OutOfMemoryError:
        return None


class Clock:
    """Converts the history's times to the recorder's clock, by a line through two moments.

    Each moment is a pair of ns: by the history's clock and by the recorder's.
    """

    def __init__(self, moments: list[tuple[int, int]]) -> None:
        (self._theirs, self._ours), last = moments[0], moments[-1]
        self._rate = 1.0
        if last[0] - self._theirs > 1_000_000:
            rate = (last[1] - self._ours) / (last[0] - self._theirs)
            # Otherwise the system time was changed in between.
            if 0.99 < rate < 1.01:
                self._rate = rate

    def __call__(self, time_us: int) -> int:
        since = (time_us * 1000 + 500 - self._theirs) * self._rate
        return max(1, self._ours + int(since) - EARLY_NS)


class Device:
    """State of one device's memory, as recorded so far."""

    def __init__(self, index: int, settings: Settings) -> None:
        self.number = 1 + index
        self.blocks = Blocks(settings)
        self.live: dict[int, int] = {}  # bytes, by address
        self.segments: dict[int, int] = {}
        self.last_ns = 0
        self.allocs = 0  # the allocator's count when the current piece of history started


class History:
    """Records the allocator's history from CUDA's initialisation until end()."""

    def __init__(self, recording: Any, stacks: bool) -> None:
        self._recording = recording
        self._context = "alloc" if stacks else None
        self._lock = threading.Lock()
        self._devices: dict[int, Device] = {}
        self._settings = Settings()
        self._stacks: dict[Any, int] = {}
        self._state = "waiting"  # then "following", then "ended"
        self._marker: Marker | None = None
        self._took_ns = 0
        self._counted = 0  # allocations when the history was last read
        self._lost = 0
        self._buffer = bytearray()
        self._record: Any = None  # torch.cuda.memory._record_memory_history, unwrapped
        self._wrapped: Any = None
        # In most scripts CUDA is not initialised yet: wait until the script does that. The
        # reference is weak since PyTorch keeps the function.
        begin = weakref.WeakMethod(self._begin)
        torch.cuda._lazy_call(lambda: (method := begin()) and method())

    # -- called by the recording --

    @property
    def follows(self) -> bool:
        """Whether the history records the CUDA devices' blocks, now or once CUDA is in use."""
        return self._state != "ended"

    def abandon(self) -> None:
        """Ends recording in a forked child. The lock is replaced, since another thread of the
        parent may have held it."""
        self._lock = threading.Lock()
        self._state = "ended"

    def iteration(self) -> None:
        """Called at the end of an iteration: reads the history if that is due."""
        if self._state != "following":
            return
        is_due = self._recording.now_ns() - self._took_ns > TAKE_NS
        if is_due or self._count() - self._counted > MAX_ENTRIES // 8:
            self.take()

    def take(self) -> bool:
        """Reads the whole history into the record. Returns False if that is not possible now."""
        with self._lock:
            if self._state != "following" or is_capturing():
                return False
            self._guarded(self._take)
            return self._state == "following"

    def end(self) -> None:
        """Reads the rest and switches the allocator's history off."""
        self.take()
        with self._lock:
            if self._state == "following":
                self._guarded(lambda: self._record(None))
                self._note_lost()
            self._state = "ended"
            self._unwrap()

    def _leave_it(self) -> None:
        """Stops, since the program starts to record the history itself."""
        if self._state == "following":
            self.end()
            self._recording.fact(
                "note CUDA history",
                "the program began to record PyTorch's memory history itself: from then on, only "
                "blocks of tensors are recorded on CUDA devices")

    def _wrap(self) -> None:
        function, leave = self._record, weakref.WeakMethod(self._leave_it)

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            method = leave()
            if method is not None:
                method()
            return function(*args, **kwargs)

        self._wrapped = torch.cuda.memory._record_memory_history = wrapped

    def _unwrap(self) -> None:
        if self._wrapped and torch.cuda.memory._record_memory_history is self._wrapped:
            torch.cuda.memory._record_memory_history = self._record
        self._wrapped = None

    # -- start --

    def _begin(self) -> None:
        with self._lock:
            if self._state == "waiting":
                self._guarded(self._follow)

    def _guarded(self, function: Any) -> None:
        """Calls a function. If it fails (in another version of PyTorch, say), the recording of the
        history ends with a note, and training goes on."""
        try:
            function()
        except Exception as error:
            self._state = "ended"
            self._recording.fact(
                "note CUDA history",
                f"PyTorch's memory history could not be read ({error}): blocks of CUDA devices are "
                "missing from then on",
            )

    def _follow(self) -> None:
        problem = self._problem()
        if problem is not None:
            self._state = "ended"
            if problem:
                self._recording.fact("note CUDA history", problem)
            return
        self._record = torch.cuda.memory._record_memory_history
        self._enable()
        snapshot = torch.cuda.memory._snapshot()
        self._settings = Settings(snapshot.get("allocator_settings"))
        now = self._recording.now_ns()
        for index, segments in _by_device(snapshot).items():
            device = self._device(index)
            device.live = device.blocks.load(segments)
            device.segments = {s["address"]: s["total_size"] for s in segments}
            device.last_ns = now
            for address, size in device.segments.items():
                self._event(device, now, address, size, SEGMENT)
            for address, size in device.live.items():
                self._event(device, now, address, size, PRESENT)
        self._flush()
        self._state = "following"
        self._recording.fact("allocations cuda", "memory history")
        self._restart()
        self._wrap()

    @staticmethod
    def _problem() -> str | None:
        """Returns why the history cannot be recorded: None if it can, "" if another source (the
        tap) reports the blocks."""
        backend = torch.cuda.memory.get_allocator_backend()
        if backend == "pluggable":
            return ""
        if backend != "native":
            return (f"the CUDA allocator {backend} keeps no history: on CUDA devices only blocks of "
                    "tensors are recorded")
        if torch._C._cuda_isHistoryEnabled():
            return ("the program records PyTorch's memory history itself: on CUDA devices only "
                    "blocks of tensors are recorded")
        return None

    def _enable(self) -> None:
        self._record(
            "all",
            context=self._context,
            stacks="python",
            max_entries=MAX_ENTRIES,
            clear_history=True,
        )

    def _restart(self) -> None:
        """Starts a new piece of history."""
        self._enable()
        for index, device in self._devices.items():
            device.allocs = _allocs(index)
        self._counted = self._count()
        self._marker = mark(self._recording)
        self._took_ns = self._recording.now_ns()

    def _device(self, index: int) -> Device:
        if index not in self._devices:
            self._devices[index] = Device(index, self._settings)
        return self._devices[index]

    def _count(self) -> int:
        """Returns the number of allocations so far on the devices in use."""
        return sum(_allocs(index) for index in {*self._devices, torch.cuda.current_device()})

    # -- reading --

    def _take(self) -> None:
        end = mark(self._recording)
        expected = {index: _allocs(index) for index in self._devices}
        snapshot = torch.cuda.memory._snapshot()
        begin = self._marker
        before = {index: device.allocs for index, device in self._devices.items()}
        self._restart()
        traces = snapshot["device_traces"]
        clock = self._clock(traces, begin, end)
        phases = self._phases()
        hidden = {p for marker in (begin, end) if marker is not None for p in marker.pointers}
        segments = _by_device(snapshot)
        for index, trace in enumerate(traces):
            if not trace and index not in segments and index not in self._devices:
                continue
            device = self._device(index)
            seen = self._take_trace(device, trace, clock, phases, hidden)
            self._lost += max(0, expected.get(index, 0) - before.get(index, 0) - seen)
            self._correct(device, segments.get(index, []))
        self._flush()

    def _clock(self, traces: list[list[dict[str, Any]]], *markers: Marker | None) -> Clock:
        """Makes a clock from the markers found in the traces; without any, from the time of day."""
        moments = []
        for marker, is_last in zip(markers, (False, True)):
            if marker is None:
                continue
            for trace in traces:
                allocs = [
                    entry
                    for entry in (trace[-64:] if is_last else trace[:64])
                    if entry["action"] == "alloc"
                    and entry["size"] == MARKER_BYTES
                    and entry["addr"] in marker.pointers
                ]
                count = len(marker.pointers)
                if len(allocs) >= count:
                    best = allocs[marker.best - count if is_last else marker.best]
                    moments.append((best["time_us"] * 1000 + 500, marker.ns))
                    break
        if not moments:
            now = self._recording.now_ns()
            moments.append((time.time_ns(), now))
        return Clock(moments)

    def _phases(self) -> list[tuple[int, int]]:
        """Returns the changes of phase since the last read, as (ns, phase)."""
        changes = getattr(self._recording, "phase_changes", None)
        return list(changes()) if changes is not None else []

    def _take_trace(
        self,
        device: Device,
        trace: list[dict[str, Any]],
        clock: Clock,
        phases: list[tuple[int, int]],
        hidden: set[int],
    ) -> int:
        """Records a device's trace. Returns the number of allocations in it."""
        seen = 0
        at, phase = 0, phases[0][1] if phases else 0
        ours: set[int] = set()  # live markers
        for entry in trace:
            action, address = entry["action"], entry.get("addr", 0)
            ns = max(clock(entry["time_us"]), device.last_ns + 1)
            device.last_ns = ns
            while at < len(phases) and phases[at][0] <= ns:
                phase = phases[at][1]
                at += 1
            if action == "alloc":
                seen += 1
                size = device.blocks.alloc(address, entry["size"])
                if address in hidden and entry["size"] == MARKER_BYTES:
                    ours.add(address)
                    continue
                if address in device.live:  # the trace lacks its free
                    self._event(device, ns, address, device.live[address], FREE, phase=phase)
                device.live[address] = size
                self._event(device, ns, address, size, ALLOC, self._stack(entry), phase)
            elif action == "free_requested":
                if address in ours:
                    ours.discard(address)
                elif address in device.live:
                    size = device.live.pop(address)
                    self._event(device, ns, address, size, FREE, phase=phase)
            elif action == "free_completed":
                device.blocks.freed(address)
            elif action == "oom":
                self._event(device, ns, 0, entry["size"], FAILED, self._stack(entry), phase)
            elif action in KINDS:
                self._take_segment(device, ns, action, address, entry["size"])
        return seen

    def _take_segment(self, device: Device, ns: int, action: str, address: int, size: int) -> None:
        if KINDS[action] == SEGMENT:
            device.blocks.segment(address, size, action == "segment_map")
            device.segments[address] = size
            self._event(device, ns, address, size, SEGMENT)
            return
        device.blocks.segment_gone(address, size)
        end = address + size
        # Only part of a mapped range may be unmapped: record the rest as new segments.
        for begin, there in list(device.segments.items()):
            if begin >= end or begin + there <= address:
                continue
            del device.segments[begin]
            self._event(device, ns, begin, there, SEGMENT_FREE)
            for rest, until in ((begin, address), (end, begin + there)):
                if rest < until:
                    device.segments[rest] = until - rest
                    self._event(device, ns, rest, until - rest, SEGMENT)

    def _correct(self, device: Device, segments: list[dict[str, Any]]) -> None:
        """Corrects the live blocks by a snapshot taken when the trace ended."""
        recorded = dict(device.live)
        live = device.blocks.load(segments)
        ns = device.last_ns = max(self._took_ns, device.last_ns)
        for address, size in recorded.items():
            if address not in live:
                self._event(device, ns, address, size, FREE)
        for address, size in live.items():
            if address not in recorded:
                self._event(device, ns, address, size, ALLOC)
        # Keep the sizes that are recorded already: these blocks are the same.
        device.live = {address: recorded.get(address, size) for address, size in live.items()}
        self._correct_segments(device, segments, ns)

    def _correct_segments(self, device: Device, segments: list[dict[str, Any]], ns: int) -> None:
        there = sum(segment["total_size"] for segment in segments)
        if there == sum(device.segments.values()):
            return
        for address, size in device.segments.items():
            self._event(device, ns, address, size, SEGMENT_FREE)
        device.segments = {s["address"]: s["total_size"] for s in segments}
        for address, size in device.segments.items():
            self._event(device, ns, address, size, SEGMENT)

    # -- events --

    def _stack(self, entry: dict[str, Any]) -> int:
        if self._context is None or not entry.get("frames"):
            return 0
        frames = tuple((f["filename"], f["name"], f["line"]) for f in entry["frames"][:64])
        if frames not in self._stacks:
            self._stacks[frames] = self._recording.stack(frames)
        return self._stacks[frames]

    def _event(
        self,
        device: Device,
        ns: int,
        address: int,
        size: int,
        kind: int,
        what: int = 0,
        phase: int = 0,
    ) -> None:
        self._buffer += EVENT.pack(ns, address, size, what, kind, phase, device.number, 0)

    def _flush(self) -> None:
        self._recording.events(bytes(self._buffer))
        self._buffer.clear()

    def _note_lost(self) -> None:
        if self._lost:
            self._recording.fact(
                "note CUDA history",
                f"PyTorch's memory history lost {self._lost} allocations (it holds {MAX_ENTRIES} "
                "entries and is read at the ends of iterations): their blocks are missing, or "
                "appear and end late",
            )


def is_capturing() -> bool:
    """Whether a CUDA graph is being captured. False if the device is broken: the training reports
    that error."""
    try:
        return bool(torch.cuda.is_current_stream_capturing())
    except RuntimeError:
        return False


def _by_device(snapshot: dict[str, Any]) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for segment in snapshot["segments"]:
        found.setdefault(segment["device"], []).append(segment)
    return found


def _allocs(index: int) -> int:
    """Returns the number of allocations on a device since its allocator was created."""
    return int(torch._C._cuda_memoryStats(index)["allocation"]["all"]["allocated"])


def begin(recording: Any, stacks: bool = False) -> History | None:
    """Records PyTorch's CUDA allocator from now on, or as soon as CUDA is initialised.

    Returns None if this PyTorch is built without CUDA. ``follows`` becomes False if the allocator
    is not PyTorch's native one or has no history to read.

    Args:
        recording: has now_ns(), events(buffer), stack(frames) and fact(name, value).
        stacks: whether to record the Python call stack of each allocation.
    """
    # Asking for devices here would initialise CUDA, and processes forked later could not use it.
    return History(recording, stacks) if torch.backends.cuda.is_built() else None
