"""Begins the probe in every Python that a measured script starts.

``headrace stalls`` puts this folder before all others on PYTHONPATH, so that Python imports
this file at its start. It runs the sitecustomize that it hides, then loads the hook by its
path: the package itself is imported only where a loader is. Nothing of ours that fails may
keep the script from running.
"""

import os
import sys


def _hidden() -> None:
    """Runs the next sitecustomize on the path, under that name."""
    import importlib.machinery
    import importlib.util

    own = os.path.dirname(os.path.abspath(__file__))
    rest = [path for path in sys.path if os.path.abspath(path or ".") != own]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    ours = sys.modules.get("sitecustomize")
    sys.modules["sitecustomize"] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if ours is not None:
            sys.modules["sitecustomize"] = ours
        raise


def _begin() -> None:
    import importlib.util

    stalls = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if importlib.util.find_spec("headrace") is None:
        sys.path.append(os.path.dirname(os.path.dirname(stalls)))
    # Under its full name, so that the probe's own import finds this very module.
    name = "headrace.stalls.hook"
    spec = importlib.util.spec_from_file_location(name, os.path.join(stalls, "hook.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
        module.install()
    except BaseException:
        del sys.modules[name]
        raise


try:
    _hidden()
finally:
    if os.environ.get("HEADRACE_STALLS_DIR"):
        try:
            _begin()
        except Exception as error:
            print(
                f"headrace stalls: the probe cannot begin in process {os.getpid()}: "
                f"{type(error).__name__}: {error}",
                file=sys.stderr,
            )
