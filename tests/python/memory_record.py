"""Reads a memory record as docs/memory-format.md describes it, for tests that count events."""

import struct
from collections import namedtuple

Event = namedtuple("Event", "time_ns address bytes what kind phase device flags")
ALLOC, FREE, READ, WRITE, PRESENT, DESCRIBE, MARK, FAILED = range(1, 9)
OUTSIDE, FORWARD, BACKWARD, OPTIMIZER = range(4)
EXTENT = 262144


class Record:
    """Events in the order of their times; names, stacks [(file, function, line)], facts."""

    def __init__(self, path):
        with open(path, "rb") as file:
            data = file.read()
        assert data[:8] == b"HRMEMORY"
        self.events, self.names, self.stacks, self.facts = [], {0: None}, {0: []}, {}
        stacks = {}
        for at in range(4096, len(data), EXTENT):
            magic, kind, _, _, used = struct.unpack_from("<8sIIQQ", data, at)
            if magic != b"HREXTENT":
                continue
            body = data[at + 64 : at + 64 + used]
            if kind == 1:
                self.events += [Event(*e) for e in struct.iter_unpack("<QQQIBBBB", body)]
            elif kind == 2:
                self._texts(body, stacks)
        for number, frames in stacks.items():
            self.stacks[number] = [
                (self.names[file], self.names[function], line)
                for file, function, line, _ in struct.iter_unpack("<IIII", frames)]
        self.events.sort(key=lambda event: event.time_ns)

    def _texts(self, body, stacks):
        at = 0
        while at < len(body):
            number, kind, _, length, _ = struct.unpack_from("<IHHII", body, at)
            text = body[at + 16 : at + 16 + length]
            at += 16 + (length + 7) // 8 * 8
            if kind == 1:
                self.names[number] = text.decode()
            elif kind == 2:
                stacks[number] = text
            else:
                name, _, value = text.decode().partition("=")
                self.facts[name] = value

    def of(self, *kinds, **fields):
        """Returns the events of some kinds whose fields have the given values."""
        return [e for e in self.events if e.kind in kinds
                and all(getattr(e, name) == value for name, value in fields.items())]

    def sizes(self, *kinds, **fields):
        return [e.bytes for e in self.of(*kinds, **fields)]

    def operator(self, event):
        return self.names[event.what]

    def stack(self, event):
        """Returns the lines of an access, or of an allocation."""
        is_access = event.kind in (READ, WRITE)
        return self.stacks[event.bytes & 0xFFFFFFFF if is_access else event.what]

    def blocks(self):
        """Returns each block as a dict: bytes, alloc, free, accesses, and its last description."""
        live, all_blocks = {}, []
        for e in self.events:
            key = e.address, e.device
            if e.kind == PRESENT and key in live:
                continue
            if e.kind in (ALLOC, PRESENT):
                live[key] = {"bytes": e.bytes, "alloc": e, "free": None, "accesses": [],
                             "category": 0, "part": None, "what": None}
                all_blocks.append(live[key])
            elif e.kind == FREE and key in live:
                live.pop(key)["free"] = e
            elif e.kind == DESCRIBE and key in live:
                block = live[key]
                block["category"] = e.bytes & 0xFFFFFFFF or block["category"]
                block["part"] = self.names[e.bytes >> 32] or block["part"]
                block["what"] = self.names[e.what] or block["what"]
            elif e.kind in (READ, WRITE) and key in live:
                live[key]["accesses"].append(e)
        return all_blocks
