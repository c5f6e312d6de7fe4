"""CachedDataset: a cache for datasets that decode by themselves.

It wraps a map-style dataset and caches in shared memory, or in that of several hosts, what
``__getitem__`` returns, or the bytes of the files that it reads, for all worker processes of a
loader, other jobs and later runs.

:class:`_Store` is this process's handle of the cache; it reopens the cache after a fork and in a
spawned worker. :class:`_FileLoader` replaces the ``loader`` of a dataset and caches files.
:class:`CachedDataset` caches samples and applies ``after``. There are no reference cycles, so that
the last user closes the cache without a garbage collection. torch and torchvision are recognised
by name and never imported here.
"""

from __future__ import annotations

import copy as _copy
import io
import logging
import operator
import os
import pickle
import random
import struct
import sys
import threading
import time
import uuid
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from . import _core, _rows
from ._first import FirstSample
from ._torchvision import is_loader
from ._values import Damaged, Unkept, decode, encode, type_name
from .datasets import _ImageDataset

__all__ = ["CachedDataset"]

_logger = logging.getLogger("headrace")

_WATCHED = 32  # samples per process that are checked for random numbers
_FRESH_NS = 20_000_000  # several times the resolution of file times


class CachedDataset:
    """A dataset whose samples stay in memory, for all processes that use it.

    ``CachedDataset(dataset, "64GiB")`` takes the dataset's place in
    ``torch.utils.data.DataLoader``: the first epoch fills the cache, later ones read from it.
    Samples are never evicted; the dataset makes those that do not fit each time, as before.
    Samples equal those of the dataset, and you may modify them.

    Args:
        dataset: any object with ``__len__`` and ``__getitem__``.
        cache: size of the cache, in bytes or as text. ``"64GiB"``: a private cache, shared by
            this process and its worker processes and removed with the last of them.
            ``"shm:NAME?size=64GiB"``: a kept cache, available to other jobs and later runs.
            ``"disk:/nvme/headrace?size=1TiB"``: a cache in a directory on a disk, which is kept,
            too. ``"memcached:hostA:11211,hostB:11211?size=64GiB"``: a cache on the memcached servers
            of several hosts; a server that fails costs time only.
        identity: a text that names this dataset and its version, such as
            ``"birds 2024-03, 256 px"``. All users of one identity share its samples.
            Required for a cache on several hosts, and for a kept cache and ranks that share a
            cache, unless files are cached.
        key: ``key(index)``, for datasets whose samples change: its value (str, int, bytes,
            tuples of these) becomes part of the sample's key, so that a new value is a miss.
        after: a function of the sample, called on every access after the cache. Random
            augmentation belongs here. ``"transform"``: removes the dataset's own
            ``transform`` (or ``transforms``) and applies it here, to the first element of
            tuples.
        files: ``"auto"``, ``True``: for datasets with an attribute ``loader`` that is called
            with a path, as torchvision's ``ImageFolder``, cache the files unchanged;
            decoding and transforms run on every access. A changed file is read again.
            The loader gets the path of a copy in memory; a function given here gets an open
            binary file instead. ``False``: cache what the dataset returns.
        copy: ``False``: arrays and tensors are views of the cache. NumPy's are read-only;
            **do not write to torch's**: that destroys the cached sample.
        wait: most seconds to wait, up to 10, for another process that is making the sample.
            A process that has finished no sample for two seconds is not waited for. With
            several hosts, only threads of one process wait for each other.

    A sample may consist of None, bool, int, float, complex, str, bytes, bytearray, NumPy
    arrays and scalars, torch tensors in host memory, PIL images, and tuples, lists and
    dicts of these. Other objects raise a TypeError that says where in the sample they are.

    Random augmentation inside the dataset would be cached and repeat in every epoch. Each
    process that makes samples warns of this once: use ``after`` instead, or cache files. To
    detect it, each process makes its first sample twice. ``dataset`` is then a shallow copy of
    yours: change ``cached.dataset.transform``, not your dataset's transform.

    Other attributes are those of the dataset (``classes``, ``targets``, ...). A CachedDataset
    can be pickled; worker processes, forked or spawned, open the cache by themselves.

    Raises:
        ValueError, TypeError: an argument is invalid; the message names it.
        OSError: there is too little memory; the message says which limit to raise.
        MemoryError.
    """

    dataset: Any

    def __init__(
        self,
        dataset: Any,
        cache: int | str,
        *,
        identity: str | None = None,
        key: Callable[[int], Any] | None = None,
        after: Callable[[Any], Any] | Literal["transform"] | None = None,
        files: bool | Literal["auto"] | Callable[[io.BytesIO], Any] = "auto",
        copy: bool = True,
        wait: float = 10.0,
    ) -> None:
        if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
            raise TypeError(
                f"a {type_name(type(dataset))} has no __getitem__ or no __len__: only map-style "
                "datasets can be cached"
            )
        keeps_files = _keeps_files(dataset, files)
        if key is not None and keeps_files:
            raise ValueError("key is not used where files are kept: their changes are seen anyway")
        self._key_hook = key
        self._copy = bool(copy)
        self._after: Callable[[Any], Any] | None = None
        if after == "transform":
            _refuse_rows(dataset)
            dataset, self._after = _take_transform_off(dataset)
        elif after is not None:
            if not callable(after):
                raise TypeError(f"after must be a function or 'transform', got {after!r}")
            self._after = after
        place = _place(dataset, cache, identity, keeps_files)
        has_hosts = _core.cache_kind(place[0]) == "hosts"
        first = FirstSample(dataset, keeps_files) if has_hosts else None
        self._watch = _RandomWatch(dataset, again=first is None)
        self._store = _Store(*place, len(dataset), wait, first)
        self._store.open()
        self._loader: _FileLoader | None = None
        if keeps_files:
            self._loader = _FileLoader(self._store, _decoder(dataset.loader, files))
            dataset = _copy.copy(dataset)
            dataset.loader = self._loader
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        """Returns the sample at ``index``, after ``after`` if given."""
        return self._finish(self._through_files(index) if self._loader else self._kept(index))

    def __getitems__(self, indices: Sequence[Any]) -> list[Any]:
        """Returns several samples. Gets missing ones from the dataset's ``__getitems__`` in one
        call if it has this method."""
        fetch = getattr(self.dataset, "__getitems__", None)
        if fetch is None or self._loader:
            return [self[index] for index in indices]
        return [self._finish(sample) for sample in self._kept_batch(list(indices), fetch)]

    def __iter__(self) -> Iterator[Any]:
        return map(self.__getitem__, range(len(self)))

    def info(self) -> dict[str, Any]:
        """The cache's current state: ``used_bytes`` of ``budget_bytes``, ``items``, ``hits``,
        ``misses``, ``saved_bytes``, ``refused`` (did not fit), ``foreign`` (accesses to items
        with a wrong tag), ``users`` and their ``pids``, ``path``, ... Counts all processes. With
        several hosts, counters are this process's, and ``used_bytes`` and ``items`` are what all
        servers that answer hold, whoever stored it."""
        return self._store.open().info()

    def close(self) -> None:
        """Closes the cache in this process. A private cache is removed with its last user."""
        self._store.close()

    def __enter__(self) -> CachedDataset:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "dataset" not in self.__dict__:
            raise AttributeError(f"a CachedDataset has no attribute {name!r}")
        return getattr(self.dataset, name)

    def __repr__(self) -> str:
        kept = "files" if self._loader else "samples"
        return f"CachedDataset({self.dataset!r}, {self._store.spec!r}, keeps {kept})"

    # Samples

    def _finish(self, sample: Any) -> Any:
        return sample if self._after is None else self._after(sample)

    def _kept(self, index: Any) -> Any:
        key = self._key(index)
        if key is None:
            return self.dataset[index]  # let the dataset raise its own error
        value = self._store.get(key)
        if value is not None:
            try:
                return _decoded(value, self._copy)
            except Damaged as error:
                self._store.complain(index, error)
                return self.dataset[index]
        try:
            sample = self._watch.draw(lambda: self.dataset[index])
            self._keep(index, key, sample)
        except BaseException:
            self._store.give_up(key)
            raise
        return sample

    def _kept_batch(self, indices: list[Any], fetch: Callable[[list[Any]], Any]) -> list[Any]:
        keys = [self._key(index) for index in indices]
        samples: dict[int, Any] = {}
        claimed: dict[int, bytes] = {}
        missing = []
        try:
            for place, key in enumerate(keys):
                # Do not wait while holding claims: two processes could wait for each other.
                value = None if key is None else self._store.get(key, wait=False)
                try:
                    if value is not None:
                        samples[place] = _decoded(value, self._copy)
                        continue
                    if key is not None:
                        claimed[place] = key
                except Damaged as error:
                    self._store.complain(indices[place], error)
                missing.append(place)
            wanted = [indices[place] for place in missing]
            made = self._watch.draw(lambda: fetch(wanted)) if missing else []
            for place, sample in zip(missing, made, strict=True):
                samples[place] = sample
                if place in claimed:
                    self._keep(indices[place], claimed[place], sample)
                    del claimed[place]
        finally:
            for key in claimed.values():
                self._store.give_up(key)
        return [samples[place] for place in range(len(indices))]

    def _keep(self, index: Any, key: bytes, sample: Any) -> None:
        try:
            pieces = encode(sample)
        except Unkept as error:
            raise TypeError(
                f"sample {index}, {'item ' + error.where if error.where else 'itself'}: "
                f"{error.what}. Convert it to an array, a tensor or one of Python's own types in "
                "the dataset, and make it again in after="
            ) from None
        self._store.put(key, pieces, f"sample {index}")

    def _key(self, index: Any) -> bytes | None:
        """Returns a sample's key, or None if the dataset has no such sample."""
        if isinstance(index, str):
            name: Any = index
        else:
            try:
                name = operator.index(index)
            except TypeError:
                return None
            count = len(self.dataset)
            if not -count <= name < count:
                return None
            name %= count
        if self._key_hook is None and not isinstance(name, str):
            return self._store.prefix() + b"v1" + struct.pack("<q", name)
        hook = () if self._key_hook is None else (self._key_hook(name),)
        try:
            return self._store.prefix() + b"V1" + b"".join(encode((name, *hook)))
        except Unkept as error:
            raise TypeError(f"key({index!r}) must return str, int or bytes: {error.what}") from None

    def _through_files(self, index: Any) -> Any:
        assert self._loader is not None
        sample = self.dataset[index]
        if not self._loader.was_called:
            self._loader.was_called = True
            warnings.warn(
                f"{type_name(type(self.dataset))} does not read through its `loader`, so nothing "
                "is kept: files=False keeps what it returns",
                stacklevel=3,
            )
        return sample


class _Store:
    """This process's handle of the cache."""

    def __init__(
        self,
        spec: str,
        identity: str,
        run: str,
        items: int,
        wait: float,
        first: FirstSample | None = None,
    ) -> None:
        if not 0 <= wait <= 86400:
            raise ValueError(f"wait must be between 0 and 86400 seconds, got {wait!r}")
        self.spec = spec
        self._options = {"identity": identity, "run": run, "items": max(1, items)}
        self._wait_ms = int(wait * 1000)
        self._first = first
        self._maker: int | None = os.getpid()
        self._begin()

    def _begin(self) -> None:
        self._cache: _core.Cache | None = None
        self._lock = threading.Lock()  # protects opening, closing and _making
        self._making: dict[bytes, _Making] = {}  # samples that threads of this process make now
        self._made_so_far = 0
        self._closed = False
        self._complained = self._has_said_size = False
        _stores.add(self)

    def _log_what_stays(self, cache: _core.Cache) -> None:
        """Logs that a kept cache remains, in its creator if that is the cache's last user."""
        if self._maker != os.getpid() or _core.cache_kind(self.spec) != "kept":
            return
        info = cache.info()
        if sum(info["items"]) and info["users"] <= 1:
            _logger.warning(
                "the cache %s keeps %d items of %s, %.1f MiB of memory, for the next run; "
                "`headrace cache drop %s` frees it",
                info["name"],
                sum(info["items"]),
                info["dataset"],
                info["used_bytes"] / (1 << 20),
                info["name"],
            )

    def __getstate__(self) -> dict[str, Any]:
        return {
            "spec": self.spec,
            "options": self._options,
            "wait_ms": self._wait_ms,
            "first": self._first,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.spec, self._options = state["spec"], state["options"]
        self._wait_ms, self._first = state["wait_ms"], state["first"]
        self._maker = None
        self._begin()

    def prefix(self) -> bytes:
        """Returns what every key begins with."""
        return b"" if self._first is None else self._first.digest()

    def open(self) -> _core.Cache:
        cache = self._cache
        if cache is not None:
            return cache
        with self._lock:
            if self._closed:
                raise RuntimeError("this CachedDataset is closed")
            if self._cache is None:
                _close_at_exit()
                self._cache = _core.Cache(self.spec, **self._options)
            return self._cache

    def close(self) -> None:
        with self._lock:
            self._closed = True
            cache, self._cache = self._cache, None
        if cache is not None:
            self._log_what_stays(cache)
            cache.close()

    def forget(self) -> None:
        """Drops the parent's handle and claims in a forked child."""
        self._cache = None
        self._lock = threading.Lock()
        self._making = {}

    def get(self, key: bytes, wait: bool = True) -> Any:
        """Returns the value, or None: then the caller makes it and calls put or give_up. Waits
        for another process in the library, for another thread here."""
        made = self._made_so_far
        value = self.open().get(key, self._wait_ms if wait else 0)
        if value is not None:
            return value
        with self._lock:
            making = self._making.setdefault(key, _Making())
            if made == self._made_so_far and making.thread == threading.get_ident():
                return None
        # Another thread has made the value, or is making it.
        if making.thread != threading.get_ident() and wait:
            making.ended.wait(self._wait_ms / 1000)
        value = self.open().get(key, 0)
        if value is not None and making.thread == threading.get_ident():
            self._made(key)
        return value

    def put(self, key: bytes, pieces: Sequence[Any], name: str = "a value") -> bool:
        """Returns whether the cache has the value now; ``name`` is for a message."""
        try:
            return self.open().put(key, pieces)
        except OverflowError as error:
            self._say_size(name, sum(memoryview(piece).nbytes for piece in pieces), error)
            return False
        finally:
            self._made(key)

    def give_up(self, key: bytes) -> None:
        cache = self._cache
        if cache is not None:
            cache.give_up(key)
        self._made(key)

    def _made(self, key: bytes) -> None:
        with self._lock:
            making = self._making.pop(key, None)
            self._made_so_far += 1
        if making is not None:
            making.ended.set()

    def _say_size(self, name: str, size: int, error: OverflowError) -> None:
        if not self._has_said_size:
            self._has_said_size = True
            _logger.warning(
                "%s takes %d bytes and is made each time: %s; others may follow without a word",
                name,
                size,
                error,
            )

    def complain(self, index: Any, error: Damaged) -> None:
        if not self._complained:
            self._complained = True
            _logger.warning(
                "sample %s cannot be read from the cache and is made again (%s); others may follow "
                "without a word",
                index,
                error,
            )


class _Making:
    """A value that a thread of this process is making."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.ended = threading.Event()


_stores: weakref.WeakSet[_Store] = weakref.WeakSet()
_closes_at_exit_of: int | None = None  # process id


def _forget_all() -> None:
    for store in list(_stores):
        store.forget()


os.register_at_fork(after_in_child=_forget_all)


def _close_all() -> None:
    for store in list(_stores):
        store.close()


def _close_at_exit() -> None:
    """Closes this process's open caches when it ends.

    Uses multiprocessing's finalizers, not atexit: worker processes run only the former, and
    below priority 0 they run after the worker processes have ended, so that a private cache
    is removed.
    """
    global _closes_at_exit_of
    if _closes_at_exit_of != os.getpid():
        from multiprocessing import util

        util.Finalize(None, _close_all, exitpriority=-100)
        _closes_at_exit_of = os.getpid()


def _decoded(value: _core.CacheValue, copy: bool) -> Any:
    """Decodes a sample. Raises Damaged also if the segment's file was truncated meanwhile."""
    sample = decode(value, copy)
    if not value.is_whole():
        raise Damaged("the cache's file was truncated while it was read")
    return sample


# Files


class _FileLoader:
    """Replaces a dataset's loader: called with a path, returns the decoded file."""

    def __init__(self, store: _Store, decode: Callable[[Any], Any]) -> None:
        self._store = store
        self._decode = decode
        self.was_called = False

    def __call__(self, path: Any) -> Any:
        self.was_called = True
        name = os.fspath(path)
        status = os.stat(name)
        key = b"f1" + struct.pack("<qq", status.st_size, status.st_mtime_ns) + os.fsencode(name)
        key = self._store.prefix() + key
        data = self._store.get(key)
        if data is None:
            return self._decode(self._read(name, key, status))
        try:
            sample = self._decode(data)
        except Exception:
            if data.is_whole():
                raise
        else:
            if data.is_whole():
                return sample
        return self._decode(self._read(name, key, status))

    def _read(self, name: str | bytes, key: bytes, status: os.stat_result) -> bytes:
        try:
            with open(name, "rb", buffering=0) as file:
                data = file.read()
                now = os.fstat(file.fileno())
                if len(data) != status.st_size or _changed(status, now) or _is_fresh(now):
                    self._store.give_up(key)
                elif self._store.put(key, (data,), os.fsdecode(name)):
                    # Cached here now: drop it from the page cache.
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return data
        except BaseException:
            self._store.give_up(key)
            raise


def _changed(before: os.stat_result, now: os.stat_result) -> bool:
    return (before.st_size, before.st_mtime_ns, before.st_ino) != (
        now.st_size,
        now.st_mtime_ns,
        now.st_ino,
    )


def _is_fresh(status: os.stat_result) -> bool:
    """Returns whether a file is so new that another write might not change its time."""
    return 0 <= time.time_ns() - status.st_mtime_ns < _FRESH_NS


class _OfFunction:
    """Decodes with a function that takes an open binary file."""

    def __init__(self, function: Callable[[io.BytesIO], Any]) -> None:
        self._function = function

    def __call__(self, data: Any) -> Any:
        return self._function(io.BytesIO(data))


class _OfPath:
    """Decodes with a function that takes a path: passes the path of a file in memory."""

    def __init__(self, function: Callable[[str], Any]) -> None:
        self._function = function

    def __call__(self, data: Any) -> Any:
        descriptor = os.memfd_create("headrace", os.MFD_CLOEXEC)
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(descriptor, left) :]
            return self._function(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)


def _decode_image(file: io.BytesIO) -> Any:
    """Decodes a file as torchvision's pil_loader does."""
    from PIL import Image

    return Image.open(file).convert("RGB")


def _keeps_files(dataset: Any, files: Any) -> bool:
    if files not in (True, False, "auto") and not callable(files):
        raise TypeError(f"files must be True, False, 'auto' or a function, got {files!r}")
    loader = getattr(dataset, "loader", None)
    listed = hasattr(dataset, "samples") or hasattr(dataset, "imgs")
    can = callable(loader) and (listed or is_loader(loader))
    if files is False or (files == "auto" and not can):
        return False
    if not callable(loader):
        raise ValueError(
            f"files={files!r} needs a dataset that reads by its attribute `loader`, as "
            f"torchvision's ImageFolder; a {type_name(type(dataset))} has none: files=False keeps "
            "what it returns"
        )
    return True


def _decoder(loader: Callable[[Any], Any], files: Any) -> Callable[[Any], Any]:
    if callable(files):
        return _OfFunction(files)
    if is_loader(loader):
        import torchvision

        if torchvision.get_image_backend() == "PIL" or loader.__name__ == "pil_loader":
            return _OfFunction(_decode_image)
    return _OfPath(loader)


# Name and identity of the cache


def _place(
    dataset: Any, cache: int | str, identity: str | None, keeps_files: bool
) -> tuple[str, str, str]:
    """Returns (spec, identity, run)."""
    spec = _spec(cache)
    ranks = _world_size()
    cls = type_name(type(dataset))
    kind = _core.cache_kind(spec)
    if identity is not None:
        if not isinstance(identity, str) or not identity:
            raise ValueError(f"identity must be a text that is not empty, got {identity!r}")
        if kind == "hosts":
            what = "files" if keeps_files else "samples"
            identity = f"{len(dataset)} {what} of {cls}: {identity}"
        return spec, identity, _core.cache_run(ranks)
    root = getattr(dataset, "root", None)
    if keeps_files and kind != "hosts" and isinstance(root, (str, os.PathLike)):
        where = os.path.realpath(os.fspath(root))
        return spec, f"files of {cls}, {len(dataset)} at {where}", _core.cache_run(ranks)
    if kind != "private":
        where = "a cache on several hosts" if kind == "hosts" else "a kept cache"
        raise ValueError(
            f"{where} needs to know what a {cls} is: give identity= a text that names it and its "
            "version"
        )
    if ranks > 1:
        warnings.warn(
            "each rank has a cache of its own here, each of the whole size: identity= a text that "
            "names the dataset lets them share one",
            stacklevel=4,
        )
    return spec, f"{cls}, {len(dataset)} samples, {uuid.uuid4().hex}", _core.cache_run(1)


def _spec(cache: int | str) -> str:
    if isinstance(cache, str):
        return cache
    try:
        number = operator.index(cache)
    except TypeError:
        raise TypeError(
            f"cache must be a number of bytes or a text such as '64GiB', got {cache!r}"
        ) from None
    if number <= 0:
        raise ValueError(f"cache must be more than 0 bytes, got {cache!r}")
    return str(number)


def _world_size() -> int:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    try:
        return max(1, int(os.environ.get("WORLD_SIZE", "1")))
    except ValueError:
        return 1


# Transforms


class _OnImage:
    """Applies a transform to the first element of tuples and lists, or to the sample."""

    def __init__(self, transform: Callable[[Any], Any]) -> None:
        self._transform = transform

    def __call__(self, sample: Any) -> Any:
        if type(sample) is tuple:
            return (self._transform(sample[0]), *sample[1:])
        if type(sample) is list:
            return [self._transform(sample[0]), *sample[1:]]
        return self._transform(sample)


class _OnPair:
    """Applies a transform to (image, target) together."""

    def __init__(self, transforms: Callable[..., Any]) -> None:
        self._transforms = transforms

    def __call__(self, sample: Any) -> Any:
        return self._transforms(*sample)


def _refuse_rows(dataset: Any) -> None:
    """Refuses to apply a transform to images whose boxes it would have to move."""
    moved = _rows.moves(dataset._dataset) if isinstance(dataset, _ImageDataset) else []
    if moved:
        raise ValueError(
            f"after='transform' would change images alone, and the dataset's {', '.join(moved)} "
            "have to move with the pixels: give the dataset to headrace.torch.DataLoader with "
            "cache=, which keeps files and prepares both"
        )


def _take_transform_off(dataset: Any) -> tuple[Any, Callable[[Any], Any] | None]:
    """Returns a shallow copy of the dataset without its transform, and the transform."""
    if not hasattr(dataset, "transform") and not hasattr(dataset, "transforms"):
        raise ValueError(
            f"after='transform' needs a dataset with an attribute `transform`; a "
            f"{type_name(type(dataset))} has none: give the function itself"
        )
    transform = getattr(dataset, "transform", None)
    joint = getattr(dataset, "transforms", None)
    dataset = _copy.copy(dataset)
    if transform is not None:
        dataset.transform = None
        if hasattr(joint, "transform"):  # torchvision's pair of transform and target_transform
            dataset.transforms = _copy.copy(joint)
            dataset.transforms.transform = None
        return dataset, _OnImage(transform)
    if joint is not None and getattr(joint, "target_transform", None) is None:
        dataset.transforms = None
        return dataset, _OnPair(joint)
    return dataset, None


class _RandomWatch:
    """Detects whether samples about to be cached are random.

    There are two signs: making a sample draws from one of the process-wide generators, or
    making it again (only the first sample of a process) gives a different result. The
    process that makes samples checks, not the one that creates this object, because files
    that the dataset opens there may be unusable in a process forked later.
    """

    def __init__(self, dataset: Any, again: bool) -> None:
        self._what = type_name(type(dataset))
        self._left = _WATCHED
        self._again = again  # make the next sample twice

    def draw(self, make: Callable[[], Any]) -> Any:
        """Returns ``make()``; warns if the result is random."""
        if not self._left:
            return make()
        self._left -= 1
        before = _generators()
        made = make()
        if _generators() != before:
            self._warn("its making draws from the process's random numbers")
        elif self._again:
            self._again = False
            if _differ(made, make):
                self._warn("making one twice gave two different ones")
        return made

    def _warn(self, why: str) -> None:
        self._left = 0
        warnings.warn(
            f"samples of {self._what} seem to be random ({why}), and this cache keeps each as it "
            "was made first: its augmentation is the same in every epoch from now on. Give "
            "the random part as after=, which runs behind the cache; after='transform' takes "
            "the dataset's own transform off and puts it there",
            stacklevel=5,
        )


def _generators() -> tuple[Any, ...]:
    """Returns the states of the process-wide random generators."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    states: list[Any] = [random.getstate()]
    if torch is not None:
        state = torch.get_rng_state()
        states.append(state.tolist() if numpy is None else state.numpy().tobytes())
    if numpy is not None:
        # The state is a dict with arrays, whichever the bit generator.
        states.append(pickle.dumps(numpy.random.get_state(legacy=False)))
    return tuple(states)


def _differ(made: Any, make: Callable[[], Any]) -> bool:
    """Returns whether a second ``make()`` gives a different result. Ignores samples that cannot
    be cached: another function reports those."""
    try:
        return _bytes_of(made) != _bytes_of(make())
    except Exception:
        return False


def _bytes_of(sample: Any) -> bytes:
    return b"".join(encode(sample))
