"""What the workers of bench/detection.py share: the set in memory, and SSD300's training recipe for
torchvision's transforms and for Headrace's alike."""

import argparse
import json
import os

SIZE = 300
FILL = [123.0, 117.0, 104.0]  # torchvision's preset for SSD: the mean
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--set", required=True, help="a folder of tools/make_detection.py")
    parser.add_argument("--recipe", choices=["ssd300", "plain"], default="ssd300")
    parser.add_argument("--form", default="encoded", help="of Headrace's items")
    parser.add_argument("--way", choices=["pil", "tensor"], default="tensor", help="of torchvision")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def images_of(folder):
    return os.path.join(folder, "images")


def annotations_of(folder):
    return os.path.join(folder, "instances.json")


def geometry(t):
    """What moves boxes, up to the resize."""
    return [t.RandomZoomOut(fill=list(FILL)), t.RandomIoUCrop(), t.RandomHorizontalFlip()]


def colors(t, recipe):
    return [t.RandomPhotometricDistort()] if recipe == "ssd300" else []


def load(folder):
    """Returns the files' bytes, and of each the boxes (x1, y1, x2, y2) and labels: as the datasets
    order them, by the images' ids."""
    with open(annotations_of(folder)) as f:
        whole = json.load(f)
    rows = {image["id"]: ([], []) for image in whole["images"]}
    for annotation in whole["annotations"]:
        boxes, labels = rows[annotation["image_id"]]
        x, y, width, height = annotation["bbox"]
        boxes.append([x, y, x + width, y + height])
        labels.append(annotation["category_id"])
    blobs = []
    for image in sorted(whole["images"], key=lambda image: image["id"]):
        with open(os.path.join(images_of(folder), image["file_name"]), "rb") as f:
            blobs.append((f.read(), image["width"], image["height"], *rows[image["id"]]))
    return blobs
