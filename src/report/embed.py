#!/usr/bin/env python3
"""Generates the C source that embeds the fixed parts of report pages.

    embed.py OUT.c kit STYLE.css [--library LIBRARY.js LICENCE]
        what all pages share: hr__page_style, hr__page_library and hr__page_licence
    embed.py OUT.c NAME STYLE.css BASE.js SCRIPT.js ... [--library LIBRARY.js LICENCE]
        for one kind of page: hr__NAME_page_script, which is the scripts joined in this order, and
        hr__NAME_page_policy, the content security policy that allows only these parts, by
        their SHA-256: a page runs no script but those of the build
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
    # Break lines only after commas, so that no number is cut.
    text, rest = [], ""
    for line in lines:
        whole, comma, rest_of_line = (rest + line).rpartition(",")
        text.append(whole + comma)
        rest = rest_of_line
    text.append(rest)
    body = "\n".join(part for part in text if part)
    return f"extern const char hr__{name}[];\nconst char hr__{name}[] = {{\n{body}}};\n"


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
    out, name, *paths = sys.argv[1:]
    given = paths.index("--library") if "--library" in paths else len(paths)
    style, *scripts = map(read, paths[:given])
    library, licence = map(read, paths[given + 1:]) if given < len(paths) else (b"", b"")
    script = b"".join(scripts)
    for what, end, text in (("style", b"</style", style), ("script", b"</script", script),
                            ("library", b"</script", library)):
        if end in text.lower():
            sys.exit(f"the {what} holds an end tag: it cannot stand within a page")
    if name == "kit":
        parts = {"page_style": style, "page_library": library, "page_licence": licence}
    else:
        parts = {f"{name}_page_script": script,
                 f"{name}_page_policy": policy(style, script, library).encode("ascii")}
    Path(out).write_text("/* The fixed parts of report pages, made by embed.py. */\n"
                         + "\n".join(array(name, text) for name, text in parts.items()),
                         encoding="ascii")


if __name__ == "__main__":
    main()
