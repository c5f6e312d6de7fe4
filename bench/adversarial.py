"""Writes JPEG files that are difficult for a region decoder into the folder named on the
command line: every common chroma sampling, quality 5 to 100, sizes 1 to 300, noise and
smooth content, restart markers, progressive, grey. The same files every time."""

import os
import sys

import numpy as np
from PIL import Image, ImageFile

folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)
ImageFile.MAXBLOCK = 1 << 22  # noise at quality 100 is larger than Pillow expects
rng = np.random.default_rng(1)
sizes = [(1, 1), (2, 3), (5, 5), (7, 8), (8, 8), (9, 17), (15, 16), (16, 16), (17, 33), (31, 64),
         (65, 63), (100, 37), (127, 255), (300, 5), (5, 300), (300, 299)]
n = 0
for width, height in sizes:
    for quality in (5, 30, 75, 92, 100):
        for sampling in (0, 1, 2):
            kind = n % 3
            if kind == 0:
                pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
            elif kind == 1:
                pixels = (rng.integers(0, 2, (height, width, 3)) * 255).astype(np.uint8)
            else:
                y, x = np.mgrid[0:height, 0:width]
                pixels = np.stack([x * 3 % 256, y * 5 % 256, (x + y) % 256], -1).astype(np.uint8)
            image = Image.fromarray(pixels)
            options = {"quality": quality, "subsampling": sampling}
            if n % 5 == 1:
                options["progressive"] = True
            if n % 5 == 2:
                options["restart_marker_blocks"] = 1 + n % 7
            if n % 11 == 3:
                image = image.convert("L")
                options.pop("subsampling")
            image.save(os.path.join(folder, f"{n:04d}.jpg"), **options)
            n += 1
