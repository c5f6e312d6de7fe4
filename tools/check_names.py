#!/usr/bin/env python3
"""Checks that one name means one thing.

- The tag of a struct, union or enum is defined in one file of the whole tree:
  library, command, extension, tests and benchmark programs. So a search for it
  finds one thing.
- An enumerator of the library, the command and the extension is defined once.
  Tests and benchmark programs are programs of their own and name their own
  constants.

Usage: check_names.py [ROOT]. Prints each name that is defined twice; exit
status 1 if any.
"""

import collections
import re
import subprocess
import sys
from pathlib import Path

PRODUCT = ("src", "include", "cli", "python/ext")
PROGRAMS = ("tests", "bench")
# Opaque types of the library that stand-ins of tests define anew.
STAND_INS = {"hr__peer_client"}

NOT_CODE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.DOTALL)
TAG = re.compile(r"\b(?:struct|union|enum)\s+(\w+)\s*\{")
ENUM = re.compile(r"\benum\b(?:\s+\w+)?\s*\{([^}]*)\}")
NAME = re.compile(r"\s*([A-Za-z_]\w*)")


def sources(root, folders):
    """C files below the folders: those git tracks, or all where there is no repository."""
    listing = subprocess.run(["git", "-C", str(root), "ls-files", "-z", *folders],
                             capture_output=True, check=False)
    names = [Path(name) for name in listing.stdout.decode().split("\0") if name]
    if not names:
        names = [path.relative_to(root) for folder in folders
                 for path in (root / folder).rglob("*")]
    return sorted(name for name in names
                  if re.search(r"\.[ch](\.in)?$", name.name) and (root / name).is_file())


def definitions(root, name):
    """(tags, enumerators) of one file: lists of (identifier, line)."""
    text = NOT_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()),
                        (root / name).read_text(encoding="utf-8", errors="replace"))
    tags = [(match.group(1), text.count("\n", 0, match.start()) + 1)
            for match in TAG.finditer(text)]
    enumerators = []
    for match in ENUM.finditer(text):
        at = match.start(1)
        for part in match.group(1).split(","):
            found = NAME.match(part)
            if found:
                line = text.count("\n", 0, at + found.start(1)) + 1
                enumerators.append((found.group(1), line))
            at += len(part) + 1
    return tags, enumerators


def doubles(root):
    """Lines about names that are defined more than once."""
    tags, enumerators = collections.defaultdict(list), collections.defaultdict(list)
    product = set(sources(root, PRODUCT))
    for name in sorted(product | set(sources(root, PROGRAMS))):
        found, values = definitions(root, name)
        for tag, line in found:
            tags[tag].append((name, line))
        for enumerator, line in values if name in product else ():
            enumerators[enumerator].append((name, line))
    for what, names in (("tag", tags), ("enumerator", enumerators)):
        for identifier, places in sorted(names.items()):
            if len(places) > 1 and identifier not in STAND_INS:
                for name, line in places[1:]:
                    yield (f"{name}:{line}: the {what} {identifier} is also defined in "
                           f"{places[0][0]}:{places[0][1]}: give one of them another name")


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    found = list(doubles(root))
    print("\n".join(found) or "names: each tag and enumerator is defined once")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
