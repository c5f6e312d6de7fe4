#!/usr/bin/env python3
"""Makes the C source that holds the style, scripts and charting library of pages, and for
each kind of page the content security policy that allows its own and nothing else: by
their SHA-256, so that a page runs no script that is not of the build.

Usage: embed.py OUT.c STYLE.css BASE.js STALLS.js WORDS.js LIVES.js MEMORY.js
[LIBRARY.js LICENCE]. A page's script is BASE.js with its own behind it: STALLS.js, or
the three that follow.
"""
import base64
import hashlib
import sys
from pathlib import Path


def read(path):
    text = Path(path).read_bytes()
    text.decode("utf-8")
    return text.replace(b"\r\n", b"\n")


def source(expression):
    digest = hashlib.sha256(expression).digest()
    return "'sha256-" + base64.b64encode(digest).decode("ascii") + "'"


def array(name, data):
    numbers = ",".join(str(b) for b in data + b"\0")
    lines = [numbers[i:i + 4000] for i in range(0, len(numbers), 4000)]
    # Broken only behind commas: a number must not be cut.
    text, rest = [], ""
    for line in lines:
        whole, comma, rest_of_line = (rest + line).rpartition(",")
        text.append(whole + comma)
        rest = rest_of_line
    text.append(rest)
    body = "\n".join(part for part in text if part)
    return f"const char hr__page_{name}[] = {{\n{body}}};\n"


def policy(style, script, library):
    scripts = [source(text) for text in (library, script) if text]
    return "; ".join([
        "default-src 'none'",
        f"style-src {source(style)}",
        f"script-src {' '.join(scripts)}",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ])


def main():
    out = sys.argv[1]
    style, base, stalls, *memory = map(read, sys.argv[2:8])
    library, licence = (read(sys.argv[8]), read(sys.argv[9])) if len(sys.argv) > 9 else (b"", b"")
    script, memory_script = base + stalls, base + b"".join(memory)
    for name, text in (("style", style), ("script", script), ("memory script", memory_script),
                       ("library", library)):
        if b"</" + (b"style" if name == "style" else b"script") in text.lower():
            sys.exit(f"the {name} holds an end tag: it cannot stand within a page")
    parts = {"style": style, "script": script, "memory_script": memory_script,
             "library": library, "licence": licence,
             "policy": policy(style, script, library).encode("ascii"),
             "memory_policy": policy(style, memory_script, library).encode("ascii")}
    Path(out).write_text(
        "/* The fixed parts of a report page, made by embed.py. */\n"
        '#include "report/assets.h"\n\n'
        + "\n".join(array(name, text) for name, text in parts.items()),
        encoding="ascii")


if __name__ == "__main__":
    main()
