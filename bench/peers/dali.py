"""NVIDIA DALI's CPU pipeline: decoders.image_random_crop (region decode),
resize, crop_mirror_normalize, batches of 64, one thread, fed from memory."""

import sys

import numpy as np
import nvidia.dali as dali
from nvidia.dali import fn, pipeline_def, types

import worker

args = worker.arguments()
blobs = [np.frombuffer(b, np.uint8) for b in worker.load(args)]
batches = [blobs[i:i + worker.BATCH] for i in range(0, len(blobs) - worker.BATCH + 1, worker.BATCH)]
sent = 0


def source():
    global sent
    sent += 1
    return batches[(sent - 1) % len(batches)]


@pipeline_def(batch_size=worker.BATCH, num_threads=1, device_id=None, seed=args.seed,
              prefetch_queue_depth=1)
def pipeline():
    data = fn.external_source(source=source, batch=True, no_copy=True)
    image = fn.decoders.image_random_crop(data, device="cpu", output_type=types.RGB,
                                          jpeg_fancy_upsampling=True)
    image = fn.resize(image, resize_x=worker.SIZE, resize_y=worker.SIZE,
                      interp_type=types.INTERP_LINEAR, antialias=True)
    return fn.crop_mirror_normalize(
        image, dtype=types.FLOAT, output_layout="CHW", mirror=fn.random.coin_flip(),
        mean=[m * 255 for m in worker.MEAN], std=[s * 255 for s in worker.STD])


pipe = pipeline()
pipe.build()


def one_pass():
    for _ in batches:
        pipe.run()


if not batches:
    sys.exit(f"DALI needs at least {worker.BATCH} samples")
worker.serve("DALI CPU", f"DALI {dali.__version__}", one_pass, len(batches) * worker.BATCH)
