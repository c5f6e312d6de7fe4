"""Prints what SSD300's geometry leaves of a set's boxes, in many draws, by Headrace and by torchvision:
{"kept": [ours, theirs], ...}, each a list with a number for each draw."""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))

import numpy
import torch
import torchvision_shim

torchvision_shim.prepare()
from torchvision import tv_tensors
from torchvision.transforms import v2

import detection_set as of
import headrace
import headrace.transforms as t
from headrace import _core

DRAWS = 8

args = of.arguments()
torch.manual_seed(args.seed)
dataset = headrace.CocoDetection(of.images_of(args.set), of.annotations_of(args.set))
size = (of.SIZE, of.SIZE)
recipe = t.make_recipe([*of.geometry(t), t.Resize(size, antialias=False), t.SanitizeBoundingBoxes()])
theirs = v2.Compose([*of.geometry(v2), v2.Resize(size, antialias=False),
                     v2.SanitizeBoundingBoxes(labels_getter=None)])
preparer = _core.Preparer()
# torchvision's boxes depend only on the images' sizes: its images have no pixels
pixels = {size: tv_tensors.Image(torch.empty(3, *size, device="meta"))
          for size in ((375, 500), (500, 375))}
found = {name: ([], []) for name in ("kept", "width", "height", "x", "y")}


def note(boxes, which):
    found["kept"][which].append(len(boxes))
    if len(boxes):
        x1, y1, x2, y2 = map(float, boxes[0])
        for name, value in (("width", x2 - x1), ("height", y2 - y1), ("x", x1), ("y", y1)):
            found[name][which].append(value)


for epoch in range(DRAWS):
    for i, (blob, width, height, boxes, _) in enumerate(of.load(args.set)):
        _, rows = preparer.run(recipe, blob, args.seed, epoch, i, dataset=dataset._dataset)
        note(numpy.asarray(rows["boxes"]), 0)
        boxes = tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=(height, width),
                                         dtype=torch.float32)
        note(theirs(pixels[height, width], boxes)[1], 1)
print(json.dumps(found))
