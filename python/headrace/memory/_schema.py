"""Derives from an operator's schema which arguments it reads and writes."""

from __future__ import annotations

import struct
from typing import Any

IGNORED, NO_WRITE, ALIASES, KWARGS, NO_READ, MAYBE, MOVES = 1, 2, 4, 8, 16, 32, 64

# Return uninitialised memory, and read no contents of their arguments.
EMPTY = {
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided",
}  # fmt: skip
# Read only the shape of their argument.
LIKE = {
    "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like",
    "new_zeros", "new_ones", "new_full",
}  # fmt: skip
# Views, though their schemas do not say so.
VIEWS = {"_unsafe_view", "unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk"}
# Change a tensor's metadata, not its contents.
METADATA = {"resize_", "resize_as_", "resize_storage_bytes_", "record_stream"}
# Introduce memory that no operator allocated: torch.tensor, from_numpy, a worker's batch.
BRING = {"set_", "lift", "lift_fresh"}
# Operators that write arguments although their schema does not say so: the positions of those
# arguments, and the position of the flag that enables the write (None: they always do).
RUNNING = {
    "native_batch_norm": ((3, 4), 5),
    "cudnn_batch_norm": ((3, 4), 5),
    "miopen_batch_norm": ((3, 4), 5),
    "batch_norm_gather_stats": ((3, 4), None),
    "batch_norm_gather_stats_with_counts": ((3, 4), None),
    "batch_norm_update_stats": ((1, 2), None),
}


def _bits(positions: tuple[int, ...]) -> int:
    return sum(1 << position for position in positions)


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def flags_of(func: Any) -> tuple[int, int, str]:
    """Returns the flags of an operator, a bit mask of the positional arguments that it writes, and
    the names of the keyword arguments that it writes, each surrounded by spaces."""
    schema = getattr(func, "_schema", None)
    if schema is None:  # a higher-order operator
        return IGNORED, 0, ""
    name = schema.name.split("::")[-1]
    positional = [a for a in schema.arguments if not a.kwarg_only]
    written = _bits(tuple(i for i, a in enumerate(positional) if _is_written(a) and i < 64))
    flags = 0
    if any(a.kwarg_only and "Tensor" in str(a.type) for a in schema.arguments):
        flags |= KWARGS
    returned = [r.alias_info for r in schema.returns]
    if returned and all(alias is not None for alias in returned):
        flags |= ALIASES
        # A view reads and writes no contents.
        if not written and not any(alias.is_write for alias in returned):
            # Composite operators (to, reshape, contiguous in inference mode) may copy instead.
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
    names = " ".join(a.name for a in schema.arguments if a.kwarg_only and _is_written(a))
    # An `out` argument may be reallocated to hold the result.
    if names or name in METADATA:
        flags |= MOVES
    return flags, written, f" {names} "


def pack(func: Any, name_id: int) -> bytes:
    """Packs the description of an operator as struct memory_op of ext/memory_inside.h."""
    flags, written, names = flags_of(func)
    schema = getattr(func, "_schema", None)
    positions, condition = RUNNING.get(schema.name.split("::")[-1] if schema else "", ((), None))
    written_if = 0
    if condition is None:
        written |= _bits(positions)
    else:
        written_if = _bits(positions)
    arguments = schema.arguments if schema else ()
    by_name = _bits(tuple(i for i, a in enumerate(arguments)
                          if a.kwarg_only and _is_written(a) and i < 64))
    text = names.encode()[:63]
    return struct.pack(
        "=IIQQQII63sx", name_id, flags, written, written_if, by_name, condition or 0, 0, text)
