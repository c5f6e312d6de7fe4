#!/usr/bin/env python3
"""Trains torchvision's SSDLite on images with boxes in COCO's format.

    python tools/make_detection.py data/sample data/detection
    python examples/train_detection.py data/detection/images data/detection/instances.json

--loader torch trains with torch's DataLoader and torchvision's transforms instead, so that the
losses can be compared: both are means over the epoch, of other random draws.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from PIL import Image
from torchvision import tv_tensors
from torchvision.models.detection import ssdlite320_mobilenet_v3_large
from torchvision.transforms import v2

import headrace
import headrace.torch

# torchvision's preset for SSDLite, with the resizing that the model would do.
PRESET = v2.Compose(
    [
        v2.ToImage(),
        v2.RandomIoUCrop(),
        v2.RandomHorizontalFlip(),
        v2.Resize((320, 320), antialias=False),
        v2.ToDtype(torch.float32, scale=True),
        v2.SanitizeBoundingBoxes(),
        v2.ToPureTensor(),
    ]
)


class Coco(torch.utils.data.Dataset):
    """What torchvision's CocoDetection gives, without pycocotools."""

    def __init__(self, images, annotations):
        self.images, whole = images, json.loads(Path(annotations).read_text())
        self.files = sorted((image["id"], image["file_name"]) for image in whole["images"])
        self.rows = {number: [] for number, _ in self.files}
        for annotation in whole["annotations"]:
            self.rows[annotation["image_id"]].append(annotation)

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        number, name = self.files[index]
        image = Image.open(Path(self.images) / name).convert("RGB")
        boxes = torch.tensor([row["bbox"] for row in self.rows[number]]).reshape(-1, 4).float()
        boxes[:, 2:] += boxes[:, :2]
        size = (image.height, image.width)
        target = {
            "boxes": tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=size),
            "labels": torch.tensor([row["category_id"] for row in self.rows[number]]).long(),
        }
        return PRESET(image, target)


def loader_of(options):
    if options.loader == "headrace":
        return headrace.torch.DataLoader(
            headrace.CocoDetection(options.images, options.annotations),
            options.batch_size,
            shuffle=True,
            drop_last=True,
            transform=PRESET,
        )
    return torch.utils.data.DataLoader(
        Coco(options.images, options.annotations),
        options.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=options.workers,
        collate_fn=lambda pairs: tuple(zip(*pairs)),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("images")
    parser.add_argument("annotations")
    parser.add_argument("--loader", choices=["headrace", "torch"], default="headrace")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=0, help="of an epoch; 0: all")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2, help="of torch's loader")
    options = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    classes = len(json.loads(Path(options.annotations).read_text())["categories"]) + 1
    model = ssdlite320_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=classes
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = loader_of(options)
    for epoch in range(options.epochs):
        if options.loader == "headrace":
            loader.set_epoch(epoch)
        began, losses = time.monotonic(), []
        for step, (images, targets) in enumerate(loader):
            if options.steps and step == options.steps:
                break
            images = [image.to(device) for image in images]
            targets = [{k: t[k].to(device) for k in ("boxes", "labels")} for t in targets]
            loss = sum(model(images, targets).values())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        mean, seconds = torch.stack(losses).mean().item(), time.monotonic() - began
        print(f"epoch {epoch}: loss {mean:.4f}, {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
