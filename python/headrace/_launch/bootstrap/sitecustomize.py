"""Begins the hook in every Python that a watched script starts.

``headrace stalls``, ``headrace memory record`` and ``headrace replay record`` put this folder before all others on
PYTHONPATH, so that Python imports this file at its start. It runs the sitecustomize that it
hides, then loads the hook by its path: the package itself is imported only where there is
something to watch. Nothing of ours that fails may keep the script from running.
"""

import os
import sys

# The variable that asks for it, the hook, how its messages begin.
HOOKS = (
    ("HEADRACE_STALLS_DIR", "headrace.stalls.hook", "headrace stalls: the probe"),
    ("HEADRACE_MEMORY_DIR", "headrace.memory.hook", "headrace memory: the recording"),
    ("HEADRACE_REPLAY_DIR", "headrace.replay.hook", "headrace replay: the recording"),
)

# What hooks import, in the order in which they need each other.
NEEDED = ("headrace._launch.imports", "headrace._launch.hello", "headrace._launch.recording")


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


def _load(package: str, name: str):  # type: ignore[no-untyped-def]
    """A module of the package, without the package. Under its full name, so that whoever
    imports it later finds this very one."""
    import importlib.util

    if name in sys.modules:
        return sys.modules[name]
    path = os.path.join(package, *name.split(".")[1:]) + ".py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _begin(name: str) -> None:
    import importlib.util

    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if importlib.util.find_spec("headrace") is None:
        sys.path.append(os.path.dirname(package))
    for needed in NEEDED:
        _load(package, needed)
    hook = _load(package, name)
    try:
        hook.install()
    except BaseException:
        del sys.modules[name]
        raise


try:
    _hidden()
finally:
    for variable, name, what in HOOKS:
        if os.environ.get(variable):
            try:
                _begin(name)
            except Exception as error:
                print(
                    f"{what} cannot begin in process {os.getpid()}: "
                    f"{type(error).__name__}: {error}",
                    file=sys.stderr,
                )
