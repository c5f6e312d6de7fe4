"""FFCV's Loader, one worker, over a file that its own writer makes from the images:
random-resized crop, flip and normalisation to float32. With --shrunk N the writer first
shrinks the longer side to N."""

import argparse
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version

import numpy as np
import torch
from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import (NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor,
                             ToTorchImage)

import worker

parser = argparse.ArgumentParser()
parser.add_argument("--files", required=True)
parser.add_argument("--shrunk", type=int)
args = parser.parse_args()

with tempfile.TemporaryDirectory() as scratch:
    folder, out = os.path.join(scratch, "images", "all"), os.path.join(scratch, "images.beton")
    os.makedirs(folder)
    with open(args.files) as f:
        paths = f.read().splitlines()
    for i, path in enumerate(paths):
        os.symlink(os.path.abspath(path), os.path.join(folder, f"{i:06d}.jpg"))
    subprocess.run([sys.executable, os.path.join(os.path.dirname(__file__), "ffcv_write.py"),
                    os.path.dirname(folder), out, *([str(args.shrunk)] if args.shrunk else [])],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                   # the writer hangs on a single core
                   preexec_fn=lambda: os.sched_setaffinity(0, range(os.cpu_count())))
    mean, std = (np.array(v) * 255 for v in (worker.MEAN, worker.STD))
    image = [RandomResizedCropRGBImageDecoder((224, 224)), RandomHorizontalFlip(),
             NormalizeImage(mean, std, np.float32), ToTensor(),
             ToTorchImage(convert_back_int16=False)]
    loader = Loader(out, batch_size=worker.BATCH, num_workers=1, order=OrderOption.RANDOM,
                    os_cache=True, drop_last=False,
                    pipelines={"image": image, "label": [IntDecoder(), ToTensor(), Squeeze()]})

    def one_pass():
        for _ in loader:
            pass

    one_pass()  # Numba compiles
    name = f"FFCV, pre-shrunk to {args.shrunk}" if args.shrunk else "FFCV, full-size JPEG"
    worker.serve(name, f"{version('ffcv')}, torch {torch.__version__}", one_pass, len(paths))
sys.stdout.flush()
os._exit(0)  # its threads would keep the process alive
