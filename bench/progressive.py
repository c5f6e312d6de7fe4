"""Writes progressive copies of the JPEG files that the first argument lists, one
path a line, into the folder that the second names, with the quantisation and the
sampling of the file."""

import os
import sys

from PIL import Image

listing, folder = sys.argv[1:3]
os.makedirs(folder, exist_ok=True)
with open(listing) as f:
    for n, path in enumerate(f.read().split("\n")[:-1]):
        with Image.open(path) as image:
            image.save(os.path.join(folder, f"{n:04d}.jpg"), quality="keep", progressive=True)
