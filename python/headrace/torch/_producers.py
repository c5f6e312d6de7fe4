"""The worker processes that make a dataset's samples for an agent.

Each job that shares a dataset of its own starts processes with its own code and keeps them for as
long as its loader lives. They ask the agent for work (``headrace/producer.h``): it decides which
processes of which job make what. A process ends with its job, however that ends.

The first process makes one sample before anything else. Its layout says how many bytes a sample
has, and its bytes are part of what jobs compare. That happens in the process, not in the job,
because datasets may open files with their first sample, which must not be shared by a fork.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import mmap
import multiprocessing
import os
import random
import re
import select
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import Subset
from torch.utils.data._utils import worker as _torch_worker

from .. import _core
from ..cached import CachedDataset
from ._layout import Layout, Slot
from ._worker import Failure, Folder, Message, _next_numbers, _seed, _wrapped, reason_of

_SLOTS = 5  # of each process: two samples to make, two on their way, one in place of a bad one
_SLOTS_MOST = 64  # of small samples, and of datasets that make several at once
_SMALL = 1 << 20  # bytes of a process's memory, if samples are small
_AT_ONCE = 1 << 26  # the same for a dataset with a __getitems__
_LINE = 64  # slots are multiples of it
_FIRST = 32  # samples that are tried for the layout, if bad ones are skipped
_ENDS = 3  # of each process, without a batch in between: it makes no sense to start more
_END_S = 5.0  # until a process that should end is killed
_AGAIN_S = 0.1  # between two attempts to connect to the next agent

_logger = logging.getLogger("headrace")


@dataclass
class Dataset:
    """What all jobs of a stream must have in common."""

    count: int
    name: str
    layout: Layout
    digest: bytes

    def open(self) -> tuple[_core.Dataset, _core.Recipe]:
        return _core.produced(
            self.count, self.layout.size, self.name, self.layout.digest(), self.digest
        )


@dataclass
class First:
    """What the first process says of the first sample."""

    layout: Layout
    content: bytes  # digest of its bytes


def identity_of(samples: Any, first: First, share_key: str | None) -> bytes:
    """Returns a digest of what makes a dataset this one, besides class, length and layout.

    That is ``share_key``, if there is one. Else it is what can be seen: subsets' indices, names and
    labels of files, the texts of transforms, and the first sample's bytes.
    """
    seen: list[Any] = []
    if share_key is not None:
        seen.append(("share_key", share_key))
    else:
        seen.append(("first", first.content))
        dataset = samples.dataset
        while type(dataset) in (Subset, CachedDataset):
            if type(dataset) is Subset:
                indices = torch.as_tensor(list(dataset.indices), dtype=torch.int64)
                seen.append(("subset", hashlib.blake2b(indices.numpy().tobytes()).hexdigest()))
            dataset = dataset.dataset
        for name in ("transform", "target_transform", "transforms"):
            seen.append((name, _text(getattr(dataset, name, None))))
        if isinstance(samples, Folder):
            seen.append(("files", samples.names_digest()))
            seen.append(("pipeline", _text(samples.pipeline.whole())))
    return hashlib.blake2b(repr(seen).encode(), digest_size=16).digest()


def _text(value: Any) -> str:
    """Returns repr(value) without addresses, which differ between processes."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def name_of(samples: Any) -> str:
    kind = type(samples.dataset)
    return f"{kind.__module__}.{kind.__qualname__}"[-100:]


class Producers:
    """A job's processes.

    Args:
        samples: makes one sample, see ``_worker.py``.
        workers: number of processes.
        begin: the user's worker_init_fn, or None.
        context: the user's multiprocessing context, or None.
        skips: whether bad samples are skipped.
    """

    def __init__(
        self, samples: Any, *, workers: int, begin: Any, context: Any, skips: bool
    ) -> None:
        if context is None or isinstance(context, str):
            context = multiprocessing.get_context(context)
        self._context = context
        self._work = _Work(samples, workers, begin, skips, os.getpid())
        self._serve: _Serve | None = None
        self._processes: list[Any] = []
        self._pipes: list[Any] = []
        self._ends = 0  # of processes since the last batch
        self._owner = os.getpid()
        for number in range(workers):
            self._start(number, number == 0)

    def _start(self, number: int, looks: bool) -> None:
        ours, theirs = self._context.Pipe()
        others = [pipe for pipe in [*self._pipes, ours] if pipe is not None]
        is_fork = self._context.get_start_method() == "fork"
        process = self._context.Process(
            target=_main,
            args=(self._work, theirs, others if is_fork else [], number, looks),
            name=f"headrace-producer-{number}",
            daemon=True,
        )
        process.start()
        theirs.close()
        if number < len(self._processes):
            self._processes[number], self._pipes[number] = process, ours
        else:
            self._processes.append(process)
            self._pipes.append(ours)

    def first(self) -> First:
        """Waits for the first sample. Raises what making it raised."""
        pipe, process = self._pipes[0], self._processes[0]
        while not pipe.poll(0.1) and process.is_alive():
            pass
        message = self._received(0) if pipe.poll(0) else None
        if message is None:
            process.join(_END_S)
            raise RuntimeError(
                f"{_ended(process)} while it made the first sample: look for a crash or the "
                "kernel's out-of-memory killer (dmesg)"
            )
        if isinstance(message, Failure):
            message.wrapper.reraise()
        assert isinstance(message, First)
        return message

    def _received(self, number: int) -> Any:
        try:
            return self._pipes[number].recv()
        except (EOFError, OSError):
            return None

    def serve(self, agent: str, dataset: Dataset) -> None:
        """Lets the processes connect to the agent."""
        self._serve = _Serve(agent, dataset)
        for pipe in self._pipes:
            _send(pipe, self._serve)

    def progressed(self) -> None:
        self._ends = 0

    def check(self) -> None:
        """Starts a process for each that has ended. Raises RuntimeError if they end all the time, or
        cannot work."""
        if self._owner != os.getpid():
            return
        for number, process in enumerate(self._processes):
            message = self._received(number) if self._pipes[number].poll(0) else None
            if isinstance(message, Failure):
                message.wrapper.reraise()
            if process.is_alive():
                continue
            self._ends += 1
            if self._ends > _ENDS * len(self._processes):
                raise RuntimeError(
                    f"{_ended(process)}, and so did those before it: look for a crash or the "
                    "kernel's out-of-memory killer (dmesg)"
                )
            _logger.warning("%s: another one takes its place", _ended(process))
            self._pipes[number].close()
            self._start(number, False)
            _send(self._pipes[number], self._serve)

    def close(self) -> None:
        """Ends the processes, after the samples that they are making."""
        processes, self._processes = self._processes, []
        pipes, self._pipes = self._pipes, []
        if self._owner != os.getpid():
            return  # they are the parent's
        for pipe in pipes:
            _send(pipe, None)  # another process of the job may have this end, too
            pipe.close()
        until = time.monotonic() + _END_S
        for process in processes:
            process.join(max(0.0, until - time.monotonic()))
            if process.exitcode is None:
                process.kill()
                process.join()

    def __del__(self) -> None:
        if getattr(self, "_processes", None):
            self.close()


def _ended(process: Any) -> str:
    code = process.exitcode
    how = f"was killed by signal {-code}" if code is not None and code < 0 else f"exited ({code})"
    return f"the worker process {process.pid} {how}"


def _send(pipe: Any, what: Any) -> None:
    try:
        pipe.send(what)
    except OSError:
        pass  # it has ended, which check() sees


# A process


@dataclass
class _Work:
    samples: Any
    workers: int
    begin: Any
    skips: bool
    job: int  # the job's process


@dataclass
class _Serve:
    agent: str
    dataset: Dataset


def _main(work: _Work, pipe: Any, others: list[Any], number: int, looks: bool) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the job, which ends this
    for other in others:
        other.close()  # else the job's end could not be seen
    torch.set_num_threads(1)
    try:
        _begin(work, number)
        if looks:
            _send(pipe, _first(work))
        served = _Process(work, pipe)
        served.run()
    except (EOFError, ConnectionResetError):
        pass  # the job has ended
    except Exception:
        _send(pipe, Failure(_wrapped()))


def _begin(work: _Work, number: int) -> None:
    _torch_worker._worker_info = _torch_worker.WorkerInfo(
        id=number, num_workers=work.workers, seed=number, dataset=work.samples.dataset
    )
    if work.begin is not None:
        work.begin(number)


def _first(work: _Work) -> First | Failure:
    """Makes the first sample that is good."""
    failure = None
    for index in range(min(_FIRST if work.skips else 1, len(work.samples))):
        try:
            sample = _make(work, index, 0, 0)
        except Exception:
            failure = failure or Failure(_wrapped())
            continue
        try:
            layout = Layout.of(sample)
            slot = layout.slot(torch.zeros(layout.size, dtype=torch.uint8))
            label = slot.write(sample)
        except Exception:
            return Failure(_wrapped())
        key = hashlib.blake2b(slot.content(), digest_size=16)
        key.update(label.to_bytes(8, "little", signed=True))
        return First(layout, key.digest())
    assert failure is not None
    return failure


def _make(work: _Work, index: int, epoch: int, seed: int) -> Any:
    _seed(seed, epoch, index, 0)
    return work.samples(index, seed, epoch, Message())


_Task = tuple[int, int, int, int]  # slot, index, epoch, seed


class _Copies:
    """Copies of the process-wide random generators. They give the same numbers as these until someone
    else draws or seeds."""

    def __init__(self) -> None:
        numpy = sys.modules.get("numpy")
        self._torch = torch.Generator().set_state(torch.default_generator.get_state())
        self._python = random.Random()
        self._python.setstate(random.getstate())
        self._numpy = None if numpy is None else numpy.random.RandomState()
        if self._numpy is not None:
            self._numpy.set_state(numpy.random.get_state())

    def agree(self) -> bool:
        """Draws a number from each generator and its copy."""
        return _next_numbers() == (
            int(torch.empty((), dtype=torch.int64, device="cpu").random_(generator=self._torch)),
            self._python.getrandbits(64),
            None if self._numpy is None else self._numpy.bytes(8),
        )


class _Process:
    """Makes samples for one agent after the other, until the job ends."""

    def __init__(self, work: _Work, pipe: Any) -> None:
        self._work, self._pipe = work, pipe
        self._poller = select.poll()
        self._poller.register(pipe.fileno(), select.POLLIN)
        parent = multiprocessing.parent_process()
        if parent is not None:
            self._poller.register(parent.sentinel, select.POLLIN)
        # Not so with a fork server. Other forks of the job may have its end of the pipes.
        self._is_child = os.getppid() == work.job
        serve: _Serve = pipe.recv()
        self._agent = serve.agent
        self._dataset, _ = serve.dataset.open()
        self._layout = serve.dataset.layout
        self._slots: list[Slot] = []
        self._copies: _Copies | None = None
        self._draws = False  # whether samples draw random numbers; only with copies

    def _is_over(self) -> bool:
        """Returns whether the job has ended, or wants this process to end."""
        return bool(self._poller.poll(0)) or (
            self._is_child and os.getppid() != self._work.job
        )

    def _connect(self) -> _core.Producer:
        """Connects to the agent, with new memory: an agent that ended an earlier connection may
        still read the samples in its memory."""
        size = -(-self._layout.size // _LINE) * _LINE
        count = self._count_slots(size)
        file = os.memfd_create("headrace-samples", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(file, count * size)
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            producer = _core.Producer(self._agent, self._dataset, file)
            memory = torch.frombuffer(mmap.mmap(file, count * size), dtype=torch.uint8)
        finally:
            os.close(file)
        self._slots = [
            self._layout.slot(memory[n * size : (n + 1) * size]) for n in range(count)
        ]
        return producer

    def _count_slots(self, size: int) -> int:
        fetches = self._work.samples.fetch is not None
        return max(_SLOTS, min(_SLOTS_MOST, (_AT_ONCE if fetches else _SMALL) // size))

    def run(self) -> None:
        while not self._is_over():
            try:
                producer = self._connect()
            except (ConnectionError, FileNotFoundError, TimeoutError):
                time.sleep(_AGAIN_S)  # there may be another agent soon
                continue
            try:
                self._serve(producer)
            except ConnectionError:
                continue
            finally:
                producer.close()

    def _serve(self, producer: _core.Producer) -> None:
        # Of a memory with many slots the agent uses half for what it asks for. Half of that is made
        # at once, while the rest waits in the socket: so there is always something to make.
        most = max(1, len(self._slots) // 4)
        while not self._is_over():
            tasks = producer.take(most, self._pipe.fileno())
            answers = self._together(tasks)
            for n, task in enumerate(tasks):
                answer = answers[n] if answers else self._written(task[0], self._seeded, *task[1:])
                self._answer(producer, task, answer)

    def _together(self, tasks: list[_Task]) -> list[int | Exception]:
        """Makes samples without seeding for each: with one call, if the dataset has a
        ``__getitems__``. Returns nothing if they must be made one by one: if they drew a random
        number, or that call failed."""
        samples, timed = self._work.samples, Message()
        if self._copies is None or self._draws or not tasks:
            return []
        if samples.fetch is None:
            answers = [
                self._written(slot, samples, index, seed, epoch, timed)
                for slot, index, epoch, seed in tasks
            ]
        else:
            try:
                made = list(samples.fetch([index for _, index, _, _ in tasks]))
            except Exception:
                made = []
            if len(made) != len(tasks):
                self._copies = None  # for they will be seeded
                return []
            answers = [self._written(task[0], made.__getitem__, n) for n, task in enumerate(tasks)]
        self._draws = not self._copies.agree()
        return [] if self._draws else answers

    def _seeded(self, index: int, epoch: int, seed: int) -> Any:
        """Makes a sample. The first one shows whether samples draw random numbers."""
        if self._draws:
            return _make(self._work, index, epoch, seed)
        _seed(seed, epoch, index, 0)
        self._copies = _Copies()
        sample = self._work.samples(index, seed, epoch, Message())
        self._draws = not self._copies.agree()
        return sample

    def _written(self, slot: int, make: Any, *arguments: Any) -> int | Exception:
        """Makes a sample and writes it to its slot. Returns its label, or why that cannot be done."""
        try:
            return self._slots[slot].write(make(*arguments))
        except Exception as error:
            return error

    def _answer(self, producer: _core.Producer, task: _Task, answer: int | Exception) -> None:
        slot, index, _, _ = task
        if isinstance(answer, int):
            producer.done(slot, answer)
            return
        if not self._work.skips:
            text = "".join(traceback.format_exception(answer))
            _logger.error("sample %d could not be made:\n%s", index, text)
        producer.failed(slot, reason_of(answer))
