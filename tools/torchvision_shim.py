"""Lets torchvision's Python code load if its compiled operators cannot.

The torchvision of the package index is compiled for the CUDA build of PyTorch.
With a CPU build its shared object does not load, and the import fails, because its
Python code registers shape functions for operators that are missing. Image folders
and transforms on PIL images need none of these. So this module declares the missing
operators without an implementation: calling one still fails. If torchvision loads by
itself, nothing is done.

Use: `import torchvision_shim; torchvision_shim.prepare()` before the import of
torchvision, or `python tools/torchvision_shim.py SCRIPT [ARGUMENT...]`, which
prepares and then runs the script unchanged; `--report` says how it stands.
"""

import re
import runpy
import sys

MOST = 64  # operators that may be missing; more means that something else is wrong

libraries = []  # a declaration lasts as long as its library object


def prepare():
    """Makes `import torchvision` work; returns the names of the operators it declared.

    Raises whatever the import raises for other reasons (torchvision not installed, ...).
    """
    from torch import library as operators

    declared = []
    while True:
        try:
            import torchvision  # noqa: F401

            return declared
        except RuntimeError as error:
            missing = re.search(r"operator torchvision::(\w+) does not exist", str(error))
            if missing is None or len(declared) >= MOST:
                raise
            # The first attempt may have registered some shape functions already; they are
            # registered again on the next one, which is an error unless these are dropped.
            forget()
        library = operators.Library("torchvision", "FRAGMENT")
        library.define(f"{missing.group(1)}(Tensor input) -> Tensor")
        libraries.append(library)
        declared.append(missing.group(1))


def forget():
    """Drops the half-imported torchvision."""
    for name in [n for n in sys.modules if n == "torchvision" or n.startswith("torchvision.")]:
        del sys.modules[name]


def compiled_operators():
    """Whether torchvision's own compiled operators are available."""
    from torchvision import extension

    return extension._has_ops()


def report():
    try:
        declared = prepare()
    except ImportError as error:
        print(f"torchvision: not there ({error})")
        return 1
    import torchvision

    if declared or not compiled_operators():
        print(f"torchvision {torchvision.__version__}: its compiled operators do not load beside "
              f"this PyTorch; folders and PIL transforms, which is what is needed, do")
    else:
        print(f"torchvision {torchvision.__version__}: complete")
    return 0


def main():
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    if sys.argv[1] == "--report":
        return report()
    try:
        prepare()
    except KeyboardInterrupt:
        return 130
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
