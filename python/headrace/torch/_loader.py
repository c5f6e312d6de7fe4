"""The DataLoader: torch's interface to the native loader, and to worker processes for the rest.

The C library determines the order of samples, prepares them and keeps the
position in an epoch. Where Python code makes samples or batches, ``_workers.py``
takes its place. This file translates arguments and keeps the state between epochs.
Python handles individual indices only for a user's sampler and for Python's samples.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
import torch.utils.data

from .. import _core
from .._walk import class_name
from . import _accelerate, _arguments as arguments, _sizes as sizes
from ._budget import Budgeted, lender_of
from ._choice import choose, is_usual, native_recipe
from ._datasets import transform_of
from ._epoch_line import EpochLine
from ._epochs import OneReader
from ._feed import Feed, feed_of
from ._hosts import Exchange, Gather, stats_of_ranks
from ._iteration import Iteration
from ._mix import Mix
from ._order import Dealt, InOrder, Order, adopt
from ._publication import Publication
from ._shared import Shared
from ._stats import SkippedSample, add_stats
from ._surroundings import Part, local_ranks
from ._workers import Workers

# Attributes fixed when the native loader is made: setting one later would have no effect. torch's
# class refuses some of them itself.
_FIXED = frozenset(
    ("batch_sampler", "batch_size", "dataset", "drop_last", "layout", "num_workers", "pin_memory")
    + ("prefetch_factor", "rank", "sampler", "world_size")
)
_RECIPE = ("dtype", "apply_exif_orientation", "max_pixels", "max_source_bytes", "damaged", "exact", "max_size")
_TORCH = (
    ("num_workers", "pin_memory", "timeout", "multiprocessing_context", "prefetch_factor")
    + ("persistent_workers", "pin_memory_device")
)  # fmt: skip
_WORKERS = (
    ("batch_size", "shuffle", "drop_last", "seed", "rank", "world_size", "external_order")
    + ("on_error", "max_bad_share")
)  # fmt: skip


class DataLoader(Budgeted, torch.utils.data.DataLoader[Any]):
    """Loads batches with native threads, or with worker processes where Python code is involved.

    It is a ``torch.utils.data.DataLoader``, so that frameworks take it for one (docs/frameworks).

    Image datasets whose transforms the library has are prepared by native threads. Everything else
    works as in ``torch.utils.data.DataLoader``, in its worker processes: other datasets, own
    transforms (of images, the part of a Compose before the first of them still runs natively),
    ``target_transform``, ``collate_fn`` and iterable datasets. ``verbose=1`` and :meth:`explain`
    say what runs where.

    Of native batches, iterating yields ``(images, labels)``: ``images`` of shape (samples, 3, height,
    width) with the transform's element type, ``labels`` int64; then ``index``
    (int64, positions in ``dataset``) with ``return_index`` and a list of paths with
    ``return_path``. Of a dataset with rows, ``labels`` are :class:`Targets`: a dict for each
    sample; of one with masks, uint8 masks of shape (samples, height, width). You may keep and
    modify the tensors. Images and masks lie in the loader's
    memory, which it reuses when the last view of them is freed. Labels and indices
    are copies, so that keeping them for every batch does not keep the images. Batches of Python's
    are what ``collate_fn`` returns, a list by default.

    Batches depend on dataset, transform, ``seed``, epoch, batch size and ranks,
    never on threads or timing. Epochs count from 0. Every ``iter()`` from which a
    batch is taken advances the epoch, even if the previous one was left early.

    torch's arguments:
        dataset: any. Read natively: headrace's datasets of images, with boxes or masks too, and
            of sounds (not ``CachedDataset``), torchvision's ``ImageFolder`` or ``DatasetFolder``
            with its own loader, timm's ``ImageDataset`` of a folder, or a ``Subset`` of these.
        batch_size: samples per batch of this rank.
        shuffle: use a new random order in every epoch.
        sampler, batch_sampler: any iterable of indices, or of lists of indices, even an
            endless one. As with torch, every rank has its own. The loader's own order
            replaces a ``DistributedSampler`` (not a subclass) if both give the ranks the
            same number of samples: it follows the sampler's ranks, ``shuffle``, ``seed``
            and ``set_epoch``, and logs a warning.
        num_workers: threads. ``None``: the cores that this process may use, divided by
            LOCAL_WORLD_SIZE, minus one, at least one. 0: one thread. Where Python makes
            samples: worker processes; 0 or ``None``: this process.
        collate_fn: of one's own, it and the samples run in Python. Of a dataset with rows or masks,
            samples stay native, and it gets a batch's (image, target) pairs in this process.
        pin_memory: page-locked batches for asynchronous copies, if CUDA is available.
        drop_last: drop a smaller last batch. Otherwise the ranks' last batches are
            padded with samples from the start of the order to equal size.
        timeout, worker_init_fn, multiprocessing_context, persistent_workers,
        pin_memory_device: as torch's for worker processes; without effect for threads.
        in_order: accepted without effect: batches always come in order.
        generator: its ``initial_seed()`` is used as ``seed``.
        prefetch_factor: batches prepared ahead, by all threads together (they share the
            work of every batch). ``None``: 2, and of a dataset at URLs as many as have 256
            samples, if they take at most 256 MiB (with an agent: at most ``window - 2``).

    Headrace's arguments:
        transform: replaces the dataset's transform; headrace's or torchvision's.
        seed: of the order and of random parameters.
        dtype: element type of ``images``, as a final ``ToDtype(dtype, scale=True)``.
        layout: ``"NCHW"``, ``"NHWC"`` (samples, height, width, 3), or
            ``"channels_last"``: NCHW shape over NHWC memory, torch's memory format.
        on_error: for a bad sample: ``"raise"`` a :class:`headrace.SampleError`, or
            ``"skip"`` it and use another sample instead, see :meth:`skipped`.
        max_bad_share: with ``"skip"``: raise :class:`headrace.TooManyBadSamples` if more
            than this share of an epoch's samples is bad.
        return_index, return_path: see above.
        rank, world_size: which part of each epoch this process gets. ``None``: determined
            when the first epoch begins: from torch.distributed if it is initialised, else
            from RANK and WORLD_SIZE, else 0 of 1. If ``gather`` is a function, the variables
            of Open MPI, MPICH and Slurm count too. Logs a warning if variables were used or
            ignored. With a sampler it only makes ranks draw other random parameters.
        direct_io: bypass the page cache.
        io_uring: ``False``: read with plain threads.
        staging_bytes: limit of the encoded bytes read ahead. ``None``: 16 MiB, and of a
            dataset at URLs 64 MiB.
        cache: memory for samples, so that later epochs need not read them again or, in
            part, decode them: bytes, or a text. ``"2GiB"``: a private cache, shared by the
            ranks of this host and removed with the last loader. ``"shm:NAME?size=64GiB"``: a
            kept cache, shared with other jobs and available to later runs. Options may
            follow: ``&share=0.9`` (the most of the size that this dataset gets),
            ``&group=NAME``, ``&form=...`` and ``&key_file=PATH``. Samples stay cached until
            their files change. ``"disk:/nvme/headrace?size=1TiB"``: a cache in a directory on a
            disk of this host, for later runs and other jobs; behind memory:
            ``"64GiB,disk:/nvme/headrace?size=1TiB"``. ``"memcached:hostA:11211,hostB:11211?size=64GiB"``: a cache in
            the memory of several hosts, whose memcached servers are running; every rank
            passes the same text; with a disk before it, ``"disk:/nvme/headrace?size=1TiB,memcached:..."``,
            each host's disk keeps what memory does not hold. Another DataLoader of this process: its private cache for
            both, which then keeps what is used next by either. So does a private cache of one
            process with a sampler that repeats samples: torch's with replacement or for a
            part, timm's for repeated augmentation, and a cache that jobs with orders of their own
            share (``shm:``). All others never evict.
        cache_form: form of cached samples: ``"encoded"``: as the files; ``"indexed"``: the
            files with an index, which decode faster for about 2 % more bytes;
            ``"coefficients"``: decode several times faster for an eighth more bytes;
            ``"planes"``: faster still for three to six times the bytes; of sounds,
            ``"waveform"``: what the recipe's leading Mono and Resample make of each;
            ``"waveform16"``: the same as int16, so batches differ by up to 1.5e-5 of full
            scale; ``None`` or ``"auto"``: the form in ``cache``, or else the best use of the
            budget by measurement. Batches are the same otherwise.
        epochs: number of epochs of the run. If given, busy threads too convert cached
            samples, if the remaining epochs repay it; otherwise only idle threads do, unless
            ``cache_form`` names a form.
        agent: the process that prepares batches. ``None``: this one. ``"auto"``: an agent
            that serves all jobs and ranks of this user on this host; it is started if none
            runs and exits when unused. Or the socket path of a running ``headrace agent``.
            Batches are the same, bit for bit. The agent's own settings replace
            ``num_workers``, ``direct_io``, ``io_uring`` and ``staging_bytes``, and ``cache`` if
            it has one. A sampler runs in this process and sends its indices to the agent. Where
            Python makes the samples, worker processes of the jobs make them, each once.
        stream: with an agent: jobs that name the same stream get the same batches; each
            sample is fetched and prepared once per epoch for all of them. Batch sizes may
            differ; dataset, transform, ``seed``, ``shuffle`` and ``world_size`` must be equal.
            Not possible with a sampler other than a ``DistributedSampler``.
        join: how to join a stream in use: ``"epoch"``: wait for its next epoch; ``"now"``
            (one rank only): take the rest of its current epoch; ``stats()["missed"]`` counts
            the samples missed. Epochs are then the stream's, see :meth:`set_epoch`.
        lag: if this loader is more than ``window`` batches behind the others of its
            stream: ``"alone"``: its batches are prepared for it alone until it has caught
            up; ``"wait"``: the others wait for it.
        window: batches that a stream keeps in shared memory for jobs of different speed; at
            least ``prefetch_factor + 2``. ``None``: 8, or more for a larger
            ``prefetch_factor``. The stream uses its first loader's value.
        share_key: for jobs that share a dataset of their own through an agent: a name for its
            content. Jobs with equal names share samples; without one, jobs must agree in the texts
            of transforms and in the first sample's bytes. Change it when the data or the code
            changes.
        assignment: which rank gets which samples of a global batch, with several hosts.
            ``"local"`` (the default then): samples that its host keeps, as far as equal
            batch sizes allow; ``"exact"``: the framework's own rank order. The samples of
            all ranks together are the same. Use ``"exact"`` if the loss depends on which
            samples share a rank's batch (batch norm without synchronisation, in-batch
            negatives).
        gather: with several hosts: how the ranks exchange the speed of their hosts. They do
            so at each ``iter()`` except the first, which all ranks have to reach. ``None``:
            with torch.distributed if it is initialised; a function that takes ``bytes`` and
            returns those of all ranks in rank order (MPI's ``comm.allgather``); ``False``:
            never, and all hosts count as equally fast.
        apply_exif_orientation: rotate images by their EXIF tag; torchvision ignores it.
        max_pixels: larger images are bad samples; Pillow's limit if ``None``.
        max_source_bytes: larger files of sounds are bad samples; 64 MiB if ``None``.
        damaged: ``"refuse"``: damaged images are bad samples. ``"accept"``: accept those that
            Pillow decodes by default, with pixels guessed by the decoder; they are counted
            and listed, see :meth:`damaged`.
        exact: ``False``: decode JPEG files at 1/2, 1/4 or 1/8 of their size where the crop is
            shrunk at least that much. Faster for images much larger than the batch's; the
            pixels differ a little (docs/pixels.md). ``stats()["scaled_samples"]`` counts them.
            Cached samples stay encoded then.
        names: names of a batch's fields: batches are dicts then, as Hugging Face's models take
            them: ``names=("pixel_values", "labels")``.
        verbose: 1: print one line on what runs natively and what in Python, and one at the end
            of each epoch: samples a second, how long training waited and for what, where the
            samples came from. With torch.distributed rank 0 prints it for all ranks that have
            ``verbose``, and names a rank that waited longer than the others.
        collate: images of several sizes (docs/detection.md). ``"list"``: ``images`` is a list of
            tensors, each of its own size. ``"pad"``: it is a :class:`Padded`: one tensor, as large
            as the batch's largest image on each side and zero elsewhere, and the images' sizes.
            Batches lie in places for the largest image possible, which the transform's ``max_size``
            or the next argument limits. ``None``: all images have one size. Of sounds
            (docs/audio.md), cut to what they have without padding, or a :class:`PaddedSounds`: one
            tensor, as long as the batch's longest sound, and the lengths.
        max_size: with ``collate``: the largest image, a number for both sides or (height, width).
            A larger one is a bad sample.
        metrics: ``"127.0.0.1:9100"``: serve the figures of this process's loaders to Prometheus
            at that address, from the first epoch on. Rank r of a machine serves at the port plus
            r. ``None``: HEADRACE_METRICS, if it is set; ``""``: none. See docs/metrics.md.
        mix: mixes each sample of a batch with the one before it: torchvision's ``v2.MixUp`` or
            ``v2.CutMix``, ``v2.RandomChoice`` of the two, or ``v2.RandomApply`` of one of these.
            The worker threads mix. Labels become probabilities of shape (samples,
            num_classes), float32; without ``num_classes`` the dataset's classes count. The draws
            depend on seed, epoch and the batch's position only.

    Where Python makes the samples, arguments of the native loader (cache, dtype, ...) are refused
    by name. An agent then shares what the jobs' worker processes make.

    Raises:
        TypeError, ValueError: an argument is not supported; the message names it and says
            what to do instead.
        MemoryError, OSError: the cache's memory is not available.

    One iterator is live at a time: a new ``iter()`` ends the previous one. One thread may read
    at a time: a second one gets a RuntimeError and does not disturb the first. In a forked
    child the loader works again from the next ``iter()`` on. A DataLoader cannot be pickled;
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
        cache: int | str | DataLoader | None = None,
        cache_form: Literal[
            "auto", "encoded", "indexed", "coefficients", "planes", "waveform", "waveform16"
        ]
        | None = None,
        epochs: int | None = None,
        agent: str | os.PathLike[str] | None = None,
        stream: str | None = None,
        join: Literal["epoch", "now"] = "epoch",
        lag: Literal["alone", "wait"] = "alone",
        window: int | None = None,
        share_key: str | None = None,
        assignment: Literal["local", "exact"] | None = None,
        gather: Gather = None,
        apply_exif_orientation: bool = False,
        max_pixels: int | None = None,
        max_source_bytes: int | None = None,
        damaged: Literal["refuse", "accept"] = "refuse",
        exact: bool = True,
        names: Sequence[str] | None = None,
        verbose: int = 0,
        mix: Any = None,
        metrics: str | None = None,
        collate: Literal["pad", "list"] | None = None,
        max_size: int | tuple[int, int] | None = None,
    ) -> None:
        self._given = given = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        arguments.check_order(batch_size, shuffle, sampler, batch_sampler, drop_last)
        recipe = {name: given[name] for name in _RECIPE}
        recipe["padded"] = sizes.check(collate, max_size, layout)
        is_batched = batch_size is not None or batch_sampler is not None
        self._choice = choose(
            dataset,
            transform=transform,
            collate_fn=collate_fn,
            worker_init_fn=worker_init_fn,
            timeout=timeout,
            batched=is_batched,
            recipe=recipe,
        )
        self._choice.refuse(given)
        size = arguments.count("batch_size", batch_size, 1) if is_batched else None
        has_order = sampler is None and batch_sampler is None and not self._choice.is_stream
        self.shuffle = bool(shuffle)
        super().__init__(
            dataset,
            size,
            shuffle if self._choice.is_stream else None,
            (Order if shuffle else InOrder)(self) if has_order else sampler,
            batch_sampler,
            collate_fn=collate_fn,
            pin_memory=bool(pin_memory),
            drop_last=bool(drop_last),
            timeout=timeout,
            worker_init_fn=worker_init_fn,
            generator=generator,
            pin_memory_device=pin_memory_device,
            in_order=bool(in_order),
        )
        # torch's class would refuse some of these without worker processes.
        ahead = 2 if prefetch_factor is None else prefetch_factor
        ahead = arguments.count("prefetch_factor", ahead, 1)
        self.num_workers = arguments.workers(num_workers, self._choice.is_native or self._choice.shares)
        self.prefetch_factor = ahead if self.num_workers else prefetch_factor
        vars(self)["persistent_workers"] = bool(persistent_workers)
        if self.num_workers:
            self.multiprocessing_context = multiprocessing_context
        self.names = arguments.names(names)
        self.seed = arguments.seed(seed, generator)
        self.return_index = bool(return_index)
        self.return_path = bool(return_path)
        self.layout = layout
        self.collate = collate
        self._source = self._choice.source
        own_transform = transform_of(dataset)
        self._part = arguments.part(rank, world_size, gather)
        self._dealt: Dealt | None = None
        if isinstance(sampler, torch.utils.data.DistributedSampler):
            self._dealt = Dealt.of(
                sampler,
                samples=len(self._source),
                batch_size=self.batch_size or 1,
                drop_last=self.drop_last,
                seed=self.seed,
            )
        self._feed: Feed | None = None
        begin_at = adopt(batch_sampler, self)
        if self._dealt is None:
            self._feed = feed_of(
                sampler,
                batch_sampler,
                batch_size=self.batch_size or 1,
                drop_last=drop_last,
                numbers=self._choice.is_native,
                is_pure=begin_at is not None,
            )
        else:
            begin_at = self._dealt.epoch
            self.shuffle, self.seed = bool(sampler.shuffle), int(sampler.seed)  # type: ignore[union-attr]
            self._part = Part(self._dealt.part, True)
        self._capacity = self.batch_size or arguments.first_capacity(batch_sampler)
        self._pin_by_copy = False
        lender = lender_of(cache)
        self._options: dict[str, Any] = {
            "threads": 0 if num_workers is None else max(1, num_workers),
            "batches_ahead": 0 if prefetch_factor is None else ahead,
            "direct_io": direct_io,
            "no_io_uring": not io_uring,
            "on_error": on_error,
            "max_bad_share": max_bad_share,
            "pinned": self._choice.is_native and arguments.can_pin(pin_memory),
            "cache": arguments.cache(None if lender is not None else cache),
            "cache_form": "auto" if cache_form is None else cache_form,
            "epochs": 0 if epochs is None else arguments.count("epochs", epochs, 1, arguments.LONG),
            "assignment": "auto" if assignment is None else assignment,
        }
        arguments.hosts(
            self._options["cache"], assignment, agent=agent, has_sampler=self._feed is not None
        )
        self._gather: Gather = gather
        self.share_key = share_key
        self._exchange = Exchange(gather, *self._part.now())
        self._options |= arguments.shared(
            agent,
            stream,
            join,
            lag,
            window,
            batches_ahead=ahead,
            has_sampler=self._feed is not None,
            in_python=not self._choice.is_native,
        )
        arguments.check_join(join, stream, self._part.now()[1])
        self._budget = self._own_budget() if lender is None else self._borrow(lender)
        if self._budget is not None:
            self._budget.add(self)
        self._mix = None if mix is None else Mix.of(mix, dataset)
        if self._mix is not None:
            self._options |= self._mix.options
        if metrics is not None:
            self._options["metrics"] = metrics
        if staging_bytes is not None:
            self._options["staging_bytes"] = arguments.count(
                "staging_bytes", staging_bytes, 1, arguments.LONG
            )

        self._transform_seen = own_transform
        self._recipe: _core.Recipe | None = None
        self._torch_options: dict[str, Any] = {}  # of torch's DataLoader, for worker processes
        self._batches_ahead = ahead
        if self._choice.is_native:
            used = own_transform if transform is None else transform
            self._recipe = native_recipe(used, layout=layout, **recipe)
        else:
            self._torch_options = {name: given[name] for name in _TORCH}
            self._torch_options["num_workers"] = self.num_workers
            self._torch_options["prefetch_factor"] = self.prefetch_factor
            if not self._choice.shares:
                self._batches_ahead *= self.num_workers
            if batch_sampler is not None:
                self._capacity = sys.maxsize
        self._begin_at(begin_at or 0)
        self._closed = False
        self._past_stats: dict[str, Any] | None = None  # of native loaders that were replaced
        self._past_skipped: list[SkippedSample] = []
        self._past_damaged: list[SkippedSample] = []
        self._later_hosts: tuple[int, str] | None = None  # an epoch, and its cache from then on
        self._begun = False  # whether an epoch was begun, so that there are rates to exchange
        self._pid = os.getpid()
        self._line = None
        self._core: Any = None  # a _core.Loader, or Workers
        # A stream's jobs compare their ranks, which are not known before the first epoch.
        if "stream" not in self._options or self._part.is_known:
            self._core = self._make_core()
        self._register()
        if self.batch_sampler is not None:
            _accelerate.register(self)
        if verbose:
            self._line = EpochLine(
                is_native=self._choice.is_native, has_agent="agent" in self._options
            )
            print(f"headrace: {self._choice.line(self.num_workers)}", file=sys.stderr, flush=True)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and "_closed" in vars(self):
            raise ValueError(f"{name} cannot be changed after the DataLoader is made: make another")
        super().__setattr__(name, value)

    # Iterating

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Begins the next epoch and ends a live iterator. If no batch was taken from that one,
        the epoch stays the same."""
        self._check_fork()
        with self._reader:
            self._check_open()
            self._settle()
            self._check_transform()
            self._follow_sampler()
            return Iteration(self)

    def __len__(self) -> int:
        """Batches per epoch. Raises TypeError if the sampler has no length."""
        if self._feed is not None:
            return len(self._feed)
        self._check_open()
        if self._choice.is_stream:
            return torch.utils.data.DataLoader.__len__(self)
        samples, together = len(self._source), (self.batch_size or 1) * self.world_size
        return samples // together if self.drop_last else -(-samples // together)

    def _settle(self) -> None:
        """Determines this process's part of each epoch, at the beginning of an epoch."""
        is_first = not self._part.is_settled
        self._part.settle()
        rank, ranks = self._part.now()
        if is_first:
            arguments.check_join(self._options.get("join"), self._options.get("stream"), ranks)
            self._exchange = Exchange(self._gather, rank, ranks)
        if self._core is not None and self._core_part != (rank, ranks):
            self._core = self._make_core()
        core = self._native()
        if is_first:
            self._say(core)

    def _seed_of_draws(self) -> int:
        """Returns the seed of what is drawn for samples. With a sampler each rank counts positions by
        itself, and one sample may come to several ranks at the same position: these draw
        differently, so that repeated augmentation works over ranks."""
        rank = 0 if self._feed is None else self.rank
        return (self.seed + rank * 0x9E3779B97F4A7C15) % (1 << 64)

    # Watching

    @property
    def is_native(self) -> bool:
        """Whether no Python code runs between file and batch."""
        return self._choice.is_native

    def explain(self) -> str:
        """Returns what runs natively and what in Python, and why; after the first batch also what it
        costs a sample."""
        text = self._choice.line(self.num_workers)
        if self.is_native:
            cached = self._cache_line()
            return f"{text}; {cached}" if cached else text
        return text + self._native().costs()

    def stats(self) -> dict[str, Any]:
        """Returns counters, current state and histograms.

        Counters since the loader was made: ``samples``, ``batches``, ``bad_samples``,
        ``damaged_samples``, ``scaled_samples`` (decoded at a smaller scale, with ``exact=False``
        and without an agent), ``padded_samples``, ``bytes_read``, ``wait_ns`` (time that
        training waited in ``next``), ``step_ns`` (time it spent otherwise, within
        epochs; 0 where Python makes the samples),
        ``grown_slots``, ``cache_hits`` (samples whose bytes were cached),
        ``converted`` (items) and ``conversion_ns`` (of all threads).

        Current state: ``slots``, ``slot_bytes``, ``staged_bytes``, ``ready_batches``,
        ``batches_ahead`` (prepared ahead at most), ``threads``, ``io_uring``, ``cache_bytes`` (size of the cached items),
        ``cache_source_bytes`` (size of the files that an epoch need not read any more),
        ``cache_encoded``, ``cache_indexed``, ``cache_coefficients``, ``cache_planes``,
        ``cache_waveforms`` (items by form) and ``cache_waiting`` (items that wait for a conversion).

        Histograms ``fetch``, ``prepare`` (per sample) and ``wait`` (per batch): ``count``,
        ``sum_ns`` and ``buckets``; bucket i counts durations of 2^i to 2^(i+1) ns.

        With an agent: ``missed`` (samples of the stream's epoch that were over when this loader
        joined), ``alone`` (batches prepared for this loader alone) and ``reattached`` (times
        that a new agent took over).

        With a cache on disk: ``disk_hits``, ``disk_bytes`` (samples and bytes that were read from
        it; ``cache_hits`` has them too, ``bytes_read`` has not), ``disk_items`` and
        ``disk_used_bytes`` (in it now). ``cache_bytes`` and what follows are of the first tier.

        With several hosts: ``own_hits``, ``own_bytes`` (samples from this host's server),
        ``peer_hits``, ``peer_bytes`` (from other hosts'), ``stored``, ``stored_bytes``,
        ``refused`` (items that this rank stored, and that servers refused) and ``read_ahead``.

        Of a dataset at URLs since it was opened, over all its loaders in this process:
        ``object_requests``, of them ``object_lists`` (pages of listings), ``object_retries`` (after
        a failure) and ``object_hedges`` (because an answer was late); ``object_refusals`` (answers
        that asked for fewer requests), ``object_bytes``, and ``object_cost_usd``, an estimate with
        ``HEADRACE_OBJECT_PRICES``.

        If rates were gathered, for the previous epoch: ``rank_wait_s`` (seconds that each rank's
        training waited), ``rank_ready_s`` (mean seconds until a batch was ready),
        ``wait_spread_s`` and ``ready_spread_s`` (largest minus smallest)."""
        own = add_stats(self._native().stats(), self._past_stats)
        return {**own, **stats_of_ranks(self._exchange.ranks)}

    def skipped(self) -> list[SkippedSample]:
        """Returns the samples replaced so far (the newest 10,000), with reasons."""
        now = [SkippedSample(*s) for s in self._native().skipped()]
        return self._past_skipped + now

    def damaged(self) -> list[SkippedSample]:
        """Returns the damaged samples accepted so far (the newest 10,000)."""
        now = [SkippedSample(*s) for s in self._native().damaged()]
        return self._past_damaged + now

    # Ending

    def close(self) -> None:
        """Stops the threads and ends iteration. Batches stay valid, and :meth:`state_dict` still
        works. Raises RuntimeError while another thread waits for a batch."""
        self._check_fork()  # the parent's threads and processes go on
        place = None
        if self._live is not None:
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

    def _register(self) -> None:
        _open_loaders.add(self)

    def _check_transform(self) -> None:
        is_fixed = self._choice.pipeline is not None
        if is_fixed and transform_of(self.dataset) is not self._transform_seen:
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
        made = "in Python" if core is None else f"shape={core.shape}, dtype={core.dtype!r}"
        samples = "a stream of" if self._choice.is_stream else len(self._source)
        return (
            f"headrace.torch.DataLoader({samples} samples, batch_size={self.batch_size}, {made}, "
            f"shuffle={self.shuffle}, seed={self.seed}, rank={self.rank}/{self.world_size})"
        )

    # The native loader

    def _native(self) -> Any:
        """Returns this process's native loader; a forked child gets a new one."""
        self._check_open()
        self._check_fork()
        if self._core is None:
            self._core = self._make_core()
        return self._core

    def _check_fork(self) -> None:
        """Resets the loader in a forked child, which may be another rank."""
        if self._pid != os.getpid():
            self._live = None
            self._reader = OneReader()
            self._part.forget()
            if not self.is_native:
                _left_behind.append(self._core)  # its end would end the parent's processes
            self._core = None
            self._pid = os.getpid()

    def _make_core(self) -> Any:
        """Makes a native loader, or one in Python, with the current options and keeps its
        predecessor's counters."""
        self._keep_counters()
        options = {
            **self._options,
            **({} if self._budget is None else self._budget.options(self)),
            "batch_size": self._capacity,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
            "seed": self._seed_of_draws(),
            "rank": self.rank,
            "world_size": self.world_size,
            "local_world_size": local_ranks(),
            "external_order": self._feed is not None,
            "metrics_rank": self.rank,
        }
        self._core_part = self._part.now()
        if self._feed is not None:
            # What is left to the sampler. Its ranks still share a cache.
            options.update(shuffle=False, drop_last=False)
        self._joined = False
        if not self._choice.is_native:
            if self._feed is not None:
                options.update(rank=0, world_size=1)
            return self._make_workers(options)
        try:
            core = _core.Loader(self._source, self._recipe, **options)
        except NotImplementedError:
            if not options["pinned"]:
                raise
            core = _core.Loader(self._source, self._recipe, **{**options, "pinned": False})
            self._pin_by_copy = True
            self._options["pinned"] = False
        self._batches_ahead = core.stats()["batches_ahead"]
        if self.prefetch_factor is not None:
            vars(self)["prefetch_factor"] = self._batches_ahead
        if self._later_hosts is not None:
            core.set_hosts(*self._later_hosts)
        return core

    def _make_workers(self, options: Mapping[str, Any]) -> Workers | Shared:
        is_batched = self.batch_size is not None or self.batch_sampler is not None
        collate_fn = None if is_usual(self.collate_fn, is_batched) else self.collate_fn
        if self._choice.shares and "agent" in options:
            return Shared(self._choice.samples, self, collate_fn, is_batched, dict(options))
        return Workers(
            self._choice.samples,
            collate_fn=collate_fn,
            worker_init_fn=self.worker_init_fn,
            batched=is_batched,
            torch_options=self._torch_options,
            publication=Publication(
                str(getattr(self.dataset, "root", "") or class_name(self.dataset)),
                options.get("metrics"),
                self.rank,
                options["local_world_size"],
            ),
            **{name: options[name] for name in _WORKERS},
        )

    def _keep_counters(self) -> None:
        old = getattr(self, "_core", None)
        if old is None or self._pid != os.getpid():
            return
        self._past_stats = add_stats(old.stats(), self._past_stats)
        self._past_skipped += [SkippedSample(*s) for s in old.skipped()]
        self._past_damaged += [SkippedSample(*s) for s in old.damaged()]
        old.close()

    def _grow(self, batch: int) -> Any:
        """Returns a native loader whose batches can have ``batch`` samples."""
        self._capacity = max(batch, self._capacity + self._capacity // 2)
        self._core = self._make_core()
        return self._core



_left_behind: list[Any] = []  # loaders of the parent process, in a forked child
_open_loaders: weakref.WeakSet[DataLoader] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Stops all threads before the interpreter is finalised."""
    for loader in list(_open_loaders):
        try:
            loader.close()
        except RuntimeError:
            pass  # a daemon thread is still waiting in it
