"""The checks of the repository find what they are for: each is run on a small
tree with one breach in it, and on the same tree without."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

HEADER = "/* Public. */\n#define HR_API __attribute__((visibility(\"default\")))\n"


def write(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def check(script, *arguments):
    return subprocess.run([sys.executable, ROOT / "tools" / script, *map(str, arguments)],
                          capture_output=True, text=True, check=False)


@pytest.fixture
def tree(tmp_path):
    write(tmp_path, "include/headrace/base.h", HEADER)
    write(tmp_path, "src/base/error.h", "/* E. */\n#include <headrace/base.h>\n")
    write(tmp_path, "src/storage/reader.h", '/* R. */\n#include "base/error.h"\n')
    write(tmp_path, "src/storage/reader.c",
          '/* R. */\n#include "storage/reader.h"\n#include <stdio.h>\n')
    write(tmp_path, "src/loader/loader.c", '/* L. */\n#include "storage/reader.h"\n')
    write(tmp_path, "src/stalls/model/result.h", '/* R. */\n#include "storage/reader.h"\n')
    write(tmp_path, "src/stalls/report/page.h",
          '/* P. */\n#include "report/table.h"\n#include "stalls/model/result.h"\n')
    write(tmp_path, "src/report/table.h", "/* T. */\n")
    write(tmp_path, "src/recipe/x86/fused.h", '/* F. */\n#include "base/error.h"\n')
    write(tmp_path, "cli/main.c", '/* M. */\n#include <headrace/base.h>\n#include "cmd.h"\n')
    write(tmp_path, "cli/cmd.h", "/* C. */\n")
    return tmp_path


def test_includes_in_order(tree):
    result = check("check_includes.py", tree)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("name, line, said", [
    ("src/base/log.c", '#include "storage/reader.h"', "room base may not include"),
    ("src/storage/probe.c", '#include "loader/inside.h"', "room storage may not include"),
    ("src/storage/probe.c", '  #  include "reader.h"', "not written from src/"),
    ("src/storage/probe.c", '#include "base/none.h"', "no file of src/"),
    ("src/loader/all.c", '#include "storage/reader.c"', "a source file is included"),
    ("src/stalls/model/all.c", '#include "stalls/report/page.h"', "room stalls/model may not include"),
    ("src/stalls/report/page.c", '#include "storage/reader.h"',
     "room stalls/report may not include"),
    ("src/report/page.c", '#include "stalls/model/result.h"', "room report may not include"),
    ("src/memory/a.c", '#include "base/error.h"', "room memory is unknown"),
    ("src/recipe/x86/b.c", '#include "storage/reader.h"', "room recipe may not include"),
    ("src/attic/a.c", '#include "base/error.h"', "room attic is unknown"),
    ("cli/cmd_scan.c", '#include "base/error.h"', "inside the library"),
    ("python/ext/module.c", '#include "storage/reader.h"', "inside the library"),
    ("include/headrace/loader.h", '#include "base.h"', "angle brackets"),
    ("include/headrace/loader.h", "#include <headrace/gone.h>", "no public header"),
])
def test_includes_find(tree, name, line, said):
    write(tree, name, f"/* X. */\n{line}\n")
    result = check("check_includes.py", tree)
    assert result.returncode == 1
    assert said in result.stdout
    assert f"{name}:" in result.stdout


@pytest.fixture
def package(tmp_path):
    write(tmp_path, "python/headrace/__init__.py", "from ._core import f\nfrom .top import g\n")
    write(tmp_path, "python/headrace/_core.pyi", "def f() -> None: ...\n")
    write(tmp_path, "python/headrace/top.py", "from . import _core, low\nfrom .inner import deep\n")
    write(tmp_path, "python/headrace/low.py", "import os\n\nfrom ._core import f\n")
    write(tmp_path, "python/headrace/inner/__init__.py", "from .deep import x\n")
    write(tmp_path, "python/headrace/inner/deep.py", "from .. import low\n")
    return tmp_path


def test_imports_without_circles(package):
    result = check("check_imports.py", package)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("name, line, said", [
    ("low.py", "import headrace.top", "3 modules import each other in a circle"),
    ("low.py", "def f():\n    from .top import g", "low.py:2: headrace.top"),
    ("low.py", "if TYPE_CHECKING:\n    from . import top", "low.py:2: headrace.top"),
    ("low.py", "from . import version", "low.py:1: headrace\n"),
    ("inner/deep.py", "from ..top import g", "top.py:2: headrace.inner.deep"),
    ("inner/deep.py", "from . import x", "deep.py:1: headrace.inner\n"),
])
def test_imports_in_a_circle(package, name, line, said):
    write(package, f"python/headrace/{name}", f"{line}\n")
    result = check("check_imports.py", package)
    assert result.returncode == 1
    assert said in result.stdout


def archive(tmp_path, **sources):
    if not all(map(shutil.which, ("cc", "ar", "nm"))):
        pytest.skip("no C compiler")
    for name, source in sources.items():
        code = write(tmp_path, f"{name}.c", source)
        subprocess.run(["cc", "-c", "-o", tmp_path / f"{name}.o", code], check=True)
    made = tmp_path / "made.a"
    subprocess.run(["ar", "rcs", made, *(tmp_path / f"{name}.o" for name in sources)], check=True)
    return made


def test_calls_in_a_circle(tmp_path):
    top = "int low(void);\nint middle(void);\nint top(void) { return low() + middle(); }\n"
    middle = "int low(void);\nint middle(void) { return low(); }\n"
    made = archive(tmp_path, top=top, middle=middle, low="int low(void) { return 1; }\n")
    result = check("check_circles.py", made)
    assert result.returncode == 0 and "3 files: no circles" in result.stdout
    made = archive(tmp_path, low="int top(void);\nint low(void) { return top(); }\n")
    result = check("check_circles.py", made)
    assert result.returncode == 1
    assert "3 files call each other in a circle" in result.stdout
    assert "low uses top of made.a: top" in result.stdout
    assert check("check_circles.py").returncode == 2


def library(tmp_path, source):
    if not shutil.which("cc") or not shutil.which("nm"):
        pytest.skip("no C compiler")
    code = write(tmp_path, "library.c", source)
    built = tmp_path / "libx.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-fvisibility=hidden", code, "-o", built], check=True)
    return built


PUBLIC = "__attribute__((visibility(\"default\"))) "
DECLARED = HEADER + """
struct hr_thing;
HR_API int hr_one(void);
/* HR_API int hr_never(void); in a comment only */
HR_API __attribute__((warn_unused_result)) const struct hr_thing *
hr_two(int (*callback)(void *arg), void *arg);
int hr_private(void);
"""


@pytest.mark.parametrize("source, said", [
    (PUBLIC + "int hr_one(void) { return 1; }" + PUBLIC + "void *hr_two(void) { return 0; }", None),
    (PUBLIC + "int hr_one(void) { return 1; }", "hr_two: declared"),
    (PUBLIC + "int hr_one(void) { return 1; }" + PUBLIC + "void *hr_two(void) { return 0; }"
     + PUBLIC + "int hr_private(void) { return 1; }", "hr_private: exported"),
    (PUBLIC + "int hr_one(void) { return 1; }" + PUBLIC + "void *hr_two(void) { return 0; }"
     + PUBLIC + "int hr_data;", "hr_data: exported"),
])
def test_symbols(tmp_path, source, said):
    write(tmp_path, "include/headrace/x.h", DECLARED)
    result = check("check_symbols.py", library(tmp_path, source), tmp_path / "include")
    assert result.returncode == (0 if said is None else 1), result.stdout
    if said:
        assert result.stdout.count("\n") == 1
        assert said in result.stdout


def test_symbols_need_a_declaration(tmp_path):
    (tmp_path / "include").mkdir()
    built = library(tmp_path, PUBLIC + "int hr_one(void) { return 1; }")
    assert check("check_symbols.py", built, tmp_path / "include").returncode == 2


PLACE = "/" + "home/somebody/headrace"


@pytest.mark.parametrize("name, text, said", [
    ("a.c", "/* Purpose. */\nint a;\n", None),
    ("a.c", "int a;\n", "no comment on its purpose"),
    ("a.py", "import sys\n", "no comment on its purpose"),
    ("a.py", '#!/usr/bin/env python3\n"""Purpose."""\n', None),
    ("a.sh", "#!/bin/sh\nset -eu\n", "no comment on its purpose"),
    ("a.c", "/* Purpose. */\nint a; \n", "ends in blanks"),
    ("a.c", "/* Purpose. */\n\tint a;\n", "indented with a tab"),
    ("a.c", "/* Purpose. */\nint a;", "end with a newline"),
    ("a.c", "/* Purpose. */\nint " + "a" * 100 + ";\n", "columns"),
    ("a.md", f"Look at `{PLACE}/x`.\n", "a place of one machine"),
    ("a.c", f'/* Purpose. */\nconst char *p = "{PLACE}";\n', "a place of one machine"),
    ("a.md", "See /usr/include/x.h, https://example.org/home/a/b, src/base/a.h, MB/s/core.\n", None),
])
def test_sources(tmp_path, name, text, said):
    write(tmp_path, name, text)
    result = check("check_sources.py", tmp_path)
    assert result.returncode == (0 if said is None else 1), result.stdout
    if said:
        assert f"{name}:" in result.stdout and said in result.stdout


def test_format(tmp_path):
    (tmp_path / "tools").mkdir()
    script = shutil.copy(ROOT / "tools" / "check_format.sh", tmp_path / "tools")
    shutil.copy(ROOT / ".clang-format", tmp_path)
    path = write(tmp_path, "src/base/a.c", "/* A. */\nint main( void ){return 0;}\n")
    result = subprocess.run([script], capture_output=True, text=True, check=False)
    if result.returncode == 77:
        pytest.skip(result.stdout)
    assert result.returncode == 1
    assert "src/base/a.c: not formatted" in result.stdout
    subprocess.run([script, "--fix"], check=True)
    assert "int main(void)\n{\n    return 0;\n}\n" in path.read_text()
    assert subprocess.run([script], check=False, capture_output=True).returncode == 0


@pytest.mark.parametrize("files, said", [
    ({"src/a/a.c": "struct one { int a; };\nstruct two { struct one *one; };\n",
      "tests/t.c": "struct three {\n    enum { A, B } kind;\n};\nstatic enum four { C } d;\n"}, None),
    ({"src/a/a.c": "struct one;\n", "src/b/b.c": "struct one { int a; };\n",
      "cli/c.c": "static struct one x = {1};\n"}, None),
    ({"src/a/a.c": "/* struct one { */ char *s = \"struct one {\";\n",
      "src/b/b.c": "struct one { int a; };\n"}, None),
    ({"src/a/a.c": "enum { A, B = 2 };\n", "tests/t.c": "enum { A };\n",
      "bench/b.c": "enum { B };\n"}, None),
    ({"src/a/a.c": "struct one { int a; };\n", "src/b/b.h": "\nunion one {\n int a; };\n"},
     "src/b/b.h:2: the tag one"),
    ({"src/a/a.c": "struct one { int a; };\n", "tests/t.c": "enum one { A };\n"}, "tests/t.c:1:"),
    ({"bench/b.c": "struct one { int a; };\n", "tests/t.c": "struct one {\n};\n"}, "the tag one"),
    ({"cli/a.c": "enum { A, B = 2 };\n", "src/b.c": "enum b {\n    C,\n    B,\n};\n"},
     "src/b.c:3: the enumerator B"),
    ({"python/ext/a.c": "enum { A };\n", "include/headrace/b.h": "typedef enum { A } b;\n"},
     "the enumerator A"),
])
def test_names(tmp_path, files, said):
    for name, text in files.items():
        write(tmp_path, name, text)
    result = check("check_names.py", tmp_path)
    assert result.returncode == (0 if said is None else 1), result.stdout
    if said:
        assert said in result.stdout


def git(root, *arguments):
    names = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", "-C", root, *names, *arguments], capture_output=True, text=True,
                          check=True).stdout.strip()


def commit(root, subject):
    git(root, "commit", "-q", "--allow-empty", "-m", subject)
    return git(root, "rev-parse", "HEAD")


@pytest.fixture
def history(tmp_path):
    """Makes a repository in which the first commits follow no rule; returns the last of those."""
    if not shutil.which("git"):
        pytest.skip("no git")
    root = tmp_path / "history"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    commit(root, "Begin.")
    return root, commit(root, "More of it")


@pytest.mark.parametrize("subject, said", [
    ("cache: bound the size of an item", None),
    ("memory, guard: name what the observer gives", None),
    ("src/base: start threads in one place", None),
    ("Cache: bound the size of an item", "room: imperative"),
    ("cache: Bound the size of an item", "room: imperative"),
    ("cache:bound the size of an item", "room: imperative"),
    ("bound the size of an item", "room: imperative"),
])
def test_commits(history, subject, said):
    root, first = history
    commit(root, "base: say something")
    commit(root, subject)
    result = check("check_commits.py", root, first)
    assert result.returncode == (0 if said is None else 1), result.stdout
    assert (said or "2 subjects in order") in result.stdout


def test_long_subject_is_only_a_warning(history):
    root, first = history
    commit(root, "cache: " + "say " * 20 + "more")
    result = check("check_commits.py", root, first)
    assert result.returncode == 0 and "warning: " in result.stdout


@pytest.mark.parametrize("subject, code", [("all: merge the work on caches", 0),
                                           ("Merge branch 'side'", 1), ("cache: merge side", 1)])
def test_merge_commits(history, subject, code):
    root, first = history
    git(root, "checkout", "-q", "-b", "side")
    commit(root, "cache: add a side")
    git(root, "checkout", "-q", "main")
    commit(root, "base: add a main")
    git(root, "merge", "-q", "--no-ff", "-m", subject, "side")
    assert check("check_commits.py", root, first).returncode == code


def test_commits_without_history(history, tmp_path):
    root, first = history
    commit(root, "Wrong")
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{root}", tmp_path / "shallow")
    (tmp_path / "plain").mkdir()
    for place, said in ((tmp_path / "shallow", "a shallow clone"),
                        (tmp_path / "plain", "no repository")):
        result = check("check_commits.py", place, first)
        assert result.returncode == 0 and said in result.stdout
    result = check("check_commits.py", root, "0" * 40)
    assert result.returncode == 0 and "without commit" in result.stdout


def test_this_tree_keeps_its_rules():
    for script in ("check_includes.py", "check_imports.py", "check_sources.py", "check_names.py",
                   "check_commits.py"):
        result = check(script, ROOT)
        assert result.returncode == 0, result.stdout


def test_checks_run_from_anywhere(tmp_path):
    environment = dict(os.environ, LC_ALL="C")
    for script in ("check_includes.py", "check_imports.py", "check_sources.py"):
        result = subprocess.run([sys.executable, ROOT / "tools" / script], cwd=tmp_path,
                                env=environment, capture_output=True, check=False)
        assert result.returncode == 0, result.stdout
