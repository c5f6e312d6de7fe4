"""A training script for tests of the agent: prints each batch as a line of JSON.

Its argument is JSON: data (an image folder), options (of the DataLoader), epochs, pace_s (duration
of a step), led (give a batch only for each line of stdin), state (to resume from), repeat (how
often the folder's samples are in the dataset), drawn (use a WeightedRandomSampler of so many
samples), boxes (each sample has rows).
"""

import hashlib
import json
import sys
import time

import torch
from torch.utils.data import WeightedRandomSampler

import headrace
import headrace.transforms as T
from headrace.torch import DataLoader


def rows_of(i):
    """The rows of sample i: i % 5 boxes."""
    corners = [(n, 2 * n, n + 9 + i % 7, 2 * n + 8) for n in range(i % 5)]
    return {
        "boxes": torch.tensor(corners, dtype=torch.float32).reshape(-1, 4),
        "labels": torch.arange(i % 5) + 10 * i,
        "image_id": i,
    }


def dataset(folder, repeat=1, boxes=False):
    samples = list(headrace.ImageFolder(folder).samples)
    finish = [T.RandomHorizontalFlip(), T.ToDtype("float32", scale=True)]
    if not boxes:
        transform = T.Compose([T.RandomResizedCrop(32), *finish])
        return headrace.ImageList(samples * repeat, transform)
    rows = [rows_of(i) for i in range(len(samples) * repeat)]
    transform = T.Compose(
        [T.RandomIoUCrop(), T.Resize((32, 32)), *finish, T.SanitizeBoundingBoxes()]
    )
    return headrace.ImageList(samples * repeat, transform, rows=rows)


def weighted(count, drawn, seed=5):
    """Draws with replacement, later samples more often; the generator continues from epoch to
    epoch."""
    generator = torch.Generator().manual_seed(seed)
    return WeightedRandomSampler(torch.arange(count) + 1.0, drawn, generator=generator)


def digest(images, targets=None):
    """A digest of a batch: of the images and, with rows, of these."""
    found = hashlib.sha1(images.numpy().tobytes())
    if hasattr(targets, "flat"):
        for name, values in targets.flat.items():
            found.update(name.encode() + values.numpy().tobytes())
        found.update(torch.as_tensor(targets.offsets).numpy().tobytes())
    return found.hexdigest()


def tell(**what):
    print(json.dumps(what), flush=True)


def told(loader, images, targets, index):
    state = loader.state_dict()
    return {"epoch": state["epoch"], "index": index.tolist(), "digest": digest(images, targets),
            "state": state}


def main():
    spec = json.loads(sys.argv[1])
    data = dataset(spec["data"], spec.get("repeat", 1), spec.get("boxes", False))
    sampler = weighted(len(data), spec["drawn"]) if "drawn" in spec else None
    loader = DataLoader(data, sampler=sampler, return_index=True, **spec["options"])
    if spec.get("state"):
        loader.load_state_dict(spec["state"])
    tell(ready=True)
    try:
        for epoch in range(spec.get("epochs", 1)):
            if spec.get("led"):
                sys.stdin.readline()
            for images, labels, index in loader:
                tell(**told(loader, images, labels, index), time=time.monotonic())
                time.sleep(spec.get("pace_s", 0))
                if spec.get("led"):
                    sys.stdin.readline()
            tell(end=epoch)
    except Exception as error:
        tell(error=type(error).__name__, message=str(error), state=loader.state_dict())
        return
    stats = loader.stats()
    tell(stats={name: stats[name] for name in ("samples", "missed", "alone", "reattached")})


if __name__ == "__main__":
    main()
