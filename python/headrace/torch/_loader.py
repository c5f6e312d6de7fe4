"""The DataLoader: torch's interface over the native loader.

The order of samples, their preparation and the place in an epoch belong to the
C library; this file translates arguments, cuts a user's sampler into batches,
and keeps the little state that lives between epochs. A user's sampler is the
only case in which Python touches every index.
"""

from __future__ import annotations

import atexit
import os
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.utils.data
from torch.utils.dlpack import from_dlpack

from .. import _core, transforms as _transforms
from . import _arguments as arguments
from ._datasets import resolve, transform_of
from ._feed import Feed
from ._hosts import Exchange, Gather, figures, is_hosts, say_local, stats_of_ranks
from ._epochs import Epochs, OneReader
from ._iteration import Iteration
from ._order import Dealt, Order, OrderedBatches
from ._stats import add_stats
from ._surroundings import Part, local_ranks, suggest_agent

# What the native loader was made for: setting one later could not take effect.
_FIXED = frozenset(
    ("batch_sampler", "batch_size", "dataset", "drop_last", "layout", "num_workers", "pin_memory")
    + ("prefetch_factor", "rank", "sampler", "world_size")
)


@dataclass(frozen=True)
class SkippedSample:
    """A sample that could not be used, or a damaged one that was taken, and why."""

    epoch: int
    index: int
    path: str
    reason: str


class DataLoader(Epochs):
    """Batches of an image folder, prepared by native threads.

    Iterating gives ``(images, labels)``: ``images`` of shape (samples, 3, height,
    width) with the transform's element type, ``labels`` int64; then ``index``
    (int64, positions in ``dataset``) with ``return_index`` and a list of paths with
    ``return_path``. The tensors are yours to keep and to change. Images are the loader's own
    memory, which it uses again when the last view of them is gone; labels and indices
    are copies, so that keeping those of every batch keeps no images.

    Batches depend on dataset, transform, ``seed``, epoch, batch size and ranks;
    never on threads or timing. Epochs count from 0 and advance by themselves with
    every ``iter()`` of which a batch is taken, also when the one before was left early.

    torch's arguments:
        dataset: ``headrace.ImageFolder``, ``ImageList``, ``Pack`` or ``TarDataset``, torchvision's
            ``ImageFolder`` or ``DatasetFolder`` with its own loader, or a ``Subset``
            of these.
        batch_size: samples per batch of this rank.
        shuffle: a new order every epoch.
        sampler, batch_sampler: any iterable of indices, or of lists of them, endless
            ones too. Every rank uses its own, as with torch. The
            loader's own order replaces a ``DistributedSampler`` (not a subclass) where both give
            the ranks the same counts: its ranks, ``shuffle``, ``seed`` and ``set_epoch`` count,
            and a warning is logged.
        num_workers: threads. ``None``: the cores that this process may use, over
            LOCAL_WORLD_SIZE, less one, at least one. 0: one thread.
        collate_fn: ``None`` or torch's ``default_collate``; others are refused.
        pin_memory: page-locked batches for asynchronous copies, where there is CUDA.
        drop_last: leave a last smaller batch out. Without it the ranks' last batches
            are padded from the start of the order to equal size.
        timeout, worker_init_fn: refused.
        multiprocessing_context, persistent_workers, pin_memory_device, in_order:
            accepted without effect: threads need no start method, stay alive between
            epochs, and batches always come in order.
        generator: its ``initial_seed()`` is used as ``seed``.
        prefetch_factor: batches prepared ahead, 2 if ``None``: of all threads together,
            which share the work of every batch.

    Headrace's arguments:
        transform: replaces the dataset's; headrace's or torchvision's.
        seed: of order and random parameters.
        dtype: element type of ``images``, as a last ``ToDtype(dtype, scale=True)``.
        layout: ``"NCHW"``, ``"NHWC"`` (samples, height, width, 3), or
            ``"channels_last"``: NCHW shape over NHWC memory, torch's memory format.
        on_error: ``"raise"`` (:class:`headrace.SampleError`), or ``"skip"``: another
            sample stands in, see :meth:`skipped`.
        max_bad_share: with ``"skip"``: more bad samples than this share of an epoch's
            raise :class:`headrace.TooManyBadSamples`.
        return_index, return_path: see above.
        rank, world_size: this process's part. ``None``: found when the first epoch begins:
            torch.distributed where it is initialised; else RANK and WORLD_SIZE; else 0 of 1,
            unless ``gather`` is a function: then also the variables of Open MPI, MPICH and Slurm.
            A warning is logged where variables were used, or ignored. Unused with a sampler.
        direct_io: read past the page cache.
        io_uring: ``False`` reads with plain threads.
        staging_bytes: encoded bytes read ahead at most; 16 MiB if ``None``.
        cache: memory for samples, so that later epochs need not read or, in part, decode
            them again: bytes, or a text. ``"2GiB"`` is private: it ends with this
            loader, or, where there are several ranks, with the last of them, which
            share it. ``"shm:NAME?size=64GiB"`` is kept: other jobs share it and later runs
            start with it; behind it may follow ``&share=0.9``, of the size for this
            dataset at most, ``&group=NAME``, ``&form=...`` and ``&key_file=PATH``. What is in
            stays in, until its file changes.
            ``"memcached:hostA:11211,hostB:11211?size=64GiB"`` is in the memory of several
            hosts, whose memcached servers run already; every rank says the same.
        cache_form: how cached samples are kept: ``"encoded"``, as the files are;
            ``"coefficients"``, which decode several times faster for about a third
            more bytes; ``"planes"``, faster again for three to six times the bytes;
            ``None`` or ``"auto"``: what ``cache`` says, or else what the budget is best
            spent on by what is measured. Batches are the same.
        epochs: of the whole run. With it busy threads convert cached samples to
            ``cache_form`` where the epochs that are left repay it; otherwise only
            idle threads do.
        agent: who prepares. ``None``: this process. ``"auto"``: a process of its own for all
            jobs and ranks of this user on this host, which is started where there is none
            and ends when it is unused; or the socket's path of one that ``headrace agent``
            runs. Batches are the same, bit for bit. ``num_workers``, ``direct_io``,
            ``io_uring`` and ``staging_bytes`` are then the agent's, ``cache`` where it has one.
            A sampler runs in this process, and its indices go to the agent.
        stream: with an agent: jobs that name the same stream get the same batches, each sample
            fetched and prepared once an epoch for all of them; batch sizes may differ. Not with
            a sampler, other than a ``DistributedSampler``. Their dataset, transform, ``seed``, ``shuffle`` and ``world_size`` must be equal.
        join: of a stream that others are using: ``"epoch"`` waits for their next one,
            ``"now"``, of one rank, takes the rest of this one; ``stats()["missed"]`` says what
            was missed. Epochs are then the stream's, see :meth:`set_epoch`.
        lag: when this loader is more than ``window`` batches behind the others of its
            stream: ``"alone"``: its batches are prepared for it alone until it has caught
            up; ``"wait"``: the others wait for it.
        window: batches that a stream keeps in shared memory, for those who differ in speed; at
            least ``prefetch_factor + 2``; 8, or more for a larger ``prefetch_factor``, if
            ``None``. The first loader's counts.
        assignment: which rank gets which samples of a global batch, where hosts keep
            them. ``"local"``, the default with several hosts: those that its host keeps, as far
            as equal batch sizes allow; ``"exact"``: the framework's own rank order. The
            samples of all ranks together are the same ones. A loss that depends on which samples are in
            one rank's batch (batch norm without synchronisation, in-batch negatives) needs
            ``"exact"``.
        gather: with several hosts: how the ranks exchange how fast their hosts are, at
            each ``iter()`` but the first, which all ranks have to reach. ``None``: by
            torch.distributed, where it is initialised; a function of ``bytes`` that
            returns those of all ranks in their order (MPI's ``comm.allgather``); ``False``: never,
            and all hosts are taken to be alike.
        apply_exif_orientation: turn images as their EXIF tag says; torchvision
            ignores it.
        max_pixels: larger images are bad samples; Pillow's limit if ``None``.
        damaged: ``"refuse"``: damaged images are bad samples. ``"accept"`` takes those that
            Pillow decodes by default, with pixels that the decoder guesses; they are
            counted and listed, see :meth:`damaged`.

    Raises:
        TypeError, ValueError: an argument that is not supported, by name, and what to
            do instead. MemoryError, OSError: the cache's memory is not to be had.

    One iterator is live at a time: a new ``iter()`` ends the one before. One thread reads at a
    time; another one gets a RuntimeError, and the first goes on. In a forked
    child the loader works again from the next ``iter()`` on. It cannot be pickled;
    datasets and transforms can.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool | None = None,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int | None = None,
        collate_fn: Any = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Any = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        transform: Any = None,
        seed: int = 0,
        dtype: Any = None,
        layout: Literal["NCHW", "NHWC", "channels_last"] = "NCHW",
        on_error: Literal["raise", "skip"] = "raise",
        max_bad_share: float = 0.01,
        return_index: bool = False,
        return_path: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        direct_io: bool = False,
        io_uring: bool = True,
        staging_bytes: int | None = None,
        cache: int | str | None = None,
        cache_form: Literal["auto", "encoded", "coefficients", "planes"] | None = None,
        epochs: int | None = None,
        agent: str | os.PathLike[str] | None = None,
        stream: str | None = None,
        join: Literal["epoch", "now"] = "epoch",
        lag: Literal["alone", "wait"] = "alone",
        window: int | None = None,
        assignment: Literal["local", "exact"] | None = None,
        gather: Gather = None,
        apply_exif_orientation: bool = False,
        max_pixels: int | None = None,
        damaged: Literal["refuse", "accept"] = "refuse",
    ) -> None:
        arguments.refuse_functions(collate_fn, worker_init_fn, timeout)
        arguments.check_order(batch_size, shuffle, sampler, batch_sampler, drop_last)
        self.dataset = dataset
        self.shuffle = bool(shuffle)
        self.drop_last = bool(drop_last)
        self.batch_size: int | None = None
        if batch_sampler is None:
            self.batch_size = arguments.count("batch_size", batch_size, 1)
        self.num_workers = num_workers
        if num_workers is not None:
            arguments.count("num_workers", num_workers, 0)
        self.prefetch_factor = 2
        if prefetch_factor is not None:
            self.prefetch_factor = arguments.count("prefetch_factor", prefetch_factor, 1)
        self.collate_fn = torch.utils.data.default_collate
        self.pin_memory = bool(pin_memory)
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = None
        self.multiprocessing_context = multiprocessing_context
        self.persistent_workers = bool(persistent_workers)
        self.in_order = bool(in_order)
        self.generator = generator
        self.seed = arguments.seed(seed, generator)
        self.return_index = bool(return_index)
        self.return_path = bool(return_path)
        self.layout = layout
        self._source, own_transform = resolve(dataset)
        self._part = arguments.part(rank, world_size, gather)
        self._dealt = Dealt.of(
            sampler,
            samples=len(self._source),
            batch_size=self.batch_size or 1,
            drop_last=self.drop_last,
            seed=self.seed,
        )
        self._feed: Feed | None = None
        if self._dealt is None:
            self._feed = _feed(sampler, batch_sampler, self.batch_size or 1, self.drop_last)
        else:
            self.shuffle, self.seed = bool(sampler.shuffle), int(sampler.seed)  # type: ignore[union-attr]
            self._part = Part(self._dealt.part, True)
        self.batch_sampler = batch_sampler
        self.sampler: Any = sampler if batch_sampler is None else None
        if self._feed is None and self._dealt is None:
            self.sampler = Order(self.set_epoch, self._samples_of_rank)
        self._capacity = self.batch_size or arguments.first_capacity(batch_sampler)
        self._pin_by_copy = False
        self._options: dict[str, Any] = {
            "threads": 0 if num_workers is None else max(1, num_workers),
            "batches_ahead": self.prefetch_factor,
            "direct_io": direct_io,
            "no_io_uring": not io_uring,
            "on_error": on_error,
            "max_bad_share": max_bad_share,
            "pinned": self._can_pin(),
            "cache": arguments.cache(cache),
            "cache_form": "auto" if cache_form is None else cache_form,
            "epochs": 0 if epochs is None else arguments.count("epochs", epochs, 1, arguments.LONG),
            "assignment": "auto" if assignment is None else assignment,
        }
        arguments.hosts(
            self._options["cache"], assignment, agent=agent, has_sampler=self._feed is not None
        )
        self._gather: Gather = gather
        self._exchange = Exchange(gather, *self._part.now())
        self._options |= arguments.shared(
            agent,
            stream,
            join,
            lag,
            window,
            batches_ahead=self.prefetch_factor,
            has_sampler=self._feed is not None,
        )
        arguments.check_join(join, stream, self._part.now()[1])
        if staging_bytes is not None:
            self._options["staging_bytes"] = arguments.count(
                "staging_bytes", staging_bytes, 1, arguments.LONG
            )

        self._transform_seen = own_transform
        self._recipe = _make_recipe(
            own_transform if transform is None else transform,
            dtype=dtype,
            layout=layout,
            apply_exif_orientation=apply_exif_orientation,
            max_pixels=max_pixels,
            damaged=damaged,
        )

        self._begin_at(0 if self._dealt is None else self._dealt.epoch)
        self._closed = False
        self._past_stats: dict[str, Any] | None = None  # of native loaders that were replaced
        self._past_skipped: list[SkippedSample] = []
        self._past_damaged: list[SkippedSample] = []
        self._later_hosts: tuple[int, str] | None = None  # an epoch, and its cache from then on
        self._begun = False  # whether an epoch was begun, so that there are rates to exchange
        self._pid = os.getpid()
        self._core: _core.Loader | None = None
        # A stream's jobs compare their ranks, which are not known before the first epoch.
        if "stream" not in self._options or self._part.is_known:
            self._core = self._make_core()
        _open_loaders.add(self)

    @property
    def rank(self) -> int:
        """This process's place among ``world_size``; before the first epoch, as of now."""
        return self._part.now()[0]

    @property
    def world_size(self) -> int:
        """Processes that share each epoch; before the first epoch, as of now."""
        return self._part.now()[1]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and "_closed" in vars(self):
            raise ValueError(f"{name} cannot be changed after the DataLoader is made: make another")
        super().__setattr__(name, value)

    # Iterating

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Begins the next epoch; an iterator that is still live ends. Until a batch was taken it
        stays the next one, so that iter() twice is the same epoch."""
        self._check_fork()
        with self._reader:
            self._check_open()
            self._settle()
            self._check_transform()
            self._follow_sampler()
            return Iteration(self)

    def __len__(self) -> int:
        """Batches of an epoch. TypeError where the sampler has no length."""
        if self._feed is not None:
            return len(self._feed)
        self._check_open()
        samples, together = len(self._source), (self.batch_size or 1) * self.world_size
        return samples // together if self.drop_last else -(-samples // together)

    def _samples_of_rank(self) -> int:
        """In an epoch, padding included."""
        if self.drop_last:
            return len(self) * (self.batch_size or 1)
        return -(-len(self._source) // self.world_size)

    def _settle(self) -> None:
        """At an epoch's beginning: which part of it is this process's."""
        is_first = not self._part.is_settled
        self._part.settle()
        rank, ranks = self._part.now()
        if is_first:
            arguments.check_join(self._options.get("join"), self._options.get("stream"), ranks)
            self._exchange = Exchange(self._gather, rank, ranks)
        if self._core is not None and self._feed is None and self._core_part != (rank, ranks):
            self._core = self._make_core()
        core = self._native()
        if is_first:
            self._say(core)

    # Watching

    def stats(self) -> dict[str, Any]:
        """Counters since the loader was made: ``samples``, ``batches``, ``bad_samples``,
        ``damaged_samples``, ``padded_samples``, ``bytes_read``, ``wait_ns`` (training waited in ``next``),
        ``grown_slots``, ``cache_hits`` (samples whose bytes were cached), ``converted``
        (items) and ``conversion_ns`` (of all threads); the state of now: ``slots``, ``slot_bytes``, ``staged_bytes``,
        ``ready_batches``, ``threads``, ``io_uring``, ``cache_bytes`` (that cached items
        take), ``cache_source_bytes`` (of the files that an epoch need not read any
        more), ``cache_encoded``, ``cache_coefficients``, ``cache_planes`` (items by form)
        and ``cache_waiting`` (encoded items that wait for a conversion); with an agent
        ``missed`` (samples of the stream's epoch that were over when this loader joined),
        ``alone`` (batches that were prepared for it alone) and ``reattached`` (times that a
        new agent took over); and the histograms ``fetch``,
        ``prepare`` (per sample) and ``wait`` (per batch): ``count``, ``sum_ns`` and
        ``buckets``, bucket i counting durations of 2^i to 2^(i+1) ns.

        With several hosts ``own_hits``, ``own_bytes`` (samples of this host's server),
        ``peer_hits``, ``peer_bytes`` (of others'), ``stored``, ``stored_bytes``, ``refused``
        (items that this rank stored, and that servers refused) and ``read_ahead``; where rates
        were gathered, of the epoch before: ``rank_wait_s`` (seconds that each rank's training
        waited), ``rank_ready_s`` (mean seconds that it took until a batch was
        ready), ``wait_spread_s`` and ``ready_spread_s`` (the largest less the smallest)."""
        own = add_stats(self._native().stats(), self._past_stats)
        return {**own, **stats_of_ranks(self._exchange.ranks)}

    def skipped(self) -> list[SkippedSample]:
        """The samples that were replaced so far (the newest 10,000), with reasons."""
        now = [SkippedSample(*s) for s in self._native().skipped()]
        return self._past_skipped + now

    def damaged(self) -> list[SkippedSample]:
        """The damaged samples that ``damaged="accept"`` took so far (the newest 10,000)."""
        now = [SkippedSample(*s) for s in self._native().damaged()]
        return self._past_damaged + now

    # Several hosts

    def hosts(self) -> list[dict[str, Any]]:
        """The hosts that keep the items, as this rank sees them, in the order of the list;
        none with another cache. Of each: ``name``, ``is_self``, ``is_up``, ``ranks`` (on it),
        ``budget_bytes``, ``planned_items`` and ``planned_bytes`` (that it is to keep),
        ``limit_bytes`` and ``used_bytes`` (of its memcached, when that was asked last), what
        this rank did there (``fetched``, ``fetched_bytes``, ``missed``, ``stored``,
        ``stored_bytes``, ``refused``, ``failures``), and ``problem``, a text."""
        return self._native().hosts()

    def rates(self) -> dict[str, Any]:
        """How fast this rank's host has been of late, in bytes per second, for
        :meth:`set_rates`: ``own_bytes_per_s`` (its own server), ``peer_bytes_per_s``,
        ``storage_bytes_per_s``, ``prepare_bytes_per_s``; 0 where nothing was measured;
        ``wait_s`` and ``ready_s``, see :meth:`stats`; and ``host``, its place in the list, -1 for
        none. ValueError without hosts."""
        return self._native().rates()

    def set_rates(self, ranks: Iterable[Mapping[str, Any]], epoch: int | None = None) -> None:
        """From ``epoch`` on (``None``: the next one) the plan goes by these rates of all ranks,
        in their order. Every rank has to be given the same. For those who gather by
        themselves, with ``gather=False``; see ``gather``."""
        number = self._next_epoch if epoch is None else arguments.epoch(epoch)
        self._native().set_rates(number, [figures(rates) for rates in ranks])

    def set_hosts(self, cache: str, epoch: int | None = None) -> None:
        """From ``epoch`` on (``None``: the next one) these hosts keep the items: another text
        ``"memcached:..."``. Every rank has to be given the same for the same epoch, before it
        begins that; they compare before its first batch. Items whose owner stays are
        found again. ValueError for a text that makes no sense, or without hosts."""
        number = self._next_epoch if epoch is None else arguments.epoch(epoch)
        self._native().set_hosts(number, cache)
        self._later_hosts = (number, cache)

    def _has_hosts(self) -> bool:
        return is_hosts(self._options["cache"])

    def _agree(self, epoch: int, position: int) -> None:
        """Exchanges rates with the other ranks before an epoch. There are none before the first
        one, and its own comparison of ranks says best what is wrong between them."""
        if not self._has_hosts():
            return
        if self._later_hosts is not None and epoch >= self._later_hosts[0]:
            self._options["cache"] = self._later_hosts[1]
            self._later_hosts = None
        begun, self._begun = self._begun, True
        if not begun or self.world_size == 1:
            return
        # Exact ranks too: it is for the comparison to say that only some are.
        core = self._native()
        ranks = self._exchange.run(core.rates(), epoch, position)
        if ranks is not None and self._options["assignment"] != "exact":
            core.set_rates(epoch, [figures(rates) for rates in ranks])

    def _say(self, core: _core.Loader) -> None:
        """Logs what the user should know before the first batch."""
        if self._dealt is not None:
            self._dealt.say()
        if self._options.get("agent") is None and not self._has_hosts():
            suggest_agent(self.rank, self.world_size)
        chosen = self._options["assignment"] != "auto"
        if chosen or self.rank or self.world_size == 1 or not self._has_hosts():
            return
        hosts = core.hosts()
        if len(hosts) > 1:
            say_local(len(hosts))

    # Ending

    def close(self) -> None:
        """Stops the threads. Batches that are held stay valid; iterating is over;
        :meth:`state_dict` still has the place. RuntimeError while another thread
        waits for a batch."""
        place = None
        if self._live is not None and self._pid == os.getpid():
            place = self.state_dict()  # the native loader knows it until it is closed
        if self._core is not None:
            self._core.close()
        if place is not None:
            self._resume = place
        self._closed = True
        self._live = None

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _check_transform(self) -> None:
        if transform_of(self.dataset) is not self._transform_seen:
            raise RuntimeError(
                "the dataset's transform was replaced after this DataLoader was made, which took "
                "the one before: make another DataLoader, it costs little"
            )

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("this DataLoader is closed")

    def __reduce__(self) -> Any:
        raise TypeError(
            "a headrace.torch.DataLoader holds threads and cannot be pickled: pickle the dataset "
            "and state_dict(), and make a DataLoader where they arrive"
        )

    def __repr__(self) -> str:
        core = self._recipe
        return (
            f"headrace.torch.DataLoader({len(self._source)} samples, "
            f"batch_size={self.batch_size}, shape={core.shape}, dtype={core.dtype!r}, "
            f"shuffle={self.shuffle}, seed={self.seed}, rank={self.rank}/{self.world_size})"
        )

    # Measuring (headrace.stalls)

    def _measured_copy(self, batch_sampler: Iterable[Any]) -> DataLoader:
        """A loader with the same options over the indices of ``batch_sampler``, anew with
        every ``iter()``, without cache and agent: what it costs to prepare and to fetch."""
        other = object.__new__(DataLoader)
        members = {**vars(self), "batch_sampler": batch_sampler, "sampler": None}
        del members["_core"]
        members["_feed"] = _feed(None, batch_sampler, 1, False)
        own = {k: v for k, v in self._options.items() if k not in arguments.SHARED}
        members["_options"] = {**own, "cache": None, "assignment": "auto"}
        members.update(_resume=None, _live=None, _closed=False, _later_hosts=None)
        members.update(_past_stats=None, _past_skipped=[], _past_damaged=[])
        members.update(_dealt=None, _reader=OneReader())
        vars(other).update(members)
        vars(other)["_core"] = other._make_core()
        _open_loaders.add(other)
        return other

    def _measured_order(self) -> Iterable[Any]:
        """Lists of indices as an epoch of this rank has them, anew with every ``iter()``."""
        if self.batch_sampler is not None:
            return self.batch_sampler
        if self._feed is not None:
            return torch.utils.data.BatchSampler(self.sampler, self._capacity, self.drop_last)
        seed = self.seed if self.shuffle else None
        return OrderedBatches(len(self._source), self._part.now(), self._capacity, seed)

    # The native loader

    def _native(self) -> _core.Loader:
        """The native loader of this process: a forked child has none of its threads."""
        self._check_open()
        self._check_fork()
        if self._core is None:
            self._core = self._make_core()
        return self._core

    def _check_fork(self) -> None:
        """In a forked child it begins anew, and may be another rank."""
        if self._pid != os.getpid():
            self._live = None
            self._reader = OneReader()
            self._part.forget()
            self._core = None
            self._pid = os.getpid()

    def _make_core(self) -> _core.Loader:
        """A native loader for the options of now; counters of the one before are kept."""
        self._keep_counters()
        options = {
            **self._options,
            "batch_size": self._capacity,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
            "seed": self.seed,
            "rank": self.rank,
            "world_size": self.world_size,
            "local_world_size": local_ranks(),
            "external_order": self._feed is not None,
        }
        self._core_part = self._part.now()
        if self._feed is not None:
            # What is left to the sampler.
            options.update(shuffle=False, drop_last=False, rank=0, world_size=1)
        self._joined = False
        try:
            core = _core.Loader(self._source, self._recipe, **options)
        except NotImplementedError:
            if not options["pinned"]:
                raise
            core = _core.Loader(self._source, self._recipe, **{**options, "pinned": False})
            self._pin_by_copy = True
            self._options["pinned"] = False
        if self._later_hosts is not None:
            core.set_hosts(*self._later_hosts)
        return core

    def _keep_counters(self) -> None:
        old = getattr(self, "_core", None)
        if old is None or self._pid != os.getpid():
            return
        self._past_stats = add_stats(old.stats(), self._past_stats)
        self._past_skipped += [SkippedSample(*s) for s in old.skipped()]
        self._past_damaged += [SkippedSample(*s) for s in old.damaged()]
        old.close()

    def _grow(self, batch: int) -> _core.Loader:
        """A native loader whose batches may have ``batch`` samples."""
        self._capacity = max(batch, self._capacity + self._capacity // 2)
        self._core = self._make_core()
        return self._core

    def _can_pin(self) -> bool:
        if not self.pin_memory:
            return False
        if torch.cuda.is_available():
            return True
        warnings.warn(
            "'pin_memory' argument is set as true but no accelerator is found, then device "
            "pinned memory won't be used.",
            stacklevel=3,
        )
        return False

    def _tensors(self, batch: _core.Batch) -> tuple[Any, ...]:
        images = from_dlpack(batch.images)
        labels = from_dlpack(batch.labels)
        if self.layout == "channels_last":
            images = images.permute(0, 3, 1, 2)
        if self._pin_by_copy:
            images, labels = images.pin_memory(), labels.pin_memory()
        out: tuple[Any, ...] = (images, labels)
        if self.return_index or self.return_path:
            index = from_dlpack(batch.indices)
            if self.return_index:
                out += (index,)
            if self.return_path:
                out += ([self._source.path(i) for i in index.tolist()],)
        return out


_open_loaders: weakref.WeakSet[DataLoader] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Stops all threads before the interpreter takes itself apart."""
    for loader in list(_open_loaders):
        try:
            loader.close()
        except RuntimeError:
            pass  # a daemon thread is still waiting in it


def _feed(sampler: Any, batch_sampler: Any, batch_size: int, drop_last: bool) -> Feed | None:
    source = sampler if batch_sampler is None else batch_sampler
    if source is None:
        return None
    if not isinstance(source, Iterable) and not hasattr(source, "__getitem__"):
        raise TypeError(f"a sampler must be iterable, got {source!r}")
    return Feed(
        source,
        batched=batch_sampler is not None,
        batch_size=batch_size,
        drop_last=drop_last,
    )


def _make_recipe(transform: Any, *, layout: str, **options: Any) -> _core.Recipe:
    if transform is None:
        raise ValueError(
            "there is no transform, but batches need images of one size: give the dataset or the "
            "DataLoader transform=, for example headrace.transforms.Compose([Resize(256), "
            'CenterCrop(224), ToDtype("float32", scale=True)])'
        )
    if layout not in ("NCHW", "NHWC", "channels_last"):
        raise ValueError(f"layout must be 'NCHW', 'NHWC' or 'channels_last', got {layout!r}")
    return _transforms.make_recipe(
        transform, layout="NCHW" if layout == "NCHW" else "NHWC", **options
    )
