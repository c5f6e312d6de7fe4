"""torchvision v2 with a recipe of recipes.py, for both of its ways. One thread."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))

import torch
import torchvision_shim

torchvision_shim.prepare()
import torchvision
from torchvision.transforms import v2 as t

import recipes
import worker

VERSION = f"torchvision {torchvision.__version__}, torch {torch.__version__}"


def serve(name, version, decode, to_tensor):
    """Answers passes. decode: from a file's bytes to an image; to_tensor: the transforms between
    the augmentation and ToDtype."""
    args = worker.arguments()
    blobs = worker.load(args)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)

    def compose(before, after):
        return t.Compose([*before, *to_tensor, t.ToDtype(torch.float32, scale=True),
                          t.Normalize(worker.MEAN, worker.STD), *after])

    if args.recipe == "dino":
        transforms = [compose(view, []) for view in recipes.dino(t)]
    else:
        transforms = [compose(*recipes.RECIPES[args.recipe](t))]
    batches = [None] * len(transforms)

    def one_pass():
        for i, blob in enumerate(blobs):
            image = decode(blob)
            for v, transform in enumerate(transforms):
                tensor = transform(image)
                if batches[v] is None:
                    batches[v] = torch.empty(worker.BATCH, *tensor.shape)
                batches[v][i % worker.BATCH] = tensor

    worker.serve(name, version, one_pass, len(blobs))
