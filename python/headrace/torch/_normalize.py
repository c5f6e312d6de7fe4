"""Normalize on the device, for batches that are handed over as uint8."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch

from .. import transforms as _transforms

_DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


class Normalize(torch.nn.Module):
    """Scales uint8 images to 0..1 and normalises them: (value / 255 - mean) / std per channel.

    With ``DataLoader(..., dtype="uint8")`` a batch has a quarter of float32's bytes; this does the
    rest on the device. The operations, their order and rounding are the library's, so that the
    result equals, bit for bit, that of ``ToDtype(dtype, scale=True)`` and ``Normalize(mean, std)``
    in the loader for the same uint8 pixels. (A loader that resizes and gives floats does not round
    the pixels to uint8 first.)

    It has no parameters and no entries in ``state_dict()``, and ``.half()`` does not change it.

    Args:
        mean, std: one number or three.
        dtype: of the result: float32, float16 or bfloat16.
        layout: ``"NCHW"``, also in channels_last memory, which is kept, or ``"NHWC"``. A single
            image without N works, too.
    """

    def __init__(
        self,
        mean: float | Sequence[float],
        std: float | Sequence[float],
        dtype: Any = torch.float32,
        *,
        layout: Literal["NCHW", "NHWC"] = "NCHW",
    ) -> None:
        super().__init__()
        given = _transforms.Normalize(mean, std)
        name = _transforms.dtype_name(dtype, "Normalize")
        if name not in _DTYPES:
            raise ValueError(f"Normalize: dtype must be a float type, got {dtype!r}")
        if layout not in ("NCHW", "NHWC"):
            raise ValueError(f"layout must be 'NCHW' or 'NHWC', got {layout!r}")
        if not all(math.isfinite(m) and math.isfinite(s) and s > 0 for m, s in zip(given.mean, given.std)):
            raise ValueError(f"Normalize: mean must be finite and std positive, got {mean}, {std}")
        self.mean, self.std, self.dtype, self.layout = given.mean, given.std, _DTYPES[name], layout
        # As the library: in double, then rounded.
        self._scale = [1.0 / 255.0 / s for s in given.std]
        self._known: dict[torch.device, list[torch.Tensor]] = {}
        self._shift = [(0.0 - m) / s for m, s in zip(given.mean, given.std)]

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if images.dtype != torch.uint8:
            raise TypeError(
                f"Normalize takes uint8 images, got {images.dtype}: give the DataLoader dtype='uint8'"
            )
        shape = (3,) if self.layout == "NHWC" else (3, 1, 1)
        if images.dim() < 3 or images.shape[-len(shape)] != 3:
            raise ValueError(
                f"Normalize takes RGB images in {self.layout}, got {tuple(images.shape)}"
            )
        scale, shift = self._on(images.device, shape)
        # Two operations, each rounded: a fused multiplication and addition would differ.
        return images.to(torch.float32).mul_(scale).add_(shift).to(self.dtype)

    def _on(self, device: torch.device, shape: tuple[int, ...]) -> list[torch.Tensor]:
        """Returns scale and shift on a device: one copy, because each waits for the device."""
        known = self._known.get(device)
        if known is None:
            known = self._known[device] = [
                torch.tensor(numbers, dtype=torch.float32, device=device).view(shape)
                for numbers in (self._scale, self._shift)
            ]
        return known

    def extra_repr(self) -> str:
        return f"mean={self.mean}, std={self.std}, dtype={self.dtype}"
