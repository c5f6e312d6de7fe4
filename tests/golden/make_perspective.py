"""Writes perspective.txt: the coefficients with which torchvision moves corners.

Each line: the four corners of an image, to which others moved (x, y, clockwise from the upper left),
those others, and torchvision's eight coefficients as float32 numbers in hexadecimal. The C test of
perspective maps compares, so torchvision is not needed to run it. Run it again only to add shapes,
and read the difference.
"""

import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools"))
import torchvision_shim  # noqa: E402

torchvision_shim.prepare()

import torch  # noqa: E402
from torchvision.transforms.functional import _get_perspective_coeffs as coefficients  # noqa: E402

random.seed(5)
lines = []
for width, height in ((9, 7), (32, 32), (97, 33), (224, 224), (500, 375), (4000, 3000)) * 20:
    start = [(0, 0), (width - 1, 0), (width - 1, height - 1), (0, height - 1)]
    scale = random.choice((0.1, 0.5, 0.9))
    by = [[random.randint(0, int(scale * (side // 2))) for side in (width, height)] for _ in start]
    end = [tuple(abs(a - b) for a, b in zip(*corner)) for corner in zip(start, by)]
    found = torch.tensor(coefficients(start, end)).tolist()
    numbers = [str(n) for corner in (*start, *end) for n in corner]
    lines.append(" ".join([*numbers, *(value.hex() for value in found)]))
path = pathlib.Path(__file__).with_name("perspective.txt")
path.write_text("\n".join(lines) + "\n")
