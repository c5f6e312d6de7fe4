"""WebDataset over tar shards (PIL, torchvision v2), as its documentation advises:
shards shuffled and distributed to worker processes, a shuffle buffer, batches made in
the workers."""

import glob
import io
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))

import torch

import torchvision_shim

torchvision_shim.prepare()
from PIL import Image
from torchvision.transforms import v2 as t

import loader_common as common
import webdataset

args = common.arguments()
transform = t.Compose([t.RandomResizedCrop(224), t.RandomHorizontalFlip(), t.PILToTensor(),
                       t.ToDtype(torch.float32, scale=True), t.Normalize(common.MEAN, common.STD)])


def decode(sample):
    return transform(Image.open(io.BytesIO(sample["jpg"])).convert("RGB")), int(sample["cls"])


shards = sorted(glob.glob(os.path.join(args.data, "*.tar")))
dataset = webdataset.WebDataset(shards, shardshuffle=len(shards)).shuffle(256).map(decode)
loader = webdataset.WebLoader(dataset.batched(args.batch_size), batch_size=None,
                              num_workers=args.workers, persistent_workers=True)
common.serve("WebDataset", f"webdataset {webdataset.__version__}, torch {torch.__version__}",
             loader)
