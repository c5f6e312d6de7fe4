"""headrace.torch.DataLoader of M5's input, from the files or from a pack of the form waveform."""

import headrace
import headrace.torch
import torch
from headrace import transforms as t

import audio_loader_common as common

args = common.arguments()
transform = [t.RandomWindow(common.SECONDS), t.Mono(), t.Resample(new_freq=common.RATE)]
if args.pack:
    dataset = headrace.Pack(args.pack, transform)
    dataset = torch.utils.data.Subset(dataset, list(range(len(dataset))) * common.REPEATS)
else:
    dataset = headrace.AudioList([(path, 0) for path in common.paths(args)], transform)
loader = headrace.torch.DataLoader(dataset, common.BATCH, shuffle=True, num_workers=args.workers)
common.serve("Headrace", headrace.__version__, loader)
