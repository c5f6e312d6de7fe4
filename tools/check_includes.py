#!/usr/bin/env python3
"""Checks the include dependencies between the parts of the source tree.

A room is a folder of src/, or a subfolder that BELOW names. A file belongs to the
room with the longest name that is a prefix of the file's path. A room may include
itself, the public headers, and the rooms below it (see BELOW). cli/, python/,
examples/ and benchmark programs include only public headers, and so do public
headers. No file includes a .c file. Includes are written from the root
("room/file.h"), so that each line shows whether it keeps the rule.

Usage: check_includes.py [ROOT]. Prints each breach; exit status 1 if any.
"""

import re
import sys
from pathlib import Path

# What each room may include besides itself: docs/design.md says why.
BELOW = {
    "base": set(),
    "metrics": {"base"},
    "dataset": {"base", "storage"},
    "storage": {"base"},
    "order": {"base"},
    "codec": {"base"},
    "cache": {"base", "dataset", "codec"},
    "recipe": {"base", "codec"},
    "cluster": {"base", "dataset", "order", "cache"},
    "loader": {"base", "dataset", "storage", "order", "codec", "cache", "recipe", "cluster",
               "metrics"},
    "loader/hosts": {"base", "dataset", "order", "cache", "cluster", "loader"},
    "bulk": {"base", "dataset", "storage", "codec", "cache", "recipe", "loader"},
    "stalls/model": {"base", "storage"},
    "stalls/watch": {"base", "dataset", "storage", "cache", "stalls/model", "loader"},
    "agent": {"base", "dataset", "storage", "recipe", "bulk"},
    "agent/server": {"base", "metrics", "dataset", "storage", "cache", "report", "loader", "agent"},
    "agent/client": {"base", "dataset", "recipe", "cache", "loader", "agent"},
    "guard": set(),
    "report": {"base"},
    "stalls/report": {"base", "report", "stalls/model"},
    "memory/record": {"base"},
    "memory/import": {"base", "memory/record"},
    "memory/analysis": {"base", "memory/record"},
    "memory/report": {"base", "report", "memory/record", "memory/import", "memory/analysis"},
    "memory/tap": {"base", "memory/record"},
    "replay": {"base", "report"},
}
# Files that may include more than their room does: create.c puts a loader together.
ALSO = {"loader/create.c": {"loader/hosts"}}
# Programs outside the rooms that measure or test one from inside, and which.
INSIDE = {"bench/reader.c": {"base", "storage"}, "bench/cache_hit.c": {"base", "cache"},
          "bench/fetch.c": {"base", "cluster"}, "bench/plan.c": {"base", "order", "cluster"},
          "bench/policies.c": {"base", "cache"},
          "bench/policies_rules.c": {"base", "cache", "storage"},
          "bench/policies_stream.c": {"base", "order"},
          "bench/kernel_bits.c": {"base", "codec", "recipe"},
          "bench/locks.c": {"base", "storage", "loader"},
          "bench/metrics.c": {"base", "loader"}, "bench/objects.c": {"base", "storage"},
          "bench/disk_tier.c": {"base", "cache", "dataset", "storage", "loader"}}


def room_of(path):
    """The room of a file below src/: the longest folder that BELOW names; None: it has none."""
    parts = path.split("/")[:-1]
    while parts and "/".join(parts) not in BELOW:
        parts.pop()
    return "/".join(parts) or None


INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def includes(path):
    """(line number, quote or angle bracket, what) of each include of a file."""
    text = path.read_text(encoding="utf-8")
    for match in INCLUDE.finditer(text):
        yield text.count("\n", 0, match.start(2)) + 1, match.group(1), match.group(2)


def check_room(root, path, room):
    inside = str(path.relative_to(root / "src"))
    allowed = BELOW[room] | {room} | ALSO.get(inside, set())
    for line, bracket, what in includes(path):
        if bracket == "<":
            continue
        if "/" not in what:
            yield line, f'"{what}" is not written from src/: say "{room}/{what}"'
        elif room_of(what) not in allowed:
            yield line, f'room {room} may not include "{what}": only {", ".join(sorted(allowed))}'
        elif not any((root / "src" / name).is_file() for name in (what, f"{what}.in")):
            yield line, f'"{what}" is no file of src/'


def check_public_only(root, path, rooms=frozenset()):
    for line, bracket, what in includes(path):
        name = room_of(what)
        if name and name not in rooms and (root / "src" / what).is_file():
            yield line, f'"{what}" is inside the library: only <headrace/...> may be included here'
        elif bracket == '"' and not (path.parent / what).is_file() and name not in rooms:
            yield line, f'"{what}" is not a file beside this one'


def check_header(root, path):
    for line, bracket, what in includes(path):
        if bracket == '"':
            yield line, f'"{what}": a public header includes with angle brackets only'
        elif what.startswith("headrace/") and not (root / "include" / what).is_file():
            yield line, f"<{what}> is no public header"


def breaches(root):
    """Every breach below root as "file:line: what"."""
    found = []

    def add(path, problems):
        found.extend(f"{path.relative_to(root)}:{line}: {text}" for line, text in problems)

    for path in sorted(root.glob("src/*/**/*.[ch]")):
        inside = path.relative_to(root / "src")
        room = room_of(str(inside))
        if room:
            add(path, check_room(root, path, room))
        else:
            add(path, [(1, f"room {inside.parts[0]} is unknown: give it its place in "
                           f"{Path(__file__).name}")])
    for folder in ("cli", "python", "examples", "bench"):
        for path in sorted(root.glob(f"{folder}/**/*.[ch]")):
            rooms = INSIDE.get(str(path.relative_to(root)), frozenset())
            add(path, check_public_only(root, path, rooms))
    for path in sorted(root.glob("include/**/*.h")):
        add(path, check_header(root, path))
    for folder in ("src", "cli", "python", "examples", "bench", "include", "tests"):
        for path in sorted(root.glob(f"{folder}/**/*.[ch]")):
            add(path, [(line, f"a source file is included: {what}")
                       for line, _, what in includes(path) if what.endswith(".c")])
    return found


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    if not (root / "src").is_dir():
        print(f"{root} has no src/: is it the root of the project?", file=sys.stderr)
        return 2
    found = breaches(root)
    print("\n".join(found) or "includes: all in order")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
