"""headrace.torch.DataLoader on a list of URLs, or on a pack at one."""

import os

import headrace
import torch
from headrace import transforms as t
from headrace.torch import DataLoader

import object_common as common

args = common.arguments()
transform = t.Compose([t.CenterCrop(168), t.ToDtype(torch.uint8)])
if args.url.endswith(".hrpack"):
    dataset = headrace.Pack(args.url, transform)
else:
    dataset = headrace.ImageList([(url, 0) for url in common.urls(args.url)], transform)
loader = DataLoader(dataset, args.batch_size, shuffle="SEQUENTIAL" not in os.environ,
                    num_workers=args.workers, cache=os.environ.get("CACHE") or None)


def counts():
    """Returns the loader's counts, which are sums over its epochs."""
    return {key: value for key, value in loader.stats().items()
            if key.startswith("object_") or key == "bytes_read"}


common.serve("Headrace", headrace.__version__, lambda: loader, args.seconds, counts)
