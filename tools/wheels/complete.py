#!/usr/bin/env python3
"""Adds to a wheel the licences and the list (SBOM) of the libraries inside, and checks it.

Usage: complete.py WHEEL --work WORK --out FOLDER   writes the complete wheel to FOLDER
       complete.py --check WHEEL                    only checks a complete one

WORK is the folder of make.sh, with the sources that the libraries were built from. The list is
CycloneDX 1.6 in *.dist-info/sboms, licences lie in *.dist-info/licenses, as PEP 770 and PEP 639
say. Exit status 1 with the reasons where a wheel is larger than 4 MB, lacks something, or names the
machine that built it.
"""

import argparse
import base64
import hashlib
import json
import os
import re
import sys
import time
import uuid
import zipfile
from pathlib import Path

MAX_BYTES = 4_000_000
# Of each source package: its development package (libogg comes with libvorbis's), the licence that it
# is used under, and the files with the text beside Debian's `copyright`.
PARTS = {
    "zlib": ("zlib1g-dev", "Zlib", []),
    "xxhash": ("libxxhash-dev", "BSD-2-Clause", []),
    "libspng": ("libspng-dev", "BSD-2-Clause AND libpng-2.0", []),
    "libjpeg-turbo": ("libjpeg-dev", "IJG AND BSD-3-Clause AND Zlib", ["LICENSE.md", "README.ijg"]),
    "libwebp": ("libwebp-dev", "BSD-3-Clause", []),
    "jansson": ("libjansson-dev", "MIT", []),
    "libarchive": ("libarchive-dev", "BSD-2-Clause AND BSD-3-Clause", ["COPYING"]),
    "liburing": ("liburing-dev", "MIT", []),
    "libmicrohttpd": ("libmicrohttpd-dev", "LGPL-2.1-or-later", ["COPYING"]),
    "libogg": ("libvorbis-dev", "BSD-3-Clause", ["COPYING"]),
    "libvorbis": ("libvorbis-dev", "BSD-3-Clause", ["COPYING"]),
    "flac": ("libflac-dev", "BSD-3-Clause", ["COPYING.Xiph"]),
    "mpg123": ("libmpg123-dev", "LGPL-2.1-only", ["COPYING"]),
}
CHART_LICENCE = "MIT"
COMMAND = "headrace/headrace-command"
OUR_SBOM = "sboms/headrace.cdx.json"
ET_DYN = b"\3\0"  # of ELF's e_type
DATE = (1980, 1, 1, 0, 0, 0)


def fail(*reasons):
    for reason in reasons:
        print(f"wheels: {reason}", file=sys.stderr)
    sys.exit(1)


def field(text, name):
    match = re.search(rf"^{name}: (.*)$", text, re.MULTILINE)
    return match.group(1) if match else fail(f"no {name} in {text[:60]!r}")


def source_part(work, name):
    """A library that was built here: its component of the list, and its unpacked source."""
    (description,) = (work / "sources").glob(f"{name}_*.dsc")
    (folder,) = (path for path in (work / "sources").glob(f"{name}-[0-9]*") if path.is_dir())
    text = description.read_text()
    version = field(text, "Version")
    archive = re.search(r"^Checksums-Sha256:\n(?: .*\n)*? (\w{64}) \d+ \S*\.orig\.tar\.\w+$", text,
                        re.MULTILINE)
    purl = f"pkg:deb/debian/{name}@{version}?arch=source"
    return {"type": "library", "bom-ref": purl, "name": name,
            "version": re.sub(r"^\d+:|[+.](?:dfsg|ds).*|-[^-]*$", "", version), "purl": purl,
            "hashes": [{"alg": "SHA-256", "content": archive.group(1)}],
            "licenses": [{"expression": PARTS[name][1]}]}, folder


def chart_part(folder):
    library = (folder / "chart.min.js").read_bytes()
    version = re.search(rb"Chart\.js v([\d.]+)", library).group(1).decode()
    purl = f"pkg:npm/chart.js@{version}"
    return {"type": "library", "bom-ref": purl, "name": "chart.js", "version": version,
            "purl": purl,
            "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(library).hexdigest()}],
            "licenses": [{"expression": CHART_LICENCE}]}


def parts_of(work):
    """(components, {place below licenses/: its bytes})"""
    chart = work / "tools" / "chart"
    components, texts = [], {"chart.js/copyright": (chart / "copyright").read_bytes()}
    for name, (_, _, files) in PARTS.items():
        component, folder = source_part(work, name)
        components.append(component)
        for file in ["debian/copyright", *files]:
            texts[f"{name}/{Path(file).name}"] = (folder / file).read_bytes()
    return [*components, chart_part(chart)], texts


def sbom(version, components):
    purl = f"pkg:pypi/headrace@{version}"
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ",
                          time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())))
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {"timestamp": stamp, "component": {
            "type": "library", "bom-ref": purl, "name": "headrace", "version": version,
            "purl": purl, "licenses": [{"license": {"id": "MIT"}}]}},
        "components": components,
        "dependencies": [{"ref": purl, "dependsOn": [part["bom-ref"] for part in components]}],
    }
    name = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(document, sort_keys=True))
    document["serialNumber"] = f"urn:uuid:{name}"
    return (json.dumps(document, indent=1) + "\n").encode()


def licences_named(metadata, places):
    """The metadata with the licences of all that is inside, and their files."""
    known = [part for _, licence, _ in PARTS.values() for part in licence.split(" AND ")]
    expression = " AND ".join(dict.fromkeys(["MIT", *known]))
    head, _, body = metadata.partition("\n\n")
    lines = [line for line in head.split("\n") if not line.startswith("License-Expression:")]
    files = [f"License-File: {place}" for place in sorted(places)]
    return "\n".join([*lines, f"License-Expression: {expression}", *files]) + "\n\n" + body


def digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def complete(wheel, work, out):
    with zipfile.ZipFile(wheel) as old:
        files = {info.filename: (old.read(info), info.external_attr >> 16)
                 for info in old.infolist() if not info.is_dir()}
    (info,) = {name.split("/")[0] for name in files if name.endswith(".dist-info/METADATA")}
    components, texts = parts_of(work)
    metadata = files[f"{info}/METADATA"][0].decode()
    version = field(metadata, "Version")
    files[f"{info}/METADATA"] = (licences_named(metadata, texts).encode(), 0o100644)
    files[f"{info}/{OUR_SBOM}"] = (sbom(version, components), 0o100644)
    for place, text in texts.items():
        files[f"{info}/licenses/{place}"] = (text, 0o100644)
    del files[f"{info}/RECORD"]
    record = "".join(f"{name},sha256={digest(data)},{len(data)}\n"
                     for name, (data, _) in sorted(files.items()))
    files[f"{info}/RECORD"] = (f"{record}{info}/RECORD,,\n".encode(), 0o100644)
    target = out / wheel.name
    with zipfile.ZipFile(target, "w") as new:
        # The metadata lies at the end, as PEP 427 recommends.
        for name in sorted(files, key=lambda name: (name.startswith(info), name)):
            entry = zipfile.ZipInfo(name, DATE)
            entry.external_attr = (files[name][1] or 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            new.writestr(entry, files[name][0], compresslevel=9)
    return target


def faults(wheel, work=None):
    """What is wrong with a complete wheel, in words."""
    if wheel.stat().st_size > MAX_BYTES:
        yield f"it has {wheel.stat().st_size / 1e6:.2f} MB; {MAX_BYTES / 1e6:.0f} MB are allowed"
    with zipfile.ZipFile(wheel) as archive:
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
        (info,) = {name.split("/")[0] for name in modes if ".dist-info/" in name}
        if not modes.get(COMMAND, 0) & 0o111:
            yield f"{COMMAND} is not there, or not executable"
        elif archive.read(COMMAND)[16:18] != ET_DYN:
            yield f"{COMMAND} is not position-independent"
        listed = {line.rsplit(",", 2)[0]
                  for line in archive.read(f"{info}/RECORD").decode().splitlines()}
        if listed != set(modes):
            yield f"RECORD does not list {', '.join(sorted(listed ^ set(modes)))}"
        metadata = archive.read(f"{info}/METADATA").decode()
        for place in re.findall(r"^License-File: (.*)$", metadata, re.MULTILINE):
            if f"{info}/licenses/{place}" not in modes:
                yield f"the licence {place} is missing"
        components = json.loads(archive.read(f"{info}/{OUR_SBOM}"))["components"]
        differ = {part["name"] for part in components} ^ {*PARTS, "chart.js"}
        if differ:
            yield f"the list of parts and the parts differ: {', '.join(sorted(differ))}"
        for name in modes:
            if work and os.fsencode(work) in archive.read(name):
                yield f"{name} names the folder that it was built in"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    wheel = options.wheel
    if not options.check:
        if not options.work or not options.out:
            parser.error("--work and --out, or --check")
        wheel = complete(wheel, options.work, options.out)
    found = list(faults(wheel, options.work))
    if found:
        fail(*(f"{wheel.name}: {fault}" for fault in found))
    print(f"wheels: {wheel} ({wheel.stat().st_size / 1e6:.2f} MB)")


if __name__ == "__main__":
    main()
