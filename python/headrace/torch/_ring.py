"""Slots in shared memory, through which worker processes hand over batches.

The consumer's process owns the :class:`Ring`: one file in memory without a name, which only this
process and its workers can open and which ends with the last of them. A slot is a part of it that
holds the tensors of one batch. The ring gives each task a slot; the worker writes the tensors
there with its :class:`Window` and sends where they lie. The consumer's tensors are views of the
slot, and the slot is free again when the last of them is. So no message on a slot's state crosses
processes, and nothing waits: a task without a free slot goes the way of torch's own DataLoader,
and so do tensors that do not fit or are not plain. Small tensors travel inside the message, so
that keeping the labels of every batch keeps no slots.

The size of slots is learned: each message says how much the batch would have needed.

Before this process forks, the tensors that the consumer holds get memory of their own: the child
has them too, and cannot say when it drops them.
"""

from __future__ import annotations

import ctypes
import io
import mmap
import os
import pickle
import threading
import weakref
from collections import deque
from multiprocessing.reduction import DupFd, ForkingPickler
from typing import Any, TypeAlias

import torch

# A slot as a task names it: its offset in the ring's file and its size in bytes.
Place: TypeAlias = "tuple[int, int]"

_INLINE = 16 << 10  # largest tensor that travels inside the message, in bytes
_LINE = 64  # alignment of a tensor in its slot
_PAGE = 1 << 16  # a multiple of every page size


def _rounded(size: int, unit: int) -> int:
    return -(-size // unit) * unit


_MREMAP_FIXED = 3  # MREMAP_MAYMOVE | MREMAP_FIXED
_FAILED = ctypes.c_void_p(-1).value
_libc = ctypes.CDLL(None)
_libc.mmap.restype = _libc.mremap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.mremap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p,
]  # fmt: skip


class _Slot:
    def __init__(self, file: int, place: Place) -> None:
        self.place = place
        self.memory = mmap.mmap(file, place[1], offset=place[0])
        self.is_own = False  # no longer a part of the file

    def leave(self) -> bool:
        """Replaces the memory by a private copy at the same address, at once for all threads. Returns
        whether there was memory for it."""
        size = self.place[1]
        here = ctypes.addressof((ctypes.c_char * size).from_buffer(self.memory))
        copy = _libc.mmap(
            None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0
        )
        if copy == _FAILED:
            return False
        ctypes.memmove(copy, here, size)
        return bool(_libc.mremap(copy, size, size, _MREMAP_FIXED, here) != _FAILED)


class Ring:
    """The consumer's side. :meth:`unpack` may be called by another thread than the rest.

    Args:
        most: number of slots that it makes at most.
    """

    def __init__(self, most: int) -> None:
        global _count
        _count += 1
        self.number = _count
        rings[self.number] = self
        self.file = os.memfd_create("headrace-batches", os.MFD_CLOEXEC)
        self._end = weakref.finalize(self, os.close, self.file)
        self._most = most
        self._size = 0  # of a slot; 0: not known yet
        self._end_of_file = 0
        self._slots = 0
        self._free: list[_Slot] = []
        self._returned: deque[_Slot] = deque()  # by tensors' ends, in any thread
        self._lent: set[_Slot] = set()  # that the consumer may hold
        self._lock = threading.RLock()  # of slots that come back, against forks
        self._out: dict[int, _Slot] = {}  # of tasks whose batches are not here yet
        self._abandoned: set[int] = set()  # tasks whose batches nobody wants any more

    def take(self, task: int) -> Place | None:
        """Gives a task a free slot, if there is one: the one used last, so that few are touched."""
        with self._lock:
            self._collect()
        slot = self._free.pop() if self._free else self._make()
        if slot is None:
            return None
        self._out[task] = slot
        return slot.place

    def _make(self) -> _Slot | None:
        if not self._size or self._slots == self._most:
            return None
        place = (self._end_of_file, self._size)
        os.ftruncate(self.file, self._end_of_file + self._size)
        self._end_of_file += self._size
        self._slots += 1
        return _Slot(self.file, place)

    def unpack(self, task: int, data: bytes, need: int) -> Any:
        """Returns the batch that a worker packed, as views of the task's slot; None if the task was
        abandoned. New slots will be large enough for a batch that needed ``need`` bytes."""
        if need > self._size:
            self._size = _rounded(need + need // 8, _PAGE)
        if task in self._abandoned:
            return None
        slot = self._out.pop(task, None)
        return _Unpacker(data, None if slot is None else self._lend(slot)).load()

    def abandon(self) -> list[_Slot]:
        """Returns the slots of the tasks whose batches are not here. Give them back when no worker
        can write to them any more."""
        # The thread that pins may take messages meanwhile: each slot is its or ours.
        self._abandoned = set(self._out)
        slots = [self._out.pop(task, None) for task in self._abandoned]
        return [slot for slot in slots if slot is not None]

    def give_back(self, slots: list[_Slot]) -> None:
        self._returned.extend(slots)

    def _lend(self, slot: _Slot) -> Any:
        """Returns a buffer over the slot, which goes back when nothing refers to the buffer."""
        buffer = (ctypes.c_char * slot.place[1]).from_buffer(slot.memory)
        self._lent.add(slot)
        weakref.finalize(buffer, self._returned.append, slot).atexit = False
        return buffer

    def leave_lent(self) -> None:
        """Gives the consumer's tensors memory of their own, and the file new slots in its place."""
        with self._lock:
            for slot in list(self._lent):
                if slot.is_own:
                    continue
                slot.is_own = True  # without memory for a copy its place is not used again
                if slot.leave():
                    self._returned.append(_Slot(self.file, slot.place))

    def stats(self) -> dict[str, int]:
        return {"slots": self._slots, "slot_bytes": self._size}

    def _collect(self) -> None:
        while self._returned:
            slot = self._returned.popleft()
            self._lent.discard(slot)
            if slot.is_own:
                continue
            if slot.place[1] == self._size:
                self._free.append(slot)
                continue
            # Too small since the size grew: give the memory back to the system.
            slot.memory.madvise(mmap.MADV_REMOVE)
            self._slots -= 1
        small = [slot for slot in self._free if slot.place[1] != self._size]
        if small:
            self._returned.extend(small)
            self._free = [slot for slot in self._free if slot.place[1] == self._size]
            self._collect()


_count = 0
rings: weakref.WeakValueDictionary[int, Ring] = weakref.WeakValueDictionary()  # by number


def _before_fork() -> None:
    for ring in list(rings.values()):
        ring.leave_lent()


os.register_at_fork(before=_before_fork, after_in_child=rings.clear)


class Window:
    """A worker's side: the slot of the batch that is being made.

    It can be passed to a process when that is started, by fork or spawn.
    """

    def __init__(self, ring: Ring) -> None:
        self._file, self.ring_number = ring.file, ring.number
        self._ring: Ring | None = ring  # keeps the file open where it is used before the start
        self._maps: dict[int, tuple[int, Any]] = {}  # offset: size, bytes as a tensor
        self.open(None)

    def open(self, place: Place | None) -> None:
        """Begins a batch."""
        self.need = self._used = 0
        self._bytes: Any = None
        if place is None:
            return
        offset, size = place
        known = self._maps.get(offset)
        if known is None:
            memory = mmap.mmap(self._file, size, offset=offset)
            known = self._maps[offset] = (size, torch.frombuffer(memory, dtype=torch.uint8))
        self._bytes = known[1]

    def tensor(self, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor | None:
        """Returns a tensor in the slot, or None if there is no room."""
        size = dtype.itemsize
        for length in shape:
            size *= length
        self.need += _rounded(size, _LINE)
        begin = self._used
        if self._bytes is None or begin + size > len(self._bytes):
            return None
        self._used += _rounded(size, _LINE)
        return self._bytes[begin : begin + size].view(dtype).view(shape)

    def begin_of(self, tensor: torch.Tensor) -> int | None:
        """Returns where in the slot a tensor begins, if it lies there."""
        if self._bytes is None:
            return None
        begin = tensor.data_ptr() - self._bytes.data_ptr()
        return begin if 0 <= begin < len(self._bytes) else None

    def pack(self, batch: Any) -> bytes:
        """Converts a batch to bytes for :meth:`Ring.unpack`, its large tensors to places in the slot."""
        out = io.BytesIO()
        _Packer(out, self).dump(batch)
        return out.getvalue()

    def __getstate__(self) -> dict[str, Any]:
        return {"file": DupFd(self._file), "number": self.ring_number}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._file, self.ring_number = state["file"].detach(), state["number"]
        self._ring = None
        self._maps = {}
        self.open(None)


def is_strided(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor is nothing but its elements, in host memory."""
    return (
        tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not (tensor.requires_grad or tensor.is_quantized or tensor.is_nested)
        and not (tensor.is_conj() or tensor.is_neg())
    )


def is_plain(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor is nothing but its elements, in order, in host memory."""
    return is_strided(tensor) and tensor.is_contiguous()


def is_small(size: int) -> bool:
    """Returns whether a tensor of ``size`` bytes travels inside the message."""
    return size <= _INLINE


class _Packer(ForkingPickler):
    def __init__(self, out: io.BytesIO, window: Window) -> None:
        super().__init__(out, pickle.HIGHEST_PROTOCOL)
        self._window = window
        self._known: dict[int, tuple[Any, Any]] = {}  # id: tensor, its place

    def persistent_id(self, value: Any) -> Any:
        if type(value) is not torch.Tensor or not is_plain(value):
            return None
        known = self._known.get(id(value))
        if known is None:
            known = self._known[id(value)] = (value, self._place(value))
        return known[1]

    def _place(self, tensor: torch.Tensor) -> Any:
        shape, dtype = tuple(tensor.shape), tensor.dtype
        begin = self._window.begin_of(tensor)
        if begin is None and is_small(tensor.nbytes):
            elements = tensor.reshape(-1).view(torch.uint8) if tensor.numel() else tensor
            return len(self._known), dtype, shape, elements.numpy().tobytes()
        if begin is None:
            copy = self._window.tensor(dtype, shape)
            if copy is None:
                return None  # torch's way
            begin = self._window.begin_of(copy.copy_(tensor))
        return len(self._known), dtype, shape, begin


class _Unpacker(pickle.Unpickler):
    def __init__(self, data: bytes, buffer: Any) -> None:
        super().__init__(io.BytesIO(data))
        self._buffer = buffer
        self._known: dict[int, torch.Tensor] = {}

    def persistent_load(self, place: Any) -> torch.Tensor:
        number, dtype, shape, where = place
        tensor = self._known.get(number)
        if tensor is None:
            tensor = self._known[number] = self._tensor(dtype, shape, where)
        return tensor

    def _tensor(self, dtype: torch.dtype, shape: tuple[int, ...], where: Any) -> torch.Tensor:
        count = 1
        for length in shape:
            count *= length
        if not count:
            return torch.empty(shape, dtype=dtype)
        if isinstance(where, int):
            flat = torch.frombuffer(self._buffer, dtype=dtype, count=count, offset=where)
        else:
            flat = torch.frombuffer(bytearray(where), dtype=dtype)
        return flat.view(shape)
