"""Converts image files to items that decode faster, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from . import _core
from ._core import Converter

if TYPE_CHECKING:
    from typing_extensions import Buffer

    Form = Literal["encoded", "coefficients", "planes"]

__all__ = ["Converter", "convert", "form_of", "restore"]


def convert(data: Buffer, form: Form = "coefficients") -> bytes:
    """A JPEG file as an item of ``form``, with exactly the same pixels.

    ``"coefficients"`` takes about 1.35 times the bytes of the file, ``"planes"`` 3 to
    6 times; ``"encoded"`` is the file itself. Items are taken wherever image bytes
    are, by :class:`headrace.Preparer` for one. The item has been decoded and
    compared with the file. Who converts many images makes one :class:`Converter`
    for a thread, which keeps its memory.

    Raises NotImplementedError, with the reason, for images that have to stay files:
    PNG, CMYK, arithmetic coding and unusual chroma sampling among them; and ValueError
    for damaged ones.
    """
    return Converter().convert(data, form)


def restore(item: Buffer) -> bytes:
    """An image file with the pixels of an item.

    Of ``"coefficients"`` it is a JPEG with the very coefficients of the one that was
    converted; of ``"planes"`` a PNG; a file is given as it is. The EXIF orientation is
    kept, other metadata is not in an item. Raises ValueError for damaged items.
    """
    return Converter().restore(item)


def form_of(data: Buffer) -> Form:
    """``"coefficients"`` or ``"planes"`` for an item, ``"encoded"`` for anything else."""
    return _core.form_of(data)
