"""SPDL: FFmpeg decodes, crops, scales and flips in one filter graph; NumPy
normalises to float32 CHW. One thread."""

import sys

# This file's name hides the package's, so leave this folder out of the search.
sys.path = [p for p in sys.path if not p.endswith("bench/peers")]
import spdl.io
import numpy as np
from importlib.metadata import version

sys.path.append(__file__.rsplit("/", 1)[0])
import worker

args = worker.arguments()
blobs = worker.load(args)
crops = worker.crops(blobs, args.seed)
batch = np.empty((worker.BATCH, 3, worker.SIZE, worker.SIZE), np.float32)
scale = (1 / 255 / np.array(worker.STD)).astype(np.float32)[:, None, None]
shift = (-np.array(worker.MEAN) / np.array(worker.STD)).astype(np.float32)[:, None, None]


def one_pass():
    for i, (blob, (x, y, w, h, flip)) in enumerate(zip(blobs, crops)):
        graph = (f"crop={w}:{h}:{x}:{y}:exact=1,scale={worker.SIZE}:{worker.SIZE}:flags=bilinear,"
                 f"{'hflip,' if flip else ''}format=rgb24")
        frames = spdl.io.decode_packets(spdl.io.demux_image(blob), filter_desc=graph)
        image = spdl.io.to_numpy(spdl.io.convert_frames(frames))
        row = batch[i % worker.BATCH]
        np.multiply(image.transpose(2, 0, 1), scale, out=row)
        np.add(row, shift, out=row)


worker.serve("SPDL", f"SPDL {version('spdl_io')} (FFmpeg)", one_pass, len(blobs))
