"""Writes packs as docs/design.md describes them, without the library."""

import ctypes
import struct
from collections.abc import Sequence
from pathlib import Path

_xxhash = ctypes.CDLL("libxxhash.so.0")
_xxhash.XXH3_64bits.restype = ctypes.c_uint64
_xxhash.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]

SUPERBLOCK_BYTES = 4096
WRITING, COMPLETE = 1, 2


def xxh3(data: bytes) -> int:
    return _xxhash.XXH3_64bits(data, len(data))


def _aligned(data: bytes, to: int) -> bytes:
    return data + bytes(-len(data) % to)


def write(
    path: Path,
    classes: Sequence[str],
    samples: Sequence[tuple[str, int, bytes]],
    state: int = COMPLETE,
) -> list[int]:
    """Writes a pack of (key, label, bytes); returns the places of the items."""
    arena = bytearray(b"\0")  # the empty text, at offset 0

    def text(value: str) -> int:
        at = len(arena)
        arena.extend(value.encode() + b"\0")
        return at

    class_names = [text(name) for name in classes]
    names = [text(key) for key, _, _ in samples]
    n = len(samples)
    header_bytes, directory_bytes, range_bytes, container_bytes = 88, 64, 32, 24
    fixed = header_bytes + directory_bytes + 8 * len(classes) + 8 * n * 4
    fixed += range_bytes * n + container_bytes + (4 * n + 7) // 8 * 8
    total = fixed + (len(arena) + 7) // 8 * 8
    at = (SUPERBLOCK_BYTES + total + 63) // 64 * 64
    items_offset, offsets = at, []
    for _, _, data in samples:
        offsets.append(at)
        at = (at + len(data) + 63) // 64 * 64
    body = struct.pack("<QIIQQQqqq", 0, 0, 0, 0, n, 0, 0, 0, 0)
    body += struct.pack(f"<{len(classes)}Q", *class_names)
    body += struct.pack(f"<{n}Q", *names)
    body += struct.pack(f"<{n}q", *(len(data) for _, _, data in samples))
    body += struct.pack(f"<{n}q", *[-1] * n)
    body += struct.pack(f"<{n}q", *(label for _, label, _ in samples))
    for offset, (_, _, data) in zip(offsets, samples):
        body += struct.pack("<QQQIHH", offset, xxh3(data), len(data), 0, 0, 1)
    body += struct.pack("<QQq", 0, 0, 0)
    body += _aligned(struct.pack(f"<{n}I", *[0] * n), 8)
    body += _aligned(bytes(arena), 8)
    tail = struct.pack("<QQQQQQQII", total, len(classes), 1, n, len(arena), 1, 0, 1 | 2 | 4, 0)
    assert header_bytes + len(body) == total
    catalog = struct.pack("<8sII", b"HRINDEX\0", 2, 0x01020304)
    catalog += struct.pack("<Q", xxh3(tail + body)) + tail + body
    super_tail = struct.pack("<IiQQQQQ", state, 0, SUPERBLOCK_BYTES, total, items_offset, at, 0)
    super_tail += bytes(SUPERBLOCK_BYTES - 24 - len(super_tail))
    out = struct.pack("<8sIIQ", b"\x89HRPACK\n", 1, 0x01020304, xxh3(super_tail)) + super_tail
    out += catalog
    for offset, (_, _, data) in zip(offsets, samples):
        out += bytes(offset - len(out)) + data
    path.write_bytes(out + bytes(at - len(out)))
    return offsets
