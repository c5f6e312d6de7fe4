#!/usr/bin/env python3
"""Checks that no C files call each other in a circle, directly or through others.

A file needs another one if it uses a symbol that the other defines. Files are the object files of
static libraries, so names of folders within a room are part of a name (client_cursor.c).

Usage: check_circles.py LIBRARY.a... Prints each circle with its symbols; exit status 1 if any.
"""

import re
import subprocess
import sys

from check_imports import circles

LINE = re.compile(r"(.*)\[(.*)\.o\]: (\S+) (\w)")


def symbols(libraries):
    """Yields (file, symbol, type) for the global symbols of all object files."""
    listing = subprocess.run(
        ["nm", "--extern-only", "--print-file-name", "--format=posix", *libraries],
        check=True, capture_output=True, text=True).stdout
    for line in listing.splitlines():
        found = LINE.match(line)
        if found:
            library, member, name, kind = found.groups()
            yield f"{library.rpartition('/')[2]}: {member.rpartition('/')[2]}", name, kind


def main():
    libraries = sys.argv[1:]
    if not libraries:
        print(__doc__, file=sys.stderr)
        return 2
    found = list(symbols(libraries))
    defined = {name: file for file, name, kind in found if kind != "U"}
    graph = {file: set() for file, _, _ in found}
    for file, name, kind in found:
        if kind == "U" and defined.get(name, file) != file:
            graph[file].add((name, defined[name]))
    if not any(graph.values()):
        print(f"no calls between files in {' '.join(libraries)}", file=sys.stderr)
        return 2
    groups = list(circles(graph))
    for group in groups:
        print(f"{len(group)} files call each other in a circle: {', '.join(group)}")
        for file in group:
            print(*(f"  {file} uses {name} of {to}" for name, to in sorted(graph[file])
                    if to in group), sep="\n")
    if not groups:
        print(f"{len(graph)} files: no circles")
    return 1 if groups else 0


if __name__ == "__main__":
    sys.exit(main())
