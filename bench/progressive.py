"""Converts the JPEG files of a list (one path per line) to progressive files with the same tables
and sampling: progressive.py LIST FOLDER."""

import os
import sys

from PIL import Image

listing, folder = sys.argv[1:]
os.makedirs(folder, exist_ok=True)
with open(listing) as paths:
    for n, path in enumerate(paths.read().splitlines()):
        with Image.open(path) as image:
            image.save(os.path.join(folder, f"{n:04d}.jpg"), quality="keep", progressive=True)
