"""Runs a module of this package by file path: ``python -P _start.py MODULE ...``.

Loads the package from the folder of this file, wherever it is installed. Other files of the
parent folder are not importable and cannot shadow standard modules.
"""

import importlib.util
import os
import runpy
import sys


def _load_package() -> None:
    folder = os.path.dirname(os.path.abspath(__file__))
    spec = importlib.util.spec_from_file_location(
        "headrace", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["headrace"] = package
    spec.loader.exec_module(package)


if __name__ == "__main__":
    _load_package()
    module = sys.argv.pop(1)
    runpy.run_module(module, run_name="__main__", alter_sys=True)
