"""torch.utils.data.DataLoader over torchvision's ImageFolder (PIL), as its
documentation advises: persistent workers, one thread each, default prefetch."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))

import torch

import torchvision_shim

torchvision_shim.prepare()
import torchvision
from torchvision.transforms import v2 as t

import loader_common as common

args = common.arguments()
transform = t.Compose([t.RandomResizedCrop(224), t.RandomHorizontalFlip(), t.PILToTensor(),
                       t.ToDtype(torch.float32, scale=True), t.Normalize(common.MEAN, common.STD)])
dataset = torchvision.datasets.ImageFolder(args.data, transform)
step = max(1, len(dataset) // args.samples)
dataset = torch.utils.data.Subset(dataset, range(0, step * args.samples, step))
loader = torch.utils.data.DataLoader(dataset, args.batch_size, shuffle=True,
                                     num_workers=args.workers, persistent_workers=True)
common.serve("torch DataLoader", f"torch {torch.__version__}, torchvision "
             f"{torchvision.__version__}", loader)
