"""torchvision v2 with SSD300's recipe on images with boxes, by both of its ways. One thread.

tensor: uint8 tensors after simplejpeg (libjpeg-turbo), because torchvision's own decoder does not load
beside a CPU build of torch. pil: images of Pillow up to the resize, which is a tensor's: images of
Pillow are always resized with antialias.
"""

import io
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))

import torch
import torchvision_shim

torchvision_shim.prepare()
import torchvision
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import v2 as t

import detection_set as of
import worker

args = of.arguments()
torch.set_num_threads(1)
torch.manual_seed(args.seed)
version = f"torchvision {torchvision.__version__}, torch {torch.__version__}"
if args.way == "tensor":
    import simplejpeg

    version += f", simplejpeg {simplejpeg.__version__}"


def decode(blob):
    if args.way == "pil":
        return Image.open(io.BytesIO(blob)).convert("RGB")
    pixels = torch.from_numpy(simplejpeg.decode_jpeg(blob, "RGB"))
    return tv_tensors.Image(pixels.permute(2, 0, 1))


transform = t.Compose([
    *of.colors(t, args.recipe), *of.geometry(t), t.ToImage(),
    t.Resize((of.SIZE, of.SIZE), antialias=False), t.SanitizeBoundingBoxes(),
    t.ToDtype(torch.float32, scale=True), t.Normalize(of.MEAN, of.STD), t.ToPureTensor()])
samples = []
for blob, width, height, boxes, labels in of.load(args.set):
    boxes = tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=(height, width),
                                     dtype=torch.float32)
    samples.append((blob, boxes, torch.tensor(labels)))
batch = torch.empty(worker.BATCH, 3, of.SIZE, of.SIZE)


def one_pass():
    for i, (blob, boxes, labels) in enumerate(samples):
        batch[i % worker.BATCH], _ = transform(decode(blob), {"boxes": boxes, "labels": labels})


worker.serve(f"torchvision, {args.way}", version, one_pass, len(samples))
