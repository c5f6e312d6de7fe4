"""The jobs of bench/share.py: K processes that take batches from one of four kinds of loader,
all with the same preparation, and note the arrival of each batch.

They are forked by a parent that has imported everything, so a case starts at once. Each notes
its batches in memory shared with the parent, so a job that hangs in its loader can be killed
without losing its notes. Each leads a session, so the worker processes of its loader can be
found, counted and ended with it.

TensorSocket (PyPI) pickles whole storages of tensors that are not on a GPU: 2.4 GB for eight
batches of 64, for each consumer, which is very slow. Both ends take the packing as an argument, so
here they use torch.multiprocessing's, which sends descriptors of shared memory, as TensorSocket
itself does for tensors on a GPU. It never sends the last eight batches of an epoch, so epochs are
long here. It would bind all interfaces, so it is set to the loopback interface. If a consumer does
not answer within half a second, TensorSocket forgets it and what it received; it then sends the
same batches for ever, or none for the rest of the epoch. So the limit is set to two seconds, and a
case that still hangs is started again.
"""

import ctypes
import json
import logging
import mmap
import os
import pickle
import select
import signal
import socket
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tools"))

BATCH = 64
SIDE = 224
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
REPEAT = 8  # how often an epoch repeats the folder's samples
WINDOW = 8  # batches that a shared stream keeps
GROUP = 8  # batches that TensorSocket sends at a time
HEARTBEAT_MS = 2000  # of TensorSocket's, that has 500
BATCHES_MOST = 200_000
STREAM = "bench-share"
PR_SET_PDEATHSIG = 1


def training_transform(t, first):
    """Returns the transform, the same for all. `t`: headrace.transforms or
    torchvision.transforms.v2."""
    import torch

    return t.Compose([t.RandomResizedCrop(SIDE), t.RandomHorizontalFlip(), *first,
                      t.ToDtype(torch.float32, scale=True), t.Normalize(MEAN, STD)])


class Notes:
    """The arrival times of each job's batches, in shared memory that the jobs write. Times are
    seconds of the monotonic clock, which is the same in all processes."""

    HEAD = 8  # count of batches, seconds waited, bytes read if the loader counts them

    def __init__(self, jobs):
        self._each = self.HEAD + BATCHES_MOST
        self._memory = mmap.mmap(-1, jobs * self._each * 8)
        self._numbers = memoryview(self._memory).cast("d")

    def put(self, job, when, waited):
        base = job * self._each
        count = int(self._numbers[base])
        self._numbers[base + self.HEAD + count] = when
        self._numbers[base + 1] += waited
        self._numbers[base] = count + 1

    def count(self, job):
        return int(self._numbers[job * self._each])

    def waited(self, job):
        return self._numbers[job * self._each + 1]

    def put_read(self, job, bytes_read):
        self._numbers[job * self._each + 2] = bytes_read

    def read(self, job):
        return self._numbers[job * self._each + 2]

    def times(self, job):
        base = job * self._each + self.HEAD
        return list(self._numbers[base:base + self.count(job)])


def repeated(dataset):
    """Repeats the dataset, so that an epoch is longer than the measurement."""
    import torch

    return torch.utils.data.Subset(dataset, list(range(len(dataset))) * REPEAT)


def headrace_loader(case, job):
    import headrace
    import headrace.torch
    from headrace import transforms

    dataset = repeated(headrace.ImageFolder(
        case.data, transform=training_transform(transforms, [])))
    if case.kind == "agent":
        return headrace.torch.DataLoader(
            dataset, BATCH, shuffle=True, drop_last=True, agent=case.socket, stream=STREAM,
            join="now", window=WINDOW)
    return headrace.torch.DataLoader(dataset, BATCH, shuffle=True, drop_last=True, seed=job,
                                     num_workers=case.workers)


class Photographs:
    """A dataset with a __getitem__ of its own, whose samples only Python can make."""

    def __init__(self, data):
        import torchvision
        from torchvision.transforms import v2

        self.files = torchvision.datasets.ImageFolder(data).samples
        self.transform = training_transform(v2, [v2.PILToTensor()])

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        from PIL import Image

        path, label = self.files[index]
        with Image.open(path) as image:
            return self.transform(image.convert("RGB")), label


def user_loader(case, job):
    import headrace.torch

    return headrace.torch.DataLoader(
        repeated(Photographs(case.data)), BATCH, shuffle=True, drop_last=True, agent=case.socket,
        stream=STREAM, join="now", window=WINDOW, num_workers=case.workers)


def torch_loader(case, job):
    import torch
    import torchvision
    from torchvision.transforms import v2

    dataset = repeated(
        Photographs(case.data) if case.kind == "user_tensorsocket"
        else torchvision.datasets.ImageFolder(
            case.data, training_transform(v2, [v2.PILToTensor()])))
    return torch.utils.data.DataLoader(
        dataset, BATCH, shuffle=True, drop_last=True, num_workers=case.workers,
        persistent_workers=True, generator=torch.Generator().manual_seed(job))


def shared_bytes(tensors):
    """TensorSocket's packing here: handles of shared memory."""
    import torch.multiprocessing  # noqa: F401  (its reductions)
    from multiprocessing.reduction import ForkingPickler

    return bytes(ForkingPickler.dumps(tuple(tensors)))


def tensorsocket_ports(case):
    return {"port": case.ports[0], "ack_port": case.ports[1], "heart_ports": case.ports[2:]}


def tensorsocket_batches(case, job):
    import tensorsocket

    return tensorsocket.TensorConsumer(batch_size=BATCH, unpack_fn=pickle.loads,
                                       **tensorsocket_ports(case))


def tensorsocket_produce(case):
    """Runs TensorSocket's producer, a process with torch's loader on all cores."""
    import tensorsocket
    import tensorsocket.producer

    tensorsocket.producer.LOCALHOST = "tcp://127.0.0.1"
    tensorsocket.heartbeat.HeartBeater.__init__.__defaults__ = (HEARTBEAT_MS,)
    logging.disable(logging.DEBUG)  # it logs a lot to standard output
    producer = tensorsocket.TensorProducer(
        torch_loader(case, 0), pack_fn=shared_bytes, producer_batch_size=GROUP,
        **tensorsocket_ports(case))
    while True:
        for _ in producer:
            pass


MAKERS = {"agent": headrace_loader, "own": headrace_loader, "torch": torch_loader,
          "tensorsocket": tensorsocket_batches, "user": user_loader,
          "user_tensorsocket": tensorsocket_batches}


def free_ports(count):
    held = [socket.socket() for _ in range(count)]
    for s in held:
        s.bind(("127.0.0.1", 0))
    ports = tuple(s.getsockname()[1] for s in held)
    for s in held:
        s.close()
    return ports


def consume(case, notes, job):
    """Takes batches for ever. A training step is a sleep."""
    import torch

    torch.set_num_threads(1)
    loader = MAKERS[case.kind](case, job)
    while True:
        before = time.monotonic()
        for _ in loader:
            now = time.monotonic()
            notes.put(job, now, now - before)
            if case.kind == "own":
                notes.put_read(job, loader.stats()["bytes_read"])
            if case.step_s:
                time.sleep(case.step_s)
            before = time.monotonic()


class Forked:
    """A child process that runs `function` and leads a session."""

    def __init__(self, function, *arguments):
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid:
            return
        status = 1
        try:
            os.setsid()
            # The parent ends it; if the parent is killed, the kernel does.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            function(*arguments)
            status = 0
        except BaseException as error:  # print it and exit: no code of the parent may run here
            print(f"{function.__name__}: {error.__class__.__name__}: {error}", file=sys.stderr,
                  flush=True)
        finally:
            os._exit(status)

    def ended(self):
        """Non-zero status of a child that has ended by itself, else None."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self.pid = 0
        return status if pid else None

    def end(self):
        """Kills the whole session and waits for it."""
        session = [pid for pid, _ in family(self.pid)] if self.pid else []
        for pid in session:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if self.pid:
            os.waitpid(self.pid, 0)
            self.pid = 0


def answers(functions, seconds):
    """Calls functions without arguments at the same time, each in its own child process. Returns
    their results (passed as JSON); None for a child that ended early or exceeded `seconds`."""
    reading, writing = os.pipe()

    def answer(number, function):
        os.write(writing, json.dumps([number, function()]).encode() + b"\n")

    children = [Forked(answer, n, function) for n, function in enumerate(functions)]
    os.close(writing)
    text, end = b"", time.monotonic() + seconds
    try:
        while select.select([reading], [], [], max(0, end - time.monotonic()))[0]:
            piece = os.read(reading, 1 << 16)
            if not piece:
                break
            text += piece
    finally:
        for child in children:
            child.end()
        os.close(reading)
    found = dict(map(json.loads, text.splitlines()))
    return [found.get(n) for n in range(len(functions))]


def family(leader):
    """Returns (pid, CPU seconds) of each process of a session."""
    tick = os.sysconf("SC_CLK_TCK")
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as f:
                fields = f.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[3]) == leader or int(pid) == leader:
            found.append((int(pid), (int(fields[11]) + int(fields[12])) / tick))
    return found


def read_characters(pids):
    """Returns the bytes that processes have read with system calls, from the page cache too."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/io") as f:
                total += int(f.readline().split()[1])
        except (OSError, ValueError):
            pass
    return total


def memory_files(pid):
    """Returns the bytes that the anonymous files of a process really take."""
    seen = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{name}"
        try:
            if os.readlink(path).startswith("/memfd:"):
                status = os.stat(path)
                seen[status.st_ino] = status.st_blocks * 512
        except OSError:
            pass
    return sum(seen.values())
