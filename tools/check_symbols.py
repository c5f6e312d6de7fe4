#!/usr/bin/env python3
"""Checks that the shared library exports exactly the public functions.

Public is what a header in include/ declares with HR_API. A function that is
declared but not exported is a link error for somebody; one that is exported but
not declared is an interface that nobody promised.

Usage: check_symbols.py LIBRARY INCLUDE_FOLDER. Exit status 1 if they differ.
"""

import re
import subprocess
import sys
from pathlib import Path

COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
# From HR_API to the bracket of the arguments: the name is the last word before.
DECLARATION = re.compile(r"^\s*HR_API\b([^;{}()]*?)(\w+)\s*\(", re.MULTILINE)


def declared(include):
    names = set()
    for header in sorted(include.glob("**/*.h")):
        text = COMMENT.sub(" ", header.read_text(encoding="utf-8"))
        # Attributes with arguments would end the search at their bracket.
        text = re.sub(r"__attribute__\s*\(\(.*?\)\)", " ", text)
        names.update(match.group(2) for match in DECLARATION.finditer(text))
    return names


def exported(library):
    """Defined dynamic symbols, without their versions."""
    listing = subprocess.run(
        ["nm", "--dynamic", "--defined-only", "--format=posix", str(library)],
        check=True, capture_output=True, text=True).stdout
    return {line.split()[0].split("@")[0] for line in listing.splitlines() if line.strip()}


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    library, include = Path(sys.argv[1]), Path(sys.argv[2])
    promised, there = declared(include), exported(library)
    if not promised:
        print(f"{include} declares no function with HR_API", file=sys.stderr)
        return 2
    for name in sorted(promised - there):
        print(f"{name}: declared in {include.name}/ and not exported by {library.name}")
    for name in sorted(there - promised):
        print(f"{name}: exported by {library.name} and not declared with HR_API")
    if promised == there:
        print(f"symbols: {len(there)}, all declared")
    return 0 if promised == there else 1


if __name__ == "__main__":
    sys.exit(main())
