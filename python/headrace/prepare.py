"""Transforms on bytes that the caller brings: no dataset, no threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from . import _core, transforms as _transforms

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Preparer"]


class Preparer:
    """Decodes and transforms one encoded image at a time.

    It keeps decoder state and scratch memory, which grow to the largest image
    seen. One thread at a time may use it; the GIL is released meanwhile, so
    that several preparers work side by side on several threads.

    Args:
        transform: a transform of :mod:`headrace.transforms` or torchvision, or
            a list of them. ``None``: only :meth:`decode` and :meth:`info`.
        dtype: the element type of the result, as of the DataLoader.
        layout: ``"NCHW"`` gives (3, height, width), ``"NHWC"`` (height, width, 3).
        damaged: ``"accept"`` takes damaged images as far as Pillow decodes them by default;
            :attr:`damage` then says what was wrong.
    """

    def __init__(
        self,
        transform: Any = None,
        *,
        dtype: Any = None,
        layout: Literal["NCHW", "NHWC"] = "NCHW",
        apply_exif_orientation: bool = False,
        damaged: Literal["refuse", "accept"] = "refuse",
    ) -> None:
        self._preparer = _core.Preparer()
        self._recipe = (
            None
            if transform is None
            else _transforms.make_recipe(
                transform,
                dtype=dtype,
                layout=layout,
                apply_exif_orientation=apply_exif_orientation,
                damaged=damaged,
            )
        )

    def __call__(
        self, data: Buffer, *, seed: int = 0, epoch: int = 0, index: int = 0
    ) -> _core.Array:
        """One sample's tensor; random parameters depend on the three numbers only.

        Raises ValueError for damaged images and NotImplementedError for formats
        that are not JPEG or PNG.
        """
        if self._recipe is None:
            raise ValueError("this Preparer has no transform: pass one, or use decode()")
        return self._preparer.run(self._recipe, data, seed, epoch, index)

    @property
    def damage(self) -> str | None:
        """What was wrong with the last image, which ``damaged="accept"`` took; else ``None``."""
        return self._preparer.damage

    def decode(
        self, data: Buffer, region: tuple[int, int, int, int] | None = None
    ) -> _core.Array:
        """uint8 RGB (height, width, 3) of ``region`` = (x, y, width, height), or of all."""
        return self._preparer.decode(data, region)

    def info(self, data: Buffer) -> _core._ImageInfo:
        """What the header says: format, width, height, channels, orientation."""
        return self._preparer.info(data)

    def __repr__(self) -> str:
        if self._recipe is None:
            return "headrace.Preparer()"
        return f"headrace.Preparer(shape={self._recipe.shape}, dtype={self._recipe.dtype!r})"
