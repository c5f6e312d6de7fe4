"""torchvision's decode_jpeg and uint8 tensor transforms: RandomResizedCrop
with antialias, flip, to float, Normalize. One thread. Needs a torchvision
whose compiled decoder loads (PyPI's beside a CUDA torch, or a distribution's)."""

import torch
import torchvision
from torchvision import transforms as t
from torchvision.io import ImageReadMode, decode_jpeg

import worker

args = worker.arguments()
blobs = worker.load(args)
torch.set_num_threads(1)
torch.manual_seed(args.seed)
tensors = [torch.frombuffer(bytearray(b), dtype=torch.uint8) for b in blobs]
transform = torch.nn.Sequential(
    t.RandomResizedCrop(worker.SIZE, antialias=True), t.RandomHorizontalFlip(),
    t.ConvertImageDtype(torch.float32), t.Normalize(worker.MEAN, worker.STD))
batch = torch.empty(worker.BATCH, 3, worker.SIZE, worker.SIZE)


def one_pass():
    for i, data in enumerate(tensors):
        batch[i % worker.BATCH] = transform(decode_jpeg(data, ImageReadMode.RGB))


worker.serve("torchvision, tensor", f"torchvision {torchvision.__version__}, torch "
             f"{torch.__version__}", one_pass, len(blobs))
