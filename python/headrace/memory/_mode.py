"""Records operators with an observer in C++ (observer.cpp), or with a dispatch mode in Python if
the observer is not available. Both use the same C code (ext/memory_dispatch.c).

Only operators of the recording thread, and of the backward passes that it starts, are recorded.
Facts named "note ..." in the record list what is known to be missing.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from .. import _core
from . import _cuda, _facts, _observer
from ._phases import Phases
from ._schema import pack

OUTSIDE_OF = ("torch", "headrace")  # packages whose frames are left out of stacks
NAMES_MOST = 8  # names of threads in a note
# If the ends of iterations cannot be detected, a recording of N iterations ends after N times this
# many backward passes or operators.
BACKWARDS_MOST = 16
OPERATORS_MOST = 100_000


class _Mode(_core.MemoryRecorder, TorchDispatchMode):
    """The dispatch mode: converts operators to events."""

    supports_higher_order_operators = True  # otherwise PyTorch refuses to call them in this mode

    def __new__(cls, path: str | os.PathLike[str], limit_bytes: int = 0, **_: Any) -> Any:
        return super().__new__(cls, os.fspath(path), limit_bytes)

    def __init__(self, stacks: bool) -> None:
        TorchDispatchMode.__init__(self)
        self.prepare(
            describe=self._describe,
            failed=self._failed,
            address_of=torch._C._storage_address,
            tensor_type=torch.Tensor,
        )
        if stacks:
            self._folders = tuple(
                os.path.dirname(os.path.abspath(module.__file__)) + os.sep
                for module in map(sys.modules.get, OUTSIDE_OF)
                if module is not None and module.__file__)
            self.with_stacks(
                self._classify,
                torch._C._autograd._get_sequence_nr,
                torch._C._current_autograd_node,
            )

    def _describe(self, func: Any) -> bytes:
        if isinstance(func, tuple):  # the observer passes (name, overload)
            func = _operator(*func)
        return pack(func, self.name(str(func)))

    def _see_operators(self) -> str | None:
        """Starts recording this thread's operators. Returns None if the observer does it, else why
        it cannot."""
        problem = self._observe()
        if problem is not None:
            TorchDispatchMode.__enter__(self)
        return problem

    def _observe(self) -> str | None:
        library, problem = _observer.compiled()
        return self.observe(library) if library is not None else problem

    def _classify(self, code: types.CodeType) -> tuple[int, int] | None:
        file = code.co_filename
        if file.startswith(("<frozen", "<eval_with_key")) or os.path.abspath(file).startswith(self._folders):
            return None
        return self.name(file), self.name(code.co_qualname)

    def _failed(self, error: Any, is_recorded: bool) -> None:
        pass


class _Probe(_Mode):
    """A mode for measuring the overhead of recording."""

    def __init__(self, path: str, stacks: bool) -> None:
        super().__init__(stacks)
        self._is_entered = False

    def __enter__(self) -> _Probe:
        self._is_entered = self._see_operators() is not None
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._is_entered:
            TorchDispatchMode.__exit__(self, *exception)


class Recording(_Mode):
    """A recording in progress, a context manager. A process can have one at a time.

    Args: as for :func:`headrace.memory.record`.
    """

    def __new__(cls, path: str | os.PathLike[str], limit_bytes: int = 0, **_: Any) -> Any:
        running = _active()
        if running is not None:
            raise RuntimeError(
                f"this process is already recording memory (into {running.path}): "
                "a process can have one recording at a time; end that one first")
        process = _facts.recorded_by(os.fspath(path))
        if process:
            raise FileExistsError(
                f"process {process} is recording into {os.fspath(path)}: choose another file")
        return super().__new__(cls, path, limit_bytes)

    def __init__(
        self,
        path: str | os.PathLike[str],
        limit_bytes: int = 0,
        *,
        iterations: int = 0,
        stacks: bool = False,
        batch_size: int | None = None,
    ) -> None:
        super().__init__(stacks)
        self.path = os.fspath(path)
        self._iterations = iterations
        self._stacks = stacks
        self._phases = Phases(self, batch_size)
        self._history: Any = None
        self._thread = 0  # the thread that entered the dispatch mode; 0: none did
        self._followed = 0  # the thread whose operators are recorded
        self._others: set[str] = set()  # names of other threads
        self._children = 0
        self.on_iteration: Callable[[int], None] | None = None  # called with the iterations so far
        _holder.append(weakref.ref(self))
        self.fact("torch", torch.__version__)
        self.fact("command", " ".join(sys.argv))
        if os.environ.get("RANK"):
            self.fact("rank", os.environ["RANK"])
        if batch_size is not None:
            self.fact("batch size", str(batch_size))

    # -- beginning and end --

    def __enter__(self) -> Recording:
        probe = _facts.probe_ns(lambda path: _Probe(path, stacks=self._stacks))
        if probe is not None:
            self.fact("probe ns per call", f"{probe:.1f}")
        self._phases.begin()
        try:
            self.fact("allocations", "allocator" if self.tap() else "storages")
        except BaseException:
            self._phases.end()
            raise
        if torch.backends.cuda.is_built():
            self._history = _cuda.begin(self, self._stacks)
            self.history_reports = self._history is not None and self._history.follows
            # Called now if CUDA is initialised, else when the training does so. Initialising it
            # here would keep the training from forking.
            follow = weakref.WeakMethod(self._follow_kernels)
            torch.cuda._lazy_call(lambda: (method := follow()) and method())
        self._phases.survey()
        self._followed = threading.get_ident()
        problem = self._see_operators()
        if problem is not None:
            self._thread = self._followed
        self.fact("operators", "observer" if problem is None else "Python mode")
        if problem is not None:
            self.fact("note operators", f"{_observer.SLOWER} ({problem})")
        return self

    def _follow_kernels(self) -> None:
        """Records the times of GPU kernels; called when CUDA is initialised."""
        if not self.is_open:
            return
        if self._history is not None:
            # Up to date: the history registered its own lazy call before this one.
            self.history_reports = self._history.follows
        problem = self.follow_kernels()
        if problem:
            self.fact("note kernels", problem)

    def __exit__(self, *exception: Any) -> None:
        if self._thread:
            self._thread = 0
            TorchDispatchMode.__exit__(self, *exception)
        self._phases.end()

    def close(self) -> None:
        """Ends the recording. Training continues without its overhead."""
        self._leave()
        self._phases.end()
        if self.is_open:
            try:
                self._say_last()
            except Exception as error:  # e.g. a broken device: still end the record
                self.fact("note end", f"the facts collected at the end are incomplete ({error})")
        super().close()

    def _leave(self) -> None:
        """Leaves the dispatch mode if it is the innermost; otherwise it stays, and does nothing."""
        if self._thread == threading.get_ident() and _get_current_dispatch_mode() is self:
            self._thread = 0
            TorchDispatchMode.__exit__(self, None, None, None)

    def _forked(self) -> None:
        """Stops recording in a forked child."""
        self.abandon()
        if self._history is not None:
            self._history.abandon()
        self._leave()
        self._phases.end()

    # -- called by Phases --

    def iterated(self, count: int) -> None:
        """Called when ``count`` iterations are complete."""
        if threading.active_count() > 1:
            self._see_threads()
        if self._history is not None:
            self._history.iteration()
            self.history_reports = self._history.follows
        if self.on_iteration is not None:
            self.on_iteration(count)
        if self._iterations and count >= self._iterations:
            self.close()

    def without_iterations(self, backwards: int) -> None:
        """Called after backward passes without a complete iteration: ends a recording limited to a
        number of iterations."""
        if not self._iterations:
            return
        if backwards >= BACKWARDS_MOST * self._iterations:
            after = f"{backwards} backward passes"
        elif self.calls >= OPERATORS_MOST * self._iterations:
            after = f"{self.calls:,} operators"
        else:
            return
        self.fact(
            "note end of recording",
            f"the recording ended after {after}: no optimizer of torch.optim stepped and "
            "parameters were not updated otherwise, so the ends of iterations are unknown")
        self.close()

    def _failed(self, error: Any, is_recorded: bool) -> None:
        """Called when an operator raises: records a failed allocation if it ran out of memory."""
        text = str(error)
        is_short = isinstance(error, (torch.OutOfMemoryError, MemoryError))
        if is_short and self._history is not None and self._history.take():
            return  # the allocator itself has recorded it
        if not is_recorded and (is_short or "allocate memory" in text):
            self.refused(_facts.bytes_asked(text))

    # -- notes and measurements at the end --

    def _see_threads(self) -> None:
        for thread in threading.enumerate():
            # Threads that Python did not start (autograd's) call no operators of their own.
            if thread.ident != self._followed and not isinstance(thread, threading._DummyThread):
                self._others.add(thread.name)

    def _say_last(self) -> None:
        if self._history is not None:
            self._history.end()
            self._history = None
        self._see_threads()
        names = sorted(self._others - {threading.main_thread().name})
        if names:
            more = f" and {len(names) - NAMES_MOST} more" if len(names) > NAMES_MOST else ""
            self.fact(
                "note threads",
                f"other threads ran ({', '.join(names[:NAMES_MOST])}{more}): the operators that "
                "they called are not recorded")
        if self._children:
            self.fact(
                "note processes",
                f"{self._children} processes were forked: this record does not include them")
        if self.without_storage:
            self.fact(
                "note storages",
                f"{self.without_storage} arguments or results of operators are tensors without a "
                "storage (sparse tensors, for example): they are not recorded")
        for name, note in _notes_of_code().items():
            self.fact(name, note)
            if name == "note compiled":
                self.fact("compiled code", "run eagerly")
        for name, capacity in _facts.capacities().items():
            self.fact(name, str(capacity))
        rates = _facts.copy_rates()
        if rates is not None:
            self.fact("h2d bytes per s", f"{rates[0]:.0f}")
            self.fact("d2h bytes per s", f"{rates[1]:.0f}")


def _operator(name: str, overload: str) -> Any:
    """Returns the function that a dispatch mode gets for ("aten::add", "Tensor")."""
    space, _, short = name.partition("::")
    try:
        return getattr(getattr(getattr(torch.ops, space), short), overload or "default")
    except (AttributeError, RuntimeError):  # an operator of TorchScript's own
        return f"{space}.{short}.{overload or 'default'}"


def _notes_of_code() -> dict[str, str]:
    """Returns notes on imported code that hides operators."""
    notes: dict[str, str] = {}
    frames = sys.modules.get("torch._dynamo.eval_frame")
    graph = getattr(torch.cuda, "CUDAGraph", None) if torch.cuda.is_initialized() else None
    if frames is None and graph is None:
        return notes
    compiled = getattr(frames, "OptimizedModule", ())
    for thing in gc.get_objects():
        kind = type(thing)
        if (compiled and issubclass(kind, compiled)) or (
            kind is types.FunctionType and "get_compiler_config" in thing.__dict__
        ):
            notes["note compiled"] = (
                "the script uses torch.compile: during a recording PyTorch runs compiled code "
                "eagerly, operator by operator; compiled and fused, it uses other memory")
        elif graph is not None and issubclass(kind, graph):
            notes["note graphs"] = (
                "the script uses CUDA graphs: their accesses during replay are not recorded")
    return notes


# Weak references; the last one is the recording in progress, if any.
_holder: list[Any] = []


def _active() -> Recording | None:
    """Returns the recording in progress, or None."""
    while _holder:
        recording = _holder[-1]()
        if recording is not None and recording.is_open:
            return recording  # type: ignore[no-any-return]
        _holder.pop()
    return None


def _in_parent() -> None:
    recording = _active()
    if recording is not None:
        recording._children += 1


def _in_child() -> None:
    recording = _active()
    if recording is not None:
        recording._forked()


os.register_at_fork(after_in_parent=_in_parent, after_in_child=_in_child)
