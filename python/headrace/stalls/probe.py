"""What runs inside a measured script: finds the loop that trains, and takes its place.

``headrace.stalls.hook`` calls :func:`attach` once a module with loaders is imported. From
then on iterators of loaders are wrapped. Until a loop is recognised as training (its
optimizer steps), a wrapped iterator passes batches on and counts; then one loader is
adopted, its loop gets the batches of a measuring run, and at the end of that the process
ends: the weights mean nothing any more, so nothing of the script behind the loop may run.
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import multiprocessing
import os
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from .run import Run

WARM_UP = 5
STABLE = 0.3  # spread of the last steps
PATIENCE_BATCHES = 15  # beyond the warm-up, for steps to become alike
PATIENCE_S = 30.0
KEEP_FOR = 64  # batches beyond the warm-up, whose shapes are looked at
WATCHDOG_S = 60.0  # of training steps without a loop that can be measured
LEAD = 8  # batches between rank 0's announcement and the change
EXIT_INTERNAL = 70
WAY_OUT = (
    "where the training loop goes through something else, write `for batch in "
    "headrace.watch(...)` there; of several loaders, choose one by its number with --loader N"
)


class _Stack(threading.local):
    """Iterators that are asked for a batch just now, in this thread; outermost first."""

    def __init__(self) -> None:
        self.asked: list[ProbedIterator] = []


class LoaderState:
    """What is known of one loader of the script, or of loaders that take turns in its place."""

    def __init__(self, number: int, name: str, key: tuple[Any, ...], where: str) -> None:
        self.number, self.name, self.key = number, name, key
        self.where = where  # the script's line that iterates it
        self.thread = 0  # that asked for its newest batch
        self.newest: weakref.ref[ProbedIterator] | None = None
        self.outside: set[type] = set()  # classes whose iterators go through another one
        self.watched = False  # headrace.watch was asked for
        self.not_kept = ""  # why its batches cannot be replayed
        self.trained = False  # between two of its batches, some time
        self.batches = 0
        self.first_batch_s: float | None = None
        self.first_ns = 0
        self.steps: list[float] = []  # seconds of the newest steps
        self.batch_s: list[float] = []  # from one next() to the following
        self.optimizer_steps = 0  # between two of its batches
        self.steps_before = 0
        self.steps_each = 1  # batches for one step of the optimizer
        self.stepped_at = 0  # the batch of its last step
        self.backwards = 0
        self.backwards_before = 0
        self.replay: Any = None
        self.batch_size: int | None = None

    @property
    def is_outside(self) -> bool:
        """All that it gives comes from another loader."""
        newest = self.newest() if self.newest is not None else None
        return not self.batches and newest is not None and newest.demoted

    def count(self, optimizer_steps: int, backwards: int) -> None:
        """What the script did with its last batch."""
        if not self.trained and (optimizer_steps or backwards):
            # What came before, like a pass that computes means, is no warm-up.
            self.trained, self.batches, self.first_ns = True, 1, time.perf_counter_ns()
            self.steps, self.batch_s = [], []
            self.replay, self.not_kept = None, ""
        elif len(self.steps) > 64:
            del self.steps[:32], self.batch_s[:32]
        self.backwards += backwards
        if optimizer_steps:
            self.optimizer_steps += optimizer_steps
            self.steps_each = max(1, self.batches - self.stepped_at)
            self.stepped_at = self.batches

    def note_steps(self, probe: Probe) -> None:
        """Those of the process so far: what comes from here on is counted."""
        self.steps_before, self.backwards_before = probe.optimizer_steps, probe.backwards

    def described(self) -> str:
        where = f", read at {self.where}" if self.where else ""
        steps = self.optimizer_steps or self.backwards
        kind = "optimizer steps" if self.optimizer_steps else "backward passes"
        between = f"{steps} {kind}" if steps else "no optimizer step and no backward pass"
        return (
            f"loader {self.number} ({self.name}{where}): {self.batches} batches, {between} "
            "between them"
        )

    def goes_on(self) -> bool:
        """Its newest iterator is in use."""
        newest = self.newest() if self.newest is not None else None
        return newest is not None and not newest.done


class Probe:
    """One in a process."""

    def __init__(self) -> None:
        from . import work

        self.folder = os.environ["HEADRACE_STALLS_DIR"]
        with open(os.path.join(self.folder, "settings.json"), encoding="utf-8") as file:
            self.settings: dict[str, Any] = json.load(file)
        self.states: weakref.WeakKeyDictionary[Any, LoaderState] = weakref.WeakKeyDictionary()
        self.all_states: list[LoaderState] = []
        self.pid = os.getpid()
        self.run: Run | None = None
        self.over = False  # nothing more is measured in this process
        self.optimizer_steps = 0
        self.backwards = 0
        self.first_step_s = 0.0  # when training was seen first
        self.trainers: set[int] = set()  # threads that step or go backward
        self.barked = False  # the watchdog has said that nothing is found
        self.has_optimizer: bool | None = None  # once looked for
        self.device: Any = None
        self.stack = _Stack()
        self.announced: dict[str, int] | None = None
        self.wanted = int(self.settings.get("warm_up") or WARM_UP)
        self._rank_and_size: tuple[int, int] | None = None
        self._joined = False  # a process group of torch's
        self._channel: Any = None
        self.crashed: type[BaseException] | None = None
        self.met = False
        work.own()
        atexit.register(self._at_exit)
        if multiprocessing.parent_process() is not None:  # which runs no exit handlers
            Finalize(None, self._at_exit, exitpriority=0)
        before = sys.excepthook

        def excepthook(kind: Any, value: Any, trace: Any) -> None:
            self.crashed = kind
            before(kind, value, trace)

        sys.excepthook = excepthook

    # Ranks

    def ranks(self) -> dict[str, Any]:
        import torch.distributed

        def number(name: str, otherwise: int) -> int:
            try:
                return int(os.environ[name])
            except (KeyError, ValueError):
                return otherwise

        rank, size = number("RANK", 0), number("WORLD_SIZE", 1)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            rank = torch.distributed.get_rank()
            size = torch.distributed.get_world_size()
        return {
            "run": self.settings["run"],
            "rank": rank,
            "world_size": size,
            "local_rank": number("LOCAL_RANK", rank),
            "local_world_size": number("LOCAL_WORLD_SIZE", size),
            "host": os.uname().nodename,
        }

    def channel(self) -> Any:
        if self._channel is None:
            from .channel import Channel, default_address

            ranks = self.ranks()
            size = ranks["world_size"]
            address = self.settings.get("channel") or default_address(
                size, ranks["local_world_size"]
            )
            self._channel = Channel(ranks["rank"], size, self.folder, address)
        return self._channel

    def _meet(self) -> None:
        """Ranks of several hosts find each other before any of them waits for another within
        a step of training."""
        if self.ranks()["world_size"] == 1:
            return
        try:
            self.channel()
        except Exception as error:
            self.over = True
            self.problem(
                "ranks",
                f"the ranks of this run could not meet: {error}",
                "give an address on rank 0's host that all hosts reach: --channel HOST:PORT",
            )
            self.end(EXIT_INTERNAL)

    # Loaders

    def state_of(self, loader: Any) -> LoaderState:
        try:
            state = self.states.get(loader)
        except TypeError:  # cannot be referred to weakly
            state = None
        if state is not None:
            return state
        kind = type(loader)
        name = f"{kind.__module__}.{kind.__qualname__}"
        key = _key(loader)
        # Scripts make their loader anew for each epoch: one loop all the same.
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
        """``begin`` makes an iterator of ``loader`` the way class ``kind`` does."""
        if self.over or os.getpid() != self.pid:
            return begin(loader)  # type: ignore[no-any-return]
        if not self.met:
            self.met = True
            hook_training()
            self._meet()
        state = self.state_of(loader)
        before = state.newest() if state.newest is not None else None
        if before is not None and before.kind is not kind and issubclass(before.kind, kind):
            before.demote()  # this is called by its __iter__
        iterator = ProbedIterator(self, loader, state, kind, begin)
        run = self.run
        if run is None or run.state is not state:
            state.newest = weakref.ref(iterator)
            iterator.begin()
        elif iterator.demoted:
            run.measurement.restart = True  # the loop around it was left and begun again
            iterator.begin()
        # Else its batches come from the run: nothing is begun that would load others.
        return iterator

    def went_backward(self) -> None:
        self.backwards += 1
        self._trained()

    def _trained(self) -> None:
        """Something learned. Says so where that goes on without a loop to measure."""
        if self.over or self.run is not None or os.getpid() != self.pid:
            return
        self.trainers.add(threading.get_ident())
        now = time.monotonic()
        self.first_step_s = self.first_step_s or now
        limit = float(self.settings.get("watchdog_s") or WATCHDOG_S)
        if self.barked or now - self.first_step_s < limit or self._may_yet_be_found():
            return
        self.barked = True
        print(
            f"headrace stalls: {now - self.first_step_s:.0f} s of training ({self._steps()}) and no "
            f"loop over a loader to measure; seen instead: {self._seen()}; {WAY_OUT}. The script goes "
            "on; Ctrl-C ends it.",
            file=sys.stderr,
            flush=True,
        )

    def _may_yet_be_found(self) -> bool:
        """A loop trains with a loader, and has not come to enough batches."""
        enough = self.wanted + PATIENCE_BATCHES + LEAD
        return any(
            state.goes_on() and state.trained and state.batches <= enough
            for state in self.all_states
        )

    def is_read_by_training(self, state: LoaderState) -> bool:
        """Not by a thread that reads ahead for the one that trains."""
        return not self.trainers or state.thread in self.trainers

    def steps_done(self) -> int:
        """Of an optimizer, or else of training without one."""
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
        """Whether it is time to take this loop."""
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
            self.channel().tell("adopt", self.announced)
            return False
        return True

    def _ranks_of_run(self) -> tuple[int, int]:
        """Rank and size. Asked at each batch: the script may yet join a process group."""
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
            # An update without torch.optim, or somebody who knows that this loop trains.
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
        """A script that stands in for training, or trains by something other than torch: no
        optimizer is there, and no gradient is asked for or kept from being asked for."""
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
        """The measuring run begins with the loop of this iterator; not where another process
        is measured as this rank already."""
        rank = self._ranks_of_run()[0]
        path = os.path.join(self.folder, f"measured-{rank}")
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            # What a helping process left, which read data and did not train.
            os.unlink(os.path.join(self.folder, f"problem-{rank}.json"))
        except FileNotFoundError:
            pass
        except FileExistsError:
            self.over = True
            print(
                f"headrace stalls: process {self.pid} trains, too; what is measured is the process "
                "that was first",
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
        from .run import Run

        self.run = Run(self, iterator)
        return True

    # Endings

    def problem(self, code: str, text: str, remedy: str) -> None:
        rank = self.ranks()["rank"] if "torch.distributed" in sys.modules else 0
        path = os.path.join(self.folder, f"problem-{rank}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"code": code, "text": text, "remedy": remedy}, file)

    def give_up(self, error: Exception) -> NoReturn:
        """Something of ours failed: say it and end, so that no script goes on with a loop
        that is half taken over."""
        from .channel import RanksApart
        from .measurement import CannotTell

        if isinstance(error, RanksApart):
            self.problem("ranks", str(error), "see docs/stalls.md, several ranks")
        elif isinstance(error, CannotTell):
            self.problem("thread", str(error), WAY_OUT)
        elif isinstance(error, RuntimeError) and "too few" in str(error):
            self.problem("few-batches", str(error), "measure with more data")
        else:
            trace = "".join(traceback.format_exception(error))
            self.problem("internal", trace, "please report this")
        self.end(EXIT_INTERNAL)

    def end(self, status: int) -> NoReturn:
        """Ends the process here: no except, no finally, no exit handler of the script runs."""
        import multiprocessing
        from multiprocessing import util

        from . import work

        self.over = True
        try:
            if status:  # launchers of ranks have an exit status of their own
                with open(os.path.join(self.folder, f"gave-up-{self.pid}"), "w", encoding="ascii"):
                    pass
            if self.run is not None:
                self.run.measurement.source.close()
            work.record(False)
            for child in multiprocessing.active_children():
                if child.daemon:
                    child.terminate()
            # Those of multiprocessing alone: its semaphores would be reported as leaked.
            util._run_finalizers(0)  # type: ignore[attr-defined]
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        finally:
            os._exit(status)

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
        """Why nothing was measured, though loaders were iterated."""
        if any(name.startswith("measured-") for name in os.listdir(self.folder)):
            return  # another process is
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
                "let it run for more batches or epochs, or lower --warm-up",
            )


class ProbedIterator:
    """Stands for an iterator of a loader."""

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
        self.demoted = kind in state.outside  # it is the outside of another iterator
        self.done = False

    def begin(self) -> None:
        self._start = time.perf_counter()
        self._real = self.begin_of(self.loader)

    @property
    def real(self) -> Any:
        return self._real

    def demote(self) -> None:
        """What it gives comes from another iterator, which is the one to look at."""
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
            if not probe.is_read_by_training(state):  # what it reads is trained with meanwhile
                state.note_steps(probe)
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
            state.note_steps(probe)
        if probe.wanted - 2 <= state.batches <= probe.wanted + KEEP_FOR:
            self._keep(batch)
        return batch

    def _trains(self) -> bool:
        """Whether a thread that trains asks."""
        return threading.get_ident() in self._probe.trainers or not self._probe.trainers

    def _ask(self) -> Any:
        """The loader's own next batch."""
        if self._real is None:  # begun within the run, which ended
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
        """Batches to replay are copied before the script sees them: two at the end of the
        warm-up, and those of other shapes."""
        state = self.state
        try:
            if state.replay is None:
                from .replay import Replay

                state.replay = Replay()
            state.replay.keep(batch)
        except Exception as error:  # said if this is the loop to measure
            state.not_kept = f"{type(error).__name__}: {error}"

    def close(self) -> None:
        close = getattr(self._real, "close", None)
        if close is not None:
            close()


def _key(loader: Any) -> tuple[Any, ...]:
    """What loaders have in common that a script makes anew for each of its epochs."""
    dataset = getattr(loader, "dataset", None)
    try:
        samples = len(dataset)  # type: ignore[arg-type]
    except Exception:  # a stream's __len__ may raise anything
        samples = None
    sizes = [getattr(loader, name, None) for name in ("batch_size", "num_workers")]
    return (type(loader), type(dataset), samples, *map(str, sizes))


_probe: Probe | None = None


def the_probe() -> Probe:
    global _probe
    # A child that was forked off a process which trains is no rank of the training.
    forked = _probe is not None and _probe.pid != os.getpid()
    if _probe is None or (forked and not _probe.optimizer_steps):
        _probe = Probe()
    return _probe


def _is_worker() -> bool:
    """A process that multiprocessing started to load data, not to train."""
    worker = sys.modules.get("torch.utils.data._utils.worker")
    return getattr(worker, "_worker_info", None) is not None


_hooked = False


def hook_training() -> None:
    """Counts steps of optimizers and backward passes, of whatever process trains."""
    global _hooked
    if _hooked:
        return
    _hooked = True
    import torch.autograd
    from torch.optim.optimizer import register_optimizer_step_post_hook

    def stepped(optimizer: Any, *_: Any) -> None:
        if not _is_worker():
            the_probe().stepped(optimizer)

    register_optimizer_step_post_hook(stepped)

    def counted(original: Any) -> Any:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not _is_worker():
                the_probe().went_backward()
            return original(*args, **kwargs)

        return call

    for name in ("backward", "grad"):
        setattr(torch.autograd, name, counted(getattr(torch.autograd, name)))


def _line_of_script() -> str:
    """FILE:LINE of the innermost caller outside of this package and of installed ones."""
    frame = sys._getframe(1)
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith((ours, "<")) and "/site-packages/" not in path:
            if not path.startswith(os.path.dirname(os.__file__)):
                return f"{os.path.basename(path)}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def attach(name: str, module: Any) -> None:
    """Wraps the loaders of a module that was just imported."""
    if name == "torch.optim.optimizer":
        hook_training()
        return
    if name == "torch.utils.data.dataloader":
        import torch.utils.data._utils.fetch as fetch

        from . import work

        work.wrap_fetchers(fetch)
        _wrap_class(module.DataLoader)
        _wrap_subclasses(module.DataLoader)
    elif name == "headrace.torch":
        _wrap_class(module.DataLoader)
    elif name.startswith("nvidia.dali.plugin"):
        for kind in list(vars(module).values()):
            if isinstance(kind, type) and "__next__" in dir(kind) and "__iter__" in vars(kind):
                _wrap_class(kind)


def _wrap_class(kind: type) -> None:
    original = kind.__iter__  # type: ignore[attr-defined]
    if getattr(original, "_headrace", False):
        return

    @functools.wraps(original)
    def begin(self: Any) -> Any:
        if getattr(self, "_headrace_measured", False) or _is_worker():
            return original(self)
        return the_probe().wrap(self, kind, original)

    begin._headrace = True  # type: ignore[attr-defined]
    kind.__iter__ = begin  # type: ignore[attr-defined]


_followed: set[type] = set()


def _wrap_subclasses(base: type) -> None:
    """Subclasses that iterate in their own way, those of today and of later."""
    kinds: list[type] = base.__subclasses__()
    for kind in kinds:
        if "__iter__" in vars(kind):
            _wrap_class(kind)
        _wrap_subclasses(kind)
    if base in _followed:
        return
    _followed.add(base)
    original = base.__dict__.get("__init_subclass__")

    def init_subclass(cls: Any, **kwargs: Any) -> None:
        if original is not None:
            original.__get__(None, cls)(**kwargs)
        else:
            super(base, cls).__init_subclass__(**kwargs)  # type: ignore[arg-type]
        if "__iter__" in vars(cls):
            _wrap_class(cls)

    base.__init_subclass__ = classmethod(init_subclass)  # type: ignore[arg-type,assignment]


class _Watched:
    """What :func:`headrace.watch` gives within a measuring run."""

    def __init__(self, loader: Any, batch_size: int | None) -> None:
        self._loader, self._batch_size = loader, batch_size

    def __iter__(self) -> Iterator[Any]:
        iterator = the_probe().wrap(self._loader, _Watched, iter)
        if isinstance(iterator, ProbedIterator):
            iterator.state.watched = True
            iterator.state.batch_size = self._batch_size
        return iterator

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def watch(loader: Any, batch_size: int | None) -> Any:
    """See :func:`headrace.stalls.watch`."""
    if getattr(type(loader).__iter__, "_headrace", False):
        state = the_probe().state_of(loader)
        state.watched, state.batch_size = True, batch_size
        return loader
    return _Watched(loader, batch_size)
