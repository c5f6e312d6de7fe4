"""Computes the block sizes of PyTorch's CUDA allocator from its memory history.

The history contains the requested sizes. A block may be larger: sizes are rounded up, and a free
block that is only slightly too large is not split. ``torch.cuda.memory_allocated`` counts the
blocks' sizes. This module tracks which addresses are free and applies the allocator's own rules to
them (c10/cuda/CUDACachingAllocator.cpp: round_size, should_split, try_merge_blocks).
"""

from __future__ import annotations

from typing import Any

LEAST = 512  # bytes of the smallest block
SMALL = 1 << 20  # blocks up to this size are split if at least LEAST bytes remain


class Settings:
    """The allocator's settings, from a snapshot's ``allocator_settings``."""

    def __init__(self, given: dict[str, Any] | None = None) -> None:
        given = given or {}
        most = given.get("max_split_size", -1)
        self.max_split = most if isinstance(most, int) and most > 0 else 1 << 62
        self.is_expandable = bool(given.get("expandable_segments", False))
        self.divisions: list[tuple[int, int]] = []  # (least bytes, divisions), sorted
        divisions = given.get("roundup_power2_divisions")
        if isinstance(divisions, dict):
            self.divisions = sorted(
                (int(megabytes) << 20, int(count)) for megabytes, count in divisions.items()
            )

    def rounded(self, size: int) -> int:
        if size < LEAST:
            return LEAST
        count = 0
        # The divisions of the largest power of two below the size. Sizes below the first entry
        # use that one.
        for least, divisions in self.divisions:
            if not count or least <= 1 << (size.bit_length() - 1):
                count = divisions
        if count > 1 and size > LEAST * count:
            return self._rounded_by(size, count)
        return -(-size // LEAST) * LEAST

    @staticmethod
    def _rounded_by(size: int, count: int) -> int:
        if size & (size - 1) == 0:
            return size
        floor = 1 << (size.bit_length() - 1)
        step = floor >> (count.bit_length() - 1)
        return -(-size // step) * step if step else floor << 1


class Blocks:
    """The free and used blocks of one device."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._free: dict[int, int] = {}  # bytes, by address
        self._ends: dict[int, int] = {}  # addresses of free blocks, by their end
        self._begins: set[int] = set()  # of segments: free blocks are not merged across these
        self.used: dict[int, int] = {}  # bytes, by address

    def load(self, segments: list[dict[str, Any]]) -> dict[int, int]:
        """Replaces the state by a snapshot's. Returns the sizes of live blocks, by address."""
        self._free.clear()
        self._ends.clear()
        self._begins.clear()
        self.used.clear()
        live = {}
        for segment in segments:
            address = segment["address"]
            if not segment.get("is_expandable", False):
                self._begins.add(address)
            for block in segment["blocks"]:
                if block["state"] == "inactive":
                    self._add_free(address, block["size"])
                else:
                    self.used[address] = block["size"]
                # Other used blocks are freed already, and wait for a stream to finish with them.
                if block["state"] == "active_allocated":
                    live[address] = block["size"]
                address += block["size"]
        return live

    def segment(self, address: int, size: int, is_mapped: bool) -> None:
        if not is_mapped:
            self._begins.add(address)
        self._add_free(address, size)

    def segment_gone(self, address: int, size: int) -> None:
        self._begins.discard(address)
        found = address if address in self._free else self._around(address)
        if found is None:
            return
        bytes_free = self._take_free(found)
        if found < address:
            self._put_free(found, address - found)
        if found + bytes_free > address + size:
            self._put_free(address + size, found + bytes_free - address - size)

    def alloc(self, address: int, asked: int) -> int:
        """Allocates a block at an address and returns its size, in bytes."""
        size = self._settings.rounded(asked)
        if address in self._free:
            there = self._take_free(address)
            rest = there - size
            if self._splits(size, rest):
                self._put_free(address + size, rest)
            elif rest > 0:
                size = there
        self.used[address] = size
        return size

    def freed(self, address: int) -> None:
        size = self.used.pop(address, 0)
        if size:
            self._add_free(address, size)

    def _splits(self, size: int, rest: int) -> bool:
        if size <= SMALL or self._settings.is_expandable:
            return rest >= LEAST
        return size < self._settings.max_split and rest > SMALL

    def _around(self, address: int) -> int | None:
        for begin, size in self._free.items():
            if begin < address < begin + size:
                return begin
        return None

    def _put_free(self, address: int, size: int) -> None:
        self._free[address] = size
        self._ends[address + size] = address

    def _take_free(self, address: int) -> int:
        size = self._free.pop(address)
        del self._ends[address + size]
        return size

    def _add_free(self, address: int, size: int) -> None:
        before = self._ends.get(address)
        if before is not None and address not in self._begins:
            size += self._take_free(before)
            address = before
        if address + size in self._free and address + size not in self._begins:
            size += self._take_free(address + size)
        self._put_free(address, size)
