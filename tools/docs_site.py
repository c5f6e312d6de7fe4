"""Hooks of MkDocs: adds to the site what lies outside docs/, so that every link leads somewhere.

The README becomes the first page, CONTRIBUTING.md and each man page a page; examples and headers
that pages link to become files. Pages that mkdocs.yml does not list come last in the menu. Needs
nroff (groff-base) for the man pages.
"""

import html
import os
import posixpath
import re
import subprocess
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md"}
MAN = sorted((ROOT / "docs" / "man").glob("*.1"))
LINK = re.compile(r"(\]\()([^)#\s]+)")


def on_config(config):
    def listed(nav):
        for one in nav.values() if isinstance(nav, dict) else nav:
            yield from [one] if isinstance(one, str) else listed(one)

    pages = {str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").glob("**/*.md")}
    rest = sorted(pages - set(listed(config.nav)))
    if rest:
        config.nav.append({"More": rest})
    config.nav.append({"Man pages": [{f"{m.stem}(1)": f"manual/{m.stem}.md"} for m in MAN]})
    return config


def on_files(files, config):
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text("utf-8")))
    for page in MAN:
        files.append(File.generated(config, f"manual/{page.stem}.md", content=man_page(page)))
    files.append(File.generated(config, "site.css", abs_src_path=str(ROOT / "tools/docs_site.css")))
    for name in sorted(linked_files(config)):
        files.append(File.generated(config, f"source/{name}", abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Turns links of the repository into links of the site."""
    if page.file.src_uri.startswith("manual/"):
        return markdown
    return LINK.sub(lambda m: m.group(1) + site_link(m.group(2), page.file.src_uri), markdown)


def in_repository(link, page):
    """Returns the path from the repository's root that a page links to; None: it is no file."""
    if "://" in link or link.startswith(("mailto:", "/")):
        return None
    folder = "" if page in PAGES.values() else posixpath.dirname(f"docs/{page}")
    path = posixpath.normpath(posixpath.join(folder, link))
    return path if (ROOT / path).is_file() else None


def site_link(link, page):
    path = in_repository(link, page)
    if path is None:
        return link
    if path in PAGES:
        target = PAGES[path]
    else:
        target = path[len("docs/") :] if path.startswith("docs/") else f"source/{path}"
    return posixpath.relpath(target, posixpath.dirname(page) or ".")


def linked_files(config):
    """Returns the files outside docs/ that pages link to and that are no pages."""
    texts = {page: (ROOT / source) for source, page in PAGES.items()}
    docs = Path(config.docs_dir)
    texts |= {str(p.relative_to(docs)): p for p in docs.glob("**/*.md")}
    found = set()
    for page, path in texts.items():
        for match in LINK.finditer(path.read_text("utf-8")):
            name = in_repository(match.group(2), page)
            if name is not None and name not in PAGES and not name.startswith("docs/"):
                found.add(name)
    return found


def man_page(path):
    """Returns a man page as Markdown: what nroff prints, with bold and italics."""
    run = subprocess.run(
        ["nroff", "-c", "-man", "-Tutf8", "-rLL=96n", str(path)],
        capture_output=True, text=True, check=True, env={**os.environ, "GROFF_NO_SGR": "1"},
    )
    text = re.sub(r"\n{3,}", "\n\n", run.stdout.strip())
    return f"# {path.stem}(1)\n\n<pre class=\"man\">{''.join(marked(text))}</pre>\n"


def marked(text):
    """Yields HTML; nroff overstrikes: x, backspace, x is bold, _, backspace, x is italic."""
    now, at = "", 0
    while at < len(text):
        kind, char = "", text[at]
        while at + 2 < len(text) and text[at + 1] == "\b":
            kind, char = ("i" if char == "_" != text[at + 2] else "b"), text[at + 2]
            at += 2
        if kind != now:
            yield (f"</{now}>" if now else "") + (f"<{kind}>" if kind else "")
            now = kind
        yield html.escape(char)
        at += 1
    yield f"</{now}>" if now else ""
