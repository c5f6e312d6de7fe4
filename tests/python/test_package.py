"""The package as a whole: imports, version, types, messages."""

import ast
import logging
import sysconfig
from pathlib import Path

import headrace
from conftest import run_python

WITHOUT_TORCH = """
import sys
sys.modules["torch"] = sys.modules["torchvision"] = sys.modules["numpy"] = None
import headrace, headrace.transforms as T
p = headrace.Preparer(T.Compose([T.CenterCrop(8), T.ToDtype("float32", scale=True)]))
row = p(open(sys.argv[1], "rb").read())
print(row.shape, row.dtype, len(memoryview(row)))
"""


def test_import_needs_neither_torch_nor_numpy(folder):
    done = run_python(WITHOUT_TORCH, str(folder / "apple" / "00.jpg"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(3, 8, 8) float32 3\n"


def test_version_and_types_are_there():
    assert headrace.__version__ == headrace._core.version
    here = Path(headrace.__file__).parent
    assert (here / "py.typed").exists()
    assert (here / "_core.pyi").exists()
    stable = not sysconfig.get_config_var("Py_GIL_DISABLED")  # without the GIL there is no stable ABI
    assert (Path(headrace._core.__file__).name == "_core.abi3.so") == stable


def test_every_public_name_has_a_docstring():
    import headrace.torch
    import headrace.transforms

    for module in (headrace, headrace.transforms, headrace.torch):
        assert module.__doc__
        for name in module.__all__:
            assert getattr(module, name).__doc__, f"{module.__name__}.{name}"


def test_messages_of_the_library_reach_logging(caplog):
    from headrace import _log

    with caplog.at_level(logging.DEBUG, logger="headrace"):
        _log.emit(1, "a warning of 100 %")
        _log.emit(3, "a detail")
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", "a warning of 100 %"),
        ("DEBUG", "a detail"),
    ]


def test_exceptions_carry_their_parts_and_survive_pickling():
    import pickle

    error = headrace.SampleError("/a/\udcff.jpg", 7, "truncated")
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.path, copy.index, copy.reason) == ("/a/\udcff.jpg", 7, "truncated")
    assert str(copy) == "sample 7 (/a/\\xff.jpg): truncated"
    many = pickle.loads(pickle.dumps(headrace.TooManyBadSamples("3 of 5", ("x",))))
    assert str(many) == "3 of 5" and many.skipped == ("x",)


def public(names):
    return {name for name in names if not name.startswith("_")}


def test_stubs_name_what_the_extension_has():
    stub = ast.parse((Path(headrace.__file__).parent / "_core.pyi").read_text())
    functions = {n.name for n in stub.body if isinstance(n, ast.FunctionDef)}
    classes = {n.name: n for n in stub.body if isinstance(n, ast.ClassDef)}
    classes = {name: n for name, n in classes.items() if not name.startswith("_")}
    constants = {n.target.id for n in stub.body if isinstance(n, ast.AnnAssign)}
    assert functions | set(classes) | constants == public(dir(headrace._core))
    for name, node in classes.items():
        members = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
        members |= {n.target.id for n in node.body if isinstance(n, ast.AnnAssign)}
        assert public(members) == public(dir(getattr(headrace._core, name))), name
