"""headrace.torch.DataLoader on the same samples and transform."""

import headrace
import headrace.torch
import torch
from headrace import transforms as t

import loader_common as common

args = common.arguments()
transform = t.Compose([t.RandomResizedCrop(224), t.RandomHorizontalFlip(),
                       t.ToDtype(torch.float32, scale=True), t.Normalize(common.MEAN, common.STD)])
dataset = headrace.ImageFolder(args.data, transform=transform)
step = max(1, len(dataset) // args.samples)
dataset = torch.utils.data.Subset(dataset, range(0, step * args.samples, step))
loader = headrace.torch.DataLoader(dataset, args.batch_size, shuffle=True,
                                   num_workers=args.workers)
common.serve("Headrace", headrace.__version__, loader)
