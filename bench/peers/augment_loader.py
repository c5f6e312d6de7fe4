"""headrace.torch.DataLoader on the files, to normalised float32: by the loader (--recipe float32), or
from uint8 batches by headrace.torch.Normalize (--recipe uint8)."""

import headrace
import headrace.torch
import headrace.transforms as t

import worker

args = worker.arguments()
with open(args.files) as f:
    dataset = headrace.ImageList((path, 0) for path in f.read().splitlines())
crop = [t.RandomResizedCrop(worker.SIZE), t.RandomHorizontalFlip()]
normalize = None
if args.recipe == "uint8":
    normalize = headrace.torch.Normalize(worker.MEAN, worker.STD)
else:
    crop += [t.ToDtype("float32", scale=True), t.Normalize(worker.MEAN, worker.STD)]
loader = headrace.torch.DataLoader(dataset, worker.BATCH, shuffle=True, num_workers=1,
                                   transform=crop)


def one_pass():
    for images, _ in loader:
        if normalize is not None:
            normalize(images)


worker.serve("Headrace", headrace.__version__, one_pass, len(dataset))
