"""Packs: a dataset in one file that decodes several times faster.

:func:`pack` writes a pack, :class:`headrace.Pack` reads it, :func:`verify_pack` checks
it, :func:`unpack` restores the image files. docs/packs.md says when a pack pays off.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal

from . import _core
from .datasets import BadSample, _ImageDataset

__all__ = ["pack", "pack_info", "unpack", "verify_pack"]

# enum hr_form, and HR_FORM_AUTO
_FORMS: dict[str, int] = {**{form: i for i, form in enumerate(_core.forms)}, "auto": -1}
# enum hr_pack_kept
_KEPT = ("converted", "asked", "format", "kind", "growth", "worth", "bad")
_CONVERTED, _BAD = 0, 6

_Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]


def pack(
    source: _ImageDataset | _Path,
    path: _Path,
    *,
    form: Literal[
        "coefficients", "planes", "indexed", "encoded", "waveform", "waveform16", "auto"
    ] = "coefficients",
    mono: bool = False,
    rate: int = 0,
    jobs: int = 0,
    max_growth: float | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    restart: bool = False,
    overwrite: bool = False,
    trust: bool = False,
    staging: str | os.PathLike[str] | None = None,
    part_bytes: int = 0,
    progress: Callable[[int, int], object] | None = None,
) -> dict[str, Any]:
    """Writes a dataset to a pack, which yields the same batches, bit for bit.

    The file is written as ``PATH.partial`` and renamed when it is complete. After a
    kill, a full disk or Ctrl-C, repeat the call to continue.

    Args:
        source: an :class:`ImageFolder` or another dataset of Headrace, or the
            path of one.
        path: of the new file, or its URL: ``s3://BUCKET/KEY`` or ``gs://BUCKET/KEY``.
        form: the form of the images. ``"coefficients"``: about 1.12 times the bytes;
            ``"planes"``: faster still, 3 to 6 times the bytes; ``"indexed"``: the file
            and an index of about 2 %, which decodes faster than the file alone;
            ``"encoded"``: unchanged; ``"auto"``: for each image the form that is worth
            its bytes. Sounds stay encoded, except with ``"waveform"`` (their samples as
            float32) or ``"waveform16"`` (int16, within 1.5e-5 of full scale).
        mono: waveforms: mix the channels to one. Recipes that use the pack have to begin
            with ``Mono()``.
        rate: waveforms: resample to so many frames a second, as ``Resample(new_freq=rate)``
            of the recipes does; 0: keep the rate of each sound.
        jobs: threads that convert; 0: as many as this process may use cores.
        max_growth: keep an image encoded if it would take more than this many times
            its bytes.
        on_error: for an image that cannot be read or decoded: ``"raise"``, or
            ``"skip"`` to keep it unchanged and list it in ``"bad"``.
        restart: discard an unfinished ``PATH.partial``.
        overwrite: replace an existing ``path`` when the new pack is complete.
        trust: do not compare every pixel with libjpeg-turbo's.
        staging: of a URL: the directory for what is not sent yet, the index and up to some
            400 MB; by default ``headrace/upload`` in the user's cache directory.
        part_bytes: of a URL: size of the parts that are sent; 0: at least 16 MiB.
        progress: called with (samples done, all samples) about ten times a second. If
            it raises, the call ends and keeps what is done.

    Rows of the dataset (boxes, labels and the like) and masks are kept in the pack, and
    :class:`headrace.Pack` has them again.

    Returns:
        ``samples``, ``source_bytes``, ``bytes``, ``continued`` (samples done by an
        earlier run), ``rows_bytes`` (of the rows in the pack), ``masks`` (how many of the
        samples are masks); ``forms``: form name to
        ``{"samples", "bytes"}``; ``mono`` and ``rate`` of waveforms; ``encoded``:
        reason why samples stay encoded to their number; ``rewritten``: the paths of
        progressive files that are baseline ones in the pack (form ``indexed``); ``bad``:
        a list of :class:`BadSample`.

    Raises:
        FileExistsError: ``path`` exists.
        SampleError: a sample is bad (``on_error="raise"``).
        OSError: the disk is full (what is done is kept); another process is writing
            the pack; or the unfinished pack has another dataset, other options or
            changed files (ESTALE): use ``restart``.
    """
    if form not in _FORMS:
        raise ValueError(f"form must be one of {', '.join(_FORMS)}, not {form!r}")
    result = _core.pack_write(
        _dataset_of(source),
        path,
        form=_FORMS[form],
        mono=mono,
        rate=rate,
        threads=jobs,
        max_growth=max_growth or 0.0,
        skip=_skips(on_error),
        restart=restart,
        overwrite=overwrite,
        trust=trust,
        staging=None if staging is None else os.fspath(staging),
        part_bytes=part_bytes,
        progress=progress,
    )
    rewritten = [path for _, path, _, kept in result["notices"] if kept == _CONVERTED]
    return {**_readable(result), "rewritten": rewritten}


def pack_info(path: _Path) -> dict[str, Any]:
    """Describes a pack from its index, as :func:`pack` does, but without ``rewritten`` and ``bad``."""
    return _readable(_core.pack_inspect(path))


def verify_pack(path: _Path, jobs: int = 0) -> list[BadSample]:
    """Checks a pack's index, the checksum of every item, and that every item decodes.

    Returns the bad samples. Raises ValueError if the index is damaged.
    """
    return [BadSample(*bad) for bad in _core.Dataset.open_pack(path).verify(threads=jobs)]


def unpack(
    path: _Path,
    directory: _Path,
    *,
    jobs: int = 0,
    overwrite: bool = False,
    on_error: Literal["raise", "skip"] = "raise",
    progress: Callable[[int, int], object] | None = None,
) -> dict[str, Any]:
    """Writes every sample of a pack as an image file below ``directory``.

    Encoded and indexed samples become the files that were packed, byte for byte.
    Coefficients become JPEG files with the same coefficients and therefore the same
    pixels. Planes become PNG files, with ``.png`` appended to their names, and waveforms WAV
    files, with ``.wav``. If the files are not in directories of their classes, as those of a list
    or of Parquet tables, ``list.txt`` lists paths and labels.
    Rows (boxes and the like) are not written: ``Pack(path)`` has them.

    Args:
        path: of the pack.
        directory: made if need be.
        jobs: threads; 0: the cores that this process may use.
        overwrite: replace files that exist.
        on_error: what becomes of a sample that is damaged in the pack: raise, or
            leave it out and list it in ``"bad"``.
        progress: as of :func:`pack`.

    Returns:
        ``samples``, ``bytes`` (of the files), ``rows_bytes`` (of rows that are in the pack
        and were not written), ``forms`` and ``bad`` as :func:`pack`.

    Raises:
        FileExistsError: a file exists.
        SampleError: a sample is damaged (``on_error="raise"``).
    """
    result = _core.pack_unpack(
        path,
        directory,
        threads=jobs,
        overwrite=overwrite,
        skip=_skips(on_error),
        progress=progress,
    )
    readable = _readable(result)
    for name in ("source_bytes", "continued", "encoded"):
        del readable[name]
    return readable


def _skips(on_error: str) -> bool:
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error must be 'raise' or 'skip', not {on_error!r}")
    return on_error == "skip"


def _dataset_of(source: _ImageDataset | _Path) -> _core.Dataset:
    if isinstance(source, _ImageDataset):
        return source._dataset
    return _core.Dataset.open(source, allow_empty=True)


def _readable(result: Any) -> dict[str, Any]:
    names = ("samples", "source_bytes", "bytes", "continued", "rows_bytes", "masks")
    readable = {name: result[name] for name in names}
    if result["mono"] or result["rate"]:
        readable["mono"], readable["rate"] = result["mono"], result["rate"]
    readable["forms"] = {
        form: {"samples": result["samples_of_form"][i], "bytes": result["bytes_of_form"][i]}
        for i, form in enumerate(_core.forms)
    }
    readable["encoded"] = dict(zip(_KEPT[1:], result["samples_kept"][1:]))
    if "notices" in result:
        readable["bad"] = [
            BadSample(index, path, reason)
            for index, path, reason, kept in result["notices"]
            if kept == _BAD
        ]
    return readable
