"""Pictures, and operations of the C library on them, for comparisons with those of other packages."""

import headrace
import headrace.transforms as T
import numpy as np
from conftest import encode
from PIL import Image


class Raw(T.Transform):
    """An operation of the C library, by its name, with its parameters."""

    __module__ = "headrace.transforms"  # so that it is taken for one
    _is_random = True

    def __init__(self, name, **parameters):
        self.name, self.parameters = name, parameters

    def _operations(self):
        return [(self.name, self.parameters)]


def picture(width, height, seed=0):
    """Waves, noise, grey parts and both ends of the range."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    waves = [127 + 110 * np.sin(x * 0.07 * (c + 1)) * np.cos(y * 0.05 - c) for c in range(3)]
    image = np.stack(waves, -1) + rng.integers(-20, 20, (height, width, 3))
    image[: height // 4] = image[: height // 4, :, :1]
    image[rng.random((height, width)) < 0.02] = 0
    image[rng.random((height, width)) < 0.02] = 255
    return np.clip(image, 0, 255).astype(np.uint8)


def dull(width, height):
    """A picture whose contrast can be stretched."""
    return (picture(width, height) * 0.75).astype(np.uint8) + 40


def png(image):
    return encode(Image.fromarray(image), "PNG")


def ours(image, *operations, index=0):
    """What the library makes of a picture."""
    prepare = headrace.Preparer([T.CenterCrop(image.shape[:2]), *operations])
    return np.asarray(prepare(png(image), index=index))
