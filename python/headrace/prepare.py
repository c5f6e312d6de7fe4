"""Preparer: transforms on image bytes in memory, without dataset or threads."""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING, Any, Literal

from . import _core, transforms as _transforms

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Preparer"]


def drawn_seed() -> int:
    """Draws a seed for the random parameters of one image that no loader prepares.

    The seed comes from torch's global generator if torch is imported, else from Python's.
    As with torchvision's transforms, torch.manual_seed makes a run reproducible, and worker
    processes draw different seeds: torch seeds each of them differently in each epoch.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return random.getrandbits(63)
    # On the CPU despite torch.set_default_device: worker processes may have no other device.
    return int(torch.empty((), dtype=torch.int64, device="cpu").random_())


class Preparer:
    """Decodes and transforms one encoded image at a time.

    It keeps decoder state and scratch memory, which grow to the largest image
    seen. One thread at a time may use it. It releases the GIL while it works, so
    several threads, each with its own preparer, run in parallel.

    Args:
        transform: a transform of :mod:`headrace.transforms` or torchvision, or
            a list of them. ``None``: only :meth:`decode` and :meth:`info`.
        dtype: the element type of the result, as for the DataLoader.
        layout: ``"NCHW"`` gives (3, height, width), ``"NHWC"`` (height, width, 3).
        damaged: ``"accept"`` accepts damaged images if Pillow decodes them by default;
            :attr:`damage` then describes the damage.
        exact: ``False``: decode JPEG files at 1/2, 1/4 or 1/8 where the crop is shrunk at least
            that much; :attr:`scale` then tells which.
    """

    def __init__(
        self,
        transform: Any = None,
        *,
        dtype: Any = None,
        layout: Literal["NCHW", "NHWC"] = "NCHW",
        apply_exif_orientation: bool = False,
        damaged: Literal["refuse", "accept"] = "refuse",
        exact: bool = True,
    ) -> None:
        self._preparer = _core.Preparer()
        self._is_random = transform is not None and _transforms.is_random(transform)
        self._recipe = (
            None
            if transform is None
            else _transforms.make_recipe(
                transform,
                dtype=dtype,
                layout=layout,
                apply_exif_orientation=apply_exif_orientation,
                damaged=damaged,
                exact=exact,
            )
        )

    def __call__(
        self,
        data: Buffer,
        *,
        seed: int | None = None,
        epoch: int | None = None,
        index: int | None = None,
    ) -> _core.Array:
        """Returns one sample's tensor.

        By default, random parameters differ from call to call: torch's generator, or Python's
        if torch is not imported, draws a seed for each call. If any of ``seed``, ``epoch``
        and ``index`` is given, random parameters depend only on these three numbers (default
        0), and the result equals the row that a DataLoader with this seed prepares for this
        sample in this epoch.

        Raises ValueError for damaged images and NotImplementedError for formats
        that are not decoded.
        """
        if self._recipe is None:
            raise ValueError("this Preparer has no transform: pass one, or use decode()")
        if self._is_random and seed is None and epoch is None and index is None:
            seed = drawn_seed()
        return self._preparer.run(self._recipe, data, seed or 0, epoch or 0, index or 0)

    @property
    def sound_head(self) -> tuple[bool, int] | None:
        """What the transform does first to a whole sound: whether it mixes the channels, and the
        rate that it resamples to (0: none). ``None``: it is of images."""
        return None if self._recipe is None else self._recipe.sound_head

    @property
    def damage(self) -> str | None:
        """The damage of the last image if ``damaged="accept"`` accepted it; else ``None``."""
        return self._preparer.damage

    @property
    def scale(self) -> int:
        """The last image was decoded at 1 / ``scale`` of its size: 1 unless ``exact=False``."""
        return self._preparer.scale

    def decode(
        self, data: Buffer, region: tuple[int, int, int, int] | None = None
    ) -> _core.Array:
        """Decodes ``region`` = (x, y, width, height), or all, to uint8 RGB (height, width, 3)."""
        return self._preparer.decode(data, region)

    def info(self, data: Buffer) -> _core._ImageInfo:
        """Reads the header: format, width, height, channels, orientation."""
        return self._preparer.info(data)

    def __repr__(self) -> str:
        if self._recipe is None:
            return "headrace.Preparer()"
        return f"headrace.Preparer(shape={self._recipe.shape}, dtype={self._recipe.dtype!r})"
