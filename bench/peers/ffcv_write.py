"""Writes an image folder as an FFCV file: `ffcv_write.py FOLDER OUT [MOST_PIXELS]`.
FFCV's writer decodes every image and encodes it again, here at quality 90 as in its
ImageNet example. With MOST_PIXELS it first shrinks the longer side to that."""

import os
import sys

from ffcv.fields import IntField, RGBImageField
from ffcv.writer import DatasetWriter
from PIL import Image

folder, out = sys.argv[1:3]
shrink = {"max_resolution": int(sys.argv[3])} if len(sys.argv) > 3 else {}


class Folder:
    def __init__(self):
        classes = sorted(d.name for d in os.scandir(folder) if d.is_dir())
        self.samples = [(os.path.join(folder, c, f), i) for i, c in enumerate(classes)
                        for f in sorted(os.listdir(os.path.join(folder, c)))]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        return Image.open(path).convert("RGB"), label


if __name__ == "__main__":
    field = RGBImageField(write_mode="jpg", jpeg_quality=90, **shrink)
    writer = DatasetWriter(out, {"image": field, "label": IntField()}, num_workers=1)
    writer.from_indexed_dataset(Folder())
