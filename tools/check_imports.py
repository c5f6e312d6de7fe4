#!/usr/bin/env python3
"""Checks that no modules of the Python package import each other in a circle.

An import counts wherever it stands: at the top, in a function, or under TYPE_CHECKING. Modules of
an extension count by their stubs (.pyi). That Python runs a package's __init__.py before one of
its modules does not count; importing a name from the package does.

Usage: check_imports.py [ROOT]. Prints each circle with its imports; exit status 1 if any.
"""

import ast
import sys
from pathlib import Path


def modules(root):
    """The file of each module below root/python, by its full name."""
    found = {}
    for path in sorted((root / "python").glob("headrace/**/*.py*")):
        if path.suffix in (".py", ".pyi"):
            parts = path.relative_to(root / "python").with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


def targets(node, package, known):
    """Modules of ours that an import statement names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names if alias.name in known]
    above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
    base = ".".join([*above, *filter(None, [node.module])])
    named = [f"{base}.{alias.name}" for alias in node.names]
    return [one for one in (name if name in known else base for name in named) if one in known]


def imports(name, path, known):
    """(line, module) of each import of one of ours."""
    package = name if path.stem == "__init__" else name.rpartition(".")[0]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from ((node.lineno, one) for one in targets(node, package, known) if one != name)


def reachable(graph, start):
    seen, pending = set(), [start]
    while pending:
        for _, target in graph[pending.pop()]:
            if target not in seen:
                seen.add(target)
                pending.append(target)
    return seen


def circles(graph):
    """Groups of modules in which each one reaches every other."""
    reach = {name: reachable(graph, name) for name in graph}
    left = [name for name in graph if name in reach[name]]
    while left:
        group = [name for name in left if left[0] in reach[name] and name in reach[left[0]]]
        left = [name for name in left if name not in group]
        yield group


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    known = modules(root)
    if not known:
        print(f"{root} has no python/headrace/: is it the root of the project?", file=sys.stderr)
        return 2
    graph = {name: sorted(set(imports(name, path, known))) for name, path in known.items()}
    found = list(circles(graph))
    for group in found:
        print(f"{len(group)} modules import each other in a circle: {', '.join(group)}")
        for name in group:
            path = known[name].relative_to(root)
            print(*(f"  {path}:{line}: {to}" for line, to in graph[name] if to in group), sep="\n")
    if not found:
        print("imports: no circles")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
