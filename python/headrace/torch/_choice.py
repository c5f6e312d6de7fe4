"""Decides what of a loader's work runs natively and what in Python, and says so.

:func:`choose` is the only place that decides. What it returns makes the loader, and its lines are
those of ``verbose=1`` and :func:`headrace.explain`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch.utils.data
from torch.utils.data import IterableDataset

from .. import _core, _rows, transforms as _transforms
from .._pipeline import Pipeline
from .._walk import class_name
from ..datasets import _ImageDataset
from ._datasets import Resolved, resolve, source_of
from ._mix import mixes
from ._worker import Folder, Own

_CACHED = "headrace.CachedDataset(dataset, size) keeps the samples of any dataset in memory"
_PYTHON = "leave it out"
# Options of the native loader, their defaults, and what to do instead where Python makes samples.
_NATIVE_ONLY: dict[str, tuple[Any, str]] = {
    "cache": (None, _CACHED),
    "cache_form": (None, _CACHED),
    "epochs": (None, _PYTHON),
    "assignment": (None, _PYTHON),
    "gather": (None, _PYTHON),
    "direct_io": (False, _PYTHON),
    "io_uring": (True, _PYTHON),
    "staging_bytes": (None, _PYTHON),
    "mix": (None, "call it in a collate_fn, on default_collate(samples)"),
    "layout": ("NCHW", "let the transform or collate_fn permute"),
    "collate": (None, "give a collate_fn that pads or lists the images"),
    "max_size": (None, "let the transform limit the images"),
}
# Options of an agent, which prepares map-style datasets only.
_MAP_ONLY = ("agent", "stream", "window")
# Options of the recipe, which need a native head.
_HEAD_ONLY: dict[str, Any] = {
    "dtype": None,
    "apply_exif_orientation": False,
    "max_pixels": None,
    "max_source_bytes": None,
    "damaged": "refuse",
    "exact": True,
}


@dataclass
class Choice:
    """What runs where."""

    dataset: Any
    source: Any  # the core dataset, or what stands for it
    transform: Any = None  # the dataset's own
    samples: Any = None  # makes samples in Python, see _worker.py; None: all is native
    pipeline: Pipeline | None = None
    why: list[str] = field(default_factory=list)  # what is not native, and why
    ignored: list[str] = field(default_factory=list)  # arguments without effect
    collates: bool = False  # the user's collate_fn runs on native samples, in this process
    shares: bool = False  # samples made in Python go to all jobs of an agent's stream
    hint: str = ""  # how all could run natively

    @property
    def is_native(self) -> bool:
        return self.samples is None

    @property
    def is_stream(self) -> bool:
        return isinstance(self.samples, IterableDataset)

    def line(self, workers: int | None) -> str:
        """Returns one line on what runs where."""
        head = [] if self.pipeline is None else [type(one).__name__ for one in self.pipeline.head]
        native = ", ".join(["reading", "decoding", *head]) if self.pipeline is not None else ""
        if self.is_native:
            note = f" ({'; '.join(self.ignored)})" if self.ignored else ""
            return f"native threads do everything: {native}, batches{note}"
        where = f"{workers} worker processes" if workers else "this process, as num_workers=0"
        if self.shares:
            where = f"worker processes of the agent's jobs, {workers} of them here"
        return (
            f"Python runs in {where}: {'; '.join(self.why)}"
            + (f". In C: {native}" if native else "")
            + self.hint
        )

    def refuse(self, options: Mapping[str, Any]) -> None:
        """Raises ValueError for options that only the native loader has."""
        if self.is_native:
            if options["share_key"] is not None:
                raise ValueError(
                    "share_key names the content of a dataset whose samples Python makes; this one "
                    "is prepared natively, from files that the agent compares itself: leave it out"
                )
            return
        self._refuse_shared(options)
        for name, (default, way_out) in _NATIVE_ONLY.items():
            self._refuse(name, options[name], default, way_out)
        has_tail = self.pipeline is None or not self.pipeline.is_native
        for name, default in _HEAD_ONLY.items():
            if has_tail if name == "dtype" else self.pipeline is None or not self.pipeline.head:
                self._refuse(name, options[name], default, "let the transform do it")
        if self.pipeline is None:
            self._refuse("transform", options["transform"], None, "give it to the dataset")
        if self.is_stream:
            for name in ("return_index", "return_path"):
                self._refuse(name, options[name], False, "let the dataset yield it")
            self._refuse("on_error", options["on_error"], "raise", "let the dataset catch errors")

    def _refuse_shared(self, options: Mapping[str, Any]) -> None:
        """Decides whether an agent shares the samples, and refuses what does not go with that."""
        if self.is_stream:
            for name in _MAP_ONLY:
                self._refuse(name, options[name], None, "an agent needs a dataset with indices")
        self.shares = options["agent"] is not None
        if not self.shares:
            if options["share_key"] is not None:
                raise ValueError("share_key is for jobs that share samples: add agent and stream")
            return
        if options["num_workers"] == 0:
            raise ValueError(
                "num_workers=0: with an agent, worker processes make the samples: pass 1 or more, "
                "or leave it out"
            )
        if options["timeout"]:
            raise ValueError(
                f"timeout={options['timeout']!r} is for worker processes that this loader alone "
                "waits for, but an agent's jobs share them: leave it out"
            )

    def _refuse(self, name: str, value: Any, default: Any, way_out: str) -> None:
        if value is not default and value != default:
            raise ValueError(
                f"{name}={value!r} goes with what Headrace runs natively, but here Python makes the "
                f"samples ({'; '.join(self.why)}): {way_out}"
            )


def choose(
    dataset: Any,
    *,
    transform: Any,
    collate_fn: Any,
    worker_init_fn: Any,
    timeout: float,
    batched: bool,
    recipe: Mapping[str, Any],
) -> Choice:
    """Returns what of a loader's work runs natively."""
    if isinstance(dataset, IterableDataset):
        return Choice(dataset, _Endless(dataset), samples=dataset, why=["an IterableDataset"])
    why = []
    collates = batched and not is_usual(collate_fn, batched)
    if collates:
        why.append(f"collate_fn ({class_name(collate_fn)})")
    if not batched:
        why.append("samples without batches (batch_size=None)")
    try:
        found = resolve(dataset)
    except (TypeError, ValueError) as error:
        own = Own(dataset)
        return Choice(dataset, own, samples=own, why=[str(error), *why])
    if found.target_transform is not None:
        why.append(f"target_transform ({class_name(found.target_transform)})")
    has_rows = bool(found.source.columns()) or found.source.masks is not None
    if has_rows and collates:
        del why[0]  # rows are too small to be worth a process
    choice = _of_images(dataset, found, transform, why, recipe, worker_init_fn, timeout)
    pipeline = choice.pipeline
    if has_rows:
        choice.collates = collates and choice.is_native
        _check_rows(choice, found.source, collate_fn, batched)
        _rows.warn_of_fills(found.source, found.transform if transform is None else transform)
        return choice
    if len(choice.why) == 1 and batched and pipeline is not None and pipeline.is_native:
        kind = "" if is_usual(collate_fn, batched) else mixes(collate_fn)
        if kind:
            choice.hint = (
                f". The collate_fn uses {kind}: if it does nothing else, leave it out and give the "
                "transform to the DataLoader as mix=; then all runs in native threads"
            )
    return choice


def _check_rows(choice: Choice, source: _core.Dataset, collate_fn: Any, batched: bool) -> None:
    """Refuses what Python cannot do with rows."""
    if choice.is_native:
        return
    moved = _rows.moves(source)
    if moved and not batched:
        raise ValueError(
            f"the dataset has {', '.join(moved)}, which move with the pixels, but with "
            "batch_size=None Python makes the samples: use batch_size=1, and images[0] and "
            "targets[0] of each batch"
        )
    if moved:
        raise ValueError(
            f"the dataset has {', '.join(moved)}, which move with the pixels, but Python makes the "
            f"samples ({'; '.join(choice.why)}): use transforms that run natively, and change "
            "targets in the training loop or in a collate_fn, which gets (image, target) pairs"
        )
    if batched and is_usual(collate_fn, batched) and not _rows.is_label(source):
        raise ValueError(
            f"Python makes the samples ({'; '.join(choice.why)}), and torch's default_collate cannot "
            "stack their rows, of which samples have different numbers: give a collate_fn, such as "
            "lambda samples: tuple(zip(*samples))"
        )


def _of_images(
    dataset: Any,
    found: Resolved,
    transform: Any,
    why: list[str],
    recipe: Mapping[str, Any],
    worker_init_fn: Any,
    timeout: float,
) -> Choice:
    used = found.transform if transform is None else transform
    ours = isinstance(found.dataset, _ImageDataset)
    pipeline = Pipeline(used, gives_tensor=ours, **recipe)
    choice = Choice(dataset, found.source, found.transform, pipeline=pipeline)
    if not why and (used is None or pipeline.is_native):
        for name, given in (("worker_init_fn", worker_init_fn), ("timeout", timeout)):
            if given:
                choice.ignored.append(f"{name} has no effect, as there are no worker processes")
        return choice
    if pipeline.tail:
        names = ", ".join(_name(one) for one in pipeline.tail)
        why = [f"{names} ({pipeline.why.splitlines()[0]})", *why]
    choice.samples = Folder(dataset, pipeline, source_of, found.target_transform)
    choice.why = why
    return choice


def is_usual(collate_fn: Any, batched: bool) -> bool:
    """Returns whether a collate_fn is what torch does by default."""
    usual = torch.utils.data.default_collate if batched else torch.utils.data.default_convert
    return collate_fn is None or collate_fn is usual


def _name(transform: Any) -> str:
    return getattr(transform, "__qualname__", None) or type(transform).__name__


class _Endless:
    """Stands for the core dataset where the dataset is iterable."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return 0

    def names_digest(self) -> str:
        return Own(self._dataset).names_digest()


def native_recipe(transform: Any, *, layout: str, **options: Any) -> _core.Recipe:
    """Returns the recipe of a loader. Without a transform it takes images as they are, which may then
    differ in size."""
    if transform is None and options["padded"]:
        transform = _transforms.Identity()
    if transform is None:
        raise ValueError(
            "there is no transform, but batches need images of one size: give the dataset or the "
            "DataLoader transform=, for example headrace.transforms.Compose([Resize(256), "
            'CenterCrop(224), ToDtype("float32", scale=True)]); for sounds, of one length, '
            "[RandomWindow(5), Mono(), Resample(new_freq=16000)]"
        )
    if layout not in ("NCHW", "NHWC", "channels_last"):
        raise ValueError(f"layout must be 'NCHW', 'NHWC' or 'channels_last', got {layout!r}")
    return _transforms.make_recipe(
        transform, layout="NCHW" if layout == "NCHW" else "NHWC", **options
    )
