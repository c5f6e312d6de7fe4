#!/usr/bin/env python3
"""Prepares a release: `make release VERSION=0.2.0`.

Writes the version everywhere it stands, gives the changes since the last release their heading, and
commits this. Then it runs the checks, builds the archive, the Debian package and the wheels, all of
that commit, runs the tests, those of the Python package against the wheel, tags the commit, and
prints what is left to do by hand.
It pushes and uploads nothing. After a failure: commit the repair and start it again with the same
version.
"""

import re
import subprocess
import sys
import time
from email.utils import formatdate
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
from check_packaging import VERSIONS, first  # noqa: E402

STEPS = [
    ("the version is the same everywhere", ["tools/check_packaging.py"]),
    ("the repository's own rules hold", ["tools/check.sh"]),
    ("the archive of the C library", ["make", "-s", "dist"]),
    ("the Debian package", ["make", "-s", "deb"]),
    ("wheels and the source distribution", ["make", "-s", "wheels", "WHEELS=x86_64 aarch64 sdist"]),
    ("tests of the library, the command and the tools",
     ["make", "-s", "test", "TEST_ARGS=--without-package"]),
    ("the wheel in empty environments, and the package's tests against it",
     ["tools/wheels/try.sh", "--suite"]),
]
BY_HAND = """
{version} is ready in dist/ and tagged v{version}. What is left:
  1. read the commit `{subject}`, and CHANGELOG.md as its reader will; a repair needs a new tag
  2. git push --follow-tags
  3. twine upload dist/headrace-{version}*.whl dist/headrace-{version}.tar.gz
  4. put dist/headrace-{version}.tar.xz, its .sha256sum, the .deb files and, as their licence (LGPL)
     asks, build-wheels/sources/libmicrohttpd_* and mpg123_* to the tag's page; before that put an
     address that is read into debian/control and debian/changelog, commit it, and `make deb`
"""


def stop(message):
    print(f"release: {message}", file=sys.stderr)
    sys.exit(1)


def numbers(version):
    return tuple(map(int, version.split(".")))


def replaced(name, pattern, new):
    """Replaces the group of each match, or its groups by the numbers of the version."""
    path = ROOT / name
    text = path.read_text(encoding="utf-8")
    for match in reversed(list(re.finditer(pattern, text, re.MULTILINE))):
        parts = new.split(".") if len(match.groups()) > 1 else [new]
        for number in range(len(parts), 0, -1):
            text = text[: match.start(number)] + parts[number - 1] + text[match.end(number) :]
    path.write_text(text, encoding="utf-8")


def write_changes(version):
    path = ROOT / "CHANGELOG.md"
    text = path.read_text(encoding="utf-8")
    changes = re.search(r"^## Unreleased\n(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL)
    if not changes or not changes.group(1).strip():
        stop("CHANGELOG.md has nothing under Unreleased: write what changes for users")
    path.write_text(text.replace("## Unreleased\n", f"## Unreleased\n\n## {version}\n", 1),
                    encoding="utf-8")
    path = ROOT / "debian" / "changelog"
    old = path.read_text(encoding="utf-8")
    owner = re.search(r"^ -- (.*?)  ", old, re.MULTILINE).group(1)
    path.write_text(f"headrace ({version}-1) unstable; urgency=medium\n\n"
                    f"  * New release; see CHANGELOG.md.\n\n -- {owner}  {formatdate()}\n\n{old}",
                    encoding="utf-8")


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE,
                          text=True).stdout


def write_version(version, old):
    if numbers(version) <= numbers(old):
        stop(f"{version} is not newer than {old}")
    write_changes(version)
    for name, pattern in VERSIONS.items():
        if name not in ("CHANGELOG.md", "debian/changelog"):
            replaced(name, pattern, version)
    month = time.strftime("%Y-%m")
    for page in (ROOT / "docs" / "man").glob("*.1"):
        replaced(page.relative_to(ROOT), r"^\.TH \S+ 1 (\d{4}-\d\d) ", month)


def commit(subject):
    git("commit", "-q", "-a", "-m", subject)
    print(f"release: committed as '{subject}'; `git reset --hard HEAD~1` undoes it", flush=True)


def main():
    started = time.monotonic()
    version = sys.argv[1] if len(sys.argv) == 2 else ""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        stop("name the version: make release VERSION=0.2.0")
    if git("tag", "--list", f"v{version}"):
        stop(f"the tag v{version} is there: `git tag -d v{version}` removes one that nobody has")
    old = first("meson.build", VERSIONS["meson.build"])
    # The archives are made of a commit.
    if changed := git("status", "--porcelain", "-uno"):
        stop(f"commit or undo these changes first:\n{changed}")
    subject = f"all: release {version}"
    if version != old:
        write_version(version, old)
        commit(subject)
    for what, command in STEPS:
        minutes = (time.monotonic() - started) / 60
        print(f"release: {minutes:.1f} min: {what}: {' '.join(command)}", flush=True)
        if subprocess.run(command, cwd=ROOT).returncode:
            stop(f"{what}: failed; commit the repair and run the same command again")
    git("tag", "-a", f"v{version}", "-m", f"Headrace {version}")
    print(BY_HAND.format(version=version, subject=subject))


if __name__ == "__main__":
    main()
