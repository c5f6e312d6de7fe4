"""Lets a new Python that a test starts train after half of the time: without torch's compiler.
conftest.py puts this folder on PYTHONPATH.

torch.optim and DistributedDataParallel import torch._dynamo, which takes 1.5 s of CPU, only to say what
is not to be compiled. It comes in as soon as something else of it is asked for.
HEADRACE_TEST_WHOLE_TORCH leaves torch as it is.
"""

import importlib
import importlib.machinery
import os
import sys
import types

LATE = ("torch._dynamo", "torch._inductor")


class _Late(types.ModuleType):
    """Stands in for a module until it is asked for what it does not have."""

    def __getattr__(self, name):
        # For whoever looks at all modules it has nothing more. A package's path is asked for when one
        # of its modules is imported, and before that by the import itself.
        if name.startswith("__") and not (name == "__path__" and "is_late" in self.__dict__):
            raise AttributeError(name)
        _import_whole()
        return getattr(sys.modules[self.__name__], name)


def _import_whole():
    """Imports what was left out."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
        for name in LATE:
            sys.modules.pop(name, None)
            vars(sys.modules["torch"]).pop(name.removeprefix("torch."), None)
        for name in LATE:
            importlib.import_module(name)


class _Finder:
    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name in LATE else None

    def create_module(self, spec):
        return _Late(spec.name)

    def exec_module(self, module):
        module.is_late = True
        if module.__name__ == "torch._dynamo":
            module.disable = lambda function, *_, **__: function
            module.graph_break = module.set_stance = lambda *_, **__: None
            module.utils = types.SimpleNamespace(get_optimize_ddp_mode=lambda: "ddp_optimizer")
            module.trace_rules = types.SimpleNamespace(clear_lru_cache=lambda: None)
        if module.__name__ == "torch._inductor":
            _import_whole()  # and so sys.modules has the real one


_finder = _Finder()
if not os.environ.get("HEADRACE_TEST_WHOLE_TORCH"):
    sys.meta_path.insert(0, _finder)
