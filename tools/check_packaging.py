#!/usr/bin/env python3
"""Checks that what packages the library agrees with it: one version everywhere, one number of the
shared library (libheadrace.so.1, libheadrace1), every library that Meson looks for among those of
wheels and of the Debian package, and on the pages of frameworks the versions that tools/setup.sh
installs.

Usage: check_packaging.py [VERSION]: all must have VERSION, else that of meson.build. Exit status 1
with what differs.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools" / "wheels"))
from complete import PARTS  # noqa: E402
# Where the version stands, and how: in one group, or in three.
VERSIONS = {
    "include/headrace/base.h": r"^#define HR_VERSION_MAJOR (\d+)\n#define HR_VERSION_MINOR (\d+)\n"
                               r"#define HR_VERSION_PATCH (\d+)$",
    "meson.build": r"^  version: '([^']+)'",
    "CHANGELOG.md": r"^## ([0-9]\S*)",
    "debian/changelog": r"^headrace \(([^-)]+)",
    **{f"docs/man/{path.name}": r'^\.TH .*"headrace ([^"]+)"'
       for path in sorted((ROOT / "docs" / "man").glob("*.1"))},
}
# Used by tests alone; and optional, found by src/metrics/meson.build and src/codec/meson.build.
OF_TESTS = "libcmocka-dev"
OF_SYSTEMS = {"libcurl4-openssl-dev"}  # not inside wheels; found by src/storage/meson.build
OPTIONAL = {"libmicrohttpd-dev", "libflac-dev", "libmpg123-dev", "libvorbis-dev"}


def first(name, pattern):
    match = re.search(pattern, (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
    return ".".join(match.groups()) if match else None


def version_faults(wanted):
    for name, pattern in VERSIONS.items():
        found = first(name, pattern)
        if found != wanted:
            yield f"{name}: version {found or 'missing'}, not {wanted}"


def number_faults(root):
    """The number of the shared library, which is part of names."""
    (number,) = re.findall(r"soversion: '(\d+)'", (root / "src" / "meson.build").read_text())
    for name in ("debian/control", "docs/install.md"):
        found = set(re.findall(r"\blibheadrace(?:\.so\.)?(\d+)", (root / name).read_text()))
        if found != {number}:
            yield f"{name}: the shared library is {sorted(found)}, not {number}"
    for path in sorted((root / "debian").glob("libheadrace[0-9]*")):
        if not path.name.startswith(f"libheadrace{number}."):
            yield f"debian/{path.name}: not of libheadrace{number}"


def paragraph(control, start):
    (found,) = (part for part in control.split("\n\n") if part.startswith(start))
    return set(re.findall(r"[a-z0-9][a-z0-9.+-]+-dev\b", found))


def library_faults():
    all_wanted = set(re.findall(r"^    '([a-z0-9-]+-dev)':", (ROOT / "meson.build").read_text(),
                            re.MULTILINE)) - {OF_TESTS} | OPTIONAL
    control = (ROOT / "debian" / "control").read_text()
    found = {
        "tools/wheels/complete.py": {dev for dev, _, _ in PARTS.values()},
        "debian/control, Build-Depends": paragraph(control, "Source: headrace"),
        "debian/control, libheadrace-dev": paragraph(control, "Package: libheadrace-dev") -
                                           {"libheadrace-dev"},
    }
    for name, names in found.items():
        wanted = all_wanted | OF_SYSTEMS if name.startswith("debian") else all_wanted
        for library in sorted(wanted ^ names):
            yield (f"{name}: {library} is missing" if library in wanted else
                   f"{name}: meson.build does not look for {library}")
    script = (ROOT / "tools" / "wheels" / "make.sh").read_text()
    listed = re.search(r'^sources="([^"]*)"', script, re.MULTILINE).group(1).split()
    for name in sorted(set(listed) ^ set(PARTS)):
        yield f"{name} is in only one of tools/wheels/make.sh and complete.py"


def framework_faults():
    script = (ROOT / "tools" / "setup.sh").read_text(encoding="utf-8")
    installed = dict(re.findall(r"\b([a-z-]+)==([0-9.]+)", script))
    installed["pytorch"] = installed["torch"]
    folder = ROOT / "docs" / "frameworks"
    index = (folder / "index.md").read_text(encoding="utf-8")
    pages = sorted(set(folder.glob("*.md")) - {folder / "index.md"})
    for page in pages:
        named = re.findall(r"\b([A-Za-z]+)\s(\d+(?:\.\d+)+)\b", page.read_text(encoding="utf-8"))
        if not named:
            yield f"docs/frameworks/{page.name}: no version that it was tested with"
        for name, version in named:
            whole = installed.get(name.lower(), version)
            if not f"{whole}.".startswith(f"{version}."):
                yield f"docs/frameworks/{page.name}: {name} {version}; tools/setup.sh has {whole}"
            elif whole not in index:
                yield f"docs/frameworks/index.md: {name} {whole} of {page.name} is missing"


def main():
    wanted = sys.argv[1] if len(sys.argv) > 1 else first("meson.build", VERSIONS["meson.build"])
    faults = [*version_faults(wanted), *number_faults(ROOT), *library_faults(), *framework_faults()]
    for fault in faults:
        print(f"packaging: {fault}", file=sys.stderr)
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
