#!/usr/bin/env python3
"""Checks that a shared library exports exactly its public functions.

Public functions are those that a header in include/ declares with MARK (HR_API). A
function that is declared but not exported is a link error for its users; one that is
exported but not declared is an accidental interface. NAMEs are functions that the
library exports for other interfaces.

Usage: check_symbols.py LIBRARY INCLUDE_FOLDER [MARK [NAME...]]. Exit status 1 if
they differ.
"""

import re
import subprocess
import sys
from pathlib import Path

COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
# From the mark to the bracket of the arguments: the name is the last word before.
# Exported as soon as a library that is linked refers to symbols of these names, as libvorbis does.
OF_THE_LINKER = {"__bss_start", "_edata", "_end"}
DECLARATION = r"^\s*%s\b([^;{}()]*?)(\w+)\s*\("


def declared(include, mark):
    names = set()
    declaration = re.compile(DECLARATION % re.escape(mark), re.MULTILINE)
    for header in sorted(include.glob("**/*.h")):
        text = COMMENT.sub(" ", header.read_text(encoding="utf-8"))
        # Attributes with arguments would end the search at their bracket.
        text = re.sub(r"__attribute__\s*\(\(.*?\)\)", " ", text)
        names.update(match.group(2) for match in declaration.finditer(text))
    return names


def exported(library):
    """Defined dynamic symbols, without their versions."""
    listing = subprocess.run(
        ["nm", "--dynamic", "--defined-only", "--format=posix", str(library)],
        check=True, capture_output=True, text=True).stdout
    found = {line.split()[0].split("@")[0] for line in listing.splitlines() if line.strip()}
    return found - OF_THE_LINKER


def main():
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    library, include = Path(sys.argv[1]), Path(sys.argv[2])
    mark = sys.argv[3] if len(sys.argv) > 3 else "HR_API"
    promised, there = declared(include, mark), exported(library)
    promised.update(sys.argv[4:])
    if not promised:
        print(f"{include} declares no function with {mark}", file=sys.stderr)
        return 2
    for name in sorted(promised - there):
        print(f"{name}: declared in {include.name}/ and not exported by {library.name}")
    for name in sorted(there - promised):
        print(f"{name}: exported by {library.name} and not declared with {mark}")
    if promised == there:
        print(f"symbols: {len(there)}, all declared")
    return 0 if promised == there else 1


if __name__ == "__main__":
    sys.exit(main())
