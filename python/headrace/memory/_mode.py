"""The dispatch mode that records: what an operator does, by its schema; the hot half is in
C (ext/memory.c)."""

from __future__ import annotations

import os
import struct
import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .. import _core
from ._phases import Phases

IGNORED, NO_WRITE, ALIASES, KWARGS, NO_READ, MAYBE = 1, 2, 4, 8, 16, 32

# Outputs without contents, of arguments whose contents are not looked at.
EMPTY = {
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided",
}  # fmt: skip
# Look at no more than the shape of their argument.
LIKE = {
    "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like",
    "new_zeros", "new_ones", "new_full",
}  # fmt: skip
# Views, though their schemas do not say so.
VIEWS = {"_unsafe_view", "unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk"}
# Change what a tensor is, not what is in it.
METADATA = {"resize_", "resize_as_", "record_stream"}
# Bring in memory that no operator allocated: torch.tensor, from_numpy, a worker's batch.
BRING = {"set_", "lift", "lift_fresh"}


class _Reference(weakref.ref):  # type: ignore[type-arg]
    """Of a storage; what is in it is set by the C half."""

    __slots__ = ("address", "device")


def flags_of(func: Any) -> tuple[int, int, str]:
    """Flags, bits of the positional arguments that it writes, and names of the others."""
    schema = getattr(func, "_schema", None)
    if schema is None:  # a higher-order operator: what it calls is not seen
        return IGNORED, 0, ""
    name = schema.name.split("::")[-1]
    written = flags = 0
    for position, argument in enumerate(a for a in schema.arguments if not a.kwarg_only):
        alias = argument.alias_info
        if alias is not None and alias.is_write and position < 64:
            written |= 1 << position
    if any(a.kwarg_only and "Tensor" in str(a.type) for a in schema.arguments):
        flags |= KWARGS
    returned = [r.alias_info for r in schema.returns]
    if returned and all(alias is not None for alias in returned):
        flags |= ALIASES
        # A view: nothing is written, and nothing looked at.
        if not written and not any(alias.is_write for alias in returned):
            # Of composite ones (to, reshape, contiguous, in inference mode) maybe a copy.
            flags |= MAYBE if func._can_decompose() else IGNORED
    if name in EMPTY:
        flags |= NO_WRITE | NO_READ
    if name in LIKE:
        flags |= NO_READ
    typed = [str(x.type) for x in (*schema.arguments, *schema.returns)]
    if name in BRING:
        flags = flags & ~IGNORED | MAYBE
    if name in METADATA or name in VIEWS or not any("Tensor" in text for text in typed):
        flags |= IGNORED
    names = " ".join(
        a.name
        for a in schema.arguments
        if a.kwarg_only and a.alias_info is not None and a.alias_info.is_write
    )
    return flags, written, f" {names} "


def _device_of(tensor: Any) -> int:
    device = tensor.device
    return 0 if device.type == "cpu" else 1 + (device.index or 0)


class Recording(_core.MemoryRecorder, TorchDispatchMode):
    """A recording that is going on; a context manager."""

    supports_higher_order_operators = True  # or PyTorch refuses to call them

    def __new__(cls, path: str | os.PathLike[str], limit_bytes: int = 0) -> Recording:
        return super().__new__(cls, os.fspath(path), limit_bytes)

    def __init__(self, path: str | os.PathLike[str], limit_bytes: int = 0) -> None:
        TorchDispatchMode.__init__(self)
        self._phases = Phases(self)
        self.prepare(
            describe=self._describe,
            failed=self._failed,
            address_of=torch._C._storage_address,
            tensor_type=torch.Tensor,
            reference=_Reference,
            name_of=self._name_of,
            device_of=_device_of,
            on_accelerator=torch.cuda.is_available(),
        )
        self.fact("torch", torch.__version__)

    def _describe(self, func: Any) -> bytes:
        flags, written, names = flags_of(func)
        return struct.pack("=IIQ63sx", self.name(str(func)), flags, written, names.encode())

    def _name_of(self, shape: Any, dtype: Any) -> int:
        return self.name(f"{list(shape)} {str(dtype).removeprefix('torch.')}")

    def _failed(self, error: Any) -> None:
        """An operator raised: where memory was short, that is worth a word."""
        text = str(error)
        if isinstance(error, torch.OutOfMemoryError) or "allocate memory" in text:
            self.refused(_bytes_asked(text))

    def close(self) -> None:
        self._phases.end()  # training goes on: its hooks would call what has ended
        super().close()

    def __enter__(self) -> Recording:
        self._phases.begin()
        TorchDispatchMode.__enter__(self)
        return self

    def __exit__(self, *exception: Any) -> None:
        TorchDispatchMode.__exit__(self, *exception)
        self._phases.end()


def _bytes_asked(text: str) -> int:
    """Of a message of one of torch's allocators: "you tried to allocate 123 bytes"."""
    words = text.replace(",", "").split()
    units = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
    for number, unit in zip(words, words[1:]):
        try:
            return int(float(number) * units[unit.strip(".;")])
        except (ValueError, KeyError):
            continue
    return 0
