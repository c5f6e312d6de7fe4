"""Pillow + NumPy: open, crop, resize (bilinear, which antialiases), flip,
normalise to float32 CHW. The normalisation is one multiply and one add in
place on the transposed view of the batch row."""

import io

import numpy as np
import PIL
from PIL import Image, features

import worker

args = worker.arguments()
blobs = worker.load(args)
crops = worker.crops(blobs, args.seed)
batch = np.empty((worker.BATCH, 3, worker.SIZE, worker.SIZE), np.float32)
scale = (1 / 255 / np.array(worker.STD)).astype(np.float32)[:, None, None]
shift = (-np.array(worker.MEAN) / np.array(worker.STD)).astype(np.float32)[:, None, None]


def one_pass():
    for i, (blob, (x, y, w, h, flip)) in enumerate(zip(blobs, crops)):
        image = Image.open(io.BytesIO(blob)).convert("RGB").crop((x, y, x + w, y + h))
        image = image.resize((worker.SIZE, worker.SIZE), Image.Resampling.BILINEAR)
        if flip:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        row = batch[i % worker.BATCH]
        np.multiply(np.asarray(image).transpose(2, 0, 1), scale, out=row)
        np.add(row, shift, out=row)


turbo = features.version_feature("libjpeg_turbo") or "unknown"
worker.serve("Pillow + NumPy", f"Pillow {PIL.__version__} (libjpeg-turbo {turbo}), NumPy "
             f"{np.__version__}", one_pass, len(blobs))
