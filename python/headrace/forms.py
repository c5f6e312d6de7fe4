"""Converts image files to items that decode faster, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from . import _core
from ._core import Converter

if TYPE_CHECKING:
    from typing_extensions import Buffer

    Form = Literal[
        "encoded", "indexed", "coefficients", "planes", "waveform", "waveform16"
    ]

__all__ = ["Converter", "convert", "form_of", "restore"]

# The forms of sounds; the others are of images, and ``"encoded"`` of both.
WAVEFORMS = ("waveform", "waveform16")


def convert(
    data: Buffer, form: Form = "coefficients", *, mono: bool = False, rate: int = 0
) -> bytes:
    """Converts a file to an item of ``form``: a JPEG file, with exactly the same pixels, or a sound.

    ``"indexed"`` is the file with an index of about 2 % of its bytes, ``"coefficients"``
    takes about 1.12 times the bytes of the file, ``"planes"`` 3 to 6 times;
    ``"encoded"`` is the file itself. Everything that takes image bytes takes
    items too, for example :class:`headrace.Preparer`. The item is decoded and compared
    with the file before it is returned. To convert many images, make one
    :class:`Converter` per thread, which reuses its memory.

    A sound becomes ``"waveform"`` (float32) or ``"waveform16"`` (int16): its samples, mixed to one
    channel with ``mono`` and resampled to ``rate`` frames a second, if it is given. Recipes that
    use the item have to begin with the same Mono and Resample.

    Raises NotImplementedError, with the reason, for images that cannot be converted
    (WebP, PNG except as planes, CMYK, arithmetic coding, unusual chroma sampling, ...), and ValueError for
    damaged ones.
    """
    if form in WAVEFORMS:
        return _core.Preparer().waveform(data, _core.forms.index(form), mono, rate)
    if mono or rate:
        raise ValueError(f"mono and rate are of the form 'waveform', not {form!r}: leave them out")
    return Converter().convert(data, form)


def restore(item: Buffer) -> bytes:
    """Converts an item back to an image file with the same pixels.

    ``"indexed"`` becomes the original file, byte for byte, ``"coefficients"`` a JPEG with
    the coefficients of the original file, ``"planes"`` a PNG, waveforms a WAV file of float32; a
    file is returned unchanged. ``"coefficients"`` and ``"planes"`` keep the EXIF orientation, but no other
    metadata. Raises ValueError for damaged items.
    """
    return Converter().restore(item)


def form_of(data: Buffer) -> Form:
    """Returns the form of an item; ``"encoded"`` for all other bytes."""
    return _core.form_of(data)
