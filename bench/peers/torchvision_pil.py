"""torchvision on PIL images: RandomResizedCrop, RandomHorizontalFlip, to a
float tensor, Normalize, as in most training scripts. Uses only torchvision's Python
parts; operators that its wheel could not register are declared first."""

import io
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))

import torch

import torchvision_shim

torchvision_shim.prepare()
import torchvision
from PIL import Image
import PIL

import worker

args = worker.arguments()
blobs = worker.load(args)
torch.set_num_threads(1)
torch.manual_seed(args.seed)
try:
    from torchvision.transforms import v2 as t

    transform = t.Compose([t.RandomResizedCrop(worker.SIZE), t.RandomHorizontalFlip(),
                           t.PILToTensor(), t.ToDtype(torch.float32, scale=True),
                           t.Normalize(worker.MEAN, worker.STD)])
except ImportError:
    from torchvision import transforms as t

    transform = t.Compose([t.RandomResizedCrop(worker.SIZE), t.RandomHorizontalFlip(),
                           t.ToTensor(), t.Normalize(worker.MEAN, worker.STD)])
batch = torch.empty(worker.BATCH, 3, worker.SIZE, worker.SIZE)


def one_pass():
    for i, blob in enumerate(blobs):
        image = Image.open(io.BytesIO(blob)).convert("RGB")
        batch[i % worker.BATCH] = transform(image)


worker.serve("torchvision, PIL", f"torchvision {torchvision.__version__}, torch "
             f"{torch.__version__}, Pillow {PIL.__version__}", one_pass, len(blobs))
