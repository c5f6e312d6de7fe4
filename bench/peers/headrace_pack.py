"""headrace.torch.DataLoader over a pack of the same samples."""

import headrace
import headrace.torch
import torch
from headrace import transforms as t

import loader_common as common

args = common.arguments()
transform = t.Compose([t.RandomResizedCrop(224), t.RandomHorizontalFlip(),
                       t.ToDtype(torch.float32, scale=True), t.Normalize(common.MEAN, common.STD)])
loader = headrace.torch.DataLoader(headrace.Pack(args.data, transform=transform), args.batch_size,
                                   shuffle=True, num_workers=args.workers)
common.serve("Headrace", headrace.__version__, loader)
