"""The tensor path on a recent torch for which torchvision's own decoder does not
load: simplejpeg (libjpeg-turbo) decodes, torchvision v2's uint8 transforms (the
vectorised uint8 resize of torch >= 2.1) do the rest. One thread."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))

import simplejpeg
import torch

import torchvision_shim

torchvision_shim.prepare()
import torchvision
from torchvision.transforms import v2 as t

import worker

args = worker.arguments()
blobs = worker.load(args)
torch.set_num_threads(1)
torch.manual_seed(args.seed)
transform = t.Compose([t.RandomResizedCrop(worker.SIZE, antialias=True),
                       t.RandomHorizontalFlip(), t.ToDtype(torch.float32, scale=True),
                       t.Normalize(worker.MEAN, worker.STD)])
batch = torch.empty(worker.BATCH, 3, worker.SIZE, worker.SIZE)


def one_pass():
    for i, blob in enumerate(blobs):
        image = torch.from_numpy(simplejpeg.decode_jpeg(blob, "RGB")).permute(2, 0, 1)
        batch[i % worker.BATCH] = transform(image)


worker.serve("simplejpeg + torchvision v2", f"simplejpeg {simplejpeg.__version__}, torchvision "
             f"{torchvision.__version__}, torch {torch.__version__}", one_pass, len(blobs))
