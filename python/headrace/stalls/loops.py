"""Finds the training loop among a script's loops over loaders, and feeds it the batches of a
measuring run.

The iterators of loaders are wrapped. Until a loop is recognised as training (an optimizer steps in
it), its iterator counts batches and passes them on. Then the loop of one loader gets the batches of
a measuring run. The process ends with that run: the weights are meaningless by then, so the rest of
the script must not run.
"""

from __future__ import annotations

import atexit
import gc
import multiprocessing
import os
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from multiprocessing.util import Finalize
from typing import Any

from . import work
from .loader_state import LoaderState
from .rank import EXIT_INTERNAL, WAY_OUT, Rank

WARM_UP = 5
STABLE = 0.3  # spread of the last steps
PATIENCE_BATCHES = 15  # wait at most this long after the warm-up for steps to become stable
PATIENCE_S = 30.0
KEEP_FOR = 64  # batches after the warm-up whose shapes are inspected
WATCHDOG_S = 60.0  # warn after training for this long without a loop that can be measured
LEAD = 8  # batches between rank 0's announcement and the start of the run


class _Stack(threading.local):
    """The iterators whose next() is running in this thread, outermost first."""

    def __init__(self) -> None:
        self.asked: list[ProbedIterator] = []


class Probe(Rank):
    """Searches for this process' training loop. ``run``: its measuring run, once started."""

    def __init__(self) -> None:
        super().__init__()
        self.states: weakref.WeakKeyDictionary[Any, LoaderState] = weakref.WeakKeyDictionary()
        self.all_states: list[LoaderState] = []
        self.run: Any = None
        self.optimizer_steps = 0
        self.backwards = 0
        self.first_step_s = 0.0  # time of the first training step
        self.trainers: set[int] = set()  # threads that run optimizer steps or backward passes
        self.has_warned = False  # the watchdog has warned that no loop was found
        self.has_optimizer: bool | None = None  # None: not checked yet
        self.device: Any = None
        self.stack = _Stack()
        self.announced: dict[str, int] | None = None
        self.wanted = int(self.settings.get("warm_up") or WARM_UP)
        self._rank_and_size: tuple[int, int] | None = None
        self._joined = False  # this process has joined a process group
        self.crashed: type[BaseException] | None = None
        self.met = False
        work.own()
        atexit.register(self._at_exit)
        if multiprocessing.parent_process() is not None:  # atexit handlers do not run there
            Finalize(None, self._at_exit, exitpriority=0)
        before = sys.excepthook

        def excepthook(kind: Any, value: Any, trace: Any) -> None:
            self.crashed = kind
            before(kind, value, trace)

        sys.excepthook = excepthook

    def _meet(self) -> None:
        """Connects the ranks of several hosts, before one waits for another within a training
        step."""
        if self.ranks()["world_size"] == 1:
            return
        try:
            self.channel()
        except Exception as error:
            self.over = True
            self.problem(
                "ranks",
                f"the ranks of this run could not connect: {error}",
                "give an address on rank 0's host that all hosts can reach: --channel HOST:PORT",
            )
            self.end(EXIT_INTERNAL)

    # -- loaders --

    def state_of(self, loader: Any) -> LoaderState:
        try:
            state = self.states.get(loader)
        except TypeError:  # has no weak references
            state = None
        if state is not None:
            return state
        kind = type(loader)
        name = f"{kind.__module__}.{kind.__qualname__}"
        key = _key(loader)
        # A script may create an equal loader for each epoch: that is still one loop.
        alike = [s for s in self.all_states if s.key == key and s.trained and not s.goes_on()]
        state = alike[0] if alike else LoaderState(
            len(self.all_states) + 1, name, key, _line_of_script()
        )
        if not alike:
            self.all_states.append(state)
        try:
            self.states[loader] = state
        except TypeError:
            pass
        return state

    def wrap(self, loader: Any, kind: type, begin: Callable[[Any], Any]) -> Iterator[Any]:
        """Wraps an iterator of ``loader``. ``begin`` makes it as ``kind.__iter__`` does."""
        if self.over or os.getpid() != self.pid:
            return begin(loader)  # type: ignore[no-any-return]
        if not self.met:
            self.met = True
            self._meet()
        state = self.state_of(loader)
        before = state.newest() if state.newest is not None else None
        if before is not None and before.kind is not kind and issubclass(before.kind, kind):
            before.demote()  # its __iter__ called this function
        iterator = ProbedIterator(self, loader, state, kind, begin)
        run = self.run
        if run is None or run.state is not state:
            state.newest = weakref.ref(iterator)
            iterator.begin()
        elif iterator.demoted:
            run.measurement.restart = True  # the script left the loop and started it again
            iterator.begin()
        # Otherwise its batches come from the run, so no real iterator is started.
        return iterator

    def went_backward(self) -> None:
        self.backwards += 1
        self._trained()

    def _trained(self) -> None:
        """Called after a training step. Warns if training continues without a loop to measure."""
        if self.over or self.run is not None or os.getpid() != self.pid:
            return
        self.trainers.add(threading.get_ident())
        now = time.monotonic()
        self.first_step_s = self.first_step_s or now
        limit = float(self.settings.get("watchdog_s") or WATCHDOG_S)
        if self.has_warned or now - self.first_step_s < limit or self._may_yet_be_found():
            return
        self.has_warned = True
        print(
            f"headrace stalls: {now - self.first_step_s:.0f} s of training ({self._steps()}), but no "
            f"loop over a loader to measure; seen instead: {self._seen()}; {WAY_OUT}. The script "
            "continues; Ctrl-C ends it.",
            file=sys.stderr,
            flush=True,
        )

    def _may_yet_be_found(self) -> bool:
        """Whether a loop over a loader trains, but has not read enough batches yet."""
        enough = self.wanted + PATIENCE_BATCHES + LEAD
        return any(
            state.goes_on() and state.trained and state.batches <= enough
            for state in self.all_states
        )

    def is_read_by_training(self, state: LoaderState) -> bool:
        """Whether the training thread itself reads the loader, not a thread that reads ahead."""
        return not self.trainers or state.thread in self.trainers

    def steps_done(self) -> int:
        """Returns the number of optimizer steps, or of backward passes if there are none."""
        return self.optimizer_steps or self.backwards

    def _steps(self) -> str:
        return f"{self.optimizer_steps} optimizer steps, {self.backwards} backward passes"

    def _seen(self) -> str:
        inner = [state for state in self.all_states if not state.is_outside]
        return "; ".join(state.described() for state in inner) or "no loader that is known"

    def stepped(self, optimizer: Any) -> None:
        self.optimizer_steps += 1
        self._trained()
        if self.device is None:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    self.device = parameter.device
                    return

    def trains(self, iterator: ProbedIterator) -> bool:
        """Whether to measure this loop now."""
        state = iterator.state
        if state.batches < self.wanted:
            return False
        if not state.watched and any(one.watched for one in self.all_states):
            return False
        if (self.settings.get("loader") or state.number) != state.number:
            return False
        rank, size = self._ranks_of_run()
        if rank > 0 and self.announced is None and self.channel().known("adopt"):
            self.announced = self.channel().ask("adopt")
        if self.announced is not None:
            same = self.announced["loader"] == state.number
            return same and state.batches >= self.announced["at"]
        if rank > 0 or not self._ready(state):
            return False
        if size > 1:
            self.announced = {"loader": state.number, "at": state.batches + LEAD}
            self.channel().publish("adopt", self.announced)
            return False
        return True

    def _ranks_of_run(self) -> tuple[int, int]:
        """Returns rank and size. Called at each batch, since the script may join a process group
        later."""
        if not self._joined:
            distributed = sys.modules.get("torch.distributed")
            self._joined = (
                distributed is not None
                and distributed.is_available()
                and distributed.is_initialized()
            )
            if self._joined or self._rank_and_size is None:
                ranks = self.ranks()
                self._rank_and_size = ranks["rank"], ranks["world_size"]
        assert self._rank_and_size is not None
        return self._rank_and_size

    def _ready(self, state: LoaderState) -> bool:
        if not state.optimizer_steps:
            # Training without torch.optim, or a loop that the user has named.
            chosen = state.watched or self.settings.get("loader") == state.number
            learns = state.backwards >= self.wanted and not self.optimizer_steps
            if not (chosen or learns or self._nothing_learns(state)):
                return False
        recent = state.steps[-3:] or [0.0]
        spread = max(recent) - min(recent)
        waited = time.perf_counter_ns() - state.first_ns > PATIENCE_S * 1e9
        enough = state.batches >= self.wanted + PATIENCE_BATCHES
        return spread <= STABLE * max(recent) or max(recent) < 1e-3 or waited or enough

    def _nothing_learns(self, state: LoaderState) -> bool:
        """Whether the script only imitates training, or trains without torch: there is no
        optimizer, and the script neither computes nor disables gradients."""
        import torch

        if self.optimizer_steps or self.backwards or not torch.is_grad_enabled():
            return False
        if state.batches < 4 * self.wanted:
            return False
        if self.has_optimizer is None:
            kind = torch.optim.Optimizer
            self.has_optimizer = any(issubclass(type(one), kind) for one in gc.get_objects())
        return not self.has_optimizer

    def take(self, iterator: ProbedIterator) -> bool:
        """Starts the measuring run with this iterator's loop. Returns False if another process is
        being measured as this rank already."""
        rank = self._ranks_of_run()[0]
        path = os.path.join(self.folder, f"measured-{rank}")
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            # Left by a helper process, which read data and did not train.
            os.unlink(os.path.join(self.folder, f"problem-{rank}.json"))
        except FileNotFoundError:
            pass
        except FileExistsError:
            self.over = True
            print(
                f"headrace stalls: process {self.pid} trains, too; only the process that trained "
                "first is measured",
                file=sys.stderr,
            )
            return False
        if iterator.state.not_kept:
            self.problem(
                "batches",
                f"batches of {iterator.state.name} cannot be kept: {iterator.state.not_kept}",
                "",
            )
            self.end(EXIT_INTERNAL)
        from .run import Run  # which needs torch

        others = [s for s in self.all_states if s is not iterator.state and not s.is_outside]
        read_by_thread = not self.is_read_by_training(iterator.state)
        self.run = Run(
            self, iterator, self.device, others, self.steps_done if read_by_thread else None
        )
        self.close_source = self.run.measurement.source.close
        return True

    # -- end of the process --

    def _at_exit(self) -> None:
        if os.getpid() != self.pid or self.over:
            return
        self.over = True
        try:
            if self.run is not None:
                self.run.ended_early(self.crashed)
            elif (self.all_states or self.first_step_s) and not self.crashed:
                self._explain()
        except Exception:
            traceback.print_exc()

    def _explain(self) -> None:
        """Reports why nothing was measured although loaders were iterated."""
        if any(name.startswith("measured-") for name in os.listdir(self.folder)):
            return  # another process is measured
        if not any(s.optimizer_steps or s.backwards for s in self.all_states):
            trained = f"though it trained ({self._steps()}): " if self.first_step_s else ""
            self.problem(
                "no-training",
                f"no loop over a loader trained anything, {trained}{self._seen()}"
                if trained
                else f"no loop over a loader trained anything: {self._seen()}",
                WAY_OUT,
            )
        else:
            self.problem(
                "few-batches",
                f"the script ended before enough batches ({self.wanted} to warm up): {self._seen()}",
                "run it for more batches or epochs, or lower --warm-up",
            )


class ProbedIterator:
    """Wraps an iterator of a loader."""

    _real: Any = None

    def __init__(
        self,
        probe: Probe,
        loader: Any,
        state: LoaderState,
        kind: type,
        begin: Callable[[Any], Any],
    ) -> None:
        self._probe, self.loader, self.state = probe, loader, state
        self.kind, self.begin_of = kind, begin
        self._start = self._given = self._asked = 0.0  # when it, and the batch before, was
        self.demoted = kind in state.outside  # it iterates another loader's iterator
        self.done = False

    def begin(self) -> None:
        self._start = time.perf_counter()
        self._real = self.begin_of(self.loader)

    @property
    def real(self) -> Any:
        return self._real

    def demote(self) -> None:
        """Ignores this iterator from now on: its batches come from another one, which counts."""
        self.demoted = True
        self.state.outside.add(self.kind)

    def __iter__(self) -> ProbedIterator:
        return self

    def __len__(self) -> int:
        return len(self.loader if self._real is None else self._real)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def __next__(self) -> Any:
        probe = self._probe
        if self.demoted or probe.over:
            return self._ask()
        state = self.state
        run = probe.run
        if run is not None:
            if run.state is state:
                return run.next(self)
            if self._trains():
                run.note_other(state)
            return self._ask()
        self.state.thread = threading.get_ident()
        asked = time.perf_counter()
        if self._given:
            state.steps.append(asked - self._given)
            state.batch_s.append(asked - self._asked)
            state.count(
                probe.optimizer_steps - state.steps_before,
                probe.backwards - state.backwards_before,
            )
            if not probe.is_read_by_training(state):  # another thread trains meanwhile
                state.note_steps(probe.optimizer_steps, probe.backwards)
            if state.batches >= probe.wanted and self._taken():
                assert probe.run is not None
                return probe.run.next(self)
        self._asked = asked
        batch = self._ask()
        if self.demoted:
            return batch
        self._given = given = time.perf_counter()
        if state.batches == 0:
            state.first_batch_s = given - self._start
            state.first_ns = time.perf_counter_ns()
        state.batches += 1
        if probe.is_read_by_training(state):
            state.note_steps(probe.optimizer_steps, probe.backwards)
        if probe.wanted - 2 <= state.batches <= probe.wanted + KEEP_FOR:
            self._keep(batch)
        return batch

    def _trains(self) -> bool:
        """Whether the calling thread trains."""
        return threading.get_ident() in self._probe.trainers or not self._probe.trainers

    def _ask(self) -> Any:
        """Returns the loader's own next batch."""
        if self._real is None:  # it was created within the run, which has ended
            self.begin()
        stack = self._probe.stack.asked
        if stack:
            for outer in stack:
                outer.demote()
        stack.append(self)
        try:
            return next(self._real)
        except StopIteration:
            self.done = True
            raise
        finally:
            stack.pop()

    def _taken(self) -> bool:
        try:
            return self._probe.trains(self) and self._probe.take(self)
        except Exception as error:
            self._probe.give_up(error)

    def _keep(self, batch: Any) -> None:
        """Copies batches for the replay before the script gets them: two at the end of the warm-up,
        and those of other shapes."""
        state = self.state
        try:
            if state.replay is None:
                from .replay import Replay

                state.replay = Replay()
            state.replay.keep(batch)
        except Exception as error:  # reported if this is the loop to measure
            state.not_kept = f"{type(error).__name__}: {error}"

    def close(self) -> None:
        close = getattr(self._real, "close", None)
        if close is not None:
            close()


def _key(loader: Any) -> tuple[Any, ...]:
    """Returns a key that is equal for the loaders that a script creates for each epoch."""
    dataset = getattr(loader, "dataset", None)
    try:
        samples = len(dataset)  # type: ignore[arg-type]
    except Exception:  # a stream's __len__ may raise anything
        samples = None
    sizes = [getattr(loader, name, None) for name in ("batch_size", "num_workers")]
    return (type(loader), type(dataset), samples, *map(str, sizes))


def _line_of_script() -> str:
    """Returns FILE:LINE of the innermost caller outside of this and of installed packages."""
    frame = sys._getframe(1)
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith((ours, "<")) and "/site-packages/" not in path:
            if not path.startswith(os.path.dirname(os.__file__)):
                return f"{os.path.basename(path)}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""
