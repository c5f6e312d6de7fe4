#!/usr/bin/env python3
"""Checks the rules for all text files of the project.

Each C, Python and shell file starts with a comment on its purpose. Lines in C have
at most 100 columns. No line ends in blanks, and no tab indents (except in the
Makefile). Absolute paths must be below a folder that every system has, so that no
file depends on one person's machine. Files of more than 800 lines are listed as a
warning.

Usage: check_sources.py [ROOT]. Looks at the files git tracks, or at all of them
where there is no repository. Exit status 1 if something is wrong.
"""

import re
import subprocess
import sys
from pathlib import Path

TEXT = {".c", ".h", ".py", ".pyi", ".sh", ".md", ".build", ".txt", ".toml", ".options", ".yml",
        ".html", ".js", ".css", ""}
CODE = {".c", ".h", ".py", ".sh"}
# First folders of absolute paths that are the same everywhere, and the
# placeholders that documentation uses.
COMMON = {"bin", "boot", "dev", "etc", "lib", "lib64", "opt", "proc", "run", "sbin", "srv", "sys",
          "tmp", "usr", "var", "path", "data", "mnt", "nonexistent", "nowhere"}
# Not part of a longer word, URL, relative path or expression.
ABSOLUTE = re.compile(r"(?<![\w.\-+/:<>{}$%~*)\]\\^|])/([A-Za-z_][\w.\-]*)/[\w.\-]+")
MOST_LINES = 800
MOST_COLUMNS = 100


def files(root):
    listing = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True,
                             check=False)
    if listing.returncode == 0 and listing.stdout:
        names = listing.stdout.decode("utf-8", "surrogateescape").split("\0")
        return sorted(root / name for name in names if name and (root / name).is_file())
    return sorted(p for p in root.rglob("*") if p.is_file() and ".git" not in p.parts)


def is_text(path):
    return path.suffix in TEXT and b"\0" not in path.read_bytes()[:8192]


def begins_with_comment(path, text):
    lines = text.splitlines()
    if lines and lines[0].startswith("#!"):
        lines = lines[1:]
    first = next((line for line in lines if line.strip()), "")
    if path.suffix in {".c", ".h"}:
        return first.startswith("/*")
    if path.suffix == ".sh":
        return first.startswith("#")
    return first.startswith(('"""', "'''", 'r"""', "#"))


def machine_paths(line):
    for match in ABSOLUTE.finditer(line):
        if match.group(1) not in COMMON:
            yield match.group(0)


def check_file(path, name):
    """(problems, warnings) of one file, each "name:line: text"."""
    problems, warnings = [], []
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix in CODE and text.strip() and not begins_with_comment(path, text):
        problems.append(f"{name}:1: begins with no comment on its purpose")
    for number, line in enumerate(text.split("\n"), 1):
        where = f"{name}:{number}"
        if line != line.rstrip() and path.suffix in CODE:
            problems.append(f"{where}: ends in blanks")
        if path.suffix in {".c", ".h"} and len(line) > MOST_COLUMNS:
            problems.append(f"{where}: {len(line)} columns; {MOST_COLUMNS} at most")
        if path.suffix in CODE and re.match(r" *\t", line):
            problems.append(f"{where}: indented with a tab")
        problems.extend(f"{where}: names a place of one machine: {found}"
                        for found in machine_paths(line))
    if path.suffix in CODE and text.count("\n") > MOST_LINES:
        warnings.append(f"{name}: {text.count(chr(10))} lines; is it one thing?")
    if text and not text.endswith("\n") and path.suffix in CODE:
        problems.append(f"{name}: does not end with a newline")
    return problems, warnings


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    problems, warnings, count = [], [], 0
    for path in files(root):
        name = path.relative_to(root)
        if name.parts[:2] == ("tests", "golden") and path.suffix != ".py":
            continue
        if not is_text(path):
            continue
        count += 1
        found, soft = check_file(path, name)
        problems += found
        warnings += soft
    for line in warnings:
        print(f"warning: {line}")
    print("\n".join(problems) or f"sources: {count} files in order")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
