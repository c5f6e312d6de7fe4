"""Every link of the documents leads to a file that is there, and to a heading that is in it."""

import re

LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.M | re.S)


def anchor(heading):
    """As MkDocs and forges make it."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"[^\w\s-]", "", text.strip().lower())
    return re.sub(r"\s", "-", re.sub(r"[-\s]+", "-", text))


def anchors(path):
    text = FENCE.sub("", path.read_text("utf-8"))
    return {anchor(found) for found in re.findall(r"^#+ (.*)$", text, re.M)}


def documents(root):
    return [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]


def test_links(root):
    broken = []
    for page in documents(root):
        for link in LINK.findall(FENCE.sub("", page.read_text("utf-8"))):
            if "://" in link or link.startswith("mailto:"):
                continue
            path, _, heading = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.is_file():
                broken.append(f"{page.name}: {link}: there is no such file")
            elif heading and heading not in anchors(target):
                broken.append(f"{page.name}: {link}: {target.name} has no such heading")
    assert not broken, "\n".join(broken)


def test_every_page_is_in_the_menu(root):
    menu = set(re.findall(r"^ +- ([\w/-]+\.md)$", (root / "mkdocs.yml").read_text("utf-8"), re.M))
    pages = {str(p.relative_to(root / "docs")) for p in (root / "docs").glob("**/*.md")}
    assert pages <= menu, f"mkdocs.yml does not list {', '.join(sorted(pages - menu))}"
    assert menu - pages == {"index.md", "contributing.md"}


def test_chosen_figures(root):
    """The figures in the tables of choose.md are those of benchmarks.md."""
    results = (root / "docs" / "benchmarks.md").read_text("utf-8")
    rows = re.findall(r"^\|(?! *-).*\d.*$", (root / "docs" / "choose.md").read_text("utf-8"), re.M)
    figures = {f for row in rows for f in re.findall(r"\b\d[\d,.]*\d\b", row)}
    assert len(figures) > 10
    assert not [figure for figure in figures if figure not in results]
