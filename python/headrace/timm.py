"""timm's ``create_loader``, with Headrace's DataLoader inside.

    from headrace.timm import create_loader         # instead of from timm.data import create_loader

is all that changes in timm's ``train.py``: see docs/frameworks/timm.md.
"""

from __future__ import annotations

import inspect
from typing import Any

try:
    import timm.data.loader as _theirs
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "headrace.timm needs timm: pip install timm", name=error.name
    ) from error

from torch.utils.data import IterableDataset, RandomSampler, SequentialSampler, default_collate

from .torch import DataLoader

__all__ = ["create_loader"]

_NAMES = frozenset(inspect.signature(_theirs.create_loader).parameters)


def create_loader(*arguments: Any, **options: Any) -> Any:
    """Returns the loader that ``timm.data.create_loader`` returns for the same arguments, with
    Headrace's DataLoader in the place of torch's: the dataset's transform, the sampler of the ranks
    and the ``PrefetchLoader`` around it are timm's.

    Arguments that timm's function does not have are the DataLoader's: ``cache``, ``verbose``, ...

    Where timm only stacks the images, batches are made natively. With ``collate_fn``,
    ``num_aug_splits`` or a dataset that is not read natively, Python makes them, as in timm.
    ``use_multi_epochs_loader``, ``persistent_workers`` and ``worker_seeding`` have no meaning for
    threads.

    Raises:
        ValueError: ``input_size_choices``, whose batches differ in size, are not supported.
    """
    if options.get("input_size_choices") is not None:
        raise ValueError(
            "headrace.timm.create_loader does not support input_size_choices, as its batches have "
            "one size: use timm.data.create_loader for scheduled sizes"
        )
    own = {name: options.pop(name) for name in [*options] if name not in _NAMES}
    made = _theirs.create_loader(*arguments, **{**options, "use_multi_epochs_loader": False})
    if not isinstance(made, _theirs.PrefetchLoader):
        return _ours(made, own)
    made.loader = _ours(made.loader, own)
    return made


def _ours(theirs: Any, own: dict[str, Any]) -> DataLoader:
    names = ("batch_size", "num_workers", "pin_memory", "drop_last")
    given = {name: getattr(theirs, name) for name in names} | own
    # Orders of the loader's own, which the ranks can resume.
    if isinstance(theirs.sampler, RandomSampler):
        given["shuffle"] = True
    elif not isinstance(theirs.sampler, SequentialSampler):
        given["sampler"] = None if isinstance(theirs.dataset, IterableDataset) else theirs.sampler
    if theirs.collate_fn in (_theirs.fast_collate, default_collate):
        loader = DataLoader(theirs.dataset, **given)
        if loader.is_native:
            return loader
    for name in ("collate_fn", "worker_init_fn", "persistent_workers"):
        given[name] = getattr(theirs, name)
    return DataLoader(theirs.dataset, **given)
