#!/usr/bin/env python3
"""Checks the subjects of commits.

A subject is `room: imperative verb and object`: the rooms or folders that
change, a colon, and a lower-case letter. It should have at most 60 characters; a
longer one is only a warning. A merge is `all: merge ...`. Only commits after
FIRST are checked, because earlier ones followed no such rule. Without history (a
source archive, a shallow clone, one without FIRST) the script prints that it
checked nothing.

Usage: check_commits.py [ROOT [FIRST]]. Exit status 1 if a subject is wrong.
"""

import re
import subprocess
import sys
from pathlib import Path

FIRST = "ce362d576cd40dd56d8d061928452e9b1a522cce"
SUBJECT = re.compile(r"[a-z][a-z0-9_/,+. -]*: [a-z]")
MERGE = "all: merge "
MOST = 60


def git(root, *arguments):
    """What git prints; None where it fails or is not there."""
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True,
                              text=True, errors="replace", check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def why_not(root, first):
    """Why the history cannot be looked at; None: it can."""
    top = git(root, "rev-parse", "--show-toplevel")
    if top is None or Path(top.strip()).resolve() != root:
        return "no repository here"
    if git(root, "rev-parse", "--is-shallow-repository") != "false\n":
        return "a shallow clone"
    if git(root, "merge-base", "--is-ancestor", first, "HEAD") is None:
        return f"a history without commit {first}"
    return None


def problem(parents, subject):
    """What is wrong with a subject; None: nothing."""
    if len(parents) > 1:
        return None if subject.startswith(MERGE) else f'a merge begins with "{MERGE.strip()}"'
    if not SUBJECT.match(subject):
        return 'write "room: imperative verb and object", in lower case'
    return None


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    first = sys.argv[2] if len(sys.argv) > 2 else FIRST
    reason = why_not(root, first)
    if reason:
        print(f"commits: not checked: {reason}")
        return 0
    found, count = 0, 0
    for line in git(root, "log", "--format=%h%x09%p%x09%s", f"{first}..HEAD").splitlines():
        name, parents, subject = line.split("\t", 2)
        count += 1
        wrong = problem(parents.split(), subject)
        if wrong:
            found += 1
            print(f"{name}: {subject}: {wrong}")
        elif len(subject) > MOST and len(parents.split()) < 2:
            print(f"warning: {name}: {len(subject)} characters; {MOST} at most: {subject}")
    if not found:
        print(f"commits: {count} subjects in order")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
